"""The nouns as frozen data. Nothing here reads a file, a clock or the environment.

A plan holds words. A word is plain text, or text with slots: values that only the start can fill in
(run id, port, ...). `bind` does that; nothing else ever changes a plan.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum
from typing import NamedTuple, cast

from safelaunch.frozen_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: a file with line and column (1-based), a flag, or `built-in`.

    `option` is the option or the variable of a command line that has the value.
    """

    source: str
    line: int = 0
    column: int = 0
    option: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


BUILT_IN = Origin("built-in")
# seconds in which ranks that have lost a peer may fail by themselves, and show how; then they are
# ended
PEER_GRACE = 5.0


class Slot(Enum):
    """A value that only the start can know. Printed as `<name>` until it is bound."""

    RUN_ID = "run-id"
    RUN_DIR = "run-dir"  # the node's part of the run directory
    PORT = "port"  # rendezvous port, bind-tested on the rank-0 machine
    MASTER_ADDR = "master-addr"
    INTERFACE = "interface"  # the node's network card on the way to the other nodes
    PYTHON = "python"  # absolute path of the interpreter
    PREFIX = "prefix"  # the interpreter's installation: the parent of its bin folder
    THREADS = "threads"  # usable cores / processes on this node, at least 1
    GPUS = "gpus"  # how many GPUs the machine shows
    CHECKPOINT = "checkpoint"  # the newest whole match of `recovery.checkpoint`
    HOME = "home"  # the user's home folder on a host
    STORE = "safelaunch-home"  # safelaunch's folder on the machine
    PACKAGE = "package"  # the folder of the package whose program the ranks run
    PROJECT = "project"  # the project's folder on a host; the plan of a node has it bound
    NODE_RANK = "node-rank"  # which node this is, where one script serves all
    CARDS = "cards"  # the cards that the queue of the machine gives the run

    def __str__(self) -> str:
        return f"<{self.value}>"


@dataclass(frozen=True, slots=True)
class ShellVar:
    """A value that a variable of the launch script's own shell has there."""

    name: str

    def __str__(self) -> str:
        return f"${{{self.name}}}"


@dataclass(frozen=True, slots=True)
class LateValue:
    """A value of another run, known once that has ended: `steps.train.checkpoint`."""

    value: str

    def __str__(self) -> str:
        return f"<{self.value}>"


# `${steps.x}` is OmegaConf's
STEP_OUTPUT = re.compile(r"(?<!\$)\{steps\.([^{}]*)\}")
Part = str | Slot | LateValue | ShellVar


@dataclass(frozen=True, slots=True)
class Template:
    """A word with slots: its parts in order."""

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return "".join(str(part) for part in self.parts)


Word = str | Template
# of a start: text; of a plan for a host: also words with slots. A late value is a key as a slot is
Facts = Mapping[Slot, Word]


def text(*parts: Part) -> Template:
    """Return a word made of text and slots; equal words have equal parts."""
    merged: list[Part] = []
    for part in parts:
        if not part:
            continue
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return Template(tuple(merged))


def bind_word(word: Word, facts: Facts) -> Word:
    """Return the word with slots filled from the facts; plain text once none is left."""
    if isinstance(word, str):
        return word
    values: Mapping[object, Word] = cast("Mapping[object, Word]", facts)
    parts: list[Part] = []
    for part in word.parts:
        value = values.get(part, part) if isinstance(part, (Slot, LateValue)) else part
        parts += value.parts if isinstance(value, Template) else (value,)
    if not all(isinstance(part, str) for part in parts):
        return text(*parts)
    return "".join(map(str, parts))


def join_words(separator: Word, words: Iterable[Word]) -> Word:
    """Return words with a separator between them as one word."""
    pieces = [piece for word in words for piece in (separator, word)][1:]
    parts = (piece.parts if isinstance(piece, Template) else (piece,) for piece in pieces)
    return bind_word(Template(tuple(itertools.chain.from_iterable(parts))), {})


def join_path(folder: Word, *names: str) -> Word:
    """Return the path of `names` below a folder; an absolute name replaces what is before it."""
    below = posixpath.join("", *names)
    if below.startswith("/") or isinstance(folder, str):
        return posixpath.join(str(folder), below)
    return text(*folder.parts, "/" + below) if below else folder


