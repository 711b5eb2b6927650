"""Docker and podman for all tests of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.containers import Engine, missing

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", params=["docker", "podman"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Yield each engine in turn."""
    yield from _started(request.param)


@pytest.fixture(scope="session")
def docker() -> Iterator[Engine]:
    """Yield docker."""
    yield from _started("docker")


def _started(name: str) -> Iterator[Engine]:
    reason = missing(name)
    if reason:
        pytest.skip(reason)
    with Engine(name) as running:
        yield running
