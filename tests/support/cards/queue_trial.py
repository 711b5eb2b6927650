"""Many starts of several users in the queue of a machine with pretended cards, some of them killed.

Each job locks a file for each of its cards: where another one has it, a card was given twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.runtime import run_state
from safelaunch.runtime.card_claims import claims
from safelaunch.runtime.records import RunRecord, Status
from support import REPOSITORY
from support.cards.pretended import PretendedCards
from support.sweeper import sweep
from support.workspace import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
# the interpreter of a test may lie where another account cannot read it; it may write nothing more
_SETPRIV = ("setpriv", *(f"--{kind}=-all,+dac_read_search" for kind in
            ("inh-caps", "ambient-caps", "bounding-set")))  # fmt: skip
CAN_CHANGE = os.geteuid() == 0 and shutil.which("setpriv") is not None
_SCRIPT = """
uuids=; for card in ${CUDA_VISIBLE_DEVICES//,/ }; do
  exec {fd}>>FOLDER/card-$card; flock -n $fd || echo $card >>FOLDER/twice
  printf '%d, GPU-%08x-0000-4000-8000-000000000000, bash, 500\\n' $$ $card
done >FOLDER/new.$$
mv FOLDER/new.$$ APPS/$$; sleep SECONDS; rm -f APPS/$$
"""


class QueueUser:
    """A user of the machine: an account where this process may choose one, else a home."""

    def __init__(self, root: Path, name: str, cards: PretendedCards, uid: int) -> None:
        self.home = root / name
        self.home.mkdir()
        self.folder = root / "project"
        self.prefix: list[str] = []  # of the commands of another account
        if uid and CAN_CHANGE:
            self.prefix = [*_SETPRIV, f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
            os.chown(self.home, uid, uid)
        own = {k: v for k, v in os.environ.items() if not k.startswith(("SAFELAUNCH_", "TMUX"))}
        places = {"HOME": str(self.home), "SAFELAUNCH_HOME": str(self.home / "safelaunch")}
        self.env = {**own, **cards.environ(), **places, "LC_ALL": "C.UTF-8"}
        self.env["PYTHONPATH"] = str(REPOSITORY)
        sweep("runs", str(self.home / "safelaunch"))

    def cli(self, *words: str, code: int | None = 0) -> str:
        """Run safelaunch as this user, and return what it prints."""
        done = subprocess.run(
            [*self.prefix, sys.executable, "-m", "safelaunch", *words],
            env=self.env, cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert code in (None, done.returncode), (words, done.stdout, done.stderr)
        return done.stdout

    def start(self, job: str, *words: str) -> str:
        """Start a job, and return its run."""
        return str(json.loads(self.cli("run", "--no-check", "--json", job, *words))["id"])

    def statuses(self) -> dict[str, Status]:
        """Return how the runs of this user are."""
        folder = self.home / "safelaunch" / "runs"
        names = os.listdir(folder) if folder.exists() else []
        return {name: run_state.current_status(str(folder / name / "node-0")) for name in names}

    def record(self, run: str) -> RunRecord:
        """Return run.json of a run."""
        node = self.home / "safelaunch" / "runs" / run / "node-0"
        return RunRecord.read(str(node)) or RunRecord()


class Outcome(NamedTuple):
    """How a trial ended."""

    starts: int
    succeeded: int
    killed: int  # supervisors
    wrong: list[str]  # runs that ended otherwise, cards that were given twice
    handovers: list[float]  # seconds from the end of one run to the start of the next on its cards


class Machine:
    """A machine with pretended cards and two users."""

    def __init__(self, root: Path, count: int = 4) -> None:
        root.chmod(0o755)
        self.root = root
        self.cards = PretendedCards(root, count)
        self.marks = root / "marks"
        self.marks.mkdir()
        self.marks.chmod(0o1777)
        (root / "project").mkdir()
        self.users = [
            QueueUser(root, "first", self.cards, 0),
            QueueUser(root, "second", self.cards, NOBODY),
        ]

    def job(self, count: int, seconds: float = 0.1) -> str:
        """Write a job that has so many cards for so long; return its file."""
        words = {"FOLDER": self.marks, "APPS": self.cards.apps, "SECONDS": seconds}
        script = _SCRIPT
        for word, value in words.items():
            script = script.replace(word, str(value))
        command = ["bash", "-c", f"umask 0\n{script}"]
        name = f"cards-{count}-{str(seconds).replace('.', '-')}"
        job = {"launcher": "command", "command": command, "gpus": count, "queue": True}
        (self.root / "project" / f"{name}.yaml").write_text(json.dumps(job))
        return f"{name}.yaml"

    def live(self) -> list[claims.Claim]:
        """Return the claims of runs that live."""
        return claims.live(str(self.cards.claims))

    def statuses(self) -> dict[str, Status]:
        """Return how all runs of both users are."""
        return {run: status for user in self.users for run, status in user.statuses().items()}

    def trial(self, starts: int, kills: int = 0, seed: int = 0, patience: float = 600.0) -> Outcome:
        """Start so many jobs of both users at once, kill some supervisors, and wait for all.

        The cards are busy until all are in the queue.
        """
        self.cards.use(os.getpid(), *range(self.cards.count))
        chance = random.Random(seed)  # noqa: S311 - no secret
        sizes = [chance.choice((1, 1, 1, 2, 2, self.cards.count)) for _ in range(starts)]
        jobs = [self.job(size, 0.05) for size in sizes]
        killed: list[str] = []
        over = threading.Event()
        killer = threading.Thread(target=self._kill, args=(kills, chance, killed, over))
        killer.start()
        try:
            with ThreadPoolExecutor(4) as pool:
                pairs = [(self.users[at % 2], job) for at, job in enumerate(jobs)]
                runs = list(pool.map(lambda pair: pair[0].start(pair[1]), pairs))
            self.cards.use(os.getpid())
            wait_for(lambda: not self.live(), "an empty queue", patience)
        finally:
            over.set()
            killer.join()
        statuses = wait_for(lambda: self._ended(runs), "an end of all runs", patience)
        wrong = [f"{run}: {statuses[run].state} ({statuses[run].reason})" for run in runs
                 if run not in killed and statuses[run].state != "succeeded"]  # fmt: skip
        twice = self.marks / "twice"
        if twice.exists():
            wrong += [f"card {card} was given twice" for card in twice.read_text().split()]
        succeeded = sum(statuses[run].state == "succeeded" for run in runs)
        return Outcome(starts, succeeded, len(killed), wrong, self.handovers(runs, statuses))

    def end(self) -> None:
        """End what is left of all runs."""
        for user in self.users:
            for run, status in user.statuses().items():
                if status.state not in run_state.ENDED:
                    user.cli("stop", run, code=None)

    def _ended(self, runs: list[str]) -> dict[str, Status] | None:
        statuses = self.statuses()
        is_over = all(statuses[run].state in (*run_state.ENDED, "lost") for run in runs)
        return statuses if is_over else None

    def _kill(
        self, kills: int, chance: random.Random, killed: list[str], over: threading.Event
    ) -> None:
        """Kill the supervisors of runs that have cards, and of runs that wait."""
        while len(killed) < kills and not over.wait(chance.uniform(0.05, 0.5)):
            live = [claim for claim in self.live() if claim.file.run not in killed]
            if live:
                claim = chance.choice(live)
                killed.append(claim.file.run)
                try:
                    os.kill(claim.record.pid, signal.SIGKILL)
                except ProcessLookupError:
                    killed.pop()

    def handovers(self, runs: list[str], statuses: dict[str, Status]) -> list[float]:
        """Return the seconds from one run's end to the start of the next on its cards.

        Of runs that waited then: from the last end of those that had its cards before.
        """
        records = {run: user.record(run) for user in self.users for run in user.statuses()}
        began = {run: s.started_at for run in runs if (s := statuses[run]).started_at is not None}
        order = sorted(began, key=lambda run: began[run])
        last: dict[str, float | None] = {}
        result = []
        for run in order:
            ends = [last[card] for card in records[run].gpus or () if card in last]
            earlier = [end for end in ends if end is not None]
            if earlier and len(earlier) == len(ends):
                pause = began[run] - max(earlier)
                if max(earlier) > (records[run].created_at or 0.0) + 1.0:
                    result.append(max(pause, 0.0))
            for card in records[run].gpus or ():
                last[card] = statuses[run].ended_at
        return result


@contextlib.contextmanager
def machine(count: int) -> Iterator[Machine]:
    """Yield a machine with so many cards, in a folder that other users may see."""
    folder = Path(tempfile.mkdtemp(prefix="safelaunch-cards-"))
    shared = Machine(folder, count)
    try:
        yield shared
    finally:
        shared.end()
        shutil.rmtree(folder)
