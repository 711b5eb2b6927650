"""Checks of installed packages: the project's pins, and what the job's options need."""

# ruff: noqa: PLC0415 - difflib: only for jobs that name trackers

from __future__ import annotations

import os
import re
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING

from safelaunch.checks import job_options
from safelaunch.checks.answers import Answer, Question, ok, warn
from safelaunch.checks.environment import pip_commands, requirements
from safelaunch.checks.environment.requirements import Pin, Pins
from safelaunch.checks.registry import check
from safelaunch.runtime.packages import RECORDED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.checks.context import HostContext

_MAX_SIZE = 1 << 20  # bytes of a requirements file
_SHOWN = 5
# requirements files that are not those of the training itself
_OTHER_PURPOSE = re.compile(
    r"(?i)dev|test|doc|lint|style|build|ci|npu|rocm|amd|xpu|mlu|hpu|tpu|cpu|mac|win"
)
_ENVIRONMENTS = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml")
_SPECIFIED = "https://packaging.python.org/en/latest/specifications/dependency-specifiers/"


@check("requirements", needs=("python",), source=_SPECIFIED)
def project_pins(host: HostContext) -> Answer | None:
    """Whether the installed packages meet the project's own pins."""
    installed, folders = installed_packages(host), _folders(host)
    if installed is None or not folders:
        return None
    declared, environment = _declared(host), marker_environment(host)
    pins = [pin for pin in applied_requirements(host) if pin.specifier or pin.has_address]
    version = environment["python_full_version"]
    unmet = [p.python for p in declared if p.python and p.python.holds(version) is False]
    unmet += [
        pin
        for pin in pins
        if pin.name not in installed
        or (pin.holds(installed[pin.name]) is False and not _has_met_rival(pin, pins, installed))
    ]
    if unmet:
        return _unmet(host, unmet, {**installed, "python": version})
    return ok(f"{len(pins)} pins of the project are met") if pins else None


def _has_met_rival(pin: Pin, pins: Sequence[Pin], installed: Mapping[str, str]) -> bool:
    """Whether the files contradict each other, and what is installed is what another one asks."""
    version = installed[pin.name]
    rivals = (other for other in pins if other.name == pin.name and pin.excludes(other))
    return any(other.holds(version) for other in rivals)


def _declared(host: HostContext) -> list[Pins]:
    """Return what the files of the project require, by folder."""
    folders = _folders(host)
    return [_read_pins(folders[0], os.path.relpath(f, folders[0])) for f in folders]


def applied_requirements(host: HostContext) -> list[Pin]:
    """Return the project's requirements for this interpreter, with versions or without."""
    environment = marker_environment(host)
    return [pin for each in _declared(host) for pin in each.pins if pin.applies(environment)]


def required_modules(host: HostContext) -> set[str]:
    """Return the top-level modules of the packages that the project requires, by their names."""
    modules = {requirements.normalize(p): module for module, p in pip_commands.PROJECTS.items()}
    names = [pin.name for each in _declared(host) for pin in each.pins]
    return {modules.get(name, name.replace("-", "_")) for name in names}


def installed_packages(host: HostContext) -> dict[str, str] | None:
    """Return {package: version}; None where another program runs the job. Raises NotKnown."""
    if not host.runs_python:
        return None
    packages: dict[str, str] = host.fact("python", "packages")
    torch = host.get("torch", "version")  # with the build: metadata may leave `+cu128` out
    return {**packages, "torch": torch} if torch and "torch" in packages else packages


def _unmet(host: HostContext, unmet: Sequence[Pin], installed: Mapping[str, str]) -> Answer:
    order = {name: index for index, name in enumerate(("python", *RECORDED))}
    unmet = sorted(dict.fromkeys(unmet), key=lambda pin: order.get(pin.name, len(order)))
    files = sorted({pin.where.rpartition(":")[0] for pin in unmet if pin.name != "python"})
    # a project may state the same in several files
    unmet = list({(pin.name, pin.specifier): pin for pin in reversed(unmet)}.values())[::-1]
    listed = [
        f"{pin.name} {installed.get(pin.name, 'is missing')} ({pin.where}: `{pin.text}`)"
        for pin in unmet[:_SHOWN]
    ]
    more = f", and {len(unmet) - _SHOWN} more" if len(unmet) > _SHOWN else ""
    # of pins that contradict each other pip takes none: the later file is nearer to the job
    pins: list[Pin] = []
    for pin in reversed(unmet):
        if not any(pin.name == other.name and pin.excludes(other) for other in pins):
            pins.insert(0, pin)
    names = [
        pin.text if pin.has_address else f"{pin.name}{pin.specifier}"
        for pin in pins
        if pin.name != "python"
    ]
    build = re.search(r"\+(cu\d+)", " ".join(names))  # PyPI does not have these
    index = ["--extra-index-url", pip_commands.INDEX + build[1]] if build else []
    hints = []
    if unmet[0].name == "python":
        hints.append(f"name a Python {unmet[0].specifier} with `python:`, `venv:` or `conda:`")
    is_consistent = len(pins) == len(unmet)
    if files and all(file.endswith(".txt") for file in files) and host.is_local and is_consistent:
        folder = _folders(host)[0]
        words = [w for file in files for w in ("-r", os.path.join(folder, file))] + index
        python = shlex.quote(pip_commands.python(host))
        hints.append(f"`{python} -m pip install {shlex.join(words)}`")
    elif names:
        hints.append(pip_commands.install(host, names, *index))
    return warn("; ".join(listed) + more, "; ".join(hints))


