"""A place of its own for each test: home, project, the real CLI; and proof that nothing is left."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.runtime import json_files, processes, run_state
from safelaunch.runtime.backends import tmux
from safelaunch.runtime.records import Process
from support import cli_process
from support.sweeper import sweep

if TYPE_CHECKING:
    from collections.abc import Callable

FAKE = Path(__file__).parent / "fake_torchrun.py"
# tests of ranks run without a launcher: scripts/test -m "not stand_in" with this variable
DIRECT = os.environ.get("SAFELAUNCH_TEST_START") == "direct"
DEADLINE = 90.0  # seconds; a test that passes never waits so long, however slow its machine is


def wait_for(condition: Callable[[], Any], what: str, limit: float = DEADLINE) -> Any:
    """Return the condition's first true value; fail when the limit has passed."""
    start = time.monotonic()
    while (waited := time.monotonic() - start) < limit:
        value = condition()
        if value:
            return value
        # some conditions cost milliseconds, which others on this machine wait for
        time.sleep(min(0.01 + waited / 20, 0.1))
    raise AssertionError(f"in {limit:g} s there was no {what}")


@functools.lru_cache(maxsize=1)
def runtime_copies() -> str:
    """Return a folder for the copies of the runtime of all tests of this process."""
    folder = tempfile.mkdtemp(prefix="safelaunch-runtime-")
    sweep("folder", folder)
    return folder


