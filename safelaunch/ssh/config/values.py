"""Typed values of ssh_config options: words, switches, times, and unsupported options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.ssh.config.address import STANDARD_PORT, parse_port
from safelaunch.ssh.config.tokens import parse_seconds

if TYPE_CHECKING:
    from safelaunch.ssh.config.reader import Options

METHODS = ("publickey", "keyboard-interactive", "password")
_SWITCHES = {
    "pubkeyauthentication": "publickey",
    "kbdinteractiveauthentication": "keyboard-interactive",
    "challengeresponseauthentication": "keyboard-interactive",  # its name until OpenSSH 8.7
    "passwordauthentication": "password",
}
# Options that change a connection and that only OpenSSH follows, with the values without effect.
_UNSUPPORTED = {
    "controlpath": ("none",),
    "pkcs11provider": ("none",),
    "knownhostscommand": ("none",),
    "revokedhostkeys": ("none",),
    "verifyhostkeydns": ("no", "false"),
    "canonicalizehostname": ("no", "false"),
    "proxyusefdpass": ("no", "false"),
    "bindaddress": (),
    "bindinterface": (),
}
# The same, in the user's own file alone: distributions set these for every host.
_UNSUPPORTED_OF_USER = {
    "gssapiauthentication": ("no", "false"),
    "hostbasedauthentication": ("no", "false"),
    "ciphers": (),
    "macs": (),
    "kexalgorithms": (),
    "hostkeyalgorithms": (),
    "casignaturealgorithms": (),
    "pubkeyacceptedalgorithms": (),
    "pubkeyacceptedkeytypes": (),  # its name until OpenSSH 8.5
}
_STRICT = {
    "yes": "yes", "true": "yes", "no": "no", "false": "no", "off": "no", "ask": "ask",
    "accept-new": "accept-new",
}  # fmt: skip


def word(options: Options, keyword: str) -> str | None:
    """Return the value of a keyword with one argument, or None."""
    line = options.line(keyword)
    return None if line is None else line.word()


def choice(options: Options, keyword: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words; the first is the default. Raises ConfigError."""
    line = options.line(keyword)
    if line is None:
        return allowed[0]
    value = line.word().lower()
    if value not in allowed:
        raise ConfigError(
            f"`{keyword}` cannot be `{line.word()}`", where=line.where, hint=", ".join(allowed)
        )
    return value


def is_on(options: Options, keyword: str) -> bool:
    """Whether a switch is on; the default is off."""
    return choice(options, keyword, ("no", "false", "yes", "true")) in ("yes", "true")


def strictness(options: Options) -> str:
    """Return the value of StrictHostKeyChecking: ask, yes, no or accept-new."""
    return _STRICT[choice(options, "stricthostkeychecking", ("ask", *_STRICT))]


def port(options: Options) -> int:
    """Return the port of the files, or 22."""
    line = options.line("port")
    if line is None or line.word() == "ssh":
        return STANDARD_PORT
    return parse_port(line.word(), line.where)


def duration(options: Options, keyword: str) -> float | None:
    """Return a time in seconds, or None."""
    line = options.line(keyword)
    return None if line is None else parse_seconds(line.word(), line.where)


def count(options: Options, keyword: str) -> int | None:
    """Return a whole number, or None."""
    line = options.line(keyword)
    if line is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", line.word()):
        raise ConfigError(f"`{keyword}`: `{line.word()}` is not a number", where=line.where)
    return int(line.word())


def auth_methods(options: Options) -> tuple[str, ...]:
    """Return the login methods that are enabled and supported, in order of preference."""
    line = options.line("preferredauthentications")
    preferred = METHODS if line is None else tuple(line.word().lower().split(","))
    disabled = {
        method
        for switch, method in _SWITCHES.items()
        if (word(options, switch) or "").lower() in ("no", "false")
    }
    return tuple(method for method in preferred if method in METHODS and method not in disabled)


def note_unsupported_options(options: Options) -> None:
    """Add each option in use that only OpenSSH supports to `unsupported`."""
    for keyword, inactive in {**_UNSUPPORTED, **_UNSUPPORTED_OF_USER}.items():
        line = options.line(keyword)
        if line is None or (keyword in _UNSUPPORTED_OF_USER and not line.is_user_file):
            continue
        if line.text.lower().strip('"') not in inactive:
            options.unsupported[f"{line.where}: `{keyword}`"] = None
    line = options.line("preferredauthentications")
    if line is not None and not set(line.word().lower().split(",")) & set(METHODS):
        options.unsupported[f"{line.where}: `preferredauthentications {line.word()}`"] = None
