"""Starts a plan on this machine for `run` and `rerun`, in the background or the foreground."""

# ruff: noqa: PLC0415 - what follows a run is imported beside its start

from __future__ import annotations

import contextlib
import os
import signal
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from safelaunch.cli import start_key
from safelaunch.cli.output import say
from safelaunch.cli.plan_text.plan import print_warnings
from safelaunch.cli.start.targets.after_start import (
    check_output,
    keeps_running,
    say_notes,
    show_started,
)
from safelaunch.errors import ConfigError
from safelaunch.runs import store
from safelaunch.runs.access import LocalRun
from safelaunch.runtime import processes
from safelaunch.runtime.containers import container_end
from safelaunch.start import local
from safelaunch.start.caller import caller

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.model import Plan
    from safelaunch.runtime.records import EarlierRun, Process
    from safelaunch.start.caller import Caller, RunsCheck, Started
    from safelaunch.start.local_probe import LocalProbe

# signals that end a command beside Ctrl-C; Windows has no SIGHUP
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def start(
    plan: Plan,
    options: dict[str, Any],
    files: Mapping[str, bytes] = MappingProxyType({}),
    *,
    check: RunsCheck | None = None,
    probe: LocalProbe | None = None,
    after: tuple[tuple[EarlierRun, ...], ...] = (),
) -> int:
    """Start the plan as the options say, and return the exit code of the command.

    `files` are further ones of the run directory; `check` is that of the live runs, `probe` that of
    this machine, where it runs already; `after` are runs that must have ended before it begins.
    """
    if options["follow"] and options["foreground"]:
        raise ConfigError("`--follow` and `--foreground` together", hint="give one")
    check_output(options, "run")
    print_warnings(plan, is_start=True)
    by = caller(os.environ)._replace(after=after)
    if options["foreground"]:
        return _foreground(plan, by, files, check, probe)
    run_id = by.run_id(plan.name)
    start_key.record(run_id)
    with interruptible():
        try:
            started = local.start(plan, by, more=files, check=check, probe=probe)
        except KeyboardInterrupt:
            if os.path.isdir(os.path.join(store.folder(by.home), run_id)):
                return keeps_running(run_id)  # it came when all was done
            raise
        if not options["follow"]:
            return show_started(started, options)
    return show_started(started, options)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let TERM and HUP end a start as Ctrl-C does: it cleans up."""

    def interrupt(signum: int, _frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(signum).name)

    before = {n: signal.signal(n, interrupt) for n in _ENDING}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _foreground(
    plan: Plan,
    by: Caller,
    files: Mapping[str, bytes],
    check: RunsCheck | None,
    probe: LocalProbe | None,
) -> int:
    """Start for CI: the job ends with this process; TERM and INT stop it."""
    runs = ForegroundRuns()
    started = local.start(plan, by, foreground=True, more=files, check=check, probe=probe)
    runs.add(started)
    say_notes(started)
    say(f"started {started.run.id} in the foreground")
    return runs.exit_code(runs.follow(started))


class ForegroundRuns:
    """Runs of this machine that end with this process: TERM and INT stop them, the last first."""

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._supervisors: list[Process] = []
        for signum in (signal.SIGINT, *_ENDING):
            signal.signal(signum, self._stop)

    def _stop(self, signum: int, _frame: object) -> None:
        self._signals.append(signum)
        for process in reversed(self._supervisors):
            processes.terminate(process.pid, process.start)

    def add(self, started: Started) -> None:
        """Stop this run too, also where the signal came while it was being started."""
        if started.supervisor is None:
            return
        self._supervisors.append(started.supervisor)
        if self._signals:
            processes.terminate(started.supervisor.pid, started.supervisor.start)

    def follow(self, started: Started) -> int:
        """Follow a run to its end, and until its programs have written all; return 0 or 1."""
        from safelaunch.cli.runs.follow import follow, outcome

        run = LocalRun(started.run)
        code = outcome(run, follow(run))
        # the next step of CI may remove the directory
        deadline = time.monotonic() + 5
        for writer in (started.supervisor, started.recorder):
            while writer and processes.is_alive(writer):
                if time.monotonic() > deadline and not run.status().has_live_end:
                    break
                time.sleep(0.01)
        container_end.await_removal(started.run.node_dir)
        return code

    def exit_code(self, code: int) -> int:
        """Return the exit code of the command whose runs have ended with `code`."""
        return 130 if self._signals and self._signals[0] == signal.SIGINT else code
