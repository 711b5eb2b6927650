"""The requirements of a project: requirements files, pyproject.toml, environment.yml.

Only text is read, by the rules of pip's files, PEP 440, 503, 508 and 621. What names no package (a
path, an option, an address without `#egg=`) is none.
"""

# ruff: noqa: PLC0415 - packaging (20 ms), yaml and tomllib: few projects have pins

from __future__ import annotations

import posixpath
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Read = Callable[[str], str | None]  # the text of a path in the project

_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(?:-r|--requirement)[ =]*(\S+)")
_OPTION = re.compile(r"\s--?[A-Za-z][\w-]*[= ].*$")  # `--hash=...` after a requirement
_EDITABLE = re.compile(r"(?:-e|--editable)[ =]*")
# pip, VCS support: `git+https://HOST/PROJECT.git@TAG#egg=NAME`
_EGG = re.compile(r"\w+\+\S+[#&]egg=(?!\S*-\d)([A-Za-z0-9][\w.-]*(?:\[[\w.,-]*\])?)\S*(.*)")
_USER = re.compile(r"(?<=://)[^/@\s]+@")  # of an address, with a password or a token
_MAX_DEPTH = 5  # files that include each other


class Pin(NamedTuple):
    """A requirement, with a version or without."""

    name: str  # normalised, PEP 503
    text: str  # as written, but for a user in an address
    where: str  # file:line
    specifier: Any  # packaging.specifiers.SpecifierSet
    marker: Any  # packaging.markers.Marker, or None
    extras: frozenset[str] = frozenset()
    has_address: bool = False

    def applies(self, environment: Mapping[str, str]) -> bool:
        """Whether it is for this interpreter."""
        return self.marker is None or bool(self.marker.evaluate(dict(environment)))

    def holds(self, version: str) -> bool | None:
        """Whether a version meets it; None where that is no version."""
        from packaging.version import InvalidVersion, Version

        try:
            return bool(self.specifier.contains(Version(version), prereleases=True))
        except InvalidVersion:
            return None

    def excludes(self, other: Pin) -> bool:
        """Whether no version meets both, as far as exact ones say: `==1.2` and `>=2`."""
        answers = [
            rest.holds(item.version)
            for pin, rest in ((self, other), (other, self))
            for item in pin.specifier
            if item.operator == "==" and not item.version.endswith(".*")
        ]
        return bool(answers) and not any(answers)


class Pins(NamedTuple):
    """The pins of a project, and the `requires-python` of its pyproject.toml."""

    pins: tuple[Pin, ...] = ()
    python: Pin | None = None


def read_requirements(file: str, read: Read, depth: int = 0) -> Iterator[Pin]:
    """Yield the pins of a requirements file, and of those that it includes."""
    for number, line in _lines(read(file) or ""):
        include = _INCLUDE.match(line)
        if include is not None and depth < _MAX_DEPTH:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(file), include[1]))
            yield from read_requirements(path, read, depth + 1)
            continue
        line = _EDITABLE.sub("", line, count=1)  # noqa: PLW2901 - the same line without its option
        if not line.startswith("-"):
            yield from _pins(_OPTION.sub("", line), f"{file}:{number}")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines: without comments, joined where they end with a backslash."""
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


def read_pyproject(file: str, read: Read) -> Pins:
    """Return the pins of `[project]`; none where Python has no reader of TOML (before 3.11)."""
    text = read(file)
    if text is None or sys.version_info < (3, 11):
        return Pins()
    import importlib

    try:
        project = importlib.import_module("tomllib").loads(text).get("project")
    except (ValueError, RecursionError):
        return Pins()
    project = project if isinstance(project, dict) else {}
    listed = project.get("dependencies")
    pins = [
        pin
        for line in (listed if isinstance(listed, list) else ())
        for pin in _pins(str(line), _location(file, text, str(line)))
    ]
    version = project.get("requires-python")
    where = _location(file, text, "requires-python")
    return Pins(tuple(pins), next(_pins(f"python{version}", where), None) if version else None)


def read_conda(file: str, read: Read) -> Iterator[Pin]:
    """Yield the pins of the pip part of conda's environment.yml."""
    import yaml

    text = read(file) or ""
    try:
        tree = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    listed = tree.get("dependencies") if isinstance(tree, dict) else None
    for entry in listed if isinstance(listed, list) else ():
        lines = entry.get("pip") if isinstance(entry, dict) else None
        for line in lines if isinstance(lines, list) else ():
            yield from _pins(str(line), _location(file, text, str(line)))


def _location(file: str, text: str, line: str) -> str:
    """Return `file:line` of the first occurrence of a line's text."""
    index = text.find(line)
    return f"{file}:{text.count(chr(10), 0, index) + 1}" if index >= 0 else file


def _pins(text: str, where: str) -> Iterator[Pin]:
    """Yield the requirement of a line."""
    from packaging.requirements import InvalidRequirement, Requirement

    egg = _EGG.fullmatch(text)
    try:
        requirement = Requirement(f"{egg[1]}{egg[2]}" if egg else text)
    except (InvalidRequirement, RecursionError):
        return
    extras = frozenset(map(normalize, requirement.extras))
    yield Pin(
        *(normalize(requirement.name), _USER.sub("", text), where),
        *(requirement.specifier, requirement.marker, extras),
        has_address=bool(egg or requirement.url),
    )


def normalize(name: str) -> str:
    """Return the name of a package or an extra as PEP 503 and 685 compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
