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
from safelaunch.remote.hosts import host_probes
from safelaunch.remote.hosts.host_probes import FAIL, OK, HostProbe
from safelaunch.runtime import backends
from safelaunch.runtime.commands import CommandResult
from safelaunch.ssh import errors
from safelaunch.ssh.config.target import OPENSSH, format_route

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.remote.agent_client import Agent
    from safelaunch.remote.session import HostResolver
    from safelaunch.ssh.config.local_user import LocalUser
    from safelaunch.ssh.connection import Connection

_ROUND_TRIPS = 3
_POLL = 0.1  # seconds
_PROBES = {errors.UntrustedHostKey: "host key", errors.LoginFailed: "login"}
_WSL = "/usr/lib/wsl/lib/nvidia-smi"  # not on the PATH of a login without a terminal


def paused() -> contextlib.AbstractContextManager[object]:
    """Return a context in which the time of this thread's test stands: its user is asked."""
    test = threading.current_thread()
    return test.paused() if isinstance(test, HostTest) else contextlib.nullcontext()


def run_tests(tests: Sequence[HostTest], patience: float) -> Iterator[HostTest]:
    """Test all hosts at once, and yield each test when it has ended or took too long."""
    for test in tests:
        test.start()
    left = list(tests)
    while left:
        for test in list(left):
            if test.has_ended(patience):
                left.remove(test)
                yield test
        if left:
            left[0].join(_POLL)


