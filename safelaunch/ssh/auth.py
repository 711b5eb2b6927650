"""Logs in on an SSH transport: `none`, then keys, then what a person types.

Paramiko's own handler asks on its reading thread, signs before it knows whether the server wants
the key, and forgets what the server offers; so the messages of RFC 4252 are exchanged here.
"""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from safelaunch.ssh import agents, explain, keys, library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.errors import HostError
    from safelaunch.ssh.keys import Identity
    from safelaunch.ssh.settings import Target

PATIENCE = 120.0  # seconds for one answer: a push to a phone may be behind it
TRIES = 3  # at a password or a passphrase
_SERVICE_REQUEST, _SERVICE_ACCEPT = 5, 6
_REQUEST, _FAILURE, _SUCCESS, _BANNER, _MORE, _ANSWER = 50, 51, 52, 53, 60, 61
_SERVICE = "ssh-userauth"
_RSA = ("rsa-sha2-512", "rsa-sha2-256")


class Ask(Protocol):
    """Asks the person at the terminal. Raises EOFError when nothing more will come."""

    def __call__(self, prompt: str, *, secret: bool) -> str:
        """Show the prompt and return the line; a secret is not shown while it is typed."""
        ...


class _Ended(Exception):  # noqa: N818 - reads as what happened
    """The connection ended, or nothing came for too long."""


class Exchange:
    """Requests and replies of the login. Stands where Paramiko has its own handler."""

    def __init__(self, transport: Any) -> None:
        self.authenticated = False
        self.banner = ""
        self._transport = transport
        self._replies: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        kinds = (_SERVICE_ACCEPT, _FAILURE, _SUCCESS, _BANNER, _MORE)
        self._handler_table = {kind: self._taker(kind) for kind in kinds}
        transport.auth_handler = self

    def _taker(self, kind: int) -> Callable[[Any], None]:
        def take(message: Any) -> None:
            if kind == _BANNER:
                self.banner = message.get_text()
            else:
                if kind == _SUCCESS:  # before the next message is read: it may need it
                    self.authenticated = True
                    self._transport._auth_trigger()  # noqa: SLF001 - as Paramiko's handler
                self._replies.put((kind, message))

        return take

    # what a transport asks of its handler

    def is_authenticated(self) -> bool:
        """Tell whether the server has let us in."""
        return self.authenticated

    def abort(self) -> None:
        """Learn that the connection has ended."""
        self._replies.put((0, None))

    # what a login does

    def send(self, kind: int, *fields: Any) -> tuple[int, Any]:
        """Send a message and return type and content of the reply. Raises _Ended."""
        message = library.paramiko().Message()
        message.add_byte(bytes([kind]))
        for value in fields:
            if isinstance(value, bool):
                message.add_boolean(value)
            elif isinstance(value, int):
                message.add_int(value)
            else:
                message.add_string(value)
        try:
            self._transport._send_message(message)  # noqa: SLF001 - as Paramiko's handler
        except (OSError, EOFError) as e:
            raise _Ended(str(e)) from e
        return self._reply()

    def _reply(self) -> tuple[int, Any]:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                kind, message = self._replies.get(timeout=0.2)
            except queue.Empty:
                if not self._transport.is_active():
                    break
                continue
            if kind:
                return kind, message
            break
        raise _Ended("" if not self._transport.is_active() else f"no answer for {PATIENCE:g} s")


