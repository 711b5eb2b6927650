"""The JSON files of a run directory, declared once.

Each attribute of a class is a key, with its type and default; docs/show-json.md is generated from
the comments behind them. `int | None` means that the key may be missing, `Nullable[int]` that null
is written too: setting None takes the key away, or writes null.

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


class Field:
    """A key of a record: the attribute, the JSON key, and the type as annotated."""

    __slots__ = ("is_nullable", "key", "kind", "name", "parts")

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.key = _RENAMED.get(name, name)
        self.is_nullable = kind.startswith("Nullable[")
        self.kind = kind[len("Nullable[") : -1] if self.is_nullable else kind
        self.parts = [part for part in self.kind.split(" | ") if part != "None"]

    def convert(self, value: object) -> object:
        """Return a JSON value as this field's type; _MISSING where it has another type."""
        if value is None:
            return None if self.is_nullable else _MISSING
        results = (_convert(part, value) for part in self.parts)
        return next((result for result in results if result is not _MISSING), _MISSING)


def _convert(kind: str, value: object) -> object:
    base, _, inner = kind.partition("[")
    inner = inner[:-1]
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
class Record:
    """A JSON object with declared keys, which are attributes that can be set."""

    FILE = ""  # name in the directory of a node, of a record that is a file of its own

    def __init_subclass__(cls) -> None:
        CLASSES[cls.__name__] = cls

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, name: str) -> bool:
        """Whether an attribute is set, also to its default."""
        return name in self.__dict__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_json()!r})"

    @classmethod
    def fields(cls) -> dict[str, Field]:
        """Return {JSON key: field}, those of base classes first."""
        if cls not in _fields:
            annotations: dict[str, str] = {}
            for base in cls.__mro__[-3::-1]:  # without object and Record
                annotations.update(base.__annotations__)
            fields = (Field(name, kind) for name, kind in annotations.items())
            _fields[cls] = {field.key: field for field in fields}
        return _fields[cls]

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
        """Return the JSON object: the keys that are set, in the order of setting."""
        fields, data = self.fields(), {}
        for name, value in self.__dict__.items():
            field = fields.get(_RENAMED.get(name, name))
            if field is not None and (value is not None or field.is_nullable):
                data[field.key] = _plain(value)
        data.update(self.__dict__.get(_UNKNOWN, {}))
        return data

    def copy(self) -> Self:
        """Return a shallow copy."""
        copy = type(self)()
        copy.__dict__.update(self.__dict__)
        return copy

    def update(self, other: Record) -> None:
        """Take over every key that is set in another record."""
        self.__dict__.update(other.__dict__)


_UNKNOWN = " unknown keys"  # no attribute of a class has such a name
CLASSES: dict[str, type[Record]] = {}  # by name
_fields: dict[type[Record], dict[str, Field]] = {}


# -- parts of several records ----------------------------------------------------------------------


class Process(Record):
    """A process, by what stays true after its end: a pid alone may be another's by then."""

    boot_id: str | None = None  # boot id of the machine's kernel
    pidns: str | None = None  # pid namespace, as /proc/self/ns/pid links to it
    pid: int = 0  # process id
    start: int = 0  # start time in clock ticks since boot (/proc/PID/stat)


class StackFrame(Record):
    """A line of Python code that was being run."""

    file: str = ""  # path of the source file
    line: int = 0  # line number
    function: str = ""  # name of the function
    code: str = ""  # text of the line
    own: bool = False  # whether the file lies in the user's own folders
    is_last: bool = False  # whether it is the innermost frame


# -- run.json --------------------------------------------------------------------------------------


class SuccessPolicy(Record):
    """What a run must leave behind to count as succeeded, beyond exit code 0."""

    artifacts: Sequence[str] = ()  # globs relative to the working directory
    min_steps: Nullable[int] = None  # steps that must appear in the log


class HangPolicy(Record):
    """When a run without progress counts as hung, and what then happens."""

    action: str = "report"  # report, restart or stop
    first_progress: float = 0.0  # seconds without progress at the start
    factor: float = 0.0  # multiple of the median step time without progress
    floor: float = 0.0  # least seconds without progress


class RecoveryPolicy(Record):
    """When a failed run is started again."""

    max_restarts: int = 0  # restarts at most
    backoff: float = 0.0  # seconds before the first restart, doubled each time
    backoff_max: float = 0.0  # longest pause before a restart, seconds
    budget: Nullable[float] = None  # seconds in which restarts begin
    classes: Mapping[str, str] = {}  # failure class -> restart or stop
    checkpoint: Nullable[str] = None  # glob of checkpoints
    progress: Nullable[str] = None  # pattern of a line that is progress
    no_progress: int = 0  # attempts in a row without progress that end it
    ladder: bool = False  # whether the NCCL ladder of the profile is climbed


class RestartScripts(Record):
    """The scripts of later attempts."""

    token: str = ""  # word in the scripts that a fresh port replaces
    scripts: Sequence[str] = ()  # file names, one for each rung of the ladder
    checkpoint: Nullable[str] = None  # text in the scripts that a checkpoint's path replaces
    quote: str = ""  # how a quote in that path is written there
    fresh: Sequence[str] = ()  # scripts for attempts without a whole checkpoint
    rungs: Sequence[str] = ()  # variables that each rung adds


class ManualNode(Record):
    """Which one of several nodes a run is that was started by hand on each machine."""

    node: Nullable[int] = None  # its number; null: the launcher numbers them
    nodes: int = 0  # how many there are


