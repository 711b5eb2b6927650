"""A Ray for all tests of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.ray import RayCluster, program

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def ray() -> Iterator[RayCluster]:
    """Yield a cluster of two nodes."""
    if program() is None:
        pytest.skip("no Ray here: scripts/ray installs it")
    with RayCluster() as cluster:
        yield cluster
