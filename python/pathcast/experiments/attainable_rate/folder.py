"""A folder of rates that were probed, so that none is probed again: `rates/RATE.npz`, arrays and their JSON, and
`greedy.json`."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path as FilePath

import numpy as np

from pathcast.attainable_rate import steady
from pathcast.attainable_rate.curve import _point
from pathcast.attainable_rate.estimator import Options, Probed
from pathcast.attainable_rate.probes import Prober, fingerprint
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.store import make_folder
from pathcast.files import write_beside

#: The largest file that is read, packed and unpacked.
_MAX_BYTES = 1 << 28
_ARRAYS = ("delay_s", "sender_s", "network_s", "receiver_s", "autocorrelation")
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
#: What broken, encrypted or deeply nested archives raise.
_BROKEN = (zipfile.BadZipFile, zlib.error, RuntimeError)
#: Of an option that does not change what is found.
_BESIDE = {"at_once"}


class Folder:
    """Rates that were probed of one thing, by the same options."""

    def __init__(self, path: FilePath, prober: Prober, options: Options) -> None:
        """Open it.

        Raises:
            PathcastError: it cannot be made.

        """
        make_folder(path / "rates")
        self.path = path
        chosen = {name: value for name, value in asdict(options).items() if name not in _BESIDE}
        chosen["statistics"] = steady.VERSION
        self._fingerprint = hashlib.sha256(
            (fingerprint(prober) + json.dumps(chosen, sort_keys=True)).encode()
        ).hexdigest()

    def _file(self, rate: float) -> FilePath:
        return self.path / "rates" / f"{rate:.6g}.npz"

    def kept(self, rate: float) -> Probed | None:
        """What was probed at this rate; None: nothing, or it is damaged, or was of something else.

        Raises:
            PathcastError: an array in it claims to be larger than what the file holds of it.

        """
        file = self._file(rate)
        try:
            if file.stat().st_size > _MAX_BYTES:
                return None
            _check_sizes(file)
            with np.load(file, allow_pickle=False) as arrays:
                values = json.loads(str(arrays["values"]))
                if values["fingerprint"] != self._fingerprint or values["point"]["rate"] != rate:
                    return None
                columns = {name: np.asarray(arrays[name], float) for name in _ARRAYS}
                if "windows" in arrays:
                    columns["windows"] = np.asarray(arrays["windows"], float)
            return Probed(_point(values["point"]), **columns, lag_s=float(values["lag_s"]))
        except (OSError, ValueError, KeyError, TypeError, EOFError, *_BROKEN):
            return None

    def keep(self, probed: Probed) -> None:
        """Write it down.

        Raises:
            PathcastError: it cannot be written.

        """
        values = {
            "fingerprint": self._fingerprint,
            "point": asdict(probed.point),
            "lag_s": probed.lag_s,
        }
        stream = io.BytesIO()
        columns = {name: getattr(probed, name) for name in _ARRAYS}
        columns["windows"] = probed.windows
        np.savez_compressed(stream, values=json.dumps(values, allow_nan=False), **columns)
        write_beside(self._file(probed.point.rate), stream.getvalue())

    def kept_greedy(self, duration_s: float) -> tuple[float, float, float] | None:
        """What a greedy source got in runs of this length, with bounds; None: as for `kept`."""
        try:
            with (self.path / "greedy.json").open() as file:
                values = json.loads(file.read(1 << 12))
            if (values["fingerprint"], values["duration_s"]) != (self._fingerprint, duration_s):
                return None
            mean, low, high = map(float, values["rate"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return mean, low, high

    def keep_greedy(self, duration_s: float, rate: tuple[float, float, float]) -> None:
        """Write it down.

        Raises:
            PathcastError: it cannot be written.

        """
        values = {"fingerprint": self._fingerprint, "duration_s": duration_s, "rate": rate}
        write_beside(self.path / "greedy.json", json.dumps(values, allow_nan=False) + "\n")


def _check_sizes(file: FilePath) -> None:
    """Refuse arrays whose headers say more than the file holds: NumPy makes room for what a header says.

    Raises:
        PathcastError: there is such an array.
        ValueError: it is not such an array.

    """
    with zipfile.ZipFile(file) as members:
        for member in members.infolist():
            with members.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                if version not in _HEADERS:
                    raise ValueError(version)
                shape, _, dtype = _HEADERS[version](stream)
                has = member.file_size - stream.tell()
            says = math.prod(shape) * dtype.itemsize
            if dtype.hasobject or min(shape, default=0) < 0:
                raise ValueError(shape)
            if says != has or member.file_size > _MAX_BYTES:
                raise PathcastError(
                    f"{file}: the header of {member.filename!a} says {says} bytes, the file has {has}, expected as "
                    f"many and at most {_MAX_BYTES}: it is damaged or forged; delete it to probe this rate again"
                )


def resumed(
    folder: Folder | None,
) -> tuple[Callable[[float], Probed | None] | None, Callable[[Probed], None] | None]:
    """`kept` and `keep` of a folder, or none of both."""
    return (None, None) if folder is None else (folder.kept, folder.keep)
