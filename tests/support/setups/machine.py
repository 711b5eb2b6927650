"""A broken set-up: a job on a machine that is whole but for one fault, and what must be found."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config.resolve import Flags
from safelaunch.config.write_job import job_yaml
from safelaunch.errors import ConfigError
from safelaunch.plan.launch_line.parse import parse_line
from support.facts.check_cases import Answers, make_context, results_of
from support.facts.gpu_machines import GIB, H100, box, matrix
from support.facts.interpreters import SYSTEM, python, torch
from support.inputs import hf_packages
from support.project import Project

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from safelaunch.checks.registry import CheckResult

TORCHRUN = "launcher: torchrun\nscript: train.py\nprocesses: 4\nprofile: h100\n"
# the stack of a H100 machine in the autumn of 2025, by the metadata of its wheels
INSTALLED = {
    "torch": "2.8.0", "transformers": "4.57.6", "trl": "0.24.0", "accelerate": "1.10.1",
    "datasets": "4.1.1", "tokenizers": "0.22.1", "huggingface-hub": "0.35.3", "numpy": "2.2.6",
    "nvidia-nccl-cu12": "2.27.3", "ninja": "1.13.0",
}  # fmt: skip
REQUIRES = {
    "trl": ["accelerate>=1.4.0", "datasets>=3.0.0", "transformers>=4.56.1",
            'vllm<0.11.1,>=0.10.0; extra == "vllm"'],
    "transformers": ["filelock", "huggingface-hub<1.0,>=0.34.0", "numpy>=1.17",
                     "tokenizers<=0.23.0,>=0.22.0"],
    "torch": ['nvidia-nccl-cu12==2.27.3; platform_system == "Linux"', "triton==3.4.0"],
}  # fmt: skip
_FILES = ("path", "glob", "room", "home", "checkpoint", "model", "hub", "size", "real", "port")
_PRESENT = {"found": True, "where": "/site/x/__init__.py"}
_ABSENT = {"found": False, "where": None}
_KERNEL: dict[str, Any] = {
    "iommu": {}, "options": [], "peer_modules": [], "modules_seen": True, "is_open": False,
    "imex": False, "imex_channels": 0, "cores": None,
}  # fmt: skip
_WHOLE: dict[str, dict[str, Any]] = {  # what a machine answers where all is well
    "builds": {"libraries": [], "runtimes": ["12"], "bitsandbytes": None, "deepspeed": None},
    "kernel": _KERNEL,
    "runs": {"live": []},
    "name": {"addresses": ["10.0.0.2"]},
}
HIT, MISS, FALSE_OK = "found", "missed", "wrongly ok"


@dataclass(frozen=True)
class Setup:
    """A set-up with a fault. Its folder has `train.py`, empty if `files` has none.

    `finds` are the checks of which one must complain, `status` how. `refused`: no plan is
    made of it.
    """

    id: str
    family: str
    finds: tuple[str, ...] = ()
    status: str = "warn"
    job: str = TORCHRUN
    line: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    cards: tuple[Any, ...] = (H100,) * 4
    packages: Mapping[str, str | None] = field(default_factory=dict)  # None: not installed
    requires: Mapping[str, list[str]] = field(default_factory=dict)
    python: str = "3.11.9"
    torch: dict[str, Any] | None = None
    missing: tuple[str, ...] = ()  # modules that the interpreter does not find
    has_sources: bool = False  # transformers, trl and accelerate are there as files, to be read
    machine: Mapping[str, Any] = field(default_factory=dict)  # arguments of `box`
    answers: Answers = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""


class Outcome(NamedTuple):
    """What became of a set-up: found, missed or wrongly ok; and what was said."""

    verdict: str
    results: tuple[CheckResult, ...]
    refusal: str = ""

    @property
    def complaints(self) -> dict[str, str]:
        """The checks that complained, each with the gravest status."""
        bad = [r for r in self.results if r.status in ("warn", "fail")]
        return {r.id: r.status for r in sorted(bad, key=lambda r: r.status, reverse=True)}


class _Machine(dict[Any, Any]):
    """Answers of the machine: of its files by themselves, of the rest that all is well."""

    def __init__(self, setup: Setup, site: Path) -> None:
        super().__init__(setup.answers)
        self.setup = setup
        if setup.has_sources:
            hf_packages.install(site)
            for name in ("transformers", "trl", "accelerate"):
                self["module", name] = {"found": True, "where": str(site / name / "__init__.py")}
        self.requires = {**REQUIRES, **setup.requires}
        self.installed = _installed(setup)

    def __contains__(self, question: object) -> bool:
        is_file = isinstance(question, tuple) and question[0] in _FILES
        return dict.__contains__(self, question) or not is_file

    def __bool__(self) -> bool:
        return True

    def __missing__(self, question: tuple[Any, ...]) -> dict[str, Any]:
        kind, *words = question
        if kind == "module":
            return _ABSENT if words[0] in self.setup.missing else _PRESENT
        if kind == "requirements":
            return self._requirements(words)
        return _WHOLE.get(kind, {"skip": "it is not asked"})

    def _requirements(self, modules: list[str]) -> dict[str, Any]:
        lines = {name: self.requires.get(name, []) for name in self.installed}
        roots = {module: module.replace("_", "-") for module in modules}
        roots = {module: name for module, name in roots.items() if name in self.installed}
        return {"roots": roots, "requires": lines, "modules": ["filelock"]}


def _installed(setup: Setup) -> dict[str, str]:
    installed: dict[str, str | None] = {**INSTALLED, "triton": "3.4.0", **setup.packages}
    return {name: version for name, version in installed.items() if version is not None}


def _facts(setup: Setup) -> dict[str, Any]:
    cores = dict.fromkeys(("usable_cores", "cores", "allowed_cores"), 64)
    system = {**SYSTEM, **cores, **setup.machine.get("system", {})}
    outputs: dict[str, Any] = {}
    if len(setup.cards) > 1:
        size = len(setup.cards)
        outputs = {"topology": matrix(size, "NV18"), "peers": matrix(size, "OK")}
    more = {name: value for name, value in setup.machine.items() if name != "system"}
    outputs |= more.pop("outputs", {})
    parts = {
        "disk.shm": {"path": "/dev/shm", "total": 256 * GIB, "free": 256 * GIB},
        **more.pop("parts", {}),
    }
    return box(
        *setup.cards,
        python=python(_installed(setup), version=setup.python),
        torch=torch() if setup.torch is None else setup.torch,
        system=system,
        outputs=outputs,
        parts=parts,
        **more,
    )


def outcome(setup: Setup, folder: Path) -> Outcome:
    """Return what `check` makes of a set-up, which is built in a folder."""
    project = Project(folder)
    for name, content in setup.files.items():
        path = project.write("", name)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if name.endswith(".sh"):
            path.chmod(0o755)
    for name, target in setup.links.items():
        (folder / name).symlink_to(target)
    try:
        job = setup.job if not setup.line else _job_of(setup.line)
        context = make_context(
            project,
            job,
            flags=Flags(only_checked=True),
            facts=_facts(setup),
            answers=_Machine(setup, folder.with_name("site")),
            environ=setup.environ,
        )
    except ConfigError as e:
        is_expected = bool(setup.refused) and setup.refused in f"{e.message} {e.hint}"
        return Outcome(HIT if is_expected else MISS, (), e.message)
    results = tuple(results_of(context))
    statuses = {r.status for r in results if r.id in setup.finds}
    if setup.status in statuses or (setup.status == "warn" and "fail" in statuses):
        return Outcome(HIT, results)
    return Outcome(FALSE_OK if "ok" in statuses else MISS, results)


def _job_of(line: str) -> str:
    """Return the job file of a pasted line."""
    return job_yaml(parse_line(shlex.split(line)), None) + "\nprofile: h100\n"
