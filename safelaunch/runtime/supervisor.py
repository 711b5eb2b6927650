"""Owns one node of a run: starts launch.sh, follows its logs, ends it, and records how it ended.

    python -I -S -B supervisor.py NODE_DIR

A child subreaper: whatever the run starts, also detached, becomes its child, and wait() -> ECHILD
proves that none is left. TERM or INT stops the job, HUP is ignored. It reads run.json; journal.py
does all writing; attempt.py knows the processes; outcome.py says how an attempt ended.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
import time

# in a run directory the package lies below runtime/, and nothing else is on the path
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir)))

from safelaunch.runtime import attempt, held, journal, launch, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.runtime.observe import Observer

SAVE_PATIENCE = 3600  # seconds in which the end is written again and again to a disk that is full
OBSERVERS = ("memory", "samples", "cap", "progress", "watchdog", "evidence", "observe")
AGAIN = "launch.%d.sh"  # the script of attempt n, beside launch.sh


class Supervisor(object):
    """One node's run from start to end, over all its attempts."""

    def __init__(self, node_dir: str, run: dict[str, Any], umask: int, *, subreaper: bool) -> None:
        self.dir = node_dir
        self.run = run
        self.umask = umask  # the caller's: the job's own files are none of our business
        self.subreaper = subreaper
        self.control = attempt.Control(node_dir)
        self.journal = journal.Journal(node_dir, run)
        if not subreaper:
            note = "detached processes are found by their mark only"
            self.journal.event("no-subreaper", note=note)
        self.attempts: list[dict[str, Any]] = []
        self.began = time.monotonic()
        self.observer: Observer | None = None
        self.journal.begin(1)
        self.current = self._attempt(1)

    def _attempt(self, number: int) -> attempt.Attempt:
        return attempt.Attempt(
            number, self.dir, self.run, self.journal, self.control, subreaper=self.subreaper
        )

    # -- start ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start launch.sh. Raises OSError, with nothing started."""
        self.journal.open()
        self._begin(os.path.join(self.dir, "launch.sh"), {})
        said = "[safelaunch] %s: Ctrl-B D leaves it running, Ctrl-C stops it\r\n" % self.run["id"]
        self.journal.show(said.encode())

    def _begin(self, script: str, details: dict[str, Any]) -> None:
        self.current.start(script, self.umask)
        launcher = {"pid": self.current.launcher, "start": self.current.launcher_start}
        number, now = self.current.number, time.time()
        self.attempts.append(dict(details, attempt=number, started_at=now))
        self.journal.status.update(state="running", launcher=launcher, attempts=self.attempts)
        self.journal.status.setdefault("started_at", now)
        self.journal.status.pop("waiting", None)
        self.journal.save()
        self.journal.event("started", attempt=number, launcher=launcher["pid"])

    # -- attempts ------------------------------------------------------------------------------

    def run_attempts(self, wakeup: int) -> None:
        """Follow the attempts until one ends for good."""
        try:
            held.hold()
        except OSError as e:
            self.journal.broken("memory of its own files", e)
        for part in OBSERVERS:  # once the job is on its way; meanwhile ranks may come and go
            importlib.import_module("safelaunch.runtime." + part)
            self.current.exits.look()
        from safelaunch.runtime import observe  # noqa: PLC0415 - as above

        self.observer = observe.Observer(self.dir, self.run, self.journal)
        while True:
            self.observer.begin(self.current)
            self.current.follow(wakeup, self.observer)
            decision = self._judge()
            if decision is None:
                return
            if not self._wait(decision, wakeup):
                self._stopped_by(self.control.signals[0])
                return
            if not self._again(decision):
                return

    def _judge(self) -> dict[str, Any] | None:
        """Record how the attempt ended; return what comes next, None for the end of the run."""
        from safelaunch.runtime import outcome  # noqa: PLC0415 - as observe

        assert self.observer is not None  # noqa: S101 - begin() made it
        try:
            found = outcome.of(self.dir, self.run, self.current, self.observer, self.attempts)
        except Exception as e:  # noqa: BLE001 - an end must be told, whatever we make of it
            self.journal.broken("judgement", e)
            code = self.current.outcome()["exit_code"]
            ended = "stopped" if self.control.signals else "succeeded" if code == 0 else "failed"
            self.journal.status.update(state=ended, exit_code=code)
            return None
        for warning in found.warnings:
            self.journal.warn(warning)
        status = self.journal.status
        status.update(found.status)
        if found.failure is None:
            return None
        self.journal.fail(found.failure)
        brief = {k: found.failure.get(k) for k in ("class", "rank", "what")}
        self.journal.event("failed", attempt=self.current.number, **brief)
        if status["state"] != "failed":
            return None
        decision = found.decide()
        self.attempts[-1]["next"] = decision["why"]
        if decision["action"] != "restart":
            if self.run.get("recovery"):
                self.journal.event("no-restart", why=decision["why"])
                status["recovery"] = decision["why"]
            return None
        return decision

    def _wait(self, decision: dict[str, Any], wakeup: int) -> bool:
        """Wait before a restart; False if the run was stopped meanwhile."""
        until = time.monotonic() + decision["delay"]
        waiting = {"until": time.time() + decision["delay"], "why": decision["why"]}
        self.journal.status.update(state="running", waiting=waiting)
        self.journal.save()
        self.journal.event("restarting", **{k: decision[k] for k in ("delay", "rung", "why")})
        said = "[safelaunch] %s; attempt %d in %.0f s\n"
        number = self.current.number + 1
        self.journal.log((said % (decision["why"], number, decision["delay"])).encode())
        while not self.control.signals:
            left = until - time.monotonic()
            if left <= 0:
                return True
            ready, _, _ = select.select([wakeup], [], [], left)
            if ready:
                os.read(wakeup, 4096)
        return False

    def _again(self, decision: dict[str, Any]) -> bool:
        """Start the next attempt; False, with the run ended, where that fails."""
        number = self.current.number + 1
        try:
            script, port = self._script(number, decision["rung"])
            self.journal.begin(number)
            self.current = self._attempt(number)
            self._begin(script, {"rung": decision["rung"], "port": port})
        except (OSError, ValueError) as e:
            self.journal.warn("attempt %d cannot be started: %s" % (number, e))
            self.journal.status["state"] = "failed"
            return False
        for key in ("ended_at", "exit_code", "signal", "reason", "leftovers", "hang", "elapsed"):
            self.journal.status.pop(key, None)
        self.journal.status["exit_code"] = None
        self.journal.save()
        return True

    def _script(self, number: int, rung: int) -> tuple[str, int | None]:
        """Write the script of a later attempt, with a fresh port. Raises OSError, ValueError."""
        again = self.run.get("again")
        if not again:
            raise ValueError("run.json has no script for it")
        name = again["scripts"][min(rung, len(again["scripts"]) - 1)]
        with open(os.path.join(self.dir, name), "rb") as file:
            text = file.read()
        token, port = str(again["token"]).encode(), None
        if token in text:
            from safelaunch.runtime import probe  # noqa: PLC0415 - only here

            port = probe.free_port(os.getpid() * 31 + number * 997)
            if port is None:
                raise ValueError("no free port")
            text = text.replace(token, b"%d" % port)
        path = os.path.join(self.dir, AGAIN % number)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
        with os.fdopen(fd, "wb") as out:
            out.write(text)
        return path, port

    # -- end -----------------------------------------------------------------------------------

    def _stopped_by(self, name: str) -> None:
        self.journal.status.update(state="stopped", stopped_by=name)

    def finish(self) -> None:
        """Write the last lines and the end."""
        status = self.journal.status
        if self.current.children_left and "unkillable" not in status:
            # another user's, under hidepid: wait() says that there is one, /proc does not show it
            self.journal.warn("a process is left that this user cannot see")
        if status["state"] == "succeeded":  # any other end has a cause of its own
            self.journal.count_ranks(self.current.number)
        status.pop("waiting", None)
        # the clock may have been set meanwhile: how long it ran is counted, not subtracted
        status.update(ended_at=time.time(), elapsed=round(time.monotonic() - self.began, 3))
        self.journal.restore(self.current.seen)
        self.journal.event("ended", state=status["state"], exit_code=status.get("exit_code"))
        said = "\r\n[safelaunch] %s: %s\r\n" % (self.run["id"], status["state"])
        self.journal.show(said.encode())
        self.journal.pane.finish()
        self._save_end()
        state.drop_socket(self.run.get("socket"))

    def _save_end(self) -> None:
        told = len(self.control.signals)
        for _ in range(SAVE_PATIENCE):
            # a signal now asks again to stop, and there is nothing else left to do
            if self.journal.save_end() or len(self.control.signals) > told:
                return
            time.sleep(1.0)


