"""Finds and reads profiles: built-in ones by name, others by path; `extends` laid below."""

from __future__ import annotations

import os
import posixpath
from typing import Any

from safelaunch.config.schema.files import PROFILE
from safelaunch.config.yaml_io.node import Node, overlay
from safelaunch.config.yaml_io.reader import MAX_DEPTH, read_file
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import Origin, Profile

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def folder() -> str:
    """Return the folder of the built-in profiles: in the wheel, or at the top of a checkout.

    Relative to `__file__`: importlib.resources costs 11 ms of a dry-run's 100.
    """
    inside = os.path.join(_PACKAGE, "profiles")
    if os.path.isdir(inside):
        return inside
    top = os.path.dirname(_PACKAGE)
    beside = os.path.join(top, "profiles")
    if os.path.isfile(os.path.join(top, "pyproject.toml")) and os.path.isdir(beside):
        return beside
    raise ConfigError("the built-in profiles are missing", hint="install safelaunch again")


def names() -> list[str]:
    """Return the names of the built-in profiles, sorted."""
    return sorted(f[:-5] for f in os.listdir(folder()) if f.endswith(".yaml"))


def load(name: str, where: Origin, base: str) -> Profile:
    """Return the profile of that name, or at that path (with a `/`, or ending in .yaml).

    `base` is the folder that a relative path starts from. Raises ConfigError.
    """
    files: list[str] = []
    tree = _tree(name, where, base, files, ())
    values, _ = PROFILE.read(tree)
    return Profile(
        name=os.path.basename(name).removesuffix(".yaml").removesuffix(".yml"),
        description=values.get("description", ""),
        accelerator=values.get("accelerator", "cuda"),
        gpu_names=values.get("gpu_names", ""),
        facts=values.get("facts", {}),
        env=values.get("env", ()),
        site=values.get("site", ()),
        ladder=tuple(_step(step) for step in values.get("ladder", ())),
        files=tuple(files),
    )


def _step(variables: Any) -> tuple[tuple[str, str], ...]:
    for var in variables:
        if var.value is None:
            raise ConfigError(
                f"a ladder step sets `{var.name}`, null is no value", where=var.origin
            )
    return tuple((var.name, str(var.value)) for var in variables)


def _tree(name: str, where: Origin, base: str, files: list[str], chain: tuple[str, ...]) -> Node:
    path, shown = _find(name, where, base)
    if path in chain or len(chain) >= MAX_DEPTH:
        raise ConfigError(f"`extends` goes round in a circle: {shown}", where=where)
    tree = read_file(path, shown)
    PROFILE.check_keys(tree)
    files.append(shown)
    parents = tree.get("extends")
    if parents is None or parents.is_null:
        return tree
    below: Node | None = None
    key = PROFILE.find("extends")
    assert key is not None  # noqa: S101 - a constant of this package
    key.type.read(parents)
    for parent in parents.items if parents.kind == "list" else (parents,):
        inherited = _tree(parent.text, parent.origin, os.path.dirname(path), files, (*chain, path))
        below = overlay(below, inherited)
    return overlay(below, tree)


def _find(name: str, where: Origin, base: str) -> tuple[str, str]:
    """Return the path of a profile, and the path to show: relative as the file that names it."""
    if os.sep in name or "/" in name or name.endswith((".yaml", ".yml")):
        path = os.path.normpath(os.path.join(base, name))
        if not os.path.exists(path):
            raise ConfigError(f"no profile file `{name}`", where=where)
        beside = posixpath.dirname(where.source) if where.line else ""
        return path, posixpath.normpath(posixpath.join(beside, name))
    path = os.path.join(folder(), f"{name}.yaml")
    if not os.path.isfile(path):
        known = names()
        hint = did_you_mean(name, known) or "known: " + ", ".join(known)
        raise ConfigError(f"unknown profile `{name}`", where=where, hint=hint)
    return path, f"profiles/{name}.yaml"
