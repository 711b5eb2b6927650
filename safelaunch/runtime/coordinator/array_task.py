"""Runs one part of a run as a task of an engine's array; the last one to end merges the outputs.

    python -I -S -B array_task.py RUN_FOLDER

The part's supervisor is a process of its own below this one, with the part's folder as that of a
run. Its end is recorded once, in the order of all ends, so that exactly one task is the last: it
starts the supervisor of the run, whose launch.sh reads all ends and merges. A task that the engine
starts again goes on where the part, or the merge, has been.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time

# the package is three folders up, and nothing else is on the path
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from safelaunch.runtime import PLACE, members, run_state
from safelaunch.runtime.engines import exit_codes, join, table
from safelaunch.runtime.engines.allocation import JoinError
from safelaunch.runtime.engines.meaning import is_by_signal
from safelaunch.runtime.parts import TEMPLATE, PartsError, expand, manifest, preparation
from safelaunch.runtime.records import Failure, FanOutSpec, RunRecord, Status, StopRequest
from safelaunch.runtime.start.placeholders import UNBOUND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.engines.allocation import Allocation
    from safelaunch.runtime.records import PartEnd

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ArrayTask:
    """A part on this machine."""

    def __init__(self, folder: str, allocation: Allocation) -> None:
        self.folder = folder
        self.run_dir = os.path.join(folder, "node-0")
        self.allocation = allocation
        spec = FanOutSpec.read(self.run_dir)
        if spec is None or allocation.part is None:
            raise JoinError(f"{FanOutSpec.FILE} cannot be read, or this is no task of an array")
        words = expand.part_words(spec)
        self.count, self.index = len(words), allocation.part
        if self.index >= self.count:
            raise JoinError(f"task {self.index} of {self.count} parts")
        self.words = words[self.index]
        self.part = preparation.folder(self.run_dir, self.index)
        self.environ = join.job_environ(
            self.run_dir, allocation.environ, join.read_start(folder, 0)[1]
        )
        self.is_signalled = False

    def run(self) -> int:
        """Run the part, and where it is the last to end the merge; return the exit code."""
        for name in SIGNALS:  # of the whole step: the supervisor gets them too, and ends in order
            signal.signal(name, self._note_signal)
        code = exit_codes.SUCCEEDED
        end = manifest.read(self.run_dir).get(self.index)
        if end is None:
            node_dir = self._join()
            code = self._supervise(node_dir)
            end = self._end(node_dir)
            if end is None:  # it goes on in another life, or the engine says how it has ended
                return code
        number = manifest.add_in_order(self.run_dir, end)
        if end.state != "succeeded":
            code = code or exit_codes.FAILED
        if number < self.count - 1 or self.is_signalled or self._has_ended():
            return code
        own = self._supervise(join.join(self.folder, self.allocation))
        ends = manifest.read(self.run_dir).values()
        # where a part has failed, its own task says so to the engine
        return own if all(end.state == "succeeded" for end in ends) else code

    def _note_signal(self, _number: int, _frame: object) -> None:
        self.is_signalled = True

    def _join(self) -> str:
        """Write the files of the part; return its folder. Raises JoinError, OSError, ValueError."""
        template = os.path.join(members.folder(self.run_dir, TEMPLATE), "node-0")
        node_dir = os.path.join(self.part, "node-0")
        if not os.path.exists(os.path.join(node_dir, RunRecord.FILE)):  # else of an earlier life
            path = os.path.join(node_dir, RunRecord.FILE)
            shutil.copyfile(os.path.join(template, RunRecord.FILE), path)
        top = PLACE.split("/", 1)[0]  # its scripts look for the runtime beside them
        links = {UNBOUND: os.path.join(template, UNBOUND), top: os.path.join(self.run_dir, top)}
        for name, target in links.items():
            if not os.path.lexists(os.path.join(node_dir, name)):
                os.symlink(target, os.path.join(node_dir, name))
        values = {
            **self.words,
            "run-dir": node_dir,
            "shard.input": preparation.input_path(self.run_dir, self.index),
            "shard.output": preparation.output_path(self.run_dir, self.index),
        }
        names = join.read_start(self.part, 0)[1].placeholders
        return join.join(self.part, self.allocation, {n: values[n] for n in names if n in values})

    def _supervise(self, node_dir: str) -> int:
        """Run a supervisor to its end; return its exit code."""
        argv = join.supervisor_argv(node_dir)
        code = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=self.environ).wait()
        return code if code >= 0 else 128 - code

    def _end(self, node_dir: str) -> PartEnd | None:
        """Return how the part has ended; None where it is not over, or only the engine knows."""
        status = Status.read(node_dir)
        if status is None or status.state not in run_state.ENDED:
            return None
        if status.state == "stopped" and is_by_signal(status):  # a preemption, or scancel
            return None
        end = manifest.end_of(status, Failure.read(node_dir))
        end.part, end.words, end.ended_at = self.index, self.words, time.time()
        end.input_sha256 = _digest(preparation.input_path(self.run_dir, self.index))
        return end

    def _has_ended(self) -> bool:
        """Whether the run is over: an earlier life of this task has merged, or it is stopped."""
        status = Status.read(self.run_dir)
        is_over = status is not None and status.state in run_state.ENDED
        return is_over or StopRequest.read(self.run_dir) is not None


def _digest(path: str) -> str:
    """Return the SHA-256 of a part's piece of the input, "" without one."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()


def main(folder: str) -> int:
    """Run the part that the engine's variables name."""
    os.umask(0o077)
    name = os.uname().nodename
    try:
        engine = table.load(join.read_start(folder, 0)[1].name)
        name = engine.node_name(os.environ)
        return ArrayTask(folder, engine.allocation(os.environ)).run()
    except (JoinError, OSError, PartsError, ValueError) as e:
        sys.stderr.write(f"safelaunch: {name} cannot run its part of {folder}: {e}\n")
        return exit_codes.FAILED


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
