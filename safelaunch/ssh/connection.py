"""Connect to a host, by Paramiko or by the system's `ssh`: one login, then all commands over it.

`connect` tries the addresses that a Target names, in order. Nothing here prints: `ask` prompts the
user, `notify` gets a line to show.
"""

# ruff: noqa: PLC0415 - a command pays only for the transport that it uses: Paramiko is 0.1 s

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from safelaunch.ssh.errors import NoCommonAlgorithm, Unreachable
from safelaunch.ssh.openssh import selection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

    from safelaunch.errors import HostError
    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.errors import ConnectionLost
    from safelaunch.ssh.keys.known_hosts import HostKey
    from safelaunch.ssh.prompt import Prompter

TERMINAL_SIZE = (80, 24)


class Channel(Protocol):
    """A running command: its stdin and stdout, and the end of its stderr."""

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes of stdout, none at its end.

        Raises ConnectionLost, HostError.
        """
        ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write all data to stdin. Raises ConnectionLost; BrokenPipeError if the command ended."""
        ...

    def close_stdin(self) -> None:
        """Send the end of stdin to the command."""
        ...

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal size of a command on a pty."""
        ...

    def stderr_tail(self) -> str:
        """Return the last lines of stderr so far; complete once the command has ended."""
        ...

    def exit_code(self, timeout: float | None = None) -> int | None:
        """Return the exit code; None after the timeout, 255 if a signal ended the command.

        Raises ConnectionLost.
        """
        ...

    def close(self) -> None:
        """End the command; a read or write in another thread gets an error."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Connection(Protocol):
    """An open connection. `target` is the one that worked, `credential` the accepted one."""

    target: Target
    name: str
    credential: str
    transport: str  # as in the hosts file

    @property
    def alive(self) -> bool:
        """Whether the connection is up, as far as is known."""
        ...

    @property
    def host_key(self) -> HostKey | None:
        """The server's key; None where an earlier login of `ssh` has checked it."""
        ...

    def exec(
        self,
        command: str,
        pty: bool = False,
        *,
        term: str = "xterm-256color",
        size: tuple[int, int] = TERMINAL_SIZE,
        wait: bool = True,
    ) -> Channel:
        """Run a command line in the user's login shell on the host. `size` is columns, rows.

        Raises HostError if the server refuses, ConnectionLost; without `wait`, the first read or
        write may raise the refusal.
        """
        ...

    def lost(self) -> ConnectionLost:
        """Return the error of a lost connection, with the reason if known."""
        ...

    def close(self) -> None:
        """Close it. The host gets no other notice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def connect(
    target: Target,
    *,
    ask: Prompter | None = None,
    notify: Callable[[str], None] = lambda _: None,
    before_login: Callable[[], object] = lambda: None,
) -> Connection:
    """Return a connection to a host. Raises a HostError of errors.py.

    Without `ask`, unknown host keys are rejected and no password is tried. `before_login` starts
    other work once nothing is left to import: from then on a login waits most of its time.
    """
    routes = (target, *target.others)
    failures: list[HostError] = []
    for route in routes:
        try:
            return _connect(route, routes, ask, notify, before_login)
        except Unreachable as e:  # noqa: PERF203 - a few
            failures.append(e)
    if len(failures) == 1:
        raise failures[0]
    reasons = "; ".join(failure.message for failure in failures)
    text = f"none of its {len(failures)} addresses works: {reasons}"
    raise Unreachable(text, where=target.name, hint=failures[0].hint) from failures[-1]


def _connect(
    target: Target,
    routes: Sequence[Target],
    ask: Prompter | None,
    notify: Callable[[str], None],
    before_login: Callable[[], object],
) -> Connection:
    if selection.uses_openssh(target, routes):
        before_login()
        return _connect_openssh(target, ask, notify)
    from safelaunch.ssh.paramiko_connection import connect_paramiko

    try:
        return connect_paramiko(target, routes, ask, notify, before_login)
    except NoCommonAlgorithm:
        if not selection.may_use_openssh(target):
            raise
        return _connect_openssh(target, ask, notify)


def _connect_openssh(
    target: Target, ask: Prompter | None, notify: Callable[[str], None]
) -> Connection:
    from safelaunch.ssh.openssh.connection import connect_openssh

    return connect_openssh(selection.program() or "ssh", target, ask, notify)
