"""Put the program pathcast-udp where it is asked for.

It is the one that PATHCAST_UDP names; or it is built, where Pathcast's sources are; or it is the one on the path.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

#: The sources, if this is a checkout of them.
ROOT = Path(__file__).resolve().parents[5]


def found() -> str:
    """The program."""
    if given := os.environ.get("PATHCAST_UDP"):
        return given
    if (ROOT / "crates/udp/Cargo.toml").exists() and shutil.which("cargo"):
        command = ["cargo", "build", "--release", "--locked", "--package", "pathcast-udp"]
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - our own words
        target = os.environ.get("CARGO_TARGET_DIR") or str(ROOT / "target")
        return f"{target}/release/pathcast-udp"
    if there := shutil.which("pathcast-udp"):
        return there
    sys.exit(
        "got no program pathcast-udp; expected it on the path or named by PATHCAST_UDP: "
        "cargo install --locked --path crates/udp"
    )


if __name__ == "__main__":
    shutil.copy2(found(), sys.argv[1])