def _folders(host: HostContext) -> list[str]:
    """Return the folders of this machine with the project's files: its root, and `workdir`."""
    context = host.context
    workdir = context.local_path(".", host.rank) if context.plan is not None else None
    folders = dict.fromkeys((context.project, workdir))
    return [folder for folder in folders if folder and os.path.isdir(folder)]


@lru_cache(maxsize=8)
def _read_pins(root: str, folder: str) -> Pins:
    """Return the pins of a folder's files, named by their paths below the root."""

    def read(name: str) -> str | None:
        path = os.path.join(root, name)
        try:
            if not os.path.isfile(path) or os.path.getsize(path) > _MAX_SIZE:
                return None  # a pipe would block
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return None

    def below(name: str) -> str:
        return os.path.normpath(os.path.join(folder, name))

    pins: list[Pin] = []
    for name in _requirement_files(os.path.join(root, folder)):
        pins += requirements.read_requirements(below(name), read)
    project = requirements.read_pyproject(below("pyproject.toml"), read)
    pins += project.pins
    for name in _ENVIRONMENTS:
        pins += requirements.read_conda(below(name), read)
    return Pins(tuple(pins), project.python)


def _requirement_files(folder: str) -> list[str]:
    """Return `requirements.txt`, or else the only other file for the training."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    if "requirements.txt" in names:
        return ["requirements.txt"]
    files = [n for n in names if re.fullmatch(r"requirements?[\w.-]*\.txt", n)]
    files = [name for name in files if not _OTHER_PURPOSE.search(name[12:])]
    return files if len(files) == 1 else []  # several are alternatives


def marker_environment(host: HostContext) -> dict[str, str]:
    """Return the variables of PEP 508 markers for the job's interpreter on its host."""
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


