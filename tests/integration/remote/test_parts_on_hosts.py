"""Parts of a job that several hosts share: real servers in network namespaces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.faults.two_machines import BOTH
from support.ssh import network_namespaces
from support.ssh.network_namespaces import lan
from support.workspace import Place, wait_for

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from pathlib import Path

    from support.ssh.network_namespaces import Lan

WHY_NOT = network_namespaces.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

# each part notes its begin and its cards in its host's home, waits for a file `go` there, fails as
# part 3 until there is a file `mended`, and else writes each row of its piece with a score
SCORE = """\
import json, os, pathlib, sys, time
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
home, number = pathlib.Path.home(), words["--index"]
with open(home / "starts", "a") as file:
    file.write(number + " " + os.environ.get("CUDA_VISIBLE_DEVICES", "") + "\\n")
while not (home / "go").exists():
    time.sleep(0.02)
if number == "3" and not (home / "mended").exists():
    raise ValueError("a bad row")
with open(words["--in"]) as source, open(words["--out"], "w") as out:
    for line in source:
        out.write(json.dumps({**json.loads(line), "score": 1}) + "\\n")
"""
ARGS = {"index": "{shard.index}", "in": "{shard.input}", "out": "{shard.output}"}
PARTS, ROWS = 8, 20


def job(place: Place, **more: Any) -> str:
    rows = "".join(json.dumps({"row": row}) + "\n" for row in range(ROWS))
    place.write("data/rows.jsonl", rows)
    merge = {"output": "out/scores.jsonl"}
    shards = {"over": "data/rows.jsonl", "by": "jsonl", "parts": PARTS, "merge": merge}
    more = {"args": ARGS, "shards": shards, "gpus": [0, 1], **more}
    return place.job(SCORE, python=None, **more)


def start(place: Place, file: str, *words: str) -> str:
    return str(place.json("remote", *BOTH, "--no-check", *words, file)["id"])


def homes(net: Lan) -> list[Path]:
    return [host.home("root") for host in net.hosts]


def starts(net: Lan) -> list[list[list[str]]]:
    """Return number and cards of each part that has started, of each host."""
    files = [home / "starts" for home in homes(net)]
    return [
        [line.split(" ") for line in file.read_text().splitlines()] if file.exists() else []
        for file in files
    ]


def let_go(net: Lan, name: str = "go") -> None:
    for home in homes(net):
        (home / name).touch()


@pytest.fixture
def fresh(place: Place, net: Lan) -> Place:
    """Return a place that knows both hosts, which have nothing of an earlier test."""
    place.ssh_config(net.ssh_config())
    for home in homes(net):
        for name in ("starts", "go", "mended"):
            (home / name).unlink(missing_ok=True)
    return place


def merged(path: Path) -> list[int]:
    return [json.loads(row)["row"] for row in path.read_text().splitlines()]


def test_all_cards_of_all_hosts_work_and_the_outputs_are_merged_on_the_client(
    fresh: Place, net: Lan
) -> None:
    let_go(net, "mended")
    run = start(fresh, job(fresh))
    wait_for(lambda: [len(host) for host in starts(net)] == [2, 2], "two parts on each host")
    assert [sorted(host) for host in starts(net)] == [
        [["0", "0"], ["2", "1"]],
        [["1", "0"], ["3", "1"]],
    ]
    ps = fresh.cli("ps").stdout
    assert ps.count(run) == 1
    assert "running, 0/8" in ps
    assert "gpu1 +1" in ps
    let_go(net)
    ended = fresh.cli("wait", run)
    assert f"merged in {run}/out/scores.jsonl" in ended.stderr
    assert merged(fresh.project / run / "out" / "scores.jsonl") == list(range(ROWS))
    shown = fresh.json("show", run)
    assert (shown["state"], shown["part_count"]) == ("succeeded", PARTS)
    places = [(end["part"], end["state"], end["host"]) for end in shown["parts"]]
    assert places == [(part, "succeeded", f"gpu{part % 2 + 1}") for part in range(PARTS)]
    assert "succeeded, 8/8" in fresh.cli("ps").stdout
    text = fresh.cli("show", run).stdout
    assert "8 of 8 are done" in text
    assert "4 of them on gpu2" in text
    fresh.cli("pull", f"{run}:out/*.jsonl", "results")
    assert merged(fresh.project / "results" / "out" / "scores.jsonl") == list(range(ROWS))
    assert "part 5 is done" in fresh.cli("logs", run).stdout


def test_a_rerun_does_only_the_part_that_has_failed_and_says_where_it_was(
    fresh: Place, net: Lan
) -> None:
    let_go(net)
    # with all checks before; no card is there
    run = str(fresh.json("remote", *BOTH, job(fresh, gpus=None, at_once=2))["id"])
    shown = fresh.json("wait", run, code=1)
    assert shown["state"] == "failed"
    assert (shown["failure"]["host"], shown["failure"]["part"]) == ("gpu2", 3)
    assert "part 3: ValueError: a bad row" in shown["failure"]["what"]
    assert not (fresh.project / run).exists()  # nothing is merged
    assert "failed (1), 7/8" in fresh.cli("ps").stdout
    assert "3 on gpu2: failed: ValueError: a bad row" in fresh.cli("show", run).stdout
    assert "ValueError: a bad row" in fresh.cli("logs", run, "--part", "3").stdout
    refused = fresh.cli("pull", f"{run}:out/scores.jsonl", code=1).stderr
    assert f"7 of 8 parts of {run} are done" in refused
    let_go(net, "mended")
    again = str(fresh.json("rerun", run)["id"])
    fresh.cli("wait", again)
    assert merged(fresh.project / again / "out" / "scores.jsonl") == list(range(ROWS))
    numbers = sorted(int(number) for host in starts(net) for number, _ in host)
    assert numbers == sorted([*range(PARTS), 3])
    assert fresh.cli("logs", again, "--part", "4", code=None).returncode == 0  # of the first run


def test_a_stop_ends_the_parts_on_all_hosts(fresh: Place, net: Lan) -> None:
    run = start(fresh, job(fresh))
    wait_for(lambda: [len(host) for host in starts(net)] == [2, 2], "two parts on each host")
    stopped = fresh.json("stop", run)
    assert (stopped["state"], stopped["proof"]) == ("stopped", "wait")
    assert not processes.marked(run)
    assert [len(host) for host in starts(net)] == [2, 2]


def test_a_supervisor_that_is_killed_loses_its_parts_and_a_rerun_does_those(
    fresh: Place, net: Lan
) -> None:
    run = start(fresh, job(fresh))
    wait_for(lambda: [len(host) for host in starts(net)] == [2, 2], "two parts on each host")
    (homes(net)[0] / "go").touch()
    wait_for(lambda: "running, 4/8" in fresh.cli("ps").stdout, "all parts of gpu1")
    status = json.loads((node_dir(net, run, 1) / "status.json").read_text())
    net.hosts[1].run(f"kill -KILL {status['supervisor']['pid']}")  # in its own pid namespace
    shown = wait_for(lambda: lost(fresh, run), "a run whose second host has lost its parts")
    ends = {end["part"]: (end["state"], end["host"]) for end in shown["parts"]}
    assert ends == {
        **dict.fromkeys((0, 2, 4, 6), ("succeeded", "gpu1")),
        **dict.fromkeys((1, 3, 5, 7), ("lost", "gpu2")),
    }
    fresh.cli("stop", run, code=None)
    assert not processes.marked(run)
    let_go(net)
    let_go(net, "mended")
    again = str(fresh.json("rerun", run)["id"])
    fresh.cli("wait", again)
    assert merged(fresh.project / again / "out" / "scores.jsonl") == list(range(ROWS))
    done = sorted(int(number) for number, _ in starts(net)[0])
    assert [number for number in done if number % 2 == 0] == [0, 2, 4, 6]


def node_dir(net: Lan, run: str, node: int) -> Path:
    return homes(net)[node] / ".safelaunch" / "runs" / run / f"node-{node}"


def lost(place: Place, run: str) -> dict[str, Any] | None:
    shown = place.json("show", run)
    return shown if shown["state"] == "lost" else None


def test_a_host_that_is_gone_for_good_is_left_out_of_a_rerun(place: Place) -> None:
    with lan(2) as net:
        place.ssh_config(net.ssh_config())
        users = [host.home("alice") for host in net.hosts]
        run = start(place, job(place))
        wait_for(lambda: all((home / "starts").exists() for home in users), "parts on both hosts")
        for name in ("go", "mended"):
            (users[0] / name).touch()
        wait_for(lambda: "running, 4/8" in place.cli("ps").stdout, "all parts of gpu1")
        net.hosts[1].close()  # it is off
        shown = place.json("show", run)
        assert {end["state"] for end in shown["parts"] if end["host"] == "gpu2"} == {"unknown"}
        refused = place.cli("rerun", run, code=3).stderr
        assert "parts may still run on gpu2" in refused
        assert "--without gpu2" in " ".join(refused.split())
        again = str(place.json("rerun", run, "--without", "gpu2")["id"])
        assert place.json("wait", again)["state"] == "succeeded"
        numbers = [line.split(" ")[0] for line in (users[0] / "starts").read_text().splitlines()]
        assert sorted(map(int, numbers)) == list(range(PARTS))
        place.cli("pull", f"{again}:out/scores.jsonl", "results")
        assert merged(place.project / "results" / "out" / "scores.jsonl") == list(range(ROWS))


def test_hosts_with_different_inputs_are_not_merged(fresh: Place, net: Lan) -> None:
    let_go(net)
    let_go(net, "mended")
    first = start(fresh, job(fresh))
    fresh.cli("wait", first)
    second = fresh.json("show", first)["nodes"][1]["place"]
    net.hosts[1].run(f"sed -i s/7/77/ {second}/data/rows.jsonl")
    run = start(fresh, job(fresh), "--no-sync")
    ended = fresh.cli("wait", run, code=1).stderr
    assert "gpu1 and gpu2 have divided different files" in " ".join(ended.split())
    assert not (fresh.project / run).exists()


def test_a_dry_run_shows_the_hosts_and_connects_to_nobody(place: Place) -> None:
    place.ssh_config("Host gpu*\n  HostName 127.0.0.1\n  Port 9\n")
    text = place.cli("remote", *BOTH, "--dry-run", job(place)).stdout
    assert "one for each card on each of gpu1, gpu2, to which they are dealt out in turn" in text
    assert "merged on the client, in out/scores.jsonl by jsonl" in text
    assert "by hand" not in text
