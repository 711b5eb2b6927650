"""A server that gives recorded answers, and notes what it was asked."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

Answer = tuple[int, str]  # code, text


class RecordedHttp:
    """Answers by `METHOD /path`; 404 to all else."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.calls: list[str] = []
        self.bodies: list[str] = []
        self.tokens: list[str | None] = []
        recorded = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                recorded.bodies.append(self.rfile.read(size).decode())
                recorded.calls.append(f"{self.command} {self.path}")
                recorded.tokens.append(self.headers.get("Authorization"))
                code, text = recorded.answers.get(recorded.calls[-1], (404, "no such page"))
                self.send_response(code)
                self.send_header("Content-Length", str(len(text.encode())))
                if code in (301, 302):
                    self.send_header("Location", "/login")
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = do_DELETE = handle_one  # noqa: N815 - http.server's names

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
