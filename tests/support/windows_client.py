"""The client as Windows would run it: an interpreter without what only POSIX has.

Paths and sockets stay Linux's own. What is shown is that the client never asks for the rest.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MODULES = (
    "crypt", "curses", "fcntl", "grp", "nis", "posix_ipc", "pty", "pwd", "readline", "resource",
    "spwd", "syslog", "termios", "tty",
)  # fmt: skip
NAMES = {
    "os": (
        "O_ASYNC", "O_CLOEXEC", "O_DIRECT", "O_DIRECTORY", "O_DSYNC", "O_NDELAY", "O_NOATIME",
        "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH", "O_SYNC", "SCHED_IDLE", "SEEK_DATA",
        "SEEK_HOLE", "chown",
        "confstr", "copy_file_range", "eventfd", "fchdir", "fchmod", "fchown", "fork", "forkpty",
        "fstatvfs", "getegid", "geteuid", "getgid", "getgroups", "getloadavg", "getpgid", "getpgrp",
        "getpriority", "getsid", "getuid", "getxattr", "killpg", "lchown", "lockf", "memfd_create",
        "mkfifo", "mknod", "nice", "openpty", "pidfd_open", "pipe2", "posix_fadvise",
        "posix_fallocate", "posix_spawn", "posix_spawnp", "pread", "preadv", "pwrite", "pwritev",
        "readv", "register_at_fork", "sched_getaffinity", "sched_setaffinity", "sched_setscheduler",
        "sched_yield", "sendfile", "setgid", "setpgid", "setpriority", "setsid", "setuid",
        "setxattr", "statvfs", "sync", "sysconf", "ttyname", "uname", "wait", "wait3", "wait4",
        "waitid", "writev",
    ),
    "signal": (
        "ITIMER_REAL", "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT",
        "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIG_BLOCK",
        "SIG_SETMASK", "alarm", "pause", "pidfd_send_signal", "pthread_kill", "pthread_sigmask",
        "setitimer", "siginterrupt", "sigpending", "sigtimedwait", "sigwait", "sigwaitinfo",
    ),
    "select": ("epoll", "poll"),
    "socket": ("AF_UNIX", "CMSG_LEN", "sethostname"),
    "time": ("clock_settime", "pthread_getcpuclockid", "tzset"),
}  # fmt: skip

_TAKE_AWAY = f"""
import os, select, signal, socket, sys, time

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {MODULES!r}:
            raise ImportError("only POSIX has " + name, name=name)

for name in {MODULES!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
for module, names in {NAMES!r}.items():
    for name in names:
        vars(sys.modules[module]).pop(name, None)
"""


def python(
    code: str, *, env: Mapping[str, str] | None = None, cwd: Path | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python code without POSIX to its end."""
    return subprocess.run(
        [sys.executable, "-c", _TAKE_AWAY + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=env,
        cwd=cwd,
        **options,
    )


# Libraries are there before the platform's name changes: they would look for parts of Windows. What
# says who the user is and where, is Windows' own and cannot run here.
_RUN = """
import ctypes, paramiko, safelaunch.cli.main
from safelaunch.ssh.config import local_user
Local = local_user.LocalUser
local_user.current_user = lambda environ: Local(environ["HOME"], environ.get("USER", "me"), environ)
sys.platform = "win32"
safelaunch.cli.main.main()
"""


def command(*words: str) -> list[str]:
    """Return the words that run safelaunch without POSIX."""
    return [sys.executable, "-c", f"{_TAKE_AWAY}\nsys.argv = {['safelaunch', *words]!r}\n{_RUN}"]
