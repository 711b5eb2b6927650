"""Runs the parts of a run, as many at once as there are lanes, and merges their outputs.

    python -I -S -B coordinate.py NODE_DIR

It is what launch.sh of such a run executes, so the supervisor of the run owns it as any launcher:
stop, proof of the end, and restarts are those of any run. It has read the supervisor's program
once and forks it for each part: a new Python for each would cost more than a short part takes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

# the package is three folders up, and nothing else is on the path
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from safelaunch.runtime.coordinator.part import Part, preload
from safelaunch.runtime.logs import event_lines
from safelaunch.runtime.parts import PartsError, expand, manifest, pieces, preparation
from safelaunch.runtime.parts.pieces import DISK_FULL
from safelaunch.runtime.records import Failure, FanOutSpec, PartEnd, PartEvent, PartFailure
from safelaunch.runtime.start import start_probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

STOP_SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT))
SHOWN = 20  # failed parts that are named at the end
SIGNALS = STOP_SIGNALS | {signal.SIGCHLD}


class Coordinator:
    """All parts of one attempt of a run."""

    def __init__(self, node_dir: str, spec: FanOutSpec) -> None:
        self.dir = node_dir
        self.spec = spec
        self.free = expand.lanes(spec, start_probe.usable_cores())
        words = self.words = expand.part_words(spec)  # of all parts
        umask = os.umask(0)  # of the caller, as launch.sh has it, also for the merged file
        os.umask(umask)
        own = expand.share(spec, len(words))  # those of this host
        self.parts = [Part(node_dir, index, words[index], umask) for index in own]
        self.running: list[Part] = []
        self.failed: dict[int, str] = {}  # causes
        self.done = 0
        self.source: str | None = None  # digest of the input, where several hosts divide it
        self.is_stopped = False

    def prepare(self) -> list[Part]:
        """Make the folders and pieces; return the parts to run. Raises OSError, PartsError."""
        digests = preparation.prepare(self.dir, self.spec, self.words)
        self.source = preparation.source_digest(self.spec, digests)
        ends = manifest.read(self.dir)
        missing = []
        for part in self.parts:
            part.digest = digests[part.index]
            if not manifest.is_done(ends.get(part.index), part.words, part.digest):
                missing.append(part)
        self.done = len(self.parts) - len(missing)
        if self.done:
            _say(f"{self.done} of {len(self.parts)} parts were done before")
        return missing

    def run(self) -> int:
        """Run all that is missing, and merge; return the exit code. Raises OSError, PartsError."""
        if self.spec.is_array:
            self._read_ends()
        else:
            self._run_parts()
        if self.is_stopped:
            _say(f"stopped: {self.done} of {len(self.parts)} parts are done")
            return 128 + signal.SIGTERM
        if self.failed:
            first = min(self.failed)
            by_index = {part.index: part for part in self.parts}
            more = ", ".join(map(str, sorted(self.failed)[1:SHOWN]))
            cause = f"{len(self.failed)} of {len(self.parts)} parts failed; part {first}: "
            text = cause + self.failed[first] + (f"; also {more}" if more else "")
            _say(text)
            self._write_failure(by_index[first], text)
            return 1
        self._merge()
        return 0

    def _read_ends(self) -> None:
        """Take over how the parts have ended, each on a machine of its own."""
        ends = manifest.read(self.dir)
        for end in ends.values():
            self._count(self.parts[end.part], end)
        missing = len(self.parts) - len(ends)
        if missing:
            raise PartsError(f"{missing} of {len(self.parts)} have not ended")

    def _run_parts(self) -> None:
        """Run all that is missing, as many at once as there are lanes."""
        waiting = self.prepare()[::-1]
        while (waiting and not self.is_stopped) or self.running:
            while waiting and self.free and not self.is_stopped:
                self._start(waiting.pop())
            if self.running and signal.sigwait(SIGNALS) in STOP_SIGNALS:
                self._stop()
            self._reap()

    def _start(self, part: Part) -> None:
        part.cards = self.free.pop(0)
        try:
            part.start_from_template()
        except (OSError, ValueError) as e:
            self.free.append(part.cards)
            self._record(part, PartEnd(state="failed", cause=f"it cannot be started: {e}"))
        else:
            self.running.append(part)
            self._add_event(part, PartEvent(part=part.index, state="running"))

    def _reap(self) -> None:
        for part in [part for part in self.running if not part.is_running]:
            self.running.remove(part)
            self.free.append(part.cards)
            self._record(part, part.end())

    def _record(self, part: Part, end: PartEnd) -> None:
        end.part, end.words, end.input_sha256 = part.index, part.words, part.digest
        end.ended_at = time.time()
        if self.source is not None:
            end.source_sha256 = self.source
        manifest.add(self.dir, end)
        event = PartEvent(part=part.index, state=end.state)
        event.exit_code, event.class_name = end.exit_code, end.class_name
        event.what, event.elapsed = end.cause, end.elapsed
        self._add_event(part, event)
        self._count(part, end)

    def _count(self, part: Part, end: PartEnd) -> None:
        if end.state == "succeeded":
            self.done += 1
            _say(f"part {part.index} is done: {self.done}/{len(self.parts)}")
        else:
            if end.state == "failed" or not self.is_stopped:  # somebody has stopped this part alone
                self.failed[part.index] = end.cause or ""
            _say(f"part {part.index} {end.state}: {end.cause}; its log is {part.log}")

    def _add_event(self, part: Part, event: PartEvent) -> None:
        if part.values:
            event.values = part.values
        event_lines.add_event(self.dir, PartEvent.NAME, event.to_json())

    def _stop(self) -> None:
        self.is_stopped = True
        for part in self.running:
            part.ask_to_stop()

    def _write_failure(self, first: Part, text: str) -> None:
        """Write why the run has failed: the failure of a part, for the supervisor of the run."""
        own = first.failure() or Failure(version=1, role="root")
        failure = PartFailure.from_json(own.to_json())
        failure.what, failure.part, failure.rank, failure.attempt = text, first.index, None, None
        failure.write(self.dir)

    def _merge(self) -> None:
        merge = self.spec.merge
        if merge is None:
            return
        outputs = [part.output for part in self.parts]
        if self.spec.hosts > 1:
            pieces.check_outputs(outputs, merge.output, [part.index for part in self.parts])
            _say(
                f"the outputs of {len(outputs)} parts are here; a client merges those of all hosts"
            )
            return
        # the file behind a link: of a run with its own copy of the project it is the project's
        target = os.path.realpath(merge.output)
        if merge.command:
            pieces.check_outputs(outputs, target)
            _run(merge.command, outputs, target)
        else:
            pieces.join(outputs, merge.by, target)
        _say(f"the outputs of {len(outputs)} parts are merged in {merge.output}")


def _run(command: Sequence[str], outputs: Sequence[str], target: str) -> None:
    """Merge by a command: `{merge.inputs}` is all outputs, `{merge.output}` a file to write."""
    temporary = pieces.temporary_path(target)
    argv: list[str] = []
    for word in command:
        argv += outputs if word == "{merge.inputs}" else [word.replace("{merge.output}", temporary)]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # which its children inherit
    try:
        code = subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode
        if code:
            raise PartsError(f"`{command[0]}` ended with {code}; the outputs of the parts stay")
        os.replace(temporary, target)
    except OSError as e:
        raise PartsError(f"merge by `{command[0]}`: {e}; the outputs of the parts stay") from e
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def _say(text: str) -> None:
    sys.stdout.write(f"[safelaunch] {text}\n")
    sys.stdout.flush()


def main(node_dir: str) -> int:
    """Run the parts of a run to their end."""
    spec = FanOutSpec.read(node_dir)
    if spec is None:
        sys.stderr.write(f"{FanOutSpec.FILE} cannot be read\n")
        return 2
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    preload()
    try:
        return Coordinator(node_dir, spec).run()
    except (OSError, PartsError) as e:
        sys.stderr.write(f"[safelaunch] the parts: {e}\n")
        class_name = "disk-full" if DISK_FULL in str(e) else None
        what = f"the parts: {e}"
        PartFailure(version=1, role="root", what=what, class_name=class_name).write(node_dir)
        return 1


if __name__ == "__main__":
    code = main(os.path.abspath(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
