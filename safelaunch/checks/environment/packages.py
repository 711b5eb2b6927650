"""Checks: what is installed, against the project's pins and what the job's words ask for."""

from __future__ import annotations

import os
import re
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING

from safelaunch.checks import job_needs, job_options
from safelaunch.checks.answers import Answer, Question, ok, warn
from safelaunch.checks.environment import pip_commands
from safelaunch.checks.environment import requirements as environment_requirements
from safelaunch.checks.registry import check
from safelaunch.runtime.packages import RECORDED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.checks.context import HostContext
    from safelaunch.checks.environment.requirements import Pin

_LARGEST = 1 << 20  # bytes of a requirements file
_SHOWN = 5
# requirements files that are not those of the training itself
_ASIDE = re.compile(
    r"(?i)dev|test|doc|lint|style|build|ci|npu|rocm|amd|xpu|mlu|hpu|tpu|cpu|mac|win"
)
_ENVIRONMENTS = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml")
_SPECIFIED = "https://packaging.python.org/en/latest/specifications/dependency-specifiers/"


# -- the project's pins ----------------------------------------------------------------------------


@check("requirements", "environment", needs=("python",), source=_SPECIFIED)
def requirements(host: HostContext) -> Answer | None:
    """Whether what is installed meets the project's own pins."""
    installed, folders = job_needs.installed(host), _folders(host)
    if installed is None or not folders:
        return None
    told = [_pins(folders[0], os.path.relpath(one, folders[0])) for one in folders]
    environment = _environment(host)
    checked = [pin for one in told for pin in one.pins if pin.applies(environment)]
    wrong = [pin for pin in checked if not _met(pin, installed)]
    version = str(host.fact("python", "version"))
    wrong[:0] = [one.python for one in told if one.python and one.python.holds(version) is False]
    if not checked and not wrong:
        return None
    if not wrong:
        return ok(f"{len(checked)} pins of the project are met")
    return _unmet(host, wrong, installed, version)


def _met(pin: Pin, installed: Mapping[str, str]) -> bool:
    return pin.name in installed and pin.holds(installed[pin.name]) is not False


def _unmet(
    host: HostContext, wrong: Sequence[Pin], installed: Mapping[str, str], version: str
) -> Answer:
    order = {name: at for at, name in enumerate(("python", *RECORDED))}
    wrong = sorted(dict.fromkeys(wrong), key=lambda pin: order.get(pin.name, len(order)))
    has = {**installed, "python": version}
    told = [
        f"{pin.name} {has.get(pin.name, 'is missing')} ({pin.where}: `{pin.text}`)"
        for pin in wrong[:_SHOWN]
    ]
    more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    files = sorted({pin.where.rpartition(":")[0] for pin in wrong if pin.name != "python"})
    texts = [file for file in files if file.endswith(".txt")]
    names = [f"{pin.name}{pin.specifier}" for pin in wrong if pin.name != "python"]
    build = re.search(r"\+(cu\d+)", " ".join(names))  # which PyPI does not have
    index = ["--extra-index-url", pip_commands.INDEX + build[1]] if build else []
    hints = []
    if wrong[0].name == "python":
        hints.append(f"name a Python {wrong[0].specifier} with `python:`, `venv:` or `conda:`")
    if texts == files and texts and host.is_local:
        folder = _folders(host)[0]
        paths = [w for file in texts for w in ("-r", os.path.join(folder, file))] + index
        hints.append(
            f"`{shlex.quote(pip_commands.python(host))} -m pip install {shlex.join(paths)}`"
        )
    elif names:
        hints.append(pip_commands.install(host, names, *index))
    return warn("; ".join(told) + more, "; ".join(hints))


def _folders(host: HostContext) -> list[str]:
    """Return where the project's files lie here: its root, and the job's working folder."""
    context = host.context
    found = [
        context.project,
        context.local_path(".", host.rank) if context.plan is not None else None,
    ]
    return [folder for folder in dict.fromkeys(found) if folder and os.path.isdir(folder)]


@lru_cache(maxsize=8)
def _pins(root: str, folder: str) -> environment_requirements.Pins:
    """Return the pins of a folder's files, which are named as they lie below the root."""

    def read(name: str) -> str | None:
        path = os.path.join(root, name)
        try:
            if not os.path.isfile(path) or os.path.getsize(path) > _LARGEST:
                return None  # a pipe would be waited for
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return None

    def below(name: str) -> str:
        return os.path.normpath(os.path.join(folder, name))

    found: list[Pin] = []
    for name in _requirement_files(os.path.join(root, folder)):
        found += environment_requirements.of_requirements(below(name), read)
    project = environment_requirements.of_pyproject(below("pyproject.toml"), read)
    found += project.pins
    for name in _ENVIRONMENTS:
        found += environment_requirements.of_environment(below(name), read)
    return environment_requirements.Pins(tuple(found), project.python)


