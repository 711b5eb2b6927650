"""What the lines of an ssh_config mean: words, switches, times, and what is not followed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.ssh.config.address import PORT, port_number
from safelaunch.ssh.config.tokens import seconds

if TYPE_CHECKING:
    from safelaunch.ssh.config.reader import Options

METHODS = ("publickey", "keyboard-interactive", "password")
_SWITCHES = {
    "pubkeyauthentication": "publickey",
    "kbdinteractiveauthentication": "keyboard-interactive",
    "challengeresponseauthentication": "keyboard-interactive",  # its name until OpenSSH 8.7
    "passwordauthentication": "password",
}
# Settings that would change the connection, and the values that ask for nothing. Not GSSAPI and
# host-based login, which Debian asks for everywhere: they count where a server offers them.
_NOT_FOLLOWED = {
    "pkcs11provider": ("none",),
    "knownhostscommand": ("none",),
    "canonicalizehostname": ("no",),
    "bindaddress": (),
    "bindinterface": (),
}
_STRICT = {
    "yes": "yes", "true": "yes", "no": "no", "false": "no", "off": "no", "ask": "ask",
    "accept-new": "accept-new",
}  # fmt: skip


def word(options: Options, keyword: str) -> str | None:
    """Return the word that a keyword is set to, or None."""
    line = options.line(keyword)
    return None if line is None else line.word()


def choice(options: Options, keyword: str, known: tuple[str, ...]) -> str:
    """Return one of the known words; the first is the default. Raises ConfigError."""
    line = options.line(keyword)
    if line is None:
        return known[0]
    found = line.word().lower()
    if found not in known:
        raise ConfigError(
            f"`{keyword}` cannot be `{line.word()}`", where=line.where, hint=", ".join(known)
        )
    return found


def is_on(options: Options, keyword: str) -> bool:
    """Whether a switch that is off by default is on."""
    return choice(options, keyword, ("no", "false", "yes", "true")) in ("yes", "true")


def strictness(options: Options) -> str:
    """Return StrictHostKeyChecking: ask, yes, no or accept-new."""
    return _STRICT[choice(options, "stricthostkeychecking", ("ask", *_STRICT))]


def port(options: Options) -> int:
    """Return the port that the files say, or the usual one."""
    line = options.line("port")
    if line is None or line.word() == "ssh":
        return PORT
    return port_number(line.word(), line.where)


def span(options: Options, keyword: str) -> float | None:
    """Return a time in seconds, or None."""
    line = options.line(keyword)
    return None if line is None else seconds(line.word(), line.where)


def count(options: Options, keyword: str) -> int | None:
    """Return a whole number, or None."""
    line = options.line(keyword)
    if line is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", line.word()):
        raise ConfigError(f"`{keyword}`: no number `{line.word()}`", where=line.where)
    return int(line.word())


def authentications(options: Options) -> tuple[str, ...]:
    """Return the ways to log in that are wanted and known here, in order."""
    line = options.line("preferredauthentications")
    wanted = METHODS if line is None else tuple(line.word().lower().split(","))
    off = {
        method
        for switch, method in _SWITCHES.items()
        if (word(options, switch) or "").lower() in ("no", "false")
    }
    return tuple(method for method in wanted if method in METHODS and method not in off)


def note_what_is_not_followed(options: Options) -> None:
    """Add a note for each setting that asks for what this client does not do."""
    for keyword, nothing in _NOT_FOLLOWED.items():
        line = options.line(keyword)
        if line is not None and line.text.lower() not in nothing:
            options.notes[f"{line.where}: `{keyword}` is not supported here"] = None
    line = options.line("preferredauthentications")
    if line is not None and not set(line.word().lower().split(",")) & set(METHODS):
        said = f"{line.where}: none of `{line.word()}` is supported here: {', '.join(METHODS)} are"
        options.notes[said] = None
