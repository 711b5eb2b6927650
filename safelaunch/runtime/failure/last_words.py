"""What the end of a log says about an end that no exception explains: an abort, an exit code.

A program prints much that was handled: an OOM after which it retries, a timeout that it survives.
So only what stands after its last step counts, and of that first the message with which the C or
C++ runtime ends a process. Text in, text out.
"""

from __future__ import annotations

from safelaunch.runtime.signatures import activity, classes, match

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.signatures.classes import Match

NEAR = 60  # lines: C++ prints some 20 frames below its message, faulthandler as many
LAST = 20  # lines, where nothing but their place says that they belong to the end
MESSAGE = 8  # lines of a C++ exception: NCCL puts `Last error:` below
# what ends a process by SIGABRT and says so; each kind by itself: the last one is the end
_ABORTS = (
    # std::terminate, and the watchdog of ProcessGroupNCCL.cpp, which ends in it
    (
        r"terminate called|^ *what\(\): |libc\+\+abi: terminating|pure virtual method called"
        r"|^\[?[EF][ \d].*ProcessGroupNCCL\.cpp:\d+\]"
    ),
    r"Assertion .{1,400} failed\.?$",  # assert(3)
    # malloc of glibc, the stack protector, fortified functions
    (
        r"^(?:free|malloc|realloc|calloc|munmap_chunk|malloc_consolidate)\(\): |^corrupted "
        r"|^double free|\*\*\* (?:stack smashing|buffer overflow|%n in writable)"
    ),
    r"^\[?F\d{4}[ \d:.]|Check failed: |^Fatal Python error: (?!Aborted|Segm|Bus|Float|Illegal)",
)
_WHAT = r"^ *what\(\): "
_FRAMES = r"^Exception raised from|^ *frame #|^\s*$"
_BARE_STEP = r"^\W{0,9}(?:global[_ ])?(?:step|iter(?:ation)?|epoch|batch)s?[ :=#\[]{1,3}\d+\b"
_ERROR = r"(?i)error|exception|fail|abort|warn|out of memory|timeout"
_LIBRARY = (
    r"NCCL WARN |^\[?[EFW][ \d].*\w\.(?:cpp|cc|cu|h):\d+\]|^ *what\(\): |^terminate called"
    r"|^Exception ignored in|^RuntimeError: DataLoader worker"
)
# a message about a failure that the program goes on after
_HANDLED = (
    r"(?i)(?<!watchdog )\bcaught\b|\bhandled\b|\bretr(?:y|ies|ied|ying)\b|\brecover(?:ed|ing)\b"
    r"|\bskipp(?:ed|ing)\b|\bignor(?:ed|ing)\b|\bfall(?:ing|s)? ?back\b|\busing\b.{1,80}\binstead\b"
)


def lines_of(text: str, rank: int | None) -> list[str]:
    """Return the cleaned lines of a log without those that the prefix gives to other ranks."""
    own = ("", str(rank))
    pairs = map(match.split_prefix, match.plain(text))
    return [line for line, writer in pairs if rank is None or writer in own or "=" in writer]


def since_last_step(lines: list[str]) -> list[str]:
    """Return the lines after the last step of training; words like `Done` are none."""
    error, bare = match.compiled(_ERROR), match.compiled(f"(?i){_BARE_STEP}")
    last = activity.last_step(lines)
    for index in range(len(lines) - 1, last - 1, -1):
        if bare.match(lines[index]) and not error.search(lines[index]):
            last = index + 1
            break
    return lines[last:]


def abort_message(lines: list[str]) -> list[str]:
    """Return the lines with which the runtime of C or C++ has ended a process; [] for none."""
    lines = lines[-NEAR:]
    patterns = [match.compiled(pattern) for pattern in _ABORTS]
    kinds = [next((n for n, p in enumerate(patterns) if p.search(line)), -1) for line in lines]
    last = next((kind for kind in reversed(kinds) if kind >= 0), -1)
    message: list[str] = []
    what, frames = match.compiled(_WHAT), match.compiled(_FRAMES)
    for index, line in enumerate(lines):
        if kinds[index] != last or last < 0:
            continue
        message.append(line)
        for below in lines[index + 1 : index + MESSAGE] if what.search(line) else ():
            if frames.search(below):
                break
            message.append(below)
    return message


def cause(lines: list[str]) -> Match | None:
    """Return what the last lines show as a cause; warnings and what was handled are none."""
    handled, warning = match.compiled(_HANDLED), match.compiled(match.WARNING)
    return classes.classify(
        "\n".join(
            line
            for line in lines
            if not handled.search(line) and ("NCCL WARN" in line or not warning.search(line))
        )
    )


def library_lines(lines: list[str]) -> list[str]:
    """Return the lines that NCCL, c10d or the C++ runtime have written, not the program."""
    return [line for line in lines if match.compiled(_LIBRARY).search(line)]
