"""Whether the options of each arithmetic rule still exist in the newest text of its framework.

The folders on the command line contain checkouts, or unpacked packages, each in a folder with the
name of its project in it (`verl`, `volcengine+verl`). Nothing of their text is in this repository.
Where SAFELAUNCH_BENCH_PROGRAMS names an environment with frameworks, framework_runs.py runs those.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from framework_runs import framework_runs
from rows import Row

from safelaunch.analysis.arithmetic.rules import rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from safelaunch.analysis.arithmetic.rules import Rule

_ENDINGS = (".py", ".sh", ".md", ".yaml", ".yml", ".rst", ".json")
_MAX_BYTES = 4 << 20


def framework_rules(folders: Sequence[str]) -> Iterator[Row]:
    """Yield for each framework with a checkout which rules have options that are gone."""
    projects: dict[str, list[Rule]] = defaultdict(list)
    for rule in rules():
        projects[rule.checked.split()[0]].append(rule)
    for project, members in sorted(projects.items()):
        what = f"options of the rules of {project}, last checked: {members[0].checked}"
        paths = [path for folder in folders for path in _checkouts(folder, project)]
        if not paths:
            yield Row(what, "no folder of that name", "all exist", None)
            continue
        words = _words(paths)
        lost = {rule.id: missing for rule in members if (missing := _missing(rule, words))}
        listed = "; ".join(f"{name}: {', '.join(names)}" for name, names in lost.items())
        shown = f"{len(members) - len(lost)}/{len(members)} rules"
        yield Row(what, f"{shown}; gone: {listed}" if lost else shown, "all exist", not lost)
    yield from framework_runs()


def _checkouts(folder: str, project: str) -> Iterator[str]:
    """Yield the folders whose names contain a project's."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            parts = re.split(r"[+/@]", entry.name.lower())
            if entry.is_dir() and project.lower() in parts:
                yield entry.path


def _words(paths: Iterable[str]) -> frozenset[str]:
    """Return the names in all text files, with underscores for dashes."""
    words: set[str] = set()
    for path in paths:
        for place, _, names in os.walk(path):
            for name in names:
                file = os.path.join(place, name)
                if name.endswith(_ENDINGS) and os.path.isfile(file):
                    with open(file, encoding="utf-8", errors="replace") as stream:
                        words.update(re.findall(r"[\w.-]+", stream.read(_MAX_BYTES)))
    return frozenset(word.strip("-.").replace("-", "_") for word in words)


def _missing(rule: Rule, words: frozenset[str]) -> list[str]:
    """Return the names of a rule of which no spelling exists any more."""
    groups = [name.read for name in rule.names.values()]
    groups += [(name,) for name in rule.required_options]
    groups += [tuple(rule.one_of)] if rule.one_of else []
    return [" or ".join(group) for group in groups if not any(_exists(n, words) for n in group)]


def _exists(name: str, words: frozenset[str]) -> bool:
    """Whether a name is in the text: in full, or as nested keys of a settings file."""
    name = name.rpartition(":")[2].replace("-", "_")
    return name in words or ("." in name and all(part in words for part in name.split(".")))
