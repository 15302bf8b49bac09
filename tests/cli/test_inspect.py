"""`pathcast FILE`, `pathcast help` and `pathcast doctor`: finding one's way."""

import json
import re

from conftest import ROOT, run
from pathcast import extras, runs

LINK = ROOT / "paths/12mbps-60ms-1bdp.toml"


def inspected(file):
    done = run(file, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_path_is_described_with_commands_that_take_it():
    found = inspected(LINK)
    assert (found["kind"], found["rate"], found["queue_bytes"]) == ("path", "12 Mbit/s", 90_000)
    assert f"pathcast simulate {LINK} -o trace.parquet" in found["commands"].values()


def test_a_scenario_is_described():
    found = inspected(ROOT / "scenarios/dumbbell.toml")
    assert (found["kind"], found["number_of_flows"]) == ("scenario", 10)
    assert found["schemes"] == "bbr, cubic"


def test_a_trace_of_any_format_is_described_with_its_flows():
    found = inspected(ROOT / "tests/data/flow.pcap")
    assert (found["kind"], found["source"]) == ("trace", "pcap")
    assert found["flows"][0]["bytes"] == 641_992
    shown = run(ROOT / "tests/data/flow.pcap").stdout
    assert "3.53 Mbit/s" in shown and "pathcast predict throughput" in shown


def test_what_is_neither_a_file_nor_a_command_is_refused():
    done = run("missing.parquet")
    assert done.returncode == 2
    assert "no such file, and no such command" in " ".join(done.stderr.split())
    assert run(ROOT / "README.md").returncode == 2
    assert run(ROOT).returncode == 2


def test_a_name_of_a_file_is_quoted_for_the_shell(tmp_path):
    file = tmp_path / "a b;c.toml"
    file.write_text(LINK.read_text())
    assert f"pathcast simulate '{file}' -o trace.parquet" in inspected(file)["commands"].values()


def test_topics_are_listed_shown_and_guessed():
    topics = [line.split()[0] for line in run("help").stdout.splitlines()[1:-1]]
    assert {"path-file", "scenario-file", "traces", "workloads", "schemes", "glossary"} <= set(
        topics
    )
    for topic in topics:
        done = run("help", topic)
        assert done.returncode == 0 and len(done.stdout.splitlines()) < 70, topic
    assert "Usage: pathcast predict transfer" in run("help", "predict", "transfer").stdout
    done = run("help", "path-fil")
    assert done.returncode == 2 and "did you mean path-file" in done.stderr


def test_terms_of_the_glossary_are_explained():
    for term in ("cwnd", "CWND"):
        assert run("help", term).stdout.startswith("cwnd: congestion window:")
    assert run("help", "bdp").stdout.startswith("BDP: bandwidth-delay product")
    assert run("help", "loss", "curve").stdout.startswith("loss curve: p(cwnd, npc)")
    assert run("help", "reverse").stdout.startswith("forward, reverse: ")
    done = run("help", "goodputt")
    assert done.returncode == 2 and "did you mean goodput" in done.stderr
    # one text, which the documentation has too
    page = ROOT / "docs/glossary.md"
    assert page.resolve() == (ROOT / "python/pathcast/cli/topics/glossary.md").resolve()
    rows = [line for line in page.read_text().splitlines()[4:] if line]
    listed = run("help", "glossary").stdout
    assert len(rows) > 30 and all(row.split(" | ")[0].strip("| ") in listed for row in rows)


def test_topics_say_what_the_readers_read(tmp_path):
    text = (ROOT / "python/pathcast/cli/topics/path-file.md").read_text()
    file = tmp_path / "path.toml"
    file.write_text(text.split("```toml\n")[1].split("```")[0])
    assert inspected(file)["kind"] == "path"
    text = (ROOT / "python/pathcast/cli/topics/scenario-file.md").read_text()
    file.write_text(text.split("```toml\n")[1].split("```")[0])
    assert inspected(file)["number_of_flows"] == 5


def test_each_scheme_and_extra_is_named():
    text = (ROOT / "python/pathcast/cli/topics/schemes.md").read_text()
    refused = run("simulate", LINK, "--scheme", "nonsense").stderr
    names = " ".join(refused.split()).partition("expected one of ")[2].partition(", fixed:N")[0]
    assert len(names.split(", ")) >= 12
    assert all(name in text for name in names.split(", "))
    assert set(extras.MODULES) == set(extras.USES)


def test_advice_for_a_source_tree_is_not_given_to_a_wheel(monkeypatch):
    source = (ROOT / "crates/kernel-schemes/src/schemes.rs").read_text()
    advice = re.search(r'"(Pathcast can bring it by BPF.*?)"', source, re.DOTALL)[1]
    advice = re.sub(r"\\\n\s*", "", advice)
    assert runs._for_this_install(advice) == advice
    assert "touch Cargo.toml" in advice
    monkeypatch.setattr(runs, "__file__", "/usr/lib/python3/site-packages/pathcast/runs.py")
    said = runs._for_this_install(advice)
    assert said.startswith("Pathcast can bring it by BPF, but was built without: this install")
    assert "a build from source has them" in said and "touch" not in said
    assert runs._for_this_install("no root") == "no root"


def test_the_doctor_says_what_is_there():
    found = json.loads(run("doctor", "--json").stdout)
    assert found == json.loads(run("capabilities", "--json").stdout)
    assert found["packages"]["probing"]["pyarrow"]
    shown = run("doctor").stdout
    assert "yes  simulate, predict, fit, evaluate" in shown


def test_paths_and_scenarios_that_come_with_pathcast_have_names(tmp_path):
    head, *lines = run("path", "list", cwd=tmp_path).stdout.splitlines()
    assert head.split()[:2] == ["name", "rate"]
    listed = [line.split()[0] for line in lines]
    files = [*(ROOT / "paths").glob("*.toml"), *(ROOT / "scenarios").glob("*.toml")]
    assert sorted(listed) == sorted(file.stem for file in files)
    for name, kind in (("12mbps-60ms-1bdp", "path"), ("dumbbell", "scenario")):
        found = json.loads(run(name, "--json", cwd=tmp_path).stdout)
        assert found["kind"] == kind
        done = run("simulate", name, "--duration", 1, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    # a file of the same name is meant before them
    (tmp_path / "dumbbell").write_text("rate = '3 Mbit/s'\ndelay = '30 ms'\n")
    shown = run("path", "show", "dumbbell", cwd=tmp_path).stdout
    assert 'rate = "3 Mbit/s"' in shown


def test_a_missing_path_file_leads_to_the_paths_that_come_with_pathcast(tmp_path):
    for file, hint in (
        (
            "paths/12mbps-60ms-1bdp.toml",
            "did you mean 12mbps-60ms-1bdp, which comes with Pathcast?",
        ),
        ("12mbps-60ms-bdp", "did you mean 12mbps-60ms-1bdp"),
        ("missing.toml", "`pathcast path list` lists"),
    ):
        done = run("simulate", file, cwd=tmp_path)
        assert done.returncode == 2
        assert hint in " ".join(done.stderr.split()), done.stderr


def chrome_events():
    """A document and an image, as Chrome's trace has them."""

    def event(name, at_ms, number, **data):
        data = {"requestId": str(number), "frame": "F"} | data
        return {
            "cat": "devtools.timeline",
            "name": name,
            "ph": "I",
            "s": "t",
            "pid": 1,
            "tid": 2,
            "ts": 1e9 + 1e3 * at_ms,
            "args": {"data": data},
        }

    events = []
    for number, (name, kind, kilobytes) in enumerate(
        [("", "text/html", 10), ("a.png", "image/png", 40)]
    ):
        at_ms, url = 100 * number, f"https://a.org/{name}"
        events += [
            event("ResourceSendRequest", at_ms, number, url=url, requestMethod="GET"),
            event("ResourceReceiveResponse", at_ms + 60, number, statusCode=200, mimeType=kind),
            event(
                "ResourceFinish",
                at_ms + 80,
                number,
                didFail=False,
                encodedDataLength=1000 * kilobytes,
            ),
        ]
    return events


def test_pages_and_archives_are_described(tmp_path):
    page = tmp_path / "page.toml"
    page.write_text("[[resources]]\nurl = 'https://example.org/'\nsize = '31 kB'\n")
    done = run("inspect", page, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["kind"], found["resources"], found["kilobytes"]) == ("page", 1, 31)
    assert any(
        command.startswith("pathcast predict page") for command in found["commands"].values()
    )
    # a trace of Chrome
    recording = tmp_path / "trace.json"
    recording.write_text(json.dumps({"traceEvents": chrome_events()}))
    done = run(recording, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["kind"], found["resources"], found["kilobytes"]) == ("page", 2, 50)
    done = run("predict", "page", recording, "--loads", 2, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["h3"]["plt_ms"] > 100
    archive = tmp_path / "empty.har"
    archive.write_text("{}")
    done = run(archive)
    assert done.returncode == 2
    assert "is not a HAR" in done.stderr
