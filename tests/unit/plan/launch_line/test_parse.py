from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.pasted_line import assert_same_job, plain
from support.project import Project

from safelaunch.config.write_job import job_yaml
from safelaunch.config.yaml_io.reader import parse
from safelaunch.errors import ConfigError
from safelaunch.plan.launch_line.parse import default_name, parse_line

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    (tmp_path / "pkg").mkdir()
    return project


def keys(line: str) -> dict[str, object]:
    """Return the keys of the job that a line means."""
    return {key.text: plain(value) for key, value in parse_line(line.split(" ")).items}


def refused(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_line(words)
    assert caught.value.where == "command line"
    return f"{caught.value.message} | {caught.value.hint}"


MEANS: dict[str, dict[str, object]] = {
    "python train.py --lr 1e-3": {
        "launcher": "python", "script": "train.py", "args": ["--lr", "1e-3"],
    },
    "python3.11 -u -X dev train.py": {
        "launcher": "python", "script": "train.py", "launcher_args": ["-u", "-X", "dev"],
    },
    "/env/bin/python -m pkg.train -m x": {
        "launcher": "python", "python": "/env/bin/python", "module": "pkg.train",
        "args": ["-m", "x"],
    },
    "python -mpkg.train": {"launcher": "python", "module": "pkg.train"},
    "python -c pass": {"launcher": "command", "command": ["python", "-c", "pass"]},
    "python": {"launcher": "command", "command": ["python"]},
    "bash run.sh": {"launcher": "command", "command": ["bash", "run.sh"]},
    "accelerate launch --num_processes 4 train.py --lr 1": {
        "launcher": "accelerate", "script": "train.py", "processes": "4", "args": ["--lr", "1"],
    },
    "accelerate launch --num-processes=4 train.py": {
        "launcher": "accelerate", "script": "train.py", "processes": "4",
    },
    "accelerate-launch --num_processes 4 -m pkg.train --num_processes 8": {
        "launcher": "accelerate", "module": "pkg.train", "processes": "4",
        "args": ["--num_processes", "8"],
    },
    "/env/bin/accelerate launch --num_processes 4 train.py": {
        "launcher": "accelerate", "script": "train.py", "processes": "4",
        "python": "/env/bin/python",
    },
    "python -m accelerate.commands.launch --num_processes 4 train.py": {
        "launcher": "accelerate", "script": "train.py", "processes": "4",
    },
    "accelerate launch --multi_gpu --num_machines 1 --machine_rank 0 --num_processes 4 train.py": {
        "launcher": "accelerate", "script": "train.py", "processes": "4",
    },
    "accelerate launch --num_machines 2 --num_processes 8 train.py": {
        "launcher": "accelerate", "script": "train.py", "processes": "4", "nodes": "2",
    },
    "accelerate launch --mixed_precision bf16 --gpu_ids 0,2 --num_processes 2 train.py": {
        "launcher": "accelerate", "script": "train.py", "processes": "2", "gpus": ["0", "2"],
        "mixed_precision": "bf16",
    },
    "accelerate launch --gpu_ids all train.py": {
        "launcher": "accelerate", "script": "train.py", "gpus": "auto",
    },
    "accelerate launch train.py": {
        "launcher": "accelerate", "script": "train.py", "gpus": "auto",
    },
    "CUDA_VISIBLE_DEVICES=0,1 accelerate launch train.py": {
        "launcher": "accelerate", "script": "train.py", "gpus": ["0", "1"],
    },
    "CUDA_VISIBLE_DEVICES=0,1 accelerate launch --gpu_ids 3 --num_processes 1 train.py": {
        "launcher": "accelerate", "script": "train.py", "gpus": ["3"], "processes": "1",
    },
    "CUDA_VISIBLE_DEVICES=1 NCCL_DEBUG=INFO python train.py": {
        "launcher": "python", "script": "train.py", "gpus": ["1"], "env": {"NCCL_DEBUG": "INFO"},
    },
    "CUDA_VISIBLE_DEVICES= python train.py": {
        "launcher": "python", "script": "train.py", "env": {"CUDA_VISIBLE_DEVICES": ""},
    },
    "accelerate launch --num_processes 2 --use_deepspeed --zero_stage=2 train.py": {
        "launcher": "accelerate", "script": "train.py", "processes": "2",
        "launcher_args": ["--use_deepspeed", "--zero_stage", "2"],
    },
    "torchrun --nproc_per_node=2 train.py -x": {
        "launcher": "torchrun", "script": "train.py", "processes": "2", "args": ["-x"],
    },
    "torchrun --nproc-per-node gpu train.py": {
        "launcher": "torchrun", "script": "train.py", "gpus": "auto",
    },
    "CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node gpu train.py": {
        "launcher": "torchrun", "script": "train.py", "gpus": ["2", "3"],
    },
    "torchrun train.py": {"launcher": "torchrun", "script": "train.py", "processes": "1"},
    "torchrun --standalone --nnodes 1 --node_rank 0 --nproc_per_node 2 --max-restarts=3 train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "2",
        "launcher_args": ["--max_restarts", "3"],
    },
    "python -m torch.distributed.run --nproc_per_node 2 -m pkg.train": {
        "launcher": "torchrun", "module": "pkg.train", "processes": "2",
    },
    "python -m torch.distributed.launch --nproc_per_node=2 --use_env train.py --x 1": {
        "launcher": "torchrun", "script": "train.py", "processes": "2", "args": ["--x", "1"],
    },
    "/env/bin/python3 -m torch.distributed.launch --nproc-per-node 2 --master_port 1 train.py": {
        "launcher": "torchrun", "version": "launch", "script": "train.py", "processes": "2",
        "python": "/env/bin/python3", "launcher_args": ["--master_port", "1"],
    },
    "torchrun --nnodes=2 --node-rank=1 --nproc_per_node 2 --master_addr=a --master_port 1 "
    "train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "2", "nodes": "2",
        "node_rank": "1", "launcher_args": ["--master_addr", "a", "--master_port", "1"],
    },
    "PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=a PET_STANDALONE=0 torchrun train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "1", "nodes": "2",
        "node_rank": "1", "launcher_args": ["--master_addr", "a"], "env": {"PET_STANDALONE": "0"},
    },
    "PET_NPROC_PER_NODE=8 torchrun --nproc_per_node 2 train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "2",
    },
    "torchrun --nnodes 2:2 --node_rank 1 --rdzv_backend c10d --rdzv_endpoint a:1 train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "1", "nodes": "2",
        "launcher_args": ["--rdzv_backend", "c10d", "--rdzv_endpoint", "a:1"],
    },
    "torchrun --nnodes=1:4 --rdzv_backend c10d --rdzv_endpoint a:1 train.py": {
        "launcher": "command", "command": [
            "torchrun", "--nnodes=1:4", "--rdzv_backend", "c10d", "--rdzv_endpoint", "a:1",
            "train.py",
        ],
    },
    "accelerate launch --num_machines 2 --machine_rank 1 --num_processes 4 "
    "--main_process_ip a --main_process_port 1 train.py": {
        "launcher": "accelerate", "script": "train.py", "processes": "2", "nodes": "2",
        "node_rank": "1",
        "launcher_args": ["--main_process_ip", "a", "--main_process_port", "1"],
    },
    "torchrun --nproc_per_node 2 -- train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "2",
    },
    "A=b=c B= python train.py": {
        "launcher": "python", "script": "train.py", "env": {"A": "b=c", "B": ""},
    },
    "env -u FOO --unset=BAR A=1 torchrun --nproc_per_node 2 train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "2",
        "env": {"FOO": "null", "BAR": "null", "A": "1"},
    },
    "A=1 env -uA B=1 python train.py": {
        "launcher": "python", "script": "train.py", "env": {"A": "null", "B": "1"},
    },
    "env -i A=1 python train.py": {
        "launcher": "command", "command": ["env", "-i", "A=1", "python", "train.py"],
    },
    "nohup time -p stdbuf -oL --error=0 setsid -w exec python train.py": {
        "launcher": "python", "script": "train.py",
    },
    "A=1 nohup env B=2 ./run.sh": {
        "launcher": "command", "command": ["./run.sh"], "env": {"A": "1", "B": "2"},
    },
    "timeout -k 30 -s TERM --foreground 36h torchrun --nproc_per_node 2 train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "2", "max_duration": "1d12h",
    },
    "A=1 timeout 90 bash run.sh": {
        "launcher": "command", "command": ["bash", "run.sh"], "env": {"A": "1"},
        "max_duration": "1m30s",
    },
    "timeout 1.5m python train.py": {
        "launcher": "python", "script": "train.py", "max_duration": "1m30s",
    },
    "timeout 0 python train.py": {"launcher": "python", "script": "train.py"},
    "timeout 0.00001 python train.py": {
        "launcher": "command", "command": ["timeout", "0.00001", "python", "train.py"],
    },
    "timeout 99999999999999d python train.py": {
        "launcher": "command", "command": ["timeout", "99999999999999d", "python", "train.py"],
    },
    "time -v -o t.txt python train.py": {
        "launcher": "python", "script": "train.py", "prefix": ["time", "-v", "-o", "t.txt"],
    },
    "timeout -s INT 2h python train.py": {
        "launcher": "command", "command": ["timeout", "-s", "INT", "2h", "python", "train.py"],
    },
    "timeout 1h timeout 2h python train.py": {
        "launcher": "command", "command": ["timeout", "2h", "python", "train.py"],
        "max_duration": "1h",
    },
    "swift sft --model x": {"launcher": "swift", "command": ["sft"], "args": ["--model", "x"]},
    "/env/bin/swift web_ui": {
        "launcher": "swift", "command": ["web_ui"], "python": "/env/bin/python",
    },
    "NPROC_PER_NODE=4 NNODES=1 CUDA_VISIBLE_DEVICES=0,1,2,3 MASTER_PORT=29600 swift rlhf --x": {
        "launcher": "swift", "command": ["rlhf"], "args": ["--x"], "processes": "4",
        "gpus": ["0", "1", "2", "3"], "env": {"MASTER_PORT": "29600"},
    },
    "NNODES=1 python -u -m swift.cli.main sft --x": {
        "launcher": "swift", "command": ["sft"], "args": ["--x"], "processes": "1",
    },
    "NPROC_PER_NODE=2 NNODES=2 NODE_RANK=1 swift sft --x": {
        "launcher": "command", "command": ["swift", "sft", "--x"],
        "env": {"NPROC_PER_NODE": "2", "NNODES": "2", "NODE_RANK": "1"},
    },
    "NPROC_PER_NODE=auto swift sft": {
        "launcher": "command", "command": ["swift", "sft"], "env": {"NPROC_PER_NODE": "auto"},
    },
    "NPROC_PER_NODE=2 swift deploy --x": {
        "launcher": "swift", "command": ["deploy"], "args": ["--x"],
        "env": {"NPROC_PER_NODE": "2"},
    },
    "env -u NPROC_PER_NODE swift sft": {
        "launcher": "swift", "command": ["sft"], "env": {"NPROC_PER_NODE": "null"},
    },
    "swift --help": {"launcher": "command", "command": ["swift", "--help"]},
    "A=1 numactl --cpunodebind=0 -m 0 torchrun --nproc_per_node 2 train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "2", "env": {"A": "1"},
        "prefix": ["numactl", "--cpunodebind=0", "-m", "0"],
    },
    "numactl --hardware": {"launcher": "command", "command": ["numactl", "--hardware"]},
    "nice -n 5 ionice -c2 -n 7 taskset -c 0-3 chrt -i 0 timeout 1h python train.py": {
        "launcher": "python", "script": "train.py", "max_duration": "1h",
        "prefix": [
            "nice", "-n", "5", "ionice", "-c2", "-n", "7", "taskset", "-c", "0-3", "chrt", "-i",
            "0",
        ],
    },
    "taskset -p 0xff 17": {"launcher": "command", "command": ["taskset", "-p", "0xff", "17"]},
    "nice ./run.sh": {"launcher": "command", "command": ["nice", "./run.sh"]},
    "uv run --with x --python 3.11 -- accelerate launch --num_processes 2 train.py": {
        "launcher": "accelerate", "script": "train.py", "processes": "2",
        "prefix": ["uv", "run", "--with", "x", "--python", "3.11", "--"],
    },
    "uv run --directory . python train.py": {
        "launcher": "python", "script": "train.py", "prefix": ["uv", "run"], "workdir": ".",
    },
    "uv --project=p run --torch-backend cu128 --module pkg.train": {
        "launcher": "python", "module": "pkg.train",
        "prefix": ["uv", "--project=p", "run", "--torch-backend", "cu128"],
    },
    "hatch -e gpu run python train.py": {
        "launcher": "python", "script": "train.py", "prefix": ["hatch", "-e", "gpu", "run"],
    },
    "env -C . -u B A=1 python train.py": {
        "launcher": "python", "script": "train.py", "workdir": ".", "env": {"B": "null", "A": "1"},
    },
    "python -W ignore -m torch.distributed.run --nproc_per_node 2 train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "2",
        "python_options": ["-W", "ignore"],
    },
    "python -um torch.distributed.launch --use_env train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "1",
    },
    "python -Om accelerate.commands.accelerate_cli launch --num_processes 2 train.py": {
        "launcher": "accelerate", "script": "train.py", "processes": "2", "python_options": ["-O"],
    },
    "v/bin/python /opt/bin/torchrun --nproc_per_node 2 train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "2", "python": "v/bin/python",
    },
    "python -m composer.cli.launcher -n 2 train.py": {
        "launcher": "composer", "script": "train.py", "processes": "2",
    },
    "python -X dev -m paddle.distributed.launch --gpus 0,1 train.py": {
        "launcher": "command",
        "command": ["python", "-X", "dev", "-m", "paddle.distributed.launch", "--gpus", "0,1",
                    "train.py"],
    },
    "python -m deepspeed.launcher.launch --world_info=x train.py": {
        "launcher": "command",
        "command": ["python", "-m", "deepspeed.launcher.launch", "--world_info=x", "train.py"],
    },
    "torchrun --nnode=1 --nproc_per_nod=8 train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "8",
    },
    "torchrun --nproc-per-node cpu train.py": {
        "launcher": "command", "command": ["torchrun", "--nproc-per-node", "cpu", "train.py"],
    },
    "torchrun --no-python --nproc_per_node 2 bash x.sh --lr 1": {
        "launcher": "torchrun", "script": "bash", "args": ["x.sh", "--lr", "1"], "processes": "2",
        "launcher_args": ["--no_python"],
    },
    "accelerate launch --brand_new train.py": {
        "launcher": "command", "command": ["accelerate", "launch", "--brand_new", "train.py"],
    },
    "accelerate launch --num_processes=1 --gpu_ids=0, train.py": {
        "launcher": "accelerate", "script": "train.py", "gpus": ["0"], "processes": "1",
    },
    "deepspeed --num_gpus -1 --num_nodes=-1 train.py": {
        "launcher": "deepspeed", "script": "train.py", "gpus": "auto",
    },
    "deepspeed --elastic_training --min_elastic_nodes 1 train.py": {
        "launcher": "command",
        "command": ["deepspeed", "--elastic_training", "--min_elastic_nodes", "1", "train.py"],
    },
    "uv run -q train.py --x": {
        "launcher": "python", "version": "script", "script": "train.py", "args": ["--x"],
        "prefix": ["uv", "run", "-q"],
    },
    "uv run -m torch.distributed.run --nproc_per_node 2 train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "2", "prefix": ["uv", "run"],
    },
    "coverage run --branch --data-file=c -L train.py": {
        "launcher": "python", "version": "script", "script": "train.py",
        "prefix": ["coverage", "run", "--branch", "--data-file=c", "-L"],
    },
    "coverage run -m pytest": {
        "launcher": "command", "command": ["coverage", "run", "-m", "pytest"],
    },
    "kernprof -lv -o out.prof train.py --x": {
        "launcher": "python", "version": "script", "script": "train.py", "args": ["--x"],
        "prefix": ["kernprof", "-lv", "-o", "out.prof"],
    },
    "poetry run -m x": {"launcher": "command", "command": ["poetry", "run", "-m", "x"]},
    "env -m x": {"launcher": "command", "command": ["env", "-m", "x"]},
    "uv sync": {"launcher": "command", "command": ["uv", "sync"]},
    "conda run -n rl python train.py": {
        "launcher": "python", "script": "train.py",
        "prefix": ["conda", "run", "--no-capture-output", "-n", "rl"],
    },
    "conda run -p /env --live-stream python train.py": {
        "launcher": "python", "script": "train.py",
        "prefix": ["conda", "run", "-p", "/env", "--live-stream"],
    },
    "micromamba run -n rl torchrun train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "1",
        "prefix": ["micromamba", "run", "-n", "rl"],
    },
    "poetry run python -m pkg.train": {
        "launcher": "python", "module": "pkg.train", "prefix": ["poetry", "run"],
    },
    "nsys profile -t cuda,nvtx -o out torchrun --nproc_per_node 2 train.py": {
        "launcher": "torchrun", "script": "train.py", "processes": "2",
        "prefix": ["nsys", "profile", "-t", "cuda,nvtx", "-o", "out"],
    },
    "py-spy record -o out -- python train.py --x python y": {
        "launcher": "python", "script": "train.py", "args": ["--x", "python", "y"],
        "prefix": ["py-spy", "record", "-o", "out", "--"],
    },
    "strace -o python python train.py": {
        "launcher": "command", "command": ["strace", "-o", "python", "python", "train.py"],
    },
    "sudo docker run x": {"launcher": "command", "command": ["sudo", "docker", "run", "x"]},
}  # fmt: skip


