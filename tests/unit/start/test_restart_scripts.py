from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from support.project import PYTHON, TORCHRUN, Project, script, shown

from safelaunch.cli.plan_text.plan import print_supervision
from safelaunch.config.resolve import Flags
from safelaunch.errors import ConfigError
from safelaunch.model import Plan, Slot, Success
from safelaunch.plan.build import bind, resume
from safelaunch.plan.serialize import freeze, plan_json, thaw
from safelaunch.start.scripts import restart_scripts

if TYPE_CHECKING:
    from pathlib import Path


CARDS = TORCHRUN + "profile: rtx5090\ngpus: 2\n"
SMOKE = TORCHRUN + "success: {min_steps: 100}\nsmoke: {processes: 1, success: {min_steps: 2}}\n"
FACTS = {Slot.PYTHON: "/opt/env/bin/python", Slot.PREFIX: "/opt/env", Slot.THREADS: "7"}
WHILE_IT_RUNS = """
while it runs
restarts: at most 3 within 12h, by failure class; the first after 30s, then twice as long, up to 10m
a restart runs train.py --r 1
ladder: an illegal memory access adds NCCL_CUMEM_HOST_ENABLE=0, \
then NCCL_P2P_DISABLE=1+NCCL_IB_DISABLE=1, then NCCL_SHM_DISABLE=1, then NCCL_DEBUG=INFO
hang: stop after 10 median steps without progress, at least 5m; 3h until two steps are known
stopped after 1h30m (max_duration)
succeeded only with 5 steps"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


# -- a smoke run -----------------------------------------------------------------------------------


def test_a_smoke_run_lays_its_block_over_the_job(project: Project) -> None:
    plan = project.plan(SMOKE, Flags(smoke=True))
    assert (plan.topology.processes, plan.supervision.smoke) == (1, True)


def test_without_the_flag_the_smoke_block_changes_nothing(project: Project) -> None:
    plan = project.plan(SMOKE)
    assert (plan.topology.processes, plan.supervision.smoke, plan.name) == (2, False, "job")


def test_a_flag_beats_the_smoke_block(project: Project) -> None:
    assert project.plan(SMOKE, Flags(smoke=True, sets=("processes=3",))).topology.processes == 3


def test_a_smoke_run_is_told_apart_by_its_name(project: Project) -> None:
    assert project.plan("name: " + "n" * 41 + "\n" + SMOKE, Flags(smoke=True)).name == (
        "n" * 35 + "-smoke"
    )


def test_a_smoke_block_may_name_its_run(project: Project) -> None:
    assert project.plan(PYTHON + "smoke: {name: brief}\n", Flags(smoke=True)).name == "brief"


def test_a_smoke_run_need_not_leave_the_jobs_artifacts(project: Project) -> None:
    text = "success: {artifacts: out/*.pt, min_steps: 9}\nsmoke: {success: {min_steps: 2}}\n"
    assert project.plan(PYTHON + text, Flags(smoke=True)).supervision.success == Success(
        min_steps=2
    )


def test_a_smoke_run_without_a_block_shows_how_one_looks(project: Project) -> None:
    error = project.refused(PYTHON, Flags(smoke=True))
    assert (error.message, "success: {min_steps: 2}" in error.hint) == (
        "`--smoke` needs a `smoke:` block in the job",
        True,
    )


# -- later attempts --------------------------------------------------------------------------------


def words(project: Project, text: str) -> list[str]:
    """Return the program's own words of a later attempt."""
    plan = resume(project.plan(text))
    argv = shown(plan)
    return argv[argv.index("train.py") + 1 :]


def test_resume_args_are_laid_over_a_mapping(project: Project) -> None:
    text = PYTHON + "args: {a: 1, fresh: true, b: 2}\n"
    text += "recovery: {resume_args: {a: 3, fresh: null, resume: true}}\n"
    assert words(project, text) == ["--a", "3", "--b", "2", "--resume"]


