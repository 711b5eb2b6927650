"""Finds which rank of a failed attempt, or the launcher, failed first: what, which class and role.

A failure that comes first is the cause; one that only follows (a peer lost, a signal from the
launcher's agent) is a cascade, whenever it was noted. Reads tails of logs; never raises.
"""

from __future__ import annotations

from safelaunch.runtime.failure import dataloader, elastic_report, last_words, log_tails
from safelaunch.runtime.monitor import oom_kills
from safelaunch.runtime.signatures import advice, classes
from safelaunch.runtime.units import size, starter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.runtime.failure.log_tails import RaisedException
    from safelaunch.runtime.failure.rank_ends import ProcessEnd
    from safelaunch.runtime.monitor.oom_kills import Kills
    from safelaunch.runtime.signatures.classes import Match
    from safelaunch.runtime.signatures.table import Signature

ORDER = {"root": 0, "unknown": 1, "cascade": 2}
LAST_LINES = 60  # lines of a log that are searched for what a process ended with
REFINED = 4  # ranks whose logs are searched for what their exceptions do not show
SECOND = 10**9  # ns
LAST = 1 << 63  # later than any time in ns
# what torchrun's agent, or the supervisor, sends to the other ranks once one has failed
FROM_AGENT = ("SIGTERM", "SIGKILL", "SIGINT", "SIGHUP")
# and how a rank ends itself when its NCCL watchdog finds another gone
FOLLOWING = (*FROM_AGENT, "SIGABRT")
# classes of what native code aborts for
ABORTS = ("nccl-", "cuda-", "device-", "peer-", "host-oom")
AT_ONCE = ("SIGTERM", "SIGINT", "SIGHUP")
LAG = 5 * 10**8  # ns after its peers' failures in which a rank is seen dead that had caused them
PATIENCE = 5 * SECOND  # torchrun waits 30 s between SIGTERM and SIGKILL, our own grace is 5 s
INTERRUPTS = ("KeyboardInterrupt", "SignalException")
# failures that another rank's absence alone may cause
PEER_MISSING = ("peer-lost", "nccl-timeout", "nccl-unhandled-error")
STARTED = ("CalledProcessError", "ChildFailedError", "ProcessExitedException")
ULIMIT = "`ulimit` allows the process"
STARTED_BY = "in a process that it had started"
LEFT = "had ended with code 0"
_SIGNALS = {
    "SIGSEGV": "segmentation fault (SIGSEGV)",
    "SIGABRT": "aborted (SIGABRT)",
    "SIGBUS": "bus error (SIGBUS)",
    "SIGFPE": "arithmetic fault (SIGFPE)",
    "SIGILL": "illegal instruction (SIGILL)",
    "SIGKILL": "killed (SIGKILL)",
    "SIGINT": "interrupted (SIGINT)",
}


class ProcessFailure:
    """How one rank, or the launcher (rank None), failed."""

    def __init__(self, end: ProcessEnd) -> None:
        self.rank = None if end.rank < 0 else end.rank
        self.end = end
        self.log = end.log
        self.name = classes.USER
        self.signature: Signature | None = None
        self.role = "unknown"
        self.what = ""
        self.time_ns = end.time_ns
        self.error = end.error
        self.code = end.code
        self.signal = end.signal
        self.is_likely = False  # the class is read from what only stands near the end
        self.proof: str | None = None
        self.left_early = False  # it ended well, and too early
        self.advice = ""  # what to do about this one; "" for what its class says
        self.owns_log = False  # nobody else writes there, but a launcher at its end

    def add_match(self, match: Match) -> None:
        """Take over class and signature of a match."""
        self.name, self.signature = match.name, match.signature

    @property
    def recognised(self) -> Signature | None:
        """The signature by which the class is known, None where something else shows it."""
        return self.signature if self.signature and self.signature.name == self.name else None

    @property
    def cut_off(self) -> bool:
        """Whether a signal of an agent ended it before more than the type was recorded."""
        return self.error is not None and not self.error.traceback and self.end.signal in FROM_AGENT

    @property
    def memory_limit(self) -> str:
        """What was exhausted, where that was not the memory of the machine, or ""."""
        if self.name != "host-oom" or not self.proof:
            return ""
        if self.proof.startswith(ULIMIT):
            return advice.MEMORY_LIMIT
        return advice.GROUP_LIMIT if oom_kills.is_of_group(self.proof) else ""

    @property
    def order(self) -> tuple[int, int, bool, int]:
        """Sort key, the first cause first: role, then time, then what torchrun says, then rank."""
        end, time_ns = self.end, self.time_ns if self.time_ns > 0 else LAST
        if end.is_rounded and time_ns == end.died_ns:
            time_ns += SECOND
        return ORDER[self.role], time_ns, not end.named_first, end.rank