@pytest.mark.parametrize("line", MEANS)
def test_a_pasted_line_becomes_the_keys_of_a_job(line: str) -> None:
    assert keys(line) == MEANS[line]


REFUSED = {
    ("A=1",): "no command in the line",
    ("UID=1", "python", "x.py"): "`UID` is read-only",
    ("torchrun", "--nproc_per_node", "2"): "names no program for torchrun",
    ("torchrun", "--nproc_per_node"): "`--nproc_per_node` has no value",
    ("torchrun", "--nproc", "2", "x.py"): "did you mean `--nproc_per_node`?",
    ("torchrun", "--rdzv", "c10d", "x.py"): "did you mean",
    ("accelerate", "launch", "--main_port", "1", "x.py"): "did you mean `--main_process_port`?",
    ("$", "torchrun", "x.py"): "the prompt of a shell",
    ("$ torchrun x.py",): "the prompt of a shell",
    ("!torchrun", "x.py"): "leave `!` out",
    ("--nproc_per_node", "2", "x.py"): "is an option, and no program stands before it",
    ("\u2014num_processes", "2"): "no ASCII `-`",
    ("torchrun", "\u2014nproc_per_node", "2", "x.py"): "no ASCII `-`",
    ("python", "x.py", "\u2013lr", "1"): "a text processor has replaced it",
    ("accelerate", "launch", "--num_machines", "2", "--num_processes", "5", "x.py"): "evenly",
    ("accelerate", "launch", "--num_machines", "0", "--num_processes", "5", "x.py"): "0` machines",
    ("accelerate", "launch", "--num_machines", "2", "--num_processes", "x", "x.py"): "`x` proc",
    ("python 'x.py",): "the line cannot be read",
    ("python x.py > log",): "`>` is shell",
    ("cd x && python x.py 2>&1 | tee log",): "`bash -c '...'` runs the text as it stands",
    ("python x.py 2>&1 | tee log",): "`>&` is shell",
    ("python x.py &",): "`&` is shell",
    ("sudo", "-E", "env", "A=1", "torchrun", "x.py"): "as another user",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_line_that_is_not_literal_is_refused(words: tuple[str, ...]) -> None:
    assert REFUSED[words] in refused(*words)


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ("python x.py '|' '>' \";\" \\& 'a & b'", ["|", ">", ";", "&", "a & b"]),
        ("python x.py \\\n  --lr 1 \\\r\n  --b", ["--lr", "1", "--b"]),
        ("python x.py 'a\\\nb'", ["a\\\nb"]),
        ("  python x.py a#b  ", ["a#b"]),
        ("python x.py --a 1  # two gpus", ["--a", "1"]),
        (
            "# train\npython x.py \\\n --a '# 1' \"#\"b c#d e\\#f \\#g # it's",
            ["--a", "# 1", "#b", "c#d", "e#f", "#g"],
        ),
        ("python x.py $HOME", ["$HOME"]),
    ],
)
def test_a_line_in_one_string_is_split_as_a_shell_would(line: str, args: list[str]) -> None:
    args_node = parse_line([line]).get("args")
    assert args_node is not None
    assert [item.text for item in args_node.items] == args


