"""A pasted line starts what `accelerate launch` itself starts with the same config file.

The real parser, `_validate_launch_command` and `prepare_*_env` of accelerate read both the line as
typed and the words of the plan. What differs is named in OURS.
"""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from support.project import Project, shown

from safelaunch.config.write_job import job_yaml
from safelaunch.errors import ConfigError
from safelaunch.launchers.accelerate import config_file
from safelaunch.model import Slot
from safelaunch.plan.build import bind
from safelaunch.plan.launch_line.parse import parse_line
from safelaunch.plan.launch_line.shell import Shell

if TYPE_CHECKING:
    from safelaunch.model import Plan

pytestmark = pytest.mark.train
# what a start of safelaunch decides by itself
OURS = {
    "OMP_NUM_THREADS",  # the share of the usable cores, not 1
    "PYTHONPATH",
    "ACCELERATE_CONFIG_DS_FIELDS",  # names the keys of the file's block, for a check alone
    "MASTER_ADDR",
    "MASTER_PORT",
    "KMP_AFFINITY",  # of `--cpu` with one process only
    "KMP_BLOCKTIME",
}
PORT = "23456"

DEEPSPEED = """\
compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  gradient_accumulation_steps: 8
  gradient_clipping: 1.0
  offload_optimizer_device: none
  offload_param_device: cpu
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
enable_cpu_affinity: true
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: c10d
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""
FSDP = """\
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_min_num_params: 2000
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: BertLayer
  version: 2
main_process_port: 23456
mixed_precision: fp16
num_machines: 1
num_processes: 4
"""
PARALLELISM = """\
parallelism_config:
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
  parallelism_config_cp_size: 1
"""
MEGATRON = """\
distributed_type: MEGATRON_LM
megatron_lm_config:
  megatron_lm_gradient_clipping: 1.0
  megatron_lm_no_load_optim: false
  megatron_lm_num_micro_batches: 2
  megatron_lm_pp_degree: 2
  megatron_lm_recompute_activations: true
  megatron_lm_sequence_parallelism: false
  megatron_lm_tp_degree: 2
  megatron_lm_use_distributed_optimizer: true
mixed_precision: bf16
num_processes: 4
"""
MULTI_GPU = """\
distributed_type: MULTI_GPU
gpu_ids: 1,3
mixed_precision: 'no'
num_machines: 1
num_processes: 2
debug: true
dynamo_config:
  dynamo_backend: INDUCTOR
  dynamo_mode: reduce-overhead
  dynamo_use_dynamic: true
  dynamo_use_fullgraph: false
"""
FP8 = """\
distributed_type: MULTI_GPU
fp8_config:
  amax_compute_algo: max
  backend: TE
  fp8_format: E4M3
  margin: 2
  override_linear_precision: [true, false, true]
  use_autocast_during_eval: true
