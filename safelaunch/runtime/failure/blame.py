"""Judges how the ranks and the launcher of a failed attempt ended: what, which class, which role.

A failure that comes first is the cause; one that only follows (a peer lost, a signal from the
launcher's agent) is a cascade, whenever it was noted. Reads tails of logs; never raises.
"""

from __future__ import annotations

from safelaunch.runtime.failure import elastic_report, log_tails
from safelaunch.runtime.monitor import oom_kills
from safelaunch.runtime.signatures import classes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from safelaunch.runtime.failure.rank_ends import End
    from safelaunch.runtime.signatures.classes import Match
    from safelaunch.runtime.signatures.table import Signature


ORDER = {"root": 0, "unknown": 1, "cascade": 2}
LAST_WORDS = 60  # lines of a rank's log in which what it ended with is looked for
REFINED = 4  # ranks whose logs are searched for what their exceptions do not tell
SECOND = 10**9  # ns
LAST = 1 << 63  # later than any time in ns
# what torchrun's agent, or the supervisor, sends to the others once one has failed
FROM_AGENT = ("SIGTERM", "SIGKILL", "SIGINT", "SIGHUP")
# and what a rank does to itself when its NCCL watchdog sees another gone
FOLLOWING = (*FROM_AGENT, "SIGABRT")
AT_ONCE = ("SIGTERM", "SIGINT", "SIGHUP")
PATIENCE = 5 * SECOND  # torchrun waits 30 s between SIGTERM and SIGKILL, our own grace is 5 s
INTERRUPTS = ("KeyboardInterrupt", "SignalException")
# what is left for the others to say where a rank is missing
BEREFT = ("peer-lost", "nccl-timeout", "nccl-unhandled-error")
STARTED = ("CalledProcessError", "ChildFailedError", "ProcessExitedException")
STARTED_BY = "in a process that it had started"
LEFT = "had ended with code 0"
_WORDS = {
    "SIGSEGV": "segmentation fault (SIGSEGV)",
    "SIGABRT": "aborted (SIGABRT)",
    "SIGBUS": "bus error (SIGBUS)",
    "SIGFPE": "arithmetic fault (SIGFPE)",
    "SIGILL": "illegal instruction (SIGILL)",
    "SIGKILL": "killed (SIGKILL)",
    "SIGINT": "interrupted (SIGINT)",
}


class Finding(object):
    """One failed rank, or the launcher (rank None)."""

    def __init__(self, rank: int | None, end: End | None, log: str) -> None:
        self.rank = rank
        self.end = end
        self.log = log
        self.name = classes.USER
        self.signature = None  # type: Signature | None
        self.role = "unknown"
        self.what = ""
        self.time_ns = end.time_ns if end is not None else 0
        self.error = end.error if end is not None else None
        self.code = end.code if end is not None else None
        self.signal = end.signal if end is not None else ""
        self.proof = None  # type: str | None
        self.left = False  # it ended well, and too early
        self.owns_log = False  # nobody else writes there, but a launcher at its end

    def add_match(self, match: Match) -> None:
        """Take the class from what was recognised."""
        self.name, self.signature = match.name, match.signature

    @property
    def recognised(self) -> Signature | None:
        """The signature by which the class is known, None where something else told it."""
        return self.signature if self.signature and self.signature.name == self.name else None

    @property
    def order(self) -> tuple[int, int, bool, int]:
        """Less is more to blame: role, then time, then what torchrun says, then rank."""
        known = self.time_ns if self.time_ns > 0 else LAST
        if self.end is not None and self.end.rough and known == self.end.died_ns:
            known += SECOND
        named = self.end is not None and self.end.named_first
        return ORDER[self.role], known, not named, -1 if self.rank is None else self.rank


def blame(role: str | None, time: float | None) -> tuple[int, float]:
    """Return a sort key for failures of several nodes: the least is the one to blame."""
    return ORDER.get(role or "", ORDER["unknown"]), time if time and time > 0 else float("inf")


def in_words(signal: str) -> str:
    """Return `segmentation fault (SIGSEGV)`, `ended by SIGTERM`."""
    return _WORDS.get(signal, "ended by %s" % signal)


