"""One part of a run: a member whose supervisor is forked, not started anew."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import time

from safelaunch.runtime import members, processes, run_state
from safelaunch.runtime.members.member import Member
from safelaunch.runtime.parts import TEMPLATE, manifest, preparation
from safelaunch.runtime.records import RunRecord
from safelaunch.runtime.start import start_probe
from safelaunch.runtime.start.placeholders import UNBOUND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.runtime.records import PartEnd

GRACE_OF_REST = 2.0  # seconds between TERM and KILL of what a killed supervisor has left
SEED = 1009  # between the ports that are searched for two parts
# in two containers with one network the pids of supervisors are often the same
_CHANCE = int.from_bytes(os.urandom(4), "big")


def preload() -> None:
    """Import what the supervisor of a part needs, once for all parts."""
    from safelaunch.runtime.supervise import supervisor  # noqa: PLC0415 - programs of a part only

    for name in supervisor.LATE:
        importlib.import_module(name)


class Part(Member):
    """A part, and the values of its words."""

    def __init__(self, node_dir: str, index: int, words: Mapping[str, str], umask: int) -> None:
        super().__init__(node_dir, f"part-{index}", umask)
        self.index = index
        self.words = dict(words)
        start = "matrix."
        self.values = {k[len(start) :]: v for k, v in self.words.items() if k.startswith(start)}
        self.digest = ""  # of its input
        self.cards = ""
        self.input = preparation.input_path(node_dir, index)
        self.output = preparation.output_path(node_dir, index)
        self.log = os.path.join(self.dir, "logs", "attempt-1", "combined.log")

    def start_from_template(self) -> None:
        """Start it, with the files of all parts. Raises OSError, ValueError."""
        template = os.path.join(members.folder(self.run_dir, TEMPLATE), "node-0")
        shutil.copyfile(
            os.path.join(template, RunRecord.FILE), os.path.join(self.dir, RunRecord.FILE)
        )
        link = os.path.join(self.dir, UNBOUND)
        if not os.path.lexists(link):
            os.symlink(os.path.join(template, UNBOUND), link)
        port = start_probe.free_port(_CHANCE + self.index * SEED)
        own = {"run-dir": self.dir, "port": str(port or 1)}
        values = {"input": self.input, "output": self.output, "cards": self.cards or "none"}
        self.start(
            {**own, **self.words, **{f"shard.{name}": text for name, text in values.items()}}
        )

    def _supervise(self) -> None:
        from safelaunch.runtime.supervise import supervisor  # noqa: PLC0415 - see preload

        code = supervisor.main(self.dir, os.umask(0o077), is_forked=True)
        sys.stderr.flush()
        os._exit(code)

    def _end_rest(self) -> None:
        """End what is left of a part whose supervisor is gone."""
        late = time.monotonic() + GRACE_OF_REST

        def left() -> dict[int, int]:
            # not yet in its record, where the supervisor was killed right after the start
            return {**processes.of_node(self.dir), **run_state.recorded(self.dir)}

        processes.end_all(left, lambda: time.monotonic() >= late)

    def end(self) -> PartEnd:
        """Return how it has ended."""
        status, failure = self.status(), self.failure()
        if status.state not in run_state.ENDED:
            self._end_rest()
        return manifest.end_of(status, failure)
