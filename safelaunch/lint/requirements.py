"""Rules for requirements files: pins that no index has, and incompatible wheels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.lint.finding import ERROR, WARNING, LintFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.lint.text_file import TextFile

_LOCAL = re.compile(
    r"\s*(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*===?\s*(?P<version>[\w.!]+)\+(?P<local>[\w.]+)"
)
_INDEX = re.compile(r"\s*(--extra-index-url|--index-url|-i|--find-links|-f)[ =]+\S")
_CUDA_WHEEL = re.compile(r"\s*(?P<name>[A-Za-z0-9][\w.-]*-cu(?P<major>1[0-9]))\b")
_TORCH_INDEX = "https://download.pytorch.org/whl/"
_TORCH_BUILD = re.compile(r"(cu\d{2,3}|cpu|rocm[\d.]+|xpu)")


def check(text: TextFile) -> Iterator[LintFinding]:
    """Yield findings for pins that pip will refuse, and for incompatible wheels."""
    yield from _local_pins(text)
    yield from _mixed_cuda(text)


def _local_pins(text: TextFile) -> Iterator[LintFinding]:
    if any(_INDEX.match(line) for line in text.lines):
        return  # another index may have other versions
    for number, line in enumerate(text.lines, 1):
        match = _LOCAL.match(line)
        if match is None:
            continue
        name, version, local = match["name"], match["version"], match["local"]
        message = (
            f"`{name}=={version}+{local}`: PyPI has no local versions, so pip will not find it"
        )
        fix = f"pin `{name}=={version}`, or add the index that has this build"
        if _TORCH_BUILD.fullmatch(local):
            fix = f"add a line `--extra-index-url {_TORCH_INDEX}{local}`, or remove `+{local}`"
        column = match.start("name") + 1
        yield LintFinding(text.file, number, column, "requirements-local", message, fix, ERROR)


def _mixed_cuda(text: TextFile) -> Iterator[LintFinding]:
    first: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(text.lines, 1):
        match = _CUDA_WHEEL.match(line)
        if match is None:
            continue
        major, name = match["major"], match["name"]
        other = next((wheel for cuda, wheel in first.items() if cuda != major), None)
        if major not in first and other is not None:
            message = (
                f"`{name}` is for CUDA {major}, `{other[1]}` in line {other[0]} for another version"
            )
            fix = "keep the wheels of one CUDA version; torch requires the ones that it needs"
            rule = "requirements-cuda"
            yield LintFinding(
                text.file, number, match.start("name") + 1, rule, message, fix, WARNING
            )
        first.setdefault(major, (number, name))
