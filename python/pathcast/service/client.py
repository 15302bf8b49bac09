"""Questions to a running service, over one connection that is kept open."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from pathcast.exceptions import ServiceError

#: How long an answer may take, in seconds.
ANSWER_S = 10.0
#: Most bytes of an answer.
_MOST_BYTES = 64 << 20
_LINES = {"Content-Type": "application/x-ndjson"}
_TRACE = {"Content-Type": "application/vnd.apache.parquet"}
#: An agent's batch, in bytes: well below `limits.body_bytes` of the service.
BATCH_BYTES = 4 << 20


@dataclass(frozen=True)
class SeenPrefix:
    """A prefix that has samples.

    Attributes:
        prefix: such as `192.0.2.0/24`.
        age_s: of its newest sample, in seconds.

    """

    prefix: str
    age_s: float


class Client:
    """A connection to a service; it is opened anew when it was lost.

    Args:
        url: such as `http://127.0.0.1:8080`.
        token: what the service knows the asker by.
        authorities: a file of certificates by which the service's is checked; by default those of the system.

    Raises:
        ServiceError: the URL is none.

    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        authorities: str | os.PathLike[str] | None = None,
    ) -> None:
        parts = urlsplit(url)
        wrong = ServiceError(f"got {url!r}; expected a URL such as http://127.0.0.1:8080")
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            raise wrong from None
        if parts.scheme not in ("http", "https") or host is None or parts.path not in ("", "/"):
            raise wrong
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._made: http.client.HTTPConnection
        if parts.scheme == "https":
            try:
                context = ssl.create_default_context(cafile=authorities)
            except OSError as error:
                raise ServiceError(f"{authorities}: {error.strerror or error}") from None
            self._made = http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=context)
        else:
            self._made = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def close(self) -> None:
        """Close the connection."""
        self._made.close()

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Return the status and the JSON of a response; None for one without a body.

        Raises:
            ServiceError: the service cannot be reached, or answers something else.

        """
        sent = self._headers | (headers or {})
        for is_last in (False, True):
            try:
                self._made.request(method, path, body, sent)
                response = self._made.getresponse()
                content = response.read(_MOST_BYTES)
            except (http.client.HTTPException, OSError) as error:
                # one that was idle for long may be closed
                self._made.close()
                if is_last:
                    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                    raise ServiceError(f"{self.url} does not answer: {reason}") from None
                continue
            break
        if not content:
            return response.status, None
        try:
            return response.status, json.loads(content)
        except ValueError:
            text = content[:60].decode(errors="replace")
            raise ServiceError(
                f"{self.url}{path} answers {response.status} {text!r}; expected JSON"
            ) from None

    def _asked(self, path: str, **parameters: object) -> Any:  # noqa: ANN401
        """The JSON of an answer; None if nothing is known.

        Raises:
            ServiceError: the service refuses.

        """
        given = {key: value for key, value in parameters.items() if value is not None}
        status, answer = self.request("GET", f"{path}?{urlencode(given)}")
        if status == 404 and path != "/v1/prefixes":
            return None
        if status != 200:
            raise ServiceError(f"{self.url}{path} answers {status}: {_problem(answer)}")
        return answer

    def prefixes(self, seen_s: float | None = None) -> Iterator[SeenPrefix]:
        """The prefixes with a sample in the last `seen_s` seconds; by default in the service's window.

        Raises:
            ServiceError: the service does not answer.

        """
        after = None
        while True:
            page = self._asked("/v1/prefixes", seen_s=seen_s, after=after)
            for one in page["prefixes"]:
                yield SeenPrefix(one["prefix"], one["age_s"])
            after = page.get("next")
            if after is None:
                return

    def http_version(self, client: str, page: str) -> dict[str, Any] | None:
        """The decision about the version of HTTP (`/v1/http`); None if nothing is known of the client or the page.

        Raises:
            ServiceError: the service does not answer, or refuses.

        """
        found: dict[str, Any] | None = self._asked("/v1/http", client=client, page=page)
        return found

    def pages(self) -> list[str]:
        """The classes of pages that the service has.

        Raises:
            ServiceError: the service does not answer.

        """
        return [one["class"] for one in self._asked("/v1/pages")["pages"]]

    def send_samples(self, samples: list[dict[str, Any]]) -> int:
        """Send samples, in batches; return how many were accepted.

        Raises:
            ServiceError: the service does not answer, or accepts none of a batch.

        """
        accepted = 0
        lines: list[bytes] = []
        size = 0
        for one in samples:
            lines.append(json.dumps(one, allow_nan=False).encode() + b"\n")
            size += len(lines[-1])
            if size > BATCH_BYTES:
                accepted += self._send(b"".join(lines), _LINES)
                lines, size = [], 0
        return accepted + (self._send(b"".join(lines), _LINES) if lines else 0)

    def send_trace(self, trace: bytes) -> int:
        """Send a trace in Parquet; return how many samples were accepted.

        Raises:
            ServiceError: the service does not answer, or accepts none.

        """
        return self._send(trace, _TRACE)

    def _send(self, body: bytes, headers: dict[str, str]) -> int:
        status, answer = self.request("POST", "/v1/samples", body, headers)
        if status != 200:
            raise ServiceError(f"{self.url}/v1/samples answers {status}: {_problem(answer)}")
        return int(answer["accepted"])


def _problem(answer: Any) -> str:  # noqa: ANN401
    """What an answer says is wrong."""
    if not isinstance(answer, dict):
        return "nothing"
    errors = answer.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else answer
    said = first.get("error", first) if isinstance(first, dict) else first
    return str(said)[:300]
