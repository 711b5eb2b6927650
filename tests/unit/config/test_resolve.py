from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from support.project import PYTHON, TORCHRUN, Project, script, shown

from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.errors import ConfigError
from safelaunch.plan.build import make_plan
from safelaunch.plan.serialize import plan_json

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def sets(*settings: str) -> Flags:
    return Flags(sets=settings)


# -- args and variables ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("{lr: 1e-3}", ["--lr", "1e-3"]),
        ("{flag: False}", ["--flag", "False"]),
        ("{n: 017}", ["--n", "017"]),
        ("{n: on}", ["--n", "on"]),
        ("{n: 1_000}", ["--n", "1_000"]),
        ("{flag: true}", ["--flag"]),
        ('{flag: "true"}', ["--flag", "true"]),
        ("{flag: false}", []),
        ("{flag: null}", []),
        ("{flag: }", []),
        ("{x: [a, b]}", ["--x", "a", "b"]),
        ("{x: -1}", ["--x=-1"]),
        ("{x: --y}", ["--x=--y"]),
        ('{x: ""}', ["--x", ""]),
        ("{b: 1, a: 2}", ["--b", "1", "--a", "2"]),
        ("{trainer.lr: 1}", ["--trainer.lr", "1"]),
        ("[--x, -1, a b, '']", ["--x", "-1", "a b", ""]),
        ("[true, False, 1e-3]", ["true", "False", "1e-3"]),
    ],
)
def test_args_become_words_in_the_files_own_spelling(
    args: str, words: list[str], project: Project
) -> None:
    assert project.words(f"{PYTHON}args: {args}\n") == words


@pytest.mark.parametrize("spelling", ["1", "1e-3", "False", "017", "on", "0x1F", "'null'", "''"])
def test_variables_keep_the_files_own_spelling(spelling: str, project: Project) -> None:
    assert project.env(f"{PYTHON}env: {{A: {spelling}}}")["A"].value == spelling.strip("'")


def test_null_in_a_job_removes_a_profile_variable(project: Project) -> None:
    text = PYTHON + "profile: cpu\nenv: {CUDA_VISIBLE_DEVICES: null}\n"
    assert project.env(text)["CUDA_VISIBLE_DEVICES"].value is None


def test_null_in_an_overlay_removes_an_inherited_argument(project: Project) -> None:
    project.write(PYTHON + "args: {a: 1, b: 2}\n", "base.yaml")
    assert project.words("extends: base.yaml\nargs: {a: null}\n") == ["--b", "2"]


def test_null_in_an_overlay_removes_an_inherited_key(project: Project) -> None:
    project.write("launcher: python\nmodule: other\nname: base\n", "base.yaml")
    resolved = project.resolve("extends: base.yaml\nmodule: null\nscript: train.py\n")
    assert resolved.job.module is None


def test_prepend_with_a_list_joins_with_colons(project: Project) -> None:
    var = project.env(PYTHON + "env: {LD_LIBRARY_PATH: {prepend: [/a, /b]}}")["LD_LIBRARY_PATH"]
    assert (var.value, var.prepend) == ("/a:/b", True)


# -- extends ---------------------------------------------------------------------------------------


def test_an_overlay_beats_its_base(project: Project) -> None:
    project.write(TORCHRUN + "args: {lr: 1, seed: 2}\n", "base.yaml")
    assert project.words("extends: base.yaml\nargs: {lr: 3}\n") == ["--lr", "3", "--seed", "2"]


def test_a_later_base_beats_an_earlier_one(project: Project) -> None:
    project.write(PYTHON + "name: first\n", "a.yaml")
    project.write("name: second\n", "b.yaml")
    assert project.resolve("extends: [a.yaml, b.yaml]\n").job.name == "second"


def test_an_inherited_value_keeps_the_place_in_its_own_file(project: Project) -> None:
    project.write(PYTHON + "name: base\n", "base.yaml")
    assert str(project.resolve("extends: base.yaml\n").job.origin("name")) == "base.yaml:3:7"


def test_an_error_in_a_base_names_the_base(project: Project) -> None:
    project.write(PYTHON + "processes: none\n", "sub/base.yaml")
    assert project.refused("extends: sub/base.yaml\n").where == "sub/base.yaml:3:12"


