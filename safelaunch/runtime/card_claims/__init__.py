"""Who has which card (GPU, NPU) of a machine, and who waits: the claims of all its users.

Each run that takes cards, or waits for some, has a file of its own in one folder of the machine,
and its supervisor has the file locked (flock): the claim ends with its process, whatever ends that.
Nothing runs beside the supervisors.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ALL = "all"  # in place of words: a run without a choice of cards takes all that it sees
MAX_PRIORITY = 999  # and as much below zero
# /dev/shm would do as well, but systemd empties it when a user logs out; it leaves locked files of
# /tmp alone
FOLDER = "/tmp/safelaunch-cards"  # noqa: S108 - of all users: sticky, and nothing in it is trusted
VARIABLE = "SAFELAUNCH_CARDS"  # another folder, such as one that several containers share


def folder_path(environ: Mapping[str, str]) -> str:
    """Return the folder of the claims, by the environment of a start."""
    path = environ.get(VARIABLE) or ""
    return path if os.path.isabs(path) else FOLDER