def parent_path(path: Word) -> Word:
    """Return the folder of a path that does not end in a slot."""
    if isinstance(path, str):
        return posixpath.dirname(path)
    *first, last = path.parts
    above = posixpath.dirname(str(last))
    return text(*first, above if above != "/" else "")


@dataclass(frozen=True, slots=True)
class EnvVar:
    """One variable of the job's environment, with the reason for it.

    `value` None removes the variable. `prepend` puts the value before the target's own, separated
    by a colon. `computed` describes in words how the target computes the value; `soft` does not
    replace a value that the target's environment already has. `beats` are the overridden ones.
    """

    name: str
    value: Word | None
    origin: Origin
    why: str = ""
    cost: str = ""
    source: str = ""
    workaround: bool = False
    prepend: bool = False
    computed: str = ""
    soft: bool = False
    beats: tuple[EnvVar, ...] = ()

    def over(self, other: EnvVar | None) -> EnvVar:
        """Return this variable, with the one that it overrides in `beats`."""
        return self if other is None else replace(self, beats=(other, *other.beats))


@dataclass(frozen=True, slots=True)
class Topology:
    """Nodes and processes per node. `processes` None: one per visible GPU.

    `node_rank` is the number of this machine's node where each node is started by hand.
    """

    nodes: int = 1
    processes: int | None = 1
    node_rank: int | None = None

    @property
    def world_size(self) -> int | None:
        """The number of ranks; None before the GPUs are counted."""
        return None if self.processes is None else self.nodes * self.processes

    @property
    def several(self) -> bool:
        """Whether there may be more than one process per node."""
        return self.processes is None or self.processes > 1

    def count(self, factor: int = 1) -> Word:
        """Return the processes of `factor` nodes as a word of a command line."""
        if self.processes is None:
            return text(Slot.GPUS)
        return str(self.processes * factor)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Which Python runs the job. `path` None: chosen at the start (active environment, python3)."""

    path: Word | None = None
    kind: str = "auto"  # auto, python, venv, conda
    prefix: Word | None = None
    origin: Origin = BUILT_IN

    @property
    def word(self) -> Word:
        """The interpreter as the first word of a command."""
        return self.path if self.path is not None else text(Slot.PYTHON)

    @property
    def prefix_word(self) -> Word:
        """Its installation prefix, the parent of the bin folder."""
        return self.prefix if self.prefix is not None else text(Slot.PREFIX)


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition under which a profile variable applies: `nccl` `<2.26.5`."""

    key: str
    condition: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class ProfileVar:
    """A variable of a profile: a value with its reasons and its gates."""

    var: EnvVar
    gates: tuple[Gate, ...] = ()
    example: str = ""


class ProfileFact(NamedTuple):
    """A fact of a platform, where it comes from, and where the profile states it."""

    value: str
    source: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Profile:
    """A hardware platform and the variables that it needs."""

    name: str
    description: str = ""
    accelerator: str = "cuda"  # a key of accelerators.ACCELERATORS
    gpu_names: str = ""  # regular expression for the whole name that nvidia-smi prints
    facts: Mapping[str, ProfileFact] = field(default_factory=dict)
    env: tuple[ProfileVar, ...] = ()
    site: tuple[ProfileVar, ...] = ()  # variables that only the site knows: no value
    ladder: tuple[tuple[ProfileVar, ...], ...] = ()
    sources: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    checked: Mapping[str, str] = field(default_factory=dict)  # file -> date its sources were read

    def fact(self, name: str) -> str:
        """Return a fact of the platform; empty where the profile does not state it."""
        return self.facts[name].value if name in self.facts else ""


@dataclass(frozen=True, slots=True)
class SbatchOption:
    """An option of sbatch as the user wrote it: its name, and its value where that is a word."""

    words: tuple[str, ...]
    origin: Origin = field(default=BUILT_IN, compare=False)