class EngineStart(Record):
    """How an engine starts a node: it chooses the machine, and Slurm may start it again."""

    name: str = ""  # slurm, ray
    life: int = 0  # how often it has started the run again
    is_joined: bool = False  # whether it has chosen the machines, and this one has joined
    attempt: int = 1  # number of the first attempt of this life
    port: Nullable[int] = None  # rendezvous port of that attempt
    checkpoint: Nullable[str] = None  # checkpoint that it resumes from
    notice: float = 0.0  # seconds before its time limit at which it sends SIGUSR2
    can_resume: bool = False  # whether a run that the limit ends can go on in another allocation
    may_restart: bool = True  # whether it may start the run again after a signal
    placeholders: Mapping[str, str] = {}  # value that the node fills in -> what stands for it
    image: str = ""  # what each node joins in; empty: no container
    home: str = ""  # the home folder in the container

    @property
    def title(self) -> str:
        """The engine's name in messages."""
        return self.name.capitalize()


class EngineMeeting(Record):
    """meeting.<life>.json: what node 0 of an engine's allocation has chosen for all nodes."""

    address: str = ""  # address of node 0
    port: int = 0  # rendezvous port of the ranks
    messages: int = 0  # port of node 0's supervisor
    token: str = ""  # secret of the run, from which each message has its proof
    attempt: int = 1  # number of the first attempt of this life
    checkpoint: Nullable[str] = None  # checkpoint that it resumes from


class EngineJob(Record):
    """engine.json, in the folder of node 0: the job that an engine has for the run."""

    FILE = "engine.json"

    name: str = ""  # slurm, ray
    job: str = ""  # what the engine calls it; empty until the engine has said it
    comment: str = ""  # by which the engine lists it, also where its answer did not arrive
    cluster: str = ""  # of several that one engine has; of Ray its address
    submitted_at: float = 0.0  # seconds since 1970
    prefix: Sequence[str] = ()  # words before the engine's programs
    token_from: str = ""  # variable with the token that the engine asks for
    program: Process | None = None  # the program that submits it, until the engine has said it
    is_over: bool = False  # whether nothing more will come of it, and the nodes' records say how

    @property
    def key(self) -> str:
        """The job as its engine names it, such as `sbatch --parsable`."""
        return f"{self.job};{self.cluster}" if self.cluster and not self.place else self.job

    @property
    def place(self) -> str:
        """Where the job is, for people: ` at` the address of its engine, if it has one."""
        return f" at {self.cluster}" if "://" in self.cluster else ""


class JobEnvironment(Record):
    """environ.json: variables of a job that an engine or a container starts, also secret ones."""

    FILE = "environ.json"

    variables: Mapping[str, str] = {}  # as the caller had them, with those of `env_from`
    umask: int | None = None  # of the caller


class ContainerMount(Record):
    """A file or folder of the machine that a container sees."""

    source: str = ""  # path on the machine
    target: str = ""  # path in the container
    read_only: bool = False  # whether it cannot be written there


class ContainerSpec(Record):
    """The container that a node of a plan runs in."""

    engine: str = ""  # docker or podman; empty: docker, else podman
    image: str = ""  # as the engine names it
    mounts: Sequence[ContainerMount] = ()  # all that it sees of the machine
    home: str = ""  # the home folder in it
    shm: Nullable[int] = None  # bytes of /dev/shm; null: that of the machine
    user: str = "me"  # me or root
    python: str = "python3"  # interpreter of the image
    pull: str = "never"  # never, missing or always
    options: Sequence[str] = ()  # further words of the engine's `run`
    environ: Mapping[str, str] = {}  # where the engine is, as the plan says it: DOCKER_HOST ...
    accelerator: str = ""  # cuda, rocm, npu, cpu; empty: not known


class ContainerMachine(Record):
    """What the command of a container needs to know of its machine."""

    engine: str = ""  # docker or podman
    uid: int = 0  # the user's
    gid: int = 0  # the user's first group
    groups: Sequence[int] = ()  # the user's other groups
    name: str = ""  # the user's name
    is_rootless: bool = False  # whether root in the container is the user
    raises_limits: bool = True  # whether the engine may raise limits of memory
    gpus: bool = False  # whether the machine has GPUs of NVIDIA
    infiniband: bool = False  # whether it has InfiniBand


class ContainerStart(Record):
    """The container that a node runs in, as its start has chosen it."""

    engine: str = ""  # docker or podman
    name: str = ""  # its name: the run's id
    image: str = ""  # as the engine names it
    image_id: str = ""  # what that name meant at the start
    argv: Sequence[str] = ()  # the command that runs it
    environ: Mapping[str, str] = {}  # where the engine is: DOCKER_HOST and the like
    python: str = ""  # version of the image's interpreter
    packages: Mapping[str, str] = {}  # versions of packages in the image


class ContainerEnd(Record):
    """container.json: what runs the container on its machine, and how the container ended."""

    FILE = "container.json"

    client: Process | None = None  # the process that waits for its end
    state: str = ""  # exited, removed, failed (never started); empty: it may be running
    exit_code: int | None = None  # of the container, 125 to 127 of the engine
    is_oom: bool = False  # whether memory was why the supervisor was killed
    proof: str | None = None  # what shows that
    error: str | None = None  # the engine's words
    ended_at: float | None = None  # seconds since 1970


class ReadyCheck(Record):
    """When a service is ready: the first of `http`, `log` and `command`, else a TCP connection."""

    http: Nullable[str] = None  # path that answers
    status: int = 200  # with this status
    json: Mapping[str, str] = {}  # and these values in its JSON; keys may be `a.b`
    log: Nullable[str] = None  # regular expression that a line of its log matches
    command: Sequence[str] = ()  # words of a command that ends with 0
    limit: float = 0.0  # seconds, from its start; then the run fails


class CardRequest(Record):
    """What a run takes of the cards (GPUs, NPUs) of its machine."""

    kind: str = "cuda"  # cuda, rocm or npu
    count: int = 0  # how many it waits for in the machine's queue
    priority: int = 0  # who has a higher one goes first
    environ: Mapping[str, str] = {}  # variables of its start that leave it only some of the cards
    folder: str = ""  # folder of the claims of all users of the machine


