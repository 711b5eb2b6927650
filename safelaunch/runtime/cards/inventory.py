"""The cards of a machine, and what uses them, as the tools of their drivers say.

The rule for a free card: no process computes on it, at most a twentieth of its memory or 1 GiB is
in use (a driver or a desktop takes some), and its load is below a tenth. What a tool does not say
does not count.
"""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

from safelaunch.runtime.card_claims.users import user_name
from safelaunch.runtime.commands import RunningCommand
from safelaunch.runtime.monitor import gpu_sources
from safelaunch.runtime.start.accelerators import (
    ACCELERATORS,
    DEVICE_VARIABLES,
    select,
    split_words,
)
from safelaunch.runtime.start.start_probe import names, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

IDLE_MEMORY = 1024.0  # MiB
IDLE_SHARE = 0.05  # of the memory
IDLE_LOAD = 10.0  # percent
LIMIT = 20.0  # seconds for a tool
_LISTED = re.compile(
    r"^GPU (\d+): (.*?) \(UUID: (GPU-[^)]+)\)|^\s+MIG .*\(UUID: (MIG-[^)]+)\)", re.MULTILINE
)
_APPS = "--query-compute-apps=pid,gpu_uuid,process_name,used_memory"
_KFD = "sys/class/kfd/kfd"
# the line of an NPU with its name and health, or of a chip with its bus
_NPU_LINE = re.compile(
    r"^\|\s*(?:(\d+)\s+\w[\w-]*\s*\|\s*[A-Za-z]+\s*\||(\d+)\s+(\d+)?\s*\|\s*[0-9A-Fa-f]+:)",
    re.MULTILINE,
)
_NPU_PROCESS = re.compile(r"^\|\s*(\d+)\s+(\d+)\s*\|\s*(\d+)\s*\|\s*(\S+)", re.MULTILINE)


class CardProcess(NamedTuple):
    """A process that computes on a card."""

    pid: int
    name: str
    user: str  # "" for one that is not seen from here


class MachineCard(NamedTuple):
    """A card, or a slice of one: what a job can be given."""

    key: str  # the same for all users of the machine: its UUID, or kind and index
    word: str  # what selects it in a variable such as CUDA_VISIBLE_DEVICES
    kind: str  # cuda, rocm or npu
    name: str = ""
    load: float | None = None  # percent
    used: float | None = None  # MiB
    memory: float | None = None  # MiB
    processes: tuple[CardProcess, ...] = ()

    @property
    def use(self) -> str:
        """Why it is not free, "" where it is, but for claims."""
        if self.processes:
            return ", ".join(map(describe, self.processes[:2]))
        limit = max(IDLE_MEMORY, IDLE_SHARE * (self.memory or 0.0))
        if self.used is not None and self.used > limit:
            return f"{self.used:.0f} MiB in use"
        if self.load is not None and self.load >= IDLE_LOAD:
            return f"{self.load:.0f} % load"
        return ""


def describe(process: CardProcess) -> str:
    """Return a process for people."""
    name = os.path.basename(process.name) or "a process"
    return f"{name} (pid {process.pid}{', ' + process.user if process.user else ''})"


class Inventory(NamedTuple):
    """The cards of a machine at one time; `error` says why they are not known."""

    cards: tuple[MachineCard, ...]
    error: str = ""
    is_without: bool = False  # whether the machine has none, which will not change
    began: float = 0.0  # monotonic
    seconds: float = 0.0  # that the tools took


def look(environ: Mapping[str, str], root: str = "/", limit: float = LIMIT) -> Inventory:
    """Return the cards of this machine, of the first kind that it has."""
    began = time.monotonic()
    cards, error = _nvidia(environ, limit)
    if not cards and not error:
        cards, error = _others(dict(environ), root, limit)
    is_without = not cards and not error
    if is_without:
        error = "this machine shows no GPU or NPU"
    return Inventory(tuple(cards), error, is_without, began, time.monotonic() - began)


def _nvidia(environ: Mapping[str, str], limit: float) -> tuple[list[MachineCard], str]:
    paths = [gpu_sources.program("nvidia-smi", dict(environ)), *gpu_sources.NVIDIA_SMI]
    smi = next((path for path in paths if path and os.access(path, os.X_OK)), None)
    if smi is None:
        return [], ""
    questions = {
        "query": ["--query-gpu=" + ",".join(gpu_sources.FIELDS), "--format=csv,noheader,nounits"],
        "list": ["-L"],
        "apps": [_APPS, "--format=csv,noheader,nounits"],
    }

    plain = {**environ, "LC_ALL": "C"}
    running = {name: RunningCommand([smi, *more], plain) for name, more in questions.items()}
    answers = {name: command.result(limit) for name, command in running.items()}
    rows = gpu_sources.parse(answers["query"].out)
    if not rows:
        has_none = "no devices" in answers["query"].out.lower()
        what = "nvidia-smi does not list the GPUs"
        return [], "" if has_none else f"{what}: {answers['query'].last_line[:160]}"
    users, (slices, models) = _nvidia_processes(answers["apps"].out), _slices(answers["list"].out)
    cards: list[MachineCard] = []
    for index, (uuid, values) in rows.items():
        load, used, total, _ = values
        name, key = models.get(uuid, ""), uuid or f"cuda:{index}"
        if slices.get(uuid):  # a process sees slices alone; what uses which only some drivers say
            cards += [
                MachineCard(part, part, "cuda", name, processes=users.get(part, ()))
                for part in slices[uuid]
            ]
            continue
        cards.append(MachineCard(key, index, "cuda", name, load, used, total, users.get(uuid, ())))
    return cards, ""


