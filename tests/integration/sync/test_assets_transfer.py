"""Assets of a job: brought to a host through a real agent, and used where they lie here."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from safelaunch.errors import ConfigError, HostError, Refused, StartError
from safelaunch.model import Origin, Placed, Slot, text
from safelaunch.remote.transfer import push_assets
from safelaunch.start.preflight import check_assets
from safelaunch.sync.push import push_file

if TYPE_CHECKING:
    from pathlib import Path

    from support.sync_pair import CountingAgent, HostPair
    from support.workspace import Place

    from safelaunch.sync.push import Summary
    from safelaunch.sync.transfer_progress import TransferProgress

MIB = 1 << 20
SAYS = "import sys, os\nprint(sys.argv[1:], os.environ.get('DATA'), flush=True)\n"


@pytest.fixture
def box(box: HostPair, tmp_path: Path) -> HostPair:
    """Give the host a home of its own."""
    box.env["HOME"] = str(tmp_path / "far")
    (tmp_path / "far").mkdir()
    return box


def asset(box: HostPair, name: str, place: str | None = None) -> Placed:
    """Return an asset of the project; its place is the one that `push` chooses, or another."""
    path = box.project / name
    chosen = f"{box.env['HOME']}/safelaunch/assets/{path.name}"
    return Placed(path.stem, str(path), place or chosen, Origin("job.yaml", 5, 9))


def model(box: HostPair) -> Placed:
    box.write("models/Qwen/config.json", "{}")
    box.write("models/Qwen/.gitignore", "*.safetensors\n")
    box.write("models/Qwen/model.safetensors", os.urandom(9 * MIB))
    return asset(box, "models/Qwen")


class Node(NamedTuple):
    """The part of a NodePlan that matters for assets."""

    assets: tuple[Placed, ...]


class Connected(NamedTuple):
    """A connected host."""

    name: str
    agent: CountingAgent


def push(agent: CountingAgent, assets: list[Placed], **options: Any) -> list[Summary]:
    """Return the summary of each asset that is sent to one host."""
    machines: Any = [Connected("box", agent)]
    nodes: Any = [Node(tuple(assets))]
    return [summary for _, summary in push_assets(machines, nodes, **options)]


def test_a_folder_and_a_file_arrive_whole(box: HostPair) -> None:
    box.write("c4.bin", os.urandom(2 * MIB))
    base, data = model(box), asset(box, "c4.bin", str(box.target / "data" / "c4.bin"))
    brought, sent = push(box.agent(), [base, data], cache=box.cache)
    for name in ("config.json", ".gitignore", "model.safetensors"):
        copy = f"{base.place}/{name}"
        with open(copy, "rb") as a, open(f"{base.path}/{name}", "rb") as b:
            assert a.read() == b.read()
    assert (brought.files, brought.target) == (3, str(base.place))
    assert (sent.files, sent.target) == (1, str(data.place))
    with open(str(data.place), "rb") as file:
        assert file.read() == (box.project / "c4.bin").read_bytes()


def test_what_is_there_is_not_sent_again(box: HostPair) -> None:
    box.write("a.bin", b"a" * MIB)
    box.write("b.bin", b"b" * MIB)
    both = [model(box), asset(box, "a.bin"), asset(box, "b.bin")]
    assert [s.sent for s in push(box.agent(), both, cache=box.cache)] == [3, 1, 1]
    agent = box.agent()
    again = push(agent, both, cache=box.cache)
    assert [s.sent for s in again] == [0, 0, 0]
    assert agent.sent < MIB / 10
    assert "up to date" in again[1].lines("gpu1")[0]
    assert "earlier" not in " ".join(line for s in again for line in s.lines("gpu1"))


def test_what_was_pushed_is_not_sent_again(box: HostPair) -> None:
    base = model(box)
    push_file(box.agent(), base.path, str(base.place), cache=box.cache)
    (brought,) = push(box.agent(), [base], cache=box.cache)
    assert brought.sent == 0


def test_one_place_of_two_names_is_brought_once(box: HostPair) -> None:
    base = model(box)
    twice = [base, Placed("tokenizer", base.path, base.place, base.origin)]
    assert len(push(box.agent(), twice)) == 1


@pytest.mark.parametrize("shared", [True, False])
def test_hosts_that_see_one_file_system_are_sent_an_asset_once(box: HostPair, shared: bool) -> None:
    base = model(box)
    other = base if shared else replace(base, place=f"{box.target}/other/Qwen")
    nodes: Any = [Node((base, base)), Node((other, other))]
    machines: Any = [Connected("a", box.agent()), Connected("b", box.agent())]
    summaries = push_assets(machines, nodes, cache=box.cache)
    sent = [(hosts, summary.sent) for hosts, summary in summaries]
    assert sent == ([("a, b", 3)] if shared else [("a", 3), ("b", 3)])
    for place in {str(base.place), other.place}:
        folder = os.path.dirname(str(place))
        assert os.listdir(folder) == ["Qwen"]
        assert os.path.getsize(f"{place}/model.safetensors") == 9 * MIB


def test_a_cut_transfer_goes_on(box: HostPair) -> None:
    box.write("big.bin", os.urandom(48 * MIB))
    big = asset(box, "big.bin")
    agent = box.agent()
    agent.cut_after = 24 * MIB
    with pytest.raises(HostError, match="lost"):
        push(agent, [big], cache=box.cache)
    assert not os.path.exists(str(big.place))
    shown: list[TransferProgress] = []
    agent = box.agent()
    push(agent, [big], cache=box.cache, progress=shown.append)
    with open(str(big.place), "rb") as file:
        assert file.read() == (box.project / "big.bin").read_bytes()
    assert agent.sent < 40 * MIB
    assert shown[-1].activity == "big to box: sending"
    assert shown[-1].done == shown[-1].total


def test_another_file_at_its_place_is_overwritten_only_when_forced(box: HostPair) -> None:
    box.write("c4.bin", b"new")
    data = asset(box, "c4.bin")
    os.makedirs(os.path.dirname(str(data.place)))
    with open(str(data.place), "wb") as file:
        file.write(b"theirs")
    with pytest.raises(Refused, match="not overwritten"):
        push(box.agent(), [data])
    push(box.agent(), [data], force=True)
    with open(str(data.place), "rb") as file:
        assert file.read() == b"new"


def test_files_that_an_asset_no_longer_has_are_told(box: HostPair) -> None:
    base = model(box)
    push(box.agent(), [base], cache=box.cache)
    (box.project / "models/Qwen/config.json").unlink()
    (brought,) = push(box.agent(), [base], cache=box.cache)
    assert "note: Qwen: still there, and no longer part of it: 1 file" in " ".join(
        brought.lines("gpu1")
    )


def test_a_missing_asset_is_refused(box: HostPair) -> None:
    with pytest.raises(ConfigError, match=r"job.yaml:5:9: the asset `gone` is not there") as raised:
        check_assets([model(box), asset(box, "gone.bin")])
    assert raised.value.where == "job.yaml:5:9"


def test_a_place_that_cannot_be_made_says_what_to_write(box: HostPair) -> None:
    box.write("c4.bin", b"x")
    box.target.parent.mkdir(parents=True)
    box.target.write_text("a file")
    with pytest.raises(HostError) as raised:
        push(box.agent(), [asset(box, "c4.bin", f"{box.target}/c4.bin")])
    assert "`c4: {path: ..., to: ...}`" in str(raised.value.hint)


def test_a_plan_without_the_host_s_home_is_not_brought(box: HostPair) -> None:
    with pytest.raises(StartError, match="home folder"):
        push(box.agent(), [Placed("a", str(box.project), text(Slot.HOME, "/safelaunch/assets/a"))])


def test_a_job_here_gets_the_paths_of_its_assets(place: Place) -> None:
    place.write("models/base/config.json", "{}")
    place.write("c4.bin", b"x")
    job = place.job(
        SAYS,
        assets={"base": "models/base", "data": {"path": "c4.bin", "to": "/data/c4.bin"}},
        args=["--model", "{assets.base}"],
        env={"DATA": "{assets.data}"},
    )
    run = place.start(job)
    place.ended(run)
    expected = f"['--model', '{place.project}/models/base'] {place.project}/c4.bin"
    place.wait_for_text(run, expected)
    (place.project / "job.yaml").unlink()
    again = str(place.json("rerun", run)["id"])
    place.ended(again)
    place.wait_for_text(again, expected)


def test_a_job_here_is_refused_where_an_asset_is_missing(place: Place) -> None:
    job = place.job(SAYS, assets={"base": "models/base"}, args=["{assets.base}"])
    place.cli("run", "--dry-run", job)
    stderr = place.cli("run", job, code=2).stderr
    assert f"the asset `base` is not there: {place.project}/models/base" in stderr
    assert "error: job.yaml:1:" in stderr
    assert not (place.home / "runs").exists()
