"""The JSON records of a run, declared once: {run,status,failure,record}.json, records/rank-*.json.

Each attribute of a class is a key, with its type and default; the class's docstring has a line on
each, from which docs/show-json.md is generated. `int | None` means that the key may be missing,
`Nullable[int]` that null is written too: setting None takes the key away, or writes null.

Reading is tolerant: a missing key has its default, a value of another type counts as missing, and
unknown keys (of another version) survive a rewrite. A key that was never set is not written.
"""

from __future__ import annotations

import os

from safelaunch.runtime import json_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeVar, Union

    from typing_extensions import Self, dataclass_transform

    T = TypeVar("T")
    Nullable = Union[T, None]
else:
    # dataclasses would cost a supervisor's start 10 ms: they import inspect and re

    def dataclass_transform(**_: object):  # noqa: ANN201 - type checkers know it
        """Return a decorator that leaves a class as it is."""
        return lambda cls: cls


_RENAMED = {"class_name": "class"}  # attribute -> key, where the key is a word of Python
_PLAIN = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,), "object": (object,)}
_MISSING = object()


class Field(object):
    """A key of a record: the attribute, the JSON key, and the type as annotated."""

    __slots__ = ("is_nullable", "key", "kind", "name", "nested", "types")

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.key = _RENAMED.get(name, name)
        self.is_nullable = kind.startswith("Nullable[")
        self.kind = kind[len("Nullable[") : -1] if self.is_nullable else kind
        parts = [part for part in self.kind.split(" | ") if part != "None"]
        self.types = tuple(t for part in parts for t in _PLAIN.get(part, ()))
        self.nested = [part for part in parts if part not in _PLAIN]

    def convert(self, value: object) -> object:
        """Return a JSON value as this field's type; _MISSING where it is of another one."""
        if value is None:
            return None if self.is_nullable else _MISSING
        if isinstance(value, self.types):
            return value
        return _convert(self.nested[0], value) if self.nested else _MISSING


def _convert(kind: str, value: object) -> object:
    base, bracket, inner = kind.partition("[")
    inner = inner[:-1] if bracket else ""
    if base in _PLAIN:
        return value if isinstance(value, _PLAIN[base]) else _MISSING
    if base == "Sequence":
        if not isinstance(value, list):
            return _MISSING
        items = [_convert(inner, item) for item in value]
        return [item for item in items if item is not _MISSING]
    if not isinstance(value, dict):
        return _MISSING
    if base == "Mapping":
        kind = inner.partition(", ")[2]
        pairs = [(key, _convert(kind, item)) for key, item in value.items()]
        return {key: item for key, item in pairs if item is not _MISSING}
    return CLASSES[base].from_json(value)


def _plain(value: object) -> object:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