def test_resume_args_are_put_behind_a_list(project: Project) -> None:
    text = PYTHON + "args: [--a, 1]\nrecovery: {resume_args: [--resume]}\n"
    assert words(project, text) == ["--a", "1", "--resume"]


def test_resume_args_take_the_form_of_the_launcher(project: Project) -> None:
    text = "launcher: areal\nscript: train.py\nversion: 1\nargs: {a: 1}\n"
    text += "recovery: {resume_args: {recover.mode: auto}}\n"
    assert words(project, text)[:2] == ["a=1", "recover.mode=auto"]


def test_the_first_attempt_has_no_resume_args(project: Project) -> None:
    plan = project.plan(PYTHON + "recovery: {resume_args: {resume: true}}\n")
    assert "--resume" not in shown(plan)


def test_a_job_without_resume_args_cannot_be_resumed(project: Project) -> None:
    plan = project.plan(PYTHON + "recovery: {}\n")
    with pytest.raises(ConfigError, match="does not say how it resumes"):
        resume(plan)


CHECKPOINT = 'recovery: {checkpoint: "out/c-*", resume_args: {resume: "{checkpoint}", b: 2}}\n'


def test_a_resume_shows_where_the_checkpoint_comes(project: Project) -> None:
    assert words(project, PYTHON + CHECKPOINT) == ["--resume", "<checkpoint>", "--b", "2"]


def test_a_checkpoint_may_be_part_of_a_word(project: Project) -> None:
    text = (
        'recovery: {checkpoint: o/*, resume_args: ["--load=f://{checkpoint}/x", "${checkpoint}"]}'
    )
    expected = ["--load=f://<checkpoint>/x", "${checkpoint}"]
    assert words(project, PYTHON + "args: []\n" + text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recovery: {resume_args: {r: '{checkpoint}'}}\n", "without `recovery.checkpoint`"),
        ("args: {a: '{checkpoint}'}\n" + CHECKPOINT, "`{checkpoint}` in `args`"),
        (
            "recovery: {checkpoint: o/*, resume_args: {r: {checkpoint}}}\n",
            'write "{checkpoint}" in quotes',
        ),
    ],
)
def test_a_checkpoint_that_nothing_can_replace_is_refused(
    project: Project, text: str, message: str
) -> None:
    refusal = project.refused(PYTHON + text)
    assert message in f"{refusal.message} {refusal.hint}"


@pytest.mark.parametrize("path", ["/p/out/c-20", "/p/it's $HOME/c 20", "/p/`x`; &*\\/c-20"])
def test_a_later_attempt_gets_the_checkpoint_as_one_word(project: Project, path: str) -> None:
    plan = project.plan(PYTHON + CHECKPOINT)
    again = restart_scripts.spec(plan, "run")
    assert again is not None
    assert again.checkpoint is not None
    script = restart_scripts.scripts(plan, FACTS, again)["again.0.sh"].decode()
    text = script.replace(again.checkpoint, path.replace("'", again.quote))
    argv = shlex.split(text[text.index("exec ") :].replace("\\\n", ""))
    assert argv[argv.index("--resume") :] == ["--resume", path, "--b", "2"]


def test_an_attempt_without_a_checkpoint_has_no_resume_args(project: Project) -> None:
    plan = project.plan(PYTHON + "args: {a: 1}\n" + CHECKPOINT)
    for start in (plan, resume(plan)):
        again = restart_scripts.spec(start, "run")
        assert again is not None
        scripts = restart_scripts.scripts(start, FACTS, again)
        assert scripts["fresh.0.sh"].decode().split("train.py")[-1].split()[1:] == ["--a", "1"]


def names(plan: Plan) -> list[list[str]]:
    return [[var.name for var in rung] for rung in plan.nodes[0].rungs]


def test_the_ladder_starts_without_what_its_steps_name(project: Project) -> None:
    env = project.env(CARDS + "recovery: {ladder: true}\n")
    assert [name for name in env if name.startswith("NCCL_")] == []


