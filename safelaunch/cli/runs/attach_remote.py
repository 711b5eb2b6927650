"""`safelaunch attach` to a run on a host: this terminal becomes its tmux pane, over SSH."""

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
    """Run `command`, which attaches to a run's node, on its host; return 0 when it was left."""
    if sys.platform == "win32":
        hosts = resolver(run.pointer.hosts_file, may_prompt=False)
        plain = plain_ssh(hosts.host(run.pointer.place(node).host), command)
        raise RunError("attach over SSH does not work on Windows", hint=f"by hand: {plain}")
    connection = run.session(node).connection
    size = shutil.get_terminal_size()
    term = os.environ.get("TERM") or "xterm-256color"
    channel = connection.exec(
        f"exec {command}", pty=True, term=term, size=(size.columns, size.lines)
    )
    with channel, _raw():
        _pump(channel)
    say(f"left {run.id}; it goes on unless it has ended: safelaunch show {run.id}")
    return 0


def plain_ssh(host: Host, command: str) -> str:
    """Return the line that runs a command on a host in a terminal, by OpenSSH alone."""
    at = parse_address((host.addresses or (host.ssh or host.name,))[0], host.name)
    user, port = at.user or host.user, at.port or host.port
    words = ["ssh", "-t"]
    words += ["-p", str(port)] if port else []
    words += ["-i", f'"{host.identity}"'] if host.identity else []
    words += [f"{user}@{at.host}" if user else at.host, command]
    return " ".join(words)


def _pump(channel: Channel) -> None:
    """Carry bytes both ways until the command has ended."""
    if sys.platform == "win32":
        return
    import threading  # noqa: PLC0415 - only here

    reader, writer = os.pipe()  # closed by the thread: the command's end

    def show() -> None:
        with contextlib.suppress(OSError):
            while data := channel.read(1 << 16):
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
        os.close(writer)

    def resize(_signum: int, _frame: object) -> None:
        size = shutil.get_terminal_size()
        channel.resize(size.columns, size.lines)

    before = signal.signal(signal.SIGWINCH, resize)
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
        return  # the command has ended, or the connection is gone
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(reader)


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Hand each key on as it is, Ctrl-C too."""
    if sys.platform == "win32":
        yield
        return
    import termios  # noqa: PLC0415 - POSIX only
    import tty  # noqa: PLC0415 - as above

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    try:
        tty.setraw(stdin)
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