@dataclass(frozen=True, slots=True)
class Slurm:
    """What a `slurm:` block asks of Slurm for each node. Times in seconds, sizes in bytes.

    `origins` has each key that is written, also one that `null` puts back to its default.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: float | None = None
    gpu_type: str | None = None
    gres: bool = False  # GPUs are requested by --gres=gpu:
    gpus_per_node: int | None = None
    cpus_per_gpu: int | None = None
    cpus_per_task: int | None = None
    mem: int | None = None
    mem_per_gpu: int | None = None
    mem_per_cpu: int | None = None
    constraint: str | None = None
    exclude: tuple[str, ...] = ()
    nodelist: tuple[str, ...] = ()
    reservation: str | None = None
    exclusive: bool = False
    signal: float = 120  # before the time limit; 0: none
    requeue: bool = True
    setup: tuple[str, ...] = ()
    options: tuple[SbatchOption, ...] = ()
    prefix: tuple[str, ...] = ()  # words before sbatch, squeue, ...
    origin: Origin = BUILT_IN
    origins: Mapping[str, Origin] = field(default_factory=dict)
    # of the job's own keys that the batch script has: name, nodes, hosts
    job_origins: Mapping[str, Origin] = field(default_factory=dict)
    idle: Mapping[str, Origin] = field(default_factory=dict)  # keys of GPUs, on a profile without

    @property
    def engine_name(self) -> str:
        """The name of the block, and of the engine."""
        return "slurm"

    def over(self, base: Slurm) -> Slurm:
        """Return this block merged over another, key by key."""
        own = {key: getattr(self, key) for key in self.origins}
        return replace(base, **own, origin=self.origin, origins={**base.origins, **self.origins})


@dataclass(frozen=True, slots=True)
class Volume:
    """A claim of storage that a container sees at a path."""

    path: str
    claim: str
    read_only: bool = False
    sub_path: str | None = None  # folder of the claim


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint of nodes that a job accepts; `value` None: any, `effect` None: all."""

    key: str
    value: str | None = None
    effect: str | None = None


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """What a `kubernetes:` block asks of Kubernetes for each node. Sizes in bytes.

    `origins` has each key that is written, also one that `null` puts back to its default.
    """

    kind: str = "job"  # or trainjob
    namespace: str | None = None
    image: str | None = None
    workdir: str | None = None  # the project's folder in the image, or on a volume
    gpus_per_node: int | None = None
    gpu_resource: str | None = None  # such as nvidia.com/gpu; of the accelerator where None
    cpu: int | None = None
    memory: int | None = None
    shm: int | None = None
    resources: Mapping[str, str] = field(default_factory=dict)  # further ones: rdma/hca
    volumes: tuple[Volume, ...] = ()
    secret_name: str | None = None  # has the values of `env_from`
    pull_secret_name: str | None = None
    service_account: str | None = None
    queue: str | None = None  # of Kueue
    priority_class: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    retries: int = 0
    runtime: str = "torch-distributed"  # of a TrainJob
    origin: Origin = BUILT_IN
    origins: Mapping[str, Origin] = field(default_factory=dict)
    # of the job's own keys that the manifest has: name, nodes, max_duration, env_from
    job_origins: Mapping[str, Origin] = field(default_factory=dict)
    idle: Mapping[str, Origin] = field(default_factory=dict)  # keys of GPUs, on a profile without

    @property
    def engine_name(self) -> str:
        """The name of the block, and of the engine."""
        return "kubernetes"

    def over(self, base: Kubernetes) -> Kubernetes:
        """Return this block merged over another, key by key."""
        own = {key: getattr(self, key) for key in self.origins}
        return replace(base, **own, origin=self.origin, origins={**base.origins, **self.origins})


@dataclass(frozen=True, slots=True)
class Ray:
    """What a `ray:` block asks of a Ray for each node. Times in seconds.

    `origins` has each key that is written, also one that `null` puts back to its default.
    """

    address: str = "http://127.0.0.1:8265"  # of its jobs interface
    placement: str = "STRICT_SPREAD"
    gpus_per_node: int | None = None
    cpus: int | None = None
    resources: Mapping[str, str] = field(default_factory=dict)  # further ones, whole numbers
    placement_timeout: float = 30
    token_from: str | None = None  # the variable that has its token
    origin: Origin = BUILT_IN
    origins: Mapping[str, Origin] = field(default_factory=dict)
    # of the job's own keys that the request has: name, nodes
    job_origins: Mapping[str, Origin] = field(default_factory=dict)
    idle: Mapping[str, Origin] = field(default_factory=dict)  # keys of GPUs, on a profile without

    @property
    def engine_name(self) -> str:
        """The name of the block, and of the engine."""
        return "ray"

    def over(self, base: Ray) -> Ray:
        """Return this block merged over another, key by key."""
        own = {key: getattr(self, key) for key in self.origins}
        return replace(base, **own, origin=self.origin, origins={**base.origins, **self.origins})


