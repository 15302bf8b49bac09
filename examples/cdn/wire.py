"""The manager's side of the wire, for one agent: hands out configurations and keeps reports."""

import contextlib
import ctypes
import hashlib
import hmac
import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

CLONE_NEWNET = 0x40000000


def inside(namespace, work):
    """What `work` returns, run on a thread in a network namespace by its name."""
    result, failed = [], []

    def run():
        try:
            handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"setns to {namespace}")
                result.append(work())
            finally:
                os.close(handle)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    if failed:
        raise failed[0]
    return result[0]


def listening(namespace, address="127.0.0.1", port=0):
    """A listening socket in a namespace."""

    def listen():
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(128)
        return listener

    return inside(namespace, listen)


class Wire:
    """Serves configurations to one agent, and keeps its reports."""

    def __init__(self, namespace, secret=None):
        self.secret = secret or os.urandom(32).hex()
        self.signs_with = self.secret
        self.body = None
        self.version = 0
        self.reports = []
        self.refused = []
        self.changed = threading.Condition()
        wire = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body=b"", signature=None):
                self.send_response(status)
                if signature:
                    self.send_header("Pathcast-Signature", signature)
                self.send_header("Content-Length", str(len(body)))
                # an agent that has ended waits for nothing
                with contextlib.suppress(ConnectionError):
                    self.end_headers()
                    self.wfile.write(body)

            def authorized(self):
                return self.headers["Authorization"] == f"Bearer {wire.secret}"

            def do_GET(self):
                query = parse_qs(urlsplit(self.path).query)
                have, wait = int(query["have"][0]), float(query.get("wait", ["0"])[0])
                if not self.authorized():
                    return self.answer(401)
                with wire.changed:
                    wire.changed.wait_for(lambda: wire.body and wire.version != have, wait)
                    if not wire.body or wire.version == have:
                        return self.answer(304)
                    return self.answer(200, wire.body, wire.signature(wire.body, wire.signs_with))

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                signed = self.headers["Pathcast-Signature"] == wire.signature(body, wire.secret)
                with wire.changed:
                    if not (self.authorized() and signed):
                        wire.refused.append(body)
                        return self.answer(401)
                    wire.reports.append(json.loads(body))
                    wire.changed.notify_all()
                return self.answer(204)

        listener = listening(namespace)
        self.server = ThreadingHTTPServer(listener.getsockname(), Handler, bind_and_activate=False)
        self.server.socket.close()
        self.server.socket = listener
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def signature(body, secret):
        digest = hmac.new(bytes.fromhex(secret), body, hashlib.sha256).hexdigest()
        return f"hmac-sha256={digest}"

    def configure(self, version, templates=(), prefixes=None, default="default", **more):
        """Hands this out from now on; `more` are further keys."""
        templates = [{"name": name, "knobs": knobs} for name, knobs in dict(templates).items()]
        body = {"format": 1, "version": version, "templates": templates, "prefixes": prefixes or {}}
        body |= {"default": default, "made_at_ms": int(time.time() * 1000)} | more
        with self.changed:
            self.body, self.version = json.dumps(body).encode(), version
            self.changed.notify_all()

    def report(self, holds=lambda report: True, timeout=20):
        """The next report, from now on, of which this holds."""
        with self.changed:
            begin = len(self.reports)
            found = lambda: next(filter(holds, self.reports[begin:]), None)  # noqa: E731
            assert self.changed.wait_for(found, timeout), self.reports[-1:]
            return found()

    def applied(self, version, timeout=20):
        """The next report that says that this version is in force."""
        return self.report(lambda one: one["applied"]["version"] == version, timeout)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