mixed_precision: FP8
num_processes: 2
"""
FILES = {
    "deepspeed": DEEPSPEED,
    "fsdp": FSDP,
    "fsdp-parallelism": FSDP + PARALLELISM,
    "megatron": MEGATRON,
    "multi-gpu": MULTI_GPU,
    "fp8": FP8,
    "one": "distributed_type: 'NO'\nnum_processes: 8\nmixed_precision: bf16\nuse_cpu: false\n",
    "one-plain": "distributed_type: NO\nnum_processes: 1\nfp16: true\ndynamo_backend: EAGER\n",
    "one-implied": "distributed_type: 'NO'\ngpu_ids: '1'\n",
    "cpu": "distributed_type: 'NO'\nuse_cpu: true\nnum_processes: 4\n",
    "crlf": MULTI_GPU.replace("\n", "\r\n"),
}
LINES = {
    "alone": "train.py --lr 1e-3",
    "count": "--num_processes 6 --gpu_ids all train.py",
    "precision": "--mixed_precision=fp16 train.py",
    "stage": "--zero_stage 2 --gradient-clipping 0.5 train.py",
    "dynamo": "--dynamo_backend no --dynamo_mode max-autotune train.py",
    "fsdp": "--use_fsdp --fsdp_offload_params true -m pkg.train a",
    "multi": "--multi_gpu --num_processes 4 --gpu_ids all train.py",
    "port": "--main_process_port 23456 train.py",
    "cpu": "--cpu train.py",
}
# accelerate starts one process, whatever the number: safelaunch refuses, or starts as many
NOT_ALIKE = {(file, "count") for file in ("one", "one-plain", "one-implied", "cpu")}
PAIRS = [(f, line) for f in FILES for line in LINES if (f, line) not in NOT_ALIKE]


class Start(NamedTuple):
    """What accelerate would start."""

    launcher: str
    program: tuple[object, ...]
    processes: int
    env: dict[str, str]


def start(words: list[str]) -> Start:
    """Return what the installed accelerate makes of the words after `launch`."""
    launch = importlib.import_module("accelerate.commands.launch")
    env_of = importlib.import_module("accelerate.utils.launch")
    args = launch.launch_command_parser().parse_args(words)
    args, defaults, from_file = launch._validate_launch_command(args)
    if args.use_deepspeed and not args.cpu:
        fields = list(defaults.deepspeed_config) if defaults else []
        args.deepspeed_fields_from_accelerate_config = ",".join(fields + ["x"] * from_file)
        name, env = "deepspeed", env_of.prepare_deepspeed_cmd_env(args)[1]
    elif (args.use_fsdp or args.use_megatron_lm or args.multi_gpu) and not args.cpu:
        name, env = "torchrun", env_of.prepare_multi_gpu_env(args)
    else:
        name, env = "process", env_of.prepare_simple_launcher_cmd_env(args)[1]
        args.num_processes = 1
    program = (args.module, args.training_script, *args.training_script_args)
    return Start(name, program, args.num_processes, dict(env))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.environ", {"HOME": str(tmp_path), "PATH": "/usr/bin"})
    # no GPU here that computes in 8 bits; a port in use is no matter of the file
    monkeypatch.setattr("accelerate.utils.launch.is_fp8_available", lambda: True)
    monkeypatch.setattr("accelerate.utils.launch.is_port_in_use", lambda _: False)
    project = Project(tmp_path / "project")
    (tmp_path / "project" / "pkg").mkdir()
    monkeypatch.chdir(project.folder)
    return project


def planned(plan: Plan, project: Project) -> tuple[Start, dict[str, str]]:
    """Return what accelerate makes of the plan's own words, and the plan's variables."""
    folder = project.folder / "run"
    folder.mkdir()
    slots = {
        Slot.RUN_DIR: str(folder),
        Slot.PORT: PORT,
        Slot.PYTHON: "python3",
        Slot.PREFIX: "/usr",
    }
    node = bind(plan, slots).nodes[0]
    for name, text in node.files:
        (folder / name).write_text(str(text))
    env = {name: str(var.value) for name, var in node.env.items() if var.value is not None}
    return start([str(word) for word in node.argv[3:]]), env


def check_alike(line: list[str], project: Project, environ: dict[str, str] | None = None) -> None:
    """Check a line, and the job file that `init` writes for it, against accelerate itself."""
    expected = start(line)
    tree = parse_line(["accelerate", "launch", *line], Shell(str(project.folder), environ or {}))
    plan = project.line(tree)
    real, env = planned(plan, project)
    assert variables(real.env | env) == variables(expected.env | env)
    assert real[:3] == expected[:3]
    from_file = project.plan(job_yaml(tree, None))
    assert shown(from_file) == shown(plan)
    assert from_file.nodes[0].files == plan.nodes[0].files


def variables(env: dict[str, str]) -> dict[str, str]:
    """Return the variables that training code reads; the flag spells false as 0 for some."""
    spelling = {"true": "1", "false": "0"}
    return {n: spelling.get(v.lower(), v.lower()) for n, v in env.items() if n not in OURS}


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_a_config_file_outside_of_the_project_means_the_same(
    pair: tuple[str, str], project: Project, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(FILES[pair[0]], newline="")
    line = ["--config_file", str(tmp_path / "c.yaml"), *LINES[pair[1]].split()]
    check_alike(line, project)


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_a_config_file_of_the_project_means_the_same(
    pair: tuple[str, str], project: Project
) -> None:
    (project.folder / "c.yaml").write_text(FILES[pair[0]], newline="")
    check_alike(["--config_file", "c.yaml", *LINES[pair[1]].split()], project)


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_the_default_config_file_means_the_same(
    pair: tuple[str, str], project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"HF_HOME": str(tmp_path)}
    path = Path(config_file.default_path(environ))
    path.parent.mkdir()
    path.write_text(FILES[pair[0]], newline="")
    # accelerate reads HF_HOME once, as it is imported
    for module in ("launch", "config.config_args"):
        monkeypatch.setattr(f"accelerate.commands.{module}.default_config_file", str(path))
    check_alike(LINES[pair[1]].split(), project, environ)


@pytest.mark.parametrize("count", ["0", "00", "-0"])
@pytest.mark.parametrize("file", [None, "one", "one-plain", "one-implied", "cpu"])
def test_no_process_is_the_program_itself(
    file: str | None, count: str, project: Project, tmp_path: Path
) -> None:
    words = [f"--num_processes={count}", "train.py"]
    if file is not None:
        (tmp_path / "c.yaml").write_text(FILES[file])
        words = ["--config_file", str(tmp_path / "c.yaml"), *words]
    check_alike(words, project)


@pytest.mark.parametrize("kind", ["MULTI_GPU", "DEEPSPEED", "FSDP"])
def test_no_process_under_torchrun_is_refused(kind: str, project: Project, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"distributed_type: {kind}\nnum_processes: 2\n")
    words = ["--config_file", str(tmp_path / "c.yaml"), "--num_processes=0", "train.py"]
    assert start(words).processes == 0  # with which torchrun fails
    reason = f"`0` processes: accelerate fails with `distributed_type: {kind}`"
    with pytest.raises(ConfigError, match=re.escape(reason)):
        parse_line(["accelerate", "launch", *words], Shell(str(project.folder), {}))


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize(
    "environ",
    [{}, {"XDG_CACHE_HOME": "~/x"}, {"HF_HOME": "~/h", "XDG_CACHE_HOME": "/c"}, {"HF_HOME": "/h"}],
    ids=lambda environ: ",".join(environ) or "none",
)
def test_the_default_file_is_where_the_installed_accelerate_looks(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"HOME": "/home/me", **environ}
    monkeypatch.setattr("os.environ", environ)
    real = runpy.run_module("accelerate.commands.config.config_args")["default_config_file"]
    assert config_file.default_path(environ) == real


def test_the_keys_are_those_of_the_installed_accelerate() -> None:
    config_args = importlib.import_module("accelerate.commands.config.config_args")
    fields = set(config_args.ClusterConfig.__dataclass_fields__)
    assert fields | {"fp16", "dynamo_backend"} == config_file.KEYS


def test_the_flags_that_the_installed_parser_gives_to_bool() -> None:
    launch = importlib.import_module("accelerate.commands.launch")
    actions = launch.launch_command_parser()._actions
    assert {action.dest for action in actions if action.type is bool} == config_file.BOOL_CALLS


# what the installed accelerate fails on: the file, and the words in our error
REFUSED = {
    "num_processes: 2\n": "no `distributed_type`",
    "distributed_type: MULTI_GPU\n": "number of processes",
    "distributed_type: NO\n": "number of processes",
    "distributed_type: MULTI_GPU\nnum_processes: 2\nzero_stage: 3\n": "unknown key `zero_stage`",
    "distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: 1\n": "`gpu_ids` that is no text",
    "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: no\n": "no text",
    "distributed_type: TURBO\nnum_processes: 2\n": "TURBO",
    "distributed_type: 'NO'\ndynamo_config: {dynamo_backend: NO}\n": "no text",
    "- distributed_type: MULTI_GPU\n": "at the top",
    "": "empty",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_is_what_accelerate_fails_on(
    text: str, project: Project, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    line = ["--config_file", str(tmp_path / "c.yaml"), "train.py"]
    with pytest.raises((ValueError, AttributeError, TypeError)):
        start(line)
    with pytest.raises(ConfigError, match=re.escape(REFUSED[text])) as error:
        parse_line(["accelerate", "launch", *line], Shell(str(project.folder), {}))
    assert str(error.value.where).startswith(str(tmp_path / "c.yaml"))
