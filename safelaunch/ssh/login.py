"""Log in on an SSH transport: method `none`, then keys, then prompts and passwords.

Paramiko's own handler signs before it knows whether the server accepts the key, and discards the
methods that the server offers; so the methods of RFC 4252 are implemented here, and its messages
in auth_messages.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from safelaunch.runtime.plain_text import printable
from safelaunch.ssh import errors, paramiko_patches
from safelaunch.ssh.auth_messages import (
    CONTINUE,
    FAILURE,
    INFO_RESPONSE,
    REQUEST,
    SERVICE_REQUEST,
    SUCCESS,
    AuthAborted,
    AuthExchange,
)
from safelaunch.ssh.keys import agent, identities
from safelaunch.ssh.prompt import ANSWERS, PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.errors import HostError
    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.keys.identities import Identity
    from safelaunch.ssh.prompt import Prompter

MAX_ATTEMPTS = 3  # to type a password or a passphrase
_RSA = ("rsa-sha2-512", "rsa-sha2-256")


@dataclass
class Login:
    """A login in progress: the credentials tried, and the methods that the server still offers."""

    target: Target
    transport: Any
    ask: Prompter | None
    tried: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)  # where the server wants more besides
    advice: list[str] = field(default_factory=list)
    offers: tuple[str, ...] = ()
    _exchange: AuthExchange = field(init=False)
    _rejected_answers: int = 0
    _rejected_keys: int = 0
    _is_partial: bool = False  # the last request was accepted, and is not enough

    def __post_init__(self) -> None:
        self._exchange = AuthExchange(self.transport)

    def run(self) -> str:
        """Log in and return the accepted credential. Raises LoginFailed, Unreachable."""
        try:
            self._exchange.send(SERVICE_REQUEST, "ssh-userauth")
            with agent.agent_keys(self.target, self.advice.append) as agent_keys:
                return self._try_methods(agent_keys)
        except AuthAborted as e:
            raise self._interrupted(str(e)) from e
        except EOFError as e:
            raise errors.LoginFailed(
                "the login was cancelled at the prompt", where=self.target.name
            ) from e

    def _try_methods(self, agent_keys: list[Identity]) -> str:
        if self._request("none"):
            return "no proof: the server asked for none"
        methods = {
            "publickey": (
                credential
                for key in identities.identities_to_try(self.target, agent_keys, self._note)
                for credential in self._try_key(key)
            ),
            "keyboard-interactive": self._interactive(),
            "password": self._password(),
        }
        while True:
            # the methods that the server offers may change after each step
            usable = [m for m in self.target.authentications if m in methods and m in self.offers]
            if not usable:
                raise self._auth_failed()
            credential = next(methods[usable[0]], None)
            if credential is None:
                del methods[usable[0]]
            elif credential:
                return " and ".join((*self.accepted, credential))

    # -- the methods: each step yields the credential if it was accepted, else ""

    def _try_key(self, key: Identity) -> Iterator[str]:
        public = key
        if key.sign is None and not key.blob:
            unlocked = self._unlock(key)
            if unlocked is None:
                return
            public = unlocked
        algorithm = self._algorithm(public.kind)
        # a key that needs a touch or a passphrase is used only if the server accepts it
        if (public.in_agent or public.sign is None) and not self._is_accepted(public, algorithm):
            yield ""
            return
        signer = public if public.sign is not None else self._unlock(public)
        if signer is None or signer.sign is None:
            return
        fields = ("publickey", True, algorithm, public.blob)
        session = identities.pack_string(self.transport.session_id)
        request = paramiko_patches.ssh_message(REQUEST, self.target.user, "ssh-connection", *fields)
        try:
            signature = signer.sign(session + request.asbytes(), algorithm)
        except (ValueError, OSError, identities.UnusableKey) as e:
            self.tried.append(f"{public.description}: {e}")
            return
        self.tried.append(public.description)
        success = self._request(*fields, signature)
        if self._is_partial:
            self.accepted.append(public.description)
        else:
            self._rejected_keys += not success
        yield public.description if success else ""

    def _is_accepted(self, key: Identity, algorithm: str) -> bool:
        kind, message = self._send("publickey", False, algorithm, key.blob)
        if kind == CONTINUE:
            return True
        self._read(kind, message)
        self.tried.append(key.description)
        self._rejected_keys += 1
        return False

    def _algorithm(self, kind: str) -> str:
        if not kind.startswith("ssh-rsa"):
            return kind
        message = self.transport.server_extensions.get("server-sig-algs", b"")
        public = (message if isinstance(message, bytes) else message.encode()).decode().split(",")
        tail = identities.CERTIFICATE if kind.endswith(identities.CERTIFICATE) else ""
        return next((name for name in _RSA if name in public), _RSA[0]) + tail

    def _unlock(self, key: Identity) -> Identity | None:
        if key.path is None:
            return None
        if self.ask is None:
            self._note(key.label, "it has a passphrase, and there is no terminal to ask for it")
            self.advice.append(f"add it to an agent first: ssh-add {key.label}")
            return None
        for _ in range(MAX_ATTEMPTS):
            typed = self.ask(f"passphrase of {key.label}: ", secret=True)
            if not typed:
                break
            try:
                (kind, blob), sign = identities.load_private_key(key.path, typed)
            except identities.PassphraseRequired:
                continue
            except identities.UnusableKey as e:
                self._note(key.label, str(e))
                return None
            if key.blob:
                kind, blob = key.kind, key.blob
            return identities.Identity(key.label, kind, blob, sign, key.path)
        self._note(key.label, "wrong passphrase")
        return None

    def _interactive(self) -> Iterator[str]:
        while self.ask is not None and self._rejected_answers < MAX_ATTEMPTS:
            kind, message = self._send("keyboard-interactive", "", "")
            prompted = False
            while kind == CONTINUE:
                answers = self._answers(message)
                prompted = prompted or bool(answers)
                kind, message = self._exchange.send(INFO_RESPONSE, len(answers), *answers)
            success = self._read(kind, message)
            if self._is_partial:
                self.accepted.append(ANSWERS)
            else:
                self._rejected_answers += prompted and not success
            self._note("keyboard-interactive")
            yield ANSWERS if success else ""
            if not prompted:
                return

    def _answers(self, message: Any) -> list[str]:
        title, text = message.get_text(), message.get_text()
        message.get_text()  # the language tag, unused
        about = "".join(f"{_lines(part)}\n" for part in (title, text) if part.strip())
        answers = []
        for _ in range(message.get_int()):
            prompt, shown = message.get_text(), message.get_boolean()
            line = f"({self.target.user}@{self.target.address}) {_lines(prompt)}"
            answers.append(self.ask(about + line, secret=not shown) if self.ask else "")
            about = ""
        return answers

    def _password(self) -> Iterator[str]:
        while self.ask is not None and self._rejected_answers < MAX_ATTEMPTS:
            typed = self.ask(f"{self.target.user}@{self.target.address}'s password: ", secret=True)
            kind, message = self._send("password", False, typed)
            if kind == CONTINUE:
                raise errors.LoginFailed(
                    f"the password of `{self.target.user}` has expired",
                    where=self.target.name,
                    hint=f"log in once with `ssh {self.target.name}` to set a new one",
                )
            success = self._read(kind, message)
            if self._is_partial:
                self.accepted.append(PASSWORD)
            else:
                self._rejected_answers += not success
            self._note("password")
            yield PASSWORD if success else ""

    # -- messages

    def _send(self, *fields: Any) -> tuple[int, Any]:
        return self._exchange.send(REQUEST, self.target.user, "ssh-connection", *fields)

    def _request(self, *fields: Any) -> bool:
        return self._read(*self._send(*fields))

    def _read(self, kind: int, message: Any) -> bool:
        """Return whether the reply is a success; after a failure, store the methods now offered."""
        self._is_partial = False
        if kind == SUCCESS:
            return True
        if kind != FAILURE:
            raise AuthAborted(f"the server sent message {kind} out of turn")
        self.offers = tuple(message.get_list())
        self._is_partial = bool(message.get_boolean())  # other methods are wanted besides
        return False

    # -- errors

    def _note(self, credential: str, reason: str = "") -> None:
        text = f"{credential}: {reason}" if reason else credential
        if text not in self.tried:
            self.tried.append(text)

    def _interrupted(self, reason: str) -> HostError:
        target, message = self.target, self.transport.disconnect_reason
        if "too many authentication failures" in message.lower() and self._rejected_keys > 1:
            return errors.too_many_keys(target, self.tried)
        banner = printable(" ".join(self._exchange.banner.split()))
        if message or banner:
            return errors.LoginFailed(
                f"the server ended the login of `{target.user}`: "
                + "; ".join(filter(None, (message, banner))),
                where=target.name,
                hint="look at sshd's log on the host",
            )
        reason = reason or paramiko_patches.close_reason(self.transport)
        return errors.Unreachable(
            f"the connection was lost during the login of `{target.user}`"
            + (f": {reason}" if reason else ""),
            where=target.name,
            hint="try again; if it happens each time, look at sshd's log on the host "
            "(LoginGraceTime, fail2ban)",
        )

    def _auth_failed(self) -> HostError:
        if self.accepted and not self._rejected_answers:
            may_prompt = self.ask is not None
            return errors.login_incomplete(
                self.target, self.accepted, self.offers, may_prompt=may_prompt
            )
        advice = list(self.advice)
        typed = {"password", "keyboard-interactive"} & {*self.offers}
        if typed and self.ask is None:
            advice.append(
                "safelaunch asks for a password only at a terminal: run "
                f"`{errors.install_key_command(self.target)}` there once to install a key"
            )
        elif typed and self._rejected_answers:
            advice.append("is the user name right, and may this user log in (AllowUsers)?")
        elif "publickey" in self.offers and not self._rejected_answers:
            advice.append(
                "the server does not accept these keys: install one with "
                f"`{errors.install_key_command(self.target)}`, or add its .pub to "
                "~/.ssh/authorized_keys on the host, and look at sshd's log"
            )
        if self.target.user == "root":
            advice.append(
                "sshd may let no root in (PermitRootLogin), or root by a key only: log in as "
                "another user, with `user` in the hosts file or `User` in ~/.ssh/config"
            )
        others = [m for m in self.offers if m.startswith(("gssapi", "hostbased"))]
        if others:
            advice.append(f"for {', '.join(others)}: `transport: ssh` in the hosts file")
        unfollowed = [f"{setting} is for `transport: ssh`" for setting in self.target.unsupported]
        banner = printable(" ".join(self._exchange.banner.split()))
        return errors.LoginFailed(
            f"login failed for {self.target.user}@{self.target.address}: tried "
            f"{', '.join(self.tried) or 'nothing: this machine has no key to try'}; the server "
            f"offers {', '.join(self.offers) or 'nothing'}"
            + (f"; its message: {banner}" if banner else ""),
            where=self.target.name,
            hint="; ".join((*advice, *self.target.notes, *unfollowed)) or None,
        )


def _lines(text: str) -> str:
    return printable(text, keep="\n")
