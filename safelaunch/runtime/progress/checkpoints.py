"""Finds the checkpoints that match a glob: when one last changed, and which of them are whole.

A checkpoint that is being written must not be resumed from. Each trainer writes one file last, and
that file, with what its index names, shows a whole checkpoint; a file of states that is empty or
cut off shows the contrary.
"""

# ruff: noqa: PLC0415 - fnmatch, json, zipfile: only jobs with checkpoints need them

from __future__ import annotations

import os
import re
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SCAN_LIMIT = 20000  # directory entries in a search for checkpoints: 0.1 s on a local disk
MOST = 8  # whole checkpoints that are listed: trainers keep a few
STATES = (".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".distcp", ".tar", ".npz")
# DeepSpeed; Megatron and verl: written once the folder that they name is complete
TRACKERS = ("latest", "latest_checkpointed_iteration.txt")
_TRAINER_STATE = "trainer_state.json"
# files that only one trainer writes -> the file that it writes last. Sources: _save_checkpoint of
# transformers/trainer.py, save_accelerator_state of accelerate/checkpointing.py, and finish of
# torch/distributed/checkpoint/filesystem.py
_LAST = (
    (r"training_args\.bin|rng_state(_\d+)?\.pth", _TRAINER_STATE),
    (r"__\d+_\d+\.distcp", ".metadata"),
    (r"(optimizer|scheduler)(_\d+)?\.bin", "random_states_0.pkl"),
)
# transformers, trainer_utils.py: PREFIX_CHECKPOINT_DIR; the model is saved before all else
_BY_TRAINER = re.compile(r"checkpoint-\d+")
_MODEL = ("config.json", "adapter_config.json")
_UNFINISHED = re.compile(r"^\.|^tmp[-_.]|[-_.](tmp|incomplete)\b", re.IGNORECASE)
_LARGEST_JSON = 1 << 26  # bytes of a header, an index or a state that is read
_LOCAL_FILE = b"PK\x03\x04"  # how a zip archive begins, which torch.save writes


def newest_time(pattern: str, cwd: str) -> float | None:
    """Return the time of the newest file or folder that matches a glob below cwd, in seconds.

    On a huge tree it gives up after SCAN_LIMIT entries and returns the newest so far.
    """
    budget = [SCAN_LIMIT]
    times = (_changed(match, budget) for match in matches(pattern, cwd, budget))
    return max((time for time in times if time is not None), default=None)


def whole(pattern: str, cwd: str, most: int = MOST) -> tuple[list[str], str]:
    """Return the whole checkpoints that match a glob, the newest first, and what the newest lacks.

    Paths below cwd are relative to it. The second is "" where the newest match is whole.
    """
    budget = [SCAN_LIMIT]
    dated = [(_changed(match, budget), match) for match in matches(pattern, cwd, budget)]
    # a file system may keep whole seconds only: then the higher step is the newer one
    newest = sorted(
        ((time, _numbers(path), path) for time, path in dated if time is not None), reverse=True
    )
    paths: list[str] = []
    lack = ""
    for _, _, path in newest:
        why = flaw(path)
        if not why:
            paths.append(_below(path, cwd))
        elif not paths:
            lack = lack or f"{_below(path, cwd)} {why}"
        if len(paths) == most:
            break
    return paths, lack


def common(by_node: Sequence[Sequence[str]]) -> str | None:
    """Return the newest checkpoint that all nodes have, in the order of the first.

    Where no two have the same, it is the first node's: a program that loads there alone goes on,
    any other names the missing folder. Both are better than to train from the beginning.
    """
    first, *others = by_node
    shared = (path for path in first if all(path in paths for paths in others))
    return next(shared, first[0] if first else None)


def _numbers(path: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", path)]


def _below(path: str, cwd: str) -> str:
    root = cwd.rstrip("/") + "/"
    return path.removeprefix(root)


def _changed(path: str, budget: list[int]) -> float | None:
    """Return when a file changed, or a folder and what is directly in it: files are replaced."""
    times = []
    for file in (path, *(entry.path for entry in _entries(path, budget))):
        try:
            times.append(os.stat(file).st_mtime)
        except OSError:
            continue
    return max(times, default=None)


# -- whether one is whole --------------------------------------------------------------------------


def flaw(path: str) -> str:
    """Return why a path is no whole checkpoint: `lacks trainer_state.json`; "" if it is one."""
    if _UNFINISHED.search(os.path.basename(path)):
        return "is not written to its end, by its name"
    try:
        if not os.path.isdir(path) and not os.path.isfile(path):
            return "is no file"
        if not os.path.isdir(path):
            return file_flaw(path) or _tracker_flaw(path)
        names = sorted(os.listdir(path))
        return _folder_flaw(path, names) or _tracker_flaw(path)
    except OSError as e:
        return f"cannot be read: {e.strerror}"


def _folder_flaw(path: str, names: list[str]) -> str:
    if not names:
        return "is empty"
    last = _last_file(os.path.basename(path), names)
    if last and last not in names:
        return f"lacks {last}"
    missing = missing_parts(path, names)
    if missing:
        return f"lacks {missing[0]}"
    for name in names:
        file = os.path.join(path, name)
        is_state = name == _TRAINER_STATE or name.endswith(STATES)
        why = file_flaw(file) if is_state and os.path.isfile(file) else ""
        if why:
            return f"has {name}, which {why}"
    for name in TRACKERS:
        file = os.path.join(path, name)
        target = tracked_folder(name, _text(file))
        if target and not os.path.isdir(os.path.join(path, target)):
            return f"has {name}, which names the missing {target}"
    return ""


def _last_file(folder: str, names: list[str]) -> str:
    """Return the file that the trainer of a checkpoint writes last; "" where it is not known."""
    for marks, last in _LAST:
        if any(re.fullmatch(marks, name) for name in names):
            return last
    has_model_alone = any(name in _MODEL for name in names) and not any("opt" in n for n in names)
    return _TRAINER_STATE if _BY_TRAINER.fullmatch(folder) and has_model_alone else ""


def _tracker_flaw(path: str) -> str:
    """Return that a step is newer than the file which names the last complete one."""
    folder, name = os.path.split(path)
    for tracker in TRACKERS:
        file = os.path.join(folder, tracker)
        step, last = _numbers(name), _numbers(_text(file))
        if step and last and step[-1] != last[-1]:
            changed, complete = _changed(path, [SCAN_LIMIT]), os.stat(file).st_mtime
            if changed is not None and changed > complete:
                return f"is newer than {tracker}, which names step {last[-1]}"
    return ""


def tracked_folder(tracker: str, text: str) -> str:
    """Return the folder that the text of a file such as `latest` names."""
    text = text.strip()
    # Megatron writes a number there, and means iter_0000500
    return "iter_%07d" % int(text) if tracker != "latest" and text.isdigit() else text


def missing_parts(folder: str, names: Iterable[str]) -> list[str]:
    """Return the parts that an index of weights names but the folder lacks."""
    import json

    names, parts = list(names), set()
    for name in names:
        if name.endswith(".index.json"):
            try:
                parts |= set(json.loads(_text(os.path.join(folder, name)))["weight_map"].values())
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
    return sorted(str(part) for part in parts if part not in names)


def file_flaw(path: str) -> str:
    """Return that a file is empty or cut off; only formats that show it are judged."""
    with open(path, "rb") as file:
        head = file.read(9)
        size = os.fstat(file.fileno()).st_size
        if not size:
            return "is empty"
        if path.endswith(".json"):
            return "" if _is_json(file.read(_LARGEST_JSON), head) else "is cut off"
        if path.endswith(".safetensors"):
            return _safetensors_flaw(head, size, file.read(_header_size(head)))
    if head.startswith(_LOCAL_FILE):
        import zipfile

        return "" if zipfile.is_zipfile(path) else "is cut off"
    return ""


def _is_json(rest: bytes, head: bytes) -> bool:
    import json

    try:
        json.loads((head + rest).decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    return True


def _header_size(head: bytes) -> int:
    """Return the bytes of the header of a safetensors file; 0 where it is none."""
    size: int = struct.unpack("<Q", head[:8])[0] if head[8:] == b"{" else 0
    return size if size <= _LARGEST_JSON else 0


def _safetensors_flaw(head: bytes, size: int, rest: bytes) -> str:
    """Return that a safetensors file ends before its last tensor."""
    import json

    length = _header_size(head)
    if not length:
        return ""
    try:
        header = json.loads((head[8:] + rest)[:length].decode("utf-8", "replace"))
        ends = [t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return "is cut off" if size < 8 + length else ""
    return "is cut off" if size < 8 + length + max(ends, default=0) else ""


def _text(path: str) -> str:
    if not os.path.isfile(path):  # to open a pipe would block
        return ""
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST_JSON).decode("utf-8", "replace")
    except OSError:
        return ""


# -- the glob --------------------------------------------------------------------------------------


def matches(pattern: str, cwd: str, budget: list[int]) -> Iterator[str]:
    """Yield what matches a glob below cwd, as glob does, but within a budget of entries."""
    path = os.path.join(cwd, pattern)
    root, parts = ("/", path.strip("/").split("/")) if path[:1] == "/" else ("", path.split("/"))
    yield from _matches(root, [part for part in parts if part not in ("", ".")], budget)


def _entries(folder: str, budget: list[int]) -> Iterator[os.DirEntry[str]]:
    if budget[0] <= 0 or not os.path.isdir(folder or "."):
        return
    try:
        with os.scandir(folder or ".") as entries:
            for entry in entries:
                budget[0] -= 1
                if budget[0] < 0:
                    return
                yield entry
    except OSError:
        return


def _matches(folder: str, parts: list[str], budget: list[int]) -> Iterator[str]:
    if not parts:
        yield folder
    elif parts[0] == "**":
        yield from _tree_matches(folder, parts[1:], budget)
    elif any(letter in parts[0] for letter in "*?["):
        for path in _named(folder, parts[0], budget):
            yield from _matches(path, parts[1:], budget)
    elif os.path.lexists(os.path.join(folder, parts[0])):
        yield from _matches(os.path.join(folder, parts[0]), parts[1:], budget)


def _tree_matches(folder: str, rest: list[str], budget: list[int]) -> Iterator[str]:
    yield from _matches(folder, rest or ["*"], budget)
    for entry in _entries(folder, budget):
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            yield from _tree_matches(entry.path, rest, budget)


def _named(folder: str, part: str, budget: list[int]) -> Iterator[str]:
    import fnmatch

    for entry in _entries(folder, budget):
        hidden = entry.name.startswith(".") and not part.startswith(".")
        if not hidden and fnmatch.fnmatchcase(entry.name, part):
            yield entry.path