class ServiceSpec(Record):
    """A service of a job."""

    name: str = ""  # its name
    needs: Sequence[str] = ()  # services that are ready before it starts
    ready: ReadyCheck = ReadyCheck()  # when it is ready
    port: Nullable[int] = None  # its port; null: a free one
    cwd: str = ""  # its working directory
    on_exit: str = "fail"  # fail: an end of it ends the attempt; ignore
    cards: CardRequest | None = None  # cards that it has named, without a queue
    queued: int = 0  # how many of the cards that its run waits for are its own
    gpus: Sequence[str] = ()  # cards that it has named, or those once the run has them
    node: int = 0  # number of the node that runs it
    address: str = "127.0.0.1"  # address of that node, for all nodes


class MergeSpec(Record):
    """How the outputs of the parts of a run become one file."""

    output: str = ""  # the file
    by: str = "lines"  # lines, jsonl or csv
    command: Sequence[str] = ()  # a command in its place


class FanOutSpec(Record):
    """fan_out.json: the parts of a run, as its coordinator works by."""

    FILE = "fan_out.json"

    count: int = 0  # number of parts, without a matrix
    matrix: Mapping[str, Sequence[str]] = {}  # values by name: a part for each combination
    over: str | None = None  # file that is divided among the parts
    by: str = "lines"  # lines, jsonl or csv
    at_once: int = 0  # parts that run at the same time; 0: as many as the machine has usable cores
    hosts: int = 1  # hosts that share the parts
    share: Sequence[int] = ()  # numbers of the parts of this host, where there are several
    cards: Sequence[str] = ()  # cards of the run
    cards_each: int = 0  # cards of each part; 0: none
    merge: MergeSpec | None = None  # missing: the outputs stay as they are
    earlier: str | None = None  # folder of an earlier run there, whose parts need not run again
    is_array: bool = False  # whether each part is a job of an engine, on a machine of its own


class PartEnd(Record):
    """A line of parts.jsonl: how a part of a run has ended."""

    FILE = "parts.jsonl"

    part: int = 0  # its number, from 0
    state: str = ""  # succeeded, failed or stopped
    exit_code: Nullable[int] = None  # exit code of its launcher
    class_name: str | None = None  # class of its failure
    cause: str | None = None  # why it did not succeed
    run: str | None = None  # id of the earlier run that has done it; missing: this run
    run_node: int = 0  # node of that run
    host: str | None = None  # its host, as the user names it, where several share the parts
    words: Mapping[str, str] = {}  # values of its words
    input_sha256: str = ""  # of its piece of the input
    source_sha256: str | None = None  # of all pieces, where several hosts divide the input
    elapsed: float | None = None  # seconds
    ended_at: float | None = None  # seconds since 1970


class PartEvent(Record):
    """A line of events.jsonl: a part of the run has begun, or has ended."""

    NAME = "part"

    part: int = 0  # its number, from 0
    state: str = ""  # running, succeeded, failed or stopped
    values: Mapping[str, str] = {}  # its values of the matrix
    exit_code: int | None = None  # exit code of its launcher
    class_name: str | None = None  # class of its failure
    what: str | None = None  # why it did not succeed
    elapsed: float | None = None  # seconds


class EarlierRun(Record):
    """A run of this machine that must have ended before another one begins."""

    run: str = ""  # its run id
    node: int = 0  # its node on this machine
    is_any_end: bool = False  # whether it need not have succeeded
    has_ended: bool = False  # whether its end, of all its nodes, was seen before the start
    step: str | None = None  # the step that it is, of which this run has outputs as words


class UploadSpec(Record):
    """Where files of the working directory are copied to at the end of a run."""

    to: str = ""  # remote:path of rclone, or a URL of fsspec
    program: str = "rclone"  # rclone or fsspec
    files: Sequence[str] = ()  # globs relative to the working directory
    timeout: float = 86400.0  # seconds that it may take


class ShutdownSpec(Record):
    """The command that turns the machine off at the end of a run."""

    command: Sequence[str] = ()  # its words
    grace: float = 300.0  # seconds in which a person can keep the machine on
    pull_wait: float = 3600.0  # seconds for a client that is to fetch the files of `pull`
    others: str = "wait"  # wait for people and for runs of other homes, or ignore


class EndPlan(Record):
    """What follows the end of a run, on its node 0."""

    on_success: Sequence[Sequence[str]] = ()  # commands after a good end
    on_failure: Sequence[Sequence[str]] = ()  # commands after a failure
    on_end: Sequence[Sequence[str]] = ()  # commands after any end
    timeout: float = 600.0  # seconds that each command may take
    upload: Nullable[UploadSpec] = None  # null: none
    pull: Sequence[str] = ()  # globs of files that the client which waits fetches
    shutdown: Nullable[ShutdownSpec] = None  # null: the machine stays on


class CostLimit(Record):
    """What a run may cost."""

    total: Nullable[float] = None  # in all
    per_hour: Nullable[float] = None  # what its machines cost together for an hour

    @property
    def seconds(self) -> float:
        """The time in which the budget is used up."""
        if self.total is None or not self.per_hour:
            return float("inf")
        return self.total / self.per_hour * 3600


class PreemptionSource(Record):
    """Where a machine that may be taken away says so."""

    file: Nullable[str] = None  # a path that is there from then on
    url: Nullable[str] = None  # a URL that answers from then on
    kind: str = "url"  # how it is asked: url, aws, gcp, azure
    sigterm: bool = False  # whether a TERM that no person has sent means it
    every: float = 5.0  # seconds between two looks
    grace: float = 25.0  # seconds between TERM and KILL of the ranks


class PreemptionNotice(Record):
    """preemption.json: what a metadata URL has said of the machine."""

    FILE = "preemption.json"

    what: str = ""  # its answer, shortened; empty: no notice yet
    problem: str = ""  # why it could not be asked
    time: float = 0.0  # seconds since 1970


