"""A program that starts the ends of flows on one side of a path, and watches them: see run.py.

`_side.py FOLDER inside|outside`: it runs in the network namespace of that side. FOLDER/plan.json says what to start.
The two sides meet in the folder: `ready-N` and `failed-N` say of flow N's receiver whether it listens, `begin` has the
moment of the monotonic clock from which the flows' times count, and `end` means that all senders have ended. The result of
each end of a flow is written to N-ROLE.json. It needs nothing but Python.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import IO, Any

#: How often files of the other side are looked for, in seconds.
_EVERY_S = 0.02
#: How much of a program's output is kept for people.
_TAIL_BYTES = 2000
#: How long the other side may take, beyond what its plan takes, in seconds.
_OTHER_S = 15.0
#: How long it may take until a program is contained, in seconds: all at a time, on a busy machine.
_PREPARE_S = 40.0


def _contain() -> Any:  # noqa: ANN401 - a module
    """The module beside this one, without the package, whose import takes long."""
    spec = importlib.util.spec_from_file_location("contain", Path(__file__).with_name("contain.py"))
    assert spec is not None and spec.loader is not None, "it is a file"  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules["contain"] = module
    spec.loader.exec_module(module)
    return module


contain = _contain()


def _write(file: Path, content: str) -> None:
    """Write a file that the other side sees whole or not at all."""
    new = file.with_name(f".{file.name}")
    new.write_text(content)
    new.rename(file)


class End:
    """One end of a flow, contained."""

    def __init__(self, folder: Path, number: int, job: dict[str, Any], selector: Any) -> None:  # noqa: ANN401
        self.folder, self.number, self.job = folder, number, job
        self.role: str = job["role"]
        self.output = {"stdout": b"", "stderr": b"", "report": b""}
        self.written = 0
        self.why_not: str | None = None
        self.started_s: float | None = None
        self.stopped = self.finished = False
        self.selector = selector
        report_out, report_in = os.pipe()
        gate_out, self.gate = os.pipe()
        root = folder / f"root-{number}-{self.role}"
        root.mkdir()
        limits = contain.Limits(**job["limits"])
        line = contain.words(
            job["command"],
            root=root,
            report=report_in,
            gate=gate_out,
            readable=job["readable"],
            limits=limits,
            most_s=job["most_s"],
            kernel_scheme=job["kernel_scheme"],
        )
        self.limits = limits
        self.process = subprocess.Popen(  # noqa: S603 - the words of a scheme's file, contained
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[report_in, gate_out],
        )
        for descriptor in (report_in, gate_out):
            os.close(descriptor)
        assert self.process.stdout is not None and self.process.stderr is not None, "they are pipes"  # noqa: S101
        self.streams: dict[str, IO[bytes]] = {
            "stdout": self.process.stdout,
            "stderr": self.process.stderr,
            "report": os.fdopen(report_out, "rb"),
        }
        for name, stream in self.streams.items():
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, (self, name))

    def start(self) -> None:
        """Let the program begin."""
        self.started_s = time.monotonic()
        with contextlib.suppress(OSError):
            os.write(self.gate, b"+")

    def stop(self) -> None:
        """Ask the program to end; it is killed if it does not."""
        if not self.stopped:
            self.stopped = True
            os.close(self.gate)
            self.process.terminate()

    def kill(self, why_not: str) -> None:
        """Kill the program."""
        self.why_not = self.why_not or why_not
        self.process.kill()

    def read(self, name: str) -> bool:
        """Take what the program has written; false at the end."""
        with contextlib.suppress(BlockingIOError):
            got = os.read(self.streams[name].fileno(), 1 << 16)
            if not got:
                return False
            self.written += len(got)
            # of what is too much, the end is kept
            self.output[name] = (self.output[name] + got)[-(1 << 16) :]
            if self.written > self.limits.log_bytes:
                self.kill(f"wrote more than {self.limits.log_bytes >> 10} KiB of log")
        return True

    def has_ended(self) -> bool:
        """Whether it has; then its result is written."""
        if self.finished:
            return True
        if self.process.poll() is None:
            return False
        self.finished = True
        ended_s = time.monotonic()
        for name, stream in self.streams.items():
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(stream)
            while (
                readable(stream) and self.written <= 2 * self.limits.log_bytes and self.read(name)
            ):
                pass
            stream.close()
        # the line before says that the program may begin
        text = self.output["report"].rpartition(b"\n")[2]
        found = {
            "report": json.loads(text) if text else None,
            "said": _last_object(self.output["stdout"]),
            "why_not": self.why_not,
            "started_s": self.started_s,
            "ended_s": ended_s,
            "stopped": self.stopped,
            "log_tail": self.tail(),
        }
        _write(self.folder / f"{self.number}-{self.role}.json", json.dumps(found))
        return True

    def is_prepared(self) -> bool:
        """Whether the program may begin, or never will."""
        return self.finished or b"\n" in self.output["report"]

    def tail(self) -> str:
        """The end of what it wrote, for people."""
        said = self.output["stderr"] or self.output["stdout"]
        return said[-_TAIL_BYTES:].decode(errors="replace")

    def listens(self) -> bool:
        """Whether it has said so."""
        return b"listening" in self.output["stdout"].split(b"\n")[:-1]


def readable(stream: Any) -> bool:  # noqa: ANN401 - a pipe
    """Whether something can be read without waiting."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(0))


def _last_object(output: bytes) -> Any:  # noqa: ANN401 - what a program printed
    for line in reversed(output.split(b"\n")):
        if line.startswith(b"{"):
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                return found if isinstance(found, dict) else None
    return None


