"""Where safelaunch keeps its runs and files on a machine."""

# ruff: noqa: PLC0415 - pwd is for containers without HOME

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def home(environ: Mapping[str, str] = os.environ) -> str:
    """Return safelaunch's folder: SAFELAUNCH_HOME, or ~/.safelaunch. Raises ValueError.

    A relative SAFELAUNCH_HOME is an error: each working directory would have runs of its own.
    remote/agent_bootstrap.py has the same rule, before this file is on the host.
    """
    folder = environ.get("SAFELAUNCH_HOME")
    if folder:
        if not os.path.isabs(folder):
            raise ValueError(f"SAFELAUNCH_HOME is not absolute: {folder}")
        return folder
    base = environ.get("HOME") or _account_home()
    if not os.path.isabs(base):
        raise ValueError("HOME is not set and this user has no home folder")
    return os.path.join(base, ".safelaunch")


def _account_home() -> str:
    """Return the home folder of the account, "" where it has none: often so in containers."""
    if sys.platform == "win32":
        return os.path.expanduser("~")
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return ""