EngineBlock = Slurm | Kubernetes | Ray


def _requests(*blocks: EngineBlock | None) -> Mapping[str, EngineBlock]:
    """Return the blocks that there are, by the name of their engine."""
    return {block.engine_name: block for block in blocks if block is not None}


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the machine that a container sees, at `target` or at the same path."""

    source: Word
    target: Word | None = None
    read_only: bool = False
    origin: Origin = field(default=BUILT_IN, compare=False)

    @property
    def place(self) -> Word:
        """The path inside the container."""
        return self.source if self.target is None else self.target


@dataclass(frozen=True, slots=True)
class Container:
    """What a node runs in: the keys of a `container:` block, and in a plan all of its mounts.

    `engine` None: docker, else podman. `shm` in bytes; None: that of the machine. `user` is `me`
    or `root`. `origins` has each key that is written.
    """

    engine: str | None = None
    image: str | None = None
    mounts: tuple[Mount, ...] = ()
    shm: int | None = None
    user: str = "me"
    python: str | None = None  # a path in the image, or a name on its PATH; None: python3
    pull: str = "never"  # never, missing or always
    options: tuple[str, ...] = ()  # further words of `docker run`
    off: bool = False  # whether a job runs without the container of its host
    accelerator: str = ""  # of the plan: a key of accelerators.ACCELERATORS, "" where unknown
    origin: Origin = BUILT_IN
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def over(self, base: Container) -> Container:
        """Return this block merged over another, key by key; the mounts and options of both."""
        own = {key: getattr(self, key) for key in self.origins}
        if "mounts" in own:
            own["mounts"] = (*base.mounts, *self.mounts)
        if "options" in own:
            own["options"] = (*base.options, *self.options)
        return replace(base, **own, origin=self.origin, origins={**base.origins, **self.origins})


@dataclass(frozen=True, slots=True)
class Host:
    """A machine of the user's. Paths are its own, but `identity`; `env` has what `hub` sets."""

    name: str
    profile: str | None = None
    interpreter: Interpreter | None = None
    workdir: str | None = None
    is_shared: bool = False  # whether all checkouts and runs use one folder of the project
    env: tuple[EnvVar, ...] = ()
    setup: tuple[str, ...] = ()
    interface: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    ssh: str | None = None  # the name in ~/.ssh/config, if it is another one
    addresses: tuple[str, ...] = ()  # of this one machine, each with a port or without
    user: str | None = None
    port: int | None = None
    identity: str | None = None  # key file on this machine; `~/` is the home folder
    transport: str | None = None  # paramiko or ssh; None: ssh where its configuration needs it
    hub: str | None = None  # online, offline or the address of a mirror
    start: str | None = None  # launcher or direct, for jobs that do not say it
    slurm: Slurm | None = None
    kubernetes: Kubernetes | None = None
    ray: Ray | None = None
    container: Container | None = None
    end_keys: EndKeys | None = None  # what follows the end of a run on it

    @property
    def requests(self) -> Mapping[str, EngineBlock]:
        """Its blocks by the name of their engine."""
        return _requests(self.slurm, self.kubernetes, self.ray)

    @property
    def is_kubernetes(self) -> bool:
        """Whether it is a cluster of Kubernetes alone, and no machine that SSH reaches."""
        is_machine = self.ssh or self.addresses or self.slurm is not None or self.ray is not None
        return self.kubernetes is not None and not is_machine


