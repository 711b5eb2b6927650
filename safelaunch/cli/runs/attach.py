"""`safelaunch attach`: shows the run's tmux pane in this terminal, of a host over SSH."""

# ruff: noqa: PLC0415 - termios and tty do not exist on Windows, threading is needed over SSH only

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import sys
from typing import TYPE_CHECKING

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog, resolver
from safelaunch.cli.output import say
from safelaunch.cli.runs.follow import outcome, rank_log_command, short_state
from safelaunch.errors import HostError, RunError
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import store
from safelaunch.runs.engine_run import EngineRun
from safelaunch.runtime import backends, run_state
from safelaunch.runtime.units import quantity
from safelaunch.ssh.config.address import parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.model import Host
    from safelaunch.runs.access import RunAccess
    from safelaunch.ssh.connection import Channel


@click.command("attach")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--node", type=click.IntRange(0), metavar="N", help="Node of a run on several hosts.")
def command(run: str | None, node: int | None) -> int:
    """Attach this terminal to a run's tmux pane. Leave with Ctrl-B D; Ctrl-C stops the job.

    On a node that Slurm has chosen, it opens a shell instead.

    If the job ends meanwhile, print how, as `run --follow` does; exit 0 if it succeeded, else 1.
    """
    access = catalog().find_live(run)
    status = access.status()
    number = store.node_number(access.record, node)
    logs = f"safelaunch logs -f {access.id}"
    if status.state == "unknown" and isinstance(access, RemoteRun):
        raise HostError(str(status.reason), where=access.id)
    if status.state == "lost":
        alive = quantity(status.alive, "process")
        raise RunError(
            f"the supervisor of {access.id} is gone, and its tmux pane; {alive} alive",
            hint=rank_log_command(access),
        )
    if status.state != "running":
        raise RunError(
            f"{access.id} is not running: {short_state(status)}",
            hint=f"safelaunch logs {access.id}",
        )
    if isinstance(access, EngineRun):
        shell = access.shell(number)
        if not shell:
            raise RunError(f"the engine of {access.id} opens no shell on its nodes", hint=logs)
        _check_terminal(logs)
        return _attach_local(access, shell)
    if isinstance(access, RemoteRun) and access.shell(number):
        _check_terminal(logs)
        return _attach_remote(access, shlex.join(access.shell(number)), number)
    record = store.last_status(access.record, number) if number else status
    backend, handle = backends.from_record(record)
    command = backend.attach(handle)
    if not command:
        raise RunError(f"{access.id} was started without tmux", hint=logs)
    if not access.has_terminal(record, number):
        raise RunError(f"the tmux server of {access.id} is gone; the job keeps running", hint=logs)
    _check_terminal(logs)
    if isinstance(access, RemoteRun):
        return _attach_remote(access, shlex.join(command), number)
    return _attach_local(access, command)


def _check_terminal(hint: str) -> None:
    if not sys.stdin.isatty():
        raise RunError("attach needs a terminal", hint=hint)


def _attach_local(run: RunAccess, command: Sequence[str]) -> int:
    """Run a command that attaches to a run of this machine; return the exit code."""
    import subprocess

    environment = {k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE")}
    # Ctrl-C reaches the job as a key; what comes as a signal is for tmux
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        subprocess.call(command, env=environment)
    except OSError as e:
        hint = f"safelaunch logs -f {run.id}"
        raise RunError(f"cannot run {command[0]}: {e.strerror}", hint=hint) from e
    finally:
        signal.signal(signal.SIGINT, previous)
    return _verdict(run)


def _verdict(run: RunAccess) -> int:
    """Print how a run ended, or that it goes on without this terminal; return the exit code."""
    status = run.status()
    if status.state in run_state.ENDED:
        return outcome(run, status)
    say(f"detached from {run.id}; for its state: safelaunch show {run.id}")
    return 0


def _attach_remote(run: RemoteRun, command: str, node: int) -> int:
    """Run a command that attaches to a node of a run over SSH; return the exit code."""
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
    return _verdict(run)


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
