"""What an agent says of its machine before a start."""

from __future__ import annotations

import pytest

from safelaunch.runtime.agent import start, wire

LINK = wire.Link(lambda _: b"", lambda _: None)


@pytest.mark.parametrize(("first", "count"), [("print(1)", 1), ("raise SystemExit(3)", 2)])
def test_the_next_command_runs_only_where_the_first_has_failed(first: str, count: int) -> None:
    commands = [[None, "-c", first], [None, "-V"]]
    answer = start.machine_state({"commands": commands, "until_success": True}, LINK)
    assert len(answer["results"]) == count
    assert len(start.machine_state({"commands": commands}, LINK)["results"]) == 2
