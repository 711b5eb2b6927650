"""What a start tells an engine's module: the names of a run, and why it was refused."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.model import Facts


class Submission(NamedTuple):
    """What only a start knows, as text; a dry-run shows the placeholders.

    `folder` is that of the run, which all nodes see. `python` starts join.py on each node, where
    that is not the interpreter of an image; `facts` are folders of the login node.
    """

    run_id: str = "<run-id>"
    folder: str = "<run-folder>"
    python: str = "<python>"
    facts: Facts = MappingProxyType({})


PLACEHOLDERS = Submission()
SCRIPTS = "node-0/runtime/safelaunch/runtime/engines"  # what the nodes run, in the run's folder

ARRAY_TASK = "node-0/runtime/safelaunch/runtime/coordinator/array_task.py"


class Reason(NamedTuple):
    """Why a submission has failed: the name of what was raised, and its words.

    `names` returns what the engine has of what was asked for; `host` is the login node, "" for
    this machine.
    """

    kind: str
    words: str
    run_id: str
    names: Callable[..., Sequence[str]]
    host: str = ""