@dataclass
class Login:
    """One login: what it has tried, and what the server still offers."""

    target: Target
    transport: Any
    ask: Ask | None
    tried: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    offers: tuple[str, ...] = ()
    _exchange: Exchange = field(init=False)
    _typed: int = 0  # passwords that were refused
    _refused: int = 0  # keys that were

    def __post_init__(self) -> None:
        self._exchange = Exchange(self.transport)

    def run(self) -> str:
        """Log in, and return what opened the door. Raises LoginFailed, Unreachable."""
        try:
            self._exchange.send(_SERVICE_REQUEST, _SERVICE)
            with agents.agent(self.target, self.advice.append) as held:
                return self._methods(held)
        except _Ended as e:
            raise self._cut(str(e)) from e
        except EOFError as e:
            raise explain.LoginFailed(
                "the login was given up at the prompt", where=self.target.name
            ) from e

    def _methods(self, held: list[Identity]) -> str:
        if self._request("none"):
            return "no proof: the server asked for none"
        ways = {
            "publickey": self._offered(keys.candidates(self.target, held, self._complain)),
            "keyboard-interactive": self._interactive(),
            "password": self._password(),
        }
        while True:
            # after each step the server may offer other methods than before
            usable = [m for m in self.target.authentications if m in ways and m in self.offers]
            if not usable:
                raise self._refusal()
            how = next(ways[usable[0]], None)
            if how is None:
                del ways[usable[0]]
            elif how:
                return how

    # -- the methods: each step yields what opened the door, or "" where it stays shut

    def _offered(self, candidates: Iterator[Identity]) -> Iterator[str]:
        for key in candidates:
            yield from self._key(key)

    def _key(self, key: Identity) -> Iterator[str]:
        known = key
        if key.sign is None and not key.blob:
            opened = self._unlock(key)
            if opened is None:
                return
            known = opened
        algorithm = self._algorithm(known.kind)
        # a key that costs its user a touch or a passphrase is only used where it is wanted
        if (known.held or known.sign is None) and not self._wanted(known, algorithm):
            yield ""
            return
        signer = known if known.sign is not None else self._unlock(known)
        if signer is None or signer.sign is None:
            return
        fields = ("publickey", True, algorithm, known.blob)
        session = keys.string(self.transport.session_id)
        try:
            signature = signer.sign(session + self._plain(*fields), algorithm)
        except (ValueError, OSError, keys.Unreadable) as e:
            self.tried.append(f"{known.shown}: {e}")
            return
        self.tried.append(known.shown)
        done = self._request(*fields, signature)
        self._refused += not done
        yield known.shown if done else ""

    def _wanted(self, key: Identity, algorithm: str) -> bool:
        kind, message = self._send("publickey", False, algorithm, key.blob)
        if kind == _MORE:
            return True
        self._read(kind, message)
        self.tried.append(key.shown)
        self._refused += 1
        return False

    def _algorithm(self, kind: str) -> str:
        if not kind.startswith("ssh-rsa"):
            return kind
        told = self.transport.server_extensions.get("server-sig-algs", b"")
        known = (told if isinstance(told, bytes) else told.encode()).decode().split(",")
        tail = keys.CERTIFICATE if kind.endswith(keys.CERTIFICATE) else ""
        return next((name for name in _RSA if name in known), _RSA[0]) + tail

    def _unlock(self, key: Identity) -> Identity | None:
        if key.path is None:
            return None
        if self.ask is None:
            self._complain(key.label, "it has a passphrase, and nobody is there to type it")
            self.advice.append(f"add it to an agent first: ssh-add {key.label}")
            return None
        for _ in range(TRIES):
            typed = self.ask(f"passphrase of {key.label}: ", secret=True)
            if not typed:
                break
            try:
                (kind, blob), sign = keys.open_file(key.path, typed)
            except keys.Locked:
                continue
            except keys.Unreadable as e:
                self._complain(key.label, str(e))
                return None
            if key.blob:
                return keys.Identity(key.label, key.kind, key.blob, sign, key.path)
            return keys.Identity(key.label, kind, blob, sign, key.path)
        self._complain(key.label, "no right passphrase")
        return None

    def _interactive(self) -> Iterator[str]:
        while self.ask is not None and self._typed < TRIES:
            kind, message = self._send("keyboard-interactive", "", "")
            asked = False
            while kind == _MORE:
                answers = self._answers(message)
                asked = asked or bool(answers)
                kind, message = self._exchange.send(_ANSWER, len(answers), *answers)
            done = self._read(kind, message)
            self._typed += asked and not done
            self._note("keyboard-interactive")
            yield "answers at the prompt" if done else ""
            if not asked:
                return

    def _answers(self, message: Any) -> list[str]:
        title, text = message.get_text(), message.get_text()
        message.get_text()  # a language, unused
        about = "".join(f"{explain.printable(part)}\n" for part in (title, text) if part.strip())
        answers = []
        for _ in range(message.get_int()):
            prompt, shown = message.get_text(), message.get_boolean()
            line = f"({self.target.user}@{self.target.address}) {explain.printable(prompt)}"
            answers.append(self.ask(about + line, secret=not shown) if self.ask else "")
            about = ""
        return answers

    def _password(self) -> Iterator[str]:
        while self.ask is not None and self._typed < TRIES:
            typed = self.ask(f"{self.target.user}@{self.target.address}'s password: ", secret=True)
            kind, message = self._send("password", False, typed)
            if kind == _MORE:
                raise explain.LoginFailed(
                    f"the password of `{self.target.user}` has expired",
                    where=self.target.name,
                    hint=f"log in once with `ssh {self.target.name}`, which asks for a new one",
                )
            done = self._read(kind, message)
            self._typed += not done
            self._note("password")
            yield "a password" if done else ""

    # -- messages

    def _send(self, *fields: Any) -> tuple[int, Any]:
        return self._exchange.send(_REQUEST, self.target.user, "ssh-connection", *fields)

    def _request(self, *fields: Any) -> bool:
        return self._read(*self._send(*fields))

    def _read(self, kind: int, message: Any) -> bool:
        """Take an answer: whether we are in, and else what the server offers now."""
        if kind == _SUCCESS:
            return True
        if kind != _FAILURE:
            raise _Ended(f"the server sent message {kind} out of turn")
        self.offers = tuple(message.get_list())
        message.get_boolean()  # partial success: the other methods are in the list
        return False

    def _plain(self, *fields: Any) -> bytes:
        """Return the request as it is signed."""
        parts = [bytes([_REQUEST])]
        for value in (self.target.user, "ssh-connection", *fields):
            if isinstance(value, bool):
                parts.append(bytes([value]))
            else:
                parts.append(keys.string(value if isinstance(value, bytes) else value.encode()))
        return b"".join(parts)

    # -- what went wrong

    def _complain(self, label: str, why: str) -> None:
        self._note(f"{label}: {why}")

    def _note(self, what: str) -> None:
        if what not in self.tried:
            self.tried.append(what)

    def _cut(self, reason: str) -> HostError:
        told = self.transport.told
        if "too many authentication failures" in told.lower() and self._refused > 1:
            return explain.too_many(self.target, self.tried)
        banner = explain.printable(self._exchange.banner.strip())
        if not told and not banner:
            return explain.lost_in_login(self.target, reason or self.transport.ending())
        return explain.login_cut(self.target, "; ".join(t for t in (told, banner) if t))

    def _refusal(self) -> HostError:
        advice = list(self.advice)
        typed = {"password", "keyboard-interactive"} & {*self.offers}
        if typed and self.ask is None:
            advice.append(
                "a password is only asked for at a terminal: `safelaunch hosts add` there "
                "installs a key once and for all"
            )
        elif typed and self._typed:
            advice.append("is the user name right, and may this user log in (AllowUsers)?")
        elif "publickey" in self.offers and not self._typed:
            advice.append(
                "the server does not know these keys: `safelaunch hosts add` installs one, or add "
                "its .pub to ~/.ssh/authorized_keys there, and look at sshd's log"
            )
        missing = [m for m in self.offers if m.startswith(("gssapi", "hostbased"))]
        if missing:
            advice.append(f"safelaunch cannot do {', '.join(missing)}")
        told = explain.printable(" ".join(self._exchange.banner.split()))
        return explain.not_let_in(
            self.target, self.tried, self.offers, [*advice, *self.target.notes], told
        )
