"""The order of the tests; with `CI` set, a skip fails the run unless support/skips.py has it."""

from __future__ import annotations

import os

import pytest
from support.skips import unexpected


def skip_reasons(config: pytest.Config) -> list[str]:
    """Return why tests were skipped, each reason once."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []
    return sorted({str(report.longrepr[2]) for report in reports if report.longrepr})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long: real training, which no other worker can share at the end."""
    items.sort(key=lambda item: item.get_closest_marker("train") is None)


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