@pytest.mark.parametrize(
    "text",
    [
        "cd x && make",
        "python x.py && python y.py",
        "python x.py; echo done",
        "python x.py --a $(id)",
        "python x.py --a `id`",
        "python x.py\npython y.py",
        "export A=1 && mkdir o && cd x && mkdir p && cd y && python x.py",
        "A=1; python x.py",
        "conda activate x && python x.py",
    ],
)
def test_a_text_that_only_a_shell_understands_is_left_to_it(text: str) -> None:
    assert plain(parse_line([text])) == {"launcher": "command", "command": ["bash", "-c", text]}


def test_an_empty_include_of_deepspeed_is_none() -> None:
    assert plain(parse_line(["deepspeed", "--include=", "train.py"])) == plain(
        parse_line(["deepspeed", "train.py"])
    )


def test_blanks_between_the_gpus_of_deepspeed_mean_nothing() -> None:
    assert plain(parse_line(["deepspeed", "--include", "localhost:0, 1", "train.py"])) == {
        "launcher": "deepspeed", "script": "train.py", "gpus": ["0", "1"],
    }  # fmt: skip


def test_no_word_of_a_prefix_is_lost_with_its_folder() -> None:
    words = ["uv", "run", "--with", "", "--directory=.", "--env-file", "e", "python", "train.py"]
    assert plain(parse_line(words)) == {
        "launcher": "python", "script": "train.py", "workdir": ".",
        "prefix": ["uv", "run", "--with", "", "--env-file", "e"],
    }  # fmt: skip