def test_relative_paths_start_from_the_file_that_states_them(project: Project) -> None:
    project.write("pythonpath: [src]\nvenv: env\nworkdir: ..\n", "jobs/base.yaml")
    job = project.resolve("extends: jobs/base.yaml\n" + PYTHON).job
    folder = str(project.folder)
    assert (job.pythonpath, job.interpreter.prefix, job.workdir) == (
        (f"{folder}/jobs/src",),
        f"{folder}/jobs/env",
        folder,
    )


def test_a_profile_path_starts_from_the_file_that_states_it(project: Project) -> None:
    project.write("env: {A: 1}\n", "jobs/mine.yaml")
    project.write("profile: ./mine.yaml\n", "jobs/base.yaml")
    env = project.env("extends: jobs/base.yaml\n" + PYTHON)
    assert str(env["A"].origin) == "jobs/mine.yaml:1:10"


def test_extends_in_a_circle_names_the_step_that_closes_it(project: Project) -> None:
    project.write("extends: job.yaml\n", "base.yaml")
    assert project.refused("extends: base.yaml\n" + PYTHON).where == "base.yaml:1:10"


def test_a_very_long_chain_of_bases_is_refused(project: Project) -> None:
    for i in range(70):
        project.write(f"extends: b{i + 1}.yaml\n", f"b{i}.yaml")
    assert "nested too deep" in project.refused("extends: b0.yaml\n").message


# -- --set and flags -------------------------------------------------------------------------------


def test_set_beats_the_file(project: Project) -> None:
    assert project.resolve(TORCHRUN, sets("processes=3")).job.topology.processes == 3


def test_set_reaches_into_args(project: Project) -> None:
    text = PYTHON + "args: {lr: 1, seed: 2}\n"
    assert project.words(text, sets("args.lr=1e-3")) == ["--lr", "1e-3", "--seed", "2"]


def test_set_takes_the_rest_of_a_dotted_name_as_one_option(project: Project) -> None:
    assert project.words(PYTHON, sets("args.trainer.lr=2")) == ["--trainer.lr", "2"]


def test_set_of_null_removes(project: Project) -> None:
    assert project.words(PYTHON + "args: {lr: 1}\n", sets("args.lr=null")) == []


def test_set_of_nothing_is_the_empty_text(project: Project) -> None:
    assert project.words(PYTHON + "args: {lr: 1}\n", sets("args.lr=")) == ["--lr", ""]


def test_set_of_nothing_does_not_remove_a_variable(project: Project) -> None:
    assert project.env(PYTHON + "env: {A: 1}\n", sets("env.A="))["A"].value == ""


def test_set_takes_a_list(project: Project) -> None:
    assert project.words(PYTHON, sets("args=[a, b]")) == ["a", "b"]


def test_set_keeps_the_rest_after_the_first_equals_sign(project: Project) -> None:
    assert project.env(PYTHON, sets("env.A=b=c"))["A"].value == "b=c"


def test_the_last_set_wins(project: Project) -> None:
    assert project.resolve(PYTHON, sets("name=a", "name=b")).job.name == "b"


def test_a_value_that_was_set_names_the_flag(project: Project) -> None:
    assert str(project.env(PYTHON, sets("env.A=1"))["A"].origin) == "--set env.A"


def test_a_value_that_was_set_remembers_the_file(project: Project) -> None:
    node = project.resolve(PYTHON + "name: old\n", sets("name=new")).tree.get("name")
    assert node is not None
    assert [str(beaten.origin) for beaten in node.beats] == ["job.yaml:3:7"]


BAD_SETS = {
    "nonsense": ("`--set` wants KEY=VALUE", ""),
    "=x": ("`--set` wants KEY=VALUE", ""),
    "proceses=2": ("unknown key `proceses`", "did you mean `processes`?"),
    "proceses.a=2": ("unknown key `proceses`", "did you mean `processes`?"),
    "name.a=2": ("`name` has no parts", "--set name=VALUE"),
    "processes=x": ("expected a whole number", ""),
    "args=[a": ("did not find expected", ""),
    "args.a=[b]\nc: d": ("one value at a time", ""),
    "args.=1": ("`` is no option name", ""),
    "extends=base.yaml": ("`extends` belongs in a job file", ""),
    "env.A-B=1": ("is no variable name", ""),
    "env.HF_TOKEN=abcdef": ("a secret does not belong", "env_from"),
    "args.a=\udcff": ("is not UTF-8", ""),
    "args.a=[\udcff]": ("not valid Unicode", ""),
}