@dataclass(frozen=True, slots=True)
class Args:
    """Arguments in file order; of the mapping form also each option with its value or values."""

    options: tuple[tuple[str, tuple[str, ...] | bool], ...] = ()
    words: tuple[str, ...] = ()  # what the program receives
    is_mapping: bool = False

    def has(self, key: str) -> bool:
        """Whether the option `--key` is set, in either form and either spelling."""
        names = [option for option, _ in self.options]
        if not self.is_mapping:
            names = [w.split("=", 1)[0].lstrip("-") for w in self.words if w.startswith("-")]
        return key.replace("-", "_") in [name.replace("-", "_") for name in names]


@dataclass(frozen=True, slots=True)
class Sync:
    """Which files of the project are copied, beyond the ignore files: .gitignore patterns."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asset:
    """A file or folder that is copied to hosts beside the project.

    `path` as written, relative to its file; `to` a path on the host, absolute or relative to the
    job's working directory there, or None for one that safelaunch chooses.
    """

    name: str
    path: str
    to: str | None = None
    origin: Origin = field(default=BUILT_IN, compare=False)


@dataclass(frozen=True, slots=True)
class Placed:
    """An asset with its absolute path on this machine, and its path where the job runs."""

    name: str
    path: str
    place: Word  # on this machine the path itself
    origin: Origin = BUILT_IN


@dataclass(frozen=True, slots=True)
class Needs:
    """What each machine of a job must have, in bytes; None: not checked."""

    gpu_memory: int | None = None  # of each GPU
    ram: int | None = None
    disk: int | None = None  # free where the job writes
    shm: int | None = None  # free in /dev/shm


@dataclass(frozen=True, slots=True)
class Input:
    """A path that must exist, or a glob that must match exactly one; relative to `workdir`."""

    path: str
    origin: Origin = field(default=BUILT_IN, compare=False)


@dataclass(frozen=True, slots=True)
class Success:
    """What a run must leave behind to count as succeeded, beyond exit code 0."""

    artifacts: tuple[str, ...] = ()  # globs relative to the working directory
    min_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """When a run without progress counts as hung, and what then happens. Times in seconds.

    Hung: neither output nor a step for `max(factor * median step, floor)`; until two steps have
    been seen, for `first_progress`.
    """

    action: str = "report"  # report, restart, stop
    first_progress: float = 3 * 3600
    factor: int = 10
    floor: float = 5 * 60


@dataclass(frozen=True, slots=True)
class Recovery:
    """When a failed run is started again. Times in seconds."""

    max_restarts: int = 3
    backoff: float = 30  # before the first restart; doubled each time
    backoff_max: float = 600
    budget: float | None = None  # no restart later than this after the first start
    classes: Mapping[str, str] = field(default_factory=dict)  # failure class -> restart or stop
    checkpoint: str | None = None  # glob: a new or newer match is progress
    progress: str | None = None  # regular expression: a line of the log that is progress
    no_progress: int = 2  # so many attempts in a row without progress end the run
    ladder: bool = False


@dataclass(frozen=True, slots=True)
class Upload:
    """Where files of the working directory are copied to at the end, and by what. Seconds."""

    to: str
    program: str  # rclone or fsspec
    files: tuple[str, ...]  # globs relative to the working directory
    timeout: float = 24 * 3600


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The command that turns a rented machine off once its results are safe. Times in seconds."""

    command: tuple[str, ...]  # none: it is not turned off
    grace: float = 300  # in which a person can keep the machine on
    pull_wait: float = 3600  # for a client that is to fetch the files of `pull`
    others: str = "wait"  # or ignore: whether it waits for people, and for runs of other homes


@dataclass(frozen=True, slots=True)
class Ending:
    """What follows the end of a run; each command is a tuple of words. Times in seconds."""

    on_success: tuple[tuple[str, ...], ...] = ()
    on_failure: tuple[tuple[str, ...], ...] = ()
    on_end: tuple[tuple[str, ...], ...] = ()
    timeout: float = 600  # of each command
    upload: Upload | None = None
    pull: tuple[str, ...] = ()  # globs that the client which waits for the run fetches
    shutdown: Shutdown | None = None