class PulledFiles(Record):
    """pulled.json: the files of `pull` that a client has fetched, and verified."""

    FILE = "pulled.json"

    client: str = ""  # user@machine that has them
    files: int = 0  # how many
    time: float = 0.0  # seconds since 1970


class CardClaim(Record):
    """A file of that folder: what a run has of the machine's cards, or waits for."""

    run: str = ""  # run id
    node: int = 0  # its node on this machine
    pid: int = 0  # its supervisor
    kind: str = "cuda"  # cuda, rocm or npu
    count: int = 0  # how many cards it waits for
    allowed: Sequence[str] | None = None  # cards that it may use; missing: not known yet
    cards: Sequence[str] = ()  # cards that it has: UUIDs, or kind and index
    words: Sequence[str] = ()  # the same as its variable names them
    since: float | None = None  # when it began to wait, or took them, seconds since 1970


class RunRecord(Record):
    """run.json: what the start decided, and the supervisor of a node works by."""

    FILE = "run.json"

    version: int = 1  # version of the format, 1
    id: str = ""  # run id
    name: str = ""  # name of the job
    backend: Nullable[str] = None  # what started the supervisor: tmux or setsid
    socket: Nullable[str] = None  # socket of the run's tmux server
    backend_note: Nullable[str] = None  # why no better backend was chosen
    created: Sequence[str] = ()  # files and folders beside the node's that the start has made
    node: int = 0  # number of this node
    hosts: Sequence[str] = ()  # hosts of all nodes, as the user names them
    manual_node: ManualNode | None = None  # of nodes started by hand: which one this is
    world_size: Nullable[int] = None  # number of ranks on all nodes
    rank_logs: bool = False  # whether each rank writes a log of its own
    ranks: Nullable[int] = None  # ranks planned on this node
    single: Nullable[str] = None  # main, child, shell or mpi, see launchers.Command
    start: str | None = None  # direct: the ranks are started without their launcher
    peer_grace: float | None = None  # seconds that they may then go on where one has failed
    cwd: str = ""  # working directory of the job
    place: str | None = None  # the project's folder on its host, of a run on hosts
    tree: str | None = None  # the run's own copy of that folder; missing: it has none
    tree_shared: bool = False  # whether other nodes of the run use the same tree
    checkout: str | None = None  # id of the checkout that the folder belongs to
    roots: Sequence[str] = ()  # folders of the user's own code
    python: Nullable[str] = None  # interpreter of the job
    gpus: Nullable[Sequence[str]] = None  # visible GPUs; null: all
    capture: bool = False  # whether ranks record what ends them
    evidence: Sequence[str] = ()  # what ranks record of their collectives: flight, nccl
    logs: Sequence[str] = ()  # globs of the framework's own log files
    log_cap: Nullable[int] = None  # bytes at most of one log file
    max_duration: Nullable[float] = None  # seconds until the run is stopped
    progress: Sequence[str] = ()  # patterns of progress in the log
    success: Nullable[SuccessPolicy] = None  # conditions of success
    hang: Nullable[HangPolicy] = None  # the watchdog; null: none
    recovery: Nullable[RecoveryPolicy] = None  # null: no restarts
    smoke: bool = False  # whether the run ends at success.min_steps
    again: Nullable[RestartScripts] = None  # scripts of restarts
    fingerprint: Mapping[str, object] = {}  # what a resumed run must have too
    resumes: Nullable[str] = None  # id of the run that this one goes on from
    resume_checkpoint: Nullable[str] = None  # checkpoint that the first attempt resumes from
    decisions: Sequence[str] = ()  # which variables of the profile the start has set, and why
    log: Nullable[str] = None  # the combined log in the project
    terminal: Mapping[str, str] = {}  # the caller's terminal variables
    job_file: Nullable[str] = None  # path of the job file
    client: str | None = None  # user@machine that started it on this host; missing: this machine
    safelaunch: str | None = None  # version of safelaunch
    created_at: float | None = None  # when it was started, seconds since 1970
    hostname: str | None = None  # host name of the machine
    starter: Process | None = None  # the process that started it
    foreground: int | None = None  # pid of the client that it ends with
    engine: EngineStart | None = None  # missing: the start has chosen the machines
    container: ContainerStart | None = None  # missing: it runs on the machine itself
    after: Sequence[EarlierRun] = ()  # runs that must have ended before it begins
    services: Sequence[ServiceSpec] = ()  # programs that run beside the job
    service_nodes: int = 0  # how many of its nodes, the last ones, run services and no ranks
    queue: CardRequest | None = None  # cards of the machine that it waits for
    cards: CardRequest | None = None  # cards that it has named, without a queue
    placeholders: Mapping[str, str] = {}  # value that a later moment decides -> what stands for it
    group: str | None = None  # id of the group of runs that it is one step of
    step: str | None = None  # which step
    key: str | None = None  # the key of its start, which starts once; missing: none
    ending: EndPlan | None = None  # what follows its end; missing: nothing
    max_cost: CostLimit | None = None  # missing: no budget
    preemption: PreemptionSource | None = None  # missing: the machine is not taken away


# -- status.json -----------------------------------------------------------------------------------


class AttemptRecord(Record):
    """One attempt of a run."""

    attempt: int = 0  # number, from 1
    started_at: float | None = None  # seconds since 1970
    rung: int = 0  # steps of the NCCL ladder above the start
    port: Nullable[int] = None  # fresh rendezvous port
    resume_checkpoint: Nullable[str] = None  # checkpoint that it resumes from
    changed_files: Sequence[str] | None = None  # of the code, since the run's start
    ended_at: float | None = None  # seconds since 1970
    elapsed: float | None = None  # seconds that it ran
    state: str | None = None  # how it ended; missing while it runs
    exit_code: Nullable[int] = None  # exit code of the launcher
    steps: Nullable[int] = None  # highest step in its log
    checkpoint: Nullable[float] = None  # time of the newest checkpoint
    progressed: bool = False  # whether it made progress
    class_name: Nullable[str] = None  # failure class
    rank: Nullable[int] = None  # rank that failed first
    what: Nullable[str] = None  # the failure in one line
    next: str | None = None  # what was decided after it, and why


