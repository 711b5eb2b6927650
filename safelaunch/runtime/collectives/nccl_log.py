"""Reads what NCCL or RCCL writes about its start: version, network, transports, warnings.

Lines of NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,ENV (site/safelaunch_evidence.py), as NCCL 2.4
to 2.30 and RCCL 2.18 to 2.27 write them. A rank has a file, and so has each engine that it starts.
"""

from __future__ import annotations

import os
import re

from safelaunch.runtime.collectives import dumps
from safelaunch.runtime.records import NcclReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PREFIX = "rank-"
HEAD = 512 << 10  # bytes of a file that are read: the start of some thousand connections
TAIL = 64 << 10  # bytes of the end of a longer one
LIMIT = 8 << 20  # bytes that one file keeps, see logs/size_cap.py: an eighth of it is the head
MAX_FILES = 64
MAX_NAMES = 8  # devices, pairs and warnings that are kept
LOOK_EVERY = 10.0  # seconds between two looks at the sizes
_LINE = re.compile(r"NCCL (INFO|WARN) (.*)")
_VERSION = re.compile(r"(NCCL|RCCL) version ?:? ?(\d\S*)")
_NETWORK = re.compile(r"Using network (\S+)")
# `NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>`
_USING = re.compile(r"NET/(\S+) ?: Using(.*?)(?:;|$)")
_DEVICE = re.compile(r"\[\d+\]([^\s:;<]+)")
# `Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA`; before 2.17 a bus id in the brackets
_CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : (\d+)\[(\w+)\] -> (\d+)\[(\w+)\] .*?via (.*)")
_CHANNELS = re.compile(r"(\d+) coll channels")
_COMMUNICATOR = re.compile(r"comm (0x\w+) rank \d+ n[Rr]anks (\d+) .*- Init (START|COMPLETE)")
_NODES = re.compile(r"comm 0x\w+ rank \d+ nRanks \d+ nNodes (\d+)")


class NcclFile:
    """What one file says."""

    def __init__(self, text: str) -> None:
        self.versions: list[str] = []
        self.networks: list[str] = []
        self.devices: dict[str, list[str]] = {}  # of each network
        self.pairs: dict[tuple[str, str], str] = {}  # GPUs of this node -> transport
        self.remote: set[str] = set()  # transports to GPUs that are reached by the network
        self.channels = self.nodes = 0
        self.open: dict[str, str] = {}  # communicators that have begun -> number of ranks
        self.complete = 0
        self.warnings: list[str] = []
        self.late_warnings: list[str] = []  # those after the last communicator was complete
        for match in _LINE.finditer(text):
            self._add(match.group(1), match.group(2).strip())

    def _add(self, level: str, text: str) -> None:
        if level == "WARN":
            self.warnings.append(text)
            self.late_warnings.append(text)
            return
        channel = _CHANNEL.match(text)
        if channel is not None:
            self._add_channel(*channel.groups())
            return
        communicator = _COMMUNICATOR.search(text)
        if communicator is not None:
            address, ranks, what = communicator.groups()
            if what == "START":
                self.open[address] = ranks
            else:
                self.open.pop(address, None)
                self.complete += 1
                self.late_warnings = []
            return
        for pattern, names in ((_VERSION, self.versions), (_NETWORK, self.networks)):
            match = pattern.match(text)
            if match is not None:
                name = " ".join(word for word in match.groups() if word != "NCCL")
                names.extend([name] if name not in names else [])
        using = _USING.match(text)
        if using is not None:
            names = self.devices.setdefault(using.group(1), [])
            names.extend(name for name in _DEVICE.findall(using.group(2)) if name not in names)
        for pattern, name in ((_CHANNELS, "channels"), (_NODES, "nodes")):
            match = pattern.search(text)
            if match is not None:
                setattr(self, name, max(getattr(self, name), int(match.group(1))))

    def _add_channel(self, _: str, sender: str, __: str, receiver: str, via: str) -> None:
        transport = _transport(via)
        if transport.startswith(("NET", "COLLNET")):
            self.remote.add(transport)
        elif sender != receiver:
            self.pairs[sender, receiver] = transport


def _transport(via: str) -> str:
    """Return `P2P/CUMEM`, `SHM/direct/direct`, `NET/IB/GDRDMA`: without numbers of devices."""
    if via.startswith("direct shared memory"):
        return "SHM/direct/direct"  # before 2.13
    words = via.split(" comm ", maxsplit=1)[0].split("/")  # RCCL adds the communicator
    names = [
        re.sub(r"\(.*\)", "", word)
        for word in words
        if not re.match(r"\d+(\[\w+\]|\(\d+\))?$", word)
    ]
    return "/".join(word.strip() for word in names if word not in ("Shared", "read"))


def read(path: str) -> NcclFile | None:
    """Return what a file says; None where it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read(HEAD)
            size = os.fstat(file.fileno()).st_size
            if size > HEAD:  # the last lines may have the warning that ended it
                file.seek(max(HEAD, size - TAIL))
                data += b"\n" + file.read(TAIL)
    except OSError:
        return None
    return NcclFile(data.replace(b"\0", b"").decode("utf-8", "replace"))


def paths(folder: str) -> list[str]:
    """Return the files of an attempt."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(PREFIX))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names[:MAX_FILES]]


