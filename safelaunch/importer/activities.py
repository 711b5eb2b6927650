"""What else a script does beside its launches, and what becomes of it: tables of programs."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.importer.findings import Note
from safelaunch.secrets_in_text import PASSWORD_IN_ADDRESS, is_secret_name, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence


SETUP = "`setup:` of the job"
USER = "left to you"
NOTHING = "left out: it changes nothing"
ASSUMED = "assumed"
SAFELAUNCH = "done by safelaunch"

# programs that start a job and are no module of safelaunch/launchers
_OTHER_LAUNCHERS = frozenset((
    "deepspeed", "llamafactory-cli", "swift", "megatron", "trl", "axolotl", "composer",
    "horovodrun", "mpirun", "mpiexec", "colossalai", "ft_launcher", "torchx", "lightning",
    "fabric", "srun",
))  # fmt: skip
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
SHOWS = "shows or waits"
_PACKAGES = "installs packages"
_DOWNLOAD = "downloads"
_ONCE = f"{USER}: once, before the start; on hosts too, or as `setup:`"
_DATA = f"{USER}: once, before the start; `inputs:` checks that it is there, `assets:` copies it"
# (what a command begins with, what it does, what becomes of it); the success of those that do
# something is presumed
_INSTALLS = (
    r"(python3?|uv) (-m )?pip\b|pip3? |(conda|mamba|micromamba) (install|create)|uv sync"
    r"|poetry install|npm |(sudo )?(apt|apt-get|yum|dnf|brew) |make\b|cmake\b|ninja\b"
)
_DOWNLOADS = (
    r"wget |curl |git (clone|lfs|pull|submodule)|gdown |aria2c |aws |gsutil |rsync |scp "
    r"|(huggingface-cli|hf|modelscope) download|unzip |tar "
)
_SHOWING = (
    r"(echo|printf|clear|sleep|date|ls|cat|which|hostname|pwd|nvidia-smi|free|df|du|env|id"
    r"|printenv|compgen|whoami|uname|tput|stty|nvcc|git (log|status|rev-parse|describe)|tree|wc"
    r"|head|tail|sync|column|nproc|lscpu|ip|ifconfig|uptime|history)\b"
)
_ACTIONS: tuple[tuple[str, str, str], ...] = (
    (_INSTALLS, _PACKAGES, _ONCE),
    (_DOWNLOADS, _DOWNLOAD, _DATA),
    (
        r"(wandb|huggingface-cli|hf|swanlab|modelscope) login",
        "logs in",
        f"{USER}: `env_from:` takes a token from your environment",
    ),
    (r"ray (start|up)", "starts Ray", f"{USER}: before the start"),
    (
        r"(vllm|sglang|lmdeploy|ollama|tensorboard|jupyter|mlflow|redis-server)\b",
        "starts a server",
        f"{USER}: `safelaunch run -- LINE`, in a run of its own",
    ),
    (r"mkdir ", "makes folders", SETUP),
    (r"(cp|mv|ln|touch|chmod|install|tee) ", "writes files", f"{USER}: before the start"),
    (r"(rm|rmdir) |find .* -delete", "removes files", USER),
    (
        r"(kill|pkill|killall|fuser) |ray stop|docker stop",
        "ends processes",
        f"{USER}; `safelaunch stop` ends what it has started",
    ),
    (r"(module|ml) ", "loads modules", SETUP),
    (r"ulimit ", "sets a limit", SETUP),
    (_SHOWING, SHOWS, NOTHING),
)
# programs with a launcher among their words that start none
_INERT = re.compile(
    r"(pip3?|apt|apt-get|which|type|command|echo|printf|cat|grep|pkill|kill|killall"
    r"|ps|pgrep|ls|rm|cp|mv|mkdir|touch|git|cd|export|alias|hash|test|\[|ln|chmod|source|tee|sed|awk"
    r"|find|wc|head|tail|dirname|basename|realpath|readlink|tar|unzip|wget|curl|sleep|read|man"
    r"|huggingface-cli|hf|modelscope|rsync|scp|sort|cut|tr|expr|seq|date|trap|unset|declare|local"
    r"|readonly|typeset|set|eval|return|exit|module|true|false|:|pushd|popd|python3? -m pip)"
)
_BY_INPUT = frozenset(("xargs", "parallel", "find"))
SHELLS = frozenset(("bash", "sh", "dash"))
OTHER_SHELLS = frozenset(("zsh", "ksh", "mksh", "fish", "csh", "tcsh"))
_LONGEST_TEXT = 60  # of a command in a note
_NO_JOB_MODULES = frozenset(("pip", "venv", "ensurepip", "json.tool", "compileall", "http.server"))
_STARTS_PROGRAMS = re.compile(r"subprocess|system|popen|exec|spawn|runpy|import sh\b|plumbum|pty")
_TEXT = re.compile(
    r"(?<![\w./-])(?:[\w./-]*/)?(torchrun|accelerate\s+launch|deepspeed|llamafactory-cli|"
    r"python[\d.]*\s+(?:-u\s+)?(?:-m\s+)?[\w./$\{\}-]*\.?\w+|swift\s+\w+|megatron\s+\w+|"
    r"tune\s+run|xtuner\s+train|srun)\b"
)


def launcher_names() -> frozenset[str]:
    """Return the programs that start jobs."""
    return frozenset(call.split()[0] for call in launchers.programs()) | _OTHER_LAUNCHERS


def is_launch(words: Sequence[str]) -> bool:
    """Whether a command starts a training job, itself or through a wrapper in front of it."""
    if not words or words[0] in _BY_INPUT:
        return False
    name = os.path.basename(words[0])
    if _PYTHON.fullmatch(name) or name in launcher_names():
        return (
            _is_python_job(words[1:]) if _PYTHON.fullmatch(name) else _is_started(name, words[1:])
        )
    action = find_action(words)
    if _INERT.fullmatch(name) or (action and action.text in (_PACKAGES, _DOWNLOAD)):
        return False
    if words[0] != name and name.endswith(".py"):
        return True
    if _is_shell(name) or not re.fullmatch(r"[\w./+-]+", name):  # a shell's text is followed
        return False
    return any(_begins_launch(words, at) for at in range(1, len(words)))


def starts_by_input(words: Sequence[str]) -> bool:
    """Whether a command starts programs that may launch with arguments that it finds or reads."""
    if words[0] not in _BY_INPUT:
        return False
    rest = words[1:]
    if words[0] == "find":
        starts = [at for at, word in enumerate(rest) if word in ("-exec", "-execdir", "-ok")]
        rest = rest[starts[0] :] if starts else []
    names = [(word, os.path.basename(word)) for word in rest]
    return any(
        name in launcher_names()
        or _PYTHON.fullmatch(name)
        or _is_shell(name)
        or (word != name and name.endswith((".sh", ".py")))
        for word, name in names
    )


def _is_shell(name: str) -> bool:
    return name in SHELLS or name in OTHER_SHELLS


def starts_script(words: Sequence[str]) -> bool:
    """Whether a command starts a shell, or a program that starts a shell or a script of one."""
    name = os.path.basename(words[0])
    if _is_shell(name):
        return words[1:2] not in (["--version"], ["--help"])
    if _INERT.fullmatch(name):
        return False
    names = [os.path.basename(word) for word in words[1:]]
    return any(map(_is_shell, names)) or (
        name in _STARTERS and any(n.endswith((".sh", ".bash", ".slurm")) for n in names)
    )


def _begins_launch(words: Sequence[str], at: int) -> bool:
    text = words[at].partition("=")[2] if words[at].startswith("--") else words[at]
    if " " in text:
        return _TEXT.match(text.strip()) is not None
    name, word = os.path.basename(words[at]), words[at]
    is_program = word == name or word.startswith(("/", "./", "~"))
    is_launcher = name in launcher_names() or _PYTHON.fullmatch(name) is not None
    return is_program and is_launcher and is_launch(words[at:])


def _is_python_job(arguments: Sequence[str]) -> bool:
    rest = list(arguments)
    while rest and rest[0] in ("-u", "-B", "-O", "-OO", "-E", "-s", "-I", "-q", "-W", "-X"):
        if rest.pop(0) in ("-W", "-X") and rest:
            rest.pop(0)
    if rest[:1] == ["-m"]:
        return len(rest) > 1 and rest[1].split(".")[0] not in _NO_JOB_MODULES
    return bool(rest) and not rest[0].startswith("-")


_STARTING = {"accelerate": ("launch",), "ray": ("job",), "fabric": ("run",), "lightning": ("run",),
             "tune": ("run",), "xtuner": ("train", "test", "mmbench", "eval_refcoco")}  # fmt: skip
_QUESTIONS = {
    "llamafactory-cli": ("version", "help", "env"),
    "trl": ("env",),
    "axolotl": ("preprocess", "fetch"),
}


def _is_started(name: str, arguments: Sequence[str]) -> bool:
    if not arguments or arguments[0] in ("--help", "-h", "--version"):
        return False
    starting = _STARTING.get(name)
    if starting is not None:
        return arguments[0] in starting
    return arguments[0] not in _QUESTIONS.get(name, ())


def find_action(words: Sequence[str]) -> Note | None:
    """Return what a program does that starts no job; None for one that is in no table."""
    line = " ".join([os.path.basename(words[0]), *words[1:]]) + " "
    for pattern, text, outcome in _ACTIONS:
        if re.match(pattern, line):
            return Note(0, text, outcome)
    return None


def describe(words: Sequence[str], longest: int = _LONGEST_TEXT) -> str:
    """Return a command for a note: its beginning, without secrets."""
    shown: list[str] = []
    hides_next = False
    for word in words:
        option, equals, _ = word.partition("=")
        is_secret = is_secret_name(option.lstrip("-").replace("-", "_"))
        if hides_next or any(tokens(word)) or re.search(PASSWORD_IN_ADDRESS, word):
            shown.append("***")
        else:
            shown.append(f"{option}=***" if is_secret and equals else word)
        hides_next = is_secret and not equals and word.startswith("-")
        if word == "login":
            break
    text = " ".join(shown)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def starts_job(words: Sequence[str]) -> bool:
    """Whether a launcher is given a program that may start a job, and none as `hostname`."""
    names = [os.path.basename(word) for word in words[1:]]
    return words[0] != "srun" or any(
        name in launcher_names() or _PYTHON.fullmatch(name) or _is_shell(name) or "." in name
        for name in names
    )


def is_mentioned(text: str) -> bool:
    """Whether a text has a line that would start a job."""
    return _TEXT.search(text) is not None


def may_launch(program: str, text: str) -> bool:
    """Whether a program that reads a text may start a job that the text names.

    Python does so through its modules for that; it may import `deepspeed` for other ends.
    """
    is_python = _PYTHON.fullmatch(os.path.basename(program)) is not None
    return is_mentioned(text) and not (is_python and not _STARTS_PROGRAMS.search(text))


# stubs of `--record` for programs that a recording must not start, and that print nothing
NO_OPS = (
    "nvidia-smi", "module", "conda", "mamba", "scontrol", "sinfo", "squeue", "scancel", "pip",
    "pip3", "wget", "curl", "huggingface-cli", "hf", "modelscope", "gdown", "rsync", "scp", "apt",
    "apt-get", "wandb", "sleep", "clear", "kill", "pkill", "killall", "vllm", "tensorboard", "make",
    "npm", "gsutil", "gcloud", "aws", "azcopy", "aria2c", "swanlab", "redis-server", "jupyter",
)  # fmt: skip
# and for programs that start the rest of their words: recorded with them, where it is a launch
WRAPPERS = (
    "timeout", "numactl", "taskset", "nice", "ionice", "stdbuf", "nsys", "ncu", "sudo", "docker",
    "podman", "singularity", "apptainer", "ssh", "tmux", "screen", "sbatch", "ray", "uv", "poetry",
    "pixi", "micromamba",
)  # fmt: skip
_STARTERS = frozenset((*WRAPPERS, "env", "setsid", "nohup", "srun", "flock", "script", "watch"))