@pytest.mark.parametrize("setting", BAD_SETS)
def test_a_bad_set_is_refused(setting: str, project: Project) -> None:
    message, hint = BAD_SETS[setting]
    error = project.refused(TORCHRUN, sets(setting))
    assert (message in error.message, hint in error.hint) == (True, True), error


@pytest.mark.parametrize("setting", BAD_SETS)
def test_a_bad_set_names_the_flag(setting: str, project: Project) -> None:
    assert (project.refused(TORCHRUN, sets(setting)).where or "").startswith("--set ")


def test_set_into_a_list_of_args_says_how(project: Project) -> None:
    error = project.refused(PYTHON + "args: [a]\n", sets("args.b=1"))
    assert error.message == "`args` is a list in job.yaml:3:7"


def test_a_flag_leaves_the_place_of_other_errors_alone(project: Project) -> None:
    flags = Flags(profile="cpu", sets=("name=x",))
    assert project.refused("script: train.py\n", flags).where == "job.yaml:1:1"


def test_profile_flag_beats_the_file(project: Project) -> None:
    resolved = project.resolve(PYTHON + "profile: h100\n", Flags(profile="cpu"))
    assert resolved.profile is not None
    assert resolved.profile.name == "cpu"


def test_unknown_profile_of_the_flag_names_the_flag(project: Project) -> None:
    assert project.refused(PYTHON, Flags(profile="cpuu")).where == "--profile"


def test_nccl_ladder_without_a_profile_is_refused(project: Project) -> None:
    assert "needs a profile" in project.refused(PYTHON, Flags(ladder=1)).message


# -- interpreter, GPUs, topology -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        ("python: /opt/x/bin/python3", "/opt/x/bin/python3"),
        ("python: ./env/bin/python", "{}/env/bin/python"),
        ("venv: env", "{}/env/bin/python"),
        ("venv: /opt/env", "/opt/env/bin/python"),
        ("conda: rl\nconda_root: /opt/conda", "/opt/conda/envs/rl/bin/python"),
        ("conda: base\nconda_root: /opt/conda", "/opt/conda/bin/python"),
    ],
)
def test_the_interpreter_is_an_absolute_path(lines: str, path: str, project: Project) -> None:
    expected = path.format(project.folder)
    assert project.resolve(f"{PYTHON}{lines}\n").job.interpreter.path == expected


def test_without_a_word_the_interpreter_is_found_at_the_start(project: Project) -> None:
    assert project.resolve(PYTHON).job.interpreter.path is None


@pytest.mark.parametrize(
    ("lines", "gpus", "processes"),
    [
        ("processes: 4", (), 4),
        ("gpus: 3", ("0", "1", "2"), 3),
        ("gpus: [2, 5]", ("2", "5"), 2),
        ("gpus: [2, 5]\nprocesses: 1", ("2", "5"), 1),
        ("gpus: auto", (), None),
        ("gpus: auto\nprocesses: 2", (), 2),
        ("gpus: [GPU-8a-1, MIG-7/1/0]", ("GPU-8a-1", "MIG-7/1/0"), 2),
    ],
)
def test_gpus_and_processes(
    lines: str, gpus: tuple[str, ...], processes: int | None, project: Project
) -> None:
    job = project.resolve(f"launcher: torchrun\nscript: train.py\n{lines}\n").job
    assert (job.gpus, job.topology.processes) == (gpus, processes)


def test_gpus_do_not_multiply_a_single_process(project: Project) -> None:
    assert project.resolve(PYTHON + "gpus: [0, 1]\n").job.topology.processes == 1


def test_hosts_count_as_nodes(project: Project) -> None:
    assert project.resolve(TORCHRUN + "hosts: [a, b]\n").job.topology.world_size == 4


