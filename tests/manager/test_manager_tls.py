"""Agent and manager authenticate each other by certificates of real authorities."""

import shutil
import ssl
import subprocess
import time
import urllib.error

import pytest
from managing import QUICK, certify, managing, program, trusting


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    """A folder with two authorities, and certificates of each: of ours, manager, operator and edge."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    folder = tmp_path_factory.mktemp("tls")
    for authority, names in (("ours", ["manager", "operator", "edge"]), ("other", ["stranger"])):
        certify(folder, authority)
        for name in names:
            certify(folder, name, authority)
    certify(folder, "elsewhere", "ours", "IP:127.0.0.2")
    return folder


def access(folder, own, authority):
    """The manager's section."""
    lines = [f'certificate = "{folder}/{own}.pem"', f'key = "{folder}/{own}.key"']
    if authority:
        lines.append(f'client_authorities = "{folder}/{authority}.pem"')
    return QUICK + "[access]\n" + "\n".join(lines) + "\n"


def agent(folder, tmp_path, manager, token, own=None, authority="ours"):
    """An agent's words."""
    secret = tmp_path / "token"
    secret.write_text(token + "\n")
    secret.chmod(0o600)
    config = tmp_path / "agent.toml"
    text = f'name = "edge"\nstate = "{tmp_path}/state"\nreport_every_s = 1\nca_file = "{folder}/{authority}.pem"\n'
    if own:
        text += f'certificate = "{folder}/{own}.pem"\nkey = "{folder}/{own}.key"\n'
    config.write_text(text)
    words = ["--manager", manager.base, "--token-file", secret, "--config", config]
    return [program("pathcast-agent"), *map(str, words)]


def dry_run(words):
    """Exit code and output of an agent that asks once and changes nothing."""
    done = subprocess.run([*words, "--dry-run"], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_an_agent_with_a_certificate_of_ours_reports_and_strangers_do_not(parties, tmp_path):
    operator = trusting(parties / "ours.pem", parties / "operator.pem", parties / "operator.key")
    with managing(tmp_path, access(parties, "manager", "ours"), operator) as manager:
        token = manager.agent("edge")
        for own, said in ((None, "certificate"), ("stranger", "unknownca")):
            code, output = dry_run(agent(parties, tmp_path, manager, token, own))
            assert code == 2 and said in output.lower(), (own, output)
        # the right certificate without the right secret is not enough
        code, output = dry_run(agent(parties, tmp_path, manager, "00" * 32, "edge"))
        assert code == 2 and "status 401" in output, output
        code, output = dry_run(agent(parties, tmp_path, manager, token, "edge"))
        assert code == 0 and "no configuration yet" in output, output

        words = agent(parties, tmp_path, manager, token, "edge")
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 20
            while not (seen := manager.ask("GET", "/v1/agents")[1]["agents"][0])["applied"]:
                assert time.monotonic() < deadline and process.poll() is None, seen
                time.sleep(0.1)
            assert seen["name"] == "edge" and seen["applied"]["ok"]
        finally:
            process.kill()
            process.wait(10)
            process.stderr.close()
        # an operator needs one too
        manager.context = trusting(parties / "ours.pem")
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
            manager.ask("GET", "/v1/status")


@pytest.mark.parametrize(
    ("own", "authority"), [("stranger", "ours"), ("elsewhere", "ours"), ("manager", "other")]
)
def test_an_agent_gives_its_secret_to_no_other_manager(parties, tmp_path, own, authority):
    """One of another authority, one of another name, and ours to an agent that trusts another authority."""
    trusts = "other" if own == "stranger" else "ours"
    operator = trusting(parties / f"{trusts}.pem")
    operator.check_hostname = own != "elsewhere"
    with managing(tmp_path, access(parties, own, None), operator) as manager:
        token = manager.agent("edge")
        code, output = dry_run(agent(parties, tmp_path, manager, token, "edge", authority))
        assert code == 2 and "certificate" in output.lower(), output
        assert manager.ask("GET", "/v1/agents")[1]["agents"][0]["applied"] is None
