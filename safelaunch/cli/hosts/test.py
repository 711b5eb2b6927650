"""`safelaunch hosts test`: connects to hosts beside each other and tells what each has."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli import table
from safelaunch.cli.hosts import probes as seen
from safelaunch.cli.hosts.format import way_there
from safelaunch.cli.hosts.probes import FAIL, OK, WARN, Check
from safelaunch.cli.output import print_json, say
from safelaunch.config import profiles
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.hosts_file.reader import file_of
from safelaunch.errors import ConfigError, HostError, SafelaunchError
from safelaunch.model import Origin
from safelaunch.remote import agent_bootstrap
from safelaunch.remote.project_dir import FOLDER
from safelaunch.remote.session import HostResolver
from safelaunch.runs import store
from safelaunch.runtime import backends
from safelaunch.runtime.commands import CommandResult
from safelaunch.ssh import errors
from safelaunch.ssh.prompt import asker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.remote.agent_client import Agent
    from safelaunch.ssh.connection import Connection
    from safelaunch.ssh.login import Ask

_ROUND_TRIPS = 3
_POLL = 0.1  # seconds
_UNREACHABLE, _REFUSED = 4, 3  # exit codes
_LABEL = 9
_WSL = "/usr/lib/wsl/lib/nvidia-smi"  # not on the PATH of a login without a terminal


def run(
    names: Sequence[str], hosts_path: str | None, *, as_json: bool, patience: float = 45.0
) -> int:
    """Test hosts, print what there is, and return the exit code. Raises ConfigError."""
    home = store.home(os.environ)
    ask = _one_at_a_time(asker(), threading.Lock())
    way = HostResolver(home, os.environ, hosts_path=hosts_path, ask=ask, say=say)
    wanted = _wanted(names, way.hosts)
    files = agent_bootstrap.bundle()
    visits = [_Visit(way, name, files, file_of(home, hosts_path)) for name in wanted]
    for visit in visits:
        visit.start()
    for visit in visits:
        visit.await_end(patience)
        if not as_json:
            _show(visit)
    if as_json:
        print_json({"version": 1, "hosts": [visit.json() for visit in visits]})
    usable = sum(visit.usable for visit in visits)
    if len(visits) > 1 and not as_json:
        say(f"{usable} of {len(visits)} hosts can be used")
    if not all(visit.is_in for visit in visits):
        return _UNREACHABLE
    return 0 if usable == len(visits) else _REFUSED


def _wanted(names: Sequence[str], hosts: hosts_file.Hosts) -> tuple[str, ...]:
    if hosts_file.LOCAL in names:
        raise ConfigError(
            f"`{hosts_file.LOCAL}` is this machine: there is nothing to connect to",
            hint="safelaunch run starts jobs here",
        )
    found = [name for name in names or hosts.machines if name != hosts_file.LOCAL]
    if not found:
        raise ConfigError(
            "there are no hosts to test: the hosts file names none",
            hint="add one: safelaunch hosts add NAME USER@ADDRESS",
        )
    return tuple(dict.fromkeys(hosts_file.expand(hosts, tuple(found))))


def _one_at_a_time(ask: Ask | None, lock: threading.Lock) -> Ask | None:
    """Return what asks a person for one host after the other, while the host's time stands."""
    if ask is None:
        return None

    def asked(prompt: str, *, secret: bool) -> str:
        visit = threading.current_thread()
        with visit.paused() if isinstance(visit, _Visit) else contextlib.nullcontext(), lock:
            return ask(prompt, secret=secret)

    return asked


