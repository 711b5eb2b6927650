"""Python environments that a script activates: keys of the job in place of `activate`."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.importer.findings import Unresolved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.importer.state import State

_ACTIVATE = re.compile(r"(?P<venv>.+)/bin/activate")
_CONDA = re.compile(r"(?P<root>.+)/etc/profile\.d/(conda|mamba)\.sh")
_STARTUP_FILES = re.compile(r"(.*/)?(\.bashrc|\.bash_profile|\.profile|\.zshrc|etc/profile)")
_HOOKS = re.compile(r"\b(conda|mamba|micromamba|pyenv|ssh-agent|direnv)$")
CONDAS = frozenset(("conda", "mamba", "micromamba"))


def is_hook(program: str) -> bool:
    """Whether `eval "$(program ...)"` prepares a shell, and changes no variable of a script."""
    return _HOOKS.search(program) is not None


def is_venv(path: str) -> bool:
    """Whether sourcing a file activates an environment that venv or virtualenv makes."""
    return _ACTIVATE.fullmatch(path) is not None


def source(items: Sequence[str | Unresolved], state: State) -> bool:
    """Take over what sourcing a file activates; False if the file is none of an environment."""
    path = items[0]
    if isinstance(path, Unresolved):
        return False
    conda, venv = _CONDA.fullmatch(path), _ACTIVATE.fullmatch(path)
    if conda:
        state.interpreter = (("conda_root", conda["root"]),)
    elif path == "activate" or (venv and len(items) > 1):  # that of conda
        activate(items[1:] or ["base"], state)
    elif venv:
        _enter((("venv", os.path.join(state.where(), venv["venv"])),), state)
    return bool(conda or venv or path == "activate" or _STARTUP_FILES.fullmatch(path))


def activate(items: Sequence[str | Unresolved], state: State) -> None:
    """Activate an environment of conda. Raises Unresolved where its place is not to be seen."""
    name = items[0]
    if isinstance(name, Unresolved):
        raise name
    if "/" in name:
        python = os.path.join(state.where(), name, "bin", "python")
        _enter((("python", python),), state)
        return
    program = state.caller.environ.get("CONDA_EXE", "")
    root = dict(state.interpreter).get("conda_root") or os.path.dirname(os.path.dirname(program))
    if not root:
        _enter((), state)
        raise state.fail(f"the folder of conda for its environment `{name}`")
    _enter((("conda", name), ("conda_root", root)), state)


def _enter(keys: tuple[tuple[str, str], ...], state: State) -> None:
    state.outer_interpreters = (*state.outer_interpreters, state.interpreter)
    state.interpreter = keys


def deactivate(state: State) -> None:
    """Go back to what was active before; what the caller had activated is none of the job's."""
    if state.outer_interpreters:
        *outer, state.interpreter = state.outer_interpreters
        state.outer_interpreters = tuple(outer)