def test_every_node_of_torchrun_may_count_its_own_gpus(project: Project) -> None:
    plan = project.plan("launcher: torchrun\nscript: train.py\ngpus: auto\nhosts: [a, b]\n")
    assert shown(plan)[5:7] == ["--nproc_per_node", "<gpus>"]


def test_launcher_args_may_be_a_mapping_or_a_list(project: Project) -> None:
    mapped = project.plan(TORCHRUN + "launcher_args: {max_restarts: 3, tee: 1}\n")
    listed = project.plan(TORCHRUN + "launcher_args: [--max_restarts, 3, --tee, 1]\n")
    assert shown(mapped) == shown(listed)


def test_a_value_of_launcher_args_may_look_like_a_flag(project: Project) -> None:
    plan = project.plan(TORCHRUN + "launcher_args: [--monitor_interval, -1]\n")
    assert [w.id for w in plan.warnings] == []


def test_an_unknown_launcher_flag_is_a_warning(project: Project) -> None:
    plan = project.plan(TORCHRUN + "launcher_args: {brand_new: 3}\n")
    assert [(w.id, w.where) for w in plan.warnings] == [("unknown-launcher-flag", "job.yaml:4:16")]


def test_swift_rollout_may_say_one_process(project: Project) -> None:
    assert project.plan("launcher: swift\ncommand: [rollout]\nprocesses: 1\n")


def test_the_name_defaults_to_the_file(project: Project) -> None:
    assert project.resolve(PYTHON, name="my job (2).yaml").job.name == "my-job-2"


@pytest.mark.parametrize("text", [
    "$HOME/x", "~/x", "`id`", "${A}", "$(id)", "${A:-x}", "${A:0:2}", "${a.b}/$A",
])  # fmt: skip
def test_what_looks_expanded_is_warned_about(text: str, project: Project) -> None:
    plan = project.plan(f"{PYTHON}args: {{a: '{text}'}}\n")
    assert [w.id for w in plan.warnings] == ["not-expanded"]


@pytest.mark.parametrize("text", [
    "${model.lr}", "${.lr}", "${..lr}", "out/${now:%Y-%m-%d}/${hydra:job.num}", "${oc.env:HOME}",
    "${oc.env:HOME,none}",
])  # fmt: skip
def test_what_omegaconf_resolves_is_not_warned_about(text: str, project: Project) -> None:
    plan = project.plan(f"{PYTHON}args: ['hydra.run.dir={text}']\n")
    assert list(plan.warnings) == []


@pytest.mark.parametrize(
    ("command", "warned"),
    [
        *(("[bash, -c, 'echo $A']", 0), ("[/bin/sh, -ec, 'echo $A']", 0), ("[bash, $A]", 1)),
        *(("[env, A=1, bash, -c, 'echo $A']", 0), ("[wrap, -c, $A, bash, x.sh]", 1)),
    ],
)
def test_the_text_that_a_shell_runs_is_expanded_by_it(
    command: str, warned: int, project: Project
) -> None:
    assert len(project.plan(f"launcher: command\ncommand: {command}\n").warnings) == warned


@pytest.mark.parametrize(("value", "warned"), [("run $RANK", 0), ("run $OTHER", 1)])
def test_a_variable_with_the_text_that_a_shell_runs_is_not_warned_about(
    value: str, warned: int, project: Project
) -> None:
    job = "launcher: command\ncommand: [bash, -c, 'cd x; run $RANK']\n"
    warnings = project.plan(f"{job}env: {{LINE: '{value}'}}\n").warnings
    assert len(warnings) == warned


def test_a_dollar_in_the_path_of_the_project_is_not_warned_about(tmp_path: Path) -> None:
    (tmp_path / "a$b").mkdir()
    project = Project(tmp_path / "a$b")
    assert list(project.plan(PYTHON).warnings) == []
    (warning,) = project.plan(f"{PYTHON}log: $HOME/x.log\n").warnings
    assert (warning.id, warning.where) == ("not-expanded", "job.yaml:3:6")


# -- hosts -----------------------------------------------------------------------------------------


def hosts(project: Project, entries: str) -> Flags:
    project.write(f"hosts:\n{entries}", "etc/hosts.yaml")
    return Flags(hosts_file="etc/hosts.yaml")


