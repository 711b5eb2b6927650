"""What starts a run's supervisor and keeps it alive after the client: a module per backend.

run.json and status.json name the backend of a run and its handle; `from_record` reads them.
"""

from __future__ import annotations

from types import MappingProxyType

from safelaunch.runtime import commands
from safelaunch.runtime.backends import setsid, tmux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from safelaunch.runtime.commands import CommandResult
    from safelaunch.runtime.records import RunRecord, StatusSummary

    class Backend(Protocol):
        """The functions of a backend's module. Only `start` starts anything.

        A handle is what names one run to the backend, such as the path of tmux's socket; None where
        there is nothing to name.
        """

        NAME: str  # as run.json has it
        PROBE: Sequence[str]  # the command whose result `unusable` needs; empty: none

        def unusable(self, probe: CommandResult) -> str | None:
            """Return why a machine cannot use this backend, None where it can."""

        def reserve(self, run_id: str) -> str | None:
            """Return the handle for a new run. Raises OSError."""

        def start(
            self,
            run_id: str,
            handle: str | None,
            argv: Sequence[str],
            *,
            cwd: str,
            environ: Mapping[str, str],
        ) -> Callable[[], bool]:
            """Start the supervisor `argv`, or queue it; return a function: may it still start?

            Raises OSError.
            """

        def serves(self, handle: str | None) -> bool:
            """Whether `attach` would show something."""

        def attach(self, handle: str | None) -> tuple[str, ...]:
            """Return the command that shows the run in a terminal; empty where there is none."""

        def clean_up(self, handle: str | None) -> None:
            """Remove what a run that has ended leaves behind."""


def backends() -> tuple[Backend, ...]:
    """Return all backends, the best first."""
    return (tmux, setsid)


def by_name(name: str | None) -> Backend:
    """Return the backend of that name; for any other name setsid, which has no terminal."""
    return next((backend for backend in backends() if name == backend.NAME), setsid)


def from_record(record: RunRecord | StatusSummary) -> tuple[Backend, str | None]:
    """Return the backend and the handle that run.json or status.json names."""
    return by_name(record.backend), record.socket


def clean_up(record: RunRecord | StatusSummary) -> None:
    """Remove what the backend of a run that has ended leaves behind."""
    backend, handle = from_record(record)
    backend.clean_up(handle)


def start_probes(environ: Mapping[str, str]) -> dict[str, commands.RunningCommand]:
    """Start the probes of the backends; `choose` reads their results."""
    probed = (backend for backend in backends() if backend.PROBE)
    return {backend.NAME: commands.RunningCommand(backend.PROBE, environ) for backend in probed}


def choose(
    run_id: str,
    name: str | None,
    environ: Mapping[str, str],
    probes: Mapping[str, commands.RunningCommand] = MappingProxyType({}),
) -> tuple[Backend, str | None, str | None]:
    """Return the best usable backend, its handle, and why no better one is usable.

    With a name only that one is tried; `probes` are those that run already. Raises OSError where
    none is usable.
    """
    why = None
    for backend in backends() if name is None else (by_name(name),):
        reason = None
        if backend.PROBE:
            probe = probes.get(backend.NAME) or commands.RunningCommand(backend.PROBE, environ)
            reason = backend.unusable(probe.result(limit=10))
        try:
            if reason is None:
                return backend, backend.reserve(run_id), why
        except OSError as e:
            reason = f"no folder for the socket of {backend.NAME} ({e.strerror})"
        why = why or reason
    raise OSError(why)