def _signals(control: attempt.Control) -> int:
    """Install the handlers; return a descriptor that becomes readable with each signal."""
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def stop(signum: int, frame: object) -> None:
        del frame
        control.signals.append(signal.Signals(signum).name)

    def ignore(signum: int, frame: object) -> None:
        """Do nothing."""

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # TSTP: Ctrl-Z in the pane would stop the supervisor, and nobody could wake it
    for name in ("SIGHUP", "SIGPIPE", "SIGQUIT", "SIGCHLD", "SIGTSTP"):
        signal.signal(getattr(signal, name), ignore)
    return reader


def main(node_dir: str, umask: int) -> int:
    """Run one node to its end. Exit 0: the end was recorded, whatever it was."""
    log = os.open(os.path.join(node_dir, "supervisor.log"), journal.LOG_FLAGS, 0o600)
    os.dup2(log, 2)
    os.close(log)
    run = state.read_json(os.path.join(node_dir, "run.json"))
    if run is None:
        sys.stderr.write("run.json cannot be read\n")
        return 1
    parent = run.get("foreground")
    dies_with = launch.PR_SET_PDEATHSIG
    if parent and launch.prctl(dies_with, signal.SIGTERM) and os.getppid() != parent:
        return 1  # the client died before we could ask to be told
    if not state.claim(node_dir):
        sys.stderr.write("the start was called off\n")
        state.drop_socket(run.get("socket"))
        return 1
    subreaper = launch.prctl(launch.PR_SET_CHILD_SUBREAPER, 1)
    try:
        supervisor = Supervisor(node_dir, run, umask, subreaper=subreaper)
        wakeup = _signals(supervisor.control)
        supervisor.start()
    except OSError as e:
        sys.stderr.write("the job cannot be started: %s\n" % e)
        state.drop_socket(run.get("socket"))
        return 1
    supervisor.run_attempts(wakeup)
    supervisor.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), os.umask(0o077)))
