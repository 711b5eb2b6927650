"""The files of a run's node on a host, read through its agent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.runtime.agent import runs
from safelaunch.runtime.transfer import blocks
from safelaunch.sync import answers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.sync.sender import AgentCalls

_LOG = re.compile(r"logs/attempt-(?P<attempt>\d{1,6})/(?P<which>[\w-]{1,64})\.log")
_NAME = re.compile(r"(?!.*\.\.)[\w.-]{1,255}(/[\w.-]{1,255}){0,2}")
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
        request = [[self.folder, pattern] for pattern in _PATTERNS]
        stream = self.agent.stream("send.find", patterns=request)
        rows, _ = answers.read_rows(self.agent.host, stream)
        with answers.checked(self.agent.host):
            for _, name, path, size, *_ in rows:
                # names become those of a report's files
                if _NAME.fullmatch(name):
                    self._paths[name], self._sizes[name] = str(path), int(size)
        return dict(self._sizes)

    def read(self, name: str, begin: int, length: int) -> bytes:
        """Return a part of a file; of the end of a log only that end travels."""
        with answers.checked(self.agent.host):
            return self._read(name, begin, length)

    def _read(self, name: str, begin: int, length: int) -> bytes:
        path, log = self._paths.get(name, name), _LOG.fullmatch(name)
        if begin == 0:
            stream = self.agent.stream("send.small", files=[[path, length]])
            blocks_ = blocks.unpack(stream, length + answers.MAX_BLOCK)
            return _join((contents for _, contents in blocks_), length)
        if log:
            which = None if log["which"] == "combined" else log["which"]
            words = {"which": which, "attempt": int(log["attempt"]), "position": begin}
            stream = self.agent.stream("runs.log", **self._run, **words, brief=True)
            return _join((piece[runs.AT.size :] for piece in stream), length)
        return self._rest(path, begin, length)

    def _rest(self, path: str, begin: int, length: int) -> bytes:
        digest = self.agent.call("send.hashes", files=[[path, begin]])["hashes"][0]
        if digest is None:
            return b""
        stream = self.agent.stream("send.send", path=path, offset=begin, hash=digest)
        skip = begin - int(next(stream, b"0"))
        return _join(map(blocks.piece_data, stream), length + skip)[skip:]


def _join(pieces: Iterable[bytes | memoryview], length: int) -> bytes:
    """Return the first bytes of a stream; the rest of it is read and dropped."""
    data = bytearray()
    for piece in pieces:
        data += piece[: length - len(data)]
    return bytes(data)