def test_the_rungs_are_the_steps_of_the_profile(project: Project) -> None:
    assert names(project.plan(CARDS + "recovery: {ladder: true}\n")) == [
        ["NCCL_CUMEM_HOST_ENABLE"],
        ["NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"],
        ["NCCL_SHM_DISABLE"],
        ["NCCL_DEBUG"],
    ]


def test_a_start_below_the_ladder_is_noted(project: Project) -> None:
    notes = project.plan(CARDS + "recovery: {ladder: true}\n").notes
    assert [note.startswith("started below the ladder") for note in notes] == [True]


def test_a_start_on_a_step_has_the_later_ones_as_rungs(project: Project) -> None:
    plan = project.plan(CARDS + "recovery: {ladder: true}\n", Flags(ladder=3))
    assert names(plan) == [["NCCL_DEBUG"]]


def test_a_step_that_changes_nothing_is_no_rung(project: Project) -> None:
    text = CARDS + "env: {NCCL_CUMEM_HOST_ENABLE: 0}\nrecovery: {ladder: true}\n"
    assert names(project.plan(text))[0] == ["NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"]


def test_the_top_of_a_ladder_turns_debugging_on(project: Project) -> None:
    project.write("ladder: [{NCCL_SHM_DISABLE: 1}]\n", "p.yaml")
    text = TORCHRUN + "profile: ./p.yaml\nrecovery: {ladder: true}\n"
    rungs = project.plan(text).nodes[0].rungs
    assert [(var.name, var.value) for var in rungs[-1]] == [("NCCL_DEBUG", "INFO")]


def test_a_profile_without_the_recovery_ladder_keeps_its_workarounds(project: Project) -> None:
    assert "NCCL_SHM_DISABLE" in project.env(CARDS + "recovery: {}\n")


def rendered(plan: Plan) -> dict[str, str]:
    scripts = restart_scripts.scripts(plan, FACTS, restart_scripts.spec(plan, "job-1"))
    return {name: text.decode() for name, text in scripts.items()}


def test_each_rung_has_a_script_with_the_rungs_below_it(project: Project) -> None:
    scripts = rendered(project.plan(CARDS + "recovery: {ladder: true}\n"))
    exports = {
        n: [v for v in ("CUMEM", "P2P", "SHM", "DEBUG") if f"NCCL_{v}" in t]
        for n, t in scripts.items()
    }
    assert exports == {
        "again.0.sh": [],
        "again.1.sh": ["CUMEM"],
        "again.2.sh": ["CUMEM", "P2P"],
        "again.3.sh": ["CUMEM", "P2P", "SHM"],
        "again.4.sh": ["CUMEM", "P2P", "SHM", "DEBUG"],
    }


def test_a_later_attempt_differs_from_the_start_in_its_port_alone(project: Project) -> None:
    plan = project.plan(TORCHRUN + "recovery: {}\n")
    spec = restart_scripts.spec(plan, "job-1")
    assert spec is not None
    (text,) = rendered(plan).values()
    assert text.replace(spec.token, "23456") == script(bind(plan, {**FACTS, Slot.PORT: "23456"}))


def test_the_token_for_the_port_stands_nowhere_else(project: Project) -> None:
    first = restart_scripts.token(project.plan(PYTHON), "job-1")
    plan = project.plan(TORCHRUN + f"args: [{first}]\n")
    assert restart_scripts.token(plan, "job-1") not in script(plan)


def test_without_recovery_there_are_no_later_scripts(project: Project) -> None:
    assert restart_scripts.spec(project.plan(PYTHON), "job-1") is None


def test_a_plan_with_everything_comes_back_from_its_record(project: Project) -> None:
    text = CARDS + "recovery: {ladder: true, resume_args: {r: 1}, classes: {killed: stop}}\n"
    plan = project.plan(text + "success: {artifacts: x, min_steps: 1}\nhang: {floor: 1m}\n")
    assert thaw(freeze(plan)) == plan


def test_a_plan_of_an_earlier_version_is_still_read(project: Project) -> None:
    record = freeze(project.plan(PYTHON))
    for name in ("supervision", "fingerprint", "resumes", "expected"):
        del record[name]
    assert isinstance(thaw(record), Plan)