def test_a_host_gives_profile_interpreter_and_folder(project: Project) -> None:
    flags = hosts(project, "  localhost: {profile: cpu, venv: ../env, workdir: ../work}\n")
    node = project.node(PYTHON, flags)
    folder = str(project.folder)
    assert (node.interpreter.path, node.cwd, str(node.env["CUDA_VISIBLE_DEVICES"].value)) == (
        f"{folder}/env/bin/python",
        f"{folder}/work",
        "",
    )


BAD_HOSTS = {
    "  localhost: {profile: cpuu}\n": ("etc/hosts.yaml:2:24", "unknown profile `cpuu`"),
    "  localhost: {pasword: x}\n": ("etc/hosts.yaml:2:15", "a secret does not belong"),
    "  localhost: {workdri: x}\n": ("etc/hosts.yaml:2:15", "unknown key `workdri`"),
    "  localhost: {password: x}\n": ("etc/hosts.yaml:2:15", "a secret does not belong"),
    "  localhost: [a]\n": ("etc/hosts.yaml:2:14", "expected a mapping"),
    "  localhost: {facts: {ncll: 2.27.3}}\n": ("etc/hosts.yaml:2:23", "unknown fact"),
    "  localhost: {facts: {nccl: new}}\n": ("etc/hosts.yaml:2:29", "`new` is no version"),
    "  localhost: {env: {RANK: 1}}\n": ("etc/hosts.yaml:2:27", "`RANK` is set by"),
    "  -x: {}\n": ("etc/hosts.yaml:2:3", "is no host name"),
    "  localhost: {python: python3}\n": ("etc/hosts.yaml:2:23", "is no path"),
    "": ("etc/hosts.yaml:1:7", "expected `hosts:`"),
}


@pytest.mark.parametrize("entries", BAD_HOSTS)
def test_a_bad_hosts_file_is_refused_with_its_place(entries: str, project: Project) -> None:
    where, message = BAD_HOSTS[entries]
    error = project.refused(PYTHON, hosts(project, entries))
    assert (error.where, message in error.message) == (where, True), error


def test_an_unknown_host_is_refused_with_the_nearest_name(project: Project) -> None:
    error = project.refused(TORCHRUN + "hosts: [gpu1]\n", hosts(project, "  gpu01: {}\n"))
    assert error == ("unknown host `gpu1`", "job.yaml:4:8", "did you mean `gpu01`?")


def test_hosts_of_different_accelerators_are_refused(project: Project) -> None:
    flags = hosts(project, "  a: {profile: cpu}\n  b: {profile: h100}\n")
    assert project.refused(TORCHRUN + "hosts: [a, b]\n", flags).where == "job.yaml:4:8"


DIFFERENT = "  a: {profile: rtx5090}\n  b: {profile: a100}\n"


def test_each_host_has_the_variables_of_its_own_profile(project: Project) -> None:
    plan = project.plan(TORCHRUN + "hosts: [a, b]\n", hosts(project, DIFFERENT))
    assert plan.profile == "rtx5090, a100"
    first, second = (set(node.env) for node in plan.nodes)
    assert first != second


def test_nodes_that_differ_in_a_variable_of_nccl_are_told(project: Project) -> None:
    entries = "  a: {env: {NCCL_ALGO: Ring}}\n  b: {env: {NCCL_IB_HCA: mlx5}}\n"
    plan = project.plan(TORCHRUN + "hosts: [a, b]\n", hosts(project, entries))
    messages = [warning.message for warning in plan.warnings if warning.id == "nodes-differ"]
    assert messages == [
        "NCCL_ALGO differs between the nodes: a Ring, b none; their ranks may not agree"
    ]


def test_one_host_without_a_profile_beside_different_ones_is_refused(project: Project) -> None:
    flags = hosts(project, DIFFERENT + "  c: {}\n")
    error = project.refused(TORCHRUN + "hosts: [a, b, c]\n", flags)
    assert "c has none" in error.message
    assert error.hint == "give the job's with --profile"


def test_a_missing_hosts_file_is_refused(project: Project) -> None:
    assert project.refused(PYTHON, Flags(hosts_file="no.yaml")).where == "no.yaml"


