"""A program that calls Pathcast's functions in its own user namespace; see rootless.py.

Its arguments are a descriptor, over which it receives the calls, and the process that started it.
"""

import importlib.machinery
import importlib.util
import os
import sys
from multiprocessing.connection import Connection


def main() -> None:
    """Enter a user namespace, and run the function that the other process names."""
    descriptor, parent = map(int, sys.argv[1:])
    os.set_inheritable(descriptor, False)
    connection = Connection(descriptor)
    try:
        sys.path[:], extension = connection.recv()
    except EOFError:
        return  # the caller has ended
    # the extension alone: NumPy begins threads, and a process that has any cannot enter
    name = "pathcast._internal"
    loader = importlib.machinery.ExtensionFileLoader(name, extension)
    spec = importlib.util.spec_from_file_location(name, extension, loader=loader)
    assert spec is not None, "a loader was given"  # noqa: S101
    internal = importlib.util.module_from_spec(spec)
    loader.exec_module(internal)
    try:
        internal.enter_user_namespace(parent)
    except internal.EmulatorError as error:
        connection.send(("refused", str(error)))
        return
    sys.modules[name] = internal

    from pathcast import rootless

    rootless.serve(connection)


if __name__ == "__main__":
    main()
