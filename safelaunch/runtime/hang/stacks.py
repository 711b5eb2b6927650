"""Reads the stacks of hung ranks, as py-spy and faulthandler print them, and says who is missing.

Text in, words out: no files, no processes. A rank that waits in a collective is seldom the one
that hangs; the one that is elsewhere has not reached it.
"""

from __future__ import annotations

from safelaunch.runtime.units import brief_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Tuple

    Frame = Tuple[str, int, str]  # file, line, function

# Code that is not the user's, wherever it lies: environments are often kept in the project.
FOREIGN = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>")
# Where functions of these names mean communication, and not the user's own `send` or `reduce`.
SPEAKERS = ("torch/distributed/", "deepspeed/comm/", "accelerate/", "torch/nn/parallel/")
NAMES = (
    "all_reduce all_reduce_coalesced all_gather all_gather_into_tensor all_gather_object"
    " all_gather_coalesced all_to_all all_to_all_single barrier batch_isend_irecv broadcast"
    " broadcast_object_list gather gather_object init_process_group monitored_barrier recv"
    " recv_object_list reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list"
    " send send_object_list new_group wait_for_everyone synchronize_rng_states"
)
COLLECTIVES = frozenset(NAMES.split())
# part of the kernel function that a process sleeps in -> what it does there
WAITS = (
    ("nanosleep", "asleep"),
    ("nfs", "waits for a network file system"),
    ("rpc_wait", "waits for a network file system"),
    ("fuse", "waits for a FUSE file system"),
    ("io_schedule", "waits for a disk"),
    ("folio_wait", "waits for a disk"),
    ("futex", "waits for a lock"),
    ("pipe_", "waits for a pipe"),
    ("unix_stream", "waits for another local process"),
    ("tcp_", "waits for the network"),
    ("inet_", "waits for the network"),
    ("wait_woken", "waits for the network"),
    ("do_wait", "waits for a child process"),
)
BUSY = 0.5  # of a core: a rank that computes, or spins in a driver
SHOWN = 3  # places that a summary names
FAMILY = 4  # ranks that are written one by one


def parse(text: str) -> list[Frame]:
    """Return the frames of the main thread, innermost first; empty if there are none."""
    threads = []  # type: list[tuple[str, list[Frame]]]
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            threads.append((line, []))
        elif threads:
            frame = _frame(line.strip())
            if frame is not None:
                threads[-1][1].append(frame)
    for sign in ('"MainThread"', "Current thread"):
        for head, frames in threads:
            if sign in head:
                return frames
    return threads[-1][1] if threads else []  # faulthandler writes the oldest thread last


def _frame(line: str) -> Frame | None:
    if line.startswith('File "'):  # faulthandler: File "/a b.py", line 3 in f
        path, _, rest = line[6:].rpartition('", line ')
        number, _, function = rest.partition(" in ")
    else:  # py-spy: f (/a b.py:3)
        function, _, rest = line.partition(" (")
        path, _, number = rest[:-1].rpartition(":")
    if not path or not number.isdigit():
        return None
    return path, int(number), function.rpartition(".")[2]


def collective(frames: Sequence[Frame]) -> str:
    """Return the name of the collective in which a stack waits, or nothing."""
    for path, _, function in reversed(frames):
        if function in COLLECTIVES and any(part in path for part in SPEAKERS):
            return function
    return ""


def own_frame(frames: Sequence[Frame], roots: Sequence[str]) -> Frame | None:
    """Return the innermost frame of the user's own code, else the innermost of all."""
    for frame in frames:
        below = any(frame[0].startswith(root.rstrip("/") + "/") for root in roots)
        if below and not any(part in frame[0] for part in FOREIGN):
            return frame
    return frames[0] if frames else None


def examine(text: str, roots: Sequence[str]) -> dict[str, Any]:
    """Return {"frame": {"file", "line", "function"} | None, "call": collective or innermost}."""
    frames = parse(text)
    own = own_frame(frames, roots)
    if own is None:
        return {"frame": None, "call": "", "waits": False}
    name = collective(frames)
    inner = frames[0][2] if frames[0] != own else ""
    frame = {"file": own[0], "line": own[1], "function": own[2]}
    return {"frame": frame, "call": name or inner, "waits": bool(name)}


# -- words -----------------------------------------------------------------------------------------


def doing(state: str, wchan: str, cpu: float | None) -> str:
    """Say what the kernel knows of a rank: state letter, kernel function, cores that it uses."""
    if state in "Tt" and state:
        return "stopped by a signal"
    if state == "D":
        return "stuck in the kernel (%s)" % (wchan or "D state")
    if cpu is not None and cpu >= BUSY:
        return "busy, %.0f %% of a core" % (cpu * 100)
    for part, words in WAITS:
        if part in wchan:
            return words
    return ""


