"""Copies the results of a run to a store at its end, and compares what has arrived.

By rclone: `copy`, then `check`, which compares sizes and the hashes that the store has. By fsspec:
fsspec_upload.py in the job's Python.
"""

from __future__ import annotations

import glob
import os

from safelaunch.runtime import json_files
from safelaunch.runtime.records import EndStep
from safelaunch.runtime.supervise.ending.words import FAILED
from safelaunch.runtime.units import quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.runtime.records import UploadSpec
    from safelaunch.runtime.supervise.ending.run_command import Commands

LIST = "upload.txt"  # in the directory of the node: a path on each line, relative to the job's
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fsspec_upload.py")


def run(runner: Commands, spec: UploadSpec, folder: str) -> None:
    """Copy the files and compare them; how that went is in the runner's report."""
    path = os.path.join(runner.journal.dir, LIST)
    try:
        names, why = find(spec, folder)
        if not why:
            json_files.write(path, b"".join(name + b"\n" for name in names), 0o600)
    except OSError as e:
        names, why = [], str(e)
    if why:
        step = EndStep(name="upload", command=f"upload to {spec.to}", state=FAILED, what=why)
        runner.report.steps = [*runner.report.steps, step]
        runner.journal.notify(f"upload failed: {why}")
        return
    shown = f"{quantity(len(names), 'file')} to {spec.to} by {spec.program}"
    if spec.program == "fsspec":
        python = runner.journal.run.python or "python3"
        words = [python, "-B", PROGRAM, folder, path, spec.to]
        runner.run("upload", words, spec.timeout, shown=shown)
        return
    options = ["--files-from-raw", path, "--copy-links", "--", folder, spec.to]
    step = runner.run("upload", ["rclone", "copy", *options], spec.timeout, shown=shown)
    if step.state == "succeeded":
        words = ["rclone", "check", "--one-way", *options]
        runner.run("verify", words, spec.timeout, shown=f"rclone check of {shown}")


def find(spec: UploadSpec, folder: str) -> tuple[list[bytes], str]:
    """Return the files below a folder that match, relative to it, and why they are not uploaded."""
    base = os.fsencode(folder)
    names: set[bytes] = set()
    for pattern in spec.files:
        whole = os.path.join(glob.escape(base), os.fsencode(pattern))
        matches = glob.glob(whole, recursive=True)
        paths = [path for match in matches for path in _files(match)]
        names.update(os.path.relpath(path, base) for path in paths if os.path.isfile(path))
    outside = [name for name in names if name.startswith(b"../")]
    odd = [name for name in names if b"\n" in name or b"\r" in name]
    if not names:
        return [], f"no file matches {', '.join(spec.files)} in {folder}"
    if outside or odd:
        name = os.fsdecode((outside or odd)[0])
        return [], f"{name!r} cannot be uploaded: it is outside of {folder}, or has a line break"
    return sorted(names), ""


def _files(path: bytes) -> Iterator[bytes]:
    """Yield a file, or all files in a folder."""
    if not os.path.isdir(path):
        yield path
        return
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, name) for name in names)