class HostTest(threading.Thread):
    """Tests one host, beside the others. A daemon: one that hangs for good delays no exit."""

    def __init__(self, resolver: HostResolver, name: str, hosts_path: str, user: LocalUser) -> None:
        super().__init__(daemon=True)
        self.host = resolver.host(name)
        self.checks: list[HostProbe] = []
        self.is_in = False  # reached, let in, and the agent answers
        self.address: str | None = None
        self.numbers: dict[str, Any] = {}
        self._resolver = resolver
        self._user = user
        self._hosts_path = hosts_path
        self._connection: Connection | None = None
        self._step = ("reached", "the connection")  # the probe under way, and what it waits for
        self._start_time = time.monotonic()
        self._paused_at: float | None = None
        self._error: Exception | None = None

    # -- what the main thread does

    def has_ended(self, patience: float) -> bool:
        """Whether the test has ended, or has taken longer than `patience` seconds."""
        if not self.is_alive():
            if self._error is not None:
                raise self._error
            return True
        now = time.monotonic() if self._paused_at is None else self._paused_at
        if now - self._start_time <= patience:
            return False
        probe, step = self._step
        evidence = f"{step} took longer than {patience:g} s"
        # a new list: what the thread still appends to the old one comes too late
        self.checks = [*self.checks, HostProbe(probe, FAIL, evidence, "try it again")]
        if self._connection is not None:
            threading.Thread(target=self._connection.close, daemon=True).start()
        return True

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let no time pass while the user is asked."""
        self._paused_at = time.monotonic()
        try:
            yield
        finally:
            self._start_time += time.monotonic() - self._paused_at
            self._paused_at = None

    @property
    def usable(self) -> bool:
        """Whether jobs can run there, as far as the test shows."""
        return self.is_in and all(check.status != FAIL for check in self.checks)

    def json(self) -> dict[str, Any]:
        """Return the results as `hosts test --json` prints them."""
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
        """Test the host."""
        checks = self.checks  # another list once it took too long
        try:
            self._test(checks)
        except SafelaunchError as e:
            probe = next((p for kind, p in _PROBES.items() if isinstance(e, kind)), self._step[0])
            message = e.message if isinstance(e, HostError) else str(e)
            checks.append(HostProbe(probe, FAIL, message, e.hint))
        except (OSError, EOFError) as e:
            checks.append(HostProbe(self._step[0], FAIL, str(e)))
        except Exception as e:  # noqa: BLE001 - raised again by the main thread
            self._error = e
        finally:
            if self._connection is not None:
                self._connection.close()

    def _test(self, checks: list[HostProbe]) -> None:
        connection = self._connection = self._resolver.connect(self.host.name)
        self.address = format_route(connection.target)
        count = len(self.host.addresses)
        reached = self.address + (f" (one of its {count} addresses)" if count > 1 else "")
        reached += " by the system's ssh" * (connection.transport == OPENSSH)
        checks.append(HostProbe("reached", OK, reached))
        checks += [host_probes.host_key(connection, self._user), host_probes.login(connection)]
        self._step = ("shell", "the login shell")
        checks.append(host_probes.shell(connection))
        self._step = ("agent", "the start of safelaunch's agent")
        agent = self._resolver.start_agent(self.host, connection.exec)
        agent.wait()
        self._step = ("latency", "a round trip")
        seconds, base = _latency(agent)
        latency = seconds * 1e3
        self.numbers["latency_ms"] = round(latency, 3)
        digits = 1 if latency < 10 else 0  # noqa: PLR2004 - digits
        checks[0] = HostProbe("reached", OK, f"{reached}, {latency:.{digits}f} ms there and back")
        self.is_in = True
        self._step = ("python", "the look at Python, tmux and folders")
        checks += self._probe_machine(agent, base)
        self._step = ("gpus", "nvidia-smi")
        checks += self._probe_gpus(agent)

    def _probe_machine(self, agent: Agent, base: str) -> list[HostProbe]:
        interpreter, folder = self.host.interpreter, self.host.workdir or FOLDER
        answer = agent.call(
            "start.look",
            environ=["SHELL"],
            commands=[
                [interpreter.path if interpreter else None, "-I", "-c", host_probes.VERSIONS],
                list(backends.tmux.PROBE),
                [None, "-I", "-S", "-c", host_probes.FOLDERS, folder, f"{base}/runs"],
            ],
        )
        versions, tmux, rows = (CommandResult(*result) for result in answer["results"])
        python, self.numbers["python"] = host_probes.python(
            versions, interpreter, str(answer["python"])
        )
        checks = [python, host_probes.bash(answer["bash"]), host_probes.tmux(tmux)]
        if rows.code == 0:
            workdir, runs = (host_probes.FolderAnswer(**row) for row in json.loads(rows.out))
            checks += [
                host_probes.workdir(folder, workdir, is_set=self.host.workdir is not None),
                host_probes.runs(runs),
            ]
        else:
            checks.append(HostProbe("folder", FAIL, rows.last_line or "no answer"))
        before = time.time()
        (result,) = _run(agent, [[None, "-I", "-S", "-c", host_probes.TIME]])
        check, offset = host_probes.clock(result.last_line, before, time.time())
        self.numbers["clock_offset_s"] = offset
        return [*checks, check]

    def _probe_gpus(self, agent: Agent) -> Iterator[HostProbe]:
        results = _run(agent, [["nvidia-smi", "-L"], [_WSL, "-L"]])
        result = next((r for r in results if r.code != -1), results[0])
        names = self.numbers["gpus"] = host_probes.gpu_names(result)
        expected = None  # of a profile that needs GPUs: the pattern of their names
        if self.host.profile is not None:
            where = self._resolver.hosts.profiles.get(self.host.name, Origin("hosts"))
            try:
                profile = profiles.load(self.host.profile, where, os.path.dirname(self._hosts_path))
            except ConfigError as e:
                yield HostProbe("profile", FAIL, str(e), e.hint)
            else:
                expected = profile.gpu_names if profile.accelerator == "cuda" else None
        yield host_probes.gpus(result, names, expected, self.host.profile)


def _run(agent: Agent, commands: list[list[str | None]]) -> list[CommandResult]:
    """Return how commands on the host ended."""
    return [CommandResult(*r) for r in agent.call("start.look", commands=commands)["results"]]


def _latency(agent: Agent) -> tuple[float, str]:
    """Return the seconds of the quickest round trip, and safelaunch's folder there."""
    trips, base = [], ""
    for _ in range(_ROUND_TRIPS):
        started = time.perf_counter()
        base = str(agent.call("start.look")["base"])
        trips.append(time.perf_counter() - started)
    return min(trips), base
