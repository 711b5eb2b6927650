"""The recorded runs of this machine and on hosts: finds and opens them."""

# ruff: noqa: PLC0415 - what talks to hosts: listing and opening runs does without its 30 ms

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from safelaunch.errors import RunNotFound
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import groups, mirror, store
from safelaunch.runs.access import LocalRun
from safelaunch.runtime import run_state
from safelaunch.runtime.engines import current

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.remote.host_pool import HostPool
    from safelaunch.runs.access import HostAnswer
    from safelaunch.runs.store import Run
    from safelaunch.runtime.records import Status

    RunStatuses = list[tuple[Run, Status]]


class Connect(Protocol):
    """A function that returns connections to hosts."""

    def __call__(self, hosts_path: str | None, *, may_prompt: bool = True) -> HostPool:
        """Return the connections that a hosts file describes, safelaunch's own file for None."""


class RunCatalog:
    """The runs below safelaunch's home."""

    def __init__(self, home: str, connect: Connect) -> None:
        self.home = home
        self.connect = connect

    def open(self, record: Run) -> LocalRun | RemoteRun:
        """Return access to a run, wherever it runs."""
        pointer = mirror.pointer(record)
        if pointer is not None:
            return RemoteRun(record, pointer, self.connect)
        if current.is_on_engine(record.folder):
            from safelaunch.runs.engine_run import EngineRun

            return EngineRun(record)
        return LocalRun(record)

    def find(self, name: str | None = None) -> LocalRun | RemoteRun:
        """Return the run of an id, a prefix or a job's name, by default the newest.

        Raises RunNotFound.
        """
        try:
            return self.open(store.find(self.home, name))
        except RunNotFound:
            for member, _ in groups.unstarted(self.home):
                if member.run.id == name:
                    hint = f"safelaunch show {member.record.group}"
                    raise RunNotFound(f"{name} is a step without a run", hint=hint) from None
            raise

    def find_live(
        self,
        name: str | None = None,
        *,
        unique: bool = False,
        hosts: Sequence[str] = (),
        hosts_path: str | None = None,
    ) -> LocalRun | RemoteRun:
        """Return the run that `find` returns; of several runs the newest that has not ended.

        With `unique`, several that have not ended raise RunNotFound; with `hosts`, it is one of
        those on these hosts, whoever started them. Raises HostError.
        """
        among = self._record_runs(hosts, hosts_path) if hosts else None
        run = store.find_live(self.home, name, self._is_live, unique=unique, among=among)
        return self.open(run)

    def _record_runs(self, hosts: Sequence[str], hosts_path: str | None) -> list[Run]:
        """Return the runs of hosts, which are recorded here then. Raises HostError."""
        runs = []
        for answer in self.on_hosts(self.expand(hosts, hosts_path), hosts_path):
            if answer.error is not None:
                raise answer.error
            runs += [run for run, _ in answer.runs]
        return runs

    def _is_live(self, record: Run) -> bool:
        return not run_state.is_settled(self.open(record).last_status())

    def last_statuses(self, records: Sequence[Run]) -> tuple[RunStatuses, RunStatuses]:
        """Return runs whose status is known here, and those to be asked for, as last seen."""
        settled: RunStatuses = []
        live: RunStatuses = []
        current.watch([record.folder for record in records])
        for record in records:
            run = self.open(record)
            status = run.last_status()
            is_settled = isinstance(run, LocalRun) or run_state.is_settled(status)
            (settled if is_settled else live).append((record, status))
        return settled, live

    def statuses(self, records: Sequence[Run]) -> Iterator[HostAnswer]:
        """Yield runs on hosts with the status as it is now; all hosts are asked in parallel."""
        if not records:
            return
        from safelaunch.remote.runs.query_status import statuses

        pointers = [(record, mirror.pointer(record)) for record in records]
        runs = [(record, pointer) for record, pointer in pointers if pointer is not None]
        paths = dict.fromkeys(pointer.hosts_file for _, pointer in runs)
        # a list asks for no passwords
        pools = {path: self.connect(path, may_prompt=False) for path in paths}
        yield from statuses(pools, runs, brief=True)

    def expand(self, names: Sequence[str], hosts_path: str | None) -> list[str]:
        """Return hosts by name, those of a group in its place. Raises ConfigError."""
        return list(dict.fromkeys(self.connect(hosts_path).expand(names)))

    def on_hosts(self, hosts: Sequence[str], hosts_path: str | None) -> Iterator[HostAnswer]:
        """Yield the runs of hosts, whoever started them, with the status as it is now."""
        from safelaunch.remote.runs.query_status import host_runs

        elsewhere = yield from host_runs(self.connect(hosts_path), self.home, hosts)
        if elsewhere:
            yield from self.statuses(elsewhere)
