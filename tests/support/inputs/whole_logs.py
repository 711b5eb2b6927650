"""Whole logs of real programs, with labels that were written before `diagnose` read them.

`PYTHONPATH=tests LOG_PYTHON=/path/to/python python -m support.inputs.whole_logs [ID ...]` records
them anew; that interpreter needs transformers, trl, peft, lightning, wandb, fastapi, uvicorn, httpx
and pytest.
"""

from __future__ import annotations

import getpass
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import yaml

from support import DATA

FOLDER = DATA / "whole-logs"
DEADLINE = 300.0  # seconds, of one recording


class Label(NamedTuple):
    """What a log shows; `name` (of the class), `rank` and `line` only where the log says them."""

    verdict: str  # failed, healthy or stopped
    name: str = ""
    rank: int | None = None
    line: str = ""  # a part of the line of the cause
    earlier: int = 0  # failed runs above the last one


class WholeLog(NamedTuple):
    """A program, how a shell starts it, and what its log shows."""

    id: str
    label: Label
    files: dict[str, str]
    run: str

    @property
    def path(self) -> Path:
        """Where its log is stored."""
        return FOLDER / f"{self.id}.txt"


def whole_logs() -> list[WholeLog]:
    """Return the programs of all case files."""
    logs = []
    for path in sorted((FOLDER / "cases").glob("*.yaml")):
        for name, case in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            label = Label(
                case["verdict"],
                case.get("class", ""),
                case.get("rank"),
                case.get("line", ""),
                case.get("earlier", 0),
            )
            files = {**case.get("files", {}), "train.py": case.get("program", "")}
            logs.append(WholeLog(name, label, files, case.get("run", "python train.py")))
    return logs


def record(log: WholeLog, python: str) -> str:
    """Return what a shell prints that runs a program, without names of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in log.files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        path = f"{os.path.dirname(python)}:{os.environ['PATH']}"
        env = {"PATH": path, "HOME": folder, "PORT": port, "LANG": "C.UTF-8"}
        env |= {"HF_HUB_OFFLINE": "1", "WANDB_SILENT": "false", "GLOO_SOCKET_IFNAME": "lo"}
        done = subprocess.run(
            ["/bin/bash", "-c", log.run], cwd=folder, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE, check=False,
        )  # fmt: skip
        return _anonymous(done.stdout.decode("utf-8", "replace"), folder, python)


def _anonymous(text: str, folder: str, python: str) -> str:
    packages = {path for path in [*sys.path, *_path(python)] if path.endswith("site-packages")}
    for path in sorted(packages, key=len, reverse=True):
        text = text.replace(path, "/opt/env/lib/python3.11/site-packages")
    text = text.replace(os.path.dirname(os.path.dirname(python)), "/opt/env")
    for name in {os.path.realpath(folder), folder}:
        text = text.replace(name, "/home/user/project")
    text = text.replace(os.path.dirname(os.__file__), "/usr/lib/python3.11")
    text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "gpu01", text)
    text = re.sub(rf"(?<=[@( ]){re.escape(getpass.getuser())}(?=[@) ])", "user", text)
    return re.sub(
        r"\b(?!127\.0\.0\.1|0\.0\.0\.0|10\.0\.0\.)\d{1,3}(\.\d{1,3}){3}\b", "10.0.0.1", text
    )


def _path(python: str) -> list[str]:
    argv = [python, "-c", "import sys; print('\\n'.join(sys.path))"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split("\n")


def main() -> None:
    """Record the logs that are named, by default all."""
    python = os.environ.get("LOG_PYTHON", sys.executable)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell in the background ignores it
    for log in whole_logs():
        if len(sys.argv) == 1 or log.id in sys.argv[1:]:
            text = record(log, python)
            log.path.write_text(text, encoding="utf-8")
            print(f"{log.id}: {len(text)} characters", flush=True)  # noqa: T201 - a script


if __name__ == "__main__":
    main()
