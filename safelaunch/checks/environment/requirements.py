"""What a project says that it needs: requirements files, pyproject.toml, environment.yml. Pure.

Only text is judged here, by the rules of pip's files, PEP 440, 503, 508 and 621. What is no plain
requirement (an address, a path, an option) says nothing.
"""

from __future__ import annotations

import posixpath
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Read = Callable[[str], str | None]

_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(?:-r|--requirement)[ =]*(\S+)")
_OPTION = re.compile(r"\s--?[A-Za-z][\w-]*[= ].*$")  # `--hash=...` behind a requirement
_DEEPEST = 5  # files that include each other

# Read: returns the text of a path in the project, or None.


class Pin(NamedTuple):
    """A requirement with a version, where it stands, and what of Python it is for."""

    name: str  # normalised, PEP 503
    text: str  # as written
    where: str  # file:line
    specifier: Any  # packaging.specifiers.SpecifierSet
    marker: Any  # packaging.markers.Marker, or None

    def applies(self, environment: Mapping[str, str]) -> bool:
        """Whether it is for this interpreter."""
        return self.marker is None or bool(self.marker.evaluate(dict(environment)))

    def holds(self, version: str) -> bool | None:
        """Whether a version meets it; None where that is no version."""
        from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - rarely needed

        try:
            return bool(self.specifier.contains(Version(version), prereleases=True))
        except InvalidVersion:
            return None


class Pins(NamedTuple):
    """The pins of a project, and the `requires-python` of its pyproject.toml with its place."""

    pins: tuple[Pin, ...] = ()
    python: Pin | None = None


def of_requirements(file: str, read: Read, depth: int = 0) -> Iterator[Pin]:
    """Yield the pins of a requirements file, and of those that it includes."""
    text = read(file)
    for number, line in _lines(text or ""):
        include = _INCLUDE.match(line)
        if include is not None and depth < _DEEPEST:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(file), include[1]))
            yield from of_requirements(path, read, depth + 1)
        elif not line.startswith("-"):
            pin = _pin(_OPTION.sub("", line), f"{file}:{number}")
            if pin is not None:
                yield pin


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers: without comments, joined where they end with a backslash."""
    whole, first = "", 0
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        first = first or number
        stripped = _COMMENT.sub("", line).strip()
        if stripped.endswith("\\"):
            whole += stripped[:-1] + " "
            continue
        if (whole + stripped).strip():
            yield first, (whole + stripped).strip()
        whole, first = "", 0


def of_pyproject(file: str, read: Read) -> Pins:
    """Return the pins of `[project]`; none where Python has no reader of TOML (before 3.11)."""
    text = read(file)
    if text is None or sys.version_info < (3, 11):
        return Pins()
    import importlib  # noqa: PLC0415 - few projects have pins there

    try:
        project = importlib.import_module("tomllib").loads(text).get("project")
    except (ValueError, RecursionError):
        return Pins()
    project = project if isinstance(project, dict) else {}
    listed = project.get("dependencies")
    found = [_pin(str(one), _place(file, text, str(one)))
             for one in (listed if isinstance(listed, list) else ())]  # fmt: skip
    wanted = project.get("requires-python")
    python = _pin(f"python{wanted}", _place(file, text, "requires-python")) if wanted else None
    return Pins(tuple(pin for pin in found if pin), python)


def of_environment(file: str, read: Read) -> Iterator[Pin]:
    """Yield the pins of the pip part of conda's environment.yml."""
    import yaml  # noqa: PLC0415 - as above

    text = read(file)
    try:
        tree = yaml.load(text or "", getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    listed = tree.get("dependencies") if isinstance(tree, dict) else None
    for one in listed if isinstance(listed, list) else ():
        lines = one.get("pip") if isinstance(one, dict) else None
        for line in lines if isinstance(lines, list) else ():
            pin = _pin(str(line), _place(file, text or "", str(line)))
            if pin is not None:
                yield pin


def _place(file: str, text: str, wanted: str) -> str:
    at = text.find(wanted)
    return f"{file}:{text.count(chr(10), 0, at) + 1}" if at >= 0 else file


def _pin(text: str, where: str) -> Pin | None:
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - 20 ms

    try:
        found = Requirement(text)
    except (InvalidRequirement, RecursionError):
        return None
    if not found.specifier or found.url:
        return None
    return Pin(normalised(found.name), text, where, found.specifier, found.marker)


def normalised(name: str) -> str:
    """Return a project's name as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()