def blame(role: str | None, time: float | None) -> tuple[int, float]:
    """Return a sort key for failures of several nodes: the least is the one to blame."""
    return ORDER.get(role or "", ORDER["unknown"]), time if time and time > 0 else float("inf")


def describe_signal(signal: str) -> str:
    """Return `segmentation fault (SIGSEGV)`, `ended by SIGTERM`."""
    return _SIGNALS.get(signal, f"ended by {signal}")


def one_line(text: str, limit: int = 300) -> str:
    """Return text on one line, at most `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 4] + " ..."


def describe_exception(error: RaisedException, limit: int = 300) -> str:
    """Return `ValueError: bad batch 17`, and in which worker it was."""
    kind = error.type or "exception"
    where = f" ({error.where})" if error.where else ""
    text = f"{kind}: {error.message}" if error.message else kind
    return one_line(text, limit - len(where)) + where


def rank_failures(ends: list[ProcessEnd], kills: Kills, alone: bool) -> list[ProcessFailure]:
    """Return how each failed rank failed, the one to blame first.

    `alone`: there is one rank only, so that the launcher's log is its own.
    """
    failed = [end for end in ends if end.failed]
    failures = []
    for end in failed:
        failure = ProcessFailure(end)
        failure.owns_log = alone or end.log.endswith(f"rank-{end.rank}.log")
        error = failure.error
        if error is None and end.code == 1 and not end.recorded:
            error = _exception_in_log(failure)
        if error is not None and failure.owns_log:
            error = _started_process_error(error, failure)
        if error is not None:
            failure.error = log_tails.unwrapped(error)
            others = [other for other in failed if other is not end]
            _from_exception(failure, failure.error, _is_first(end, others), kills)
        failures.append(failure)
    # ends without exception come last: an exception that only lost its peer does not explain them
    firm = [f.end for f in failures if f.error is None or f.role != "cascade"]
    for failure in failures:
        if failure.error is None:
            earlier = _explaining(failure.end, failed, firm)
            _from_end(failure, [end for end in earlier if end is not failure.end], kills)
    return _in_order(failures)


def _in_order(failures: list[ProcessFailure]) -> list[ProcessFailure]:
    """Return failures, the one to blame first, after another look at those without a root."""
    failures.sort(key=lambda failure: failure.order)
    if failures and failures[0].role != "root":
        for failure in failures[:REFINED]:
            if failure.error is not None and failure.name != classes.USER:
                _refine(failure)
    if all(failure.role != "root" for failure in failures):
        earliest = min(failures, key=lambda failure: failure.order[1:], default=None)
        if earliest and earliest.cut_off:
            earliest.role = "unknown"
    return sorted(failures, key=lambda failure: failure.order)


def _explaining(
    end: ProcessEnd, failed: list[ProcessEnd], firm: list[ProcessEnd]
) -> list[ProcessEnd]:
    """Return those whose failure explains the end of a rank, where it came earlier.

    An agent sends SIGTERM as soon as anything failed, and SIGKILL much later to what still runs.
    """
    if end.signal in AT_ONCE:
        return failed
    if end.signal == "SIGKILL":
        late = end.time_ns - PATIENCE
        return firm + [other for other in failed if 0 < other.time_ns < late and other not in firm]
    return firm


def _is_first(end: ProcessEnd, others: list[ProcessEnd]) -> bool:
    """Whether no other failure was noted earlier; False where its own time is unknown."""
    if end.signal in AT_ONCE and not end.named_first:
        # what an agent sends itself is no cause: within a second of torchrun's own times, or where
        # a busy machine showed both ends at once
        slack = SECOND if end.is_rounded else 1
        if any(
            0 < other.time_ns < end.time_ns + slack
            for other in others
            if other.signal not in AT_ONCE
        ):
            return False
    return end.time_ns > 0 and all(not 0 < other.time_ns < end.time_ns for other in others)


def _from_exception(
    failure: ProcessFailure, error: RaisedException, first: bool, kills: Kills
) -> None:
    failure.what = describe_exception(error)
    match = classes.classify_exception(error.type or "exception", error.message, error.traceback)
    failure.add_match(match)
    failure.role = match.role
    if error.short_type in INTERRUPTS:
        failure.name, failure.role = "killed-by-signal", "root" if first else "cascade"
    if failure.name == "dataloader-worker-killed":
        _find_worker_kill(failure, error.message, kills)
    if failure.name == "host-oom" and not failure.proof:
        _find_memory_limit(failure, error)
    _find_killed_worker(failure, kills)
    if failure.cut_off:
        failure.role = "cascade"  # without its message it explains no other
    elif failure.role not in ORDER:
        failure.role = "unknown"


def _find_memory_limit(failure: ProcessFailure, error: RaisedException) -> None:
    """Look whether a limit of the process itself, not the machine, refused it memory."""
    limit = error.memory_limit
    if limit is not None and limit < oom_kills.machine_memory():
        failure.proof = f"{ULIMIT} {size(limit)} of memory"


def _find_worker_kill(failure: ProcessFailure, message: str, kills: Kills) -> None:
    """Look for proof that a DataLoader worker was killed for memory."""
    workers = dataloader.worker_pids(message)
    failure.proof = oom_kills.proof(kills, workers, failure.end.pid)
    failure.name = "host-oom" if failure.proof else failure.name


def _from_end(failure: ProcessFailure, others: list[ProcessEnd], kills: Kills) -> None:
    end = failure.end
    first = _is_first(end, others) or (end.from_outside and end.signal in AT_ONCE)
    if not end.signal:
        _from_exit(failure, end, first)
        return
    failure.what = describe_signal(end.signal)
    failure.name = "killed-by-signal"
    failure.role = "root" if first else "unknown"
    if end.signal == "SIGKILL":
        failure.proof = oom_kills.proof(kills, [end.pid])
        failure.name = "host-oom" if failure.proof else "killed"
    elif end.signal == "SIGABRT":
        match = _from_abort(failure)
        first = first and (match is None or match.role != "cascade")
    if failure.proof:
        failure.what, failure.role = "killed (SIGKILL): out of memory", "root"
    elif others and not first and end.signal in FOLLOWING:
        failure.role = "cascade"
    elif first and end.signal in AT_ONCE:
        failure.what += " from outside the run"


def _from_abort(failure: ProcessFailure) -> Match | None:
    """Take the class from what the process wrote as it aborted; return what shows it."""
    lines = _end_lines(failure)
    message = last_words.abort_message(lines)
    text = "\n".join(message)
    match = classes.classify(text) if message else last_words.cause(lines[-last_words.LAST :])
    if match is not None and match.name.startswith(ABORTS):
        failure.add_match(match)
        failure.is_likely = not message
        failure.what = one_line(f"{failure.what}: {match.line}")
        return match
    if message:
        shown = next((line for line in message if "what(): " in line), message[-1])
        failure.what = one_line(f"{failure.what}: {shown.strip()}")
    return None


def _own_lines(failure: ProcessFailure, size: int) -> list[str]:
    """Return the lines of a rank at the end of its log, as far as prefixes show whose they are."""
    text = elastic_report.before_agent(log_tails.read(failure.log, size))
    return last_words.lines_of(text, None if failure.owns_log else failure.rank)


def _end_lines(failure: ProcessFailure) -> list[str]:
    """Return what a rank has written since its last step, at the end of its log."""
    return last_words.since_last_step(_own_lines(failure, log_tails.CLASSIFIED))


def _exception_in_log(failure: ProcessFailure) -> RaisedException | None:
    """Return the last exception in a rank's log, if the rank made no step after it."""
    error = log_tails.exception(failure.log, None if failure.owns_log else failure.rank)
    if error is None or not failure.owns_log:
        return error
    lines = _own_lines(failure, log_tails.TAIL)
    rest = last_words.since_last_step(lines)
    went_on = len(rest) < len(lines) and log_tails.last_exception("\n".join(rest)) is None
    return None if went_on else error


