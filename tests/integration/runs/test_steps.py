"""`run` of a file with `steps:`: one run for each, the later ones after the earlier."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from support.workspace import wait_for

if TYPE_CHECKING:
    from support.workspace import Place

TRAIN = """
import json, pathlib
for step, loss in enumerate((0.9, 0.3, 0.5), 1):
    folder = pathlib.Path(f"out/step-{step}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.json").write_text(json.dumps({"loss": loss}))
    print(f"step {step}/3 loss: {loss}", flush=True)
"""
SHOW = "import sys\nprint(sys.argv[1:])\n"


def _steps(place: Place, train: str = TRAIN, **changes: Any) -> str:
    """Write a file with three steps, and their programs; return its name."""
    for name, text in (("train", train), ("export", SHOW), ("evaluate", SHOW)):
        place.write(f"{name}.py", text)
    steps = {
        "train": {"script": "train.py", "recovery": {"checkpoint": "out/step-*"}},
        "export": {"script": "export.py", "args": ["{steps.train.checkpoint}"]},
        "evaluate": {
            "script": "evaluate.py",
            "after": ["export"],
            "args": ["{steps.train.checkpoint.lowest.loss}", "{steps.train.metrics.loss}"],
        },
    }
    job = {"name": "demo", "launcher": "python", "python": sys.executable, "steps": steps}
    place.write("steps.yaml", json.dumps({**job, **changes}))
    return "steps.yaml"


def _states(shown: dict[str, Any]) -> list[str]:
    return [step["state"] for step in shown["steps"]]


def test_each_step_begins_after_the_one_before_with_its_outputs(place: Place) -> None:
    job = _steps(place)
    dry = place.cli("run", "--dry-run", job).stdout
    assert "export.py '<steps.train.checkpoint>'" in dry
    assert dry == place.cli("run", "--dry-run", job).stdout
    plans = json.loads(place.cli("run", "--dry-run", "--json", job).stdout)["steps"]
    assert [plan["step"] for plan in plans] == ["train", "export", "evaluate"]
    started = place.json("run", job)
    group, ids = started["group"], [step["id"] for step in started["steps"]]
    assert [run[:-5] for run in ids] == [
        group[:-5].replace("demo-", f"demo-{step['step']}-") for step in started["steps"]
    ]
    assert len({place.json("show", run)["socket"] for run in ids}) == len(ids)
    assert _states(place.json("wait", "demo")) == ["succeeded"] * 3
    shown = place.json("show", ids[2])
    assert (shown["group"], shown["step"]) == (group, "evaluate")
    log = place.cli("logs", group)
    out = place.project / "out"
    assert f"['{out}/step-3']\n" in log.stdout
    assert f"['{out}/step-2', '0.5']" in log.stdout
    assert log.stderr.count("--- step ") == 3
    assert [run["id"] for run in place.json("ps")["runs"]] == ids


def test_a_service_of_a_later_step_has_the_outputs_of_earlier_ones(place: Place) -> None:
    serve = "echo serves $0 in $LOGGED; exec sleep 600"
    server = {
        "launcher": "command",
        "command": ["bash", "-c", serve, "{steps.train.checkpoint}"],
        "ready": {"log": "^serves "},
    }
    steps = {
        "train": {"script": "train.py", "recovery": {"checkpoint": "out/step-*"}},
        "evaluate": {
            "script": "evaluate.py",
            "env": {"LOGGED": "{steps.train.run_dir}"},
            "services": {"server": server},
        },
    }
    started = place.json("run", _steps(place, steps=steps))
    train, evaluate = (step["id"] for step in started["steps"])
    assert _states(place.json("wait", "demo")) == ["succeeded"] * 2
    line = f"serves {place.project}/out/step-3 in {place.node(train)}\n"
    assert line in place.cli("logs", evaluate, "--service", "server").stdout
    again = place.json("rerun", evaluate)["id"]
    assert place.json("wait", again)["state"] == "succeeded"
    assert line in place.cli("logs", again, "--service", "server").stdout


def test_a_service_may_name_outputs_of_earlier_steps_alone(place: Place) -> None:
    server = {"launcher": "command", "command": ["serve", "{steps.evaluate.log}"]}
    steps = {
        "train": {"script": "train.py", "services": {"server": server}},
        "evaluate": {"script": "evaluate.py"},
    }
    refused = place.cli("run", "--dry-run", _steps(place, steps=steps), code=2).stderr
    assert "`{steps.evaluate.log}`: `train` does not wait for `evaluate`" in refused


def test_a_rerun_of_the_group_goes_on_from_the_step_that_failed(place: Place) -> None:
    job = _steps(place)
    place.write("export.py", "raise SystemExit(3)")
    first = place.json("run", job)["group"]
    shown = place.json("wait", first, code=1)
    assert (shown["state"], _states(shown)) == ("failed", ["succeeded", "failed", "failed"])
    assert shown["steps"][2]["attempts"] == []
    place.write("export.py", SHOW)
    again = place.json("rerun", "demo", "--current")
    assert [step["step"] for step in again["steps"]] == ["export", "evaluate"]
    assert _states(place.json("wait", again["group"])) == ["succeeded"] * 2
    assert f"{place.project}/out/step-2" in place.cli("logs", again["group"]).stdout
    assert "nothing is left to run" in place.cli("rerun", "demo").stderr
    single = place.json("rerun", again["steps"][0]["id"], "--current")["id"]
    place.cli("wait", single)
    assert f"{place.project}/out/step-3" in place.cli("logs", single).stdout


def test_a_step_whose_input_is_missing_fails_and_says_what_was_not_there(place: Place) -> None:
    group = place.json("run", _steps(place, train="print('saves nothing')"))["group"]
    shown = place.json("wait", group, code=1)
    assert _states(shown) == ["succeeded", "failed", "failed"]
    what = shown["steps"][1]["failure"]["what"]
    assert "`{steps.train.checkpoint}` of " in what
    assert "no whole checkpoint matches `out/step-*`" in what


def test_a_stop_of_the_group_takes_out_all_steps(place: Place) -> None:
    started = place.json("run", _steps(place, train="import time\ntime.sleep(600)"))
    group = started["group"]
    wait_for(lambda: _states(place.json("show", group))[0] == "running", "a first step")
    assert _states(place.json("stop", group)) == ["stopped"] * 3
    assert place.json("show", group)["steps"][1]["attempts"] == []
    assert place.json("show", group)["state"] == "stopped"


def test_a_step_that_cannot_be_started_leaves_none_running(place: Place) -> None:
    job = _steps(place, train="import time\ntime.sleep(600)", workdir=".")
    steps = json.loads((place.project / job).read_text())
    steps["steps"]["evaluate"]["env_from"] = ["ABSENT_TOKEN"]
    place.write(job, json.dumps(steps))
    error = place.cli("run", job, code=2).stderr
    assert "ABSENT_TOKEN" in error
    assert {run["state"] for run in place.json("ps")["runs"]} <= {"stopped"}


def test_steps_after_one_whose_supervisor_was_killed_do_not_begin_and_can_be_run_again(
    place: Place,
) -> None:
    waits = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)\n"
    started = place.json("run", _steps(place, train=waits + TRAIN))
    group, first = started["group"], started["steps"][0]["id"]
    shown = place.json("show", first)
    last = place.start(place.job("print('begun')", name="last"), "--after-any", first)
    os.kill(shown["pids"]["supervisor"], signal.SIGKILL)
    wait_for(
        lambda: "processes are left" in str(place.json("show", last).get("waits_for")),
        "a wait for what is left",
    )
    wait_for(
        lambda: _states(place.json("show", group))[1:] == ["failed"] * 2, "an end of both steps"
    )
    place.cli("stop", group)
    ends = place.json("show", group)
    assert "ended: lost" in ends["steps"][1]["failure"]["what"]
    assert place.json("wait", last)["state"] == "succeeded"
    place.write("go", "")
    again = place.json("rerun", group, "--current")
    assert [step["state"] for step in place.json("wait", again["group"])["steps"]] == [
        "succeeded"
    ] * 3
