"""A real Ray for tests: a head and a worker on this machine, with pretended GPUs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.slurm import free_ports
from support.sweeper import sweep

if TYPE_CHECKING:
    from typing_extensions import Self

SCRIPTS = Path(__file__).parent
VENV = os.environ.get("SAFELAUNCH_RAY_VENV") or str(SCRIPTS.parents[2] / ".venv-ray")
PORTS = 130  # that a cluster of two nodes uses, from its base on
LIMIT = 180.0  # seconds for a start: 25 on a machine that does nothing else
STARTS = 2  # in which a port may be taken by somebody else


def program() -> str | None:
    """Return the path of `ray`: that of a venv for it, else that of PATH; None without one."""
    own = Path(VENV, "bin", "ray")
    return str(own) if own.exists() else shutil.which("ray")


class RayCluster:
    """A running Ray of two nodes, 127.0.0.2 and 127.0.0.3, each with 4 CPUs and 4 GPUs."""

    def __init__(self) -> None:
        self._parent = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        self.folder = f"{self._parent}/r"  # short: Unix sockets are below
        self._stop = [str(SCRIPTS / "stop.sh"), "--dir", self.folder]
        self._ended = [sweep("folder", self._parent), sweep("command", *self._stop)]
        self.address = ""
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        problem = ""
        for _ in range(STARTS):
            base = free_ports(PORTS)
            words = ["--ray", str(program()), "--dir", self.folder, "--base-port", str(base)]
            start = subprocess.run(
                [str(SCRIPTS / "start.sh"), *words],
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT,
            )
            if start.returncode == 0:
                self.address = f"http://127.0.0.1:{base + 1}"
                return
            problem = start.stderr
        raise AssertionError(f"Ray does not start: {problem}")

    def ask(self, path: str, method: str = "GET") -> Any:
        """Return what the jobs interface answers to a request."""
        request = urllib.request.Request(self.address + path, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - http
            return json.load(answer)

    def job(self, run: str) -> dict[str, Any]:
        """Return the job of a run, as Ray has it."""
        job: dict[str, Any] = self.ask(f"/api/jobs/{run}")
        return job

    def close(self) -> None:
        """End all nodes, and remove all files."""
        subprocess.run(self._stop, check=False, stdin=subprocess.DEVNULL, timeout=LIMIT)
        shutil.rmtree(self._parent, ignore_errors=True)
        for ended in self._ended:
            ended()
