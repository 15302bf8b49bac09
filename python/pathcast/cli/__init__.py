"""The command line: `pathcast --help`.

Imports what a command needs once it is known which command that is; `commands.py` lists them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
from typing import NoReturn

#: An argument that names standard output as a file to write: what is said does not go there, too.
_STDOUT = re.compile(r"(-o|--[a-z-]+=)?/(dev/stdout|dev/fd/1|proc/self/fd/1)")

#: Exit code for what the caller got wrong.
BAD_INPUT = 2


def main() -> None:
    """Run the command line; what the caller got wrong ends with exit code 2."""
    if sys.argv[1:] == ["--version"]:
        from pathcast import __version__

        sys.stdout.write(f"{__version__}\n")
        return

    import warnings

    from pathcast.cli.commands import app
    from pathcast.exceptions import PathcastError
    from pathcast.foreign import visible_lines

    if any(_STDOUT.fullmatch(argument) for argument in sys.argv):
        from pathcast.cli.console import print_on_stderr

        print_on_stderr()
    # what is doubtful about a trace, without the line of ours that found it
    warnings.formatwarning = lambda message, *_args, **_kwargs: f"{visible_lines(message)}\n"
    try:
        code = app(prog_name="pathcast", standalone_mode=False)
    except _wrong_arguments() as error:
        from pathcast.cli.console import print_wrong_arguments

        print_wrong_arguments(error)
        _end(BAD_INPUT)
    except PathcastError as error:
        from pathcast.cli.console import print_error

        print_error(error)
        _end(BAD_INPUT)
    except UnicodeEncodeError as error:
        from pathcast.cli.console import print_error

        print_error(f"got {error.object!r}, which is not UTF-8; expected text in UTF-8")
        _end(BAD_INPUT)
    except KeyboardInterrupt:
        from pathcast.cli.console import INTERRUPTED, err

        err.print("interrupted; nothing is left behind")
        _end(INTERRUPTED)
    _end(code or 0)


def _end(code: int) -> NoReturn:
    """End this process.

    Threads of Ray go on after its shutdown, and crash now and then when what they use is freed at the end. So nothing is
    freed where Ray was at work, as Ray itself does with its workers.
    """
    if "ray" in sys.modules:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _wrong_arguments() -> type[Exception]:
    """The class of errors that typer raises for arguments; the click that it brings is its own."""
    import typer

    kind = typer.BadParameter
    while kind.__base__ is not Exception:
        kind = kind.__base__  # type: ignore[assignment]
    return kind


if __name__ == "__main__":
    main()
