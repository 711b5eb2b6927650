"""Checks: versions that are installed side by side, and are known not to go together.

Each record of pairs.json has

    packages  normalised name: PEP 440 specifiers; all must match what is installed
    python    specifiers of the interpreter, where only some are hit
    words     regular expression, found in the job's own words (program, arguments, launcher's)
    ranks     `several`: only with more than one process
    what      what happens
    fix       requirements that cure it, for one command of pip
    checked   where the boundaries of the versions were seen
    source    where it is reported
    fires, silent   samples that must be found, and must not: packages, python, words, ranks
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from safelaunch.checks import job_needs
from safelaunch.checks.answers import Answer, ok, warn
from safelaunch.checks.environment import pip_commands
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.checks.context import HostContext

_PAIRS = os.path.join(os.path.dirname(__file__), "pairs.json")


@check("package-pairs", "environment", needs=("python",))
def package_pairs(host: HostContext) -> list[Answer] | Answer | None:
    """Whether packages are installed that are known not to go together."""
    installed = job_needs.installed(host)
    if installed is None:
        return None
    several, words = job_needs.has_ranks(host), job_needs.program(host.job)
    version = str(host.fact("python", "version"))
    found = [
        warn(
            f"{_listed(one, installed)}: {one['what']}",
            pip_commands.install(host, one["fix"]),
            one["source"],
        )
        for one in pairs()
        if matches(one, installed, version, words, several=several)
    ]
    return found or ok(f"none of {len(pairs())} known bad pairs is installed")


@lru_cache(maxsize=1)
def pairs() -> list[dict[str, Any]]:
    """Return the records of pairs.json."""
    import json  # noqa: PLC0415 - only where all checks are made

    with open(_PAIRS, encoding="utf-8") as file:
        found: list[dict[str, Any]] = json.load(file)
    return found


def matches(
    pair: Mapping[str, Any],
    installed: Mapping[str, str],
    python: str,
    words: str,
    *,
    several: bool,
) -> bool:
    """Whether a record is about these packages, this interpreter and this job."""
    if pair.get("ranks") == "several" and not several:
        return False
    if "words" in pair and re.search(pair["words"], words) is None:
        return False
    if not _within(python, pair.get("python", "")):
        return False
    return all(
        name in installed and _within(installed[name], specifiers)
        for name, specifiers in pair["packages"].items()
    )


def _within(version: str, specifiers: str) -> bool:
    """Whether a version meets specifiers; one that is none meets nothing."""
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - 15 ms, rarely needed
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - as above

    try:
        return SpecifierSet(specifiers).contains(Version(version).public, prereleases=True)
    except InvalidVersion:
        return not specifiers


def _listed(pair: Mapping[str, Any], installed: Mapping[str, str]) -> str:
    return " with ".join(f"{name} {installed[name]}" for name in pair["packages"])