def _find_killed_worker(failure: ProcessFailure, kills: Kills) -> None:
    """Name the DataLoader worker whose death an exception of its rank only follows."""
    if failure.error is None or not dataloader.lost_worker(failure.error):
        return
    message = dataloader.message(_end_lines(failure))
    match = classes.classify(message)
    if match is not None:
        failure.add_match(match)
        failure.role, failure.what = match.role, one_line(message)
        _find_worker_kill(failure, message, kills)


def _started_process_error(error: RaisedException, failure: ProcessFailure) -> RaisedException:
    """Return what failed in a process that the rank had started, else the rank's own exception.

    `subprocess.run(check=True)` shows a status; the process itself has shown more, just before.
    """
    if error.short_type not in STARTED:
        return error
    last = log_tails.last_exception("\n".join(_end_lines(failure)[-LAST_LINES:]))
    if last is None:
        return error
    last.time_ns, last.where = error.time_ns, STARTED_BY
    return last


def _from_exit(failure: ProcessFailure, end: ProcessEnd, first: bool) -> None:
    how = ""
    if end.is_orderly:
        how = " (sys.exit)"
    elif end.recorded:
        how = " at once (os._exit or native exit)"
    failure.what = f"exited with code {end.code}{how}"
    failure.role = "root" if first else "unknown"
    lines = _end_lines(failure)[-LAST_LINES:]
    shown = [line.strip() for line in lines if line.strip()]
    error = log_tails.last_exception("\n".join(lines)) if failure.owns_log else None
    match = last_words.cause(lines)
    if error is not None:  # the program caught it, showed it, and gave up
        exited = failure.what
        _from_exception(failure, error, first, oom_kills.Kills())
        failure.error = error
        failure.what = f"{exited} after {failure.what}"
    elif match is not None and (
        match.role == "root" or (failure.owns_log and match.role == "unknown")
    ):
        failure.add_match(match)
        failure.is_likely = match.line not in shown[-1:]
        failure.role = match.role if not first else failure.role
        failure.what = one_line(f"{failure.what}: {match.line}")
    elif shown and end.is_orderly and end.code == 1 and failure.owns_log:
        # sys.exit("text") prints its text last
        failure.what = one_line(f"{failure.what}; its last line: {shown[-1]}")


