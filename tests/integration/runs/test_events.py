"""`safelaunch events` follows real runs, also over a cut connection and a new start of itself."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd
from support.ssh.faulty_proxy import Faults
from support.ssh.sshd import Sshd
from support.workspace import DEADLINE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from support.workspace import Place

STEPS = """
import pathlib, sys, time
for step in range(1, 4):
    print(f"step {step}/3 loss 0.{step}", flush=True)
    while not pathlib.Path(f"go-{step}").exists(): time.sleep(0.05)
sys.exit("ValueError: no")
"""
FAST = ("events", "--follow", "--json", "--interval", "0.2")


def lines(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def until(stream: Iterator[dict[str, Any]], event: str, **values: object) -> list[dict[str, Any]]:
    """Return the lines up to one of that kind."""
    received = []
    for line in stream:
        received.append(line)
        if line["event"] == event and values.items() <= line.items():
            return received
    raise AssertionError(received)


def go(place: Place, *steps: int) -> None:
    for step in steps:
        place.write(f"go-{step}", "")


def brief(stream: list[dict[str, Any]]) -> list[object]:
    shown = [(n["event"], n.get("step", n.get("state"))) for n in stream]
    return [pair for pair in shown if pair[0] not in ("notice", "host")]


WHOLE = [
    ("state", "running"),
    ("attempt", "running"),
    ("progress", 1),
    ("progress", 2),
    ("progress", 3),
    ("attempt", "failed"),
    ("failure", None),
    ("end", "failed"),
]


def test_a_new_client_goes_on_behind_the_last_line_of_the_one_before(place: Place) -> None:
    run = place.start(place.job(STEPS))
    first = place.popen(*FAST, run)
    before = until(lines(first), "progress", step=1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    go(place, 1)
    place.wait_for_text(run, "step 2/3")
    second = place.popen(*FAST, run, "--since", before[-1]["cursor"])
    stream = lines(second)
    middle = until(stream, "progress", step=2)
    go(place, 2)
    middle += until(stream, "progress", step=3)
    go(place, 3)
    after = until(stream, "end")
    assert second.wait(DEADLINE) == 0
    assert [n for n in brief(before + middle + after) if n != ("state", "pending")] == WHOLE
    assert place.cli("events", run, "--json", "--since", after[-1]["cursor"]).stdout == ""


def test_all_runs_are_followed_also_those_that_start_later(place: Place) -> None:
    quick = place.job("print('x')", name="quick")
    place.ended(place.start(quick))
    follow = place.popen(*FAST)
    stream = lines(follow)
    slow = place.start(place.job(STEPS, name="slow"))
    until(stream, "progress", step=1)
    later = place.start(quick)
    received = until(stream, "end", run=later, state="succeeded")
    follow.send_signal(signal.SIGINT)
    assert follow.wait(DEADLINE) == 130
    go(place, 1, 2, 3)
    place.ended(slow)
    third = place.start(quick)
    place.ended(third)
    rest = place.cli("events", "--json", "--since", received[-1]["cursor"]).stdout.splitlines()
    ends = [line["run"] for line in map(json.loads, rest) if line["event"] == "end"]
    assert sorted(ends) == sorted([slow, third])


def _steps(place: Place) -> str:
    """Write a file with two steps; return its name."""
    place.write("train.py", STEPS.replace('sys.exit("ValueError: no")', ""))
    place.write("export.py", "print('exported')")
    job = {"name": "demo", "launcher": "python", "python": sys.executable}
    steps = {name: {"script": f"{name}.py"} for name in ("train", "export")}
    place.write("steps.yaml", json.dumps({**job, "steps": steps}))
    return "steps.yaml"


def test_the_events_of_a_group_go_on_by_their_cursor_and_come_in_order_of_time(
    place: Place,
) -> None:
    group = place.json("run", "--no-check", _steps(place))["group"]
    first = place.popen(*FAST, group)
    before = until(lines(first), "progress", step=1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = place.popen(*FAST, "demo", "--since", before[-1]["cursor"])
    go(place, 1, 2, 3)
    after = list(lines(second))
    assert second.wait(DEADLINE) == 0
    received = before + after
    assert {line["step_name"] for line in received} == {"train", "export"}
    for step in ("train", "export"):
        own = brief([n for n in received if n["step_name"] == step])
        assert own.count(("attempt", "running")) == own.count(("end", "succeeded")) == 1
    kinds = [(line["step_name"], line["event"], line.get("state")) for line in received]
    end = kinds.index(("train", "end", "succeeded"))
    assert end < kinds.index(("export", "attempt", "running"))
    assert place.cli("events", group, "--json", "--since", after[-1]["cursor"]).stdout == ""
    whole = [json.loads(n) for n in place.cli("events", "demo", "--json").stdout.splitlines()]
    assert [line["time"] for line in whole] == sorted(line["time"] for line in whole)
    assert [n["step_name"] for n in whole if n["event"] == "end"] == ["train", "export"]


def test_a_line_for_people_names_time_run_and_what_happened(place: Place) -> None:
    run = place.start(place.job("print('x')"))
    place.ended(run)
    last = place.cli("events", run).stdout.splitlines()[-1]
    assert f"  {run}  end       succeeded, exit code 0, ran " in last


def test_a_log_that_is_followed_ends_at_the_bytes_that_are_allowed(place: Place) -> None:
    run = place.start(place.job(STEPS))
    log = place.cli("logs", "-f", run, "--grep", "step", "--max-bytes", "6")
    assert (log.stdout, "--max-bytes is reached" in log.stderr) == ("step 1\n", True)
    go(place, 1, 2, 3)


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_a_cut_connection_loses_and_doubles_no_line(place: Place) -> None:
    with Sshd() as server, Faults(server.address, server.port) as proxy:
        config = server.ssh_config("box").replace(str(server.port), str(proxy.port))
        place.ssh_config(f"{config}  HostKeyAlias [{server.address}]:{server.port}\n")
        job = place.job(STEPS.replace("go-", f"{place.project}/go-"))
        started = place.json("remote", "--host", "box", "--no-check", job)
        run = started["id"]
        follow = place.popen(*FAST, run)
        stream = lines(follow)
        received = until(stream, "progress", step=1)
        proxy.reset()
        go(place, 1)
        received += until(stream, "progress", step=2)
        proxy.hang_up(4)  # longer than it takes to connect again
        proxy.drop()
        go(place, 2)
        received += until(stream, "progress", step=3)
        go(place, 3)
        received += until(stream, "end")
        assert follow.wait(DEADLINE) == 0
        log = place.cli("logs", run, "--grep", "step", "--tail", "2", "--max-bytes", "20").stdout
        assert log.splitlines()[1:] == ["step 3/3 loss 0.3"]
        assert "18 B before this left out" in log
        assert [n for n in brief(received) if n != ("state", "pending")] == WHOLE
        assert [n["answers"] for n in received if n["event"] == "host"] == [False, True]
