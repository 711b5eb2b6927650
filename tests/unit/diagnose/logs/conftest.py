"""A bound on the work of reading any log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE = 20.0  # seconds of CPU that nothing here may take


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """Fail a test that has used too much CPU time."""
    start = time.process_time()
    yield
    assert time.process_time() - start < DEADLINE
