"""The command line: `pathcast --help`.

Imports what a command needs once it is known which command that is; `cli_commands.py` lists them.
"""

from __future__ import annotations

import sys

#: Exit code for what the caller got wrong.
BAD_INPUT = 2


def main() -> None:
    """Run the command line; what the caller got wrong ends with exit code 2."""
    if sys.argv[1:] == ["--version"]:
        from pathcast import __version__

        sys.stdout.write(f"{__version__}\n")
        return

    import warnings

    from pathcast.cli_commands import app
    from pathcast.exceptions import PathcastError

    # what is doubtful about a trace, without the line of ours that found it
    warnings.formatwarning = lambda message, *_args, **_kwargs: f"{message}\n"
    try:
        app(prog_name="pathcast")
    except PathcastError as error:
        from pathcast.console import err

        err.print("[bold red]error:[/]", end=" ")
        err.print(str(error), markup=False, soft_wrap=True)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        from pathcast.console import INTERRUPTED, err

        err.print("interrupted; nothing is left behind")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