@dataclass(frozen=True, slots=True)
class MaxCost:
    """What a run may cost in all, and what its machines cost together for an hour."""

    total: float | None = None
    per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Preemption:
    """Where a machine that may be taken away says so; nowhere without any. Times in seconds."""

    file: str | None = None  # is there from then on
    url: str | None = None  # answers from then on
    kind: str = "url"  # how that is asked: url, aws, gcp, azure
    sigterm: bool = False  # whether a TERM that no person has sent means it
    every: float = 5
    grace: float = 25  # between TERM and KILL of the ranks


@dataclass(frozen=True, slots=True)
class EndKeys:
    """The keys of an entry of the hosts file that are about the end of a run there."""

    ending: Ending = Ending()
    max_cost: MaxCost | None = None
    preemption: Preemption | None = None


@dataclass(frozen=True, slots=True)
class Supervision:
    """How a run is watched, and what ends or restarts it."""

    capture: bool = True
    logs: tuple[str, ...] = ()  # globs of the framework's own log files
    log_cap: int = 4 << 30  # bytes per log file
    max_duration: float | None = None  # seconds
    progress: tuple[str, ...] = ()  # regular expressions with groups step, total, loss, eta
    success: Success | None = None
    hang: Hang | None = Hang()  # None: no watchdog
    recovery: Recovery | None = None  # None: no restarts
    smoke: bool = False  # the run succeeds at success.min_steps
    ending: Ending | None = None  # what follows the end of the run
    max_cost: MaxCost | None = None
    preemption: Preemption | None = None


@dataclass(frozen=True, slots=True)
class CardQueue:
    """What a run asks of the queue for the cards of its machine."""

    priority: int = 0  # who has a higher one goes first
    count: int = 0  # cards
    kind: str = "cuda"  # of which kind: cuda, rocm or npu


@dataclass(frozen=True, slots=True)
class Job:
    """What to run. Paths are absolute or relative to `workdir`."""

    name: str
    launcher: str
    version: str | None
    script: str | None
    module: str | None
    command: tuple[str, ...]
    args: Args
    launcher_args: Args
    topology: Topology
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    mixed_precision: str | None
    interpreter: Interpreter
    workdir: Word
    pythonpath: tuple[Word, ...]
    env: tuple[EnvVar, ...]
    env_from: tuple[str, ...]
    inherit: str | tuple[str, ...]
    setup: tuple[str, ...]
    log: str | None
    force: tuple[str, ...]
    origins: Mapping[str, Origin]
    supervision: Supervision = Supervision()
    resumed: Args | None = None  # `args` with `recovery.resume_args` merged over them
    smoke_args: Args | None = None  # `args` with `smoke.args` merged over them
    fingerprint: tuple[str, ...] = ()  # further arguments that a resume must find equal
    sync: Sync = field(default_factory=Sync)
    assets: tuple[Placed, ...] = ()
    needs: Needs = Needs()
    inputs: tuple[Input, ...] = ()
    prefix: tuple[str, ...] = ()  # words in front of the launcher's command
    python_options: tuple[str, ...] = ()  # of the Python that runs the launcher
    start: str = "launcher"  # or direct: the ranks are started without it
    peer_grace: float = PEER_GRACE  # of a direct start, in seconds
    preload: tuple[str, ...] = ()  # modules that a direct start imports once for all ranks
    # its own blocks; that of its engine has what is asked for altogether
    slurm: Slurm | None = None
    kubernetes: Kubernetes | None = None
    ray: Ray | None = None
    engine: str | None = None  # what chooses its machines: slurm, kubernetes, ray
    container: Container | None = None  # its own block
    ray_cluster: bool = False  # whether a Ray is brought up on its nodes before the program
    queue: CardQueue | None = None  # what it asks of the queue of its machine

    @property
    def requests(self) -> Mapping[str, EngineBlock]:
        """Its blocks by the name of their engine."""
        return _requests(self.slurm, self.kubernetes, self.ray)

    @property
    def request(self) -> EngineBlock | None:
        """What is asked of the engine that chooses its machines."""
        return None if self.engine is None else self.requests.get(self.engine)

    @property
    def starts_one_node(self) -> bool:
        """Whether it starts one of several nodes: the others are started by hand, elsewhere."""
        return self.engine is None and self.topology.nodes > max(len(self.hosts), 1)

    def origin(self, key: str) -> Origin:
        """Return where the value of a key comes from."""
        return self.origins.get(key, BUILT_IN)


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """Something that the user should know before the start; it never stops one."""

    id: str
    message: str
    where: str = ""
    fix: str = ""

    @property
    def text(self) -> str:
        """The message, and what to do."""
        return f"{self.message}; {self.fix}" if self.fix else self.message