def one_line(text: str, limit: int = 300) -> str:
    """Return text on one line, at most `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 4] + " ..."


def in_short(error: Mapping[str, Any], limit: int = 300) -> str:
    """Return `ValueError: bad batch 17`, and in which worker it was."""
    kind, message = str(error.get("type") or "exception"), str(error.get("message") or "")
    where = " (%s)" % error["where"] if error.get("where") else ""
    return one_line("%s: %s" % (kind, message) if message else kind, limit - len(where)) + where


def rank_failures(
    ends: list[End], kills: list[dict[str, Any]], alone: bool = False
) -> list[Finding]:
    """Return a finding for each rank that failed, the one to blame first.

    `alone`: there is one rank only, so that the launcher's log is its own.
    """
    failed = [end for end in ends if end.failed]
    found = []
    for end in failed:
        finding = Finding(end.rank, end, end.log)
        finding.owns_log = alone or end.log.endswith("rank-%d.log" % end.rank)
        if finding.error is None and end.code == 1 and not end.recorded:
            finding.error = log_tails.exception(end.log)
        if finding.error is not None and finding.owns_log:
            finding.error = _behind(finding.error, end.log)
        if finding.error is not None:
            finding.error = log_tails.unwrapped(finding.error)
            others = [other for other in failed if other is not end]
            _exception(finding, finding.error, _is_first(end, others), kills)
        found.append(finding)
    # who vanished is judged by those who told: what they only lost does not come before it
    firm = [one.end for one in found if one.error is None or one.role != "cascade"]
    for finding in found:
        end_ = finding.end
        if finding.error is None and end_ is not None:
            others = _before(end_, failed, [one for one in firm if one is not None])
            _vanished(finding, end_, [other for other in others if other is not end_], kills)
    found.sort(key=lambda finding: finding.order)
    if found and found[0].role != "root":
        for finding in found[:REFINED]:
            if finding.error is not None and finding.name != classes.USER:
                _refine(finding)
    return sorted(found, key=lambda finding: finding.order)


def _before(end: End, failed: list[End], firm: list[End]) -> list[End]:
    """Return those whose failure explains the end of a rank, where it came earlier.

    An agent sends SIGTERM as soon as anything failed, and SIGKILL to who still lives much later.
    """
    if end.signal in AT_ONCE:
        return failed
    if end.signal == "SIGKILL":
        late = end.time_ns - PATIENCE
        return firm + [other for other in failed if 0 < other.time_ns < late and other not in firm]
    return firm


def _is_first(end: End, others: list[End]) -> bool:
    """Whether no other failure was noted earlier; False where its own time is not known."""
    if end.signal in AT_ONCE and not end.named_first:
        # what an agent sends itself is no cause: within a second of torchrun's own times, or where
        # a busy machine showed both ends at once
        others_own = [other for other in others if other.signal not in AT_ONCE]
        slack = SECOND if end.rough else 1
        if any(0 < other.time_ns < end.time_ns + slack for other in others_own):
            return False
    return end.time_ns > 0 and all(not 0 < other.time_ns < end.time_ns for other in others)


def _exception(
    finding: Finding, error: dict[str, Any], first: bool, kills: list[dict[str, Any]]
) -> None:
    kind, message = str(error.get("type") or "exception"), str(error.get("message") or "")
    finding.what = in_short(error)
    match = classes.classify_exception(kind, message, str(error.get("traceback") or ""))
    finding.add_match(match)
    finding.role = match.role
    if kind.rpartition(".")[2] in INTERRUPTS:
        finding.name, finding.role = "killed-by-signal", "root" if first else "cascade"
    if finding.name == "dataloader-worker-killed":
        finding.proof = oom_kills.proof(kills, None)
        finding.name = "host-oom" if finding.proof else finding.name
    if finding.role not in ORDER:
        finding.role = "unknown"


def _vanished(finding: Finding, end: End, others: list[End], kills: list[dict[str, Any]]) -> None:
    first = _is_first(end, others) or (end.from_outside and end.signal in AT_ONCE)
    if end.signal:
        _signalled(finding, end, first, bool(others), kills)
    else:
        _exited(finding, end, first)


def _signalled(
    finding: Finding, end: End, first: bool, company: bool, kills: list[dict[str, Any]]
) -> None:
    finding.what = in_words(end.signal)
    finding.name = "killed-by-signal"
    finding.role = "root" if first else "unknown"
    if end.signal == "SIGKILL":
        finding.proof = oom_kills.proof(kills, end.pid)
        finding.name = "host-oom" if finding.proof else "killed"
    elif end.signal == "SIGABRT":
        match = classes.classify(log_tails.read(end.log, log_tails.CLASSIFIED))
        if match is not None and match.name.startswith(("nccl-", "cuda-", "device-", "peer-")):
            finding.add_match(match)
            finding.what = one_line("%s: %s" % (finding.what, match.line))
            first = first and match.role != "cascade"
    if finding.proof:
        finding.what, finding.role = "killed (SIGKILL): out of memory", "root"
    elif company and not first and end.signal in FOLLOWING:
        finding.role = "cascade"
    elif first and end.signal in AT_ONCE:
        finding.what += " from outside the run"


def _behind(error: dict[str, Any], log: str) -> dict[str, Any]:
    """Return what failed in a process that the rank had started, where its exception says so only.

    `subprocess.run(check=True)` tells a status; the process itself has told more, just before.
    """
    if str(error.get("type") or "").rpartition(".")[2] not in STARTED:
        return error
    text = "\n".join(
        log_tails.last_lines(elastic_report.before_agent(log_tails.read(log)), LAST_WORDS)
    )
    found = log_tails.last_exception(text)
    return error if found is None else dict(found, time_ns=error.get("time_ns"), where=STARTED_BY)


def _exited(finding: Finding, end: End, first: bool) -> None:
    how = ""
    if end.in_order:
        how = " (sys.exit)"
    elif end.recorded:
        how = " at once (os._exit or native exit)"
    finding.what = "exited with code %s%s" % (end.code, how)
    finding.role = "root" if first else "unknown"
    own = finding.owns_log
    text = "\n".join(
        log_tails.last_lines(elastic_report.before_agent(log_tails.read(end.log)), LAST_WORDS)
    )
    error = log_tails.last_exception(text) if own else None
    match = classes.classify(text)
    if error is not None:  # the program caught it, showed it, and gave up
        _exception(finding, error, first, [])
        finding.error = error
        finding.what = "exited with code %s%s after %s" % (end.code, how, finding.what)
    elif match is not None and (match.role == "root" or (own and match.role == "unknown")):
        finding.add_match(match)
        finding.role = match.role if not first else finding.role
        finding.what = one_line("%s: %s" % (finding.what, match.line))


def _refine(finding: Finding) -> None:
    """Take the class from a rank's log where that names a cause; the exception stays what it is."""
    match = classes.classify(log_tails.read(finding.log, log_tails.CLASSIFIED))
    if match is not None and match.role == "root":
        finding.add_match(match)
        finding.role = "unknown" if finding.role == "cascade" else finding.role


