"""Answers what a check asks of the machine that runs a job: paths, ports, modules, folders.

A question is a list of its kind and its words. It changes nothing and starts nothing.
"""

# ruff: noqa: PLC0415 - rare_questions, distributions: few starts ask one

from __future__ import annotations

import functools
import threading

from safelaunch.runtime.facts import commands
from safelaunch.runtime.facts.answers import (
    absolute,
    matches,
    model,
    name,
    path,
    port,
    real_path,
    room,
    runs,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


def parts(cwd: str, asks: Iterable[Any], finder: Finder) -> dict[str, Callable[[], Any]]:
    """Return {`ask.<number>`: function that answers}; relative paths begin at `cwd`."""
    return {
        f"ask.{number}": finder.add(str(words[0]))
        if kind == "module"
        else functools.partial(answer, cwd, str(kind), words)
        for number, (kind, *words) in enumerate(asks)
    }


class Finder:
    """Asks the job's interpreter once which modules it finds, in the job's folders and its own."""

    def __init__(self, python: str, cwd: str, pythonpath: list[str]) -> None:
        self._words = [python, "-B", "-c", _FIND]
        self._folders = [absolute(cwd, folder) for folder in pythonpath]
        self._names: list[str] = []
        self._lock = threading.Lock()
        self._locations: dict[str, str] | None = None
        self._why = ""

    def add(self, name: str) -> Callable[[], Any]:
        """Return the function that answers whether and where a top-level module is found."""
        self._names.append(name)
        return functools.partial(self._find, name)

    def _find(self, name: str) -> dict[str, Any]:
        with self._lock:
            if self._locations is None:
                words = [*self._words, str(len(self._names)), *self._names, *self._folders]
                # from where the start itself asks: a shim may look for its version in that folder
                output = commands.run(words, cwd=None)
                cells = output.text.split("\0")[1:-1]  # whatever else it prints is around them
                self._locations = dict(zip(cells[::2], cells[1::2]))  # noqa: B905 - Python 3.8
                lines = output.text.splitlines() or [f"exit code {output.exit}"]
                self._why = (output.why or lines[-1])[:300]
        if name not in self._locations:
            raise commands.Skip(f"{self._words[0]}: {self._why}")
        return {"found": bool(self._locations[name]), "where": self._locations[name] or None}


# Any Python 3 runs it; modules are not searched in the folder that it is started in. No
# importlib.util and no json: they double what the start of an interpreter takes.
_FIND = """
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import importlib.machinery, os
count = int(sys.argv[1])
names, folders = sys.argv[2:count + 2], sys.argv[count + 2:]
finders = [(importlib.machinery.PathFinder, folders + sys.path)]
finders += [(finder, None) for finder in sys.meta_path]
os.write(1, b"\\0")
for name in names:
    spec = None
    for finder, path in finders:
        try:
            spec = spec or finder.find_spec(name, path)
        except Exception:
            pass
    where = "" if spec is None else spec.origin or "a namespace"
    os.write(1, os.fsencode(name + "\\0" + where + "\\0"))
"""


def answer(cwd: str, kind: str, words: list[Any]) -> Any:
    """Return the answer to a question. Raises Skip where there is none."""
    if kind not in KINDS:
        raise commands.Skip(f"`{kind}` is no question that this version knows")
    try:
        return KINDS[kind](cwd, *words)
    except OSError as e:
        raise commands.Skip(f"{e.filename or kind}: {e.strerror or e}") from e


def _rare(name: str, cwd: str, *words: Any) -> Any:
    """Return the answer to a question in rare_questions.py."""
    from safelaunch.runtime.facts import rare_questions

    return getattr(rare_questions, name)(cwd, *words)


def _requirements(cwd: str, *modules: str) -> Any:
    """Return what the distributions of modules require (distributions.py)."""
    from safelaunch.runtime.facts.site_packages import distributions

    return distributions.requirements(cwd, *modules)


def _builds(cwd: str, *modules: str) -> Any:
    """Return what the libraries of modules were built for (builds.py)."""
    from safelaunch.runtime.facts.site_packages import builds

    return builds.builds(cwd, *modules)


# kinds that only the job's own interpreter answers
OF_INTERPRETER = ("module", "requirements", "builds")
KINDS: dict[str, Callable[..., Any]] = {
    "path": path,
    "glob": matches,
    "room": room,
    "port": port,
    "model": model,
    "name": name,
    "runs": runs,
    "real": real_path,
    "requirements": _requirements,
    "builds": _builds,
    **{
        name: functools.partial(_rare, name)
        for name in (
            *(
                "reach",
                "hostname",
                "home",
                "checkpoint",
                "newest_checkpoints",
                "hub",
                "size",
                "kernel",
                "image",
            ),
        )
    },
}
