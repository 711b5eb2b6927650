"""The order of the tests; with `CI` set, a skip fails the run unless support/skips.py has it."""

from __future__ import annotations

import gc
import importlib.util
import os
from typing import TYPE_CHECKING

import pytest
from support.signals import restore_interrupts
from support.skips import unexpected

if TYPE_CHECKING:
    from pathlib import Path


def skip_reasons(config: pytest.Config) -> list[str]:
    """Return why tests were skipped, each reason once."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []
    return sorted({str(report.longrepr[2]) for report in reports if report.longrepr})


def pytest_configure() -> None:
    """Restore signals that the suite was started to ignore, for what its tests start.

    And look for cycles of garbage less often: what is collected lives to the end, and going through
    it again and again takes a quarter of the time of collecting tests, and a tenth of unit tests.
    """
    gc.set_threshold(100_000)
    restore_interrupts()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, with the reason, what needs the real launchers where they are not installed.

    They are looked for, not imported: torch takes two seconds, and the memory of a worker.
    """
    if item.get_closest_marker("train") and importlib.util.find_spec("accelerate") is None:
        pytest.skip("no torch and accelerate here: pip install '.[train]'")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each of several workers as many tests, the long ones first, a file's tests together.

    xdist (worksteal) gives each of n workers the next nth of the list; a worker that has finished
    takes tests from the end of another's. Short ones there keep all workers busy to the end.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    train: list[list[pytest.Item]] = []  # seconds each: shared out one by one
    files: dict[Path, list[pytest.Item]] = {}  # the tests of a file share servers
    for item in items:
        mark = item.get_closest_marker("train")
        if mark and not mark.kwargs.get("share"):
            train.append([item])
        else:
            files.setdefault(item.path, []).append(item)
    shares = [train[number::workers] for number in range(workers)]
    for file in sorted(files.values(), key=len, reverse=True):
        min(shares, key=lambda share: sum(map(len, share))).append(file)
    # where a file has many tests, each is short
    items[:] = [item for share in shares for group in sorted(share, key=len) for item in group]


def pytest_collection_finish() -> None:
    """Leave all that was collected out of the search for garbage."""
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of CI that left out more than it may."""
    if os.environ.get("CI") and unexpected(skip_reasons(session.config)):
        session.exitstatus = max(int(session.exitstatus), pytest.ExitCode.TESTS_FAILED)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say which skips failed the run."""
    if os.environ.get("CI"):
        for reason in unexpected(skip_reasons(config)):
            terminalreporter.write_line(f"not to be skipped in CI: {reason}", red=True)
