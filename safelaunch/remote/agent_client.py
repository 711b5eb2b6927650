"""The client's side of an agent: requests, data and answers over one channel.

Requests may be sent before the answers of earlier ones were read: the agent serves them in order.
"""

from __future__ import annotations

import collections
import contextlib
from typing import TYPE_CHECKING, Any

from safelaunch.errors import HostError
from safelaunch.runtime.agent import wire
from safelaunch.ssh.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator


AGAIN = "give the same command again: it goes on from what has arrived there"
# numbers of Linux: here they may be others
FULL = (28, 122)  # ENOSPC, EDQUOT
CLOSED = (1, 13, 30)  # EPERM, EACCES, EROFS
EXPECTED = ("StartFailed",)  # what the agent raises to be told as it is


class AgentError(HostError):
    """The agent could not do what was asked. `errno` and `path` of an OSError there, else None.

    What nobody has foreseen there is our fault: exit code 5, and its traceback goes into a file.
    """

    def __init__(self, told: dict[str, Any], host: str) -> None:
        path = f" ({told['path']})" if told.get("path") else ""
        message, hint = f"{told.get('message')}{path}", None
        self.kind = str(told.get("kind"))
        self.errno: int | None = told.get("errno")
        self.path: str | None = told.get("path")
        if told.get("traceback") and self.kind not in EXPECTED:
            message = f"unexpected {self.kind} in the agent there: {message}"
            self.exit_code, self.details = 5, str(told["traceback"])
        elif self.errno in FULL:
            hint = "free space or quota there, or set SAFELAUNCH_HOME there"
        elif self.errno in CLOSED:
            hint = f"safelaunch hosts test {host} says which folders there cannot be written"
        super().__init__(message, where=host, hint=hint)


EARLY = 1 << 14  # bytes of requests that may travel in the command that starts an agent


class Agent:
    """An agent that was started, or will be. Not for several threads at once.

    `begin` is called once, before anything is written or read: it starts the agent, with what was
    asked so far; `greeted` after it, before anything is read: it waits until the agent is there.
    Both raise HostError where there will be none.
    """

    def __init__(
        self,
        host: str,
        read: Callable[[int], bytes],
        write: Callable[[bytes | memoryview], object],
        begin: Callable[[bytes], object] | None = None,
        greeted: Callable[[], object] | None = None,
    ) -> None:
        self.host = host
        self._link = wire.Link(read, write)
        self._begin = begin
        self._early = bytearray()
        self._greeted = greeted
        self._unanswered: collections.deque[Pending] = collections.deque()

    def ask(self, verb: str, data: Iterable[bytes] | None = None, **request: Any) -> Pending:
        """Send a request, with `data` behind it, and wait for nothing. Raises Lost.

        What is on its way both ways at once must be small, or each side waits for the other to
        read. A request whose answer goes on and on must be the last.
        """
        pending = Pending(self)
        self._unanswered.append(pending)
        with self._watched():
            self._start()
            self._ask(verb, data, request)
        return pending

    def ask_first(self, verb: str, **request: Any) -> Pending:
        """Ask in the command that starts the agent, where that is still to be sent: else as `ask`.

        Saves a round trip: sshd takes no stdin before it runs the command. No secrets, since
        others may list the processes there. Raises Lost.
        """
        if self._begin is None or len(self._early) > EARLY:
            return self.ask(verb, **request)
        pending = Pending(self)
        self._unanswered.append(pending)
        wire.Link(lambda _: b"", self._early.extend).send({**request, "verb": verb})
        return pending

    def call(self, verb: str, data: Iterable[bytes] | None = None, **request: Any) -> Any:
        """Ask, and return the answer; `data` goes behind the request. Raises AgentError, Lost."""
        return self.ask(verb, data, **request).result()

    def stream(self, verb: str, **request: Any) -> Generator[bytes, None, Any]:
        """Ask, and yield the data that comes; the generator's value is the answer behind it."""
        return (yield from self.ask(verb, **request).pieces())

    def wait(self) -> None:
        """Wait until the agent is there. Raises HostError."""
        self._start()
        greeted, self._greeted = self._greeted, None
        if greeted is not None:
            greeted()

    def read_for(self, wanted: Pending) -> None:
        """Read until something of an answer has come, and keep what comes for earlier ones."""
        with self._watched():
            self.wait()
            while not (wanted.held or wanted.answer):
                kind, body = self._link.next()
                if kind == wire.DATA:
                    self._unanswered[0].held.append(body)
                elif kind == wire.MESSAGE:
                    self._unanswered.popleft().answer = wire.parse(body)

    def _start(self) -> None:
        begin, self._begin = self._begin, None
        if begin is not None:
            greeted, self._greeted = self._greeted, None
            begin(bytes(self._early))
            self._greeted = greeted

    def _ask(self, verb: str, data: Iterable[bytes] | None, request: dict[str, Any]) -> None:
        self._link.send({**request, "verb": verb})
        if data is None:
            return
        try:
            for piece in data:
                self._link.data(piece)
        except Exception:  # of the data: the agent goes on with what follows
            self._link.end()
            raise
        self._link.end()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except (wire.Broken, OSError) as e:
            self.wait()  # what was said instead of an agent's greeting says more
            raise lost(self.host, e) from e


class Pending:
    """A request whose answer may still be on its way."""

    def __init__(self, agent: Agent) -> None:
        self.held: collections.deque[bytes] = collections.deque()  # data that has come
        self.answer: dict[str, Any] | None = None
        self._agent = agent

    def result(self) -> Any:
        """Wait for the answer and return it, without data before it. Raises AgentError, Lost."""
        while self.answer is None:
            self._agent.read_for(self)
            self.held.clear()
        if "error" in self.answer:
            raise AgentError(self.answer["error"], self._agent.host)
        return self.answer.get("ok")

    def pieces(self) -> Generator[bytes, None, Any]:
        """Yield the data that comes; the generator's value is the answer behind it."""
        while self.held or self.answer is None:
            self._agent.read_for(self)
            while self.held:
                yield self.held.popleft()
        return self.result()


class Lost(HostError):  # noqa: N818 - reads as what happened
    """The connection ended in the middle. What the host does meanwhile is not known here."""

    def __init__(self, message: str, *, where: object = None, hint: str | None = AGAIN) -> None:
        super().__init__(message, where=where, hint=hint)


def lost(host: str, error: Exception) -> Lost:
    """Return the error of a connection that ended, in the words of what ended it."""
    if isinstance(error, ConnectionLost):
        return Lost(str(error))  # it names the host
    return Lost(f"the connection was lost: {error}", where=host)