def test_what_prepares_the_folder_becomes_setup() -> None:
    text = "cd src && mkdir -p 'a b' && export A=1; ulimit -n 65535; torchrun train.py"
    assert plain(parse_line([text])) == {
        "launcher": "torchrun", "script": "train.py", "processes": "1", "workdir": "src",
        "setup": ["mkdir -p 'a b' || exit", "ulimit -n 65535"], "env": {"A": "1"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("torchrun --nproc_per_node 2 train.py --x 'a $b'", "a $b"),
        ("A=1 exec torchrun --nproc_per_node=2 train.py --x 'a b'", "a b"),
        ("torchrun --nproc_per_node 2 train.py --x $HOME", None),
        ("torchrun --nproc_per_node 2 train.py > log", None),
        ('set -euo pipefail; torchrun --nproc_per_node 2 train.py --x "a & b";', "a & b"),
        ("A=1; torchrun --nproc_per_node 2 train.py", None),
        ("source x.sh && torchrun --nproc_per_node 2 train.py", None),
        ("cd x || torchrun --nproc_per_node 2 train.py", None),
        ("export A && torchrun --nproc_per_node 2 train.py", None),
        ("torchrun --nproc_per_node 2 train.py --x '", None),
        ("cd x", None),
        ("", None),
    ],
)
def test_a_shell_around_one_literal_command_is_looked_through(text: str, inner: str | None) -> None:
    for words in (["bash", "-c", text], ["timeout", "1h", "/bin/bash", "-e", "-c", text]):
        job = {key.text: value for key, value in parse_line(words).items}
        if inner is None:
            assert plain(job["command"]) == words[words[0] == "timeout" and 2 :]
        else:
            assert (job["launcher"].text, plain(job["processes"])) == ("torchrun", "2")
            assert plain(job["args"]) == ["--x", inner]
        assert ("max_duration" in job) == (words[0] == "timeout")