# -- the launcher ----------------------------------------------------------------------------------


def launcher(
    outcome: Mapping[str, Any], log: str, kills: list[dict[str, Any]], pid: int = 0
) -> Finding:
    """Return what is known of a launcher that did not end well."""
    finding = Finding(None, None, log)
    code, name = outcome.get("exit_code"), launcher_signal(outcome, log)
    finding.code = code if isinstance(code, int) else None
    finding.signal = name
    told = outcome.get("time_ns")
    finding.time_ns = told if isinstance(told, int) else 0
    finding.role = "root"
    if name:
        finding.name = "killed" if name == "SIGKILL" else "killed-by-signal"
        finding.what = "the launcher was %s" % (
            in_words(name) if in_words(name).startswith(("ended", "killed")) else "ended by " + name
        )
        finding.proof = oom_kills.proof(kills, pid or None) if name == "SIGKILL" else None
        if finding.proof:
            finding.name, finding.what = "host-oom", "the launcher was killed: out of memory"
        return finding
    return _by_its_words(finding)


def _by_its_words(finding: Finding) -> Finding:
    """Name a launcher's failure by what stands in its log."""
    # the run directory's own path is long, and says nothing
    text = log_tails.read(finding.log, log_tails.CLASSIFIED).replace(
        _node_dir(finding.log) + "/", ""
    )
    match = classes.classify(text)
    finding.error = log_tails.exception(finding.log)
    if match is not None and match.role != "warning":
        finding.add_match(match)
        finding.role = match.role
        finding.what = one_line(match.line)
    elif finding.error is not None:
        finding.what = one_line("%s: %s" % (finding.error["type"], finding.error["message"]))
    else:
        lines = [line for line in log_tails.last_lines(text) if line.strip()]
        finding.what = "the launcher exited with code %s" % finding.code
        if lines:
            finding.what = one_line("%s: %s" % (finding.what, lines[-1]))
    return finding


