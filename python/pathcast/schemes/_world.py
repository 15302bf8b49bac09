"""A program that runs the flows of a plan over a path: see run.py.

`_world.py FOLDER PARENT`: PARENT is the process that waits for it. FOLDER/world.json has the path and the seed. As root, the outside is a fresh network namespace; as a
user, a fresh user namespace has it. The report of the shell is written to FOLDER/shell.json, or why there is none to
FOLDER/error.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path

from pathcast import _internal, rootless, shell
from pathcast.exceptions import PathcastError, translated

_NEWNET = 0x4000_0000
_SET_PDEATHSIG = 1
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_SIDE = Path(__file__).with_name("_side.py")


def _enter_network() -> None:
    """Enter a network namespace with nothing but a loopback."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWNET) != 0:
        raise PathcastError(f"making a network namespace: {os.strerror(ctypes.get_errno())}")
    raise_loopback()


def raise_loopback() -> None:
    """Take the loopback of this network namespace into use."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, _GET_FLAGS, asked))[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def die_with_parent() -> None:
    """Let this process be killed when the one that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def side_words(folder: Path) -> list[str]:
    """Words of the command line of a side, but for which side."""
    return [sys.executable, "-I", "-S", str(_SIDE), str(folder)]


def forget_sudo() -> None:
    """Forget who called sudo: programs are contained whoever runs this, and need nothing that the user may do."""
    for name in ("SUDO_UID", "SUDO_GID"):
        os.environ.pop(name, None)


def provide(folder: Path) -> list[_internal.KernelScheme]:
    """Bring the congestion controls of the plan's flows into the kernel, for as long as the result lives."""
    plan = json.loads((folder / "plan.json").read_text())
    provided: dict[str, _internal.KernelScheme | str] = {}
    for flow in plan["flows"]:
        name = flow["kernel"]
        if name is None or flow["why_not"] is not None:
            continue
        if name not in provided:
            try:
                with translated():
                    provided[name] = _internal.KernelScheme(name)
            except PathcastError as error:
                provided[name] = str(error)
        got = provided[name]
        if isinstance(got, str):
            flow["why_not"] = got
        else:
            flow["kernel_scheme"], flow["by_bpf"] = got.kernel_name, got.by_bpf
    (folder / "plan.json").write_text(json.dumps(plan))
    return [got for got in provided.values() if not isinstance(got, str)]


def main() -> None:
    """Run the plan."""
    folder, parent = Path(sys.argv[1]), int(sys.argv[2])
    die_with_parent()
    if os.getppid() != parent:
        return
    world = json.loads((folder / "world.json").read_text())
    forget_sudo()
    try:
        provided = provide(folder)
        if not rootless.needed():
            _enter_network()
        side = side_words(folder)
        links = shell.Links(tuple(world["paths"]), world["file"], world["toml"])
        report = shell.run(
            links,
            [*side, "inside"],
            outside=[*side, "outside"],
            seed=world["seed"],
            packets_file=folder / "packets.parquet",
        )
        del provided
        (folder / "shell.json").write_text(json.dumps(report.to_dict()))
    except (PathcastError, OSError) as error:
        (folder / "error").write_text(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