@pytest.mark.parametrize("words", [[], ["bash", "-c"], ["nice", "sh", "-c"]])
def test_what_a_text_prepares_becomes_keys_of_the_job(words: list[str]) -> None:
    text = "export A='1 2' B= && unset C\nsource v/bin/activate; set -x; D=4 torchrun train.py"
    assert plain(parse_line([*words, text])) == {
        "launcher": "torchrun", "script": "train.py", "processes": "1", "venv": "v",
        "env": {"A": "1 2", "B": "", "C": "null", "D": "4"},
        **({"prefix": ["nice"]} if words[:1] == ["nice"] else {}),
    }  # fmt: skip


def test_the_folder_of_a_text_is_that_of_its_paths() -> None:
    text = "cd /srv/llm && cd src && env/bin/python train.py"
    assert plain(parse_line(["bash", "-c", text])) == {
        "launcher": "python", "python": "/srv/llm/src/env/bin/python", "script": "train.py",
        "workdir": "/srv/llm/src",
    }  # fmt: skip
    assert plain(parse_line(["cd src && . ../v/bin/activate && python t.py"])) == {
        "launcher": "python", "script": "t.py", "workdir": "src", "venv": "src/../v",
    }  # fmt: skip


@pytest.mark.parametrize("wrapper", [["nice"], ["strace", "-f"], ["nsys", "--x"], ["nohup"]])
def test_a_line_of_thousands_of_wrappers_is_left_alone(wrapper: list[str]) -> None:
    words = [*wrapper * 2000, "python", "t.py"]
    command = plain(parse_line(words))["command"]  # type: ignore[index]
    assert command == words[len(words) - len(command) :]


