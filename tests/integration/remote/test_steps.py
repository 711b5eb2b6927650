"""`remote` of a file with `steps:` over two hosts: train on both, then export and evaluate."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from support.ssh import network_namespaces
from support.workspace import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from support.ssh.network_namespaces import Lan
    from support.workspace import Place

WHY_NOT = network_namespaces.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
TRAIN = """
import json, os, pathlib
for step, loss in enumerate((0.9, 0.3, 0.5), 1):
    folder = pathlib.Path(f"out/step-{step}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.json").write_text(json.dumps({"loss": loss}))
    print(f"step {step}/3 loss: {loss}", flush=True)
"""
EXPORT = """
import pathlib, shutil, sys
assert pathlib.Path(sys.argv[1]).is_dir(), sys.argv[1]
shutil.copytree(sys.argv[1], "exported", dirs_exist_ok=True)
"""
EVALUATE = "import os, sys\nprint('rank', os.environ['RANK'], 'evaluates', sys.argv[1:])\n"
BOTH_HOSTS = ["gpu1", "gpu2"]


def _steps(place: Place, export: str) -> str:
    for name, text in (("train", TRAIN), ("export", export), ("evaluate", EVALUATE)):
        place.write(f"{name}.py", text)
    ranks = {"launcher": "torchrun", "start": "direct", "processes": 1, "nodes": 2}
    steps = {
        "train": {
            **ranks,
            "script": "train.py",
            "hosts": BOTH_HOSTS,
            "recovery": {"checkpoint": "out/step-*"},
        },
        "export": {
            "launcher": "python",
            "script": "export.py",
            "hosts": ["gpu1"],
            "args": ["{steps.train.checkpoint.lowest.loss}"],
        },
        "evaluate": {
            "launcher": "python",
            "script": "evaluate.py",
            "hosts": ["gpu1"],
            "env": {"RANK": "0"},
            "args": ["{steps.train.checkpoint}", "{steps.export.run_dir}"],
        },
    }
    job = {"name": "demo", "profile": "cpu", "python": sys.executable, "steps": steps}
    place.write("steps.yaml", json.dumps(job))
    return "steps.yaml"


def _outputs(net: Lan) -> Path:
    return net.hosts[0].home("root") / "safelaunch" / "project"


def test_train_export_and_evaluate_run_over_two_hosts_and_again_from_the_step_that_failed(
    far: Place, net: Lan
) -> None:
    job = _steps(far, "raise SystemExit(3)")
    refused = far.cli("remote", job, "--set", "steps.export.hosts=[gpu3]", code=2).stderr
    assert "`demo-export` is on gpu3, and waits for `train`, which is on gpu1 and gpu2" in refused
    first = far.json("remote", job, "--yes")
    shown = far.json("wait", first["group"], code=1)
    assert [step["state"] for step in shown["steps"]] == ["succeeded", "failed", "failed"]
    assert [node["state"] for node in shown["steps"][0]["nodes"]] == ["succeeded"] * 2
    far.write("export.py", EXPORT)
    again = far.json("rerun", "demo", "--current")
    assert [step["step"] for step in again["steps"]] == ["export", "evaluate"]
    shown = far.json("wait", again["group"])
    assert [step["state"] for step in shown["steps"]] == ["succeeded"] * 2
    project = _outputs(net)
    assert json.loads((project / "exported/metrics.json").read_text()) == {"loss": 0.3}
    run_dir = shown["steps"][0]["run_dir"]
    log = far.cli("logs", again["steps"][1]["id"]).stdout
    assert f"rank 0 evaluates ['{project}/out/step-3', '{run_dir}']" in log
    shutil.rmtree(project / "out")


def test_steps_on_hosts_that_a_killed_start_has_left_out_are_started_by_rerun_and_by_its_key(
    far: Place,
) -> None:
    job = _steps(far, EXPORT)
    words = ("remote", "--no-check", "--yes", job, "--id", "ci-1")
    client = far.popen(*words)
    # all of the first step is recorded, and the second has not begun
    wait_for(lambda: list(far.home.glob("runs/demo-train-*/node-1/run.json")), "a first step")
    client.send_signal(signal.SIGKILL)
    client.wait()
    shown = far.json("show", "demo")
    assert [step["step"] for step in shown["steps"]] == ["train", "export", "evaluate"]
    assert shown["steps"][2]["state"] == "lost"
    text = (far.project / job).read_text()
    far.write(job, text.replace("lowest", "highest"))
    refused = far.cli("rerun", "demo", "--yes", code=3).stderr
    assert f"is not the one with which {shown['group']} was started" in refused
    far.write(job, text)
    again = far.json("rerun", "demo", "--yes")
    ids = [step["id"] for step in shown["steps"]]
    assert (again["group"], [step["id"] for step in again["steps"]]) == (shown["group"], ids)
    assert [step["state"] for step in far.json("wait", "demo")["steps"]] == ["succeeded"] * 3
    last = far.json(*words)
    assert (last["group"], last["is_new"]) == (shown["group"], False)
    events = far.cli("events", "demo", "--json").stdout.splitlines()
    lines = [json.loads(line) for line in events]
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    ends = [line["step_name"] for line in lines if line["event"] == "end"]
    assert ends == ["train", "export", "evaluate"]
    assert len(far.json("ps")["runs"]) == len(ids)
