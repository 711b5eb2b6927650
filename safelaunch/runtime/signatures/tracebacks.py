"""Python tracebacks in output: which line ends one, and what was handled or only passed on.

Those of several ranks that wrote at once are read separately.
"""

from __future__ import annotations

from safelaunch.runtime.signatures.match import EXCEPTION, compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_FRAME = r"^ *File \".+\", line \d+, in "
_IPYTHON = r"--+> \d+ "  # the line that raised
# what ends a traceback need not be called an error: BadZipFile, ArrowInvalid, Unsupported
_RAISED = r"^((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?:\([\w.]+\))?(?:: (.*))?$"
# raised in one process for an exception of another, whose traceback it quotes
_CARRIER = r"RayTaskError\(|RemoteTraceback|: Caught \w+ in |failed to import on the worker"
CARRIED = 120  # lines below a carrier in which the exception that it carries ends
# what a launcher raises because a child failed says nothing about the cause
LAUNCHERS = (
    "ChildFailedError",
    "CalledProcessError",
    "SignalException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "KeyboardInterrupt",
    "SystemExit",
)
# what a program that goes on without something expects
PROBES = ("AttributeError", "ImportError", "IndexError", "KeyError", "ModuleNotFoundError")
_GROUP = r"^ +(?:[|+] |\+-\+-)"  # in front of what an exception group holds
CUT = "  [...]"  # in place of the middle of a long traceback
_HANDLING = "During handling of the above exception"
MESSAGE = 4000  # characters of a message that is shown whole
MESSAGE_LINES = 60
SAME_PREFIX_LENGTH = 24  # characters by which the same message of another thread is recognised
# not a further line of a message: a traceback, a C++ frame, a progress bar, a log record, a
# warning, what launchers, schedulers and shells print behind it
_UNRELATED = (
    r"^(?:(?:Original )?Traceback |  File |frame #|terminate called|.*\d%\||\{'|\[\w|[EWIF]\d{4} "
    r"|={3}|-{3}|[*#]{3}|\d{4}-\d\d|\d\d/\d\d/\d{4}|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b"
    r"|(?:wandb|swanlab): |(?:Done|Finished|Killed|Aborted|Terminated|real)\b|Exception raised"
    r'|Set the environment|"""|Process \w|(?:srun|slurmstepd|make|bash|sh|sys)\b.{0,12}: '
    r"|\S+: line \d+: |\+ \w|\S+\.py:\d+: \w*Warning: |Exception ignored |During handling"
    r"|The above exception)"
)
# what a message goes on with below a blank line: indented text, a list, a sentence
_PARAGRAPH = r"^(?:\s+\S|[-*\u2022] |.*\S \S.*[.:!?)]\s*$)"
# what Python prints above a traceback that ends nothing
_IGNORED = r"^Exception ignored (?:in|on|while)|^--- Logging error ---"
_CALL_STACKS = ("Call stack:", "Stack (most recent")  # logging shows where it was called
IGNORED_LINES = 40  # between that line and the end of the traceback
# statements of Python, of which printed source consists
_KEYWORD = (
    r"^\s*(?:(?:raise|assert|return|import|from|def|class|elif|else|try|except|finally|with|yield"
    r"|pass|break|if|for|while)\b(?!.*[.!]$)|@\w)"
)
_CODE = (
    r"^\s*(?:#|[\w.\[\], ]{1,80}(?:: [\w.\[\]]{1,40})? ?[-+*/|]?= ?\S|[\w.]{1,60}\("
    r"|[)\]}]|[frb]?[\"'])"
)
SOURCE_WINDOW = 8  # lines above and below that show whether a line is source
MIN_KEYWORDS, MIN_SOURCE_SHARE = 3, 0.75
FRAMES = 120  # lines that a traceback may go on for below a line of code in it


class Tracebacks:
    """The tracebacks in lines. `groups` are the indexes of the lines of each rank.

    `ends` are the lines of exceptions, those that only carry another left out; `passed` those after
    which the program went on to another exception, or which carry one; `code` lines of source.
    """

    def __init__(self, lines: list[str], groups: Sequence[Sequence[int]] | None = None) -> None:
        self.ends: list[int] = []
        self.passed: set[int] = set()
        self.code: set[int] = set()
        self.ignored: set[int] = set()
        self._frame_end: dict[int, int] = {}
        for group in groups if groups is not None else [range(len(lines))]:
            self._read(group, [lines[index] for index in group])
        self.ends.sort()

    @property
    def framed(self) -> set[int]:
        """The lines that end a traceback of which a frame is there."""
        return set(self._frame_end.values())

    def end_of(self, index: int) -> int:
        """Return the line that ends the traceback in which a line is a frame, else the line."""
        return self._frame_end.get(index, index)

    def _read(self, group: Sequence[int], lines: list[str]) -> None:
        every = list(_all_raised(lines))
        own = [index for index, is_launchers in every if not is_launchers]
        ends = list(exceptions(lines, own))
        shown = set(ends)
        self.ends += [group[at] for at in ends]
        self.passed.update(group[at] for at in own if at not in shown or _is_probe(lines, at))
        self.code.update(group[at] for at in code_lines(lines))
        for at, line in enumerate(lines):
            if line.startswith(("Exception ignored", "---")) and compiled(_IGNORED).match(line):
                end = next((end for end in ends if end > at), at + IGNORED_LINES)
                self.ignored.update([group[end]] if end - at < IGNORED_LINES else [])
        stops = [(at, at in shown) for at, is_launchers in every if at in shown or is_launchers]
        next_stop = 0
        for at in [at for at, line in enumerate(lines) if "File " in line]:
            while next_stop < len(stops) and stops[next_stop][0] <= at:
                next_stop += 1
            if next_stop == len(stops):
                return
            end, is_cause = stops[next_stop]
            if end - at <= FRAMES and is_frame(lines[at]):
                if is_cause:
                    self._frame_end[group[at]] = group[end]
                else:  # where a launcher stood, or what was interrupted, is no cause
                    self.code.add(group[at])


