"""A reward model behind HTTP: the share of digits in a text stands for the model."""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, HTTPServer


def score(text: str) -> float:
    """Return the reward of a completion."""
    return sum(char.isdigit() for char in text) / max(1, len(text))


class Handler(BaseHTTPRequestHandler):
    """Answers `GET /health`, and `POST /score` with a reward for each completion."""

    def do_GET(self) -> None:
        """Say that the model is loaded."""
        self._answer({"status": "ok"})

    def do_POST(self) -> None:
        """Return the rewards of the completions in the request."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        rewards = [score(text) for text in request["completions"]]
        print("rewards", json.dumps(rewards), flush=True)
        self._answer({"rewards": rewards})

    def _answer(self, answer: object) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        """Print no line for each request."""


class Server(HTTPServer):
    """Ends where a reward cannot be computed: a trainer should not go on without."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Raise the error of the request."""
        del request, client_address
        raise  # noqa: PLE0704 - it is called while the error is handled


def main() -> None:
    """Serve until the job ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    Server(("127.0.0.1", parser.parse_args().port), Handler).serve_forever()


if __name__ == "__main__":
    main()
