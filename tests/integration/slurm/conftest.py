"""A Slurm for all tests of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.slurm import Slurm, missing

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """Yield a cluster without accounting, as many small ones are; it starts within a second."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with Slurm() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_with_accounting() -> Iterator[Slurm]:
    """Yield a cluster whose sacct answers; its database takes up to 20 s to start."""
    reason = missing(accounting=True)
    if reason:
        pytest.skip(reason)
    with Slurm("--accounting") as cluster:
        yield cluster
