"""Parts of a run: each a program of its own, over a piece of the input or a set of values."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

from support.workspace import wait_for

from safelaunch.runtime import processes
from safelaunch.runtime.parts import manifest

if TYPE_CHECKING:
    from support.workspace import Place

# fails in part 2 until a file is there; waits for another where it is asked to
SCORE = """\
import json, os, sys, time
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print("part", words["--index"], flush=True)
if words["--index"] == "2" and not os.path.exists("mended"):
    raise ValueError("a bad row")
with open(words["--in"]) as source, open(words["--out"], "w") as out:
    for line in source:
        out.write(json.dumps({**json.loads(line), "score": 1}) + "\\n")
"""
WAITS = """\
import os, sys, time
open("began-" + sys.argv[2], "w").close()
while not os.path.exists("go"):
    time.sleep(0.02)
"""
ARGS = {"index": "{shard.index}", "in": "{shard.input}", "out": "{shard.output}"}


def _score_job(place: Place) -> str:
    place.write("rows.jsonl", "".join(json.dumps({"row": row}) + "\n" for row in range(10)))
    merge = {"output": "scores.jsonl"}
    shards = {"over": "rows.jsonl", "by": "jsonl", "parts": 4, "merge": merge}
    return place.job(SCORE, args=ARGS, shards=shards, at_once=2)


def _waiting_run(place: Place, **more: Any) -> str:
    run = place.start(place.job(WAITS, args={"index": "{shard.index}"}, shards=3, **more))
    wait_for(lambda: list(place.project.glob("began-*")), "part that has begun")
    return run


def test_one_part_fails_the_others_go_on_and_a_rerun_does_what_is_missing(place: Place) -> None:
    run = place.start(_score_job(place))
    shown = place.json("wait", run, code=None)
    assert shown["state"] == "failed"
    assert "1 of 4 parts failed; part 2: ValueError: a bad row" in shown["failure"]["what"]
    assert [end["part"] for end in shown["parts"] if end["state"] == "succeeded"] == [0, 1, 3]
    assert not (place.project / "scores.jsonl").exists()
    assert "3/4" in place.cli("ps").stdout
    assert (shown["failure"]["part"], shown["failure"]["class"]) == (2, "user-code-exception")
    assert "2: failed: ValueError: a bad row" in place.cli("show", run).stdout
    assert f"safelaunch logs {run} --part 2" in place.cli("show", run).stdout
    assert "ValueError: a bad row" in place.cli("logs", run, "--part", "2").stdout
    place.write("mended", "")
    again = json.loads(place.cli("rerun", run, "--json").stdout)["id"]
    assert place.json("wait", again)["state"] == "succeeded"
    assert "3 of 4 parts were done before" in place.cli("logs", again).stdout
    rows = (place.project / "scores.jsonl").read_text().splitlines()
    assert [json.loads(row)["row"] for row in rows] == list(range(10))


def test_each_part_has_a_line_for_its_begin_and_its_end(place: Place) -> None:
    program = "import sys\nassert sys.argv[1] != '--lr=2', 'too large'\n"
    args = ["--lr={matrix.lr}"]
    run = place.start(place.job(program, args=args, matrix={"lr": [1, 2]}, at_once=1))
    assert place.json("wait", run, code=1)["state"] == "failed"
    text = place.cli("events", run, "--json").stdout
    shown = [line for line in map(json.loads, text.splitlines()) if line["event"] == "part"]
    assert [(line["part"], line["state"], line["values"]) for line in shown] == [
        (0, "running", {"lr": "1"}),
        (0, "succeeded", {"lr": "1"}),
        (1, "running", {"lr": "2"}),
        (1, "failed", {"lr": "2"}),
    ]
    last = shown[-1]
    assert (last["class"], last["exit_code"]) == ("user-code-exception", 1)
    assert "AssertionError: too large" in last["what"]
    rest = place.cli("events", run, "--since", shown[1]["cursor"]).stdout
    parts = [line.split("part ")[1] for line in rest.splitlines() if "  part " in line]
    assert parts[0].strip() == "1 running, lr 2"
    assert "1 failed, lr 2, exit code 1 after" in parts[1]
    assert len(parts) == 2


def test_stop_ends_all_parts_with_proof(place: Place) -> None:
    run = _waiting_run(place, at_once=3)
    wait_for(lambda: len(list(place.project.glob("began-*"))) == 3, "start of all parts")
    place.cli("stop", run)
    shown = place.ended(run)
    assert (shown["state"], shown["proof"]) == ("stopped", "wait")
    assert not processes.marked(run)
    assert {end.state for end in manifest.read(str(place.node(run))).values()} == {"stopped"}


def test_a_killed_coordinator_leaves_nothing_and_a_rerun_does_the_rest(place: Place) -> None:
    run = _waiting_run(place, at_once=1)
    coordinator = place.status(run)["launcher"]["pid"]
    os.kill(coordinator, signal.SIGKILL)
    assert place.ended(run)["state"] == "failed"
    assert not processes.marked(run)
    place.write("go", "")
    again = json.loads(place.cli("rerun", run, "--json").stdout)["id"]
    assert place.json("wait", again)["state"] == "succeeded"
    assert len(manifest.read(str(place.node(again)))) == 3


def test_the_folder_of_the_runs_may_have_blanks_in_its_name(place: Place) -> None:
    place.home = place.root / "my runs (é)"
    place.env["SAFELAUNCH_HOME"] = str(place.home)
    place.write("mended", "")
    run = place.start(_score_job(place))
    shown = place.json("wait", run)
    assert (shown["state"], len(shown["parts"])) == ("succeeded", 4)
    assert len((place.project / "scores.jsonl").read_text().splitlines()) == 10


def test_each_combination_of_values_is_a_part(place: Place) -> None:
    program = "import sys\nprint('values', sys.argv[2], sys.argv[4])\n"
    args = {"lr": "{matrix.lr}", "seed": "{matrix.seed}"}
    matrix = {"lr": ["1e-5", "2e-5"], "seed": [1, 2]}
    run = place.start(place.job(program, args=args, matrix=matrix))
    assert place.json("wait", run)["state"] == "succeeded"
    logs = [place.cli("logs", run, "--part", str(part)).stdout for part in range(4)]
    assert [log.split("values ")[1].split("\n")[0] for log in logs] == [
        "1e-5 1",
        "1e-5 2",
        "2e-5 1",
        "2e-5 2",
    ]


def test_each_part_that_runs_has_a_card_of_its_own(place: Place) -> None:
    program = (
        "import os, sys, time\n"
        "card = os.environ['CUDA_VISIBLE_DEVICES']\n"
        "os.mkdir('card-' + card)\n"  # fails where another part has it
        "while not os.path.exists('used'):\n"
        "    time.sleep(0.02)\n"
        "os.rmdir('card-' + card)\n"
    )
    job = place.job(program, args={"index": "{shard.index}"}, shards=4, gpus=[0, 1])
    assert "CUDA_VISIBLE_DEVICES='<shard.cards>'" in place.cli("run", job, "--dry-run").stdout
    run = place.start(job)
    wait_for(lambda: len(list(place.project.glob("card-*"))) == 2, "two parts at once")
    place.write("used", "")
    shown = place.json("wait", run)
    assert (shown["state"], shown["part_count"]) == ("succeeded", 4)
