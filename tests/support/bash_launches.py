"""What real bash starts for a script: stubs in place of the launchers write down their calls."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "python", "python3", "srun", "swift", "uv")
# quoting is left to the file system: one file for each call, its parts separated by NUL
STUB = """#!/bin/sh
n=$(mktemp {calls}/$(date +%s%N).XXXXXX)
{{ pwd; printf '\\0'; printf '%s\\0' "${{0##*/}}" "$@"; }} >"$n"
cat /proc/$$/environ >"$n.env"
"""
OWN = frozenset(("PWD", "OLDPWD", "SHLVL", "_"))


class Call(NamedTuple):
    """One call of a launcher: its folder, its words, and what differs from the caller's."""

    folder: str
    words: tuple[str, ...]
    env: tuple[tuple[str, str | None], ...]


def base_environment(place: Path) -> dict[str, str]:
    """Return the environment in which a script is run."""
    return {"PATH": f"{place / 'stubs'}:/usr/bin:/bin", "HOME": str(place / "home")}


def run(
    script: Path, place: Path, arguments: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> list[Call]:
    """Run a script under bash with stubs, and return the calls in their order."""
    stubs, calls = place / "stubs", place / "calls"
    for folder in (stubs, calls, place / "home"):
        folder.mkdir(exist_ok=True)
    for name in LAUNCHERS:
        (stubs / name).write_text(STUB.format(calls=calls))
        (stubs / name).chmod(0o755)
    base = {**base_environment(place), **(env or {})}
    subprocess.run(
        ["bash", script.name, *arguments],
        cwd=script.parent, env=base, stdin=subprocess.DEVNULL, capture_output=True, timeout=30,
        check=False,
    )  # fmt: skip
    return [_read(path, base) for path in sorted(calls.iterdir()) if path.suffix != ".env"]


def _read(path: Path, base: Mapping[str, str]) -> Call:
    folder, *words = path.read_bytes().decode().removesuffix("\0").split("\0")
    raw = path.with_name(f"{path.name}.env").read_bytes().decode().split("\0")
    env = {name: value for name, _, value in (item.partition("=") for item in raw if item)}
    return Call(folder.rstrip("\n"), tuple(words), difference(env, base))


def difference(
    env: Mapping[str, str | None], base: Mapping[str, str]
) -> tuple[tuple[str, str | None], ...]:
    """Return the variables that differ from those of the caller; None for those removed."""
    changed = {name: value for name, value in env.items() if base.get(name) != value}
    changed |= {name: None for name in base if name not in env}
    is_own = re.compile(rf"({'|'.join(OWN)}|BASH_FUNC_.*)")  # exported functions: only for bash
    return tuple(sorted((n, v) for n, v in changed.items() if not is_own.fullmatch(n)))


def real_path(path: str) -> str:
    """Return a folder without symlinks."""
    return os.path.realpath(path)
