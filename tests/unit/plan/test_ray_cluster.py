"""The plan of a job with a Ray of its own: what each node runs, and who gets none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.errors import ConfigError
from safelaunch.plan.build import make_plan
from safelaunch.plan.serialize import freeze, plan_json, thaw
from safelaunch.script import paste_line

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import Plan

PROGRAM = "<run-dir>/runtime/safelaunch/runtime/ray_cluster/start_cluster.py"


def plan(folder: Path, engine: str | None = None, **keys: object) -> Plan:
    """Return the plan of a job of verl."""
    own = {"launcher": "ray", "module": "verl.trainer.main_ppo", "ray_cluster": True}
    job = {key: value for key, value in {**own, **keys}.items() if value is not None}
    (folder / "pyproject.toml").touch()
    (folder / "t.py").touch()
    (folder / "t.yaml").write_text(json.dumps(job))
    flags = Flags(engine=engine)
    return make_plan(resolve_file("t.yaml", flags, str(folder)))


def argv(plan: Plan, node: int = 0) -> list[str]:
    return [str(word) for word in plan.nodes[node].argv]


def test_one_machine_starts_ray_waits_and_runs_the_program_behind_it(tmp_path: Path) -> None:
    own = plan(tmp_path, args={"trainer.nnodes": 1})
    assert argv(own) == [
        *("<python>", "-I", "-S", "-B", PROGRAM, "--node=0", "--nodes=1"),
        *("--address=127.0.0.1", "--port=<port>", "--cpus=<threads>", "--"),
        *("<python>", "-m", "verl.trainer.main_ppo", "--trainer.nnodes", "1"),
    ]
    node = own.nodes[0]
    assert str(node.argv[node.program]) == "-m"
    assert str(node.env["RAY_ADDRESS"].value) == "127.0.0.1:<port>"
    assert (node.single, node.processes) == ("main", 1)


def test_of_several_nodes_only_the_first_runs_the_program(tmp_path: Path) -> None:
    own = plan(tmp_path, "slurm", nodes=2, gpus=8)
    assert argv(own, 1)[4:] == [
        *(PROGRAM, "--node=1", "--nodes=2"),
        *("--address=<master-addr>", "--port=<port>", "--cpus=<threads>"),
    ]
    first, second = own.nodes
    assert argv(own)[-2:] == ["-m", "verl.trainer.main_ppo"]
    assert first.env["RAY_ADDRESS"] == second.env["RAY_ADDRESS"]
    assert (first.single, second.single) == ("main", None)


def test_a_prefix_and_resume_args_stay_where_they_are(tmp_path: Path) -> None:
    recovery = {"checkpoint": "out/*", "resume_args": {"resume": "{checkpoint}"}}
    own = plan(tmp_path, prefix=["numactl", "-N", "0"], recovery=recovery)
    assert argv(own)[:4] == ["numactl", "-N", "0", "<python>"]
    again = own.nodes[0].resume_argv
    assert again is not None
    assert [str(word) for word in again][-3:] == [
        "verl.trainer.main_ppo",
        "--resume",
        "<checkpoint>",
    ]
    assert again[: len(own.nodes[0].argv)] == own.nodes[0].argv


def test_areal_learns_the_nodes_and_gpus_that_slurm_is_asked_for(tmp_path: Path) -> None:
    keys = {"launcher": "areal", "module": None, "script": "t.py", "version": "1"}
    own = plan(tmp_path, "slurm", nodes=2, gpus=8, launcher_args={"scheduler": "ray"}, **keys)
    assert argv(own)[-4:] == [
        *("t.py", "scheduler.type=ray", "cluster.n_nodes=2", "cluster.n_gpus_per_node=8"),
    ]


def test_the_plan_survives_its_json_and_the_line_to_paste_starts_ray_first(tmp_path: Path) -> None:
    own = plan(tmp_path)
    assert thaw(json.loads(json.dumps(freeze(own)))) == own
    assert plan_json(own)["nodes"][0]["env"]["RAY_ADDRESS"]["value"] == "127.0.0.1:<port>"
    ray, program = paste_line(own.nodes[0], own.topology).split(" && ")[2:]
    assert ray.endswith('-m ray.scripts.scripts start --head --port="$p"')
    assert 'RAY_ADDRESS=127.0.0.1:"$p"' in program
    assert program.endswith("-m verl.trainer.main_ppo")


@pytest.mark.parametrize(
    ("engine", "keys", "message"),
    [
        (None, {"launcher": "torchrun", "processes": 2}, "launcher `torchrun`, which starts ranks"),
        (
            None,
            {"module": None, "command": ["job", "submit", "--", "python", "t.py"]},
            "`ray job submit` needs a Ray with a dashboard",
        ),
        (None, {"nodes": 2, "node_rank": 0}, "on nodes that are started by hand"),
        ("ray", {"ray": {"address": "http://a:8265"}}, "`ray_cluster` on Ray"),
        (
            "kubernetes",
            {"kubernetes": {"image": "a:1", "workdir": "/w"}},
            "`ray_cluster` on Kubernetes",
        ),
    ],
)
def test_a_job_to_which_it_is_of_no_use_is_refused(
    tmp_path: Path, engine: str | None, keys: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        plan(tmp_path, engine, **keys)
    assert "t.yaml:1:" in str(error.value.where)


def test_several_nodes_without_it_say_what_would_help(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="launcher `ray` runs on one node") as error:
        plan(tmp_path, "slurm", nodes=2, ray_cluster=None)
    assert error.value.hint == "`ray_cluster: true` brings up a Ray on all of them"


def test_settings_of_verl_that_do_not_fit_its_ray_are_named_with_what_does(tmp_path: Path) -> None:
    args = ["trainer.n_gpus_per_node=8", "ray_kwargs.ray_init.num_cpus=64"]
    own = plan(tmp_path, "slurm", nodes=2, gpus=8, args=args)
    nodes, cpus = (warning for warning in own.warnings if "verl" in warning.id)
    assert nodes.message == "verl counts trainer.nnodes=1, and the Ray of this job has 2"
    assert nodes.fix == "args: [trainer.nnodes=2]"
    assert cpus.id == "verl-cpus"
    args = ["trainer.nnodes=2", "trainer.n_gpus_per_node=8"]
    fitting = plan(tmp_path, "slurm", nodes=2, gpus=8, args=args)
    assert [warning for warning in fitting.warnings if "verl" in warning.id] == []