def bound_ports() -> set[int]:
    """The ports of this network namespace on which something waits for others."""
    found = set()
    for table, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == state:
                    found.add(int(words[1].rpartition(":")[2], 16))
    return found


class Side:
    """All ends of flows on this side."""

    def __init__(self, folder: Path, where: str) -> None:
        self.folder, self.where = folder, where
        plan = json.loads((folder / "plan.json").read_text())
        self.flows: list[dict[str, Any]] = plan["flows"]
        self.duration_s: float = plan["duration_s"]
        self.reverse: bool = plan["reverse"]
        self.sends = (where == "inside") != self.reverse
        self.selector = selectors.DefaultSelector()
        self.ends: dict[int, End] = {}
        inside, outside = os.environ["PATHCAST_ADDRESS"], os.environ["PATHCAST_BASE"]
        self.address = inside if self.reverse else outside

    def launch(self) -> None:
        """Prepare this side's end of each flow; nothing begins yet."""
        role = "sender" if self.sends else "receiver"
        for number, flow in enumerate(self.flows):
            if flow["why_not"] is not None:
                continue
            job = flow | {"role": role, "command": self.command(flow, role)}
            job["kernel_scheme"] = flow["kernel_scheme"] if self.sends else None
            self.ends[number] = End(self.folder, number, job, self.selector)

    def prepare(self) -> None:
        """Wait until every program of this side may begin."""
        deadline = time.monotonic() + _PREPARE_S
        while not all(end.is_prepared() for end in self.ends.values()):
            self.turn()
            if time.monotonic() > deadline:
                for end in self.ends.values():
                    if not end.is_prepared():
                        end.kill(f"could not be contained within {_PREPARE_S:g} s")

    def command(self, flow: dict[str, Any], role: str) -> list[str]:
        """The command line, now that the address is known."""
        return [word.replace("{address}", self.address) for word in flow[role]]

    def turn(self, seconds: float = _EVERY_S) -> None:
        """Read what programs write, for so long at most."""
        for key, _ in self.selector.select(max(0.0, seconds)):
            end, name = key.data
            if not end.read(name):
                self.selector.unregister(key.fileobj)
        for end in self.ends.values():
            end.has_ended()

    def receivers_listen(self) -> None:
        """Start the receivers, and report each that listens or does not."""
        begun = time.monotonic()
        waiting = dict(self.ends)
        for end in waiting.values():
            end.start()
        while waiting:
            self.turn()
            for number, end in list(waiting.items()):
                port, late = self.flows[number]["port"], time.monotonic() - begun
                if end.finished or end.why_not is not None:
                    _write(self.folder / f"failed-{number}", "")
                elif end.listens() and port in bound_ports():
                    _write(self.folder / f"ready-{number}", "")
                elif end.listens() and late > end.limits.ready_s / 2:
                    end.kill(f"does not listen on port {port}, but said `listening`")
                    continue
                elif late > end.limits.ready_s:
                    end.kill(f"did not say `listening` within {end.limits.ready_s:g} s")
                    continue
                else:
                    continue
                del waiting[number]

    def other_side(self, file: str, within_s: float) -> bool:
        """Wait for a file of the other side, while programs are read."""
        deadline = time.monotonic() + within_s
        while not (self.folder / file).exists():
            if time.monotonic() > deadline:
                return False
            self.turn()
        return True

    def send(self) -> None:
        """Run the senders whose receivers listen, each within its time."""
        for number, end in list(self.ends.items()):
            limit = end.limits.ready_s + _OTHER_S + _PREPARE_S
            states = (self.folder / f"ready-{number}", self.folder / f"failed-{number}")
            deadline = time.monotonic() + limit
            while not any(state.exists() for state in states) and time.monotonic() < deadline:
                self.turn()
            if not states[0].exists():
                end.why_not = "its receiver never listened"
                end.stop()
        zero = time.monotonic() + 0.1
        _write(self.folder / "begin", repr(zero))
        while not all(end.has_ended() for end in self.ends.values()):
            now = time.monotonic() - zero
            next_s = self.duration_s
            for number, end in self.ends.items():
                if end.stopped or end.finished:
                    continue
                flow = self.flows[number]
                stop_s = self.duration_s if flow["stop_s"] is None else flow["stop_s"]
                if end.started_s is None and now >= flow["start_s"]:
                    end.start()
                if now >= min(stop_s, self.duration_s):
                    end.stop()
                next_s = min(
                    next_s, stop_s, flow["start_s"] if end.started_s is None else self.duration_s
                )
            self.turn(min(0.1, max(0.002, next_s - now)))

    def run(self) -> None:
        """Do this side's part."""
        self.launch()
        self.prepare()
        if self.sends:
            self.send()
            _write(self.folder / "end", "")
            # their last packets must arrive
            self.other_side("over", _OTHER_S)
            return
        self.receivers_listen()
        most_s = (
            self.duration_s
            + _OTHER_S
            + 2
            * max(
                (end.limits.ready_s + end.limits.end_s for end in self.ends.values()), default=0.0
            )
        )
        self.other_side("end", most_s)
        time.sleep(0.1)
        for end in self.ends.values():
            end.stop()
        while not all(end.has_ended() for end in self.ends.values()):
            self.turn()
        _write(self.folder / "over", "")


def main() -> None:
    """Run one side; SIGTERM ends it, and all that it started."""
    folder, where = Path(sys.argv[1]), sys.argv[2]

    def stop(_number: int, _frame: FrameType | None) -> None:
        if (folder / "over").exists() or where == "inside":
            os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    # the shell takes a server as ready when it listens
    with socket.create_server(("127.0.0.1", 0)):
        Side(folder, where).run()


if __name__ == "__main__":
    main()
