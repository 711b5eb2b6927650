"""Starting an agent on a host that is not to be trusted."""

from __future__ import annotations

from typing import Any

import pytest

from safelaunch.errors import HostError
from safelaunch.remote.agent_bootstrap import MARK, start_agent


class Channel:
    """A command whose output is the same line for ever."""

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.position = 0
        self.written = 0

    def read(self, size: int) -> bytes:
        data = self.line[self.position : self.position + size]
        self.position = (self.position + len(data)) % len(self.line)
        return data

    def write(self, data: bytes) -> None:
        self.written += len(data)


@pytest.mark.parametrize("word", [b"useless x\x1b[2J", b"need", b"\x1b]0;t\x07", b"", b"agen"])
def test_a_host_that_never_has_an_agent_is_an_error(word: bytes) -> None:
    channel: Any = Channel(MARK + word + b"\n")
    agent = start_agent("box", lambda _: channel, "0" * 24, [])
    with pytest.raises(HostError, match=r"^box: ") as raised:
        agent.call("runs.runs")
    assert len(str(raised.value)) < 5000
    assert str(raised.value).isprintable()
