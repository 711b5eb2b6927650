"""The client's side of an agent: requests, data and answers over one channel."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from safelaunch.errors import HostError
from safelaunch.runtime import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator


FULL = (28, 122)  # ENOSPC, EDQUOT on Linux: here the numbers may be others


class AgentError(HostError):
    """The agent could not do what was asked. `errno` and `path` of an OSError there, else None."""

    def __init__(self, told: dict[str, Any], host: str) -> None:
        path = f" ({told['path']})" if told.get("path") else ""
        full = told.get("errno") in FULL
        hint = "free space or quota there, or set SAFELAUNCH_HOME there" if full else None
        super().__init__(f"{told.get('message')}{path}", where=host, hint=hint)
        self.kind = str(told.get("kind"))
        self.errno: int | None = told.get("errno")
        self.path: str | None = told.get("path")
        self.traceback: str | None = told.get("traceback")


class Agent:
    """An agent that was started. Not for several threads at once."""

    def __init__(
        self, host: str, read: Callable[[int], bytes], write: Callable[[bytes | memoryview], object]
    ) -> None:
        self.host = host
        self._link = wire.Link(read, write)

    def call(self, verb: str, data: Iterable[bytes] | None = None, **request: Any) -> Any:
        """Ask, and return the answer; `data` goes behind the request. Raises AgentError, Lost."""
        with self._watched():
            self._ask(verb, data, request)
            return self._answer(self._link.message())

    def stream(self, verb: str, **request: Any) -> Generator[bytes, None, Any]:
        """Ask, and yield the data that comes; the generator's value is the answer behind it."""
        with self._watched():
            self._ask(verb, None, request)
            while True:
                kind, body = self._link.next()
                if kind == wire.MESSAGE:
                    return self._answer(wire.parse(body))
                if kind == wire.DATA:
                    yield body

    def _ask(self, verb: str, data: Iterable[bytes] | None, request: dict[str, Any]) -> None:
        self._link.send({**request, "verb": verb})
        if data is not None:
            for piece in data:
                self._link.data(piece)
            self._link.end()

    def _answer(self, message: dict[str, Any]) -> Any:
        if "error" in message:
            raise AgentError(message["error"], self.host)
        return message.get("ok")

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except (wire.Broken, OSError) as e:
            raise Lost(f"the connection was lost: {e}", where=self.host) from e


class Lost(HostError):  # noqa: N818 - reads as what happened
    """The connection ended in the middle. What the host does meanwhile is not known here."""
