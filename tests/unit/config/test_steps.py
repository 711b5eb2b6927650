"""`steps:` of a job file: their order, the keys they share, and what is refused at which line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.config.resolve import Flags, SeveralJobs, resolve_file, resolve_steps
from safelaunch.errors import ConfigError
from safelaunch.plan.serialize import freeze, plan_json, thaw
from safelaunch.plan.steps import step_plan

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import Plan

FILE = """\
name: demo
launcher: python
profile: cpu
steps:
  evaluate: {script: t.py, after: export, args: {best: "{steps.train.checkpoint.lowest.loss}"}}
  train: {script: t.py, after: [], recovery: {checkpoint: "out/*"}}
  export:
    script: t.py
    after: [train]
    args: ["--from={steps.train.checkpoint}", "${steps.train.x}"]
    env: {LOG: "{steps.train.log}"}
"""


def plans(folder: Path, text: str, *sets: str) -> dict[str, Plan]:
    (folder / "t.py").touch()
    (folder / "job.yaml").write_text(text)
    _, steps = resolve_steps("job.yaml", Flags(sets=sets), str(folder))
    return {step.name: step_plan(step, {s.name: s.name for s in steps}) for step in steps}


def test_steps_come_in_an_order_in_which_each_is_after_those_it_waits_for(tmp_path: Path) -> None:
    steps = plans(tmp_path, FILE)
    assert list(steps) == ["train", "export", "evaluate"]
    assert [plan.name for plan in steps.values()] == ["demo-train", "demo-export", "demo-evaluate"]
    assert [str(run) for run in steps["evaluate"].after] == ["export has succeeded"]
    assert steps["train"].profile == "cpu"


def test_outputs_of_earlier_steps_are_late_values_also_in_a_recorded_plan(tmp_path: Path) -> None:
    plan = plans(tmp_path, FILE)["export"]
    for own in (plan, thaw(freeze(plan))):
        node = plan_json(own)["nodes"][0]
        assert node["argv"][-2:] == ["--from=<steps.train.checkpoint>", "${steps.train.x}"]
        assert node["env"]["LOG"]["value"] == "<steps.train.log>"
        assert "'--from=<steps.train.checkpoint>'" in node["script"]


def test_a_step_without_after_waits_for_the_one_before_in_the_file(tmp_path: Path) -> None:
    text = "launcher: python\nscript: t.py\nsteps: {a: {}, b: {}, c: {after: []}}\n"
    steps = plans(tmp_path, text)
    assert {name: len(plan.after) for name, plan in steps.items()} == {"a": 0, "b": 1, "c": 0}


def test_a_setting_is_for_all_steps_or_for_one(tmp_path: Path) -> None:
    steps = plans(tmp_path, FILE, "env.A=1", "steps.train.args.x=2")
    assert all(plan.nodes[0].env["A"].value == "1" for plan in steps.values())
    assert steps["train"].nodes[0].argv[-2:] == ("--x", "2")


def test_a_file_with_steps_is_no_single_job(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(FILE)
    with pytest.raises(SeveralJobs, match="this file has `steps`"):
        resolve_file("job.yaml", Flags(), str(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "where", "message"),
    [
        ("after: []", "after: evaluate", "5:35", "for each other: evaluate -> export -> train"),
        ("after: export", "after: exprot", "5:35", "no step `exprot`"),
        ("after: []", "after: train", "6:32", "wait for each other: train -> train"),
        ("after: [train]", "after: []", "10:12", "`export` does not wait for `train`"),
        ("{steps.train.log}", "{steps.train.logs}", "11:16", "is no output of a step"),
        ("{steps.train.log}", "{steps.tran.log}", "11:16", "no step `tran`"),
        (
            """recovery: {checkpoint: "out/*"}""",
            "log: l",
            "10:12",
            "does not say where its checkpo",
        ),
        (
            'env: {LOG: "{steps.train.log}"}',
            'setup: "{steps.train.log}"',
            "11:12",
            "in `setup` is not replaced",
        ),
        ("train: {", "train: {steps: {}, ", "6:11", "unknown key `steps`"),
        ("train: {", "train: {name: x, ", "6:11", "unknown key `name`"),
        ("train: {", "train-1: {", "6:3", "is no name of a step"),
        ("name: demo", f"name: {'d' * 41}", "5:13", "a name has at most 41 characters"),
    ],
)
def test_a_wrong_step_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, where: str, message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        plans(tmp_path, FILE.replace(old, new, 1))
    assert (error.value.where, message in error.value.message) == (f"job.yaml:{where}", True)


@pytest.mark.parametrize(
    ("keys", "engine", "message"),
    [
        ("container: {image: a/b}", None, "a job in a container cannot wait"),
        ("ray: {address: 'http://h:1'}", "ray", "ray starts a job at once"),
    ],
)
def test_steps_are_refused_where_nothing_can_wait(
    tmp_path: Path, keys: str, engine: str | None, message: str
) -> None:
    (tmp_path / "t.py").touch()
    text = f"launcher: python\nprofile: cpu\nscript: t.py\n{keys}\nsteps: {{a: {{}}, b: {{}}}}\n"
    (tmp_path / "job.yaml").write_text(text)
    _, steps = resolve_steps("job.yaml", Flags(engine=engine), str(tmp_path))
    assert step_plan(steps[0], {}).name == "job-a"
    with pytest.raises(ConfigError, match=message):
        step_plan(steps[1], {"a": "a"})
