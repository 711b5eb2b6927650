"""Parts of a job on a host: a real sshd, a user without privileges, a client that only asks."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd
from support.workspace import Place, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from support.ssh.sshd import Sshd

pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))

USER = "alice" if sshd.ROOT else None
# fails in part 2 until a file is there; else writes each row of its piece with a score
SCORE = """\
import json, os, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print("part", words["--index"], flush=True)
if words["--index"] == "2" and not os.path.exists("mended"):
    raise ValueError("a bad row")
with open(words["--in"]) as source, open(words["--out"], "w") as out:
    for line in source:
        out.write(json.dumps({**json.loads(line), "score": 1}) + "\\n")
"""
# each part says its number, waits for a file of that name, and says that it ends
WAITS = """\
import os, sys, time
print("part", sys.argv[2], "begins", flush=True)
while not os.path.exists("go-" + sys.argv[2]):
    time.sleep(0.02)
print("part", sys.argv[2], "ends", flush=True)
"""
ARGS = {"index": "{shard.index}", "in": "{shard.input}", "out": "{shard.output}"}


@pytest.fixture
def far(place: Place, server: Sshd) -> Place:
    """Return a place whose ~/.ssh/config knows the host as gpu1."""
    place.ssh_config(server.ssh_config("gpu1", USER))
    return place


def score_job(place: Place, rows: int = 10) -> str:
    text = "".join(json.dumps({"row": row}) + "\n" for row in range(rows))
    place.write("data/rows.jsonl", text)
    merge = {"output": "out/scores.jsonl"}
    shards = {"over": "data/rows.jsonl", "by": "jsonl", "parts": 4, "merge": merge}
    return place.job(SCORE, python=None, args=ARGS, shards=shards, at_once=2)


def waiting_job(place: Place, parts: int = 3, **more: Any) -> str:
    args = {"index": "{shard.index}"}
    return place.job(WAITS, python=None, args=args, shards=parts, **more)


def start(place: Place, job: str, *words: str) -> str:
    return str(place.json("remote", "--host", "gpu1", "--no-check", *words, job)["id"])


def folder(place: Place, run: str) -> str:
    """Return the folder of the project on the host."""
    return str(place.json("show", run)["place"])


def log_of(place: Place, run: str, part: int) -> str:
    """Return the log of a part, "" before it has begun."""
    return place.cli("logs", run, "--part", str(part), code=None).stdout


def test_a_rerun_on_the_host_does_what_is_missing_and_its_result_is_pulled(
    far: Place, server: Sshd
) -> None:
    run = str(far.json("remote", "--host", "gpu1", score_job(far))["id"])
    shown = far.json("wait", run, code=1)
    assert shown["state"] == "failed"
    assert "1 of 4 parts failed; part 2: ValueError: a bad row" in shown["failure"]["what"]
    assert (shown["part_count"], shown["host"]) == (4, "gpu1")
    assert [end["part"] for end in shown["parts"] if end["state"] == "succeeded"] == [0, 1, 3]
    assert "failed (1), 3/4" in far.cli("ps").stdout
    text = far.cli("show", run).stdout
    assert "3 of 4 are done" in text
    assert "2: failed: ValueError: a bad row" in text
    assert "ValueError: a bad row" in log_of(far, run, 2)
    assert "scores.jsonl" not in server.run(f"ls -R {folder(far, run)}", USER)
    events = [json.loads(line) for line in far.cli("events", run, "--json").stdout.splitlines()]
    ends = {line["part"]: line for line in events if line["event"] == "part"}
    assert [ends[part]["state"] for part in range(4)] == [
        *("succeeded", "succeeded", "failed", "succeeded"),
    ]
    assert ends[2]["class"] == "user-code-exception"
    far.write("mended", "")
    again = str(far.json("rerun", "--current", "--yes", run)["id"])
    shown = far.json("wait", again)
    assert (shown["state"], len(shown["parts"])) == ("succeeded", 4)
    assert "3 of 4 parts were done before" in far.cli("logs", again).stdout
    assert "part 1" in log_of(far, again, 1)  # of the first run, which has done it
    far.cli("pull", f"{again}:out/*.jsonl", "results")
    rows = (far.project / "results" / "out" / "scores.jsonl").read_text().splitlines()
    assert [json.loads(row) for row in rows] == [{"row": row, "score": 1} for row in range(10)]


def test_one_part_is_followed_while_others_wait_and_another_laptop_sees_how_many_are_done(
    far: Place, server: Sshd, tmp_path: Path
) -> None:
    run = start(far, waiting_job(far, at_once=2))
    wait_for(lambda: "part 1 begins" in log_of(far, run, 1), "first line of part 1")
    missing = far.cli("logs", run, "--part", "2", code=1).stderr
    assert f"part 2 of {run} has not started yet" in missing
    assert "it has 0 to 2" in far.cli("logs", run, "--part", "3", code=1).stderr
    following = far.popen("logs", run, "--part", "0", "--follow")
    assert following.stdout is not None
    assert following.stdout.readline() == b"part 0 begins\n"
    project = folder(far, run)
    server.run(f"touch {project}/go-0", USER)
    assert following.stdout.read() == b"part 0 ends\n"
    assert following.wait() == 0
    wait_for(lambda: "running, 1/3" in far.cli("ps").stdout, "one part that is done")
    own_home = far.env["SAFELAUNCH_HOME"]
    far.env["SAFELAUNCH_HOME"] = str(tmp_path / "another")
    assert "running, 1/3" in far.cli("ps", "--host", "gpu1").stdout
    assert far.json("show", run)["part_count"] == 3
    assert "part 0 ends" in log_of(far, run, 0)
    far.env["SAFELAUNCH_HOME"] = own_home
    server.run(f"touch {project}/go-1 {project}/go-2", USER)
    assert far.json("wait", run)["state"] == "succeeded"
    assert "succeeded, 3/3" in far.cli("ps").stdout


def test_a_stop_leaves_no_part_on_the_host(far: Place, server: Sshd) -> None:
    run = start(far, waiting_job(far, at_once=3))
    wait_for(
        lambda: all("begins" in log_of(far, run, part) for part in range(3)), "begin of all parts"
    )
    stopped = far.json("stop", run)
    assert (stopped["state"], stopped["proof"]) == ("stopped", "wait")
    assert {end["state"] for end in stopped["parts"]} == {"stopped"}
    assert not [line for line in server.processes() if "job.py" in line]
    assert far.cli("wait", run, code=1).stderr.startswith(f"{run}: stopped")


def test_the_merged_file_is_in_the_folder_of_the_project_also_from_a_copy_of_it(
    far: Place, server: Sshd
) -> None:
    """A second run, while another lives in the folder, has a copy of the project."""
    score = score_job(far)
    far.write("mended", "")
    living = start(far, far.job(WAITS, "living", python=None, args=["--index", "9"]))
    server.run(f"echo of an earlier day > {folder(far, living)}/scores.jsonl", USER)
    text = (far.project / score).read_text().replace("out/scores.jsonl", "scores.jsonl")
    far.write(score, text.replace('"at_once": 2', '"at_once": 1'))
    far.write("job.py", SCORE + "# edited\n")
    run = start(far, score)
    shown = far.json("wait", run)
    assert shown["tree"] != shown["place"]
    far.cli("pull", f"{run}:scores.jsonl", "results")
    merged = (far.project / "results" / "scores.jsonl").read_text()
    assert len(merged.splitlines()) == 10
    assert server.run(f"cat {shown['place']}/scores.jsonl", USER) == merged
    server.run(f"touch {shown['place']}/go-9", USER)
    assert far.json("wait", living)["state"] == "succeeded"


def test_a_dry_run_shows_the_parts_and_connects_to_nobody(place: Place) -> None:
    place.ssh_config("Host gpu1\n  HostName 127.0.0.1\n  Port 9\n")
    text = place.cli("remote", "--host", "gpu1", "--dry-run", score_job(place)).stdout
    assert "# 4 parts, over data/rows.jsonl by jsonl, 2 at once; each runs this line" in text
    assert "# then their outputs are merged in out/scores.jsonl by jsonl" in text
    assert "--out '<shard.output>'" in text
    assert not os.path.exists(place.home)