def _refine(failure: ProcessFailure) -> None:
    """Take the class from what libraries have logged of a cause; the exception stays what it is."""
    lines = last_words.library_lines(_end_lines(failure))
    match = classes.classify("\n".join(lines))
    if match is not None and match.role == "root":
        failure.add_match(match)
        failure.role = "unknown" if failure.role == "cascade" else failure.role


# -- the launcher ----------------------------------------------------------------------------------


def launcher_failure(end: ProcessEnd, kills: Kills) -> ProcessFailure:
    """Return how a launcher failed that did not end well."""
    failure = ProcessFailure(end)
    failure.role = "root"
    signal = failure.signal = launcher_signal(end)
    if not signal:
        _from_launcher_log(failure)
        return failure
    failure.name = "killed-by-signal"
    how = describe_signal(signal)
    name = starter(end.start)
    failure.what = f"{name} was {how if how.startswith('killed') else f'ended by {signal}'}"
    if signal == "SIGKILL":
        failure.name = "killed"
        # a code above 128 is that of a shell, for one of its children
        failure.proof = oom_kills.proof(kills, [end.pid] if end.signal else kills.run, end.pid)
        if failure.proof:
            failure.name, failure.what = "host-oom", f"{name} was killed: out of memory"
    return failure


def _from_launcher_log(failure: ProcessFailure) -> None:
    # the run directory's own path is long, and says nothing
    node_dir = failure.log.rsplit("/logs/attempt-", 1)[0]
    text = log_tails.read(failure.log, log_tails.CLASSIFIED).replace(node_dir + "/", "")
    lines = last_words.since_last_step(last_words.lines_of(text, None))
    match = classes.classify("\n".join(lines))
    failure.error = log_tails.exception(failure.log)
    if match is not None and match.role != "warning":
        failure.add_match(match)
        failure.role = match.role
        failure.what = one_line(match.line)
    elif failure.error is not None:
        failure.what = one_line(f"{failure.error.type}: {failure.error.message}")
    else:
        lines = [line for line in log_tails.last_lines(text) if line.strip()]
        failure.what = f"{starter(failure.end.start)} exited with code {failure.code}"
        if lines:
            failure.what = one_line(f"{failure.what}: {lines[-1]}")


