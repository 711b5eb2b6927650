"""A connection by the system's `ssh`: it logs in once, and each command is a client of that login.

A login that the user's configuration shares (ControlMaster, ControlPath) is used, or made as it
says. Where it shares none, the login is shared in a folder of the command's own, and ends with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.ssh import errors
from safelaunch.ssh.config.target import OPENSSH
from safelaunch.ssh.openssh import askpass, client_log
from safelaunch.ssh.openssh.channel import FAILED, OpenSSHChannel
from safelaunch.ssh.openssh.client import PERSIST, open_client
from safelaunch.ssh.retries import with_retries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.errors import ConnectionLost
    from safelaunch.ssh.keys.known_hosts import HostKey
    from safelaunch.ssh.openssh.client import Client
    from safelaunch.ssh.prompt import Prompter

_LOGIN_LOG, _SOCKET = "login", "control"  # file names: log and socket of the shared login
_MAX_SOCKET = 60  # characters of a folder for sockets: their paths are limited to about 100
# a prompt would wait for nobody: without a terminal, and once the login is done
_SILENT = ("env", "SSH_ASKPASS_REQUIRE=never")
# where the shared login is gone, `ssh` would make another one for itself
_NO_LOGIN = ("-o", "BatchMode=yes", "-o", "ProxyCommand=exit 1")


def connect_openssh(
    program: str, target: Target, ask: Prompter | None, notify: Callable[[str], None]
) -> OpenSSHConnection:
    """Return a connection to a target. Raises HostError, ConfigError."""
    client = open_client(program, target)
    path = client.control_path
    if path is not None and client.is_shared(path):
        return OpenSSHConnection(client, _make_folder(), path, "", is_private=False)
    folder = _make_folder()
    login = _Login(client, folder, ask, notify)
    try:
        if path is not None and client.may_create_master:
            words = ["-o", "ControlMaster=auto"]
            words += [] if client.persists else ["-o", f"ControlPersist={PERSIST}"]
            log = login.run(path, words, "true")
            # on some file systems there are no sockets: then the login is not shared
            if client.is_shared(path):
                return OpenSSHConnection(client, folder, path, log, is_private=False)
            notify(f"{target.name}: ssh cannot share a login at {path}, its ControlPath")
        path = os.path.join(folder, _SOCKET)
        words = ["-f", "-N", "-o", "ControlMaster=yes", "-o", f"ControlPersist={PERSIST}"]
        log = login.run(path, words)
        return OpenSSHConnection(client, folder, path, log, is_private=True)
    except BaseException:
        if os.path.exists(os.path.join(folder, _SOCKET)):
            client.control(os.path.join(folder, _SOCKET), "exit")
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _make_folder() -> str:
    """Return a new folder that only we may enter, for sockets and a program."""
    for place in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/dev/shm")):  # noqa: S108 - mkdtemp
        with contextlib.suppress(OSError):
            if len(place) <= _MAX_SOCKET and _runs_programs(place):
                return tempfile.mkdtemp(prefix="safelaunch-ssh-", dir=place)
    return tempfile.mkdtemp(prefix="safelaunch-ssh-")


def _runs_programs(folder: str) -> bool:
    """Whether programs in a folder can be run, as that of the prompts."""
    return sys.platform == "win32" or not os.statvfs(folder).f_flag & os.ST_NOEXEC


class _Login(NamedTuple):
    """How a login is made: by which client, with files in which folder, and who is asked."""

    client: Client
    folder: str
    ask: Prompter | None
    notify: Callable[[str], None]

    def run(self, path: str, words: Sequence[str], command: str | None = None) -> str:
        """Make a login that is shared at a path, and return its log. Raises HostError."""
        batch = [] if self.ask else ["-o", "BatchMode=yes"]
        words = ["-E", os.path.join(self.folder, _LOGIN_LOG), *words, *batch]
        argv = [*([] if self.ask else _SILENT), *self.client.argv(path, *words, command=command)]
        name = self.client.target.name
        log = with_retries(name, self.notify, lambda number: self._attempt(path, argv, number))
        for line in client_log.new_host_keys(log):
            self.notify(f"{name}: {line}")
        return log

    def _attempt(self, path: str, argv: Sequence[str], number: int) -> str:
        log_path, stderr_path = (os.path.join(self.folder, name) for name in (_LOGIN_LOG, "stderr"))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(log_path)
        code = askpass.run(argv, self.folder, self.ask, self.notify, stderr_path)
        log = _read(log_path)
        is_changed = client_log.has_changed_key(log)
        if not is_changed and (code != FAILED or client_log.is_authenticated(log)):
            return log
        if is_changed:  # with StrictHostKeyChecking off, `ssh` logs in nevertheless
            self.client.control(path, "exit")
        may_prompt = self.ask is not None
        raise client_log.login_error(
            self.client.target, log, _read(stderr_path), number, may_prompt=may_prompt
        )


class OpenSSHConnection:
    """An open connection. `target` is as `ssh` resolved it, `credential` the accepted one."""

    def __init__(
        self, client: Client, folder: str, control_path: str, log: str, *, is_private: bool
    ) -> None:
        self.target = client.target
        self.name = client.target.name
        self.credential = client_log.credential(log)
        self.transport = OPENSSH
        self.host_key: HostKey | None = client_log.host_key(log)
        self._client = client
        self._folder = folder
        self._control_path = control_path
        self._is_private = is_private
        self._channels: list[OpenSSHChannel] = []
        self._count = 0
        self._lock = threading.Lock()
        self._closed = False

    @property
    def alive(self) -> bool:
        """Whether the login is up, as far as its `ssh` knows."""
        return not self._closed and self._client.is_shared(self._control_path)

    def exec(
        self,
        command: str,
        pty: bool = False,
        *,
        term: str = "xterm-256color",
        size: tuple[int, int] = (80, 24),
        wait: bool = True,  # noqa: ARG002 - of the protocol; here each refusal comes late
    ) -> OpenSSHChannel:
        """Run a command line in the user's login shell on the host. `size` is columns, rows.

        The first read or write raises HostError if the server refuses. Raises ConnectionLost.
        """
        with self._lock:
            if self._closed:
                raise self.lost()
            self._count += 1
            log_path = os.path.join(self._folder, f"command-{self._count}")
            words = ["-E", log_path, "-o", "ControlMaster=no", *_NO_LOGIN]
            words += ["-tt", "-e", "none"] if pty else ["-T"]
            argv = self._client.argv(self._control_path, *words, command=command)
            environment = [*_SILENT, f"TERM={term}"] if pty else _SILENT
            try:
                channel = OpenSSHChannel(
                    self.name,
                    [*environment, *argv],
                    lambda: self._failure(log_path),
                    size if pty else None,
                )
            except OSError as e:
                raise errors.ConnectionLost(f"{self.name}: cannot run ssh: {e.strerror}") from e
            self._channels.append(channel)
            return channel

    def _failure(self, log_path: str) -> Exception | None:
        """Return why an `ssh` has failed; None: its command ended with that exit code."""
        log = _read(log_path)
        refusal = client_log.session_error(self.target, log)
        if refusal is not None:
            return refusal
        return None if self.alive else self.lost()

    def lost(self) -> ConnectionLost:
        """Return the error of a lost connection, with the reason if known."""
        log = _read(os.path.join(self._folder, _LOGIN_LOG))
        reason = client_log.last_error(log[client_log.end_of_login(log) :])
        return errors.ConnectionLost(
            f"the connection to {self.name} was lost" + f": {reason}" * bool(reason)
        )

    def close(self) -> None:
        """End its commands, and the login unless the user's configuration shares it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for channel in self._channels:
            channel.close()
        if self._is_private:
            self._client.control(self._control_path, "exit")
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