@dataclass_transform(kw_only_default=True)
class Record(object):
    """A JSON object with declared keys; its attributes can be set, and are known to mypy."""

    FILE = ""  # name in the directory of a node, of a record that is a file of its own

    def __init_subclass__(cls) -> None:
        CLASSES[cls.__name__] = cls

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, name: str) -> bool:
        """Whether an attribute was set, also to its default."""
        return name in self.__dict__

    def __repr__(self) -> str:
        return "%s(%r)" % (type(self).__name__, self.to_json())

    @classmethod
    def fields(cls) -> dict[str, Field]:
        """Return {JSON key: field}, those of base classes first."""
        found = _fields.get(cls)
        if found is None:
            annotations = {}  # type: dict[str, str]
            for base in cls.__mro__[-3::-1]:  # without object and Record
                annotations.update(base.__annotations__)
            made = (Field(name, kind) for name, kind in annotations.items())
            found = _fields[cls] = {field.key: field for field in made}
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Self:
        """Return the record that a JSON object holds."""
        record, fields = cls(), cls.fields()
        values, unknown = record.__dict__, {}
        for key, value in data.items():
            field = fields.get(key)
            if field is None:
                unknown[key] = value
                continue
            converted = field.convert(value)
            if converted is not _MISSING:
                values[field.name] = converted
        if unknown:
            values[_UNKNOWN] = unknown
        return record

    @classmethod
    def read(cls, node_dir: str) -> Self | None:
        """Return the record in the directory of a node, or None if there is none to be read."""
        data = json_files.read_json(os.path.join(node_dir, cls.FILE))
        return None if data is None else cls.from_json(data)

    def write(self, node_dir: str) -> None:
        """Write the record into the directory of a node. Raises OSError."""
        json_files.write_json(os.path.join(node_dir, self.FILE), self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object: the keys that are set, in the order in which they were."""
        fields, data = self.fields(), {}
        for name, value in self.__dict__.items():
            field = fields.get(_RENAMED.get(name, name))
            if field is not None and (value is not None or field.is_nullable):
                data[field.key] = _plain(value)
        data.update(self.__dict__.get(_UNKNOWN, {}))
        return data

    @classmethod
    def docs(cls) -> dict[str, str]:
        """Return {attribute: its line of documentation} of those that this class declares."""
        lines = (cls.__doc__ or "").split("\n\n")[-1].strip().split("\n")
        found = (line.strip().partition(": ") for line in lines)
        return {name: doc for name, _, doc in found if doc and name in cls.__dict__}

    def copy(self) -> Self:
        """Return a copy that can be changed; what is nested in it is shared."""
        copy = type(self)()
        copy.__dict__.update(self.__dict__)
        return copy

    def update(self, other: Record) -> None:
        """Take over every key that is set in another record."""
        self.__dict__.update(other.__dict__)


_UNKNOWN = " unknown keys"  # no attribute of a class has such a name
CLASSES = {}  # type: dict[str, type[Record]]  # by name
_fields = {}  # type: dict[type[Record], dict[str, Field]]


# -- parts of several records ----------------------------------------------------------------------


class Process(Record):
    """A process, by what stays true after its end: a pid alone may be another's by then.

    boot_id: boot id of the machine's kernel
    pidns: pid namespace, as /proc/self/ns/pid links to it
    pid: process id
    start: start time in clock ticks since boot (/proc/PID/stat)
    """

    boot_id: str | None = None
    pidns: str | None = None
    pid: int = 0
    start: int = 0


class StackFrame(Record):
    """A line of Python code that was being run.

    file: path of the source file
    line: line number
    function: name of the function
    code: text of the line
    own: whether the file lies in the user's own folders
    is_last: whether it is the innermost frame
    """

    file: str = ""
    line: int = 0
    function: str = ""
    code: str = ""
    own: bool = False
    is_last: bool = False


# -- run.json --------------------------------------------------------------------------------------


class SuccessPolicy(Record):
    """What a run must leave behind to count as succeeded, beyond exit code 0.

    artifacts: globs relative to the working directory
    min_steps: steps that must appear in the log
    """

    artifacts: Sequence[str] = ()
    min_steps: Nullable[int] = None


class HangPolicy(Record):
    """When a run without progress counts as hung, and what then happens.

    action: report, restart or stop
    first_progress: seconds without progress at the start
    factor: multiple of the median step time without progress
    floor: least seconds without progress
    """

    action: str = "report"
    first_progress: float = 0.0
    factor: float = 0.0
    floor: float = 0.0


class RecoveryPolicy(Record):
    """When a failed run is started again.

    max_restarts: restarts at most
    backoff: seconds before the first restart, doubled each time
    backoff_max: longest pause before a restart, seconds
    budget: seconds in which restarts begin
    classes: failure class -> restart or stop
    checkpoint: glob of checkpoints
    progress: pattern of a line that is progress
    no_progress: attempts in a row without progress that end it
    ladder: whether the NCCL ladder of the profile is climbed
    """

    max_restarts: int = 0
    backoff: float = 0.0
    backoff_max: float = 0.0
    budget: Nullable[float] = None
    classes: Mapping[str, str] = {}
    checkpoint: Nullable[str] = None
    progress: Nullable[str] = None
    no_progress: int = 0
    ladder: bool = False


class RestartScripts(Record):
    """The scripts of later attempts.

    token: word in the scripts that a fresh port replaces
    scripts: file names, one for each rung of the ladder
    rungs: variables that each rung adds
    """

    token: str = ""
    scripts: Sequence[str] = ()
    rungs: Sequence[str] = ()


class RunRecord(Record):
    """run.json: what the start decided, and the supervisor of a node works by.

    version: version of the format, 1
    id: run id
    name: name of the job
    backend: what started the supervisor: tmux or setsid
    socket: socket of the run's tmux server
    backend_note: why no better backend was chosen
    created: files and folders beside the node's that the start has made
    node: number of this node
    hosts: hosts of all nodes, as the user names them
    world_size: number of ranks on all nodes
    rank_logs: whether each rank writes a log of its own
    ranks: ranks planned on this node
    single: of one process: main, child or shell
    cwd: working directory of the job
    roots: folders of the user's own code
    python: interpreter of the job
    gpus: visible GPUs; null: all
    capture: whether ranks record what ends them
    logs: globs of the framework's own log files
    log_cap: bytes at most of one log file
    max_duration: seconds until the run is stopped
    progress: patterns of progress in the log
    success: conditions of success
    hang: the watchdog; null: none
    recovery: null: no restarts
    smoke: whether the run ends at success.min_steps
    again: scripts of restarts
    fingerprint: what a resumed run must have too
    resumes: id of the run that this one goes on from
    log: the combined log in the project
    terminal: the caller's terminal variables
    job_file: path of the job file
    safelaunch: version of safelaunch
    created_at: when it was started, seconds since 1970
    hostname: host name of the machine
    starter: the process that started it
    foreground: pid of the client that it ends with
    """

    FILE = "run.json"

    version: int = 1
    id: str = ""
    name: str = ""
    backend: Nullable[str] = None
    socket: Nullable[str] = None
    backend_note: Nullable[str] = None
    created: Sequence[str] = ()
    node: int = 0
    hosts: Sequence[str] = ()
    world_size: Nullable[int] = None
    rank_logs: bool = False
    ranks: Nullable[int] = None
    single: Nullable[str] = None
    cwd: str = ""
    roots: Sequence[str] = ()
    python: Nullable[str] = None
    gpus: Nullable[Sequence[str]] = None
    capture: bool = False
    logs: Sequence[str] = ()
    log_cap: Nullable[int] = None
    max_duration: Nullable[float] = None
    progress: Sequence[str] = ()
    success: Nullable[SuccessPolicy] = None
    hang: Nullable[HangPolicy] = None
    recovery: Nullable[RecoveryPolicy] = None
    smoke: bool = False
    again: Nullable[RestartScripts] = None
    fingerprint: Mapping[str, object] = {}
    resumes: Nullable[str] = None
    log: Nullable[str] = None
    terminal: Mapping[str, str] = {}
    job_file: Nullable[str] = None
    safelaunch: str | None = None
    created_at: float | None = None
    hostname: str | None = None
    starter: Process | None = None
    foreground: int | None = None


# -- status.json -----------------------------------------------------------------------------------


class AttemptRecord(Record):
    """One attempt of a run.

    attempt: number, from 1
    started_at: seconds since 1970
    rung: steps of the NCCL ladder above the start
    port: fresh rendezvous port
    ended_at: seconds since 1970
    elapsed: seconds that it ran
    state: how it ended; missing while it runs
    exit_code: exit code of the launcher
    steps: highest step in its log
    checkpoint: time of the newest checkpoint
    progressed: whether it made progress
    class_name: failure class
    rank: rank that failed first
    what: the failure in one line
    next: what was decided after it, and why
    """

    attempt: int = 0
    started_at: float | None = None
    rung: int = 0
    port: Nullable[int] = None
    ended_at: float | None = None
    elapsed: float | None = None
    state: str | None = None
    exit_code: Nullable[int] = None
    steps: Nullable[int] = None
    checkpoint: Nullable[float] = None
    progressed: bool = False
    class_name: Nullable[str] = None
    rank: Nullable[int] = None
    what: Nullable[str] = None
    next: str | None = None


class Waiting(Record):
    """The pause before a restart.

    until: when the next attempt starts, seconds since 1970
    why: why it is restarted
    """

    until: float = 0.0
    why: str = ""


class RankStack(Record):
    """What one rank of a hung job was doing.

    pid: process id
    how: py-spy, faulthandler, or `none: why`
    frame: the user's innermost line
    call: call that it waits in
    state: process state of the kernel
    wchan: kernel function that it waits in
    cpu: cores in use
    """

    pid: Nullable[int] = None
    how: Nullable[str] = None
    frame: Nullable[StackFrame] = None
    call: Nullable[str] = None
    state: Nullable[str] = None
    wchan: Nullable[str] = None
    cpu: Nullable[float] = None


class HangReport(Record):
    """A suspected hang, and the evidence that was gathered.

    since: begin of the silence, seconds since 1970
    silent: seconds without a sign of life
    kind: silent (no output), or stepless (output without steps)
    over: whether the job went on by itself
    folder: folder of the stacks
    summary: what each rank did, in lines
    rank: rank that holds the others up
    frame: line of code that it is at
    advice: what to do
    flight: dumps of NCCL's flight recorder
    ranks: rank -> its stack
    """

    since: float | None = None
    silent: float = 0.0
    kind: str = ""
    over: bool = False
    folder: str | None = None
    summary: str = ""
    rank: Nullable[int] = None
    frame: Nullable[StackFrame] = None
    advice: str = ""
    flight: Sequence[str] = ()
    ranks: Mapping[str, RankStack] = {}


class ProgressReport(Record):
    """How far an attempt is, as its log tells.

    step: current step
    total: number of steps
    scope: what `step` counts in: run, epoch or bar
    eta: seconds left, as of last_step_time
    epoch: current epoch
    epochs: number of epochs
    steps_seen: steps seen in the log
    done: steps of all epochs
    step_time: median seconds of a step
    loss: last loss; a text for nan and inf
    metrics: last value of each metric
    last_checkpoint_time: last checkpoint, since 1970
    last_step_time: last step, seconds since 1970
    """

    step: int | None = None
    total: Nullable[int] = None
    scope: Nullable[str] = None
    eta: Nullable[float] = None
    epoch: Nullable[float] = None
    epochs: Nullable[float] = None
    steps_seen: int = 0
    done: int = 0
    step_time: Nullable[float] = None
    loss: Nullable[float | str] = None
    metrics: Mapping[str, object] = {}
    last_checkpoint_time: float | None = None
    last_step_time: float | None = None


class NodeSummary(Record):
    """How one of several nodes is.

    node: number of the node
    host: host, as the user names it
    state: state of the node
    exit_code: exit code of its launcher
    signal: signal that ended its launcher
    reason: why it is in this state
    stopped_by: what stopped it
    alive: processes that are left
    """

    node: int = 0
    host: str = ""
    state: str = "unknown"
    exit_code: int | None = None
    signal: str | None = None
    reason: str | None = None
    stopped_by: str | None = None
    alive: int | None = None


class StatusSummary(Record):
    """What status.json and `show --json` both have of a run.

    state: pending, running, succeeded, failed, stopped, lost or unknown
    exit_code: exit code of the launcher
    attempts: the attempts, the newest last
    created_at: start of the run, since 1970
    started_at: start of the first attempt, since 1970
    ended_at: end, seconds since 1970
    elapsed: seconds that it ran
    signal: signal that ended the launcher
    reason: why it is in this state
    alive: processes left of a run without supervisor
    leftovers: processes that outlived the launcher
    unkillable: pids that cannot be ended (in the kernel)
    warning: what the supervisor noticed
    backend: tmux or setsid
    socket: socket of the run's tmux server
    stopped_by: a signal, max_duration, or node
    progress: how far it is
    hang: a suspected hang
    waiting: the pause before a restart
    recovery: why it was not restarted
    advice: what the attempts have shown
    as_of: last status of a dead supervisor, since 1970
    last_sign_at: last sign of life, since 1970
    nodes: state of each of several nodes
    """

    state: str = "unknown"
    exit_code: Nullable[int] = None
    attempts: Sequence[AttemptRecord] = ()
    created_at: Nullable[float] = None
    started_at: float | None = None
    ended_at: float | None = None
    elapsed: float | None = None
    signal: str | None = None
    reason: str | None = None
    alive: int | None = None
    leftovers: int | None = None
    unkillable: Sequence[int] = ()
    warning: str | None = None
    backend: Nullable[str] = None
    socket: Nullable[str] = None
    stopped_by: str | None = None
    progress: ProgressReport | None = None
    hang: HangReport | None = None
    waiting: Waiting | None = None
    recovery: str | None = None
    advice: str | None = None
    as_of: float | None = None
    last_sign_at: float | None = None
    nodes: Sequence[NodeSummary] = ()


class Status(StatusSummary):
    """status.json: how the run of a node is.

    version: version of the format, 1
    id: run id
    name: name of the job
    hostname: host name of the machine
    supervisor: the supervisor
    launcher: the launcher of the current attempt
    last_state: state before its host stopped answering
    """

    FILE = "status.json"

    version: int = 1
    id: str = ""
    name: Nullable[str] = None
    hostname: str | None = None
    supervisor: Process | None = None
    launcher: Process | None = None
    last_state: str | None = None


# -- records/rank-*.json ---------------------------------------------------------------------------


class RankEvent(Record):
    """A line of records/rank-*.json, which the rank itself writes (runtime/site).

    kind: exception, gap (a full disk has swallowed output) or exit (the interpreter shuts down)
    uncaught: whether the interpreter ends the program with the exception
    thread: thread that raised it; null: the main thread
    rank: rank
    local_rank: rank on its node
    world_size: number of ranks
    host: host name
    pid: process id
    attempt: number of the attempt
    restart: number of this start of the rank
    time_ns: wall time
    monotonic_ns: monotonic time
    type: qualified name of the exception's class
    message: its text, shortened
    traceback: the traceback as Python prints it, shortened
    frames: its innermost frames, the innermost last
    dropped: bytes of output that a full disk has swallowed
    """

    kind: str = ""
    uncaught: bool = True
    thread: Nullable[str] = None
    rank: int = 0
    local_rank: Nullable[int] = None
    world_size: Nullable[int] = None
    host: str = ""
    pid: int = 0
    attempt: int = 0
    restart: int = 0
    time_ns: int = 0
    monotonic_ns: int = 0
    type: str = ""
    message: str = ""
    traceback: str = ""
    frames: Sequence[StackFrame] = ()
    dropped: int = 0


# -- failure.json ----------------------------------------------------------------------------------


class ExceptionRecord(Record):
    """The exception that ended a rank.

    type: qualified name of its class
    message: its text
    traceback: the traceback as Python prints it
    """

    type: str = ""
    message: str = ""
    traceback: str = ""


class ExceptionCause(Record):
    """An exception behind another one.

    what: class and message in one line
    type: qualified name of its class
    message: its text, shortened
    frame: the user's innermost line
    """

    what: str = ""
    type: str = ""
    message: str = ""
    frame: Nullable[StackFrame] = None


class RankFailure(Record):
    """How another rank ended.

    rank: rank; null: the launcher
    role: root, cascade or unknown
    class_name: failure class
    what: the failure in one line
    after: seconds after the first failure
    exit_code: exit code
    signal: signal that ended it
    host: host, of a run of several nodes
    node: node, of a run of several
    time: when it failed, since 1970
    """

    rank: Nullable[int] = None
    role: str = "unknown"
    class_name: Nullable[str] = None
    what: str = ""
    after: Nullable[float] = None
    exit_code: Nullable[int] = None
    signal: Nullable[str] = None
    host: Nullable[str] = None
    node: Nullable[int] = None
    time: Nullable[float] = None


class Failure(Record):
    """failure.json: why the newest failed attempt failed.

    version: version of the format, 1
    attempt: number of the attempt
    class_name: failure class
    meaning: what the class means
    role: root (a cause), cascade (a consequence) or unknown
    rank: rank that failed first
    host: host that it ran on
    node: node that it ran on, of several
    pid: process id
    time: when it failed, seconds since 1970
    what: the failure in one line
    exception: its exception
    frame: the user's innermost line
    exit_code: exit code
    signal: signal that ended it
    last_lines: end of its log
    log: path of its log
    printed: whether anything stands in its log
    causes: exceptions behind it
    stack: stack of a fatal signal
    disk: a path on the disk that was full
    proof: what proves it
    others: what the other ranks then did
    advice: what to do, in one line
    signature: id of the signature that recognised it
    why: cause, as the signature knows it
    remedy: what to do, in steps
    restart: whether a restart helps: may-help or useless
    source: where the signature comes from
    unmet: conditions of `success` that are not met
    """

    FILE = "failure.json"

    version: int = 1
    attempt: int | None = None
    class_name: Nullable[str] = None
    meaning: str | None = None
    role: str = "unknown"
    rank: Nullable[int] = None
    host: str = ""
    node: int | None = None
    pid: Nullable[int] = None
    time: Nullable[float] = None
    what: str = ""
    exception: Nullable[ExceptionRecord] = None
    frame: Nullable[StackFrame] = None
    exit_code: Nullable[int] = None
    signal: Nullable[str] = None
    last_lines: Sequence[str] = ()
    log: str | None = None
    printed: bool = True
    causes: Sequence[ExceptionCause] = ()
    stack: Sequence[StackFrame] = ()
    disk: Nullable[str] = None
    proof: Nullable[str] = None
    others: Sequence[RankFailure] = ()
    advice: str = ""
    signature: str | None = None
    why: str | None = None
    remedy: Sequence[str] = ()
    restart: str | None = None
    source: Sequence[str] = ()
    unmet: Sequence[str] = ()


# -- record.json -----------------------------------------------------------------------------------


class Checkout(Record):
    """The git checkout around the working directory.

    commit: hash of the commit
    changed: changed files (--porcelain)
    more_changed: changed files that are not listed
    """

    commit: str | None = None
    changed: Nullable[Sequence[str]] = None
    more_changed: int = 0


class Provenance(Record):
    """record.json: what a run was made of.

    version: version of the format, 1
    cwd: working directory of the job
    interpreter: path of the job's Python
    python: version of the job's Python
    git: the checkout; null: none
    packages: package -> version
    """

    FILE = "record.json"

    version: int = 1
    cwd: str = ""
    interpreter: str | None = None
    python: str | None = None
    git: Nullable[Checkout] = None
    packages: Mapping[str, str] | None = None