def exit_signal(end: ProcessEnd) -> str:
    """Return the signal that ended a process, also by its exit code as shells count it, or "".

    A code of start_ranks.py may be that of a rank; it dies of its own signals.
    """
    if end.start is not None:
        return end.signal
    if not end.signal and end.code is not None and 128 < end.code <= 128 + 64:  # noqa: PLR2004
        return elastic_report.signal_name(end.code - 128)
    return end.signal


def launcher_signal(end: ProcessEnd) -> str:
    """Return the signal that ended a launcher, or "": its status, its code, or its own log."""
    signal = exit_signal(end)
    if signal or not end.code or end.start is not None:
        return signal
    for line in log_tails.last_lines(log_tails.read(end.log), LAST_LINES):
        _, prefix, rest = line.partition("SignalException: Process ")
        number = rest.rpartition("got signal: ")[2].strip() if prefix else ""
        if number.isdigit():
            return elastic_report.signal_name(int(number))
    return ""


def ended_by_job(end: ProcessEnd, succeeded: bool, kills: Kills) -> bool:
    """Whether a signal that others send ended a rank of a job that then ended well itself.

    SIGKILL counts only where another rank `succeeded`, and memory was not the reason: a shell may
    have lost the status of the one program that counts.
    """
    if end.error is not None:
        return end.error.short_type in INTERRUPTS
    signal = exit_signal(end)
    if signal == "SIGKILL" and succeeded:
        return oom_kills.proof(kills, [end.pid] if end.pid else kills.run) is None
    return signal in AT_ONCE


def unseen_end(ends: Iterable[ProcessEnd]) -> list[ProcessFailure]:
    """Return the one rank that ended without exception, shutdown or a code that anybody saw."""
    unseen = [end for end in ends if end.recorded and not end.is_orderly and end.code is None]
    if len(unseen) != 1:
        return []  # of several an agent may have ended all but one
    failure = ProcessFailure(unseen[0])
    failure.what = "ended at once, with a code that nobody saw (os._exit, a signal, native code)"
    return [failure]


def left_early(ends: Iterable[ProcessEnd], failures: list[ProcessFailure]) -> list[ProcessFailure]:
    """Return the ranks that had ended with 0 when the others lost them, the first one first.

    None where one of the others has a cause of its own.
    """
    if not failures or not all(map(_may_miss_a_peer, failures)):
        return []
    lost = min([failure.time_ns for failure in failures if failure.time_ns] or [0])
    ranks = {failure.rank for failure in failures}  # another step of the same rank is no peer
    # a process closes its connections before it is seen dead; os._exit leaves no earlier record
    is_lost = all(f.role == "cascade" or f.name in PEER_MISSING for f in failures)
    limit = lost + (LAG if lost and is_lost else 0)
    early = [
        end
        for end in ends
        if 0 < end.finished_ns <= (lost if end.shutdown_ns else limit) and end.rank not in ranks
    ]
    left: list[ProcessFailure] = []
    for end in sorted(early, key=lambda end: end.finished_ns):
        failure = ProcessFailure(end)
        failure.time_ns, failure.left_early, failure.error = end.finished_ns, True, None
        failure.what = LEFT + (" too" if left else " before the others were done")
        failure.role = "cascade" if left else "root"
        left.append(failure)
    return left


def _may_miss_a_peer(failure: ProcessFailure) -> bool:
    """Whether another rank's absence alone may explain a failure."""
    if failure.role == "cascade" or failure.name in PEER_MISSING:
        return True
    return failure.name == classes.USER and failure.role == "unknown" and failure.error is not None


def mark_ended_by_launcher(failures: list[ProcessFailure]) -> None:
    """Make the ranks that an ended launcher took along cascades: no signal came from outside."""
    for failure in failures:
        if failure.signal in FROM_AGENT and failure.error is None:
            failure.role, failure.what = "cascade", describe_signal(failure.signal)


def is_launcher_first(launcher: ProcessFailure, failures: list[ProcessFailure]) -> bool:
    """Whether a launcher that was ended by a signal comes before the ranks' own failures."""
    for failure in failures:
        earlier = not failure.time_ns or not launcher.time_ns or failure.time_ns < launcher.time_ns
        interrupted = failure.signal in FROM_AGENT and not failure.proof
        if failure.error is not None:
            interrupted = failure.error.short_type in INTERRUPTS
        if earlier and not interrupted and failure.role != "cascade":
            return False
    return True
