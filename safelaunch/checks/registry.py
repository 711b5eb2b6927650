"""Declares checks: decorated functions that examine a host, or all hosts of a job, before a start.

A check gets what is known (context.py), changes nothing, and returns or yields `ok`, `warn`, `fail`
or `skip` with its evidence. `fail` is for what makes the start impossible; a check that only reads
text (a script, a configuration) warns at most. A check that does not concern a job returns None.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from safelaunch.checks.answers import Answer, Question
    from safelaunch.checks.context import HostContext

FAMILIES = ("environment", "hardware", "network", "project", "arithmetic")
# modules with checks that run before each start; a start imports no others
QUICK = (
    "environment.interpreter",
    "hardware.gpus",
    "hardware.profile_fit",
    "hardware.visibility",
    "hardware.gpu_state",
    "hardware.resources",
    "network.interfaces",
    "network.ports",
    "network.services",
    "project.inputs",
    "project.outputs",
    "project.script",
    "project.default_config",
    "project.arithmetic",
)
MODULES = (
    *QUICK,
    "project.shell_script",
    "project.models",
    "project.data_files",
    "environment.image",
    "environment.torch_nccl",
    "environment.packages",
    "environment.dependencies",
    "environment.binary_builds",
    "environment.jit_builds",
    "environment.versions",
    "environment.variables",
    "hardware.precision",
    "hardware.gpu_health",
    "hardware.interconnect",
    "hardware.peer_paths",
    "hardware.cpu_binding",
    "network.reachability",
)


class CheckResult(NamedTuple):
    """An answer of a check about a host; None: about all hosts."""

    id: str
    family: str
    host: str | None
    status: str
    evidence: str
    hint: str = ""
    source: str = ""
    service: str | None = None  # of the job, that it is about; None: the job itself


class Check(NamedTuple):
    """A check as declared."""

    id: str
    family: str
    function: Callable[[Any], Answer | Iterable[Answer] | None]
    asks: Callable[[HostContext], Iterable[Question]] | None
    needs: tuple[str, ...]
    job: bool
    once: bool
    quick: bool
    source: str


_registry: dict[str, Check] = {}
CheckFunction = TypeVar("CheckFunction", bound="Callable[[Any], Answer | Iterable[Answer] | None]")


def check(
    id: str,  # noqa: A002 - the field's name
    *,
    family: str = "",
    asks: Callable[[HostContext], Iterable[Question]] | None = None,
    needs: tuple[str, ...] = (),
    job: bool = True,
    once: bool = False,
    quick: bool = False,
    source: str = "",
) -> Callable[[CheckFunction], CheckFunction]:
    """Declare a check: a function of a HostContext, or with `once` of the CheckContext.

    Its family is by default the folder of its module. `asks` returns its questions to the host;
    `host.answer(...)` has the answers. `needs` names parts of the host facts without which it is
    skipped. Without `job` it also checks a host for which no job is known. `quick`: it also runs
    before each start, and needs no facts but those that take no command (system, cores, memory,
    disks, gpus by /proc).
    """

    def declare(function: CheckFunction) -> CheckFunction:
        folder = function.__module__.split(".")[-2]
        if id in _registry or (family or folder) not in FAMILIES:
            raise ValueError(id)
        _registry[id] = Check(id, family or folder, function, asks, needs, job, once, quick, source)
        return function

    return declare


def declared(*, is_quick: bool = False) -> Iterator[Check]:
    """Yield all checks, or the quick ones: by family, then in the order of their files."""
    for name in QUICK if is_quick else MODULES:
        importlib.import_module(f"safelaunch.checks.{name}")

    def order(check: Check) -> tuple[int, int]:
        module = check.function.__module__.removeprefix("safelaunch.checks.")
        return FAMILIES.index(check.family), MODULES.index(module)

    # not in the order of imports, which depends on the command
    yield from (c for c in sorted(_registry.values(), key=order) if c.quick or not is_quick)