@dataclass(frozen=True, slots=True)
class RankVariable:
    """A variable that a launcher sets for all ranks of a node alike.

    `gate` is the condition on the version of a package under which the launcher sets it. `soft`
    leaves a value that is set already, also an empty one. A launcher that sets it unless the
    variable `switch` has another value than true, y or 1 reads that one when it starts.
    """

    name: str
    value: Word
    gate: Gate | None = None
    soft: bool = False
    switch: str = ""


@dataclass(frozen=True, slots=True)
class DirectStart:
    """How the ranks of a node are started without the launcher that its `argv` names.

    `starter` is the path of runtime/ranks/start_ranks.py, which says what `options` do. Each rank
    runs `python` and then the words of the program in `argv`, of which `program` stands for the
    first ones, `replaced` many. `tested` are the versions of packages for which the variables are
    known. `grace` is in seconds: how long the other ranks may go on when one has failed.
    """

    starter: Word
    python: tuple[Word, ...]
    count: Word
    first: int
    variables: tuple[RankVariable, ...]
    tested: tuple[Gate, ...]
    grace: float
    preload: tuple[str, ...] = ()  # modules that are imported once for all ranks of the node
    program: tuple[Word, ...] = ()
    replaced: int = 0
    package: str = ""  # whose folder PACKAGE is
    options: tuple[str, ...] = ()
    refuses_old_rtx40: bool = False  # whether the launcher sets more for those cards


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Everything that one node runs."""

    host: str
    node_rank: int
    cwd: Word
    argv: tuple[Word, ...]
    program: int  # index in argv of the job's own first word
    env: Mapping[str, EnvVar]
    unset: tuple[str, ...]  # names and `PREFIX_*` patterns
    keep: tuple[str, ...] | None  # inherit: None = all, else only these (and the basics)
    setup: tuple[str, ...]
    secrets: tuple[str, ...]  # env_from
    interpreter: Interpreter
    processes: int | None = 1
    direct: tuple[Word, ...] = ()  # host names that are reached without a proxy
    files: tuple[tuple[str, Word], ...] = ()  # name in the run directory, text
    single: str | None = None  # which process without RANK is the program, see launchers.Command
    resume_argv: tuple[Word, ...] | None = None  # argv with `recovery.resume_args`
    fresh_argv: tuple[Word, ...] | None = None  # of a resumed plan: argv without a checkpoint
    launcher_env: tuple[str, ...] = ()  # the caller's variables that the launcher reads
    rungs: tuple[tuple[EnvVar, ...], ...] = ()  # of the ladder: what each restart may add to env
    assets: tuple[Placed, ...] = ()
    prefix: int = 0  # how many words of argv stand in front of the launcher's command
    # of profile variables in `env` whose need depends on a version that only the start can read
    open_gates: Mapping[str, tuple[Gate, ...]] = field(default_factory=dict)
    # variables that each rank sets for itself where it has none of their group, so that a hang
    # leaves evidence: {group: variables}
    evidence: Mapping[str, tuple[EnvVar, ...]] = field(default_factory=dict)
    ranks: DirectStart | None = None  # set where the ranks are started without the launcher
    container: Container | None = None  # what it runs in; None: the machine itself
    passed: tuple[str, ...] = ()  # the caller's variables that a container gets
    ray_cluster: int = 0  # how many words of argv, behind the prefix, bring up a Ray

    @property
    def requested(self) -> tuple[str, ...]:
        """Names and patterns of the caller's variables that the job asks for, whatever they are."""
        return (*self.secrets, *(self.keep or ()), *self.launcher_env)

    @property
    def runs_python(self) -> bool:
        """Whether the interpreter runs the job, by itself or as ranks of another program."""
        return self.interpreter.word in self.argv


