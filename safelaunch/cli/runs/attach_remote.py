"""`safelaunch attach` to a run on a host: shows its tmux pane in this terminal, over SSH."""

# ruff: noqa: PLC0415 - termios and tty do not exist on Windows, and only `attach` needs threads

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
from typing import TYPE_CHECKING

from safelaunch.cli.connections import resolver
from safelaunch.cli.output import say
from safelaunch.errors import RunError
from safelaunch.ssh.config.address import parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.model import Host
    from safelaunch.remote.runs.remote_run import RemoteRun
    from safelaunch.ssh.connection import Channel


def attach(run: RemoteRun, command: str, node: int) -> int:
    """Run a command that attaches to a node of a run on its host; return 0 when it ends."""
    if sys.platform == "win32":
        hosts = resolver(run.pointer.hosts_file, may_prompt=False)
        line = plain_ssh(hosts.host(run.place(node).host), command)
        raise RunError("attach over SSH does not work on Windows", hint=f"by hand: {line}")
    connection = run.session(node).connection
    size = shutil.get_terminal_size()
    term = os.environ.get("TERM") or "xterm-256color"
    channel = connection.exec(
        f"exec {command}", pty=True, term=term, size=(size.columns, size.lines)
    )
    with channel, _raw():
        _pump(channel)
    say(f"detached from {run.id}; for its state: safelaunch show {run.id}")
    return 0


def plain_ssh(host: Host, command: str) -> str:
    """Return the line that runs a command in a terminal on a host with OpenSSH."""
    address = parse_address((host.addresses or (host.ssh or host.name,))[0], host.name)
    user, port = address.user or host.user, address.port or host.port
    words = ["ssh", "-t"]
    words += ["-p", str(port)] if port else []
    words += ["-i", f'"{host.identity}"'] if host.identity else []
    words += [f"{user}@{address.host}" if user else address.host, command]
    return " ".join(words)


def _pump(channel: Channel) -> None:
    """Copy bytes both ways until the command has ended."""
    if sys.platform == "win32":
        return
    import threading

    reader, writer = os.pipe()  # the thread closes it when the command has ended

    def show() -> None:
        with contextlib.suppress(OSError):
            while data := channel.read(1 << 16):
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
        os.close(writer)

    def resize(_signum: int, _frame: object) -> None:
        size = shutil.get_terminal_size()
        channel.resize(size.columns, size.lines)

    previous = signal.signal(signal.SIGWINCH, resize)
    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        stdin = sys.stdin.fileno()
        while True:
            ready, _, _ = select.select([stdin, reader], [], [])
            if reader in ready:
                return
            data = os.read(stdin, 1 << 12)
            if not data:
                return
            channel.write(data)
    except OSError:
        return  # the command has ended, or the connection is lost
    finally:
        signal.signal(signal.SIGWINCH, previous)
        os.close(reader)


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Pass on every key, Ctrl-C too."""
    if sys.platform == "win32":
        yield
        return
    import termios
    import tty

    stdin = sys.stdin.fileno()
    settings = termios.tcgetattr(stdin)
    try:
        tty.setraw(stdin)
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, settings)
