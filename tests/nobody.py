"""Commands as a user without privileges, where the tests run as root."""

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import IN_CI, PATHCAST, ROOT

NOBODY = 65534


def _hidden():
    """What Pathcast needs below folders that only root may enter, by the uppermost such folder."""
    found = {}
    for folder in {Path(sys.base_prefix), Path(sys.prefix), ROOT}:
        for above in reversed(folder.resolve().parents):
            if not above.stat().st_mode & stat.S_IXOTH:
                found.setdefault(above, []).append(folder.resolve())
                break
    return found


def _script(place, tun):
    """Shell commands for a mount namespace of its own: what is hidden can be reached, and no more. In the
    folder `place` they make what they need."""
    lines = []
    for number, (above, folders) in enumerate(_hidden().items()):
        kept = place / f"kept{number}"
        for i, folder in enumerate(folders):
            lines += [f"mkdir -p {kept}/{i}", f"mount --bind {shlex.quote(str(folder))} {kept}/{i}"]
        lines.append(f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(above))}")
        for i, folder in enumerate(folders):
            there = shlex.quote(str(folder))
            lines += [f"mkdir -p {there}", f"mount --move {kept}/{i} {there}"]
    if tun:  # as most distributions have it
        lines += [f"mkdir -p {place}/dev", f"mount -t tmpfs tmpfs {place}/dev"]
        lines += [f"mknod -m 666 {place}/dev/tun c 10 200"]
        lines += [f"mount --bind {place}/dev/tun /dev/net/tun"]
    ids = f"--reuid {NOBODY} --regid {NOBODY} --clear-groups"
    return " && ".join([*lines, f'exec setpriv {ids} --inh-caps=-all "$@"'])


def as_nobody(home, *command, tun=False):
    """A command as words, run by a user without privileges, whose home is `home`, a folder."""
    command = [str(word) for word in command]
    if os.geteuid() != 0:
        return command
    for folder in (home, *home.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    os.chown(home, NOBODY, NOBODY)
    return [
        "unshare",
        "--mount",
        "sh",
        "-ec",
        _script(home.with_name("mounts"), tun),
        "sh",
        *command,
    ]


def environment(home):
    """The environment of such a user; what programs cache is not in their home."""
    cache = home.with_name("cache")
    cache.mkdir(exist_ok=True)
    cache.chmod(0o777)
    caches = {"MPLCONFIGDIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    return os.environ | {"HOME": str(home)} | caches


def run_as_nobody(home, *arguments, tun=False, **options):
    """As `run` of conftest, as nobody and in their home."""
    return subprocess.run(
        as_nobody(home, PATHCAST, *arguments, tun=tun),
        check=False, capture_output=True, text=True, timeout=120, cwd=home,
        env=environment(home), **options,
    )  # fmt: skip


def may_make_user_namespaces():
    """Why there can be no user namespaces here; None if there can. In CI there must be."""
    if os.geteuid() == 0 and not Path("/proc/self/ns/mnt").exists():
        return "no mount namespaces"
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    tried = subprocess.run(
        [*(drop if os.geteuid() == 0 else []), "unshare", "--user", "--net", "true"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if tried.returncode == 0:
        return None
    reason = f"user namespaces cannot be made here: {tried.stderr.strip()}"
    if IN_CI and os.geteuid() == 0:
        pytest.fail(reason)
    return reason