@dataclass(frozen=True, slots=True)
class ManualStart:
    """Which of several nodes is started by hand, and where their launchers meet.

    `number` None: the launcher numbers them. `address` and `port` are None where the job does not
    say them in a way that is known here.
    """

    number: int | None
    nodes: int
    address: str | None
    port: int | None

    def __str__(self) -> str:
        """Return `1 of 2, rendezvous gpu1:29500`."""
        number = "one" if self.number is None else self.number
        port = "" if self.port is None else f":{self.port}"
        return f"{number} of {self.nodes}, rendezvous {self.address or 'unknown'}{port}"


@dataclass(frozen=True, slots=True)
class Ready:
    """When a service is ready: without `http`, `log` and `command` once its port is open."""

    http: str | None = None  # path that answers
    status: int = 200  # of that answer
    json: Mapping[str, str] = field(default_factory=dict)  # values in it; keys may be a.b
    log: str | None = None  # regular expression of a line
    command: tuple[str, ...] = ()  # ends with 0
    limit: float = 600.0  # seconds from its start


@dataclass(frozen=True, slots=True)
class Dependency:
    """A run that has to end before the first attempt of another: with success, or in any way."""

    run: str
    is_any_end: bool = False

    def __str__(self) -> str:
        return f"{self.run} has {'ended' if self.is_any_end else 'succeeded'}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What each node runs, and what the user should know about it."""

    name: str
    launcher: str
    profile: str | None
    job_file: str
    log: str | None
    topology: Topology
    ranks_log: bool  # whether the launcher starts ranks that log on their own
    nodes: tuple[NodePlan, ...]
    warnings: tuple[PlanWarning, ...]
    notes: tuple[str, ...] = ()  # printed at each start
    supervision: Supervision = Supervision()
    fingerprint: Mapping[str, Word] = field(default_factory=dict)  # what a resume must find equal
    resumes: str | None = None  # id of the run that this one continues
    expected: Mapping[str, str] = field(default_factory=dict)  # that run's fingerprint
    manual_node: ManualStart | None = None  # of several nodes that are started by hand
    engine: EngineBlock | None = None  # what is asked of the engine that chooses the machines
    services: tuple[Service, ...] = ()  # run beside the job
    queue: CardQueue | None = None  # what is asked of the queue of the machine
    after: tuple[Dependency, ...] = ()  # what the first attempt waits for
    fan_out: FanOut | None = None  # the nodes are those of each part
    service_nodes: int = 0  # how many of the nodes, the last ones, run services and no ranks

    @property
    def queued_cards(self) -> int:
        """How many cards of the machine's queue the job and its services want."""
        plans = (self, *(service.plan for service in self.services))
        return sum(plan.queue.count for plan in plans if plan.queue is not None)


@dataclass(frozen=True, slots=True)
class Merge:
    """How the outputs of the parts of a run become one file."""

    output: str
    by: str = "lines"  # lines, jsonl or csv
    command: tuple[str, ...] = ()  # in its place


@dataclass(frozen=True, slots=True)
class PartShare:
    """The parts of a run that one of its hosts runs."""

    parts: tuple[int, ...] = ()
    earlier: str | None = (
        None  # node folder of an earlier run there, whose parts need not run again
    )


@dataclass(frozen=True, slots=True)
class FanOut:
    """The parts of a run: so many, or one for each combination of values."""

    count: int = 0
    matrix: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    over: str | None = None  # file that is divided among them, in the working directory
    by: str = "lines"
    at_once: int | None = None  # None: one for each card, or the usable cores of the machine
    merge: Merge | None = None
    cards: tuple[str, ...] = ()  # of all parts that run at the same time on a host
    earlier: str | None = None  # node folder of a run whose parts need not run again
    cards_each: int = 1  # cards of each part
    shares: tuple[PartShare, ...] = ()  # of each host of a rerun on several; else they take turns


@dataclass(frozen=True, slots=True)
class Service:
    """A program that runs beside a job, and is ready before that begins."""

    plan: Plan  # its name is that of the service
    ready: Ready
    needs: tuple[str, ...] = ()  # services that are ready before it starts
    port: int | None = None  # None: a free one
    on_exit: str = "fail"  # fail: the job fails with it; ignore
    node: int = 0  # of the run, on whose machine it runs
