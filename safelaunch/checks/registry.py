"""What a check is: a decorated function that judges a machine, or all of a job's, before a start.

It is given what is known (context.py), changes nothing, and answers `ok`, `warn`, `fail` or `skip`
with what it saw. `fail` is for what makes the start impossible; what is only read (a script, a
configuration) warns at most. What does not concern a job is no answer at all: return None.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from safelaunch.checks.answers import Answer, Question
    from safelaunch.checks.context import Site

FAMILIES = ("environment", "hardware", "network", "project", "arithmetic")
# modules with checks that are made before each start; a start loads no others
QUICK = (
    "environment.interpreter",
    "hardware.gpus",
    "hardware.gpu_state",
    "hardware.resources",
    "network.interfaces",
    "network.ports",
    "project.inputs",
    "project.outputs",
    "project.script",
    "project.arithmetic",
)
OTHERS = (
    "project.models",
    "environment.torch_nccl",
    "environment.package_pairs",
    "environment.packages",
    "environment.jit_builds",
    "environment.same_versions",
    "hardware.interconnect",
    "network.reachability",
)
MODULES = (*QUICK, *OTHERS)


class Result(NamedTuple):
    """An answer with the check and the host that it is about; of all hosts: None."""

    id: str
    family: str
    host: str | None
    status: str
    evidence: str
    hint: str = ""
    source: str = ""


class Check(NamedTuple):
    """A check as declared."""

    id: str
    family: str
    work: Callable[[Any], Answer | Iterable[Answer] | None]
    asks: Callable[[Site], Iterable[Question]] | None
    needs: tuple[str, ...]
    job: bool
    once: bool
    quick: bool
    source: str


_checks: dict[str, Check] = {}
Work = TypeVar("Work", bound="Callable[[Any], Answer | Iterable[Answer] | None]")


def check(
    id: str,  # noqa: A002 - the field's name
    family: str,
    *,
    asks: Callable[[Site], Iterable[Question]] | None = None,
    needs: tuple[str, ...] = (),
    job: bool = True,
    once: bool = False,
    quick: bool = False,
    source: str = "",
) -> Callable[[Work], Work]:
    """Declare a check: the function is given a Site, or with `once` the Case with all of them.

    `asks` says what must be asked of the machine; `site.told(...)` has the answer. `needs` names
    parts of the host facts without which it is skipped. Without `job` it also judges a machine of
    which no job is known. `quick`: it is made before each start as well, and needs no facts but
    those that take no command (system, cores, memory, disks, gpus by /proc).
    """

    def declare(work: Work) -> Work:
        if id in _checks or family not in FAMILIES:
            raise ValueError(id)
        _checks[id] = Check(id, family, work, asks, needs, job, once, quick, source)
        return work

    return declare


def declared(*, is_quick: bool = False) -> Iterator[Check]:
    """Yield all checks, or the quick ones: by family, and in each as they stand in their files."""
    for name in QUICK if is_quick else MODULES:
        importlib.import_module(f"safelaunch.checks.{name}")

    def place(one: Check) -> tuple[int, int]:
        module = one.work.__module__.removeprefix("safelaunch.checks.")
        return FAMILIES.index(one.family), MODULES.index(module)

    # as they stand in the table, whatever was imported first
    yield from (one for one in sorted(_checks.values(), key=place) if one.quick or not is_quick)
