"""The client's side of an agent: requests, data and answers over one channel.

Requests may be sent before the answers of earlier ones were read: the agent serves them in order.
"""

from __future__ import annotations

import collections
import contextlib
from typing import TYPE_CHECKING, Any

from safelaunch.errors import HostError
from safelaunch.runtime.agent import wire
from safelaunch.runtime.plain_text import printable
from safelaunch.ssh.errors import ConnectionLost
from safelaunch.sync.answers import bad_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

AGAIN = "give the same command again: it resumes from what has arrived there"
# numbers of Linux: on this machine they may be others
FULL = (28, 122)  # ENOSPC, EDQUOT
CLOSED = (1, 13, 30)  # EPERM, EACCES, EROFS
# what the agent raises for the user to read
EXPECTED = ("StartFailed", "MissingProgram", "SubmitError", "UnclearSubmitError")
MAX_STORED = 1 << 26  # bytes of data that wait until they are read
_MAX_MESSAGE = 4000  # characters
_PIECE_COST = 100  # bytes that a piece of data takes beside its contents
ROUND_TRIP = 0.02  # seconds to a host and back, where that is not known
EARLY = 1 << 14  # bytes of requests that may travel in the command that starts an agent


class AgentError(HostError):
    """The agent could not do what was asked. `errno` and `path` of an OSError there, else None.

    An error that the agent does not expect is our fault: exit code 5, its traceback in a file.
    """

    code = "host-failed"

    def __init__(self, error: Any, host: str) -> None:
        error = error if isinstance(error, dict) else {}
        number, path = error.get("errno"), error.get("path")
        self.kind = printable(str(error.get("kind")))
        self.errno: int | None = number if isinstance(number, int) else None
        # one line, whatever stands in it: it must not look like a message of this machine
        self.path: str | None = printable(path) if isinstance(path, str) and path else None
        lines = str(error.get("message"))[:_MAX_MESSAGE].splitlines()
        message = "; ".join(printable(line) for line in lines if line.strip())
        message, hint = message + (f" ({self.path})" if self.path else ""), None
        if error.get("traceback") and self.kind not in EXPECTED:
            message = f"unexpected {self.kind} in the agent there: {message}"
            self.exit_code, self.details = 5, str(error["traceback"])
            if error.get("is_damaged"):
                hint = "give the same command again: it sends the agent's files there anew"
        elif self.errno in FULL:
            hint = "free space or quota there, or set SAFELAUNCH_HOME there"
        elif self.errno in CLOSED:
            hint = f"safelaunch hosts test {host} says which folders there cannot be written"
        super().__init__(message, where=host, hint=hint)