def test_a_host_with_its_own_folder_may_alone_have_the_script(project: Project) -> None:
    flags = hosts(project, "  localhost: {workdir: /srv/work}\n")
    assert project.plan("launcher: python\nscript: only-there.py\n", flags)


# -- project root ----------------------------------------------------------------------------------


def test_the_project_root_is_the_nearest_marker_above(project: Project) -> None:
    resolved = project.resolve("script: ../../train.py\nlauncher: python\n", name="a/b/job.yaml")
    assert resolved.job.pythonpath == (str(project.folder),)


def test_a_git_folder_marks_the_project_root(project: Project) -> None:
    (project.folder / "a" / ".git").mkdir(parents=True)
    resolved = project.resolve("module: x\nlauncher: python\n", name="a/b/job.yaml")
    assert resolved.job.pythonpath == (f"{project.folder}/a",)


def test_the_working_directory_is_the_folder_of_the_job(project: Project) -> None:
    resolved = project.resolve("module: x\nlauncher: python\n", name="a/job.yaml")
    assert resolved.job.workdir == f"{project.folder}/a"


def test_an_empty_pythonpath_adds_nothing(project: Project) -> None:
    assert "PYTHONPATH" not in project.env(PYTHON + "pythonpath: []\n")


def test_a_project_root_with_a_colon_is_refused(tmp_path: Path) -> None:
    error = Project(tmp_path / "a:b").refused(PYTHON)
    assert (error.where, "pythonpath: []" in error.hint) == ("job.yaml:1:1", True)


@pytest.mark.skipif(os.name != "posix", reason="file names of bytes")
def test_a_project_folder_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    error = Project(tmp_path / "a\udcffb").refused(PYTHON)
    assert "is not UTF-8" in error.message


JOB = """
launcher: accelerate
script: train.py
processes: 2
profile: ../mine.yaml
venv: ../env
pythonpath: [.., ../src]
extends: base.yaml
log: logs/{time}.log
env: {A: 1}
"""


def test_project_root_prints_the_same_bytes_from_two_checkouts(tmp_path: Path) -> None:
    printed = set()
    for name in ("one", "two/deeper"):
        checkout = Project(tmp_path / name)
        checkout.write("extends: cpu\nenv: {B: 2}\n", "mine.yaml")
        checkout.write("setup: [true]\nworkdir: ..\n", "jobs/base.yaml")
        checkout.write(JOB, "jobs/job.yaml")
        checkout.write("hosts: {localhost: {venv: env, env: {C: 3}}}\n", "hosts.yaml")
        flags = Flags(project_root="/golden", hosts_file="hosts.yaml")
        plan = make_plan(resolve_file("jobs/job.yaml", flags, str(checkout.folder)))
        printed.add(json.dumps(plan_json(plan)) + script(plan))
    assert (len(printed), str(tmp_path) in printed.pop()) == (1, False)


# -- a job file that cannot be read ----------------------------------------------------------------


def test_a_missing_job_file_is_refused(project: Project) -> None:
    with pytest.raises(ConfigError, match=r"no\.yaml: no such file"):
        resolve_file("no.yaml", Flags(), str(project.folder))


def test_a_folder_instead_of_a_job_file_is_refused(project: Project) -> None:
    with pytest.raises(ConfigError, match="a directory, not a YAML file"):
        resolve_file(".", Flags(), str(project.folder))


def test_a_nul_in_the_path_of_a_job_file_is_refused(project: Project) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        resolve_file("a\0b", Flags(), str(project.folder))


def test_a_profile_of_the_command_line_is_relative_to_the_caller(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for folder, what in (("", "of the caller"), ("jobs", "of the job's folder")):
        text = f"description: {what}\naccelerator: cuda\n"
        project.write(text, os.path.join(folder, "own.yaml"))
    project.write("launcher: python\nscript: ../train.py\n", "jobs/job.yaml")
    flags = Flags(profile="./own.yaml")
    resolved = resolve_file("jobs/job.yaml", flags, str(tmp_path))
    assert resolved.profile is not None
    assert resolved.profile.description == "of the caller"
