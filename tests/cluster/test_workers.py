"""Workers that are not as they must be."""

import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import pathcast
from ray_head import needs_ray, ray_head


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """The address of a cluster whose Python has all packages but pathcast, and a function
    that puts a pathcast of some version there."""
    needs_ray()
    home = tmp_path_factory.mktemp("stranger")
    venv.create(home, symlinks=True, with_pip=False)
    ours = Path(sysconfig.get_path("purelib"))
    theirs = home / ours.relative_to(sys.prefix)
    for entry in ours.iterdir():
        if "pathcast" not in entry.name and not (theirs / entry.name).exists():
            (theirs / entry.name).symlink_to(entry)

    def install(version):
        folder = theirs / f"pathcast-{version}.dist-info"
        folder.mkdir()
        text = f"Metadata-Version: 2.1\nName: pathcast\nVersion: {version}\n"
        (folder / "METADATA").write_text(text)

    with ray_head(str(home / "bin" / "python")) as (member, _):
        yield member, install


def test_workers_need_the_same_pathcast(stranger):
    address, install = stranger
    batch = [pathcast.Simulation(pathcast.Path.parse("rate = '9 Mbit/s'\ndelay = '9 ms'\n"))]
    wanted = pathcast.__version__
    with pytest.raises(pathcast.ClusterError, match=f"has no pathcast, expected pathcast {wanted}"):
        pathcast.simulate_many(batch, cluster=address)
    install("0.0.1")
    with pytest.raises(pathcast.ClusterError, match=f"has pathcast 0.0.1, expected .*{wanted}"):
        pathcast.simulate_many(batch, cluster=address)