class _Visit(threading.Thread):
    """Looks at one host, beside the others. A daemon: what hangs for good does not keep us."""

    def __init__(
        self, way: HostResolver, name: str, files: tuple[str, bytes], hosts_path: str
    ) -> None:
        super().__init__(daemon=True)
        self.host = way.host(name)
        self.checks: list[Check] = []
        self.is_in = False  # reached, let in, and the agent answers
        self.address: str | None = None
        self.numbers: dict[str, Any] = {}
        self._way = way
        self._digest, self._files = files
        self._hosts_path = hosts_path
        self._connection: Connection | None = None
        self._base = ""  # safelaunch's folder there
        self._doing = ("reached", "the connection")
        self._begun = time.monotonic()
        self._paused_at: float | None = None
        self._error: Exception | None = None

    # -- what the main thread does

    def await_end(self, patience: float) -> None:
        """Wait until everything was looked at, or the host has taken too long."""
        while self.is_alive():
            now = self._paused_at
            if (time.monotonic() if now is None else now) - self._begun > patience:
                self._give_up(patience)
                return
            self.join(_POLL)
        if self._error is not None:
            raise self._error

    def _give_up(self, patience: float) -> None:
        what, doing = self._doing
        error = Check(what, FAIL, f"{doing} took longer than {patience:g} s", "try it again")
        # what the thread still finds out comes too late
        self.checks = [*self.checks, error]
        if self._connection is not None:
            threading.Thread(target=self._connection.close, daemon=True).start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let no time pass: a person is asked."""
        self._paused_at = time.monotonic()
        try:
            yield
        finally:
            self._begun += time.monotonic() - self._paused_at
            self._paused_at = None

    @property
    def usable(self) -> bool:
        """Whether jobs can run there, as far as is known."""
        return self.is_in and all(check.status != FAIL for check in self.checks)

    def json(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "name": self.host.name,
            "usable": self.usable,
            "reached": self.address is not None,
            "address": self.address,
            "latency_ms": None,
            "clock_offset_s": None,
            "python": None,
            "gpus": None,
            **self.numbers,
            "checks": [check._asdict() for check in self.checks],
        }

    # -- what the thread does

    def run(self) -> None:
        """Look at the host."""
        checks = self.checks  # another list once it took too long
        try:
            self._look(checks)
        except SafelaunchError as e:
            checks.append(self._failed(e))
        except (OSError, EOFError) as e:
            checks.append(Check(self._doing[0], FAIL, str(e), None))
        except Exception as e:  # noqa: BLE001 - told where errors are told
            self._error = e
        finally:
            if self._connection is not None:
                self._connection.close()

    def _failed(self, error: SafelaunchError) -> Check:
        what, told, hint = self._doing[0], error.message, error.hint
        if not isinstance(error, HostError):
            told = str(error)
        elif isinstance(error, errors.Untrusted):
            what = "host key"
        elif isinstance(error, errors.LoginFailed):
            what = "login"
        return Check(what, FAIL, told, hint)

    def _look(self, checks: list[Check]) -> None:
        connection = self._connection = self._way.connect(self.host.name)
        self.address = way_there(connection.way)
        checks.append(Check("reached", OK, self._reached(connection)))
        checks += [seen.host_key(connection), seen.login(connection)]
        self._doing = ("shell", "the login shell")
        checks.append(seen.shell(connection))
        self._doing = ("agent", "the start of safelaunch's agent")
        agent = self._agent(connection)
        self._doing = ("latency", "a round trip")
        checks[0] = Check("reached", OK, f"{checks[0].evidence}, {self._latency(agent)}")
        self.is_in = True
        self._doing = ("python", "the look at Python, tmux and folders")
        checks += self._machine(agent)
        self._doing = ("gpus", "nvidia-smi")
        checks += self._gpus(agent)

    def _agent(self, connection: Connection) -> Agent:
        own = self.host.interpreter.path if self.host.interpreter else None
        command = agent_bootstrap.command(self._digest, [own] if own else [])
        channel = connection.exec(command)
        return agent_bootstrap.start(self.host.name, channel, self._files)

    def _reached(self, connection: Connection) -> str:
        count = len(self.host.addresses)
        which = f" (one of its {count} addresses)" if count > 1 else ""
        return way_there(connection.way) + which

    def _latency(self, agent: Agent) -> str:
        trips = []
        for _ in range(_ROUND_TRIPS):
            begun = time.perf_counter()
            self._base = str(agent.call("start.look")["base"])
            trips.append(time.perf_counter() - begun)
        latency = min(trips) * 1e3
        self.numbers["latency_ms"] = round(latency, 3)
        return f"{latency:.{1 if latency < 10 else 0}f} ms there and back"  # noqa: PLR2004 - digits

    # -- the machine

    def _machine(self, agent: Agent) -> list[Check]:
        own = self.host.interpreter
        folder = self.host.workdir or FOLDER
        about = agent.call(
            "start.look",
            environ=["SHELL"],
            commands=[
                [own.path if own else None, "-I", "-c", seen.VERSIONS],
                list(backends.tmux.PROBE),
                [None, "-I", "-S", "-c", seen.FOLDERS, folder, f"{self._base}/runs"],
            ],
        )
        results = [CommandResult(*result) for result in about["results"]]
        folders = json.loads(results[2].out) if results[2].code == 0 else []
        python, self.numbers["python"] = seen.python(results[0], own, str(about["python"]))
        checks = [python, seen.bash(about["bash"]), seen.tmux(results[1])]
        if len(folders) == 2:  # noqa: PLR2004 - as asked
            checks.append(seen.workdir(folder, folders[0], given=self.host.workdir is not None))
            checks.append(seen.runs(folders[1]))
        else:
            checks.append(Check("folder", FAIL, results[2].last_line or "no answer", None))
        checks.append(self._clock(agent))
        return checks

    def _clock(self, agent: Agent) -> Check:
        """Compare the clocks: what is between asking and answer is the same, as far as is known."""
        before = time.time()
        about = agent.call("start.look", commands=[[None, "-I", "-S", "-c", seen.TIME]])
        after = time.time()
        check, self.numbers["clock_offset_s"] = seen.clock(
            CommandResult(*about["results"][0]).last_line, before, after
        )
        return check

    # -- GPUs

    def _gpus(self, agent: Agent) -> Iterator[Check]:
        asked = [["nvidia-smi", "-L"], [_WSL, "-L"]]
        results = [CommandResult(*r) for r in agent.call("start.look", commands=asked)["results"]]
        result = next((r for r in results if r.code != -1), results[0])
        names = self.numbers["gpus"] = seen.cards(result)
        wanted, error = self._cards()
        if error is not None:
            yield error
        yield seen.gpus(result, names, wanted, self.host.profile)

    def _cards(self) -> tuple[str | None, Check | None]:
        """Return what the profile says of the cards' names; None where it needs no cards."""
        if self.host.profile is None:
            return None, None
        where = self._way.hosts.profiles.get(self.host.name, Origin("hosts"))
        try:
            profile = profiles.load(self.host.profile, where, os.path.dirname(self._hosts_path))
        except ConfigError as e:
            return None, Check("profile", FAIL, str(e), e.hint)
        return (profile.gpu_names if profile.accelerator == "cuda" else None), None


# -- what is printed -------------------------------------------------------------------------------


def _show(visit: _Visit) -> None:
    click.echo(f"{visit.host.name}: {_verdict(visit)}")
    for check in visit.checks:
        hint = check.hint if check.status != OK else None
        table.show(check.status, f"{check.id:<{_LABEL}} ", check.evidence, hint)


def _verdict(visit: _Visit) -> str:
    warnings = sum(check.status == WARN for check in visit.checks)
    if visit.usable:
        return "can be used" + (f", {warnings} to look at" * bool(warnings))
    if visit.is_in:
        return "is reached, but jobs cannot run there yet"
    failed = next(check.id for check in visit.checks if check.status == FAIL)
    said = {
        "reached": "cannot be reached",
        "host key": "is not trusted",
        "login": "does not let us in",
    }
    return said.get(failed, "is reached, but cannot be used")