def test_a_prefix_stays_in_the_folder_that_its_files_are_named_from() -> None:
    words = ["strace", "-o", "out", "bash", "-c", "cd x && python t.py"]
    assert plain(parse_line(words)) == {"launcher": "command", "command": words}


@pytest.mark.parametrize(
    "words",
    [["bash", "-c", "python x.py", "name"], ["bash", "-lc", "python x.py"], ["bash", "-c"],
     ["sh", "-s"], ["bash", "x.sh", "-c", "python x.py"]],
)  # fmt: skip
def test_a_shell_that_does_more_is_a_command(words: list[str]) -> None:
    assert plain(parse_line(["A=1", *words])) == {
        "launcher": "command", "command": words, "env": {"A": "1"},
    }  # fmt: skip


def test_what_looks_like_the_shell_is_left_alone_in_separate_words() -> None:
    assert keys("python x.py | > & ;")["args"] == ["|", ">", "&", ";"]


@pytest.mark.parametrize(
    "value",
    [
        *("EMPTY", "xxx", "YOUR_OPENAI_API_KEY", "your-key-here", "***"),
        *("INPUT YOUR OPENAI API", "your own key goes here"),
    ],
)
def test_a_harmless_value_under_a_secret_name_is_kept(value: str) -> None:
    words = [f"OPENAI_API_KEY={value}", "python", "x.py", "--hub_token", "<sdk-token>"]
    written = parse(job_yaml(parse_line(words), None), "job.yaml")
    assert plain(written) == {
        "launcher": "python", "script": "x.py", "args": {"hub_token": "<sdk-token>"},
        "env": {"OPENAI_API_KEY": value},
    }  # fmt: skip


