"""Logs in on an SSH transport: `none`, then keys, then what a person types.

Paramiko's own handler signs before it knows whether the server wants the key, and forgets what the
server offers; so the methods of RFC 4252 are here, and its messages in exchange.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from safelaunch.runtime.plain_text import printable
from safelaunch.ssh import errors
from safelaunch.ssh.auth_messages import ANSWER, FAILURE, MORE, REQUEST, SUCCESS, Ended, Exchange
from safelaunch.ssh.keys import agent, identities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.errors import HostError
    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.keys.identities import Identity

TRIES = 3  # at a password or a passphrase
_RSA = ("rsa-sha2-512", "rsa-sha2-256")


class Ask(Protocol):
    """Asks the person at the terminal. Raises EOFError when nothing more will come."""

    def __call__(self, prompt: str, *, secret: bool) -> str:
        """Show the prompt and return the line; a secret is not shown while it is typed."""
        ...


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
            self._exchange.begin()
            with agent.agent(self.target, self.advice.append) as held:
                return self._methods(held)
        except Ended as e:
            raise self._cut(str(e)) from e
        except EOFError as e:
            raise errors.LoginFailed(
                "the login was given up at the prompt", where=self.target.name
            ) from e

    def _methods(self, held: list[Identity]) -> str:
        if self._request("none"):
            return "no proof: the server asked for none"
        ways = {
            "publickey": self._offered(identities.candidates(self.target, held, self._complain)),
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
        session = identities.string(self.transport.session_id)
        try:
            signature = signer.sign(session + self._plain(*fields), algorithm)
        except (ValueError, OSError, identities.Unreadable) as e:
            self.tried.append(f"{known.shown}: {e}")
            return
        self.tried.append(known.shown)
        done = self._request(*fields, signature)
        self._refused += not done
        yield known.shown if done else ""

    def _wanted(self, key: Identity, algorithm: str) -> bool:
        kind, message = self._send("publickey", False, algorithm, key.blob)
        if kind == MORE:
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
        tail = identities.CERTIFICATE if kind.endswith(identities.CERTIFICATE) else ""
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
                (kind, blob), sign = identities.open_file(key.path, typed)
            except identities.Locked:
                continue
            except identities.Unreadable as e:
                self._complain(key.label, str(e))
                return None
            if key.blob:
                return identities.Identity(key.label, key.kind, key.blob, sign, key.path)
            return identities.Identity(key.label, kind, blob, sign, key.path)
        self._complain(key.label, "no right passphrase")
        return None

    def _interactive(self) -> Iterator[str]:
        while self.ask is not None and self._typed < TRIES:
            kind, message = self._send("keyboard-interactive", "", "")
            asked = False
            while kind == MORE:
                answers = self._answers(message)
                asked = asked or bool(answers)
                kind, message = self._exchange.send(ANSWER, len(answers), *answers)
            done = self._read(kind, message)
            self._typed += asked and not done
            self._note("keyboard-interactive")
            yield "answers at the prompt" if done else ""
            if not asked:
                return

    def _answers(self, message: Any) -> list[str]:
        title, text = message.get_text(), message.get_text()
        message.get_text()  # a language, unused
        about = "".join(f"{_lines(part)}\n" for part in (title, text) if part.strip())
        answers = []
        for _ in range(message.get_int()):
            prompt, shown = message.get_text(), message.get_boolean()
            line = f"({self.target.user}@{self.target.address}) {_lines(prompt)}"
            answers.append(self.ask(about + line, secret=not shown) if self.ask else "")
            about = ""
        return answers

    def _password(self) -> Iterator[str]:
        while self.ask is not None and self._typed < TRIES:
            typed = self.ask(f"{self.target.user}@{self.target.address}'s password: ", secret=True)
            kind, message = self._send("password", False, typed)
            if kind == MORE:
                raise errors.LoginFailed(
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
        return self._exchange.send(REQUEST, self.target.user, "ssh-connection", *fields)

    def _request(self, *fields: Any) -> bool:
        return self._read(*self._send(*fields))

    def _read(self, kind: int, message: Any) -> bool:
        """Take an answer: whether we are in, and else what the server offers now."""
        if kind == SUCCESS:
            return True
        if kind != FAILURE:
            raise Ended(f"the server sent message {kind} out of turn")
        self.offers = tuple(message.get_list())
        message.get_boolean()  # partial success: the other methods are in the list
        return False

    def _plain(self, *fields: Any) -> bytes:
        """Return the request as it is signed."""
        parts = [bytes([REQUEST])]
        for value in (self.target.user, "ssh-connection", *fields):
            if isinstance(value, bool):
                parts.append(bytes([value]))
            else:
                parts.append(
                    identities.string(value if isinstance(value, bytes) else value.encode())
                )
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
            return errors.too_many(self.target, self.tried)
        banner = printable(" ".join(self._exchange.banner.split()))
        if not told and not banner:
            return errors.lost_in_login(self.target, reason or self.transport.ending())
        return errors.login_cut(self.target, "; ".join(t for t in (told, banner) if t))

    def _refusal(self) -> HostError:
        advice = list(self.advice)
        typed = {"password", "keyboard-interactive"} & {*self.offers}
        if typed and self.ask is None:
            advice.append(
                "a password is only asked for at a terminal: there "
                f"`{errors.adding(self.target)}` asks it once and installs a key"
            )
        elif typed and self._typed:
            advice.append("is the user name right, and may this user log in (AllowUsers)?")
        elif "publickey" in self.offers and not self._typed:
            advice.append(
                f"the server does not know these keys: `{errors.adding(self.target)}` installs "
                "one, or add its .pub to ~/.ssh/authorized_keys there, and look at sshd's log"
            )
        missing = [m for m in self.offers if m.startswith(("gssapi", "hostbased"))]
        if missing:
            advice.append(f"safelaunch cannot do {', '.join(missing)}")
        told = printable(" ".join(self._exchange.banner.split()))
        return errors.not_let_in(
            self.target, self.tried, self.offers, [*advice, *self.target.notes], told
        )


def _lines(text: str) -> str:
    return printable(text, keep="\n")
