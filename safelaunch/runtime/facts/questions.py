"""Answers what a check asks of the machine that runs a job: paths, ports, modules, folders.

A question is a list of its kind and its words. It changes nothing and starts nothing.
"""

from __future__ import annotations

import functools
import threading

from safelaunch.runtime.facts import commands
from safelaunch.runtime.facts.answers import matches, model, name, path, place, port, room, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def parts(cwd: str, asks: list[Any], finder: Finder) -> dict[str, Callable[[], Any]]:
    """Return {`ask.<number>`: what answers}; relative paths begin at `cwd`."""
    answers: dict[str, Callable[[], Any]] = {}
    for at, (kind, *words) in enumerate(asks):
        if kind == "module":
            answers[f"ask.{at}"] = finder.add(str(words[0]))
        else:
            answers[f"ask.{at}"] = functools.partial(answer, cwd, str(kind), words)
    return answers


class Finder:
    """Asks the job's interpreter once which modules it finds, in the job's folders and its own."""

    def __init__(self, python: str, cwd: str, pythonpath: list[str]) -> None:
        self._words = [python, "-B", "-c", _FIND]
        self._folders = [place(cwd, folder) for folder in pythonpath]
        self._names: list[str] = []
        self._lock = threading.Lock()
        self._locations: dict[str, str] | None = None
        self._why = ""

    def add(self, name: str) -> Callable[[], Any]:
        """Return what answers whether and where a top-level module is found."""
        self._names.append(name)
        return functools.partial(self._find, name)

    def _find(self, name: str) -> dict[str, Any]:
        with self._lock:
            if self._locations is None:
                count = str(len(self._names))
                words = [*self._words, count, *self._names, *self._folders]
                # from where the start itself asks: a shim may look for its version in that folder
                output = commands.run(words, cwd=None)
                cells = output["text"].split("\0")[1:-1]  # what else it printed stands around them
                self._locations = dict(zip(cells[::2], cells[1::2]))  # noqa: B905 - Python 3.8
                lines = output["text"].splitlines() or ["exit code {}".format(output["exit"])]
                self._why = str(output.get("why") or lines[-1])[:300]
        if name not in self._locations:
            raise commands.Skip(f"{self._words[0]}: {self._why}")
        return {"found": bool(self._locations[name]), "where": self._locations[name] or None}


# Any Python 3 runs it; the folder that it is started in is no place for modules. No importlib.util
# and no json: they double what the start of an interpreter takes.
_FIND = """
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import importlib.machinery, os
count = int(sys.argv[1])
names, folders = sys.argv[2:count + 2], sys.argv[count + 2:]
finders = [(importlib.machinery.PathFinder, folders + sys.path)]
finders += [(one, None) for one in sys.meta_path]
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
    work = KINDS.get(kind)
    if work is None:
        raise commands.Skip(f"nobody knows how to tell `{kind}`")
    try:
        return work(cwd, *words)
    except OSError as e:
        raise commands.Skip(f"{e.filename or kind}: {e.strerror or e}") from e


def _more(name: str, cwd: str, *words: Any) -> Any:
    """Return the answer to a question in rare_questions.py: few starts ask one."""
    from safelaunch.runtime.facts import rare_questions  # noqa: PLC0415 - as above

    return getattr(rare_questions, name)(cwd, *words)


KINDS: dict[str, Callable[..., Any]] = {
    "path": path,
    "glob": matches,
    "room": room,
    "port": port,
    "model": model,
    "name": name,
    "runs": runs,
    **{
        name: functools.partial(_more, name)
        for name in ("reach", "hostname", "home", "checkpoint", "hub", "size")
    },
}
