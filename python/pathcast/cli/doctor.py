"""`pathcast doctor`: what this machine can run."""

from __future__ import annotations

from importlib.util import find_spec

from pathcast import extras, runs
from pathcast.cli.console import out, print_json, styled
from pathcast.cli.options import Json


def doctor(as_json: Json = False) -> None:
    """Show what this machine can run, what it lacks, and how to get it."""
    found = runs.capabilities()
    packages = {
        extra: {module: find_spec(module) is not None for module in modules}
        for extra, modules in extras.MODULES.items()
    }
    if as_json:
        print_json(vars(found) | {"can_emulate": found.can_emulate, "packages": packages})
        return
    _print("simulate, predict, fit, evaluate", True)
    _print("emulate, shell: the kernel's TCP over emulated paths", found.can_emulate)
    for name, there in (
        ("network namespaces, as this user", found.root),
        *((("user namespaces, without root", found.rootless),) if not found.root else ()),
        ("TUN devices", found.tun),
        ("veth pairs", found.veth),
        ("real-time priority", found.fifo),
        ("tcp_probe", found.tcp_probe),
    ):
        _print(f"  {name}", there)
    out.print(f"       congestion controls: {', '.join(found.schemes) or 'none'}")
    if found.bpf_schemes:
        out.print(f"       by BPF, for one run: {', '.join(found.bpf_schemes)}")
    for extra, modules in packages.items():
        missing = [module for module, there in modules.items() if not there]
        _print(f"{extras.USES[extra]}: {', '.join(modules)}", not missing)
        if missing:
            out.print(f"       to get it: pip install 'pathcast[{extra}]'")
    if found.reasons:
        out.print("why, and what to do:")
    for reason in found.reasons:
        out.print(f"  - {reason}", soft_wrap=True)


def _print(name: str, there: bool) -> None:
    out.print(styled(("yes", "green") if there else ("no ", "red"), f"  {name}"), soft_wrap=True)