class Agent:
    """An agent that was started, or will be. Not for several threads at once.

    `launch` is called once, before anything is written or read: it starts the agent, with the
    requests so far; `await_ready` after it, before anything is read. Both raise HostError where
    there is no agent.
    """

    def __init__(
        self,
        host: str,
        read: Callable[[int], bytes],
        write: Callable[[bytes | memoryview], object],
        launch: Callable[[bytes], object] | None = None,
        await_ready: Callable[[], object] | None = None,
    ) -> None:
        self.host = host
        self.round_trip = ROUND_TRIP
        self._link = wire.Link(read, write, wire.ANSWER_LIMIT)
        self._launch = launch
        self._early = bytearray()
        self._await_ready = await_ready
        self._unanswered: collections.deque[PendingReply] = collections.deque()

    def ask(self, verb: str, data: Iterable[bytes] | None = None, **request: Any) -> PendingReply:
        """Send a request, with `data` behind it, without waiting for the answer. Raises Lost.

        What is on its way both ways at once must be small, or each side waits for the other to
        read. A request whose answer does not end by itself must be the last.
        """
        reply = self._new_reply()
        with self._lost_errors():
            self._start()
            self._send_request(verb, data, request)
        return reply

    def ask_first(self, verb: str, **request: Any) -> PendingReply:
        """Ask in the command that starts the agent, where that is still to be sent: else as `ask`.

        Saves a round trip: sshd takes no stdin before it runs the command. No secrets, since
        others may list the processes there. Raises Lost.
        """
        if self._launch is None or len(self._early) > EARLY:
            return self.ask(verb, **request)
        wire.Link(lambda _: b"", self._early.extend).send({**request, "verb": verb})
        return self._new_reply()

    def launch(self) -> None:
        """Start the agent now, with what was asked so far: it works beside this machine.

        What is asked later travels by itself, at the earliest one round trip behind. Raises Lost.
        """
        with self._lost_errors():
            self._start()

    def _new_reply(self) -> PendingReply:
        self._unanswered.append(PendingReply(self))
        return self._unanswered[-1]

    def call(self, verb: str, data: Iterable[bytes] | None = None, **request: Any) -> Any:
        """Ask, and return the answer; `data` goes behind the request. Raises AgentError, Lost."""
        return self.ask(verb, data, **request).result()

    def stream(self, verb: str, **request: Any) -> Generator[bytes, None, Any]:
        """Ask, and yield the data that comes; the generator's value is the answer behind it."""
        return (yield from self.ask(verb, **request).pieces())

    def wait(self) -> None:
        """Wait until the agent is ready. Raises HostError."""
        self._start()
        await_ready, self._await_ready = self._await_ready, None
        if await_ready is not None:
            await_ready()

    def read_for(self, reply: PendingReply) -> None:
        """Read until a part of a reply has come, and store what comes for earlier ones."""
        with self._lost_errors():
            self.wait()
            while not reply.data and reply.answer is None:
                kind, body = self._link.next()
                if kind == wire.DATA:
                    self._unanswered[0].store(body)
                elif kind == wire.MESSAGE:
                    answer = wire.parse(wire.check_size(body))
                    self._unanswered.popleft().answer = answer

    def _start(self) -> None:
        launch, self._launch = self._launch, None
        if launch is not None:
            await_ready, self._await_ready = self._await_ready, None
            launch(bytes(self._early))
            self._await_ready = await_ready

    def _send_request(
        self, verb: str, data: Iterable[bytes] | None, request: dict[str, Any]
    ) -> None:
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
    def _lost_errors(self) -> Iterator[None]:
        """Raise Lost for a connection that ends; what the host printed instead says more."""
        try:
            yield
        except wire.Garbled as e:
            raise bad_answer(self.host, e) from e
        except (wire.Broken, OSError) as e:
            self.wait()
            raise lost(self.host, e) from e


class PendingReply:
    """The reply to a request; it may still be on its way."""

    def __init__(self, agent: Agent) -> None:
        self.data: collections.deque[bytes] = collections.deque()  # what has come and is unread
        self._stored = 0  # bytes of it
        self.answer: dict[str, Any] | None = None
        self._agent = agent

    def store(self, data: bytes) -> None:
        """Store data that has come until it is read. Raises wire.Garbled for too much of it."""
        self._stored += len(data) + _PIECE_COST
        if self._stored > MAX_STORED:
            raise wire.Garbled("data without end before an answer")
        self.data.append(data)

    def result(self) -> Any:
        """Wait for the answer and return it, without data before it. Raises AgentError, Lost."""
        while self.answer is None:
            self._agent.read_for(self)
            self.data.clear()
            self._stored = 0
        if "error" in self.answer:
            raise AgentError(self.answer["error"], self._agent.host)
        answer = self.answer.get("ok")
        return AgentAnswer(answer, self._agent.host) if isinstance(answer, dict) else answer

    def pieces(self) -> Generator[bytes, None, Any]:
        """Yield the data that comes; the generator's value is the answer behind it."""
        while self.data or self.answer is None:
            self._agent.read_for(self)
            while self.data:
                piece = self.data.popleft()
                self._stored -= len(piece) + _PIECE_COST
                yield piece
        return self.result()


class AgentAnswer(dict[str, Any]):
    """An answer of an agent. A missing key raises BadAnswer."""

    def __init__(self, values: dict[str, Any], host: str) -> None:
        super().__init__(values)
        self._host = host

    def __missing__(self, key: str) -> Any:
        raise bad_answer(self._host, f"it lacks `{key}`")


class Lost(HostError):  # noqa: N818 - reads as what happened
    """The connection ended in the middle. What the host does meanwhile is not known here."""

    code = "connection-lost"


def lost(host: str, error: Exception) -> Lost:
    """Return the error of a connection that ended, in the words of what ended it."""
    if isinstance(error, ConnectionLost):
        return Lost(str(error), hint=AGAIN)  # it names the host
    return Lost(f"the connection was lost: {error}", where=host, hint=AGAIN)
