"""Whether two machines share a folder: a file that one writes there, and the other sees."""

# ruff: noqa: ARG001 - all verbs have one signature

from __future__ import annotations

import atexit
import os

from safelaunch.runtime import json_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.agent.wire import Link, Message

PREFIX = ".safelaunch-seen-"
_markers: dict[str, str] = {}  # token -> file


def leave(request: Message, link: Link) -> Message:
    """Write a file for `token` into `folder`; `left` is false where that fails.

    The folder is created; with `make` false the nearest parent that exists is used instead. The
    file is removed with this process at the latest: the client may be gone before.
    """
    folder, token = _folder(request), str(request["token"])
    path = os.path.join(folder, PREFIX + token)
    try:
        os.makedirs(folder, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return {"left": False}
    _markers[token] = path
    atexit.register(json_files.remove, path)
    return {"left": True}


def visible(request: Message, link: Link) -> Message:
    """Return which of `tokens` have a file in `folder`."""
    path = os.path.join(_folder(request), PREFIX)
    return {"seen": [token for token in request["tokens"] if os.path.exists(path + token)]}


def remove(request: Message, link: Link) -> Message:
    """Remove the file for `token`."""
    path = _markers.pop(str(request["token"]), None)
    if path is not None:  # the folder itself may have been made since
        json_files.remove(path)
    return {}


def _folder(request: Message) -> str:
    folder = os.path.expanduser(str(request["folder"]))
    if not request.get("make", True):
        while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
            folder = os.path.dirname(folder)
    return folder


VERBS = {"leave": leave, "seen": visible, "take": remove}
