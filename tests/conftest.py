"""The order of the tests; with `CI` set, a skip fails the run unless support/skips.py has it."""

from __future__ import annotations

import os
import signal

import pytest
from support.skips import unexpected


def skip_reasons(config: pytest.Config) -> list[str]:
    """Return why tests were skipped, each reason once."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []
    return sorted({str(report.longrepr[2]) for report in reports if report.longrepr})


def pytest_configure() -> None:
    """Take Ctrl-C as in the foreground: what a shell starts with `&` ignores it, with all below."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each worker begin with its share of what takes long, file by file.

    xdist (worksteal) gives each of n workers the next nth of the list; who has done his takes the
    end of another's. What lies there should be short, lest one worker runs on alone.
    """
    files: dict[object, list[pytest.Item]] = {}
    short = []
    for item in items:
        if item.get_closest_marker("train"):  # seconds each: shared out one by one
            files[item] = [item]
        elif "integration" in item.path.parts:  # the tests of a file share servers
            files.setdefault(item.path, []).append(item)
        else:
            short.append(item)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = sorted(files.values(), key=lambda group: group[0].get_closest_marker("train") is None)
    total = len(items)
    items.clear()
    for worker in range(workers):
        items += [item for group in long[worker::workers] for item in group]
        missing = max(0, total * (worker + 1) // workers - len(items))
        items += short[:missing]
        del short[:missing]
    items += short


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