def test_an_example_of_a_secret_may_be_several_words() -> None:
    words = ["python", "x.py", "--api_key", "INPUT", "YOUR", "OPENAI", "API", "--lr", "1"]
    assert "INPUT" in job_yaml(parse_line(words), None)
    words[3:7] = ["abcdef", "YOUR", "OPENAI", "API"]
    with pytest.raises(ConfigError):
        job_yaml(parse_line(words), None)


@pytest.mark.parametrize(
    "words",
    [
        *(["--api_key", "abcdef"], ["--api_key=abcdef"], ["--x", "hf_" + "a" * 30]),
        *(["--password", "not your ab12"], ["--password", "Your 1st cat"]),
    ],
)
def test_a_secret_among_the_words_is_never_written(words: list[str]) -> None:
    tree = parse_line(["python", "x.py", *words])
    with pytest.raises(ConfigError):
        job_yaml(tree, None)


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("torchrun --nproc-per-node= x.py", "--nproc_per_node"),
        ("torchrun --nnodes 2 --node_rank x x.py", "--node_rank"),
        ("PET_NNODES=x torchrun x.py", "PET_NNODES"),
        ("accelerate launch --num_processes= x.py", "--num_processes"),
        ("accelerate launch --gpu_ids=a,b x.py", "--gpu_ids"),
        ("fabric run --devices= x.py", "--devices"),
    ],
)
def test_a_wrong_value_is_refused_with_its_option(project: Project, line: str, option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        project.plan(job_yaml(parse_line(line.split(" ")), None))
    assert str(caught.value).startswith(f"command line: `{option}`: expected ")


def test_a_written_job_names_its_profile() -> None:
    assert job_yaml(parse_line(["python", "x.py"]), "cpu").startswith("profile: cpu\n")


def test_plain_options_are_written_as_a_mapping() -> None:
    written = job_yaml(parse_line(["python", "x.py", "--lr", "1e-3", "--flag"]), None)
    assert "args:\n  lr: 1e-3\n  flag: true\n" in written


def test_words_that_a_mapping_would_change_are_written_as_a_list() -> None:
    written = job_yaml(parse_line(["python", "x.py", "--lr", "-1"]), None)
    assert "args:\n  - '--lr'\n  - -1\n" in written


def test_the_predecessor_of_torchrun_passes_its_local_rank(project: Project) -> None:
    plan = project.plan("launcher: torchrun\nversion: launch\nscript: train.py\nprocesses: 2\n")
    assert plan.nodes[0].argv[1:3] == ("-m", "torch.distributed.launch")
    with pytest.raises(ConfigError, match="torchrun has no version `2`"):
        project.plan("launcher: torchrun\nversion: 2\nscript: train.py\nprocesses: 2\n")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("torchrun --nproc_per_node 2 src/train.py", "train"),
        ("python -m pkg.train", "pkg-train"),
        ("bash scripts/train.sh --x other.sh", "train"),
        ("numactl -N 0 torchrun train_ddp.py", "train_ddp"),
        ("swift sft --model x", "swift-sft"),
        ("/opt/bin/llamafactory-cli train x.yaml", "llamafactory-train"),
        ("llamafactory-cli env", "llamafactory-cli-env"),
        ("ray job submit -- python3 -m openrlhf.cli.train_ppo_ray", "openrlhf-cli-train_ppo_ray"),
        ("uv run python -m pkg.train -m x", "pkg-train"),
        ("./run --x", "run"),
        ("sleep 5", "sleep"),
        ("... ...", "job"),
    ],
)
def test_a_run_is_named_after_the_program_of_its_line(line: str, name: str) -> None:
    assert default_name(parse_line(line.split(" "))) == name


