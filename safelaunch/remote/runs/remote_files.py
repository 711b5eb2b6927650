"""The files of a run's node on a host, read through its agent."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from safelaunch.runtime.agent import runs
from safelaunch.runtime.transfer import blocks

if TYPE_CHECKING:
    from safelaunch.sync.sender import AgentCalls

_LOG = re.compile(r"logs/attempt-(?P<attempt>\d{1,6})/(?P<which>[\w-]{1,64})\.log")
_PATTERNS = ("*.json", "*.jsonl", "*.log", "*.sh", "*.csv", "*.yaml", "logs/*/*", "hang-*/*")


class RemoteFiles:
    """Files of a node on a host. Raises HostError."""

    def __init__(self, agent: AgentCalls, run_id: str, node: int, folder: str) -> None:
        self.agent = agent
        self.folder = folder
        self._run = {"id": run_id, "node": node}
        self._paths: dict[str, str] = {}
        self._sizes: dict[str, int] = {}

    def sizes(self) -> dict[str, int]:
        """Return {name: bytes}."""
        stream = self.agent.stream("send.find", root=self.folder, patterns=list(_PATTERNS))
        data = b"".join(stream)
        for name, path, size, *_ in blocks.read_rows(data) if data else ():
            self._paths[name], self._sizes[name] = path, int(size)
        return dict(self._sizes)

    def read(self, name: str, begin: int, length: int) -> bytes:
        """Return a part of a file; of the end of a log only that end travels."""
        path, log = self._paths.get(name, name), _LOG.fullmatch(name)
        if begin == 0:
            stream = self.agent.stream("send.small", files=[[path, length]])
            return b"".join(contents for _, contents in blocks.unpack(stream))[:length]
        if log:
            which = None if log["which"] == "combined" else log["which"]
            words = {"which": which, "attempt": int(log["attempt"]), "position": begin}
            stream = self.agent.stream("runs.log", **self._run, **words, brief=True)
            return b"".join(piece[runs.AT.size :] for piece in stream)[:length]
        return self._rest(path, begin)[:length]

    def _rest(self, path: str, begin: int) -> bytes:
        digest = self.agent.call("send.hashes", files=[[path, begin]])["hashes"][0]
        if digest is None:
            return b""
        stream = self.agent.stream("send.send", path=path, offset=begin, hash=digest)
        offset = int(next(stream))
        pieces = (zlib.decompress(p[1:]) if p[:1] == blocks.DEFLATED else p[1:] for p in stream)
        return b"".join(map(bytes, pieces))[begin - offset :]
