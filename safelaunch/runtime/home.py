"""Where safelaunch keeps its runs and files on a machine."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def home(environ: Mapping[str, str] = os.environ) -> str:
    """Return safelaunch's folder: SAFELAUNCH_HOME, or ~/.safelaunch. Raises ValueError.

    A relative SAFELAUNCH_HOME is an error: runs would lie in another place for each folder that a
    command is called in. remote/agent_bootstrap.py has the same rule, before this file is there.
    """
    folder = environ.get("SAFELAUNCH_HOME")
    if folder:
        if not os.path.isabs(folder):
            raise ValueError("SAFELAUNCH_HOME is not absolute: %s" % folder)
        return folder
    base = environ.get("HOME") or _account_home()
    if not os.path.isabs(base):
        raise ValueError("HOME is not set and this user has no home folder")
    return os.path.join(base, ".safelaunch")


def _account_home() -> str:
    """Return the home folder that the system knows, or nothing: in containers many have none."""
    if sys.platform == "win32":
        return os.path.expanduser("~")
    try:
        import pwd  # noqa: PLC0415 - rarely needed

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return ""