# option, value (a regular expression; empty: a switch that is not off), module (empty: the value)
_OPTIONS = (
    ("report_to", "wandb|tensorboard|mlflow|swanlab|comet_ml", ""),
    ("attn_implementation", "flash_attention_2", "flash_attn"),
    ("attn_impl", "flash_attn|flash_attention_2", "flash_attn"),
    # transformers 5.23.0: trainer_optimizer.py
    ("optim", r"(adamw|adamw_bnb|ademamix|lion)_8bit|ademamix|lion_32bit|rmsprop_bnb.*|paged_.*",
     "bitsandbytes"),
    ("optim", r"adamw_torch_[48]bit", "torchao"),
    ("optim", r"galore_.*", "galore_torch"),
    ("optim", r"apollo_.*", "apollo_torch"),
    ("optim", r"(ada)?lomo", "lomo_optim"),
    ("optim", r"schedule_free_.*", "schedulefree"),
    ("optim", r"grokadamw", "grokadamw"),
    ("optim", r"stable_adamw", "optimi"),
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
# module -> another one that serves for it: transformers 4.56 to 5.24, modeling_utils.py ("If FA not
# installed, do not fail but use kernels instead"); is_tensorboard_available
_SUBSTITUTES = {"flash_attn": "kernels", "tensorboard": "tensorboardX"}
_WANDB = ("WANDB_PROJECT", "WANDB_NAME", "WANDB_ENTITY", "WANDB_RUN_GROUP", "WANDB_API_KEY")
_WANDB_LOGINS = ("~/.netrc", "~/.config/wandb/settings")
_INTEGRATIONS = "transformers: integrations/integration_utils.py, INTEGRATION_TO_CALLBACK"
_LOGIN = "https://docs.wandb.ai/models/ref/cli/wandb-login"


def needed_modules(host: HostContext) -> dict[str, str]:
    """Return {module: the option or variable that needs it}."""
    if not host.runs_python:
        return {}
    options, needed = job_options.with_launcher(host.job), dict[str, str]()
    for name, pattern, module in _OPTIONS:
        if not pattern and job_options.is_not_off(options, name):
            needed.setdefault(module, f"--{name} {' '.join(options[name])}".strip())
        # an option may be a list: `[a,'b']`, `a,b`
        parts = [p for value in options.get(name, ()) for p in value.strip("[]").split(",")]
        for value in [part.strip(" '\"") for part in parts] if pattern else ():
            if re.fullmatch(pattern, value):
                needed.setdefault(module or value, f"--{name} {value}")
    # only variables of the job itself: a shell may have them for other work
    env = {name for name, var in host.plan.env.items() if var.value}
    named = [name for name in _WANDB if name in env or name in host.plan.secrets]
    others = "".join(options.get("report_to", ())).lower()
    if named and (not others or "all" in others):  # else a tracker is chosen, and it is listed
        needed.setdefault("wandb", named[0])
    disabled = (job_options.variable(host, "WANDB_DISABLED") or "").lower()
    if _wandb_mode(host) == "disabled" or disabled in ("true", "1", "yes", "on"):
        needed.pop("wandb", None)
    return needed


def _wandb_mode(host: HostContext) -> str:
    return (job_options.variable(host, "WANDB_MODE") or "").lower()


# transformers 5.23.0: integrations/integration_utils.py, INTEGRATION_TO_CALLBACK
_TRACKERS = (
    "azure_ml", "comet_ml", "mlflow", "neptune", "tensorboard", "trackio", "wandb", "codecarbon",
    "clearml", "dagshub", "flyte", "dvclive", "swanlab", "kubeflow", "none", "all",
)  # fmt: skip


def _misspelt_trackers(host: HostContext) -> Iterator[Answer]:
    """Yield the trackers of `report_to` that are almost one that exists."""
    import difflib

    values = job_options.options(host.job).get("report_to", ()) if host.runs_python else ()
    for value in (part.strip(" '\"") for v in values for part in v.strip("[]").split(",")):
        near = difflib.get_close_matches(value.lower(), _TRACKERS, n=1, cutoff=0.8)
        if near and value.lower() not in _TRACKERS:
            yield warn(
                f"`--report_to {value}` is no tracker", f"did you mean `{near[0]}`?", _INTEGRATIONS
            )


def _module_questions(host: HostContext) -> Iterator[Question]:
    for name in needed_modules(host):
        yield ("module", name)
        if name in _SUBSTITUTES:
            yield ("module", _SUBSTITUTES[name])


def _module_or_substitute(host: HostContext, name: str) -> str | None:
    """Return the module that is there, itself or what serves for it."""
    names = [name, _SUBSTITUTES[name]] if name in _SUBSTITUTES else [name]
    return next((each for each in names if host.answer("module", each)["found"]), None)


@check("asked-packages", asks=_module_questions)
def needed_packages(host: HostContext) -> list[Answer] | Answer | None:
    """Whether the packages that the job's options need are installed."""
    needed = needed_modules(host)
    modules = {name: _module_or_substitute(host, name) for name in needed}
    missing = [name for name, module in modules.items() if module is None]
    misspelt = list(_misspelt_trackers(host))
    if missing or misspelt:
        return misspelt + [
            warn(
                f"`{needed[name]}` needs {pip_commands.PROJECTS.get(name, name)}, which "
                f"{pip_commands.python(host)} does not find",
                pip_commands.install(host, [name])
                # WANDB_MODE spares no one the package: transformers raises, others import it
                + (", or `--report_to none`" if "--report_to" in needed[name] else ""),
            )
            for name in missing
        ]
    return ok(f"{', '.join(filter(None, modules.values()))} found") if needed else None


def _login_questions(host: HostContext) -> Iterator[Question]:
    if "wandb" in needed_modules(host):
        yield ("module", "wandb")
        yield from (("path", path) for path in _WANDB_LOGINS)


@check("wandb-login", asks=_login_questions, source=_LOGIN)
def wandb_login(host: HostContext) -> Answer | None:
    """Whether wandb will find a key: a job has no terminal to type one."""
    if "wandb" not in needed_modules(host) or not host.answer("module", "wandb")["found"]:
        return None  # asked-packages reports it
    if _wandb_mode(host) in ("offline", "dryrun"):
        return ok("WANDB_MODE keeps wandb offline")
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_MODE", "NETRC"):
        if job_options.has_variable(host, name):
            return ok(f"{name} is set")
    for path in _WANDB_LOGINS:
        if host.answer("path", path)["kind"] is not None:
            return ok(f"{path} exists")
    return warn(
        "wandb finds no key there and no terminal to ask for one: it ends the job",
        "`env_from: [WANDB_API_KEY]` with the key exported here, or `env: {WANDB_MODE: offline}`",
    )
