"""The Rust crates; use the modules beside it instead."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_Column = npt.NDArray[np.float64]
_Columns = tuple[_Column, _Column, _Column | None, _Column | None]

class PathFileError(Exception): ...
class TraceError(Exception): ...
class SchemeError(Exception): ...
class SimulationError(Exception): ...
class EmulatorError(Exception): ...
class LiveError(Exception): ...
class ModelError(Exception): ...
class ProbeError(Exception): ...

class Trace:
    def __init__(self, columns: dict[str, _Column], metadata_json: str) -> None: ...
    def columns(self) -> dict[str, _Column]: ...
    def metadata_json(self) -> str: ...
    def write(self, file: Path) -> None: ...
    def __len__(self) -> int: ...

class Watch:
    def __init__(
        self,
        port: int | None,
        local_port: int | None,
        remote_port: int | None,
        pid: int | None,
        cgroup: str | None,
        prefix: str | None,
        all_namespaces: bool,
        sockets: list[int] | None,
        method: str | None,
        record: bool,
        trace_file: Path | None,
    ) -> None: ...
    def progress(self) -> tuple[int, int] | None: ...
    def finish(self) -> tuple[str, Trace | None] | None: ...
    def close(self) -> None: ...

class Forecaster:
    def __init__(
        self,
        cc: str,
        horizons_s: Sequence[float],
        rtt_s: float | None = None,
        restart_on_break: bool = False,
    ) -> None: ...
    def observe(self, flow: _Columns) -> None: ...
    def forecast(self, now_s: float, horizon_s: float) -> str: ...

class Estimator:
    def __init__(
        self,
        model: str,
        flow: _Columns,
        horizons_s: list[float],
        protocol_name: str,
        cc: str | None = None,
        rtt_s: float | None = None,
    ) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def forecast(
        self, state: dict[str, Any], horizon_s: float
    ) -> tuple[str, float, float, list[float]]: ...

class LossClusters:
    def __init__(self) -> None: ...
    @classmethod
    def from_json(cls, text: str) -> LossClusters: ...
    def to_json(self) -> str: ...
    def __len__(self) -> int: ...
    def add(
        self,
        flows: Sequence[_Columns],
        client: str,
        network: str | None,
        region: str | None,
        now_s: float,
        cc: str | None = None,
        rtt_s: float | None = None,
    ) -> None: ...
    def remove(self, client: str) -> None: ...
    def curve(
        self,
        client: str | None,
        network: str | None,
        region: str | None,
        now_s: float,
        pooling: str,
    ) -> str: ...

class ArrowTable:
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __len__(self) -> int: ...
    def write(self, file: Path) -> None: ...
    def numbers(self, name: str) -> _Column: ...

def check_simulations(
    specs: Sequence[tuple[str, str, list[str] | None, float, int]],
) -> None: ...
def simulate_many(
    specs: Sequence[tuple[str, str, list[str] | None, float, int]],
    threads: int = 0,
    progress: Callable[[float], None] | None = None,
) -> ArrowTable: ...
def recognise(file: Path) -> str: ...
def import_trace(
    file: Path, keep_prefix: bool, flow: int | None = None, egress: Path | None = None
) -> tuple[Trace, str]: ...
def export_csv(trace: Trace, file: Path) -> None: ...
def convert_packets(
    file: Path,
    output: Path,
    keep_prefix: bool,
    flow: int | None = None,
    egress: Path | None = None,
) -> str: ...
def convert_pantheon_perf(file: Path, output: Path, keep_prefix: bool) -> str: ...
def check_path(text: str, file: str, load_files: bool = False) -> str: ...
def path_as(text: str, file: str, tool: str) -> tuple[str, list[tuple[str, str]], list[str]]: ...
def from_mahimahi(
    words: list[str],
) -> tuple[str, list[str], list[str], tuple[str | None, str | None], list[str]]: ...
def first_route(text: str, file: str) -> list[str]: ...
def run_shell(
    links: list[tuple[str, str]],
    seed: int,
    command: tuple[str, list[str]],
    scheme: str | None,
    environment: list[tuple[str, str]],
    user: tuple[int, int] | None,
    outside: tuple[str, list[str]] | None,
    device: str | None,
    packets_file: Path | None,
    mm_logs: tuple[Path | None, ...],
    signals: Callable[[], int | None],
) -> str: ...
def path_summary(
    text: str, file: str
) -> tuple[str, float | None, float, float, int | None, int | None]: ...
def is_scenario(text: str) -> bool: ...
def check_scenario(text: str, file: str, load_files: bool = False) -> str: ...
def scenario_over(path_text: str, file: str, schemes: list[str], workload: str) -> str: ...
def scenario_summary(text: str, file: str) -> tuple[str, float | None, list[tuple[str, str]]]: ...
def simulator_schemes() -> list[str]: ...
def simulate(
    text: str,
    file: str,
    schemes: list[str] | None,
    duration_s: float,
    seed: int,
    record: bool,
    progress: Callable[[float], None] | None = None,
    trace_file: Path | None = None,
    packets_file: Path | None = None,
) -> tuple[str, Trace | None]: ...
def emulate(
    text: str,
    file: str,
    schemes: list[str] | None,
    duration_s: float,
    seed: int,
    ipv6: bool = False,
    device: str | None = None,
    packets_file: Path | None = None,
    messages_file: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> tuple[str, Trace | None]: ...
def capabilities() -> tuple[
    tuple[bool, bool, bool, bool, bool], list[str], list[str], list[str]
]: ...
def may_make_namespaces() -> bool: ...
def enter_user_namespace(parent: int) -> None: ...
def fit(
    flows: Sequence[_Columns],
    names: list[str],
    npcs: list[int],
    cc: str | None = None,
    rtt_s: float | None = None,
) -> str: ...
def evaluate(
    flow: _Columns,
    horizons_s: list[float],
    protocol: str,
    cc: str | None = None,
    rtt_s: float | None = None,
    window_s: float | None = None,
    keep_predictions: bool = False,
) -> str: ...
def estimate_short_flow(
    bytes: float,
    time_s: float,
    before_s: float,
    rtts_s: list[float],
    sizes_bytes: list[float],
    timeline: tuple[_Column, _Column] | None,
    mss_bytes: float,
    initial_window_packets: float,
    receive_window_bytes: float | None = None,
    losses: int | None = None,
    windows_of_bytes: float | None = None,
) -> str: ...
def follow(
    flows: Sequence[_Columns],
    window_s: float,
    cc: str | None = None,
    rtt_s: float | None = None,
) -> str: ...
def model_names() -> list[tuple[str, list[str]]]: ...
def latency(path: str, transfers: str) -> str: ...
def latency_on_trace(
    flow: _Columns,
    transfers: str,
    at_s: float | None = None,
    new: bool = False,
    cc: str | None = None,
    rtt_s: float | None = None,
) -> str: ...
def evaluate_latency(
    flow: _Columns,
    sizes_bytes: list[int],
    every_s: int,
    cc: str | None = None,
    rtt_s: float | None = None,
    mss_bytes: int = 1448,
) -> str: ...
def live_key(file: Path) -> None: ...
def live_serve(
    listen: str,
    key_file: Path,
    most_clients: int,
    most_duration_s: float,
    once: bool,
    say: Callable[[str], None],
) -> None: ...
def live_run(
    server: tuple[str, int],
    key_file: Path,
    scenario: tuple[str, str] | None,
    schemes: list[str],
    reverse: bool,
    workload: str | None,
    duration_s: float,
    seed: int,
    packets_file: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> tuple[str, Trace]: ...

class WindowLoop:
    def __init__(
        self,
        rate_pps: float,
        latency_s: float,
        acknowledgment_s: float,
        window: int | None,
        probability: float | None,
        every: int | None,
    ) -> None: ...
    def probe(
        self,
        rate_pps: float,
        warm_up: int,
        packets: int,
        per_sample: int,
        seed: int,
        progress: Callable[[float], None] | None = None,
    ) -> dict[str, Any]: ...
    def probe_fluid(
        self,
        rate_pps: float,
        warm_up_s: float,
        duration_s: float,
        every_s: float,
        steps: int,
        seed: int,
        progress: Callable[[float], None] | None = None,
    ) -> dict[str, Any]: ...
    def greedy_rate(self, duration_s: float, steps: int, seed: int) -> float: ...
    def carry(self, written_s: _Column, warm_up: int, seed: int) -> _Column: ...

def simulate_probe(
    text: str,
    file: str,
    duration_s: float,
    seed: int,
    flow: int,
    from_s: float,
    per_sample: int,
    window_every_s: float,
    progress: Callable[[float], None] | None = None,
) -> tuple[str, dict[str, Any]]: ...