class Waiting(Record):
    """The pause before a restart."""

    until: float = 0.0  # when the next attempt starts, seconds since 1970
    why: str = ""  # why it is restarted


class RankStack(Record):
    """What one rank of a hung job was doing."""

    pid: Nullable[int] = None  # process id
    how: Nullable[str] = None  # py-spy, faulthandler, or `none: why`
    frame: Nullable[StackFrame] = None  # the user's innermost line
    call: Nullable[str] = None  # call that it waits in
    state: Nullable[str] = None  # process state of the kernel
    wchan: Nullable[str] = None  # kernel function that it waits in
    cpu: Nullable[float] = None  # cores in use


class Collective(Record):
    """An operation of several ranks, as torch's flight recorder has it."""

    group: str = ""  # process group: its description and name
    members: Nullable[Sequence[int]] = None  # ranks of the group; null: not recorded
    number: int = 0  # number in its group, from 1
    operation: str = ""  # all_reduce, ...
    sizes: str = ""  # sizes of its tensors
    elements: Sequence[int] = ()  # elements of all inputs, and of all outputs
    types: str = ""  # types of its inputs
    state: str = ""  # scheduled, started or completed
    is_p2p: bool = False  # whether it is a send or recv
    peer: Nullable[int] = None  # rank at its other end
    time: float = 0.0  # when it was called, seconds since 1970
    frame: Nullable[StackFrame] = None  # the user's line that called it


class RankCollectives(Record):
    """What a rank was in as it wrote a dump of its flight recorder."""

    waits: Sequence[Collective] = ()  # of each group the first that is not complete
    earlier: Sequence[Collective] = ()  # those before it
    last: Sequence[Collective] = ()  # of each group the last that was called
    newest: Nullable[Collective] = None  # the last of all


class CollectiveReport(Record):
    """Why a collective did not end, by the dumps of the ranks."""

    kind: str = "unknown"  # desync, slow-rank, stuck or unknown
    what: str = ""  # who waits where, in one sentence
    rank: Nullable[int] = None  # rank that the others wait for, or that is in another one
    frame: Nullable[StackFrame] = None  # its line of code
    advice: str = ""  # what to do
    folder: str | None = None  # folder of the dumps
    ranks: Mapping[str, RankCollectives] = {}  # rank -> what it was in


class NcclReport(Record):
    """What NCCL or RCCL wrote about its start."""

    versions: Sequence[str] = ()  # its version; several where ranks have different ones
    networks: Sequence[str] = ()  # networks that it chose: IB, Socket or a plug-in
    devices: Sequence[str] = ()  # network cards or interfaces of those
    channels: Nullable[int] = None  # channels of the communicator that has most
    nodes: Nullable[int] = None  # nodes of the communicator that has most
    transports: Sequence[str] = ()  # transports in use: P2P/CUMEM, SHM/direct/direct, NET/IB
    odd: Sequence[str] = ()  # pairs of GPUs in a node with another transport than most
    unfinished: int = 0  # communicators that have begun and are not complete
    warnings: Sequence[str] = ()  # its warnings


class HangReport(Record):
    """A suspected hang, and the evidence that was gathered."""

    since: float | None = None  # begin of the silence, seconds since 1970
    silent: float = 0.0  # seconds without a sign of life
    kind: str = ""  # silent (no output), or stepless (output without steps)
    over: bool = False  # whether the job went on by itself
    folder: str | None = None  # folder of the stacks
    summary: str = ""  # what each rank did, in lines
    rank: Nullable[int] = None  # rank that holds the others up
    frame: Nullable[StackFrame] = None  # line of code that it is at
    advice: str = ""  # what to do
    flight: Sequence[str] = ()  # dumps of NCCL's flight recorder
    collectives: CollectiveReport | None = None  # what they show
    ranks: Mapping[str, RankStack] = {}  # rank -> its stack


class ProgressReport(Record):
    """The progress of an attempt, from its log."""

    step: int | None = None  # current step
    total: Nullable[int] = None  # number of steps
    scope: Nullable[str] = None  # what `step` counts in: run, epoch, bar, or log (log lines)
    eta: Nullable[float] = None  # seconds left, as of last_step_time
    epoch: Nullable[float] = None  # current epoch
    epochs: Nullable[float] = None  # number of epochs
    steps_seen: int = 0  # steps seen in the log
    done: int = 0  # steps of all epochs
    lines_without_step: int | None = None  # lines without a step in a long log, at most a million
    step_time: Nullable[float] = None  # median seconds of a step
    loss: Nullable[float | str] = None  # last loss; a text for nan and inf
    metrics: Mapping[str, object] = {}  # last value of each metric
    last_checkpoint_time: float | None = None  # last checkpoint, since 1970
    last_step_time: float | None = None  # last step, seconds since 1970


class LeftoverProcess(Record):
    """A process that outlived the launcher."""

    pid: int = 0  # process id
    command: str = ""  # program and script, without arguments
    waited: float = 0.0  # seconds from the launcher's end


class DroppedOutput(Record):
    """A log that lacks output, since its disk was full or refused it."""

    file: str = ""  # path of the log
    bytes: int = 0  # bytes that it lacks
    why: str = ""  # error of the disk
    host: str | None = None  # host, of a run of several nodes


class AttemptDropped(Record):
    """dropped.json beside the logs of an attempt: only there where output was dropped."""

    FILE = "dropped.json"

    logs: Sequence[DroppedOutput] = ()  # those that lack output