def summarise(ranks: dict[int, dict[str, Any]]) -> tuple[str, int | None]:
    """Return (one or two lines for people, the rank that is to blame or None).

    `ranks` has for each what `examine` returns, and "state", "wchan", "cpu" as `doing` takes them.
    """
    groups = {}  # type: dict[Any, list[int]]
    for rank in sorted(ranks):
        groups.setdefault(_place(ranks[rank]), []).append(rank)
    # most ranks first
    ordered = sorted(groups.values(), key=lambda members: (-len(members), members))
    odd, verdict = _judge(ordered, ranks)
    if odd is not None:  # what everybody does, then the exception
        ordered.sort(key=lambda members: odd in members)
    said = [_said(members, ranks, full=odd in members or len(ordered) > 1) for members in ordered]
    if len(said) > SHOWN:
        last = [said[-1]] if odd is not None else []
        kept = SHOWN - len(last)
        left = len(said) - SHOWN
        said = [*said[:kept], "%d other places" % left, *last]
    return "; ".join(said) + ("\n%s" % verdict if verdict else ""), odd


def _place(rank: dict[str, Any]) -> Any:
    frame = rank.get("frame")
    if frame is None:
        return None
    return rank.get("call"), frame["file"], frame["line"]


def _judge(groups: list[list[int]], ranks: dict[int, dict[str, Any]]) -> tuple[int | None, str]:
    """Return the odd rank and one sentence on it."""
    halted = [r for r in sorted(ranks) if str(ranks[r].get("state")) in ("T", "t")]
    if halted:
        pids = " ".join(str(ranks[r].get("pid", "PID")) for r in halted)
        verb = "%s %s stopped from outside" % (_ranks(halted), _verb(halted, "was", "were"))
        return halted[0], "%s: `kill -CONT %s` lets it go on" % (verb, pids)
    waiting = [r for r in sorted(ranks) if ranks[r].get("waits")]
    others = [r for r in sorted(ranks) if not ranks[r].get("waits")]
    if waiting and others:
        have = _verb(others, "has", "have")
        verdict = "%s %s not reached the collective" % (_ranks(others), have)
        return (others[0] if len(others) <= len(waiting) else None), verdict
    if len(groups) == 1:
        return None, _together(len(ranks), bool(waiting))
    if waiting:
        clear = len(groups[0]) > len(groups[-1])
        return (groups[-1][0] if clear else None), "the ranks have gone different ways"
    few = len(groups) == 2 and len(groups[0]) > len(groups[1])  # noqa: PLR2004 - two places
    if not few:
        return None, ""
    verb = _verb(groups[1], "is", "are")
    return groups[1][0], "%s %s not where the others are" % (_ranks(groups[1]), verb)


def _together(count: int, waiting: bool) -> str:
    if count > 1 and waiting:
        return "none is missing here: the network, the NCCL transport, or a rank on another machine"
    return ""


def of_thread(record: dict[str, Any], frame: dict[str, Any] | None, ago: float) -> str:
    """Say of a thread's recorded exception what it was, where, and how long before."""
    name = str(record.get("thread") or "thread")
    if name.startswith("Thread-") and name.endswith(")"):
        name = name.partition(" (")[2][:-1] or name  # Thread-1 (prefetch): its function
    said = "%s in thread %s" % (str(record.get("what")), name)
    if frame is not None:
        said += ", %s:%s" % (str(frame.get("file")).rpartition("/")[2], frame.get("line"))
    return "%s, %s" % (said, before(ago))


def left(members: list[int], ago: float) -> str:
    """Say of ranks that they had ended by themselves, the first one `ago` seconds before."""
    own = _verb(members, "itself", "themselves")
    return "%s had ended by %s, %s" % (_ranks(members), own, before(ago))


def before(seconds: float) -> str:
    """Return `4 s before`."""
    return brief_duration(seconds) + " before"


def _verb(members: list[int], one: str, many: str) -> str:
    return many if len(members) > 1 else one


def _said(members: list[int], ranks: dict[int, dict[str, Any]], full: bool) -> str:
    first = ranks[members[0]]
    frame = first.get("frame")
    kernel = doing(str(first.get("state") or ""), str(first.get("wchan") or ""), first.get("cpu"))
    many = len(members) > 1
    if frame is None:
        said = "%s %s no Python stack" % (_ranks(members), "give" if many else "gives")
    else:
        place = "%s:%d" % (frame["file"].rpartition("/")[2], frame["line"])
        call = first.get("call")
        verbs = ("waits", "wait") if first.get("waits") else ("is", "are")
        said = "%s %s in %s (%s)" % (_ranks(members), verbs[many], call or frame["function"], place)
        if call and not first.get("waits") and frame["function"] != "<module>":
            said = said[:-1] + ", %s)" % frame["function"]
    # what a waiting rank does in the kernel tells nothing: NCCL spins, gloo sleeps
    return "%s, %s" % (said, kernel) if kernel and full and not first.get("waits") else said


def _ranks(members: list[int]) -> str:
    """Return `rank 1`, `ranks 0, 2, 3`, `ranks 0-2, 4-7`."""
    name = _verb(members, "rank ", "ranks ")
    if len(members) <= FAMILY:
        return name + ", ".join(str(member) for member in members)
    spans = []  # type: list[list[int]]
    for member in members:
        if spans and member == spans[-1][1] + 1:
            spans[-1][1] = member
        else:
            spans.append([member, member])
    return name + ", ".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in spans)
