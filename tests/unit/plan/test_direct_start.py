"""Which jobs start their ranks without the launcher, and why others do not."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from support import cli_process
from support.project import TORCHRUN, Project

from safelaunch import launchers
from safelaunch.cli.plan_text.plan import print_plan
from safelaunch.config.resolve import Flags
from safelaunch.errors import StartError
from safelaunch.launchers import direct as torch_direct
from safelaunch.launchers.accelerate import direct as accelerate_direct
from safelaunch.plan import direct

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from safelaunch.model import Plan

VERSIONS = {"torch": "2.13.0+cpu", "accelerate": "1.15.0", "old_rtx40": "no"}
JOB = {"launcher": "torchrun", "start": "direct", "script": "train.py", "processes": 2}
ACCELERATE: dict[str, Any] = {"launcher": "accelerate"}
HOSTS: dict[str, Any] = {"hosts": ["a", "b"]}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def planned(project: Project, flags: Flags | None = None, **keys: Any) -> Plan:
    shown = {name: value for name, value in {**JOB, **keys}.items() if value is not None}
    return project.plan(json.dumps(shown), flags)


def is_direct(plan: Plan) -> bool:
    kinds = {node.ranks is not None for node in plan.nodes}
    assert len(kinds) == 1, "nodes that are started in two ways do not meet"
    return kinds == {True}


def reason(plan: Plan) -> str:
    """Return why the launcher starts the ranks of a plan."""
    assert not is_direct(plan)
    (note,) = (note for note in plan.notes if note.startswith(direct.BY_LAUNCHER))
    return note.removeprefix(f"{direct.BY_LAUNCHER}: ")


def decided(plan: Plan, *versions: dict[str, str]) -> tuple[bool, str]:
    """Return whether versions let a plan be started directly, and why not."""
    result, reasons = direct.decide(plan, versions or [VERSIONS] * len(plan.nodes))
    return is_direct(result), reasons[0].removeprefix(f"{direct.BY_LAUNCHER}: ") if reasons else ""


def variables(plan: Plan, **versions: str) -> dict[str, str]:
    result, _ = direct.decide(plan, [{**VERSIONS, **versions}])
    ranks = result.nodes[0].ranks
    assert ranks is not None
    return {var.name: str(var.value) for var in ranks.variables}


# -- who asks for it -------------------------------------------------------------------------------


def test_without_a_word_of_it_the_launcher_starts_the_ranks(project: Project) -> None:
    plan = planned(project, start=None)
    assert (is_direct(plan), plan.notes) == (False, ())


def test_the_flag_beats_the_job(project: Project) -> None:
    assert is_direct(planned(project, Flags(direct=True), start="launcher"))


def test_a_host_decides_for_jobs_that_do_not_say(project: Project) -> None:
    project.write("hosts: {localhost: {start: direct}}\n", "hosts.yaml")
    flags = Flags(hosts_file="hosts.yaml")
    assert is_direct(planned(project, flags, start=None))
    assert not is_direct(planned(project, flags, start="launcher"))


def test_nodes_are_all_started_as_the_one_that_cannot_be_direct(project: Project) -> None:
    project.write("hosts:\n  a: {start: direct}\n  b: {}\n", "hosts.yaml")
    plan = planned(project, Flags(hosts_file="hosts.yaml"), start=None, **HOSTS)
    assert reason(plan) == "as on b"


# -- what only the launcher can do -----------------------------------------------------------------


def table(name: str) -> Any:
    flags = launchers.load(name).FLAGS
    assert flags is not None
    return flags


UNKNOWN = {
    "torchrun": torch_direct.RENDEZVOUS_FLAGS
    | torch_direct.IGNORED_FLAGS
    | {"role", "no_python", "help"},
    "accelerate": accelerate_direct.FLAGS | torch_direct.IGNORED_FLAGS | {"config_file", "help"},
}
OTHERS = [
    (launcher, name)
    for launcher, allowed in UNKNOWN.items()
    for name in sorted(table(launcher).names - allowed - table(launcher).owned.keys())
    if "secret" not in name  # which no job file may have
]


@pytest.mark.parametrize(("launcher", "name"), OTHERS)
def test_a_flag_without_a_row_is_left_to_the_launcher(
    launcher: str, name: str, project: Project
) -> None:
    value = ["1"] if name in table(launcher).valued else []
    plan = planned(project, launcher=launcher, launcher_args=[f"--{name}", *value])
    assert reason(plan) == f"`--{name}` works in the launcher only"


REASONS: dict[str, tuple[dict[str, Any], str]] = {
    "restarts by the agent": ({"launcher_args": ["--max_restarts", "2"]}, "`recovery:` restarts"),
    "a word that is no number": ({"launcher_args": ["--monitor_interval", "x"]}, "is no number"),
    "a value like a flag": ({"launcher_args": ["--rdzv_id", "-x"]}, "`-x` works in the launcher"),
    "one dash": ({"launcher_args": ["-rdzv_id", "x"]}, "`-rdzv_id` works in the launcher"),
    "two spellings in one": (
        ACCELERATE | {"launcher_args": ["--main_process-port", "29411"]},
        "`--main_process-port` works in the launcher only",
    ),
    "another rendezvous": ({"launcher_args": ["--rdzv_backend", "etcd"]}, "needs the launcher"),
    "no endpoint": ({"launcher_args": ["--rdzv_endpoint", "a"]}, "no address with a port"),
    "any port": ({"launcher_args": ["--master_port", "0"]}, "no address with a port"),
    "no program for a module": (
        {"launcher_args": ["--no_python"], "module": "a", "script": None},
        "refuses `--no_python`",
    ),
    "no program for a local rank": (
        {"launcher_args": ["--no_python"], "version": "launch"},
        "refuses `--no_python`",
    ),
    "two dashes first": ({"args": ["--", "a"]}, "reads a `--`"),
    "a Python of the prefix": ({"prefix": ["uv", "run"]}, "`uv` chooses the Python"),
    "another prefix": ({"prefix": ["nsys", "profile"]}, "`nsys` stands before the launcher"),
    "a variable of torchrun": ({"env": {"PET_TEE": "3"}}, "reads PET_TEE"),
    "one of the caller": ({"env_from": ["PET_TEE"]}, "reads PET_TEE"),
    "all of the caller's": ({"inherit": ["PET_*"]}, "reads PET_*"),
    "one of setup": ({"setup": ["export PET_TEE=3"]}, "reads PET_*, which `setup` has"),
    "a variable of the agent": (
        {"env": {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}},
        "reads TORCHELASTIC_ENABLE_FILE_TIMER",
    ),
    "no number of threads": ({"env": {"OMP_NUM_THREADS": None}}, "OMP_NUM_THREADS, which the job"),
    "another folder of packages": ({"env": {"PYTHONUSERBASE": "/u"}}, "may choose other packages"),
    "another path in setup": ({"setup": ["export PYTHONPATH=/x"]}, "may choose other packages"),
    "a script in setup": ({"setup": ["module load cuda\nsource env.sh"]}, "may choose other"),
    "an option of Python": ({"python_options": ["-W", "ignore", "-sE"]}, "`-sE` may choose"),
    "DeepSpeed": ({"launcher": "deepspeed"}, "does not know how deepspeed starts"),
    "plain Python": ({"launcher": "python", "processes": None}, "one process here"),
    "one process": (ACCELERATE | {"processes": 1}, "one process here"),
    "a config file": (ACCELERATE | {"launcher_args": ["--config_file", "a.yaml"]}, "reads a.yaml"),
    "fp8": (ACCELERATE | {"mixed_precision": "fp8"}, "settings of fp8"),
    "FSDP beside one CPU process": (
        ACCELERATE | {"processes": 1, "profile": "cpu", "launcher_args": ["--use_fsdp"]},
        "refuses another kind of start",
    ),
    "both kinds": (
        ACCELERATE | {"launcher_args": ["--use_fsdp", "--use_deepspeed"]},
        "`--use_fsdp` works in the launcher only",
    ),
    "a flag of FSDP without it": (
        ACCELERATE | {"launcher_args": ["--fsdp_offload_params", "true"]},
        "`--fsdp_offload_params` works in",
    ),
    "a mode that is none": (ACCELERATE | {"launcher_args": ["--dynamo_mode", "x"]}, "no `--dynamo"),
    "a backend of one release": (
        ACCELERATE | {"launcher_args": ["--dynamo_backend", "ipex"]},
        "is not one that accelerate has everywhere",
    ),
    "threads in another way": (ACCELERATE | {"env": {"OMP_NUM_THREADS": "4,2"}}, "in its own way"),
    "DeepSpeed's launcher": (
        ACCELERATE | HOSTS | {"launcher_args": ["--use_deepspeed"]},
        "DeepSpeed's own launcher",
    ),
    "GPUs of other nodes": (HOSTS | {"processes": None, "gpus": "auto"}, "are not counted here"),
    "c10d of several nodes": (
        HOSTS | {"launcher_args": ["--rdzv_backend=c10d", "--rdzv_endpoint=a:1"]},
        "`--rdzv_backend c10d` needs the launcher on several nodes",
    ),
}


@pytest.mark.parametrize("what", REASONS)
def test_what_only_the_launcher_can_do_is_left_to_it(what: str, project: Project) -> None:
    keys, text = REASONS[what]
    assert text in reason(planned(project, **keys))


DIRECT: dict[str, dict[str, Any]] = {
    "a prefix that becomes the launcher": {"prefix": ["numactl", "-N", "0"]},
    "an environment that is activated": {"setup": [". ~/env/bin/activate", "conda activate rl"]},
    "a rendezvous of one node": {"launcher_args": ["--standalone"]},
    "an option that changes no packages": {"python_options": ["-X", "faulthandler", "-O"]},
    "a GPU for each process": {"processes": None, "gpus": "auto"},
    "several nodes": HOSTS,
    "several nodes of accelerate": ACCELERATE | HOSTS,
    "DeepSpeed without its launcher": ACCELERATE
    | HOSTS
    | {"launcher_args": ["--use_deepspeed", "--deepspeed_multinode_launcher=standard"]},
    "threads of a number": ACCELERATE | {"env": {"OMP_NUM_THREADS": "4"}},
}


@pytest.mark.parametrize("what", DIRECT)
def test_what_the_tables_know_is_started_directly(what: str, project: Project) -> None:
    plan = planned(project, **DIRECT[what])
    assert (decided(plan), plan.notes) == ((True, ""), ())


# -- the versions of a start -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        ({"torch": "2.3.1"}, "torch 2.3.1 was not tried"),
        ({"torch": "2.4.0"}, ""),
        ({"torch": "2.13.9+cu130"}, ""),
        ({"torch": "2.14.0"}, "torch 2.14.0 was not tried"),
        ({"torch": "2.14.0.dev20261101+cu130"}, "was not tried"),
        ({"torch": "2.10.0a0+b4e4ee8.nv25.12"}, "2.10.0a0+b4e4ee8.nv25.12 is no release"),
        ({"torch": "2.7.0a0+79aa17489c.nv25.04"}, ""),
        ({"torch": "git-abc"}, "torch git-abc was not tried"),
        ({"accelerate": "0.34.2"}, "accelerate 0.34.2 was not tried"),
        ({"accelerate": "1.16.0.dev0"}, "accelerate 1.16.0.dev0 was not tried"),
        ({"old_rtx40": "yes"}, ""),
    ],
)
def test_versions_that_were_not_tried_are_left_to_the_launcher(
    versions: dict[str, str], text: str, project: Project
) -> None:
    plan = planned(project, **ACCELERATE, profile="cpu")
    is_started, why = decided(plan, {**VERSIONS, **versions})
    assert (is_started, text in why) == (not text, True), why


def test_packages_that_are_not_found_are_left_to_the_launcher(project: Project) -> None:
    plan = planned(project)
    assert decided(plan, {}) == (False, "no torch was found in the job's interpreter")
    assert direct.packages(plan.nodes[0]) == ("torch",)


def test_old_drivers_of_rtx_40_cards_are_left_to_accelerate_alone(project: Project) -> None:
    old = {**VERSIONS, "old_rtx40": "yes"}
    assert "NCCL_P2P_DISABLE" in decided(planned(project, **ACCELERATE), old)[1]
    assert decided(planned(project), old) == (True, "")


def test_a_node_with_other_versions_decides_for_all(project: Project) -> None:
    plan = planned(project, **HOSTS)
    is_started, why = decided(plan, VERSIONS, {"torch": "2.3.0"})
    assert (is_started, why.startswith("b: torch 2.3.0")) == (False, True)


def test_a_node_by_hand_is_refused_where_the_others_would_wait_for_it(project: Project) -> None:
    args = ["--master_addr", "a", "--master_port", "29411"]
    plan = planned(project, nodes=2, node_rank=1, launcher_args=args)
    assert decided(plan) == (True, "")
    with pytest.raises(StartError, match="torch 2\\.3\\.0 was not tried"):
        direct.decide(plan, [{"torch": "2.3.0"}])


def test_variables_are_those_of_the_version(project: Project) -> None:
    plan = planned(project)
    assert "TORCHELASTIC_SIGNALS_TO_HANDLE" in variables(plan, torch="2.10.0")
    assert "TORCHELASTIC_SIGNALS_TO_HANDLE" not in variables(plan, torch="2.9.1")
    plan = planned(project, **ACCELERATE, launcher_args=["--use_fsdp"])
    assert variables(plan, accelerate="1.12.0")["FSDP_MIN_NUM_PARAMS"] == "100000000.0"
    assert variables(plan, accelerate="1.13.0")["FSDP_MIN_NUM_PARAMS"] == "100000000"
    assert "FSDP_VERSION" not in variables(plan, accelerate="1.5.2")


def test_a_flag_that_a_release_does_not_have_yet_is_left_to_it(project: Project) -> None:
    args = ["--use_fsdp", "--fsdp_version", "2"]
    plan = planned(project, **ACCELERATE, launcher_args=args)
    assert decided(plan, {**VERSIONS, "accelerate": "1.6.0"}) == (True, "")
    is_started, why = decided(plan, {**VERSIONS, "accelerate": "1.5.2"})
    assert (is_started, why) == (False, "accelerate 1.5.2 was not tried (from 1.6 was)")


# -- what a dry-run shows --------------------------------------------------------------------------


def dry_run(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    project.write(json.dumps(JOB | {"start": "launcher"}))
    return cli_process.run(["run", "--dry-run", *words, "job.yaml"], os.environ, project.folder, 60)


def test_the_script_of_a_dry_run_starts_the_ranks(project: Project) -> None:
    shown = dry_run(project, "--direct", "--script").stdout
    assert "ranks/start_ranks.py' \\\n  --ranks=2 \\\n  --grace=5 \\\n  --python \\\n" in shown
    assert "start_ranks" not in dry_run(project, "--script").stdout


def test_the_json_of_a_dry_run_has_the_words_and_variables_of_ranks(project: Project) -> None:
    (node,) = json.loads(dry_run(project, "--direct", "--json").stdout)["nodes"]
    assert node["ranks"]["argv"] == ["<python>", "-u", "train.py"]
    assert (node["ranks"]["count"], node["ranks"]["first"]) == ("2", 0)
    assert node["ranks"]["env"]["WORLD_SIZE"] == "2"
    assert node["argv"][1:3] == ["-m", "torch.distributed.run"]


def test_a_dry_run_says_where_a_value_came_from_and_why_the_launcher_starts(
    project: Project,
) -> None:
    assert "start: direct" in dry_run(project, "--direct", "--explain").stdout
    project.write(json.dumps(JOB | {"launcher_args": ["--tee", "3"]}), "tee.yaml")
    words = ["run", "--dry-run", "tee.yaml"]
    done = cli_process.run(words, os.environ, project.folder, 60)
    assert f"{direct.BY_LAUNCHER}: `--tee` works in the launcher only" in " ".join(
        (done.stdout + done.stderr).split()
    )


def test_a_dry_run_shows_what_runs_in_place_of_the_launchers_line(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    print_plan(project.plan(TORCHRUN + "start: direct\n"))
    shown = capsys.readouterr().out
    assert "-m torch.distributed.run" in shown
    assert "2 ranks, started without the launcher (`--script` shows how)\n  '<python>' -u" in shown
    assert "WORLD_SIZE=2" in shown


def test_a_dry_run_says_nothing_of_it_where_the_launcher_starts_the_ranks(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    print_plan(project.plan(TORCHRUN))
    assert "without the launcher" not in capsys.readouterr().out
