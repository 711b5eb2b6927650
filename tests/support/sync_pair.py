"""Pushes and pulls between two folders of one machine, through an agent that can be cut off."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from safelaunch.remote.agent_client import Agent
from safelaunch.runtime.agent import server as runtime_agent
from safelaunch.sync.push import start_push
from support.workspace import DEADLINE, wait_for

if TYPE_CHECKING:
    from pathlib import Path


class CountingAgent(Agent):
    """An agent that notes the verbs of its requests, and can be cut off after so many bytes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.verbs: list[str] = []
        self.sent = 0
        self.read = 0
        self.cut_after: int | None = None
        self.cut_after_reading: int | None = None
        super().__init__("box", self._receive, self._send)
        self.round_trip = math.inf  # one request for all, however slow this machine is now

    def _receive(self, size: int) -> bytes:
        assert self.process.stdout is not None
        if self.cut_after_reading is not None and self.read >= self.cut_after_reading:
            self.process.kill()
            self.process.wait()
            return b""
        data = self.process.stdout.read(size) or b""
        self.read += len(data)
        return data

    def _send(self, data: bytes | memoryview) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            if self.cut_after is not None and self.sent >= self.cut_after:
                self.process.kill()
                self.process.wait()
            count = self.process.stdin.write(view[: 1 << 16])
            self.sent += count or 0
            view = view[count:]

    def _send_request(self, verb: str, data: Any, request: dict[str, Any]) -> None:
        self.verbs.append(verb)
        super()._send_request(verb, data, request)


class HostPair:
    """A project on this machine and the folder of a host, with real agents between them."""

    def __init__(self, root: Path) -> None:
        self.project = root / "project"
        self.target = root / "host" / "work"
        self.cache = str(root / "cache")
        self.project.mkdir()
        self.env = {**os.environ, "SAFELAUNCH_HOME": str(root / "home")}
        self.started: list[subprocess.Popen[bytes]] = []

    def agent(self, *before: str, **env: str) -> CountingAgent:
        process = subprocess.Popen(
            [*before, sys.executable, "-I", "-S", "-B", str(runtime_agent.__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**self.env, **env},
        )
        self.started.append(process)
        assert process.stdout is not None
        output = b""
        while not output.endswith(runtime_agent.READY):
            part = process.stdout.read(1)
            assert part, "the agent did not start"
            output += part
        return CountingAgent(process)

    def close(self) -> None:
        for process in self.started:
            for file in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    file.close()  # type: ignore[union-attr]
            process.wait(DEADLINE)

    def write(self, name: str, text: str | bytes, mode: int | None = None) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        if mode is not None:
            path.chmod(mode)
        return path

    def settle(self) -> None:
        """Wait until what was written lies a clock's tick behind: only then its hash is kept."""
        newest = max(path.lstat().st_ctime for path in self.project.rglob("*"))
        wait_for(lambda: time.time() > newest + 0.1, "tick of the clock")

    def sync(self, agent: CountingAgent | None = None, **options: Any) -> Any:
        keys = ("confirm", "report", "progress", "limit")
        finish = {key: options.pop(key) for key in keys if key in options}
        pending = start_push(
            agent or self.agent(),
            str(self.project),
            str(self.target),
            cache=self.cache,
            **options,
        )
        return pending.finish(**finish)

    def tree(self) -> dict[str, bytes]:
        """Return the files on the host."""
        return {
            str(path.relative_to(self.target)): path.read_bytes()
            for path in sorted(self.target.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }
