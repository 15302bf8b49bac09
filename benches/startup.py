"""How long commands take to start: whole processes, the median of several runs, beside Python's own start.

Run: python benches/startup.py [RUNS]
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATHCAST = str(Path(sys.executable).with_name("pathcast"))


def median_ms(command, runs):
    """The median wall time of a command in ms; its first run, which compiles and reads files, aside."""
    taken = []
    for _ in range(runs + 1):
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(taken[1:])


def main():
    """Prints one line a command."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "path.toml")
        path.write_text("rate = '12 Mbit/s'\ndelay = '30 ms'\n")
        python = sys.executable
        for name, command in {
            "python, nothing": [python, "-c", "pass"],
            "import pathcast": [python, "-c", "import pathcast"],
            "import pathcast._internal": [python, "-c", "import pathcast._internal"],
            "import typer": [python, "-c", "import typer"],
            "import typer, rich's tables": [python, "-c", "import typer, rich.console, rich.table"],
            "import numpy": [python, "-c", "import numpy"],
            "pathcast --version": [PATHCAST, "--version"],
            "pathcast --help": [PATHCAST, "--help"],
            "pathcast simulate, 1 s": [PATHCAST, "simulate", str(path), "--duration", "1"],
        }.items():
            print(f"{name:28} {median_ms(command, runs):6.0f} ms")


if __name__ == "__main__":
    main()
