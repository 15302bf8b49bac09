"""A manager in another process, what asks it, and reports of an agent as it would send them."""

import hashlib
import hmac
import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Guardrails that need no patience.
QUICK = (
    "[guardrails]\nshadow_s = 0\nslot_s = 1\ncanary = 1.0\nhold_out = 0.0\nleast_reports = 1\n"
    "least_flows = 1\nagreeing_reports = 1\n"
)
#: A tree with one question.
MODEL = {
    "format": 1,
    "templates": [{"name": "lossy", "knobs": {"congestion_control": "bbr"}}],
    "features": ["loss"],
    "tree": {
        "feature": "loss",
        "threshold": 0.01,
        "below": {"template": "default"},
        "otherwise": {"template": "lossy"},
    },
}


def program(name):
    """A program of ours: the newest that Cargo has built; skips where there is none."""
    built = [ROOT / "target" / kind / name for kind in ("debug", "release")]
    built = [one for one in built if one.exists()]
    if not built:
        pytest.skip(f"needs cargo build -p {name}")
    return str(max(built, key=lambda one: one.stat().st_mtime))


class Manager:
    """A running `pathcast-manager`."""

    def __init__(self, process, address, context=None):
        self.process = process
        self.base = f"{'https' if context else 'http'}://{address}"
        self.context = context

    def ask(self, method, path, body=None, headers=None):
        """Status and JSON of a response."""
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        asked = urllib.request.Request(self.base + path, body, headers or {}, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=20, context=self.context) as answer:
                return answer.status, json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or "null")

    def agent(self, name):
        """The secret of a new agent."""
        status, added = self.ask("POST", "/v1/agents", {"name": name})
        assert status == 200, added
        return added["token"]

    def report(self, name, secret, sequence, prefixes, version=0, loss=0.05):
        """Sends a report of these prefixes with a loss."""
        report = {
            "format": 1, "agent": name, "boot": "0011223344556677", "sequence": sequence,
            "sent_at_ms": int(time.time() * 1000),
            "applied": {"version": version, "ok": True, "errors": []},
            "prefixes": [
                {"prefix": one, "flows": 30, "rtt_ms": 80.0, "loss": loss, "bandwidth_mbps": 5.0,
                 "jitter_ms": 2.0, "completions": []} for one in prefixes
            ],
        }  # fmt: skip
        body = json.dumps(report).encode()
        signature = hmac.new(bytes.fromhex(secret), body, hashlib.sha256).hexdigest()
        headers = {
            "Authorization": f"Bearer {secret}",
            "Pathcast-Signature": f"hmac-sha256={signature}",
        }
        status, said = self.ask("POST", "/v1/reports", body, headers)
        assert status == 200, said


@contextmanager
def managing(folder, config=QUICK, context=None):
    """A manager with this configuration, until the end of the block."""
    file = Path(folder) / "manager.toml"
    file.write_text(config)
    words = ["--listen", "127.0.0.1:0", "--state", f"sqlite://{folder}/state.sqlite"]
    process = subprocess.Popen(
        [program("pathcast-manager"), *words, "--config", str(file)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    try:
        line = next((line for line in process.stderr if '"started"' in line), None)
        assert line, f"the manager ended with {process.wait(10)}"
        yield Manager(process, json.loads(line)["listen"], context)
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()


def certify(folder, name, authority=None, names="IP:127.0.0.1"):
    """A certificate and its key, signed by an authority that this made before, or an authority itself."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", key, "-out", certificate]  # fmt: skip
    if authority is None:
        words += ["-addext", "keyUsage=critical,keyCertSign"]
    else:
        words += ["-CA", folder / f"{authority}.pem", "-CAkey", folder / f"{authority}.key"]
        words += ["-addext", f"subjectAltName={names}", "-addext", "basicConstraints=CA:FALSE"]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return certificate, key


def trusting(authority, chain=None, key=None):
    """The context of a client that trusts an authority, with a certificate of its own or without."""
    context = ssl.create_default_context(cafile=authority)
    if chain:
        context.load_cert_chain(chain, key)
    return context
