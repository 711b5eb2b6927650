from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import PYTHON, TORCHRUN, Project

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


BAD = {
    "unknown key": (
        "launcher: torchrun\nscript: train.py\nproceses: 2\n",
        "job.yaml:3:1",
        "unknown key `proceses`",
        "did you mean `processes`?",
    ),
    "wrong type": (
        "launcher: torchrun\nscript: train.py\nprocesses: four\n",
        "job.yaml:3:12",
        "expected a whole number of at least 1, got `four`",
        "",
    ),
    "quoted number": (
        'launcher: torchrun\nscript: train.py\nprocesses: "4"\n',
        "job.yaml:3:12",
        "expected a whole number",
        "without the quotes",
    ),
    "list for a path": (
        "launcher: python\nscript: [train.py]\n",
        "job.yaml:2:9",
        "expected a path, got a list",
        "",
    ),
    "map for a word": (
        "launcher: {a: b}\nscript: train.py\n",
        "job.yaml:1:11",
        "expected a launcher, got a mapping",
        "",
    ),
    "zero processes": (
        "launcher: torchrun\nscript: train.py\nprocesses: 0\n",
        "job.yaml:3:12",
        "expected a whole number of at least 1, got `0`",
        "",
    ),
    "octal processes": (
        "launcher: torchrun\nscript: train.py\nprocesses: 017\n",
        "job.yaml:3:12",
        "got `017`",
        "",
    ),
    "carriage return": (
        PYTHON + 'args: {a: "1\\r"}\n',
        "job.yaml:3:11",
        "a carriage return in a value",
        "remove it",
    ),
    "carriage return in env": (
        PYTHON + 'env:\n  PORT: "1\\r"\n',
        "job.yaml:4:9",
        "a carriage return in a value",
        "remove it",
    ),
    "NUL": (PYTHON + 'args: ["\\0"]\n', "job.yaml:3:8", "a NUL byte", ""),
    "NUL in extends": (
        'extends: "a\\0b"\n' + PYTHON,
        "job.yaml:1:10",
        "a NUL byte",
        "",
    ),
    "bad name": (
        PYTHON + "name: my job\n",
        "job.yaml:3:7",
        "`my job` is no job name",
        "",
    ),
    "long name": (PYTHON + f"name: {'x' * 42}\n", "job.yaml:3:7", "is no job name", ""),
    "unknown profile": (
        PYTHON + "profile: rtx509\n",
        "job.yaml:3:10",
        "unknown profile `rtx509`",
        "did you mean `rtx5090`?",
    ),
    "missing profile file": (
        PYTHON + "profile: ./mine.yaml\n",
        "job.yaml:3:10",
        "no profile file `./mine.yaml`",
        "",
    ),
    "unknown launcher": (
        "launcher: torchun\nscript: train.py\n",
        "job.yaml:1:11",
        "unknown launcher `torchun`",
        "did you mean `torchrun`?",
    ),
    "no launcher": ("# a job\nscript: train.py\n", "job.yaml:2:1", "no `launcher`", "one of acc"),
    "nothing to run": (
        "launcher: python\n",
        "job.yaml:1:1",
        "python has nothing to run",
        "give `script` or `module`",
    ),
    "script and module": (
        PYTHON + "module: train\n",
        "job.yaml:3:9",
        "`script` and `module` together",
        "give `script` or `module`",
    ),
    "script for command": (
        "launcher: command\nscript: train.py\n",
        "job.yaml:2:9",
        "launcher `command` takes no `script`",
        "give `command`",
    ),
    "missing script": (
        "launcher: python\nscript: other.py\n",
        "job.yaml:2:9",
        "script `other.py` does not exist",
        "looked in /",
    ),
    "directory as script": (
        "launcher: python\nscript: .\n",
        "job.yaml:2:9",
        "script `.` is a directory",
        "looked in /",
    ),
    "no count": (
        "launcher: torchrun\nscript: train.py\n",
        "job.yaml:1:11",
        "number of processes missing",
        "give `processes: N` per node",
    ),
    "repeated GPU": (
        "launcher: torchrun\nscript: train.py\ngpus: [0, 1, 0]\n",
        "job.yaml:3:14",
        "GPU 0 is listed twice",
        "",
    ),
    "GPU with a leading zero": (
        "launcher: torchrun\nscript: train.py\ngpus: [0, 00]\n",
        "job.yaml:3:11",
        "expected a GPU index or UUID, got `00`",
        "",
    ),
    "no GPUs": (
        "launcher: torchrun\nscript: train.py\ngpus: []\n",
        "job.yaml:3:7",
        "got an empty list",
        "",
    ),
    "zero GPUs": (
        "launcher: torchrun\nscript: train.py\ngpus: 0\n",
        "job.yaml:3:7",
        "expected",
        "",
    ),
    "more processes than GPUs": (
        "launcher: torchrun\nscript: train.py\ngpus: 2\nprocesses: 3\n",
        "job.yaml:4:12",
        "3 processes on 2 GPUs",
        "two ranks on one GPU",
    ),
    "nodes without hosts": (
        TORCHRUN + "nodes: 2\n",
        "job.yaml:4:8",
        "`nodes: 2` without `hosts`",
        "hosts: [first, second]",
    ),
    "fewer hosts than nodes": (
        TORCHRUN + "nodes: 2\nhosts: [a]\n",
        "job.yaml:4:8",
        "1 host for 2 nodes",
        "",
    ),
    "host twice": (TORCHRUN + "hosts: [a, a]\n", "job.yaml:4:8", "a host is listed twice", ""),
    "host with a blank": (TORCHRUN + "hosts: ['a b']\n", "job.yaml:4:9", "is no host name", ""),
    "nodes for one process": (
        PYTHON + "hosts: [a, b]\n",
        "job.yaml:3:8",
        "launcher `python` runs on one node",
        "",
    ),
    "version for swift": (
        "launcher: swift\ncommand: [sft]\nversion: 2\n",
        "job.yaml:3:10",
        "launcher `swift` takes no `version`",
        "",
    ),
    "unknown version of python": (
        "launcher: python\nscript: train.py\nversion: 2\n",
        "job.yaml:3:10",
        "python has no version `2`",
        "`version: script` is for a prefix that runs the script",
    ),
    "unknown version of torchrun": (
        TORCHRUN + "version: 2\n",
        "job.yaml:4:10",
        "torchrun has no version `2`",
        "`version: launch` is torch.distributed.launch",
    ),
    "bad module": (
        "launcher: python\nmodule: pkg/train.py\n",
        "job.yaml:2:9",
        "is no module name",
        "",
    ),
    "bad variable name": (
        PYTHON + "env:\n  A-B: 1\n",
        "job.yaml:4:3",
        "`A-B` is no variable name",
        "letters, digits",
    ),
    "variable name with a blank": (
        PYTHON + "env:\n  'A ': 1\n",
        "job.yaml:4:3",
        "`A ` is no variable name",
        "remove the blank",
    ),
    "read-only variable": (PYTHON + "env: {UID: 1}\n", "job.yaml:3:7", "`UID` is read-only", ""),
    "variable of bash": (PYTHON + "env: {RANDOM: 1}\n", "job.yaml:3:7", "that bash sets", ""),
    "reserved variable": (
        PYTHON + "env: {SAFELAUNCH_RUN_ID: 1}\n",
        "job.yaml:3:7",
        "`SAFELAUNCH_RUN_ID` is reserved",
        "",
    ),
    "RANK for torchrun": (
        TORCHRUN + "env: {RANK: 0}\n",
        "job.yaml:4:13",
        "`RANK` is set by torchrun for each rank",
        "set `processes:` and `nodes:`",
    ),
    "RANK from the environment for torchrun": (
        TORCHRUN + "env_from: [HF_TOKEN, RANK]\n",
        "job.yaml:4:22",
        "`RANK` is set by torchrun for each rank",
        "set `processes:` and `nodes:`",
    ),
    "bad name in env_from": (PYTHON + "env_from: [A-B]\n", "job.yaml:3:12", "no variable name", ""),
    "bad name in inherit": (PYTHON + "inherit: [A, '*']\n", "job.yaml:3:14", "variable name", ""),
    "env and env_from": (
        PYTHON + "env: {A: 1}\nenv_from: [A]\n",
        "job.yaml:3:10",
        "`A` is in `env` and in `env_from`",
        "",
    ),
    "list as variable": (
        PYTHON + "env: {A: [1]}\n",
        "job.yaml:3:10",
        "expected a single value, null or {prepend: ...}, got a list",
        "",
    ),
    "unknown key beside prepend": (
        PYTHON + "env:\n  PATH: {prepend: /a, append: /b}\n",
        "job.yaml:4:23",
        "unknown key `append`",
        "known here: `prepend`",
    ),
    "nothing to prepend": (
        PYTHON + "env: {PATH: {prepend: []}}\n",
        "job.yaml:3:23",
        "nothing to prepend",
        "",
    ),
    "dashes in args": (
        PYTHON + "args: {--lr: 1}\n",
        "job.yaml:3:8",
        "`--lr` is no option name",
        "leave the dashes out",
    ),
    "blank in an option": (PYTHON + "args: {a b: 1}\n", "job.yaml:3:8", "is no option name", ""),
    "map in args": (
        PYTHON + "args: {a: {b: 1}}\n",
        "job.yaml:3:11",
        "expected a single value or a list, got a mapping",
        "",
    ),
    "nothing in a list of args": (
        PYTHON + "args:\n  - --a\n  -\n  - b\n",
        "job.yaml:5:4",
        "expected a word, got nothing",
        "quote it",
    ),
    "unknown field in log": (
        PYTHON + "log: logs/{date}.log\n",
        "job.yaml:3:6",
        "unknown field `{date}`",
        "known: {name}, {time}, {id}",
    ),
    "bare python": (
        PYTHON + "python: python3\n",
        "job.yaml:3:9",
        "`python: python3` is no path",
        "write it absolute",
    ),
    "python and venv": (
        PYTHON + "python: ./p\nvenv: v\n",
        "job.yaml:4:7",
        "`python` and `venv` together",
        "`python: null` removes",
    ),
    "conda without root": (
        PYTHON + "conda: x\n",
        "job.yaml:3:8",
        "`conda` needs `conda_root`",
        "conda_root: /opt/conda",
    ),
    "conda as path": (
        PYTHON + "conda: /opt/x\nconda_root: /opt/conda\n",
        "job.yaml:3:8",
        "is no environment name",
        "",
    ),
    "colon in pythonpath": (
        PYTHON + "pythonpath: [a:b]\n",
        "job.yaml:3:14",
        "a colon cannot be part",
        "",
    ),
    "line break in a path": (PYTHON + 'workdir: "a\\nb"\n', "job.yaml:3:10", "a line break", ""),
    "empty path": (PYTHON + 'workdir: ""\n', "job.yaml:3:10", "an empty path", ""),
    "missing base": (
        "extends: base.yaml\n" + PYTHON,
        "job.yaml:1:10",
        "no such file `base.yaml`",
        "",
    ),
    "base that is a map": ("extends: {a: b}\n" + PYTHON, "job.yaml:1:10", "expected a list", ""),
    "extends itself": (
        "extends: job.yaml\n" + PYTHON,
        "job.yaml:1:10",
        "`extends` leads back to",
        "",
    ),
    "long word": (
        PYTHON + f"args: [{'x' * (128 * 1024)}]\n",
        "job.yaml:3:8",
        "a word of 131,072 bytes",
        "put it into a file",
    ),
    "long variable": (
        PYTHON + f"env: {{A: {'x' * (128 * 1024 - 1)}}}\n",
        "job.yaml:3:10",
        "`A` is longer than Linux takes",
        "",
    ),
    "flag of the launcher that the job says": (
        TORCHRUN + "launcher_args: {nproc-per-node: 4}\n",
        "job.yaml:4:16",
        "`--nproc_per_node` is not for `launcher_args`: a key of the job sets it",
        "use `processes:`",
    ),
    "near miss of a launcher flag": (
        TORCHRUN + "launcher_args: {max_restart: 4}\n",
        "job.yaml:4:16",
        "torchrun has no flag `--max_restart`",
        "did you mean `--max_restarts`?",
    ),
    "switch with a value": (
        TORCHRUN.replace("torchrun", "accelerate") + "launcher_args: {use_deepspeed: True}\n",
        "job.yaml:4:16",
        "`--use_deepspeed` of accelerate takes no value, got True",
        "use_deepspeed: true",
    ),
    "flag without its value": (
        TORCHRUN + "launcher_args: {max_restarts: true}\n",
        "job.yaml:4:16",
        "`--max_restarts` of torchrun takes one value, got none",
        "",
    ),
    "program among launcher_args": (
        TORCHRUN + "launcher_args: [other.py]\n",
        "job.yaml:4:16",
        "`other.py` is no flag of torchrun",
        "",
    ),
    "program among the interpreter's options": (
        PYTHON + "launcher_args: [-u, other.py]\n",
        "job.yaml:3:16",
        "`other.py` is no option of the interpreter",
        "",
    ),
    "interpreter's options as a mapping": (
        PYTHON + "launcher_args: {u: true}\n",
        "job.yaml:3:16",
        "the interpreter's options are a list",
        "launcher_args: [-u",
    ),
    "uncounted GPUs on several nodes": (
        "launcher: accelerate\nscript: train.py\ngpus: auto\nhosts: [a, b]\n",
        "job.yaml:3:7",
        "`gpus: auto` on several nodes",
        "give `processes:`",
    ),
    "unknown swift subcommand": (
        "launcher: swift\ncommand: [sftt]\n",
        "job.yaml:2:10",
        "swift has no subcommand `sftt`",
        "did you mean `sft`?",
    ),
    "no swift subcommand": (
        "launcher: swift\ncommand: []\n",
        "job.yaml:2:10",
        "swift has no subcommand ``",
        "known: pt, sft",
    ),
    "processes of swift rollout": (
        "launcher: swift\ncommand: [rollout]\nprocesses: 2\n",
        "job.yaml:3:12",
        "`swift rollout` is a single process",
        "leave `processes` out",
    ),
    "hosts of swift rollout": (
        "launcher: swift\ncommand: [rollout]\nhosts: [a, b]\n",
        "job.yaml:3:8",
        "`swift rollout` is a single process",
        "leave `hosts` out",
    ),
    "launcher_args of swift": (
        "launcher: swift\ncommand: [sft]\nlauncher_args: [--x]\n",
        "job.yaml:3:16",
        "swift takes no `launcher_args`",
        "use `args:`",
    ),
    "areal without version": (
        "launcher: areal\nscript: train.py\n",
        "job.yaml:1:11",
        "which AReaL?",
        "one of 0.2, 0.3, 1, 1-spmd",
    ),
    "unknown areal": (
        "launcher: areal\nscript: train.py\nversion: 7\n",
        "job.yaml:3:10",
        "AReaL `7` is not known",
        "one of 0.2",
    ),
    "areal 0.2 with a script": (
        "launcher: areal\nscript: train.py\nversion: 0.2\n",
        "job.yaml:3:10",
        "AReaL 0.2 runs an experiment",
        "command: [ppo-math]",
    ),
    "areal 1 with a command": (
        "launcher: areal\ncommand: [x]\nversion: 1\n",
        "job.yaml:2:10",
        "AReaL 1 runs a script",
        "give `script:`",
    ),
    "unknown areal scheduler": (
        "launcher: areal\nscript: train.py\nversion: 1\nlauncher_args: {scheduler: lsf}\n",
        "job.yaml:4:16",
        "unknown scheduler `lsf`",
        "one of local, ray, slurm",
    ),
    "other launcher_args of areal": (
        "launcher: areal\nscript: train.py\nversion: 1\nlauncher_args: {nodes: 2}\n",
        "job.yaml:4:16",
        "areal takes one launcher argument",
        "scheduler: local",
    ),
    "empty command": ("launcher: command\ncommand: []\n", "job.yaml:2:10", "an empty command", ""),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_its_place_and_a_hint(case: str, project: Project) -> None:
    text, where, message, hint = BAD[case]
    error = project.refused(text)
    assert (error.where, message in error.message, hint in error.hint) == (where, True, True), error


SECRETS = {
    "password": "password: hunter2\n" + PYTHON,
    "token in env": PYTHON + "env: {HF_TOKEN: abcdef}\n",
    "prepended token": PYTHON + "env: {HF_TOKEN: {prepend: abcdef}}\n",
    "token by its looks": PYTHON + f"env: {{OTHER: hf_{'a' * 30}}}\n",
    "token inside a value": PYTHON + f"args: [--url=https://x/?t=ghp_{'a' * 36}]\n",
    "password in a URL": PYTHON + "env: {https_proxy: 'http://me:hunter2@proxy:3128'}\n",
    "argument": PYTHON + "args: {wandb_api_key: abcdef}\n",
    "argument with dashes": PYTHON + "args: {hub-token: abcdef}\n",
    "argument with dots": PYTHON + "args: {trainer.wandb.api_key: abcdef}\n",
    "list argument": PYTHON + "args: {api_key: [abcdef]}\n",
    "word after a flag": PYTHON + "args: [--api_key, abcdef]\n",
    "word with a flag": PYTHON + "args: [--api_key=abcdef]\n",
    "hydra word": PYTHON + "args: [wandb.api_key=abcdef]\n",
    "command": "launcher: command\ncommand: [env, HF_TOKEN=abcdef, x]\n",
    "setup line": PYTHON + "setup: [export HF_TOKEN=abcdef]\n",
    "private key": PYTHON + 'args: ["-----BEGIN OPENSSH PRIVATE KEY-----"]\n',
}


@pytest.mark.parametrize("case", SECRETS)
def test_a_secret_in_a_file_is_refused(case: str, project: Project) -> None:
    error = project.refused(SECRETS[case])
    assert "secret" in error.message or "access token" in error.message


def test_an_exported_secret_keeps_its_name_in_the_hint(project: Project) -> None:
    assert "`env_from: [HF_TOKEN]`" in str(project.refused(SECRETS["setup line"]).hint)


def test_a_refused_secret_is_not_repeated(project: Project) -> None:
    assert "abcdef" not in str(project.refused(SECRETS["word with a flag"]))


@pytest.mark.parametrize(
    "line",
    [
        "args: {PAD_TOKEN: '<pad>', max_tokens: 5, tokenizer: x, eos_token: y, token_ids: [1]}",
        "args: {api_key: EMPTY, use_token: true, hub_token: null}",
        "args: [--lowres_token, '8', --aux_token=-1, --drop.per.token, '0.25']",
        "args: {lowres_token: 8}",
        "args: [--max_new_tokens, '5', --key, a, --api_key, --next]",
        "env: {OPENAI_API_KEY: EMPTY, TOKENIZERS_PARALLELISM: false, HF_TOKEN: null}",
        "setup: [export HF_TOKEN=$(cat token), 'export API_KEY=`cat key`', PASSWORD=$P true]",
        "args: {trainer.token: '${oc.env:HF_TOKEN}'}",
        "args: [sk-learn-like-words-are-no-tokens, task-aaaaaaaaaaaaaaaaaaaaaaaa]",
    ],
)
def test_what_only_sounds_like_a_secret_is_allowed(line: str, project: Project) -> None:
    assert project.plan(PYTHON + line)
