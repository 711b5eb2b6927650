"""Parses stacks of hung ranks (py-spy, faulthandler) and finds the rank that blocks the others.

Text in, text out: no files, no processes. A rank that waits in a collective is seldom the one
that hangs; a rank that is elsewhere has not reached the collective.
"""

from __future__ import annotations

from safelaunch.runtime.units import brief_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Tuple

    from safelaunch.runtime.records import StackFrame

    Frame = Tuple[str, int, str]  # file, line, function

# Paths of code that is not the user's: environments are often kept inside the project.
LIBRARY_PATHS = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>")
# Libraries in which NAMES are collectives, unlike the user's own `send` or `reduce`.
COMM_LIBRARIES = ("torch/distributed/", "deepspeed/comm/", "accelerate/", "torch/nn/parallel/")
NAMES = (
    "all_reduce all_reduce_coalesced all_gather all_gather_into_tensor all_gather_object"
    " all_gather_coalesced all_to_all all_to_all_single barrier batch_isend_irecv broadcast"
    " broadcast_object_list gather gather_object init_process_group monitored_barrier recv"
    " recv_object_list reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list"
    " send send_object_list new_group wait_for_everyone synchronize_rng_states"
)
COLLECTIVES = frozenset(NAMES.split())
# part of the kernel function that a process sleeps in -> what it does there
KERNEL_WAITS = (
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
BUSY = 0.5  # cores: a rank that uses more computes, or spins in a driver
MAX_GROUPS = 3  # groups of ranks that a summary describes
MAX_LISTED_RANKS = 4  # ranks that are listed one by one; more become ranges


def parse(text: str) -> list[Frame]:
    """Return the frames of the main thread, innermost first; [] if there are none."""
    threads: list[tuple[str, list[Frame]]] = []
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
        path, _, tail = line[6:].rpartition('", line ')
        number, _, function = tail.partition(" in ")
    else:  # py-spy: f (/a b.py:3)
        function, _, tail = line.partition(" (")
        path, _, number = tail[:-1].rpartition(":")
    if not path or not number.isdigit():
        return None
    return path, int(number), function.rpartition(".")[2]


def collective(frames: Sequence[Frame]) -> str:
    """Return the name of the collective in which a stack waits, or ""."""
    for path, _, function in reversed(frames):
        if function in COLLECTIVES and any(part in path for part in COMM_LIBRARIES):
            return function
    return ""


def user_frame(frames: Sequence[Frame], roots: Sequence[str]) -> Frame | None:
    """Return the innermost frame of the user's own code, else the innermost of all."""
    for frame in frames:
        is_users = any(frame[0].startswith(root.rstrip("/") + "/") for root in roots)
        if is_users and not any(part in frame[0] for part in LIBRARY_PATHS):
            return frame
    return frames[0] if frames else None


def examine(text: str, roots: Sequence[str]) -> dict[str, Any]:
    """Return {"frame": {"file", "line", "function"} | None, "call": collective or innermost}."""
    frames = parse(text)
    user = user_frame(frames, roots)
    if user is None:
        return {"frame": None, "call": "", "waits": False}
    name = collective(frames)
    inner = frames[0][2] if frames[0] != user else ""
    frame = {"file": user[0], "line": user[1], "function": user[2]}
    return {"frame": frame, "call": name or inner, "waits": bool(name)}


# -- text -----------------------------------------------------------------------------------------


def kernel_activity(state: str, wchan: str, cpu: float | None) -> str:
    """Describe a process by its state letter, its kernel function and its use of cores."""
    if state in "Tt" and state:
        return "stopped by a signal"
    if state == "D":
        return f"stuck in the kernel ({wchan or 'D state'})"
    if cpu is not None and cpu >= BUSY:
        return f"busy, {cpu * 100:.0f} % of a core"
    for part, activity in KERNEL_WAITS:
        if part in wchan:
            return activity
    return ""


def summarise(ranks: dict[int, dict[str, Any]]) -> tuple[str, int | None]:
    """Return (one or two lines for people, the rank that blocks the others or None).

    `ranks` has for each rank what `examine` returns, and the arguments of `kernel_activity`.
    """
    groups: dict[Any, list[int]] = {}
    for rank in sorted(ranks):
        frame = ranks[rank].get("frame")
        key = None if frame is None else (ranks[rank].get("call"), frame["file"], frame["line"])
        groups.setdefault(key, []).append(rank)
    # the largest group first
    ordered = sorted(groups.values(), key=lambda members: (-len(members), members))
    odd, verdict = _odd_rank(ordered, ranks)
    if odd is not None:  # the exception comes last
        ordered.sort(key=lambda members: odd in members)
    several = len(ordered) > 1
    texts = [_describe(group, ranks, full=several or odd in group) for group in ordered]
    if len(texts) > MAX_GROUPS:
        last = [texts[-1]] if odd is not None else []
        count = MAX_GROUPS - len(last)
        left = len(texts) - MAX_GROUPS
        texts = [*texts[:count], f"{left} other groups", *last]
    return "; ".join(texts) + (f"\n{verdict}" if verdict else ""), odd


def _odd_rank(groups: list[list[int]], ranks: dict[int, dict[str, Any]]) -> tuple[int | None, str]:
    """Return the rank that blocks the others, if any, and one sentence about it."""
    halted = [r for r in sorted(ranks) if str(ranks[r].get("state")) in ("T", "t")]
    if halted:
        pids = " ".join(str(ranks[r].get("pid", "PID")) for r in halted)
        was = "were" if len(halted) > 1 else "was"
        verdict = f"{_ranks(halted)} {was} stopped by a signal: resume with `kill -CONT {pids}`"
        return halted[0], verdict
    waiting = [r for r in sorted(ranks) if ranks[r].get("waits")]
    others = [r for r in sorted(ranks) if not ranks[r].get("waits")]
    if waiting and others:
        have = "have" if len(others) > 1 else "has"
        verdict = f"{_ranks(others)} {have} not reached the collective"
        return (others[0] if len(others) <= len(waiting) else None), verdict
    if len(groups) == 1:
        together = (
            "no rank of this machine is missing: check the network, NCCL, and the other machines"
        )
        return None, together if len(ranks) > 1 and waiting else ""
    if waiting:
        clear = len(groups[0]) > len(groups[-1])
        return (groups[-1][0] if clear else None), "the ranks wait in different collectives"
    if len(groups) != 2 or len(groups[0]) <= len(groups[1]):  # noqa: PLR2004 - two places
        return None, ""
    verb = "are" if len(groups[1]) > 1 else "is"
    return groups[1][0], f"{_ranks(groups[1])} {verb} not where the other ranks are"


def describe_thread_error(name: str, what: str, frame: StackFrame | None, seconds: float) -> str:
    """Describe the exception of a thread: what, where, and how long before the hang."""
    if name.startswith("Thread-") and name.endswith(")"):
        name = name.partition(" (")[2][:-1] or name  # Thread-1 (prefetch): its function
    text = f"{what} in thread {name}"
    if frame is not None:
        text += f", {frame.file.rpartition('/')[2]}:{frame.line}"
    return f"{text}, {brief_duration(seconds)} before"


def describe_exits(members: list[int], seconds: float) -> str:
    """Describe ranks that had exited, the first one `seconds` before the hang was found."""
    return f"{_ranks(members)} had already exited, {brief_duration(seconds)} before"


def _describe(members: list[int], ranks: dict[int, dict[str, Any]], full: bool) -> str:
    first = ranks[members[0]]
    frame = first.get("frame")
    state, wchan = str(first.get("state") or ""), str(first.get("wchan") or "")
    kernel = kernel_activity(state, wchan, first.get("cpu"))
    many = len(members) > 1
    if frame is None:
        text = f"{_ranks(members)} {'have' if many else 'has'} no Python stack"
    else:
        location = f"{frame['file'].rpartition('/')[2]}:{frame['line']}"
        call = first.get("call")
        verbs = ("waits", "wait") if first.get("waits") else ("is", "are")
        function = frame["function"]
        text = f"{_ranks(members)} {verbs[many]} in {call or function} ({location})"
        if call and not first.get("waits") and function != "<module>":
            text = text[:-1] + f", {function})"
    # the kernel activity of a waiting rank is no evidence: NCCL spins, gloo sleeps
    return f"{text}, {kernel}" if kernel and full and not first.get("waits") else text


def _ranks(members: list[int]) -> str:
    """Return `rank 1`, `ranks 0, 2, 3`, `ranks 0-2, 4-7`."""
    name = "ranks " if len(members) > 1 else "rank "
    if len(members) <= MAX_LISTED_RANKS:
        return name + ", ".join(str(member) for member in members)
    spans: list[list[int]] = []
    for member in members:
        if spans and member == spans[-1][1] + 1:
            spans[-1][1] = member
        else:
            spans.append([member, member])
    return name + ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)
