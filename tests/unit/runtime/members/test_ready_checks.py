from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.workspace import wait_for

from safelaunch.runtime.members.ready_checks import Readiness
from safelaunch.runtime.records import ReadyCheck

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENDS_ONCE = "test -e ran && exec sleep 600; touch ran; exit 3"  # and then hangs


@pytest.fixture
def readiness(tmp_path: Path) -> Iterator[Readiness]:
    check = ReadyCheck(command=["sh", "-c", ENDS_ONCE])
    readiness = Readiness(check, port=0, log="", cwd=str(tmp_path))
    yield readiness
    readiness.close()


def test_a_command_that_hangs_is_told_with_the_end_of_the_one_before(readiness: Readiness) -> None:
    wait_for(lambda: readiness.missing() == "`sh` ends with 3", "end of the first command")
    assert readiness.missing() == "`sh` ends with 3"
    assert readiness.command is not None  # the second one, which hangs
    assert readiness.command.poll() is None
