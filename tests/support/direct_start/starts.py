"""Jobs that are really started, by their launcher and directly; some of them in the test suite."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from support.direct_start.matrix import HOSTILE
from support.direct_start.rank_starts import DIFFERENT, Job

if TYPE_CHECKING:
    from pathlib import Path


class Start(NamedTuple):
    """A job, and what its ranks find to be different where they are started directly."""

    job: Job
    different: frozenset[str] = DIFFERENT


# the agent draws an id, takes its host's name for an address, and any port
AT_AGENT = DIFFERENT | {"MASTER_ADDR", "MASTER_PORT"}
DRAWN = AT_AGENT | {"TORCHELASTIC_RUN_ID"}
BY_HAND = ("--master_addr", "localhost", "--master_port", "PORT")
AT_MAIN = ("--main_process_ip", "127.0.0.1", "--main_process_port", "PORT")
FSDP = ("--use_fsdp", "--fsdp_version", "2", "--fsdp_offload_params", "True")
SUITE: dict[str, Start] = {
    "by torchrun of two nodes, by hand": Start(
        Job(flags=BY_HAND, keys={"nodes": 2, "processes": 1}, args=HOSTILE)
    ),
    "of a module by torch.distributed.launch": Start(
        Job(keys={"version": "launch", "module": "pkg.train"}, args=HOSTILE)
    ),
    "of one program without Python": Start(
        Job(flags=("--no_python",), keys={"processes": 1, "script": "./train.py"}, args=HOSTILE)
    ),
    "by accelerate with FSDP": Start(Job("accelerate", (*FSDP, "--debug"), args=HOSTILE)),
}
MORE: dict[str, Start] = {
    "by torchrun": Start(Job(args=HOSTILE)),
    "of a module by torchrun": Start(Job(keys={"module": "pkg.train"}, args=HOSTILE)),
    "by torchrun, standalone": Start(Job(flags=("--standalone",)), DRAWN),
    "by torchrun with a rendezvous of its own": Start(
        Job(flags=("--rdzv_backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=a")), AT_AGENT
    ),
    "by torchrun with flags": Start(Job(flags=("--role", "trainer", "--rdzv-id", "7"))),
    "by torch.distributed.launch": Start(Job(keys={"version": "launch"}, args=HOSTILE)),
    "of programs without Python": Start(
        Job(flags=("--no_python",), keys={"script": "./train.py"}, args=HOSTILE)
    ),
    "by torchrun of one process per GPU": Start(Job(keys={"processes": None, "gpus": "auto"})),
    "by torchrun behind `nice` and `taskset`": Start(
        Job(keys={"prefix": ["nice", "-n", "2", "taskset", "-c", "CPU"]})
    ),
    "by torchrun with options of Python": Start(
        Job(keys={"python_options": ["-O", "-W", "error"]})
    ),
    "by torchrun without the caller's variables": Start(
        Job(keys={"inherit": ["TOLD"], "env": {"A": "x y", "lower": "z"}})
    ),
    "by torchrun behind setup": Start(
        Job(keys={"setup": ["export B='$x' LOCAL_WORLD_SIZE=7", "cd /", "umask 077"]})
    ),
    "by torchrun with another Python for its ranks": Start(
        Job(keys={"env": {"PYTHON_EXEC": "/usr/bin/python3"}})
    ),
    "by torchrun with a variable that it sets softly": Start(
        Job(keys={"env": {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "OMP_NUM_THREADS": "04"}})
    ),
    "by accelerate of several CPU processes": Start(
        Job("accelerate", keys={"profile": "cpu"}, args=HOSTILE)
    ),
    "by accelerate with dynamo": Start(
        Job(
            "accelerate",
            (
                "--dynamo_backend",
                "inductor",
                "--dynamo_mode=max-autotune",
                "--num_cpu_threads_per_process=03",
            ),
            {"mixed_precision": "bf16"},
        )
    ),
    "by accelerate of one process with FSDP": Start(
        Job("accelerate", (*FSDP, "--main_process_port", "PORT"), {"processes": 1})
    ),
    "by accelerate of two nodes, by hand": Start(
        Job("accelerate", AT_MAIN, {"nodes": 2, "processes": 1}, HOSTILE)
    ),
    "by accelerate of programs without Python": Start(
        Job("accelerate", ("--no_python",), {"script": "./train.py"}, HOSTILE)
    ),
    "by accelerate with DeepSpeed in a linked folder": Start(
        Job(
            "accelerate",
            ("--use_deepspeed", "--zero_stage", "3", "--offload_param_device", "CPU"),
            {"workdir": "link", "pythonpath": ["stub", "b"]},
            HOSTILE,
        )
    ),
    "by accelerate with variables in lower case": Start(
        Job("accelerate", keys={"env": {"wandb_mode": "offline", "world_size": "7"}})
    ),
}


def write_deepspeed(folder: Path) -> None:
    """Write as much of DeepSpeed as accelerate's launcher asks for."""
    runner = folder / "stub" / "deepspeed" / "launcher"
    runner.mkdir(parents=True)
    for package in (runner, runner.parent):
        (package / "__init__.py").write_text("__version__ = '0.18.0'\n")
    (runner / "runner.py").write_text("DEEPSPEED_ENVIRONMENT_NAME = '.deepspeed_env'\n")
    facts = folder / "stub" / "deepspeed-0.18.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.18.0\n")
    (folder / "link").symlink_to(folder)
