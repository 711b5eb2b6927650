"""Tests one host: connection, login shell, agent, Python, tmux, folders, clock and GPUs."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from safelaunch.config import profiles
from safelaunch.config.paths import FOLDER
from safelaunch.errors import ConfigError, HostError, SafelaunchError
from safelaunch.model import Origin
from safelaunch.remote import agent_bootstrap
from safelaunch.remote.hosts import host_probes
from safelaunch.remote.hosts.host_probes import FAIL, OK, HostProbe
from safelaunch.runtime import backends
from safelaunch.runtime.commands import CommandResult
from safelaunch.ssh import errors
from safelaunch.ssh.config.target import format_route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.remote.agent_client import Agent
    from safelaunch.remote.session import HostResolver
    from safelaunch.ssh.config.local_user import LocalUser
    from safelaunch.ssh.connection import Connection
    from safelaunch.ssh.login import Prompter

_ROUND_TRIPS = 3
_POLL = 0.1  # seconds
_WSL = "/usr/lib/wsl/lib/nvidia-smi"  # not on the PATH of a login without a terminal


def one_at_a_time(ask: Prompter | None) -> Prompter | None:
    """Return a prompter that asks for one host after the other, while the host's time stands."""
    if ask is None:
        return None
    lock = threading.Lock()

    def asked(prompt: str, *, secret: bool) -> str:
        test = threading.current_thread()
        with test.paused() if isinstance(test, HostTest) else contextlib.nullcontext(), lock:
            return ask(prompt, secret=secret)

    return asked


class HostTest(threading.Thread):
    """Tests one host, beside the others. A daemon: what hangs for good does not keep us."""

    def __init__(
        self,
        resolver: HostResolver,
        name: str,
        agent_files: tuple[str, bytes],
        hosts_path: str,
        user: LocalUser,
    ) -> None:
        super().__init__(daemon=True)
        self.host = resolver.host(name)
        self.checks: list[HostProbe] = []
        self.is_in = False  # reached, let in, and the agent answers
        self.address: str | None = None
        self.numbers: dict[str, Any] = {}
        self._resolver = resolver
        self._user = user
        self._digest, self._files = agent_files
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
        error = HostProbe(what, FAIL, f"{doing} took longer than {patience:g} s", "try it again")
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
            checks.append(HostProbe(self._doing[0], FAIL, str(e), None))
        except Exception as e:  # noqa: BLE001 - told where errors are told
            self._error = e
        finally:
            if self._connection is not None:
                self._connection.close()

    def _failed(self, error: SafelaunchError) -> HostProbe:
        what, told, hint = self._doing[0], error.message, error.hint
        if not isinstance(error, HostError):
            told = str(error)
        elif isinstance(error, errors.UntrustedHostKey):
            what = "host key"
        elif isinstance(error, errors.LoginFailed):
            what = "login"
        return HostProbe(what, FAIL, told, hint)

    def _look(self, checks: list[HostProbe]) -> None:
        connection = self._connection = self._resolver.connect(self.host.name)
        self.address = format_route(connection.target)
        checks.append(HostProbe("reached", OK, self._reached(connection)))
        checks += [host_probes.host_key(connection, self._user), host_probes.login(connection)]
        self._doing = ("shell", "the login shell")
        checks.append(host_probes.shell(connection))
        self._doing = ("agent", "the start of safelaunch's agent")
        agent = self._agent(connection)
        self._doing = ("latency", "a round trip")
        checks[0] = HostProbe("reached", OK, f"{checks[0].evidence}, {self._latency(agent)}")
        self.is_in = True
        self._doing = ("python", "the look at Python, tmux and folders")
        checks += self._machine(agent)
        self._doing = ("gpus", "nvidia-smi")
        checks += self._gpus(agent)

    def _agent(self, connection: Connection) -> Agent:
        own = self.host.interpreter.path if self.host.interpreter else None
        command = agent_bootstrap.command(self._digest, [str(own)] if own else [])
        channel = connection.exec(command)
        return agent_bootstrap.start(self.host.name, channel, self._files)

    def _reached(self, connection: Connection) -> str:
        count = len(self.host.addresses)
        which = f" (one of its {count} addresses)" if count > 1 else ""
        return format_route(connection.target) + which

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

    def _machine(self, agent: Agent) -> list[HostProbe]:
        own = self.host.interpreter
        folder = self.host.workdir or FOLDER
        about = agent.call(
            "start.look",
            environ=["SHELL"],
            commands=[
                [own.path if own else None, "-I", "-c", host_probes.VERSIONS],
                list(backends.tmux.PROBE),
                [None, "-I", "-S", "-c", host_probes.FOLDERS, folder, f"{self._base}/runs"],
            ],
        )
        results = [CommandResult(*result) for result in about["results"]]
        folders = json.loads(results[2].out) if results[2].code == 0 else []
        python, self.numbers["python"] = host_probes.python(results[0], own, str(about["python"]))
        checks = [python, host_probes.bash(about["bash"]), host_probes.tmux(results[1])]
        if len(folders) == 2:  # noqa: PLR2004 - as asked
            checks.append(
                host_probes.workdir(folder, folders[0], given=self.host.workdir is not None)
            )
            checks.append(host_probes.runs(folders[1]))
        else:
            checks.append(HostProbe("folder", FAIL, results[2].last_line or "no answer", None))
        checks.append(self._clock(agent))
        return checks

    def _clock(self, agent: Agent) -> HostProbe:
        """Compare the clocks: what is between asking and answer is the same, as far as is known."""
        before = time.time()
        about = agent.call("start.look", commands=[[None, "-I", "-S", "-c", host_probes.TIME]])
        after = time.time()
        check, self.numbers["clock_offset_s"] = host_probes.clock(
            CommandResult(*about["results"][0]).last_line, before, after
        )
        return check

    # -- GPUs

    def _gpus(self, agent: Agent) -> Iterator[HostProbe]:
        asked = [["nvidia-smi", "-L"], [_WSL, "-L"]]
        results = [CommandResult(*r) for r in agent.call("start.look", commands=asked)["results"]]
        result = next((r for r in results if r.code != -1), results[0])
        names = self.numbers["gpus"] = host_probes.cards(result)
        wanted, error = self._cards()
        if error is not None:
            yield error
        yield host_probes.gpus(result, names, wanted, self.host.profile)

    def _cards(self) -> tuple[str | None, HostProbe | None]:
        """Return what the profile says of the cards' names; None where it needs no cards."""
        if self.host.profile is None:
            return None, None
        where = self._resolver.hosts.profiles.get(self.host.name, Origin("hosts"))
        try:
            profile = profiles.load(self.host.profile, where, os.path.dirname(self._hosts_path))
        except ConfigError as e:
            return None, HostProbe("profile", FAIL, str(e), e.hint)
        return (profile.gpu_names if profile.accelerator == "cuda" else None), None
