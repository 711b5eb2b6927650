"""The local machine and user on which SSH settings depend; read once, by the command line."""
# ruff: noqa: PLC0415 - only commands that connect pay for socket, and Windows has no pwd

from __future__ import annotations

import ntpath
import os
import posixpath
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


class LocalUser(NamedTuple):
    """This machine and its user."""

    home: str
    user: str
    environ: Mapping[str, str]
    uid: str = ""
    hostname: str = ""
    windows: bool = False
    account_home: str = ""  # of the system's list of users; "": the same

    @property
    def label(self) -> str:
        """The user and this machine, as `me@laptop`: for others to see who started a run."""
        return f"{self.user or 'unknown'}@{self.hostname.partition('.')[0] or 'unknown'}"

    @property
    def path(self) -> ModuleType:
        """The path module of this system: ntpath or posixpath."""
        return ntpath if self.windows else posixpath

    @property
    def ssh_folder(self) -> str:
        """The user's OpenSSH folder, to which a relative Include refers as well."""
        return str(self.path.join(self.home, ".ssh"))

    @property
    def config(self) -> str:
        """The user's ssh_config."""
        return str(self.path.join(self.ssh_folder, "config"))

    @property
    def own_config(self) -> str | None:
        """The file for `ssh -F` where `ssh`, which goes by the account, would read another."""
        if self.account_home in ("", self.home):
            return None
        return self.config if os.path.exists(self.config) else "none"

    @property
    def system_folder(self) -> str:
        """The system's OpenSSH folder."""
        if self.windows:
            return ntpath.join(self.environ.get("PROGRAMDATA", r"C:\ProgramData"), "ssh")
        return "/etc/ssh"

    def shown(self, path: str) -> str:
        """Return a path for a message, with `~` for the home folder."""
        for start in (self.home + "/", self.home + "\\"):
            if path.startswith(start):
                return "~/" + path[len(start) :].replace("\\", "/" if self.windows else "\\")
        return path


def current_user(environ: Mapping[str, str]) -> LocalUser:
    """Return the current user of this machine.

    HOME takes precedence over the home folder of the account, other than in OpenSSH: if the two
    differ, as in a container or a test, the user has set it on purpose.
    """
    import socket

    hostname = socket.gethostname()
    if sys.platform == "win32":
        home = environ.get("USERPROFILE") or os.path.expanduser("~")
        return LocalUser(home, environ.get("USERNAME", ""), environ, "", hostname, windows=True)
    import pwd

    try:
        account = pwd.getpwuid(os.getuid())
    except KeyError:  # a container that runs under a uid without an account
        account = None
    home = environ.get("HOME", "")
    if not os.path.isabs(home):
        home = account.pw_dir if account else "/"
    user = account.pw_name if account else environ.get("USER") or environ.get("LOGNAME", "")
    account_home = account.pw_dir if account else ""
    return LocalUser(home, user, environ, str(os.getuid()), hostname, account_home=account_home)