class NodeSummary(Record):
    """How one of several nodes is."""

    node: int = 0  # number of the node
    host: str = ""  # host, as the user names it
    state: str = "unknown"  # state of the node
    exit_code: int | None = None  # exit code of its launcher
    signal: str | None = None  # signal that ended its launcher
    reason: str | None = None  # why it is in this state
    stopped_by: str | None = None  # what stopped it
    stop_origin: str | None = None  # who sent the signal that stopped it
    alive: int | None = None  # processes that are left
    run: str | None = None  # its own run there, of a node that was started by hand
    start: str | None = None  # direct: its ranks were started without their launcher


class ServiceStatus(Record):
    """How a service of a job is."""

    name: str = ""  # its name
    state: str = "pending"  # pending, starting, ready, or the state in which it ended
    missing: str | None = None  # what its ready check misses
    url: str | None = None  # where it listens
    port: int | None = None  # its port
    exit_code: int | None = None  # exit code of its launcher
    run_dir: str | None = None  # its folder
    host: str | None = None  # host of its node, where the run has several


class EndStep(Record):
    """A command, the upload or the shutdown at the end of a run."""

    name: str = ""  # on_success, on_failure, on_end, upload, verify or shutdown
    command: str = ""  # what is run
    state: str = "running"  # running, succeeded, failed, or stopped
    exit_code: Nullable[int] = None  # exit code of the command
    what: str = ""  # what is to be said of its end
    started_at: float = 0.0  # seconds since 1970
    elapsed: Nullable[float] = None  # seconds that it took


class EndReport(Record):
    """How far what follows the end of a run is."""

    state: str = "running"  # running, waiting, grace, done, failed, stopped or lost
    what: str = ""  # what runs, what it waits for, or what has failed
    shutdown_at: Nullable[float] = None  # when the machine is turned off, seconds since 1970
    steps: Sequence[EndStep] = ()  # what was run, the newest last


class StatusSummary(Record):
    """What status.json and `show --json` both have of a run."""

    state: str = "unknown"  # pending, running, succeeded, failed, stopped, lost or unknown
    exit_code: Nullable[int] = None  # exit code of the launcher
    attempts: Sequence[AttemptRecord] = ()  # the attempts, the newest last
    created_at: Nullable[float] = None  # start of the run, since 1970
    started_at: float | None = None  # start of the first attempt, since 1970
    ended_at: float | None = None  # end, seconds since 1970
    elapsed: float | None = None  # seconds that it ran
    signal: str | None = None  # signal that ended the launcher
    reason: str | None = None  # why it is in this state
    alive: int | None = None  # processes left of a run without supervisor
    leftovers: int | None = None  # processes that outlived the launcher and had to be ended
    leftover_processes: Sequence[LeftoverProcess] = ()  # those; while it runs: those it waits for
    unkillable: Sequence[int] = ()  # pids that cannot be ended (in the kernel)
    proof: str | None = None  # why no process can be left: wait (ECHILD), cgroup, reboot or claim
    warning: str | None = None  # what the supervisor noticed
    dropped: Sequence[DroppedOutput] = ()  # logs that lack output, and how much
    backend: Nullable[str] = None  # tmux or setsid
    socket: Nullable[str] = None  # socket of the run's tmux server
    stopped_by: str | None = None  # a signal, max_duration, or node
    stop_origin: str | None = None  # who sent the signal: a command, Ctrl-C, a process
    progress: ProgressReport | None = None  # how far it is
    hang: HangReport | None = None  # a suspected hang
    waiting: Waiting | None = None  # the pause before a restart
    waits_for: str | None = None  # what a pending run waits for before its first attempt
    services: Sequence[ServiceStatus] = ()  # the services of the job
    recovery: str | None = None  # why it was not restarted
    advice: str | None = None  # what the attempts have shown
    nccl: NcclReport | None = None  # what NCCL chose, of the newest attempt
    as_of: float | None = None  # last status of a dead supervisor, since 1970
    last_sign_at: float | None = None  # last sign of life, since 1970
    nodes: Sequence[NodeSummary] = ()  # state of each of several nodes
    start: str | None = None  # direct: the ranks were started without their launcher
    ending: EndReport | None = None  # how far what follows its end is

    @property
    def is_ending(self) -> bool:
        """Whether commands or the upload run: who waits for the run waits for these too."""
        return self.ending is not None and self.ending.state == "running"

    @property
    def has_live_end(self) -> bool:
        """Whether the supervisor goes on after the end, perhaps to turn its machine off."""
        return self.ending is not None and self.ending.state in ("running", "waiting", "grace")


class Status(StatusSummary):
    """status.json: how the run of a node is."""

    FILE = "status.json"

    version: int = 1  # version of the format, 1
    id: str = ""  # run id
    name: Nullable[str] = None  # name of the job
    hostname: str | None = None  # host name of the machine
    supervisor: Process | None = None  # the supervisor
    launcher: Process | None = None  # the launcher of the current attempt
    cgroup: str | None = None  # control group of its processes, where it has one of its own
    log_copier: Process | None = None  # what writes the logs of the current attempt
    last_state: str | None = None  # state before its host stopped answering
    node_end: NodeSummary | None = None  # how this node ended, while nodes started by hand go on


# -- records/rank-*.json ---------------------------------------------------------------------------


class RankEvent(Record):
    """A line of records/rank-*.json, which the rank itself writes (runtime/site)."""

    kind: str = ""  # exception, or exit (interpreter shutdown)
    uncaught: bool = True  # whether the interpreter ends the program with the exception
    thread: Nullable[str] = None  # thread that raised it; null: the main thread
    rank: int = 0  # rank
    local_rank: Nullable[int] = None  # rank on its node
    world_size: Nullable[int] = None  # number of ranks
    host: str = ""  # host name
    pid: int = 0  # process id
    attempt: int = 0  # number of the attempt
    restart: int = 0  # number of this start of the rank
    time_ns: int = 0  # wall time
    monotonic_ns: int = 0  # monotonic time
    type: str = ""  # qualified name of the exception's class
    message: str = ""  # its text, shortened
    traceback: str = ""  # the traceback as Python prints it, shortened
    frames: Sequence[StackFrame] = ()  # its innermost frames, the innermost last
    memory_limit: Nullable[int] = None  # bytes of memory that `ulimit -v` or `-d` allows it