def test_a_dry_run_tells_later_attempts_as_data(project: Project) -> None:
    plan = plan_json(project.plan(CARDS + "recovery: {ladder: true, resume_args: {r: 1}}\n"))
    node = plan["nodes"][0]
    assert (
        node["resume_argv"][-2:],
        node["rungs"][0],
        plan["supervision"]["recovery"]["ladder"],
    ) == (
        ["--r", "1"],
        {"NCCL_CUMEM_HOST_ENABLE": "0"},
        True,
    )


def printed_supervision(plan: Plan, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_supervision(plan)
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def test_a_dry_run_says_nothing_of_defaults(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed_supervision(project.plan(PYTHON), capsys) == []


def test_a_dry_run_says_what_happens_while_the_job_runs(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CARDS + "recovery: {ladder: true, budget: 12h, resume_args: {r: 1}}\n"
    text += "hang: {action: stop}\nmax_duration: 90m\nsuccess: {min_steps: 5}\n"
    assert "\n".join(printed_supervision(project.plan(text), capsys)) == WHILE_IT_RUNS


# -- one process, and the fingerprint --------------------------------------------------------------

SINGLE = {
    "python": (PYTHON, "main"),
    "command": ("launcher: command\ncommand: [python3, train.py]\n", "shell"),
    "torchrun with one process": ("launcher: torchrun\nscript: train.py\nprocesses: 1\n", None),
    "accelerate with one": ("launcher: accelerate\nscript: train.py\nprocesses: 1\n", "child"),
    "accelerate with two": ("launcher: accelerate\nscript: train.py\nprocesses: 2\n", None),
    "accelerate with FSDP": (
        "launcher: accelerate\nscript: train.py\nprocesses: 1\nlauncher_args: {use_fsdp: true}\n",
        None,
    ),
    "swift over all cards": ("launcher: swift\ncommand: [sft]\n", "child"),
    "swift with ranks": ("launcher: swift\ncommand: [sft]\nprocesses: 2\n", None),
    "areal's controller": ("launcher: areal\nscript: train.py\nversion: 1\n", "main"),
    "areal's launcher": ("launcher: areal\nscript: train.py\nversion: 1-spmd\n", None),
}


@pytest.mark.parametrize(("text", "single"), SINGLE.values(), ids=SINGLE)
def test_a_plan_knows_where_a_single_process_is(
    text: str, single: str | None, project: Project
) -> None:
    assert project.node(text).single == single


FINGERPRINTS = {
    "transformers": (
        "args: {per_device_train_batch_size: 8, lr: 1}",
        {"per_device_train_batch_size": "8"},
    ),
    "with dashes": ("args: [--num-generations, 4, --x=1]", {"num_generations": "4"}),
    "with an equals sign": ("args: [--num_generations=4]", {"num_generations": "4"}),
    "AReaL": (
        "args: [experiment_name=a, +actor.group_size=2]",
        {"experiment_name": "a", "actor.group_size": "2"},
    ),
    "verl": (
        "args: [actor_rollout_ref.rollout.n=5, other.n=6]",
        {"actor_rollout_ref.rollout.n": "5"},
    ),
    "its own": ("args: {k: 1}\nrecovery: {fingerprint: [k]}", {"k": "1"}),
}


@pytest.mark.parametrize(("text", "values"), FINGERPRINTS.values(), ids=FINGERPRINTS)
def test_the_fingerprint_holds_names_and_batches(
    text: str, values: dict[str, str], project: Project
) -> None:
    plan = project.plan(PYTHON + text + "\n")
    assert plan.fingerprint == {"name": "job", "nodes": "1", "world size": "1", **values}


def test_a_counted_world_size_is_known_at_the_start(project: Project) -> None:
    plan = bind(
        project.plan("launcher: torchrun\nscript: train.py\ngpus: auto\n"), {Slot.GPUS: "4"}
    )
    assert plan.fingerprint["world size"] == "4"