def _requirement_files(folder: str) -> list[str]:
    """Return `requirements.txt`; where there is none, the one other file that may be meant."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    if "requirements.txt" in names:
        return ["requirements.txt"]
    others = [n for n in names if re.fullmatch(r"requirements?[\w.-]*\.txt", n)]
    meant = [name for name in others if not _ASIDE.search(name[12:])]
    return meant if len(meant) == 1 else []  # several are alternatives: nobody says which


def _environment(host: HostContext) -> dict[str, str]:
    """Return what markers are judged on: the job's interpreter on its machine."""
    version = str(host.fact("python", "version"))
    name = str(host.get("python", "implementation") or "cpython")
    system = str(host.get("system", "os") or "Linux")
    return {
        "python_version": ".".join(version.split(".")[:2]),
        "python_full_version": version,
        "implementation_name": name,
        "implementation_version": version,
        "platform_python_implementation": {"cpython": "CPython", "pypy": "PyPy"}.get(name, name),
        "sys_platform": system.lower(),
        "platform_system": system,
        "platform_machine": str(host.get("system", "machine") or "x86_64"),
        "platform_release": str(host.get("system", "kernel") or ""),
        "platform_version": "",
        "os_name": "posix",
        "extra": "",
    }


# -- what the job's words ask for ------------------------------------------------------------------

# option, value (a regular expression; of switches any that is not off), module
_ASKED = (
    ("report_to", "wandb|tensorboard|mlflow|swanlab|comet_ml", ""),
    ("attn_implementation", "flash_attention_2", "flash_attn"),
    ("attn_impl", "flash_attn|flash_attention_2", "flash_attn"),
    ("optim", r".*(8bit|4bit)|paged_.*", "bitsandbytes"),
    ("load_in_8bit", "", "bitsandbytes"),
    ("load_in_4bit", "", "bitsandbytes"),
    ("quant_method", "bnb", "bitsandbytes"),
    ("deepspeed", "", "deepspeed"),
    ("use_vllm", "", "vllm"),
    ("engine_type", "vllm|sglang", ""),
    ("infer_backend", "vllm|sglang|lmdeploy", ""),
    ("use_liger_kernel", "", "liger_kernel"),
    ("use_wandb", "", "wandb"),
)  # fmt: skip
_WANDB = ("WANDB_PROJECT", "WANDB_NAME", "WANDB_ENTITY", "WANDB_RUN_GROUP", "WANDB_API_KEY")
_LOGIN = "https://docs.wandb.ai/models/ref/cli/wandb-login"


def _asked(host: HostContext) -> dict[str, str]:
    """Return {module: the words that ask for it}."""
    if not job_needs.runs_python(host):
        return {}
    given, found = job_options.with_launcher(host.job), dict[str, str]()
    for name, pattern, module in _ASKED:
        values = given.get(name)
        if values is None or (not pattern and not job_options.is_not_off(given, name)):
            continue
        if not pattern:
            found.setdefault(module, f"--{name} {' '.join(values)}".strip())
            continue
        for value in _list_values(values):
            if re.fullmatch(pattern, value):
                found.setdefault(module or value, f"--{name} {value}")
    # only what the job itself says: a shell may have them for all sorts of work
    env = {name for name, var in host.plan.env.items() if var.value is not None}
    named = [name for name in _WANDB if name in env or name in host.plan.secrets]
    if named:
        found.setdefault("wandb", named[0])
    if _wandb_is_off(host):
        found.pop("wandb", None)
    return found


def _list_values(values: Sequence[str]) -> list[str]:
    """Return the values of an option, also of one that is a list: `[a,'b']`, `a,b`."""
    return [part.strip(" '\"") for value in values for part in value.strip("[]").split(",")]


def _wandb_is_off(host: HostContext) -> bool:
    mode = (job_options.variable(host, "WANDB_MODE") or "").lower()
    disabled = (job_options.variable(host, "WANDB_DISABLED") or "").lower()
    return mode == "disabled" or disabled in ("true", "1", "yes", "on")


def _asks_modules(host: HostContext) -> Iterator[Question]:
    return (("module", name) for name in _asked(host))


@check("asked-packages", "environment", asks=_asks_modules)
def asked_packages(host: HostContext) -> list[Answer] | Answer | None:
    """Whether the packages that the job's words ask for are there."""
    asked = _asked(host)
    missing = [name for name in asked if not host.answer("module", name)["found"]]
    off = {"wandb": ", or `env: {WANDB_MODE: disabled}`"}
    if missing:
        return [
            warn(
                f"`{asked[name]}` wants {pip_commands.PROJECTS.get(name, name)}, which "
                f"{pip_commands.python(host)} does not find",
                pip_commands.install(host, [name]) + off.get(name, ""),
            )
            for name in missing
        ]
    return ok(f"{', '.join(asked)} found") if asked else None


def _asks_login(host: HostContext) -> Iterator[Question]:
    if "wandb" in _asked(host):
        yield ("module", "wandb")
        yield ("path", "~/.netrc")
        yield ("path", "~/.config/wandb/settings")


@check("wandb-login", "environment", asks=_asks_login, source=_LOGIN)
def wandb_login(host: HostContext) -> Answer | None:
    """Whether wandb will find a key: nobody is there to type one."""
    if "wandb" not in _asked(host) or not host.answer("module", "wandb")["found"]:
        return None  # asked-packages says it
    if (job_options.variable(host, "WANDB_MODE") or "").lower() in ("offline", "dryrun"):
        return ok("WANDB_MODE keeps wandb offline")
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_MODE", "NETRC"):
        if job_options.has_variable(host, name):
            return ok(f"{name} is given")
    for path in ("~/.netrc", "~/.config/wandb/settings"):
        if host.answer("path", path)["kind"] is not None:
            return ok(f"{path} is there")
    return warn(
        "wandb finds no key there and no terminal to ask for one: it ends the job",
        "`env_from: [WANDB_API_KEY]` with the key exported here, or `env: {WANDB_MODE: offline}`",
    )
