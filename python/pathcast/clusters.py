"""Loss curves of many clients, and that of a new one: from its prefix, its network, its region, all."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pathcast import _internal
from pathcast.exceptions import ModelError, translated
from pathcast.files import write_beside
from pathcast.models import check_rtt, chosen_cc, columns
from pathcast.trace import Trace

Pooling = Literal["posterior", "mean", "median"]

#: The largest store that is read, in bytes: 100,000 prefixes with 100 windows each have half as many.
MOST_BYTES = 512 << 20


@dataclass(frozen=True)
class LevelBasis:
    """Evidence that one level added to a curve.

    Attributes:
        level: `prefix`, `network`, `region` or `all`.
        name: which of them.
        prefixes: prefixes in it.
        packets: packets seen, weighed by age.
        losses: losses seen.
        weight: its part in the curve; all levels' parts sum to 1.

    """

    level: str
    name: str
    prefixes: int
    packets: float
    losses: float
    weight: float


@dataclass(frozen=True)
class ClusterPoint:
    """The curve at one window.

    Attributes:
        cwnd_packets: the window.
        loss_probability: of a packet sent at it.
        low: it is below this with 5 % chance; with `mean` and `median` the lowest of the clients'.
        high: it is above this with 5 % chance; with `mean` and `median` the highest.

    """

    cwnd_packets: float
    loss_probability: float
    low: float
    high: float


@dataclass(frozen=True)
class ClusterCurve:
    """p(cwnd) of a client, and the evidence for it.

    Attributes:
        levels: the closest first.
        points: ascending by window; none where nothing is known.

    """

    levels: tuple[LevelBasis, ...]
    points: tuple[ClusterPoint, ...]

    def to_dict(self) -> dict[str, Any]:
        """As `pathcast curve --json` prints it."""
        return {
            "levels": [vars(level) for level in self.levels],
            "points": [vars(point) for point in self.points],
        }


class LossClusters:
    """Loss curves of many clients, pooled over levels by their evidence, which fades in weeks.

    Example:
        >>> import numpy as np
        >>> sawtooth = {"time_s": np.arange(1100) * 0.1, "cwnd_packets": 10 + np.arange(1100) % 11}
        >>> clusters = LossClusters()
        >>> clusters.add(Trace.from_columns(sawtooth), "192.0.2.0/24", network="AS64500", now_s=0)
        >>> new = clusters.curve("198.51.100.7", network="AS64500", now_s=0)
        >>> [level.level for level in new.levels]
        ['network', 'all']

    """

    def __init__(self) -> None:
        """Make a store without curves."""
        self._inner = _internal.LossClusters()

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> LossClusters:
        """Read a store that `save` wrote.

        Raises:
            ModelError: the file cannot be read, or is not such a store.

        """
        path = Path(file)
        clusters = cls()
        try:
            with path.open("rb") as stream:
                content = stream.read(MOST_BYTES + 1)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
        if len(content) > MOST_BYTES:
            raise ModelError(f"{path}: is larger than {MOST_BYTES >> 20} MiB, which is the most")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise ModelError(f"{path}: is no store of loss curves: not UTF-8") from None
        try:
            with translated():
                clusters._inner = _internal.LossClusters.from_json(text)
        except ModelError as error:
            raise ModelError(f"{path}: is no store of loss curves: {error}") from None
        return clusters

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the store, whole or not at all.

        Raises:
            PathcastError: it cannot be written.

        """
        write_beside(file, self._inner.to_json() + "\n")

    def __len__(self) -> int:
        """Prefixes known."""
        return len(self._inner)

    def add(
        self,
        traces: Trace | Sequence[Trace],
        client: str,
        *,
        network: str | None = None,
        region: str | None = None,
        cc: str | None = None,
        rtt_s: float | None = None,
        now_s: float | None = None,
    ) -> None:
        """Add the losses and packets of a client's flows.

        Args:
            traces: of flows to the client.
            client: its address or prefix, such as `192.0.2.0/24`.
            network: its network: the number of its autonomous system, or any label.
            region: where it is.
            cc: as `fit` has it.
            rtt_s: as `fit` has it.
            now_s: seconds since 1970 at which the flows ran; by default now.

        Raises:
            ModelError: the prefix or a name is invalid, or no model can use the flow.

        """
        check_rtt(rtt_s)
        now_s = time.time() if now_s is None else now_s
        for trace in [traces] if isinstance(traces, Trace) else traces:
            for flow in trace.flows:
                try:
                    with translated():
                        self._inner.add(
                            [columns(trace.flow(flow))],
                            client,
                            network,
                            region,
                            now_s,
                            chosen_cc(trace, flow, cc),
                            rtt_s,
                        )
                except ModelError as error:
                    where = f"{trace.file}: " if trace.file else ""
                    raise ModelError(f"{where}{error}") from None

    def remove(self, client: str) -> None:
        """Take a prefix and all its evidence away.

        Raises:
            ModelError: nothing is known about the client.

        """
        with translated():
            self._inner.remove(client)

    def curve(
        self,
        client: str | None = None,
        *,
        network: str | None = None,
        region: str | None = None,
        now_s: float | None = None,
        pooling: Pooling = "posterior",
    ) -> ClusterCurve:
        """The curve of a client that may be new.

        Args:
            client: its address or prefix; the longest prefix known that it is in counts.
            network: its network; by default that of this prefix.
            region: its region; by default that of this prefix.
            now_s: seconds since 1970 to weigh evidence by age; by default now.
            pooling: `posterior`: all levels, each weighed by its evidence; `mean` or `median`: of the
                clients of the closest level (Cao et al., IMC 2019, section 4.1).

        Raises:
            ModelError: no prefix, or an unknown `pooling`.

        """
        now_s = time.time() if now_s is None else now_s
        with translated():
            result = json.loads(self._inner.curve(client, network, region, now_s, pooling))
        return ClusterCurve(
            tuple(LevelBasis(**level) for level in result["levels"]),
            tuple(ClusterPoint(**point) for point in result["points"]),
        )
