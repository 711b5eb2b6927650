from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import PYTHON, TORCHRUN, Project, script, shown

from safelaunch.config.resolve import Flags
from safelaunch.model import Slot
from safelaunch.plan import gates
from safelaunch.plan.build import bind
from safelaunch.plan.serialize import freeze, plan_json, thaw

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import Plan

AREAL = "launcher: areal\nscript: train.py\nversion: 1\n"
ACCELERATE = "launcher: accelerate\nscript: train.py\nprocesses: 2\n"
FACTS: dict[Slot, str] = {
    Slot.RUN_ID: "job-1",
    Slot.RUN_DIR: "/run/node-0",
    Slot.PORT: "23456",
    Slot.MASTER_ADDR: "10.0.0.1",
    Slot.INTERFACE: "eth0",
    Slot.PYTHON: "/opt/env/bin/python",
    Slot.PREFIX: "/opt/env",
    Slot.THREADS: "7",
    Slot.GPUS: "4",
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def hosts(project: Project, entry: str) -> Flags:
    project.write(f"hosts: {{localhost: {entry}}}\n", "hosts.yaml")
    return Flags(hosts_file="hosts.yaml")


# -- precedence ------------------------------------------------------------------------------------


def test_a_profile_beats_what_is_built_in(project: Project) -> None:
    project.write("env: {PYTHONUNBUFFERED: 0}\n", "p.yaml")
    assert project.env(PYTHON + "profile: ./p.yaml\n")["PYTHONUNBUFFERED"].value == "0"


def test_a_host_beats_the_profile(project: Project) -> None:
    project.write("env: {A: profile}\n", "p.yaml")
    flags = hosts(project, "{profile: ./p.yaml, env: {A: host}}")
    assert project.env(PYTHON, flags)["A"].value == "host"


def test_a_launchers_default_beats_the_host(project: Project) -> None:
    flags = hosts(project, "{env: {NPROC_PER_NODE: 9}}")
    env = project.env("launcher: swift\ncommand: [sft]\nprocesses: 2\n", flags)
    assert env["NPROC_PER_NODE"].value == "2"


def test_a_cpu_profile_keeps_accelerate_on_the_cpu_under_any_launcher(project: Project) -> None:
    assert project.env(TORCHRUN + "profile: cpu\n")["ACCELERATE_USE_CPU"].value == "true"


def test_a_job_beats_the_launchers_default(project: Project) -> None:
    env = project.env(ACCELERATE + "profile: cpu\nenv: {ACCELERATE_USE_CPU: job}\n")
    assert env["ACCELERATE_USE_CPU"].value == "job"


def test_a_flag_beats_the_job(project: Project) -> None:
    flags = Flags(sets=("env.A=flag",))
    assert project.env(PYTHON + "env: {A: job}\n", flags)["A"].value == "flag"


def test_the_ladder_beats_the_job(project: Project) -> None:
    flags = Flags(ladder=3)
    env = project.env(TORCHRUN + "profile: rtx5090\nenv: {NCCL_SHM_DISABLE: 0}\n", flags)
    assert env["NCCL_SHM_DISABLE"].value == "1"


def test_debug_beats_the_job(project: Project) -> None:
    env = project.env(PYTHON + "env: {NCCL_DEBUG: WARN}\n", Flags(debug=True))
    assert env["NCCL_DEBUG"].value == "INFO"


def test_a_launchers_requirement_beats_the_job(project: Project) -> None:
    env = project.env(AREAL + "env: {NCCL_CUMEM_ENABLE: 1}\n")
    assert env["NCCL_CUMEM_ENABLE"].value == "0"


def test_a_beaten_requirement_is_warned_about_with_the_way_to_insist(project: Project) -> None:
    plan = project.plan(AREAL + "env: {NCCL_CUMEM_ENABLE: 1}\n")
    assert [(w.id, w.where) for w in plan.warnings] == [("overridden-by-launcher", "job.yaml:4:26")]


def test_force_insists(project: Project) -> None:
    text = AREAL + "env: {NCCL_CUMEM_ENABLE: 1}\nforce: [NCCL_CUMEM_ENABLE]\n"
    assert project.env(text)["NCCL_CUMEM_ENABLE"].value == "1"


def test_a_forced_requirement_is_warned_about(project: Project) -> None:
    plan = project.plan(AREAL + "env: {NCCL_CUMEM_ENABLE: 1}\nforce: [NCCL_CUMEM_ENABLE]\n")
    assert [w.id for w in plan.warnings] == ["forced-requirement"]


def test_nproc_per_node_is_kept_from_swift_rollout(project: Project) -> None:
    env = project.env("launcher: swift\ncommand: [rollout]\nenv: {NPROC_PER_NODE: 4}\n")
    assert env["NPROC_PER_NODE"].value is None


def test_a_variable_knows_what_it_beat(project: Project) -> None:
    project.write("env: {A: profile}\n", "p.yaml")
    var = project.env(PYTHON + "profile: ./p.yaml\nenv: {A: job}\n")["A"]
    assert [(b.value, str(b.origin)) for b in var.beats] == [("profile", "p.yaml:1:10")]


def test_a_variable_of_the_job_knows_its_place(project: Project) -> None:
    assert str(project.env(PYTHON + "env:\n  A: 1\n")["A"].origin) == "job.yaml:4:6"


# -- what a plan adds ------------------------------------------------------------------------------


def test_debug_says_what_it_costs(project: Project) -> None:
    env = project.env(PYTHON, Flags(debug=True))
    costs = {n: bool(v.cost) for n, v in env.items() if str(v.origin) == "--debug"}
    assert costs == {
        "NCCL_DEBUG": True,
        "TORCH_DISTRIBUTED_DEBUG": True,
        "CUDA_LAUNCH_BLOCKING": True,
    }


def test_a_plan_says_what_a_start_will_decide(project: Project) -> None:
    plan = project.plan(TORCHRUN + "profile: rtx5090\n")
    expected = f"{SWITCHES}: needed for NCCL {NEEDED}; a start on localhost reads its version"
    assert [w.message for w in plan.warnings] == [f"{expected} and decides, here they are set"]


def test_without_workarounds_nothing_is_left_to_decide(project: Project) -> None:
    plan = project.plan(TORCHRUN + "profile: rtx5090\n", Flags(workarounds=False))
    assert (plan.notes, plan.warnings, plan.nodes[0].open_gates) == ((), (), {})


def test_a_declared_fact_leaves_nothing_to_decide(project: Project) -> None:
    flags = hosts(project, "{profile: rtx5090, facts: {nccl: 2.27.3}}")
    plan = project.plan(TORCHRUN, flags)
    assert (plan.warnings, plan.nodes[0].open_gates) == ((), {})


SWITCHES = "NCCL_SHM_DISABLE, NCCL_P2P_DISABLE, NCCL_IB_DISABLE"
NEEDED = "below 2.26.5, except 2.26.2.post1"
LIFTED = "; --no-workarounds lifts them"
SLOWER = "; slower: GPU traffic goes over TCP"


@pytest.mark.parametrize(
    ("versions", "count", "reason"),
    [
        ({"nccl": "2.27.5"}, 0, f"NCCL 2.27.5 found: {SWITCHES} not set (needed {NEEDED})"),
        (
            {"nccl": "2.26.2.post1"},
            0,
            f"NCCL 2.26.2.post1 found: {SWITCHES} not set (needed {NEEDED})",
        ),
        ({"nccl": "2.26.2"}, 3, f"NCCL 2.26.2 found: {SWITCHES} set (needed {NEEDED}){SLOWER}"),
        (
            {"torch": "2.8.0"},
            3,
            f"NCCL version not found: {SWITCHES} set to be safe (needed {NEEDED}){SLOWER}{LIFTED}",
        ),
    ],
)
def test_a_start_sets_the_switches_where_its_nccl_needs_them(
    project: Project, versions: dict[str, str], count: int, reason: str
) -> None:
    node = project.node(TORCHRUN + "profile: rtx5090\n")
    decided, reasons = gates.decide(node, versions)
    assert sum(name.startswith("NCCL_") for name in decided.env) == count
    assert reasons == (reason,)


@pytest.mark.parametrize(("driver", "count"), [("550.54.14", 0), ("535.183.01", 2)])
def test_a_start_decides_by_the_driver_of_the_machine(
    project: Project, driver: str, count: int
) -> None:
    node = project.node(TORCHRUN + "profile: rtx4090\n")
    decided, _ = gates.decide(node, {"driver": driver})
    assert sum(name.startswith("NCCL_") for name in decided.env) == count


def test_what_the_job_sets_itself_is_not_decided(project: Project) -> None:
    job = TORCHRUN + "profile: rtx5090\nenv: {NCCL_SHM_DISABLE: 1}\n"
    decided, _ = gates.decide(project.node(job), {"nccl": "2.27.5"})
    assert [name for name in decided.env if name.startswith("NCCL_")] == ["NCCL_SHM_DISABLE"]


def test_a_program_that_is_another_one_shows_no_versions(project: Project) -> None:
    node = project.node("launcher: command\ncommand: [./run.sh]\nprofile: rtx5090\ngpus: 2\n")
    assert node.open_gates == {}


def test_a_workaround_that_the_job_sets_itself_is_not_noted(project: Project) -> None:
    own = "env: {NCCL_SHM_DISABLE: 0, NCCL_P2P_DISABLE: 0, NCCL_IB_DISABLE: 0}\n"
    assert project.plan(TORCHRUN + "profile: rtx5090\n" + own).notes == ()


def test_pythonpath_is_the_project_root_before_the_targets_own(project: Project) -> None:
    var = project.env(PYTHON)["PYTHONPATH"]
    assert (var.value, var.prepend) == (str(project.folder), True)


def test_a_pythonpath_among_the_variables_is_taken_as_it_stands(project: Project) -> None:
    assert project.env(PYTHON + "env: {PYTHONPATH: /x}\n")["PYTHONPATH"].value == "/x"


def test_threads_are_worked_out_unless_the_target_sets_them(project: Project) -> None:
    var = project.env(TORCHRUN)["OMP_NUM_THREADS"]
    assert (str(var.value), var.soft) == ("<threads>", True)


def test_threads_of_the_job_are_not_soft(project: Project) -> None:
    var = project.env(TORCHRUN + "env: {OMP_NUM_THREADS: 3}\n")["OMP_NUM_THREADS"]
    assert (var.value, var.soft) == ("3", False)


def test_gpus_become_cuda_visible_devices(project: Project) -> None:
    text = "launcher: torchrun\nscript: train.py\ngpus: [3, 1]\n"
    assert project.env(text)["CUDA_VISIBLE_DEVICES"].value == "3,1"


def test_all_gpus_leave_cuda_visible_devices_alone(project: Project) -> None:
    text = "launcher: torchrun\nscript: train.py\ngpus: auto\n"
    assert "CUDA_VISIBLE_DEVICES" not in project.env(text)


def test_the_folder_of_the_interpreter_comes_first_on_path(project: Project) -> None:
    var = project.env(PYTHON + "venv: /opt/env\n")["PATH"]
    assert (var.value, var.prepend) == ("/opt/env/bin", True)


def test_a_path_of_the_job_is_put_before_the_interpreters_folder(project: Project) -> None:
    env = project.env(PYTHON + "env: {PATH: {prepend: /opt/cuda/bin}}\n")
    assert str(env["PATH"].value) == "/opt/cuda/bin:<prefix>/bin"


def test_a_venv_names_itself_and_removes_conda(project: Project) -> None:
    env = project.env(PYTHON + "venv: /opt/env\n")
    assert (env["VIRTUAL_ENV"].value, env["CONDA_PREFIX"].value) == ("/opt/env", None)


def test_a_conda_environment_names_itself_and_removes_the_venv(project: Project) -> None:
    env = project.env(PYTHON + "conda: x\nconda_root: /opt/conda\n")
    assert (env["VIRTUAL_ENV"].value, env["CONDA_PREFIX"].value) == (None, "/opt/conda/envs/x")


def test_the_interpreter_is_the_first_word(project: Project) -> None:
    assert shown(project.plan(TORCHRUN + "venv: /opt/env\n"))[0] == "/opt/env/bin/python"


def test_a_command_is_run_as_it_stands(project: Project) -> None:
    plan = project.plan("launcher: command\ncommand: [echo, a b]\nargs: {c: 1}\n")
    assert shown(plan) == ["echo", "a b", "--c", "1"]


def test_every_node_has_its_rank(project: Project) -> None:
    plan = project.plan(TORCHRUN + "hosts: [a, b]\n")
    ranks = [[str(w) for w in node.argv][8] for node in plan.nodes]
    assert ranks == ["0", "1"]


def test_accelerate_on_the_cpu_starts_several_processes_as_multi_gpu(project: Project) -> None:
    assert "--multi_gpu" in shown(project.plan(ACCELERATE + "profile: cpu\n"))


def test_accelerate_is_given_a_config_file_of_the_run(project: Project) -> None:
    words = shown(project.plan(ACCELERATE))
    assert words[words.index("--config_file") + 1] == "<run-dir>/accelerate.yaml"


def test_accelerate_keeps_the_config_file_of_the_job(project: Project) -> None:
    plan = project.plan(ACCELERATE + "launcher_args: {config_file: ds.yaml}\n")
    assert (shown(plan).count("--config_file"), plan.nodes[0].files) == (1, ())


def test_swift_is_given_a_timeout(project: Project) -> None:
    words = shown(project.plan("launcher: swift\ncommand: [sft]\nprocesses: 2\n"))
    assert words[-2:] == ["--ddp_timeout", "1800"]


def test_swift_keeps_a_timeout_of_the_job(project: Project) -> None:
    text = "launcher: swift\ncommand: [sft]\nprocesses: 2\nargs: {ddp_timeout: 60}\n"
    assert shown(project.plan(text))[-2:] == ["--ddp_timeout", "60"]


def test_swift_counts_processes_in_the_environment(project: Project) -> None:
    env = project.env("launcher: swift\ncommand: [sft]\nprocesses: 2\n")
    assert env["NPROC_PER_NODE"].value == "2"


def test_areal_1_states_scheduler_and_gpus_in_its_own_keys(project: Project) -> None:
    plan = project.plan(AREAL + "gpus: 4\nargs: {config: c.yaml, trial: t}\n")
    assert shown(plan)[1:] == [
        "train.py", "--config", "c.yaml", "trial=t", "scheduler.type=local",
        "cluster.n_nodes=1", "cluster.n_gpus_per_node=4",
    ]  # fmt: skip


# -- bind ------------------------------------------------------------------------------------------

JOBS = {
    "accelerate": ACCELERATE,
    "all GPUs": ACCELERATE.replace("processes: 2", "gpus: auto"),
    "torchrun": TORCHRUN + "profile: rtx5090\n",
    "nodes": TORCHRUN + "hosts: [a, b]\n",
    "swift": "launcher: swift\ncommand: [sft]\nprocesses: 2\n",
    "areal": AREAL,
    "command": "launcher: command\ncommand: [echo]\n",
}


def filled(printed: str) -> str:
    """Return a printed plan with its slots replaced as text."""
    for slot, value in FACTS.items():
        printed = printed.replace(f"'<{slot.value}>'", value).replace(f"<{slot.value}>", value)
    return printed.replace("'", "")


@pytest.mark.parametrize("name", JOBS)
def test_a_printed_plan_with_its_slots_filled_is_the_bound_plan(
    name: str, project: Project
) -> None:
    plan = project.plan(JOBS[name])
    assert filled(script(bind(plan, FACTS))) == filled(script(plan))


@pytest.mark.parametrize("name", JOBS)
def test_a_bound_plan_has_no_slot_left(name: str, project: Project) -> None:
    node = bind(project.plan(JOBS[name]), FACTS).nodes[0]
    words = [*node.argv, *(v.value for v in node.env.values()), *(body for _, body in node.files)]
    assert [word for word in words if not isinstance(word, (str, type(None)))] == []


@pytest.mark.parametrize("name", JOBS)
def test_binding_in_two_steps_is_binding_at_once(name: str, project: Project) -> None:
    plan = project.plan(JOBS[name])
    first: dict[Slot, str] = {slot: value for slot, value in FACTS.items() if slot is not Slot.PORT}
    assert bind(bind(plan, first), {Slot.PORT: FACTS[Slot.PORT]}) == bind(plan, FACTS)


@pytest.mark.parametrize("name", JOBS)
def test_binding_nothing_changes_nothing(name: str, project: Project) -> None:
    plan = project.plan(JOBS[name])
    assert bind(plan, {}) == plan


@pytest.mark.parametrize("name", JOBS)
def test_a_recorded_plan_reads_back_as_it_was(name: str, project: Project) -> None:
    plan: Plan = project.plan(JOBS[name])
    assert plan_json(thaw(freeze(plan))) == plan_json(plan)


def test_a_variable_taken_from_the_callers_environment_beats_the_profile(project: Project) -> None:
    project.write("env: {A: profile}\n", "p.yaml")
    text = script(project.plan(PYTHON + "profile: ./p.yaml\nenv_from: [A]\n"))
    assert "export A=profile" not in text


# -- prefix ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", [TORCHRUN, PYTHON, ACCELERATE])
def test_a_prefix_stands_in_front_of_any_launcher(project: Project, job: str) -> None:
    node, plain = project.node(f"{job}prefix: [numactl, -N, 0]\n"), project.node(job)
    assert node.argv == ("numactl", "-N", "0", *plain.argv)
    assert node.argv[node.program :] == plain.argv[plain.program :]
    assert node.env.keys() == plain.env.keys()


def test_an_attempt_that_resumes_has_the_prefix_too(project: Project) -> None:
    more = "prefix: [nice]\nargs: {a: 1}\nrecovery: {resume_args: {b: 2}}\n"
    resumed = project.node(PYTHON + more).resume_argv
    assert resumed is not None
    assert (resumed[0], resumed[-1]) == ("nice", "2")


@pytest.mark.parametrize("prefix", ["uv, run", "numactl, -N, 0, conda, run, -n, rl"])
def test_a_prefix_that_chooses_the_environment_finds_python_itself(
    project: Project, prefix: str
) -> None:
    node = project.node(f"{TORCHRUN}prefix: [{prefix}]\n")
    assert node.argv[node.prefix : node.prefix + 3] == ("python", "-m", "torch.distributed.run")
    assert not {"VIRTUAL_ENV", "CONDA_PREFIX", "PATH"} & set(node.env)
    own = project.node(f"{TORCHRUN}prefix: [{prefix}]\npython: /env/bin/python\n")
    assert own.argv[own.prefix] == "/env/bin/python"


@pytest.mark.parametrize(
    ("prefix", "process"),
    [("nice, -n, 1, taskset, -c, 0-3", "main"), ("nsys, profile", "shell"), ("./own", "shell")],
)
def test_the_program_is_looked_for_where_the_prefix_leaves_it(
    project: Project, prefix: str, process: str
) -> None:
    assert project.node(f"{PYTHON}prefix: [{prefix}]\n").single == process
    assert project.node(f"{TORCHRUN}prefix: [{prefix}]\n").single is None


@pytest.mark.parametrize(
    ("p2p", "is_set", "reason"),
    [
        ("yes", False, "the GPUs have peer access: NCCL_P2P_DISABLE not set"),
        ("no", True, "the GPUs have no peer access: NCCL_P2P_DISABLE set"),
    ],
)
def test_a_start_leaves_peer_access_to_a_driver_that_has_it(
    project: Project, p2p: str, *, is_set: bool, reason: str
) -> None:
    node = project.node(TORCHRUN + "profile: rtx5090\n")
    decided, reasons = gates.decide(node, {"nccl": "2.26.2", "p2p": p2p})
    assert ("NCCL_P2P_DISABLE" in decided.env) is is_set
    assert f"{reason} (needed without peer access)" in reasons


@pytest.mark.parametrize(("p2p", "is_slower"), [("yes", False), ("no", True)])
def test_traffic_goes_over_tcp_only_without_peer_access(
    project: Project, p2p: str, *, is_slower: bool
) -> None:
    node = project.node(TORCHRUN + "profile: rtx5090\n")
    _, reasons = gates.decide(node, {"nccl": "2.26.2", "p2p": p2p})
    assert any(reason.endswith(SLOWER) for reason in reasons) is is_slower


@pytest.mark.parametrize(
    ("versions", "asks"),
    [
        ({"nccl": "2.27.5"}, False),  # the version decides already
        ({"nccl": "2.26.2"}, True),
        ({"nccl": "2.26.2", "p2p": "no"}, False),  # saved by `check --save`
        ({}, True),
    ],
)
def test_a_start_asks_for_peer_access_only_where_a_variable_hangs_on_it(
    project: Project, versions: dict[str, str], *, asks: bool
) -> None:
    node = project.node(TORCHRUN + "profile: rtx5090\n")
    assert gates.needs_peer_access(node, versions) is asks


@pytest.mark.parametrize(
    ("profile", "variable"),
    [
        ("h100", "CUDA_VISIBLE_DEVICES"),
        ("mi300x", "HIP_VISIBLE_DEVICES"),
        ("ascend910b", "ASCEND_RT_VISIBLE_DEVICES"),
    ],
)
def test_gpus_are_selected_by_the_variable_of_their_maker(
    project: Project, profile: str, variable: str
) -> None:
    env = project.env(TORCHRUN + f"profile: {profile}\ngpus: [2, 3]\n")
    visible = {name: var.value for name, var in env.items() if name.endswith("VISIBLE_DEVICES")}
    assert visible == {variable: "2,3"}


def test_npus_get_the_interface_of_their_own_library_between_nodes(project: Project) -> None:
    hosts = "hosts:\n  a: {interface: eth1}\n  b: {interface: eth1}\n"
    project.write(hosts, "hosts.yaml")
    job = TORCHRUN + "profile: ascend910b\nhosts: [a, b]\nnodes: 2\n"
    env = project.env(job, Flags(hosts_file="hosts.yaml"))
    names = [name for name in env if name.endswith("SOCKET_IFNAME")]
    assert sorted(names) == ["GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME"]
    assert env["HCCL_CONNECT_TIMEOUT"].value == "1200"


def test_a_prefix_may_run_the_script_itself(project: Project) -> None:
    job = PYTHON + "prefix: [uv, run]\nversion: script\nargs: {a: 1}\n"
    assert shown(project.plan(job)) == ["uv", "run", "train.py", "--a", "1"]
    for wrong in (job.replace("prefix: [uv, run]\n", ""), job.replace("script\n", "2\n", 1)):
        assert "version" in project.refused(wrong).message
