"""A host reads its side of a large project while the client scans its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.sync_pair import CountingAgent, HostPair

from safelaunch.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def box(tmp_path: Path) -> Iterator[HostPair]:
    pair = HostPair(tmp_path)
    pair.write("train.py", "print(1)\n")
    pair.write("part1/a.py", "a\n")
    pair.write("part2/b.py", "b\n")
    pair.settle()
    yield pair
    pair.close()


def near(box: HostPair) -> CountingAgent:
    """Return an agent so near that a round trip costs nothing."""
    agent = box.agent()
    agent.round_trip = 0.0
    return agent


def compare(agent: CountingAgent, target: Path) -> Any:
    return agent.call("receive.compare", target=str(target), digest="")


def test_the_host_is_asked_before_the_scan_has_ended(box: HostPair) -> None:
    for number in range(1000):  # more than is read before the thread of the scan is interrupted
        box.write(f"package{number % 50}/{number}.py", f"{number}\n")
    box.settle()
    first, second = near(box), near(box)
    assert box.sync(first).sent == 1003
    assert first.verbs[:2] == ["receive.list_target", "receive.compare"]
    assert len(box.tree()) == 1003
    assert box.sync(second).sent == 0
    assert second.verbs == ["receive.list_target", "receive.compare"]


def test_what_was_changed_there_is_not_overwritten(box: HostPair) -> None:
    box.sync(near(box))
    (box.target / "train.py").write_text("print(2)\n")
    box.write("train.py", "print(3)\n")
    with pytest.raises(Refused, match=r"train\.py was changed on the host"):
        box.sync(near(box))


def test_what_was_changed_there_after_the_comparison_is_seen_by_the_next(box: HostPair) -> None:
    box.sync(near(box))
    agent = near(box)
    assert box.sync(agent).sent == 0
    (box.target / "part1" / "a.py").unlink()
    assert box.sync(agent).sent == 1  # the same agent: what it has listed serves once


def test_another_folder_is_opened_anew(box: HostPair, tmp_path: Path) -> None:
    box.sync()
    agent = box.agent()
    agent.call("receive.list_target", target=str(box.target))
    other = compare(agent, tmp_path / "other")
    assert (other["target"], other["fresh"]) == (str(tmp_path / "other"), True)
    # and the first is free again
    assert "busy" not in compare(box.agent(), box.target)


def test_an_opened_folder_is_busy_until_its_client_is_gone(box: HostPair) -> None:
    box.sync()
    opener, other = box.agent(), box.agent()
    opener.call("receive.list_target", target=str(box.target))
    assert "busy" in other.call("receive.list_target", target=str(box.target))
    assert "busy" in compare(other, box.target)
    opener.process.kill()
    opener.process.wait()
    assert "busy" not in compare(other, box.target)


def test_a_folder_that_cannot_be_opened_says_so_once(box: HostPair) -> None:
    box.target.parent.mkdir()
    box.target.write_text("a file")
    with pytest.raises(Exception, match="not a folder"):
        box.sync(near(box))