def _slices(text: str) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return {UUID of a GPU: its MIG devices}, and {UUID: name}, of `nvidia-smi -L`."""
    slices: dict[str, list[str]] = {}
    models: dict[str, str] = {}
    uuid = ""
    for match in _LISTED.finditer(text):
        if match[3]:
            uuid = match[3]
            models[uuid] = match[2]
        elif uuid:
            slices.setdefault(uuid, []).append(match[4])
    return slices, models


def _nvidia_processes(text: str) -> dict[str, tuple[CardProcess, ...]]:
    """Return {UUID: processes} of `--query-compute-apps`."""
    processes: dict[str, tuple[CardProcess, ...]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) >= 3 and cells[0].isdigit():  # noqa: PLR2004 - pid, UUID, name
            process = CardProcess(int(cells[0]), cells[2], _user(cells[0]))
            processes[cells[1]] = (*processes.get(cells[1], ()), process)
    return processes


def _user(pid: str) -> str:
    try:
        return user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return ""


def _others(environ: dict[str, str], root: str, limit: float) -> tuple[list[MachineCard], str]:
    source = gpu_sources.find(environ, root)
    if source is None or source.name == "nvidia-smi":
        return [], ""
    answer = RunningCommand(source.argv, environ).result(limit)
    rows = source.parse(answer.out)
    if not rows:
        return [], f"{source.name} does not list the cards: {answer.last_line[:160]}"
    is_npu = source.name == "npu-smi"
    kind, users = ("npu", _npu_processes(answer.out)) if is_npu else ("rocm", _kfd(root, rows))
    return [
        MachineCard(f"{kind}:{index}", index, kind, "", load, used, total, users.get(index, ()))
        for index, (_, (load, used, total, _power)) in rows.items()
    ], ""


def _npu_processes(text: str) -> dict[str, tuple[CardProcess, ...]]:
    """Return {index: processes} of `npu-smi info`: two lines for each chip, then the processes."""
    chips, _, table = text.partition("Process id")
    indices: dict[tuple[str, str], str] = {}
    npu = ""
    for first, chip, index in _NPU_LINE.findall(chips):
        if first:
            npu = first
        else:
            indices[npu, chip] = index or str(len(indices))
    processes: dict[str, tuple[CardProcess, ...]] = {}
    for number, chip, pid, name in _NPU_PROCESS.findall(table):
        at = indices.get((number, chip))
        if at is not None:
            process = CardProcess(int(pid), name, _user(pid))
            processes[at] = (*processes.get(at, ()), process)
    return processes


def _kfd(root: str, rows: Mapping[str, object]) -> dict[str, tuple[CardProcess, ...]]:
    """Return {index: processes} by the files of AMD's driver: `vram_<GPU id>` of each process."""
    nodes = os.path.join(root, _KFD, "topology/nodes")
    ids: dict[str, str] = {}
    gpu_nodes = [n for n in sorted(names(nodes), key=lambda n: (len(n), n))
                 if gpu_sources.render_device(os.path.join(nodes, n))]  # fmt: skip
    for at, name in enumerate(gpu_nodes):
        ids[read(os.path.join(nodes, name, "gpu_id")).strip()] = str(at)
    processes: dict[str, tuple[CardProcess, ...]] = {}
    folder = os.path.join(root, _KFD, "proc")
    for pid in filter(str.isdigit, names(folder)):
        for file in names(os.path.join(folder, pid)):
            index = ids.get(file[5:], "") if file.startswith("vram_") else ""
            used = read(os.path.join(folder, pid, file)).strip()
            if index in rows and used.isdigit() and int(used) > 0:
                name = read(f"/proc/{pid}/comm").strip()
                process = CardProcess(int(pid), name, _user(pid))
                processes[index] = (*processes.get(index, ()), process)
    return processes


def matching(cards: Sequence[MachineCard], words: Sequence[str]) -> list[MachineCard]:
    """Return the cards that words of a variable name: an index, a UUID or its beginning."""
    return [card for word in words for card in cards if _is_named(card, word)]


def _is_named(card: MachineCard, word: str) -> bool:
    return card.word == word or (not word.isdigit() and bool(word) and card.key.startswith(word))


def visible(cards: Sequence[MachineCard], environ: Mapping[str, str]) -> list[MachineCard]:
    """Return the cards that an environment leaves to a program."""
    kind = cards[0].kind if cards else "cuda"
    values: dict[str, str | None] = {n: environ.get(n) for n in DEVICE_VARIABLES}
    selected = select(ACCELERATORS[kind], values)
    return list(cards) if selected is None else matching(cards, selected.words)


def words(cards: Sequence[MachineCard], environ: Mapping[str, str]) -> list[str]:
    """Return what selects cards in the variable of the job.

    Of AMD the runtime below HIP may leave only some cards, and HIP counts those.
    """
    outer = split_words(environ.get("ROCR_VISIBLE_DEVICES") or "")
    if outer and cards and cards[0].kind == "rocm":
        return [str(outer.index(card.word)) for card in cards if card.word in outer]
    return [card.word for card in cards]