# -- failure.json ----------------------------------------------------------------------------------


class ExceptionRecord(Record):
    """The exception that ended a rank."""

    type: str = ""  # qualified name of its class
    message: str = ""  # its text
    traceback: str = ""  # the traceback as Python prints it


class ExceptionCause(Record):
    """An exception behind another one."""

    what: str = ""  # class and message in one line
    type: str = ""  # qualified name of its class
    message: str = ""  # its text, shortened
    frame: Nullable[StackFrame] = None  # the user's innermost line


class RankFailure(Record):
    """How another rank ended."""

    rank: Nullable[int] = None  # rank; null: the launcher
    role: str = "unknown"  # root, cascade or unknown
    class_name: Nullable[str] = None  # failure class
    what: str = ""  # the failure in one line
    after: Nullable[float] = None  # seconds after the first failure
    exit_code: Nullable[int] = None  # exit code
    signal: Nullable[str] = None  # signal that ended it
    host: Nullable[str] = None  # host, of a run of several nodes
    node: Nullable[int] = None  # node, of a run of several
    time: Nullable[float] = None  # when it failed, since 1970


class LibraryFrame(Record):
    """The line of a library that raised an exception which no signature recognises."""

    library: str = ""  # its name, as it is imported
    version: str = ""  # its version, where it can be read
    path: str = ""  # path of the source file, from the folder of the library on
    line: int = 0  # line number
    is_raise: bool = False  # whether a `raise` or `assert` stands there, rather than a fault


class Failure(Record):
    """failure.json: why the newest failed attempt failed."""

    FILE = "failure.json"

    version: int = 1  # version of the format, 1
    attempt: int | None = None  # number of the attempt
    class_name: Nullable[str] = None  # failure class
    meaning: str | None = None  # what the class means
    role: str = "unknown"  # root (a cause), cascade (a consequence) or unknown
    rank: Nullable[int] = None  # rank that failed first
    service: str | None = None  # service of the job that failed, where it was one
    part: int | None = None  # the first part of the run that failed, of a run of parts
    host: str = ""  # host that it ran on
    node: int | None = None  # node that it ran on, of several
    run: str | None = None  # the run of that node, where each was started by hand
    pid: Nullable[int] = None  # process id
    time: Nullable[float] = None  # when it failed, seconds since 1970
    what: str = ""  # the failure in one line
    exception: Nullable[ExceptionRecord] = None  # its exception
    frame: Nullable[StackFrame] = None  # the user's innermost line
    library: LibraryFrame | None = None  # library that raised what no signature recognises
    exit_code: Nullable[int] = None  # exit code
    signal: Nullable[str] = None  # signal that ended it
    last_lines: Sequence[str] = ()  # end of its log
    log: str | None = None  # path of its log
    printed: bool = True  # whether its log has any output
    causes: Sequence[ExceptionCause] = ()  # exceptions behind it
    stack: Sequence[StackFrame] = ()  # stack of a fatal signal
    disk: Nullable[str] = None  # a path on the disk that was full
    proof: Nullable[str] = None  # what proves it
    others: Sequence[RankFailure] = ()  # what the other ranks then did
    advice: str = ""  # what to do, in one line
    signature: str | None = None  # id of the signature that recognised it
    why: str | None = None  # cause, as the signature knows it
    likely: bool = False  # whether that is only likely
    remedy: Sequence[str] = ()  # what to do, in steps
    restart: str | None = None  # whether a restart helps: may-help or useless
    source: Sequence[str] = ()  # where the signature comes from
    unmet: Sequence[str] = ()  # conditions of `success` that are not met
    collectives: CollectiveReport | None = None  # why a collective did not end
    nccl: str | None = None  # what NCCL chose, in one line

    @property
    def is_unrecognised(self) -> bool:
        """Whether an exception ended it that no signature recognises."""
        is_plain = self.class_name == "user-code-exception" and not self.signature
        return is_plain and self.exception is not None

    @property
    def whole_message(self) -> str:
        """The whole message of an exception whose cause is not sure, else ""."""
        error = self.exception
        if error is None or not (self.is_unrecognised or self.likely):
            return ""
        return f"{error.type}: {error.message}" if error.message else error.type


class RayFailure(Record):
    """ray/attempt-<n>/failure.json: how the Ray failed that was started on this node."""

    FILE = "failure.json"

    class_name: str = ""  # failure class
    what: str = ""  # the failure in one line, with what Ray wrote last
    part: str = ""  # process of Ray that has ended: raylet or gcs_server; "" before they ran
    pid: int = 0  # process id of it, or of `ray start`; 0 where none has ended
    signal: str = ""  # signal that ended it
    time: float = 0.0  # when it was seen, seconds since 1970
    last_lines: Sequence[str] = ()  # end of Ray's own log
    log: str = ""  # name of that log, whose end is kept beside this file


class PartFailure(Failure):
    """part-failure.json: why the parts of a run have failed, as their coordinator says it."""

    FILE = "part-failure.json"


# -- record.json -----------------------------------------------------------------------------------


class Checkout(Record):
    """The git checkout around the working directory."""

    commit: str | None = None  # hash of the commit
    branch: str | None = None  # its branch; missing: none (a detached HEAD)
    changed: Nullable[Sequence[str]] = None  # changed files (--porcelain)
    more_changed: int = 0  # changed files that are not listed