def report(files: Iterable[NcclFile]) -> NcclReport | None:
    """Return what all files say together; None where no NCCL has started."""
    files = [file for file in files if file.versions or file.open or file.complete]
    if not files:
        return None
    pairs: dict[tuple[str, str], str] = {}
    for file in files:
        pairs.update(file.pairs)
    remote = sorted({transport for file in files for transport in file.remote})
    networks = _unique(name for file in files for name in file.networks)
    devices = _unique(
        name for file in files for network in networks for name in file.devices.get(network, ())
    )
    nodes = max(file.nodes for file in files)
    return NcclReport(
        versions=_unique(name for file in files for name in file.versions),
        networks=networks,
        devices=devices[:MAX_NAMES],
        channels=max(file.channels for file in files) or None,
        nodes=nodes or None,
        transports=[*sorted(set(pairs.values())), *remote],
        odd=_odd(pairs, remote, nodes)[:MAX_NAMES],
        unfinished=sum(len(file.open) for file in files),
        warnings=_unique(text for file in files for text in file.warnings)[:MAX_NAMES],
    )


def combine(reports: Sequence[NcclReport]) -> NcclReport:
    """Return the report of all nodes of a run."""
    return NcclReport(
        versions=_unique(name for own in reports for name in own.versions),
        networks=_unique(name for own in reports for name in own.networks),
        devices=_unique(name for own in reports for name in own.devices)[:MAX_NAMES],
        channels=max(own.channels or 0 for own in reports) or None,
        nodes=max(own.nodes or 0 for own in reports) or None,
        transports=sorted(
            {name for own in reports for name in own.transports}, key=lambda n: (n[0] == "N", n)
        ),
        odd=_unique(text for own in reports for text in own.odd)[:MAX_NAMES],
        unfinished=sum(own.unfinished for own in reports),
        warnings=_unique(text for own in reports for text in own.warnings)[:MAX_NAMES],
    )


def _odd(pairs: Mapping[tuple[str, str], str], remote: Sequence[str], nodes: int) -> list[str]:
    """Return what differs within a node: pairs by another transport, or the network in it."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for pair, transport in sorted(pairs.items()):
        kinds.setdefault(transport.split("/")[0], []).append(pair)
    lines = []
    if len(kinds) > 1:
        usual = max(kinds, key=lambda kind: len(kinds[kind]))
        for kind, own in kinds.items():
            shown = ", ".join(f"{a} to {b}" for a, b in own[:MAX_NAMES])
            lines += [] if kind == usual else [f"{kind} between GPUs {shown}, others {usual}"]
    if nodes == 1 and remote:
        lines.append(f"{remote[0]} between the GPUs of one node")
    return lines


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def summary(nccl: NcclReport) -> str:
    """Return `2.27.3+cuda12.9, 24 channels, P2P/CUMEM, NET/IB/GDRDMA (mlx5_0, mlx5_1)`."""
    parts = [" and ".join(nccl.versions) or "unknown version"]
    if nccl.channels:
        parts.append(f"{nccl.channels} channels")
    names = f" ({', '.join(nccl.devices)})" if nccl.devices else ""
    network = " and ".join(nccl.networks)
    has_remote = any(name.startswith("NET") for name in nccl.transports)
    parts += [name + (names if name.startswith("NET") else "") for name in nccl.transports]
    if network and not has_remote:
        parts.append(f"network {network}{names}, not in use")
    return ", ".join(parts)


def lines(nccl: NcclReport) -> list[str]:
    """Return the summary, and what is odd about it, each a line."""
    shown = [summary(nccl), *nccl.odd]
    if nccl.unfinished:
        number = nccl.unfinished
        shown.append(f"{number} communicator{'s' * (number > 1)} begun and not complete")
    return shown


class NcclWatch:
    """Follows the files of an attempt while it runs, one file a tick."""

    def __init__(self, node_dir: str, attempt: int) -> None:
        self.folder = dumps.folder(node_dir, attempt)
        self.next_look = 0.0
        self.sizes: dict[str, int] = {}
        self.files: dict[str, tuple[int, NcclFile]] = {}  # with the size that was read
        self.queue: list[str] = []

    def tick(self, now: float) -> NcclReport | None:
        """Read a file that has settled; return the report where it was the last of these."""
        if self.queue:
            path = self.queue.pop()
            file = read(path)
            if file is not None:
                self.files[path] = (self.sizes[path], file)
            return None if self.queue else report(file for _, file in self.files.values())
        if now >= self.next_look:
            self.next_look = now + LOOK_EVERY
            self._look()
        return None

    def _look(self) -> None:
        for path in paths(self.folder):
            try:
                size = os.path.getsize(path)
            except OSError:
                continue
            before = self.files[path][0] if path in self.files else 0
            # beyond the head nothing more is read
            if size == self.sizes.get(path) and min(size, HEAD) > min(before, HEAD):
                self.queue.append(path)
            self.sizes[path] = size
