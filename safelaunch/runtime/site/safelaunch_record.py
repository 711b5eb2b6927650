"""Makes the record of an uncaught exception; run by safelaunch_rank.py at the failure, in the rank.

Memory, descriptors and the source files may all be gone: what cannot be read is left out. `json` is
not used, because it may be the import that fails; `traceback` is loaded in most programs, and
without it the text is made by hand. Syntax of Python 3.5.
"""

import _thread
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch_rank import _Rank  # type: ignore[import-not-found,unused-ignore]

MESSAGE = 4000  # characters of str(exception), its head and its tail: that often says what to do
QUOTED = 2000  # characters of it in the traceback
TRACEBACK = 6000  # characters of the traceback, its head and its tail
FRAMES = 20
CHAINED = 5  # frames of each exception of a chain whose whole text is too long
LINE = 200  # of a line of source: it may be generated, or minified
DEEP = 1000  # frames above which only the innermost FRAMES go into the text: it takes seconds else
# Bytes of JSON, where a letter may take six: with names and numbers less than safelaunch_rank.ROOM.
MESSAGE_ROOM, TRACEBACK_ROOM, FRAMES_ROOM = 5500, 7500, 4500
ASTRAL = 0x10000  # letters from here on are two surrogates in JSON


def make(
    rank: "_Rank", error: BaseException, thread: object, now: "tuple[int, int]", uncaught: bool
) -> "tuple[dict[str, object], str]":
    """Return the record (RankEvent in runtime/records.py) and its line.

    `now` is wall and monotonic ns; `uncaught`: the interpreter ends the program with the exception.
    """
    message = _message(error)
    frames = _frames(error, rank.folder)
    text = _text(error, message, frames)
    while frames and len(_json(frames)) > FRAMES_ROOM:
        del frames[0]
    record = {
        "kind": "exception",
        "uncaught": uncaught,
        "thread": _thread_name(rank, thread),
        "rank": int(rank.number[0]),
        "local_rank": int(rank.world[0]) if rank.world[0].isdigit() else None,
        "world_size": int(rank.world[1]) if rank.world[1].isdigit() else None,
        "host": os.uname().nodename,
        "pid": rank.pid,
        "attempt": int(rank.number[1]),
        "restart": int(rank.number[2]),
        "time_ns": now[0],
        "monotonic_ns": now[1],
        "type": _fit(_name(type(error)), LINE, 0, 2 * LINE),
        "message": _fit(message, MESSAGE, MESSAGE // 2, MESSAGE_ROOM),
        "traceback": _fit(text, TRACEBACK, TRACEBACK // 2, TRACEBACK_ROOM),
        "frames": frames,
        "memory_limit": _memory_limit(),
    }
    return record, _json(record) + "\n"


def _memory_limit() -> "int | None":
    """Return the bytes that `ulimit -v` or `-d` allows the process; None for no limit."""
    limits = []
    try:
        fd = os.open("/proc/self/limits", os.O_RDONLY)
        try:
            lines = os.read(fd, 4096).decode("ascii", "replace").split("\n")
        finally:
            os.close(fd)
    except OSError:
        return None
    for line in lines:
        if line.startswith(("Max address space", "Max data size")):
            limits += [int(word) for word in line.split()[3:4] if word.isdigit()]
    return min(limits) if limits else None


def _thread_name(rank: "_Rank", thread: object) -> "str | None":
    """Return the name of the thread that failed; null is the main thread."""
    me = _thread.get_ident()
    if me == rank.main_thread:
        return None
    active = getattr(sys.modules.get("threading"), "_active", {})
    name = getattr(thread or active.get(me), "name", None)
    return _fit(str(name or "thread"), LINE, 0, 2 * LINE)


def write_torchelastic_file(record: "dict[str, object]") -> None:
    """Write torchelastic's error file, unless the user's @record has; then torchrun shows it.

    The format is that of ErrorHandler.record_exception (torch 2.13,
    torch/distributed/elastic/multiprocessing/errors/error_handler.py): the time is whole seconds
    as text. It is written whole or not at all: torchrun fails at half a file. Raises OSError.
    """
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path or os.path.exists(path):
        return
    seconds = int(str(record["time_ns"])) // 10**9
    extra = {"py_callstack": record["traceback"], "timestamp": str(seconds)}
    message = {"message": "%s: %s" % (record["type"], record["message"]), "extraInfo": extra}
    data = _json({"message": message}).encode("ascii")
    part = "%s.%d" % (path, os.getpid())
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    whole = False
    try:
        whole = os.write(fd, data) == len(data)
    finally:
        os.close(fd)
        if whole:
            os.rename(part, path)
        else:
            os.unlink(part)


def _name(kind: type) -> str:
    """Return the type's name as Python prints it."""
    module = getattr(kind, "__module__", None)
    name = getattr(kind, "__qualname__", kind.__name__)
    return name if module in (None, "builtins", "__main__") else "%s.%s" % (module, name)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - it is user code
        return "<exception str() failed>"


def _frames(error: BaseException, folder: str) -> "list[dict[str, object]]":
    """Return the innermost frames, the innermost last; for a syntax error that is its place."""
    calls = []  # type: list[tuple[str, int, str, str | None]]
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        calls.append((code.co_filename, trace.tb_lineno, code.co_name, None))
        trace = trace.tb_next
        if len(calls) > 2 * FRAMES:
            del calls[:FRAMES]
    if isinstance(error, SyntaxError) and error.filename:
        calls.append((error.filename, error.lineno or 0, "<module>", error.text or ""))
    frames = []  # type: list[dict[str, object]]
    for file, line, function, text in calls[-FRAMES:]:
        source = (_source(error, file, line) if text is None else text).strip()[:LINE]
        if folder and not file.startswith("<"):
            file = os.path.join(folder, file)  # noqa: PLW2901 - the same file
        frames.append({"file": file, "line": line, "function": function, "code": source})
    return frames


def _source(error: BaseException, file: str, line: int) -> str:
    try:
        return _load("linecache", error).getline(file, line)  # type: ignore[attr-defined,no-any-return]
    except BaseException:  # noqa: BLE001 - the source is gone, no descriptor, no memory
        return ""


def _load(name: str, error: BaseException) -> object:
    """Return a module. Raises whatever its import does."""
    if isinstance(error, KeyboardInterrupt):
        # an import may call eval(), which makes CPython forget to end by SIGINT (run_eval_code_obj)
        return sys.modules[name]
    return __import__(name)


def _text(error: BaseException, message: str, frames: "list[dict[str, object]]") -> str:
    """Return the traceback as Python prints it; of a giant message only head and tail."""
    try:
        make = _load("traceback", error).format_exception  # type: ignore[attr-defined]
        limit = -FRAMES if _is_deep(error) else None
        text = "".join(make(type(error), error, error.__traceback__, limit))
        if len(text) > TRACEBACK and (error.__cause__ or error.__context__):
            text = "".join(make(type(error), error, error.__traceback__, -CHAINED))
    except BaseException:  # noqa: BLE001 - no descriptor, no memory, a user's module of that name
        text = "Traceback (most recent call last):\n"
        for frame in frames:
            text += '  File "%(file)s", line %(line)s, in %(function)s\n' % frame
            text += "    %(code)s\n" % frame if frame["code"] else ""
        text += "%s: %s\n" % (_name(type(error)), message)
    if len(message) > QUOTED:
        # its tail too: what torch raises again for a worker ends with the worker's own exception
        text = text.replace(message, _fit(message, QUOTED, QUOTED // 2, 6 * QUOTED))
    return text


def _is_deep(error: BaseException) -> bool:
    trace = error.__traceback__
    for _ in range(DEEP):
        if trace is None:
            return False
        trace = trace.tb_next
    return True


def _fit(text: str, limit: int, tail: int, room: int) -> str:
    """Return at most `limit` characters, `tail` of them from the end, in `room` bytes of JSON."""
    mark = "\n  [...]\n" if tail else ""
    while True:
        cut = text
        if len(text) > limit:
            cut = text[: max(0, limit - tail - len(mark))] + mark + text[len(text) - tail :]
        size = len(_json(cut))
        if size <= room:
            return cut
        # escapes make it longer than it is: keep less by as much as it is too long
        limit = len(cut) * room // size - 1
        tail = min(tail, limit // 2)


def _json(value: object) -> str:
    """Return JSON in ASCII."""
    if isinstance(value, str):
        return '"%s"' % "".join(map(_escape, value))
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%s: %s" % (_json(k), _json(v)) for k, v in value.items())
    if isinstance(value, list):
        return "[%s]" % ", ".join(map(_json, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _escape(letter: str) -> str:
    code = ord(letter)
    if code >= ASTRAL:
        code -= ASTRAL
        return "\\u%04x\\u%04x" % (0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF))
    if letter == "\n":
        return "\\n"
    return letter if " " <= letter <= "~" and letter not in '"\\' else "\\u%04x" % code
