"""One request to the jobs interface of a Ray, which is plain HTTP and JSON."""

# ruff: noqa: PLC0415 - urllib.request takes 40 ms to import: a supervisor asks nobody

from __future__ import annotations

import json

from safelaunch.runtime.plain_text import clipped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT = 30.0  # seconds for an answer; the first submission to a Ray takes 2 s
MOST = 64 << 20  # bytes of an answer that are read


class RayAnswer:
    """What a Ray has answered: its code of HTTP, and the text; 0 where nothing has come."""

    def __init__(self, code: int, text: str, *, is_late: bool = False) -> None:
        self.code = code
        self.text = text
        self.is_late = is_late  # whether the request may have arrived all the same

    @property
    def data(self) -> Any:
        """The JSON of an answer; None where it is none."""
        try:
            return json.loads(self.text) if self.code == 200 else None  # noqa: PLR2004
        except (ValueError, RecursionError):
            return None

    @property
    def words(self) -> str:
        """The answer for people: of a traceback its last line."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        if lines and lines[0].startswith("Traceback"):
            lines = [line for line in lines if len(line) > 1][-1:]
        text = clipped(" ".join(lines)) or "nothing"
        return f"HTTP {self.code}: {text}" if self.code else text


def ask(
    address: str,
    path: str,
    *,
    method: str = "GET",
    body: dict[str, Any] | None = None,
    token: str = "",
    limit: float = LIMIT,
) -> RayAnswer:
    """Return the answer to a request, whatever it is."""
    import http.client
    import urllib.error
    import urllib.parse
    import urllib.request

    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(  # noqa: S310 - http or https, by the schema
            address.rstrip("/") + path, data=data, headers=headers, method=method
        )
        host = urllib.parse.urlsplit(address).hostname or ""
        is_own = host == "localhost" or host.startswith("127.") or host == "::1"
        # a proxy has another loopback
        proxies = [urllib.request.ProxyHandler({})] if is_own else []
        opener = urllib.request.build_opener(_NoRedirects(), *proxies)
        with opener.open(request, timeout=limit) as answer:
            return RayAnswer(answer.status, answer.read(MOST).decode("utf-8", "replace"))
    except urllib.error.HTTPError as e:
        with e:
            return RayAnswer(e.code, e.read(MOST).decode("utf-8", "replace"))
    except urllib.error.URLError as e:
        reason = e.reason
        is_refused = isinstance(reason, ConnectionRefusedError)
        is_late = isinstance(reason, (TimeoutError, ConnectionError)) and not is_refused
        return RayAnswer(0, _reason(reason), is_late=is_late)
    except (TimeoutError, ConnectionError, http.client.HTTPException) as e:
        return RayAnswer(0, _reason(e) or type(e).__name__, is_late=True)
    except (OSError, ValueError) as e:
        return RayAnswer(0, _reason(e))


def _reason(error: object) -> str:
    return str(getattr(error, "strerror", None) or error)


def _NoRedirects() -> Any:  # noqa: N802 - it stands for a class
    """Return a handler that takes a redirect, such as one to a login page, as an answer."""
    import urllib.request

    class Handler(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_args: Any) -> None:
            """Follow none: a submission would become a question."""

    return Handler()
