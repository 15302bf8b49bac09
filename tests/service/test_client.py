"""A client made from the interface's description: its types hold, and each operation answers as described."""

import importlib.util
import subprocess
import sys
import urllib.error

import pytest
from client_maker import client_of
from serving import samples, serving
from test_service import PAGE, conforms

#: Calls of the operations; the others take the examples of their parameters.
USES = """
from client import Client, Sample

def use(client: Client) -> float:
    lines: list[Sample] = [{"client": "192.0.2.7", "rate_bps": 8e6, "rtt_s": 0.05}]
    taken: int = client.samples(lines)["accepted"]
    said = client.bitrate(client="192.0.2.7", segment_s=4.0)
    return taken + said["bitrate_bps"] + said["quantiles_bps"]["0.05"] + said["basis"]["age_s"]
"""


@pytest.fixture(scope="module")
def service():
    with serving() as one:
        yield one


@pytest.fixture(scope="module")
def made(service, tmp_path_factory):
    """The document, and the module that it became."""
    _, document = service.get("/openapi.json")
    file = tmp_path_factory.mktemp("client") / "client.py"
    file.write_text(client_of(document))
    spec = importlib.util.spec_from_file_location("client", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["client"] = module
    spec.loader.exec_module(module)
    return document, module, file


def checked(file):
    """What mypy says of a file beside the client."""
    words = ["-m", "mypy", "--strict", "--no-incremental", "--cache-dir=/dev/null", file.name]
    return subprocess.run(
        [sys.executable, *words], cwd=file.parent, capture_output=True, text=True, check=False
    )


def test_its_types_are_those_of_the_interface(made):
    file = made[2].with_name("uses.py")
    file.write_text(USES)
    done = checked(file)
    assert done.returncode == 0, done.stdout
    file.write_text(USES.replace('"rate_bps": 8e6', '"rate_bps": "fast"'))
    assert checked(file).returncode == 1, "a text is no rate"


def test_each_operation_answers_as_described(service, made):
    document, module, _ = made
    client = module.Client(service.base)
    client.samples(samples())
    client.put_page("home", PAGE)
    decision = client.transfer(client="192.0.2.7", bytes=1_000_000)["decision"]
    given = {
        "outcomes": ([{"decision": decision, "client": "192.0.2.7", "time_s": 4.8}],),
        "put_page": ("other", PAGE),
        "remove_page": ("other",),
    }
    asked = set()
    for path, item in document["paths"].items():
        for verb, operation in item.items():
            if verb == "parameters":
                continue
            name = operation["operationId"]
            asked.add(name)
            examples = {
                one["name"]: one["example"]
                for one in operation.get("parameters", [])
                if one["in"] == "query" and "example" in one
            }
            content = operation.get("requestBody", {}).get("content", {})
            example = content.get("application/x-ndjson", {}).get("example")
            first = given.get(name, () if example is None else ([example],))
            found = getattr(client, name)(*first, **examples)
            described = next(
                one for code, one in operation["responses"].items() if code.startswith("2")
            )
            answer = described.get("content", {}).get("application/json")
            if answer is None:
                assert isinstance(found, str), path
            else:
                conforms(found, answer["schema"], document["components"]["schemas"])
    assert {"throughput", "bitrate", "transfer", "http", "samples", "outcomes"} <= asked
    with pytest.raises(urllib.error.HTTPError, match="400"):
        client.throughput(client="nowhere")
