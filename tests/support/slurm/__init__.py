"""A real Slurm for tests: a controller and three nodes on this machine, beside any other."""

from __future__ import annotations

import os
import random
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from support.sweeper import sweep
from support.workspace import wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

SCRIPTS = Path(__file__).parent
SEARCH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
PORTS = 16  # that a cluster of three nodes uses, from its base on
STARTS = 3  # in which a port may be taken by somebody else
REVOCATION = 2.0  # seconds in which Slurm still revokes the credential of a life it has requeued
LIMIT = 120.0  # seconds for a start: the database takes 20 of them on a busy machine


def missing(*, accounting: bool = False) -> str | None:
    """Return why no Slurm can be started here, if so."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "slurmd needs root"
    programs = ["sbatch", "slurmctld", "slurmd", "munged"]
    if any(shutil.which(program, path=SEARCH) is None for program in programs):
        return "no Slurm here: apt-get install slurm-wlm munge"
    if not _can_make_devices():
        return "no devices can be made here, which stand for GPUs"
    database = ["slurmdbd", "mariadbd", "mariadb-install-db"]
    if accounting and any(shutil.which(program, path=SEARCH) is None for program in database):
        return "no accounting of Slurm here: apt-get install slurmdbd mariadb-server"
    return None


def _can_make_devices() -> bool:
    """Whether this machine lets root make a character device, as start.sh does."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        try:
            os.mknod(f"{folder}/null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        except OSError:
            return False
    return True


class Slurm:
    """A running cluster: nodes n1, n2 (partitions main and urgent) and n3 (old)."""

    def __init__(self, *options: str) -> None:
        # not TMPDIR: /dev/shm may forbid devices, which stand for GPUs
        self._parent = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self._parent.chmod(0o755)  # jobs of other users, too
        self.folder = self._parent / "s"  # short: the path of munge's socket may have 107 bytes
        self.config = self.folder / "etc" / "slurm.conf"
        self._stop = [str(SCRIPTS / "stop.sh"), "--dir", str(self.folder)]
        self._ended = [
            sweep("folder", str(self._parent)),
            sweep("command", *self._stop),
        ]
        self.environ = {**os.environ, "PATH": SEARCH, "SLURM_CONF": str(self.config)}
        try:
            self._start(options)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, options: Sequence[str]) -> None:
        problem = ""
        for _ in range(STARTS):
            command = [SCRIPTS / "start.sh", "--dir", self.folder, "--base-port", free_ports()]
            start = subprocess.run(
                [*map(str, command), *options],
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT,
            )
            if start.returncode == 0:
                return
            problem = start.stderr
        raise AssertionError(f"Slurm does not start: {problem}")

    def run(self, *argv: str) -> str:
        """Run a command of Slurm, and return what it prints."""
        done = subprocess.run(
            argv,
            env=self.environ,
            cwd=self.folder,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def submit(self, *options: str, script: str = "true", output: str = "/dev/null") -> str:
        """Submit a batch script of one line, and return the id of its job."""
        words = ("--parsable", f"--output={output}", *options, f"--wrap={script}")
        return self.run("sbatch", *words)

    def queue(self) -> str:
        """Return the jobs that wait or run: id, state and comment in a line each."""
        return self.run("squeue", "--noheader", "--format=%i %T %k")

    def end_jobs(self) -> None:
        """End all jobs, and wait until the queue is empty."""
        self.run("scancel", "--me")
        self.await_empty_queue()

    def await_empty_queue(self) -> None:
        """Wait until no job is left: an ended one is COMPLETING until its nodes are clean."""
        wait_for(lambda: self.queue() == "", "empty queue")

    def start_again(self, job: str) -> None:
        """Start a job at once that Slurm has queued again, and not after two minutes."""
        began = time.monotonic()
        line = ("squeue", "--noheader", f"--jobs={job}", "--format=%T")
        wait_for(lambda: self.run(*line) == "PENDING", "a job that waits again")
        wait_for(lambda: time.monotonic() > began + REVOCATION, "a credential of its own")
        self.run("scontrol", "update", f"jobid={job}", "StartTime=now")

    def daemons(self) -> list[int]:
        """Return the pids of the cluster's own daemons."""
        files = [*self.folder.glob("*.pid"), self.folder / "munge" / "pid"]
        return [int(file.read_text()) for file in files]

    def close(self) -> None:
        """End all jobs and daemons, and remove all files."""
        subprocess.run(self._stop, check=False, stdin=subprocess.DEVNULL, timeout=LIMIT)
        shutil.rmtree(self._parent, ignore_errors=True)
        for ended in self._ended:
            ended()


def free_ports(count: int = PORTS) -> int:
    """Return the first of some ports in a row that nobody uses.

    They lie below those that the system gives away: a connection does not take one by chance.
    """
    for _ in range(100):
        base = random.randrange(20000, 32000)  # noqa: S311 - no secret
        if all(_is_free(port) for port in range(base, base + count)):
            return base
    raise AssertionError("no free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as server:
        try:
            server.bind(("", port))
        except OSError:
            return False
    return True
