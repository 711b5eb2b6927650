"""Command lines of the system's `ssh`, and its effective settings by `ssh -G`."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.runtime.plain_text import printable
from safelaunch.ssh.config.address import STANDARD_PORT
from safelaunch.ssh.config.target import (
    ALIVE_COUNT,
    ALIVE_INTERVAL,
    CONNECT_TIMEOUT,
    Destination,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.ssh.config.target import Target

CONFIG_TIMEOUT = 60.0  # seconds for `ssh -G`: `Match exec` runs commands
CONTROL_TIMEOUT = 10.0  # seconds for a question to a shared connection
_GREETING_TIMEOUT = 1.0  # seconds
# bytes of the head of a shared login's greeting, and its end: the number of its kind, MUX_MSG_HELLO
# (PROTOCOL.mux of OpenSSH). Asking so takes no process, as `ssh -O check` does.
_HELLO = (8, b"\0\0\0\1")
PERSIST = 120  # seconds without a command after which an unattended shared connection ends
# Settings that would let the command, or the streams that safelaunch needs, go; with their value
# for it. Those of the second table are newer: named only where the configuration has them.
_FIXED = {"RemoteCommand": "none", "ClearAllForwardings": "yes"}
_FIXED_IF_SET = {"sessiontype": "default", "stdinnull": "no", "forkafterauthentication": "no"}


@dataclass(frozen=True, slots=True)
class Client:
    """How `ssh` is called for one target: program, arguments before all others, destination."""

    program: str
    target: Target
    settings: Mapping[str, str]  # by keyword in lower case, as `ssh -G` prints them
    words: tuple[str, ...]

    def argv(self, control_path: str, *words: str, command: str | None = None) -> list[str]:
        """Return an argv that shares the connection of a control path."""
        words = (*self.words, "-S", control_path.replace("%", "%%"), *words)
        host = _destination(self.target).host
        return (
            [*words, "--", host]
            if command is None
            else [*words, *self._session, "--", host, command]
        )

    @property
    def _session(self) -> list[str]:
        """Options for a command; `ssh -N`, which runs none, refuses some of them."""
        return [
            word
            for name, value in _FIXED_IF_SET.items()
            if self.settings.get(name, value) != value
            for word in ("-o", f"{name}={value}")
        ]

    def control(self, control_path: str, request: str) -> bool:
        """Send a request to a shared connection: check or exit; False where there is none."""
        argv = self.argv(control_path, "-q", "-O", request)
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=CONTROL_TIMEOUT, check=False, start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def is_shared(self, control_path: str) -> bool:
        """Whether a login is shared at a path: its `ssh` greets whoever connects there."""
        if sys.platform != "win32":
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_GREETING_TIMEOUT)
                connection.connect(control_path)
                if connection.recv(_HELLO[0]).endswith(_HELLO[1]):
                    return True
        return self.control(control_path, "check")  # also of a version that greets otherwise

    @property
    def control_path(self) -> str | None:
        """The socket at which the user's configuration shares logins; None: it shares none."""
        path = self.settings.get("controlpath", "none")
        return None if path == "none" or not self.target.shares_login else path

    @property
    def may_create_master(self) -> bool:
        """Whether the user's configuration shares a login that safelaunch makes."""
        return self.settings.get("controlmaster") in ("yes", "true", "auto")

    @property
    def persists(self) -> bool:
        """Whether the user's configuration keeps a shared login."""
        return self.settings.get("controlpersist", "no") not in ("no", "false")


def open_client(program: str, target: Target) -> Client:
    """Return the client of a target, with what `ssh -G` says of it. Raises ConfigError."""
    place = _destination(target)
    words = [program]
    words += ["-F", place.config] if place.config is not None else []
    words += ["-p", str(place.port)] if place.port is not None else []
    words += ["-l", place.user] if place.user is not None else []
    if place.identity is not None:
        words += ["-i", place.identity.replace("%", "%%"), "-o", "IdentitiesOnly=yes"]
    settings = _settings([*words, "-G", "--", place.host], target.name)
    target = _with_settings(target, settings)
    # neither the agent nor the display is for the jobs of the host; with -v also the `ssh` of a
    # ProxyJump says what fails, which it keeps to itself below one with ControlPersist
    words += ["-a", "-x", "-v"]
    for name, value in _options(target, settings):
        words += ["-o", f"{name}={value}"]
    return Client(program, target, settings, tuple(words))


def _destination(target: Target) -> Destination:
    return target.destination or Destination(target.address, target.user, target.port)


def _settings(argv: Sequence[str], name: str) -> dict[str, str]:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=CONFIG_TIMEOUT, check=False, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired as e:
        text = f"`ssh -G` has not answered within {CONFIG_TIMEOUT:g} s"
        raise ConfigError(text, where=name, hint="does a command of `Match exec` hang?") from e
    except OSError as e:
        raise ConfigError(f"cannot run {argv[0]}: {e.strerror}", where=name) from e
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        text = f"ssh cannot use its configuration: {printable(lines[0])}"
        raise ConfigError(text, where=name, hint=f"ssh -G {name}")
    pairs = (line.partition(" ") for line in reversed(done.stdout.splitlines()))
    return {keyword: value for keyword, _, value in pairs}


def _with_settings(target: Target, settings: Mapping[str, str]) -> Target:
    """Return a target with what `ssh` itself says of its address."""
    port = settings.get("port", "")
    jump, command = settings.get("proxyjump"), settings.get("proxycommand", "none")
    shown = command if command != "none" else f"ssh -J {jump}" if jump else None
    return replace(
        target,
        address=settings.get("hostname", target.address),
        port=int(port) if port.isdigit() else STANDARD_PORT,
        user=settings.get("user", target.user),
        proxy_command=None if target.jumps else shown,
    )


def _options(target: Target, settings: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what is set for each connection beside the user's own settings."""
    options = [*_FIXED.items()]
    # Debian's ssh has another default, 300, where it must not prompt
    if target.alive_interval is None and settings.get("serveraliveinterval") in ("0", "300"):
        options.append(("ServerAliveInterval", f"{ALIVE_INTERVAL:.0f}"))
        if target.alive_count is None:
            options.append(("ServerAliveCountMax", str(ALIVE_COUNT)))
    # a jump host may still ask its user for a password
    if settings.get("connecttimeout") == "none" and not (target.jumps or target.proxy_command):
        options.append(("ConnectTimeout", f"{CONNECT_TIMEOUT:.0f}"))
    if not target.shares_login and target.authentications == ("publickey",):
        options.append(("PreferredAuthentications", "publickey"))  # to try whether a key logs in
    return options
