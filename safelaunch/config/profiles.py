"""Finds and reads profiles: built-in ones by name, others by path, and those that they extend."""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING

from safelaunch.config.schema.files import PROFILE
from safelaunch.config.yaml_io.reader import MAX_DEPTH, read_file
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import BUILT_IN, Origin, Profile

if TYPE_CHECKING:
    from collections.abc import Collection

    from safelaunch.config.yaml_io.node import Node

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def folder() -> str:
    """Return the folder of the built-in profiles: in the wheel, or at the top of a checkout.

    Relative to `__file__`: importlib.resources costs 11 ms of a dry-run's 100.
    """
    in_wheel = os.path.join(_PACKAGE, "profiles")
    if os.path.isdir(in_wheel):
        return in_wheel
    top = os.path.dirname(_PACKAGE)
    in_checkout = os.path.join(top, "profiles")
    if os.path.isfile(os.path.join(top, "pyproject.toml")) and os.path.isdir(in_checkout):
        return in_checkout
    raise ConfigError("the built-in profiles are missing", hint="install safelaunch again")


def names() -> list[str]:
    """Return the names of the built-in profiles, sorted."""
    return sorted(f[:-5] for f in os.listdir(folder()) if f.endswith(".yaml"))


def of_gpus(gpus: Collection[str]) -> list[Profile]:
    """Return the built-in profiles for GPUs of these names; the files of all others stay unparsed.

    A start without a profile asks for this, and to parse all of them takes 30 ms.
    """
    fitting = []
    for name in names():
        path = os.path.join(folder(), f"{name}.yaml")
        with open(path, encoding="utf-8") as file:
            line = next((line for line in file if line.startswith("gpu_names: ")), None)
        pattern = line and line.removeprefix("gpu_names: ").strip()
        if pattern and any(re.fullmatch(pattern, gpu) for gpu in gpus):
            fitting.append(load(name, BUILT_IN, "."))
    return fitting


def load(name: str, where: Origin, base: str) -> Profile:
    """Return the profile of that name, or at that path (with a `/`, or ending in .yaml).

    `base` is the folder that a relative path starts from. Raises ConfigError.
    """
    files: dict[str, str] = {}
    fields, _ = PROFILE.read(_tree(name, where, base, files, ()))
    for key in ("extends", "checked"):
        fields.pop(key, None)
    stem = os.path.basename(name).removesuffix(".yaml").removesuffix(".yml")
    checked = {file: date for file, date in files.items() if date}
    return Profile(name=stem, files=tuple(files), checked=checked, **fields)


def _tree(
    name: str, where: Origin, base: str, files: dict[str, str], chain: tuple[str, ...]
) -> Node:
    """Return the keys of a profile over those of its parents; `files` gets each file's date."""
    path, shown = _find(name, where, base)
    if path in chain or len(chain) >= MAX_DEPTH:
        problem = "leads back to" if path in chain else "is nested too deep at"
        raise ConfigError(f"`extends` {problem} {shown}", where=where)
    tree = read_file(path, shown)
    PROFILE.check_keys(tree)
    date = tree.get("checked")
    files[shown] = "" if date is None else date.text
    return PROFILE.with_parents(
        tree,
        lambda parent: _tree(
            parent.text, parent.origin, os.path.dirname(path), files, (*chain, path)
        ),
    )


def _find(name: str, where: Origin, base: str) -> tuple[str, str]:
    """Return the path of a profile, and the path to show: relative if its parent's is."""
    if os.sep in name or "/" in name or name.endswith((".yaml", ".yml")):
        path = os.path.normpath(os.path.join(base, name))
        if not os.path.exists(path):
            raise ConfigError(f"no profile file `{name}`", where=where)
        parent_dir = posixpath.dirname(where.source) if where.line else ""
        return path, posixpath.normpath(posixpath.join(parent_dir, name))
    path = os.path.join(folder(), f"{name}.yaml")
    if not os.path.isfile(path):
        hint = did_you_mean(name, names()) or "known: " + ", ".join(names())
        raise ConfigError(f"unknown profile `{name}`", where=where, hint=hint)
    return path, f"profiles/{name}.yaml"
