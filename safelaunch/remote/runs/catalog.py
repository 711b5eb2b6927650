"""The recorded runs of this machine and on hosts: finds and opens them."""

# ruff: noqa: PLC0415 - what talks to hosts: listing and opening runs does without its 30 ms

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import mirror, store
from safelaunch.runs.access import LocalRun
from safelaunch.runtime import run_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.remote.host_pool import HostPool
    from safelaunch.runs.store import Run
    from safelaunch.runtime.records import RemoteRecord, Status


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
        return LocalRun(record) if pointer is None else RemoteRun(record, pointer, self.connect)

    def find(self, name: str | None = None) -> LocalRun | RemoteRun:
        """Return the run of an id, a prefix or a job's name, by default the newest.

        Raises RunNotFound.
        """
        return self.open(store.find(self.home, name))

    def find_live(self, name: str | None = None, *, unique: bool = False) -> LocalRun | RemoteRun:
        """Return the run that `find` returns; of several runs the newest that has not ended.

        With `unique`, several that have not ended raise RunNotFound.
        """
        return self.open(store.find_live(self.home, name, self._is_live, unique=unique))

    def _is_live(self, record: Run) -> bool:
        return self.open(record).last_status().state not in run_state.ENDED

    def statuses(self, records: Sequence[Run]) -> list[tuple[Run, Status]]:
        """Return each run with its status as it is now; hosts are asked in parallel."""
        by_id: dict[str, Status] = {}
        remote: dict[str | None, list[tuple[Run, RemoteRecord]]] = {}
        for record in records:
            run = self.open(record)
            by_id[record.id] = status = run.last_status()
            if isinstance(run, RemoteRun) and status.state not in run_state.ENDED:
                remote.setdefault(run.pointer.hosts_file, []).append((record, run.pointer))
        for hosts_path, runs in remote.items():
            from safelaunch.remote.runs.query_status import statuses

            # a list asks for no passwords
            pool = self.connect(hosts_path, may_prompt=False)
            by_id.update(statuses(pool, runs, brief=True))
        return [(record, by_id[record.id]) for record in records]

    def on_hosts(self, hosts: Sequence[str], hosts_path: str | None) -> list[Run]:
        """Return the runs of hosts or groups, whoever started them. Raises HostError."""
        from safelaunch.remote.runs.query_status import record_runs

        pool = self.connect(hosts_path)
        by_host = [record_runs(pool, self.home, host) for host in pool.expand(hosts)]
        ids = {run_id for ids in by_host for run_id in ids}
        return [record for record in store.all_runs(self.home) if record.id in ids]
