"""Members of a run: programs beside its job, each with a supervisor and a folder of its own.

`members/<name>/node-0/` in the folder of the node has the files of any other run: run.json,
launch.sh, logs, status.json, failure.json. The supervisor of the run owns those of its members.
"""

from __future__ import annotations

import os

FOLDER = "members"


def folder(node_dir: str, name: str) -> str:
    """Return the folder of a member, which has a `node-0` as that of a run has."""
    return os.path.join(node_dir, FOLDER, name)
