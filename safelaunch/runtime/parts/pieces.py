"""Divides a file of lines, JSON lines or CSV rows into pieces, and joins the outputs of parts.

A piece is a run of neighbours, so that outputs which are joined in the order of the parts have the
order of the input. A joined file appears under its name only when it is whole.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os

from safelaunch.runtime.parts import PartsError

DISK_FULL = "the disk is full"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO


def items(file: BinaryIO, form: str) -> Iterator[bytes]:
    """Yield lines; of CSV whole rows, which may have line ends in quotes."""
    row = b""
    for line in file:
        row += line
        if form == "csv" and row.count(b'"') % 2:
            continue
        if form == "lines" or row.strip():
            yield row if row.endswith(b"\n") else row + b"\n"
        row = b""
    if row.strip():
        raise PartsError(f"{file.name}: a quote of its last row is not closed")


def divide(path: str, form: str, targets: Sequence[str]) -> list[str]:
    """Write the pieces of a file to `targets`; return their SHA-256. Raises OSError, PartsError.

    A piece whose target is "" is that of another host.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as e:
        raise PartsError(f"{path} cannot be read: {e.strerror}") from e
    with file:
        total = sum(1 for _ in items(file, form)) - (form == "csv")
    if total < 1:
        raise PartsError(f"{path} is empty: there is nothing to divide")
    count = len(targets)
    if total < count:
        unit = "rows" if form == "csv" else "lines"
        raise PartsError(f"{path} has {total} {unit} for {count} parts: at most `parts: {total}`")
    digests = []
    with open(path, "rb") as file:
        rows = items(file, form)
        header = next(rows) if form == "csv" else b""
        for index, target in enumerate(targets):
            size = total * (index + 1) // count - total * index // count
            digests.append(_write_piece(rows, size, header, target))
    return digests


def digest_of_all(digests: Sequence[str]) -> str:
    """Return a digest of all pieces: hosts that divide one file have the same."""
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def _write_piece(rows: Iterator[bytes], size: int, header: bytes, target: str) -> str:
    digest = hashlib.sha256(header)
    with open(target or os.devnull, "wb") as out:
        out.write(header)
        for _ in range(size):
            row = next(rows)
            digest.update(row)
            out.write(row)
    return digest.hexdigest()


def join(outputs: Sequence[str], form: str, target: str) -> None:
    """Join the outputs of all parts, in this order. Raises PartsError, and keeps all outputs."""
    temporary = temporary_path(target)
    check_outputs(outputs, target)
    try:
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        with open(temporary, "wb") as out:
            _copy(outputs, form, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, target)
    except OSError as e:
        why = DISK_FULL if e.errno in (errno.ENOSPC, errno.EDQUOT) else e.strerror
        raise PartsError(f"{target} cannot be written: {why}; the outputs of the parts stay") from e
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def temporary_path(target: str) -> str:
    """Return the name of a joined file while it is written."""
    return f"{target}.{os.getpid()}.part"


def check_outputs(outputs: Sequence[str], target: str, numbers: Sequence[int] = ()) -> None:
    """Check that each part has an output of its own. Raises PartsError.

    `numbers` are those of the parts; by default they are counted from 0.
    """
    owners: dict[str, int] = {os.path.realpath(target): -1}
    for at, path in enumerate(outputs):
        index = numbers[at] if numbers else at
        if not os.path.isfile(path):
            raise PartsError(f"part {index} has written no {path}")
        real = os.path.realpath(path)
        if real in owners:
            other = "the merged file" if owners[real] < 0 else f"the output of part {owners[real]}"
            raise PartsError(f"the output of part {index}, {path}, is also {other}")
        owners[real] = index


def _copy(outputs: Sequence[str], form: str, out: BinaryIO) -> None:
    if form == "json":
        out.write(_joined_lists(outputs))
        return
    header = b""
    for path in outputs:
        with open(path, "rb") as file:
            rows = items(file, form)
            if form == "csv":
                first = next(rows, b"")
                if not header:
                    out.write(first)
                    header = first
                elif first and first.rstrip() != header.rstrip():
                    raise PartsError(f"{path} has another header than {outputs[0]}")
            for number, row in enumerate(rows, 1):
                if form == "jsonl":
                    _check_json(row, path, number)
                out.write(row)


def _joined_lists(outputs: Sequence[str]) -> bytes:
    """Return one JSON list of the lists in all outputs. Raises PartsError."""
    rows: list[object] = []
    for path in outputs:
        try:
            with open(path, "rb") as file:
                content = json.loads(file.read().decode())
        except ValueError as e:
            raise PartsError(f"{path} is no JSON: {e}") from e
        if not isinstance(content, list):
            raise PartsError(f"{path} is no JSON list; `merge: {{command: ...}}` merges others")
        rows += content
    return json.dumps(rows, indent=1, ensure_ascii=False).encode() + b"\n"


def _check_json(row: bytes, path: str, number: int) -> None:
    try:
        json.loads(row.decode())
    except ValueError as e:
        raise PartsError(f"{path}: item {number} is no JSON: {e}") from e
