"""What the settings depend on of this machine and its user; made once, at the command line."""

from __future__ import annotations

import ntpath
import os
import posixpath
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


class Local(NamedTuple):
    """This machine and its user."""

    home: str
    user: str
    environ: Mapping[str, str]
    uid: str = ""
    hostname: str = ""
    windows: bool = False

    @property
    def path(self) -> ModuleType:
        """How paths are written here: ntpath or posixpath."""
        return ntpath if self.windows else posixpath

    @property
    def ssh_folder(self) -> str:
        """The user's folder of OpenSSH, where a relative Include starts as well."""
        return str(self.path.join(self.home, ".ssh"))

    @property
    def config(self) -> str:
        """The user's ssh_config."""
        return str(self.path.join(self.ssh_folder, "config"))

    @property
    def system_folder(self) -> str:
        """The system's folder of OpenSSH."""
        if self.windows:
            return ntpath.join(self.environ.get("PROGRAMDATA", r"C:\ProgramData"), "ssh")
        return "/etc/ssh"

    def shown(self, path: str) -> str:
        """Return a path for a message: `~` for the home folder."""
        for start in (self.home + "/", self.home + "\\"):
            if path.startswith(start):
                return "~/" + path[len(start) :].replace("\\", "/" if self.windows else "\\")
        return path


def here(environ: Mapping[str, str]) -> Local:
    """Return what is known of this machine and its user.

    HOME goes before the home folder of the account, other than in OpenSSH: where the two differ,
    as in a container or a test, the user has said so.
    """
    import socket  # noqa: PLC0415 - only who connects pays for it

    hostname = socket.gethostname()
    if sys.platform == "win32":
        home = environ.get("USERPROFILE") or os.path.expanduser("~")
        return Local(home, environ.get("USERNAME", ""), environ, "", hostname, windows=True)
    account = _account()
    home = environ.get("HOME", "")
    if not os.path.isabs(home):
        home = account[1] if account else "/"
    user = account[0] if account else environ.get("USER") or environ.get("LOGNAME", "")
    return Local(home, user, environ, str(os.getuid()), hostname)


def _account() -> tuple[str, str] | None:
    """Return name and home folder of the account, if this user has one."""
    if sys.platform == "win32":
        return None
    import pwd  # noqa: PLC0415 - Windows has none

    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:  # a container that runs under a number
        return None
    return entry.pw_name, entry.pw_dir