class CodeRecord(Record):
    """code.json: the code that a run was launched with, as the machine that launched it had it."""

    FILE = "code.json"
    PATCH = "code.patch"  # from the commit to the code that was launched, for `git apply`

    version: int = 1  # version of the format, 1
    root: str = ""  # folder of the project on the machine that launched the run
    target: str | None = None  # folder that it was synced to; missing: the job ran in `root`
    project: str | None = None  # folder of the project, where `root` is a copy that `rerun` made
    git: Nullable[Checkout] = None  # the checkout; null: none
    manifest: str = ""  # hash of paths, modes and contents of all `files`
    files: int = 0  # number of files: all that a sync sends; of `run` Python files and settings
    not_stored: Mapping[str, str] = {}  # file without a copy of its content -> why
    patch: bool = False  # whether code.patch is there
    include: Sequence[str] = ()  # `sync: include` of the job
    exclude: Sequence[str] = ()  # `sync: exclude` of the job


class Provenance(Record):
    """record.json: what a run was made of."""

    FILE = "record.json"

    version: int = 1  # version of the format, 1
    cwd: str = ""  # working directory of the job
    interpreter: str | None = None  # path of the job's Python
    python: str | None = None  # version of the job's Python
    git: Nullable[Checkout] = None  # the checkout; null: none
    files: Mapping[str, str] | None = None  # hashes of script, settings and Python files
    more_files: int = 0  # such files that are not in `files`: too many
    imported: Sequence[str] | None = None  # those of `files` that a rank imported
    packages: Mapping[str, str] | None = None  # package -> version
    uses: Sequence[str] = ()  # those that launcher, script and other files of the job use


# -- peers.json, stop.json -------------------------------------------------------------------------


class PeersAddress(Record):
    """peers.json: where the supervisor of node 0 listens; read once and removed.

    Of nodes that were started by hand: where their launchers meet, from which that follows.
    """

    FILE = "peers.json"

    address: str = ""  # IPv4 or IPv6 address of its host; by hand also a name
    port: int = 0  # port that it listens on; by hand that of the launcher
    token: str = ""  # secret of the run, from which each message has its proof


class StopRequest(Record):
    """stop.json: the request of `stop` to the supervisor."""

    FILE = "stop.json"

    grace: float | None = None  # seconds between TERM and KILL
    origin: str | None = None  # user, and the client that he came from over SSH
    reason: str | None = None  # why, where nobody has asked for it


# -- remote.json -----------------------------------------------------------------------------------


class NodePlace(Record):
    """Where a node of a run is."""

    host: str = ""  # host, as the user names it
    node: int = 0  # number of the node
    run_dir: str = ""  # directory of the node there


class RemoteRecord(Record):
    """remote.json: where a run on hosts is; on the machine that started it."""

    FILE = "remote.json"

    version: int = 1  # version of the format, 1
    id: str = ""  # run id
    hosts_file: Nullable[str] = None  # hosts file that names its hosts; null: safelaunch's own
    places: Sequence[NodePlace] = ()  # its nodes


# -- plan.json -------------------------------------------------------------------------------------


class PlannedVariable(Record):
    """A variable of a job's environment."""

    value: Nullable[str] = None  # null: computed at the start; *** for a secret
    origin: str = ""  # what has set it
    why: str | None = None  # reason
    cost: str | None = None  # disadvantage
    source: str | None = None  # link for the reason
    computed: str | None = None  # how its value is computed at the start
    workaround: bool = False  # whether it is there for a bug
    prepend: bool = False  # whether it goes before the value that is there


class PlannedRanks(Record):
    """The ranks of one node that are started without their launcher."""

    count: str = ""  # how many
    first: int = 0  # number of the first one
    argv: Sequence[str] = ()  # words of each
    env: Mapping[str, str] = {}  # variables that the launcher would set for all of them


class PlannedNode(Record):
    """What a plan starts on one node."""

    host: str = ""  # host, as the user names it
    node_rank: int = 0  # number of the node
    cwd: str = ""  # working directory
    argv: Sequence[str] = ()  # words of the launcher's command
    env: Mapping[str, PlannedVariable] = {}  # variables that are set
    unset: Sequence[str] = ()  # variables that are removed
    inherit: Nullable[str | Sequence[str]] = None  # all, or the variables that the job inherits
    setup: Sequence[str] = ()  # lines of shell before the command
    files: Mapping[str, str] = {}  # name in the run directory -> text
    script: str = ""  # text of launch.sh
    resume_argv: Sequence[str] | None = None  # command of an attempt that goes on from a checkpoint
    rungs: Sequence[Mapping[str, str]] = ()  # variables of each step of the NCCL ladder
    evidence: Mapping[str, PlannedVariable] = {}  # variables that each rank sets for itself
    ranks: PlannedRanks | None = None  # where they are started without their launcher
    assets: Sequence[Mapping[str, str]] = ()  # name, path, place and origin of each asset
    container: object = None  # engine, image, command and origins of the container, if there is one


class PlanRecord(Record):
    """plan.json: the plan as it was started, and in the form that `rerun` reads."""

    FILE = "plan.json"

    version: int = 1  # version of the format, 1
    name: str = ""  # name of the job
    launcher: str = ""  # name of the launcher
    profile: Nullable[str] = None  # name of the profile
    log: Nullable[str] = None  # the combined log in the project
    nodes: Sequence[PlannedNode] = ()  # what is started on each node
    warnings: Sequence[Mapping[str, str]] = ()  # id, message and where of each warning
    supervision: Mapping[str, object] = {}  # as in run.json
    unbound: object = None  # the plan before its slots were filled (plan/serialize.py)
    manual_node: str | None = None  # of several nodes started by hand: which one, where they meet
    engine: Mapping[str, object] | None = None  # name, and what is submitted to what starts it
    after: Sequence[Mapping[str, object]] = ()  # runs that it waits for
    queue: Mapping[str, object] | None = None  # priority, count and kind of cards that it waits for
    services: Sequence[Mapping[str, object]] = ()  # the plan of each service, and when it is ready
    fan_out: Mapping[str, object] | None = None  # the parts of the job