class Place:
    """An isolated safelaunch: folders, environment, and the runs that were started."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.user = root / "user"
        self.home = root / "home"
        for folder in (self.project, self.user):
            folder.mkdir()
        dropped = (
            "SAFELAUNCH_",
            "TMUX",
            "PYTHON",
            "XDG_",
            "NCCL_",
            "OMP_",
            "VIRTUAL_ENV",
            "PYTEST",
        )
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        self.env |= {
            "HOME": str(self.user),
            "SAFELAUNCH_HOME": str(self.home),
            "SAFELAUNCH_CARDS": str(root / "cards"),
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
        }
        self.records: dict[str, dict[str, Any]] = {}  # run id -> socket, supervisor
        self.started: list[subprocess.Popen[bytes]] = []
        self._ended = sweep("runs", str(self.home))

    # -- files

    def write(self, name: str, text: str | bytes) -> Path:
        """Write a file of the project."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def job(self, program: str, name: str = "job", **keys: object) -> str:
        """Write a Python program and a job file that runs it; return the job file's name."""
        self.write(f"{name}.py", program)
        job = {"launcher": "python", "script": f"{name}.py", "python": sys.executable, **keys}
        # YAML is a superset of JSON
        self.write(f"{name}.yaml", json.dumps({k: v for k, v in job.items() if v is not None}))
        return f"{name}.yaml"

    def ranks(self, program: str, count: int = 2, name: str = "job", **keys: object) -> str:
        """Write a job of several ranks, started by the stand-in for torchrun."""
        if DIRECT and keys.get("launcher", "torchrun") == "torchrun":
            return self.direct(program, count, name, **keys)
        torch = self.root / "fake" / "torch" / "distributed"
        torch.mkdir(parents=True, exist_ok=True)
        for folder in (torch, torch.parent):
            (folder / "__init__.py").touch()
        shutil.copy(FAKE, torch / "run.py")
        path = [str(torch.parent.parent)]
        keys = {"launcher": "torchrun", "processes": count, "pythonpath": path, **keys}
        return self.job(program, name, **keys)

    def direct(self, program: str, count: int = 2, name: str = "job", **keys: object) -> str:
        """Write a job of several ranks that are started without a launcher."""
        keys = {"launcher": "torchrun", "processes": count, "start": "direct", **keys}
        return self.job(program, name, **keys)

    def shell(self, script: str, name: str = "job", **keys: object) -> str:
        """Write a job that runs a bash script."""
        command = ["bash", "-c", script]
        return self.job("", name, launcher="command", command=command, script=None, **keys)

    def ssh_config(self, text: str) -> None:
        """Write ~/.ssh/config."""
        folder = self.user / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "config").write_text(text)

    def hanging(self, name: str) -> None:
        """Put a program of this name first on PATH that does not end by itself."""
        folder = self.root / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / name
        program.write_text("#!/bin/sh\nexec sleep 600\n")
        program.chmod(0o755)
        self.env["PATH"] = f"{folder}:{self.env['PATH']}"

    # -- commands

    def cli(
        self, *words: str, code: int | None = 0, timeout: float = DEADLINE, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run safelaunch to its end and check the exit code."""
        if words[0] == "run" and code != 2:  # else a test may look at what is left behind
            self.share_runtime()
        env, cwd = options.pop("env", self.env), options.pop("cwd", self.project)
        if set(options) - {"start_new_session"}:  # what only the start of a process can have
            result = subprocess.run(
                [*cli_process.CLI, *words],
                env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False,
                **options,
            )  # fmt: skip
        else:
            result = cli_process.run(words, env, cwd, timeout, **options)
        self.note()
        if code is not None:
            assert result.returncode == code, (words, result.stdout, result.stderr)
        assert "Traceback" not in result.stderr, result.stderr
        return result

    def json(self, *words: str, code: int | None = 0, **options: Any) -> dict[str, Any]:
        """Run safelaunch and return what it prints as JSON."""
        data = json.loads(self.cli(*words, "--json", code=code, **options).stdout)
        assert data["version"] == 1
        assert isinstance(data, dict)
        return data

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start safelaunch beside the test; the place ends it."""
        options = {
            "env": self.env,
            "cwd": self.project,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        process = subprocess.Popen([*cli_process.CLI, *words], **options)
        self.started.append(process)
        return process

    def start(self, job: str, *words: str, **options: Any) -> str:
        """Start a job and return its run's id.

        Without the quick checks, which take a third of a start: `cli` and `failed` make them.
        """
        return str(self.json("run", "--no-check", job, *words, **options)["id"])

    def share_runtime(self) -> None:
        """Let a new home have its copy of the runtime from the tests before.

        To make it is a third of the client's work for a start. Its first test makes it, as a home's
        first start does.
        """
        if not self.home.exists():
            self.home.mkdir(mode=0o700)
            (self.home / "runtime").symlink_to(runtime_copies())

    # -- runs

    def node(self, run: str) -> Path:
        """Return a run's node directory."""
        return self.home / "runs" / run / "node-0"

    def logs(self, run: str, attempt: int = 1) -> Path:
        """Return the folder of a run's logs."""
        return self.node(run) / "logs" / f"attempt-{attempt}"

    def status(self, run: str) -> dict[str, Any]:
        """Return a run's status as it is judged now."""
        status = run_state.current_status(str(self.node(run))).to_json()
        self.note()
        return status

    def ended(self, run: str, limit: float = DEADLINE) -> dict[str, Any]:
        """Wait for a run's end and return its status."""

        def over() -> dict[str, Any] | None:
            status = self.status(run)
            return status if status["state"] in run_state.ENDED else None

        status: dict[str, Any] = wait_for(over, f"end of {run}", limit)
        return status

    def wait_for_text(
        self, run: str, text: str, name: str = "combined.log", attempt: int = 1
    ) -> str:
        """Wait until a log holds a text, and return the log."""

        def read_log() -> str | None:
            try:
                content = (self.logs(run, attempt) / name).read_text(errors="replace")
            except OSError:
                return None
            return content if text in content else None

        return str(wait_for(read_log, f"{text!r} in {name} of {run}"))

    def remove(self, run: str) -> None:
        """Remove a run's directory until it is gone: somebody may still write there."""

        def is_gone() -> bool:
            shutil.rmtree(self.home / "runs" / run, ignore_errors=True)
            return not (self.home / "runs" / run).exists()

        wait_for(is_gone, f"removal of {run}")

    def failed(self, job: str, *words: str) -> dict[str, Any]:
        """Run a job that fails, as a user who follows it; return what `show` tells.

        And `screen`: what stood there, as one line.
        """
        screen = self.cli("run", "--follow", job, *words, code=1)
        shown = self.json("show")
        assert shown["state"] == "failed", (shown, screen.stderr)
        assert isinstance(shown["failure"], dict), screen.stderr
        return {**shown, "screen": " ".join(screen.stderr.split())}

    def events(self, run: str, *kinds: str) -> list[dict[str, Any]]:
        """Return what happened to a run: everything, or some kinds."""
        try:
            lines = (self.node(run) / "events.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        events = [json.loads(line) for line in lines]
        return [event for event in events if not kinds or event["event"] in kinds]

    def note(self) -> None:
        """Remember runs, for the proof at the end: a test may remove their folders."""
        runs = self.home / "runs"
        for folder in runs.iterdir() if runs.is_dir() else ():
            spec = json_files.read_json(str(folder / "node-0" / "run.json"))
            status = json_files.read_json(str(folder / "node-0" / "status.json"))
            record = self.records.setdefault(folder.name, {})
            record.update({k: v for k, v in (spec or {}).items() if k == "socket"})
            if status and "supervisor" in status:
                record["supervisor"] = status["supervisor"]

    # -- the end

    def close(self) -> None:
        """End everything that was started, by pid, and prove that nothing is left."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.note()
        for run in [run for run, record in self.records.items() if record]:
            run_state.stop(str(self.node(run)), 0.5)
        for run, record in self.records.items():
            if not record:
                continue  # it never got as far as to start anything
            processes.end_all(lambda run=run: processes.marked(run), lambda: True)  # type: ignore[misc]
            self._supervisor_ends(record.get("supervisor"))
            assert processes.marked(run) == {}, f"{run} left processes"
            socket = record.get("socket")
            if socket:
                wait_for(lambda path=socket: not tmux.serves(path), "end of tmux")  # type: ignore[misc]
                tmux.clean_up(socket)
        self._ended()

    def _supervisor_ends(self, who: dict[str, Any] | None) -> None:
        if who is None:
            return
        if processes.is_alive(
            Process.from_json(who)
        ):  # its directory was taken away in some way that it has not seen
            processes.terminate(who["pid"], who["start"])
        wait_for(lambda: not processes.is_alive(Process.from_json(who)), "end of the supervisor")


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Press Ctrl-C."""
    process.send_signal(signal.SIGINT)


def need_root() -> None:
    """Skip the test unless it may change users and mounts."""
    if os.getuid() != 0:
        pytest.skip("needs root: it changes users or mounts")