def _node_dir(log: str) -> str:
    return log.rsplit("/logs/attempt-", 1)[0]


def launcher_signal(outcome: Mapping[str, Any], log: str) -> str:
    """Return the signal that ended a launcher, or "": its status, its code, or its own words."""
    name = str(outcome.get("signal") or "")
    code = outcome.get("exit_code")
    if not name and isinstance(code, int) and 128 < code <= 128 + 64:  # noqa: PLR2004 - as shells say it
        name = elastic_report.signal_name(code - 128)
    if name or not code:
        return name
    for line in log_tails.last_lines(log_tails.read(log), 60):
        _, found, rest = line.partition("SignalException: Process ")
        number = rest.rpartition("got signal: ")[2].strip() if found else ""
        if number.isdigit():
            return elastic_report.signal_name(int(number))
    return ""


def ended_by_job(end: End, worked: bool, kills: list[dict[str, Any]]) -> bool:
    """Whether a signal that others send ended a rank of a job that then ended well itself.

    SIGKILL is believed only where another rank `worked` to its end, and memory was not the reason:
    a shell may have lost the status of the one program that counts.
    """
    code = (end.code or 0) - 128
    kind = str((end.error or {}).get("type") or "")
    name = end.signal or (elastic_report.signal_name(code) if code > 0 else "")
    if end.error is not None and kind.rpartition(".")[2] not in INTERRUPTS:
        return False
    if end.error is not None or name in AT_ONCE:
        return True
    return name == "SIGKILL" and worked and oom_kills.proof(kills, end.pid or None) is None


def silent(ends: Iterable[End]) -> list[Finding]:
    """Return the one rank that ended without exception, order or a code that anybody saw."""
    gone = [end for end in ends if end.recorded and not end.in_order and end.code is None]
    if len(gone) != 1:
        return []  # of several an agent may have ended all but one
    finding = Finding(gone[0].rank, gone[0], gone[0].log)
    finding.what = "ended at once, with a code that nobody saw (os._exit, a signal, native code)"
    return [finding]


def left_early(ends: Iterable[End], ranks: list[Finding]) -> list[Finding]:
    """Return the ranks that had ended with 0 when the others lost them, the first one first.

    None where one of the others has a cause of its own.
    """
    if not ranks or not all(map(_is_bereft, ranks)):
        return []
    lost = min([rank.time_ns for rank in ranks if rank.time_ns] or [0])
    bereft = {rank.rank for rank in ranks}  # another step of the same rank is no peer
    gone = [end for end in ends if 0 < end.left_ns <= lost and end.rank not in bereft]
    found = []  # type: list[Finding]
    for end in sorted(gone, key=lambda end: end.left_ns):
        finding = Finding(end.rank, end, end.log)
        finding.time_ns, finding.left, finding.error = end.left_ns, True, None
        finding.what = LEFT + (" too" if found else " before the others were done")
        finding.role = "cascade" if found else "root"
        found.append(finding)
    return found


def _is_bereft(rank: Finding) -> bool:
    """Whether what a rank says may come of another one's absence alone."""
    spoke = rank.name == classes.USER and rank.role == "unknown" and rank.error is not None
    return rank.role == "cascade" or rank.name in BEREFT or spoke


def taken_along(ranks: list[Finding]) -> None:
    """Say of ranks that an ended launcher has ended them: nothing came from outside to these."""
    for finding in ranks:
        if finding.signal in FROM_AGENT and finding.error is None:
            finding.role, finding.what = "cascade", in_words(finding.signal)


def to_blame(first: Finding, ranks: list[Finding]) -> bool:
    """Whether a launcher that was ended by a signal comes before the ranks' own failures."""
    for finding in ranks:
        earlier = not finding.time_ns or not first.time_ns or finding.time_ns < first.time_ns
        interrupted = finding.signal in FROM_AGENT and not finding.proof
        if finding.error is not None:
            kind = str(finding.error.get("type", "")).rpartition(".")[2]
            interrupted = kind in INTERRUPTS
        if earlier and not interrupted and finding.role != "cascade":
            return False
    return True