def code_lines(lines: Iterable[str]) -> Iterator[int]:
    """Yield the index of each line of source in tracebacks, of Python or as IPython marks it.

    A comment or a literal there says nothing about what happened.
    """
    below_frame = False
    for index, line in enumerate(lines):
        # source is deeper than its frame; Python 3.13 shows several lines of it, also empty ones
        below_frame = below_frame and (line.startswith("    ") or not line)
        if below_frame or (line.startswith("--") and compiled(_IPYTHON).match(line)):
            yield index
        else:
            below_frame = is_frame(line) or line == CUT


def is_printed_source(lines: list[str], index: int) -> bool:
    """Whether a line stands in source that a program printed: training scripts log themselves."""
    window = lines[max(0, index - SOURCE_WINDOW) : index + SOURCE_WINDOW + 1]
    filled = [line for line in window if line.strip()]
    keywords = sum(compiled(_KEYWORD).match(line) is not None for line in filled)
    if keywords < MIN_KEYWORDS or any(map(is_frame, window)):
        return False
    code = sum(compiled(_KEYWORD + "|" + _CODE).match(line) is not None for line in filled)
    return code >= MIN_SOURCE_SHARE * len(filled)


def exceptions(lines: list[str], own: list[int] | None = None) -> Iterator[int]:
    """Yield the index of each line that ends a traceback, launchers' own left out.

    An exception that only carries another, whose traceback stands below, is left out as well. `own`
    is what `raised` has yielded.
    """
    is_carrier, carrier = compiled(_CARRIER).search, -1
    for index in raised(lines) if own is None else own:
        if carrier >= 0 and index - carrier > CARRIED:
            yield carrier
        carrier = index if is_carrier(lines[index]) else -1
        if carrier < 0:
            yield index
    if carrier >= 0:
        yield carrier


def raised(lines: list[str]) -> Iterator[int]:
    """Yield the index of each line that ends a traceback, launchers' own left out."""
    return (index for index, is_launchers in _all_raised(lines) if not is_launchers)


def _all_raised(lines: list[str]) -> Iterator[tuple[int, bool]]:
    """Yield the index of each line that ends a traceback, and whether a launcher raised it."""
    pattern, frame, named = compiled(EXCEPTION), compiled(_FRAME), compiled(_RAISED)
    below_frame = in_call_stack = False
    for index, line in enumerate(lines):
        is_outer = not line[:1].isspace() and line != ""
        if is_outer:
            in_call_stack = line.startswith(_CALL_STACKS)
        hit = pattern.match(line) or (named.match(line) if below_frame else None)
        if hit is not None:
            below_frame = False
            yield index, hit.group(1).rpartition(".")[2] in LAUNCHERS
        elif "File " in line and frame.match(line):
            below_frame = not in_call_stack
        elif below_frame and is_outer:
            below_frame = line[0] == "["  # another rank's line, or the end of what was cut


def message_lines(lines: Sequence[str]) -> int:
    """Return how many lines the message has whose first line is the first one, that included.

    A blank line ends it, unless indented text, a list or a sentence follows.
    """
    unrelated, paragraph, first = compiled(_UNRELATED), compiled(_PARAGRAPH), lines[0]
    if unrelated.match(first):
        return 1
    count, is_below_blank = 1, False
    for index, line in enumerate(lines[1:MESSAGE_LINES], 1):
        if not line.strip():
            if is_below_blank:
                break
            is_below_blank = True
            continue
        is_repeated = line[:SAME_PREFIX_LENGTH] == first[:SAME_PREFIX_LENGTH]
        if is_repeated or unrelated.match(line) or (is_below_blank and not paragraph.match(line)):
            break
        count, is_below_blank = index + 1, False
    return count


def shorten(message: str) -> str:
    """Return a message; of a long one head and tail, because the end often says what to do."""
    if len(message) <= MESSAGE:
        return message
    return f"{message[: MESSAGE // 2]}\n{CUT}\n{message[-(MESSAGE // 2 - 20) :]}"


def is_call_stack(lines: list[str], frame: int) -> bool:
    """Whether a frame stands in a stack that logging shows, and not in a traceback."""
    above = (line for line in reversed(lines[:frame]) if line[:1].strip())
    return next(above, "").startswith(_CALL_STACKS)


def has_end(lines: list[str]) -> bool:
    """Whether a line ends a traceback, a launcher's too."""
    return next(_all_raised(lines), None) is not None


def _is_probe(lines: list[str], index: int) -> bool:
    """Whether an exception is one that programs expect, and was handled: another followed."""
    name = lines[index].strip().partition(":")[0].rpartition(".")[2]
    return name in PROBES and any(_HANDLING in line for line in lines[index + 1 : index + 4])


def ungrouped(line: str) -> str:
    """Return a line without the margin that the traceback of an exception group has."""
    return compiled(_GROUP).sub("", line)


def is_exception(line: str) -> bool:
    """Whether a line reads like the one that ends a traceback."""
    return (compiled(EXCEPTION).match(line) or compiled(_RAISED).match(line)) is not None


def is_frame(line: str) -> bool:
    """Whether a line is a frame of a Python traceback."""
    return "File " in line and compiled(_FRAME).match(line) is not None