RANKS = "torchrun --nproc_per_node 2 train.py"


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (f"WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 NODE_RANK=0 {RANKS}", "WORLD_SIZE, LOCAL_WORLD_SIZE"),
        (f"GROUP_RANK=0 {RANKS}", "GROUP_RANK"),
        ("RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 torchrun train.py", "RANK, LOCAL_RANK, WORLD_SIZE"),
    ],
)
def test_what_repeats_the_launcher_is_left_to_it(project: Project, line: str, left: str) -> None:
    plan = project.line(parse_line(line.split(" ")))
    assert plan.notes == (f"left to torchrun, which sets the same: {left}",)
    env = plan.nodes[0].env
    assert not set(left.split(", ")) & set(env)
    # torchrun does not set it, and a program may read it
    assert ("NODE_RANK" in env) == ("NODE_RANK" in line)


def test_a_program_without_ranks_sees_the_variables_of_its_line(project: Project) -> None:
    line = "RANK=0 WORLD_SIZE=1 accelerate launch --num_processes 1 train.py"
    plan = project.line(parse_line(line.split(" ")))
    assert (plan.nodes[0].env["RANK"].value, plan.nodes[0].env["WORLD_SIZE"].value) == ("0", "1")
    assert plan.notes == ()


@pytest.mark.parametrize(
    "line",
    [f"WORLD_SIZE=4 {RANKS}", f"RANK=0 {RANKS}", f"NODE_RANK=1 {RANKS}", f"WORLD_SIZE= {RANKS}",
     "WORLD_SIZE=1 torchrun --nproc_per_node gpu train.py"],
)  # fmt: skip
def test_what_contradicts_the_launcher_is_refused(project: Project, line: str) -> None:
    with pytest.raises(ConfigError, match="is set by torchrun for each rank"):
        project.line(parse_line(line.split(" ")))


# -- there and back --------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [line for line in MEANS if "num_machines 2" not in line])
def test_a_written_job_runs_the_same_script_as_the_line(line: str, project: Project) -> None:
    assert_same_job(project, line.split(" "))


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=20) | (
    st.sampled_from(
        [
            "", "--", "-", "--a", "--a=b", "-1", "null", "~", "true", "False", "1e-3", "017",
            "a: b", "- a", "#", "[", "{", "*a", "&a", "!x", "|", ">", "%", "@", "`", "'", '"', "\\",
            "\n", "\ufeff", "\x85", "\u2028", "<<", "...", "---", "=", "?", ":", "a:", "yes",
            "--lr", "--b",
        ]
    )
)  # fmt: skip


@settings(
    max_examples=200,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(WORD, max_size=6))
@example(["--a", "-1"])
@example(["--a", "", "--a"])
@example(["--<<", "x"])
def test_any_words_survive_being_written(project: Project, words: list[str]) -> None:
    if any(w[:1] > "\u2000" and w[:1] < "\u2213" for w in words):
        words = ["x"]  # dashes of a text processor are refused, and tested above
    line = ["torchrun", "--nproc_per_node", "2", "train.py", *words]
    tree = parse_line(line)
    assert project.words(job_yaml(tree, None)) == words


@settings(
    max_examples=100,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(WORD)
def test_any_value_of_a_variable_survives_being_written(project: Project, value: str) -> None:
    tree = parse_line([f"A={value}", "python", "train.py"])
    assert project.env(job_yaml(tree, None))["A"].value == value


@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(st.lists(WORD, min_size=1, max_size=5))
def test_a_quoted_line_in_one_string_gives_its_words_back(words: list[str]) -> None:
    if any(w[:1] > "\u2000" and w[:1] < "\u2213" for w in words):
        words = ["x"]
    args_node = parse_line([shlex.join(["python", "x.py", *words])]).get("args")
    assert args_node is not None
    assert [item.text for item in args_node.items] == words


def test_what_people_type_before_a_launch_is_left_out() -> None:
    assert keys("nohup env A=1 torchrun --nproc_per_node 2 t.py")["launcher"] == "torchrun"


def test_accelerate_without_launch_is_refused() -> None:
    assert "accelerate launch" in refused("accelerate", "lunch", "train.py")


def test_an_unbuffered_python_may_run_torchrun() -> None:
    line = "python3 -u -m torch.distributed.run --nproc_per_node 2 t.py"
    assert keys(line)["launcher"] == "torchrun"
