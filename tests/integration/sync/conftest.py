from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.sync_pair import HostPair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def box(tmp_path: Path) -> Iterator[HostPair]:
    """Yield a client and the agent of a host, in two folders."""
    pair = HostPair(tmp_path)
    try:
        yield pair
    finally:
        pair.close()
