"""Two machines on one network, in namespaces of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.ssh.network_namespaces import Lan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workspace import Place


@pytest.fixture(scope="module")
def net() -> Iterator[Lan]:
    """Yield two machines on one network."""
    with Lan(2, user="root") as lan:
        yield lan


@pytest.fixture
def far(place: Place, net: Lan) -> Place:
    """Return a place that knows them as gpu1 and gpu2."""
    place.ssh_config(net.ssh_config())
    return place
