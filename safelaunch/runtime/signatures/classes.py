"""The table of failure classes, and the recognition of a class in text or an exception.

The table says what a class means and whether another attempt may help; advice.py says what to do,
signatures.json how it is recognised. No file of a run is opened, and nothing is decided about it.
"""

from __future__ import annotations

from safelaunch.runtime.signatures import activity, advice, conditions, tracebacks
from safelaunch.runtime.signatures import match as signatures_match

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.runtime.signatures.table import Signature, SignatureTable

USER = "user-code-exception"
NAN = "nan-loss"
# role -> how much a match counts; an uncaught exception that no signature matches counts 3
WEIGHT = {"root": 5, "unknown": 4, "late": 2, "cascade": 1, "warning": 0, "confirmation": -1}
PLAIN = 3
ENDS = ("late", "cascade")  # roles of lines by which a process, or its peer, has ended
PROBED = 2  # of an exception that was expected: the program went on to another one
# how a line shows a failure: it ends a traceback, tells the end of a process, or logs or warns
RAISED, ENDED, LOGGED, WARNED = "raised", "ended", "logged", "warned"


class FailureClass:
    """What a class means, whether another attempt may help, and why."""

    def __init__(self, name: str, restart: bool, meaning: str, reason: str) -> None:
        self.restart = restart
        self.meaning = meaning
        self.reason = reason
        self.advice = advice.ADVICE.get(name, advice.OTHER)


class Match:
    """A class found in text: the line that shows it, its number (from 1), and its role.

    `role` is root, unknown (it may be a consequence), cascade, or warning (harmless by itself).
    `signature` is None for an exception that none matches. `form` is how the line shows it.
    """

    def __init__(
        self,
        name: str,
        line: str,
        number: int,
        role: str,
        signature: Signature | None = None,
        *,
        form: str = LOGGED,
    ) -> None:
        self.name = name
        self.line = line
        self.number = number
        self.role = role
        self.signature = signature
        self.form = form

    def last_disproof(self, shown: activity.Activity) -> int:
        """Return the number of the last line that shows that the process continued or ended well.

        A further step disproves that an exception ended it; words disprove only what was logged.
        """
        if self.name == NAN:  # a progress bar continues with a loss of NaN
            return shown.finite_loss
        words = {LOGGED: shown.good_end, WARNED: max(shown.good_end, shown.goodbye)}
        return max(shown.step, words.get(self.form, 0))


CASCADES = ("peer-lost", "ray-node-dead")
_NEVER = "it fails the same way until something is changed"
_SETUP = "a failure of the set-up: nothing changes by itself"
# name, restart by default, meaning, why. `healthy`, which diagnose prints, is no failure.
_ROWS = (
    ("cuda-oom", False, "GPU memory exhausted", "the next attempt needs as much"),
    ("host-oom", False, "the machine's or container's memory exhausted", "as cuda-oom"),
    (
        "killed",  # not host-oom: anybody may send SIGKILL; only a counter or the log proves that
        True,
        "ended by SIGKILL, and no proof of a memory kill",
        "a person or another program may have sent it",
    ),
    (
        "killed-by-signal",
        True,
        "ended by a signal: a crash, or from outside",
        "native crashes are often not repeatable",
    ),
    (
        "cuda-illegal-memory-access",
        True,
        "asynchronous kernel fault",
        "often the transport between GPUs; recovery goes a rung up",
    ),
    ("cuda-no-kernel-image", False, "binaries built for other GPU architectures", _SETUP),
    ("cuda-unavailable", False, "no usable GPU seen by torch", _SETUP),
    ("device-side-assert", False, "index out of range in a GPU kernel", _NEVER),
    ("nccl-timeout", True, "a collective did not finish in time", "often one slow or lost peer"),
    ("nccl-unhandled-error", True, "NCCL failed, no more special class fits", "may be transient"),
    ("nccl-duplicate-gpu", False, "two ranks on one GPU", _SETUP),
    ("nccl-socket-no-interface", False, "a named network interface is not usable", _SETUP),
    ("nccl-ib", True, "InfiniBand or RoCE error", "links flap and come back"),
    ("nccl-shm", False, "shared memory (/dev/shm) too small", _SETUP),
    ("nccl-p2p", False, "peer access between GPUs broken or missing", _SETUP),
    ("port-in-use", True, "the master or server port is taken", "each attempt has a fresh port"),
    ("rendezvous-timeout", True, "the ranks did not meet", "a peer may just have been late"),
    ("peer-lost", True, "another rank went away", "the cause lies elsewhere and may be transient"),
    ("cpu-tensor-with-nccl", False, "a CPU tensor in a GPU-only process group", _NEVER),
    ("pin-memory-cuda-tensor", False, "pin_memory on tensors already on the GPU", _NEVER),
    ("sampler-set-epoch", False, "a sampler without set_epoch", _NEVER),
    ("yaml-float-as-string", False, "a number read from YAML as text", _NEVER),
    ("module-not-found", False, "import of an absent module", _SETUP),
    ("command-not-found", False, "a program is not on PATH", _SETUP),
    ("wrong-env", False, "the active environment lacks the software", _SETUP),
    ("crlf-bad-interpreter", False, "Windows line ends in a shell script", _SETUP),
    ("hf-hub-offline", True, "the hub is not reachable or limits the rate", "networks recover"),
    ("hf-lock-wait", True, "waiting for a lock of the hub cache", "its holder may release it"),
    ("hf-gated-repo", False, "no access to a gated or private repository", _SETUP),
    ("disk-full", False, "no space or quota left", "space does not come back by itself"),
    ("checkpoint-mismatch", False, "the weights do not fit the model", _NEVER),
    ("checkpoint-missing", False, "checkpoint or model absent or incomplete", _SETUP),
    ("nan-loss", False, "NaN or infinite loss or gradients", _NEVER),
    ("deepspeed-config", False, "contradictory DeepSpeed settings", _SETUP),
    ("deepspeed-build", False, "just-in-time build of an extension failed", _SETUP),
    ("flash-attn", False, "flash-attention absent, unsupported or built for another torch", _SETUP),
    ("vllm-kv-cache-memory", False, "no room for vLLM's KV cache", "as cuda-oom"),
    ("vllm-engine-init", False, "vLLM's engine does not start", _SETUP),
    ("vllm-cpu-swap", False, "vLLM's swap space is larger than memory allows", _SETUP),
    ("bf16-unsupported", False, "bf16 on hardware or with a torch that lacks it", _SETUP),
    (
        "dataloader-worker-killed",
        True,
        "a DataLoader worker died",
        "a resumed run may pass; no progress ends it",
    ),
    ("ssh-kex-closed", True, "SSH closed during the key exchange", "sshd's start limits pass"),
    ("ssh-auth-failed", False, "SSH password or key refused", _SETUP),
    ("ssh-host-key-changed", False, "the SSH host key has changed", _SETUP),
    ("ssh-timeout", True, "no TCP connection to the SSH port", "networks recover"),
    ("permission-denied", False, "the file system forbids it", _SETUP),
    ("too-many-open-files", False, "the limit of open files is reached", _NEVER),
    ("argument-error", False, "the command line is rejected", _SETUP),
    ("batch-size-divisibility", False, "batch, processes and generations do not divide", _SETUP),
    ("ddp-unused-parameters", False, "DDP: parameters without gradient", _NEVER),
    ("ddp-mark-ready-twice", False, "DDP: a parameter marked ready twice", _NEVER),
    ("import-version-conflict", False, "packages of versions that do not fit", _SETUP),
    ("tokenizers-fork", False, "a warning about forks; harmless unless the run hangs", _NEVER),
    ("ray-oom", False, "Ray killed workers for memory", "as host-oom"),
    ("ray-node-dead", True, "a Ray node or actor died, the cause is elsewhere", "nodes come back"),
    (USER, False, "an error in the program, settings or data", _NEVER),
    ("scheduler-cancelled", False, "taken away by the scheduler, or cancelled", "it was intended"),
    ("time-limit", False, "the time that the job was allowed is over", "it would be over again"),
    (
        "preempted",
        False,
        "the machine was taken away",
        "the next attempt would lose it too",
    ),
    ("earlier-run", False, "a run that it waited for did not succeed", _SETUP),
    ("service-failed", True, "a service of the job has ended", "it starts again with the job"),
    ("cards", False, "more cards than the machine has", _SETUP),
    ("scheduler", False, "the scheduler could not start the job, or not keep it", _SETUP),
    ("gpu-hardware-ecc", False, "a broken GPU: ECC, Xid", "it would run on the same GPU"),
    ("tracker-offline", False, "the experiment tracker is not reachable or not logged in", _SETUP),
    ("hang", True, "no progress for long, stopped by the watchdog", "lost peers, stuck transport"),
)
TABLE = {row[0]: FailureClass(*row) for row in _ROWS}
_SIGNALS = {
    "SIGSEGV": "a segmentation fault in native code",
    "SIGBUS": "a bus error: often /dev/shm is full",
    "SIGABRT": "aborted by its own native code",
    "SIGFPE": "an arithmetic fault in native code",
    "SIGILL": "an instruction that the CPU does not know",
    "SIGTERM": "SIGTERM, sent from outside",
    "SIGINT": "SIGINT: Ctrl-C, or sent from outside",
    "SIGHUP": "SIGHUP: its session ended",
}


def meaning(name: str, signal: str = "") -> str:
    """Return what a class means, or what a signal does; "" for an unknown name."""
    if name == "killed-by-signal" and signal in _SIGNALS:
        return _SIGNALS[signal]
    return TABLE[name].meaning if name in TABLE else ""


def classify(text: str, failed: bool = True) -> Match | None:
    """Return the most telling class in output text, or None if no line shows one.

    `failed` says that the run is known to have failed. Otherwise an alarm after which the text
    shows progress, and a mere warning, count for nothing.
    """
    lines = signatures_match.clean(text)
    shown = activity.Activity(lines)
    matches: list[tuple[int, int, Match]] = []
    for weight, match in findings(lines):
        overtaken = match.number <= match.last_disproof(shown)
        if weight >= 0 and (failed or (weight and not overtaken)):
            # another rank may print progress after the failure of this one: it only counts less
            matches.append((2 * weight - (3 if overtaken else 0), -match.number, match))
    if not matches:
        return cut_traceback(lines) if failed else None
    return max(matches, key=lambda match: match[:2])[2]


def cut_traceback(lines: list[str]) -> Match | None:
    """Return the last line of a text whose last traceback has no end that can be read."""
    frames = [index for index, line in enumerate(lines) if tracebacks.is_frame(line)]
    if not frames or tracebacks.has_end(lines[frames[-1] :]):
        return None
    if tracebacks.is_call_stack(lines, frames[-1]):
        return None
    index = max(index for index, line in enumerate(lines) if line.strip())
    return Match(USER, lines[index].strip(), index + 1, "unknown")


def findings(
    lines: list[str],
    rank: int | None = None,
    find: signatures_match.Find | None = None,
    groups: Sequence[Sequence[int]] | None = None,
    *,
    signatures: SignatureTable | None = None,
) -> Iterator[tuple[int, Match]]:
    """Yield (weight, match) of what cleaned lines show; of several on a line the one to show first.

    A signature whose conditions hold comes before the general ones. `groups` are the indexes of the
    lines of each rank, where that is known; `signatures` is another table than the built-in one.
    """
    environment = conditions.LogEnvironment(lines)
    exceptional: list[signatures_match.Hit] = []
    general: list[signatures_match.Hit] = []
    for hit in signatures_match.search(lines, find, signatures):
        when = hit.signature.when
        if conditions.holds(when, hit.index, rank, environment):
            # what only must not stand nearby makes nothing more particular
            (exceptional if when.keys() - {"not_near"} else general).append(hit)
    traces = tracebacks.Tracebacks(lines, groups)
    framed = traces.framed
    matched: set[int] = set()
    harmless: set[int] = set()
    moved: list[tuple[int, Match]] = []
    for hit in exceptional + general:
        # a notice that something optional is missing quotes the error that it passes over
        is_quoted = hit.index in traces.code or hit.index in harmless
        if is_quoted or tracebacks.is_printed_source(lines, hit.index):
            continue
        if hit.role == "warning":
            harmless.add(hit.index)
        role = "unknown" if hit.role == "late" else hit.role
        index = traces.end_of(hit.index)
        form = _form(hit, is_raised=index in framed)
        match = Match(
            hit.signature.name, lines[index].strip(), index + 1, role, hit.signature, form=form
        )
        weight = WEIGHT[hit.role]
        weight = min(weight, PROBED) if index in traces.passed else weight
        if index in traces.ignored:
            match.role, weight = "warning", min(weight, WEIGHT["warning"])
        if index != hit.index:  # what the exception's own line shows comes before it
            moved.append((weight, match))
            continue
        matched.add(index)
        yield weight, match
    yield from moved
    matched.update(match.number - 1 for weight, match in moved if weight > PLAIN)
    for index in _limit_repeats(lines, traces.ends):
        if index not in matched and index not in traces.ignored:
            weight = PROBED if index in traces.passed else PLAIN
            form = RAISED if index in framed else LOGGED
            yield weight, Match(USER, lines[index].strip(), index + 1, "unknown", form=form)


def _form(hit: signatures_match.Hit, *, is_raised: bool) -> str:
    """Return in which form a line shows a signature."""
    if is_raised:
        return RAISED
    if hit.is_warning:
        return WARNED
    return ENDED if hit.signature.role in ENDS else LOGGED


def _limit_repeats(lines: list[str], indexes: list[int]) -> list[int]:
    """Return indexes without most of those whose lines are equal: a log may repeat one line."""
    if len(indexes) <= signatures_match.REPEATS:
        return indexes
    equal: dict[str, list[int]] = {}
    for index in indexes:
        equal.setdefault(lines[index], []).append(index)
    return sorted(
        index for group in equal.values() for index in signatures_match.first_and_last(group)
    )


def classify_exception(kind: str, message: str, traceback: str = "") -> Match:
    """Return the class of an uncaught exception, chained causes included.

    One that no signature matches is the user's own. Its role is root, or unknown where it came out
    of communication with other ranks: such an exception may be a consequence of theirs.
    """
    last = f"{kind}: {message}" if message else kind
    lines = [tracebacks.ungrouped(line) for line in signatures_match.clean(traceback)]
    # of all else a traceback may hold source, also where a cut has taken away the frame above it
    frames = [line for line in lines if tracebacks.is_frame(line)]
    code = set(tracebacks.code_lines(lines))
    ends = [lines[index] for index in tracebacks.exceptions(lines) if index not in code]
    best: tuple[int, Match | None] = (0, None)
    for text in ([last], ends, [*frames, *ends, last]):
        for weight, match in findings(signatures_match.clean("\n".join(text))):
            if weight not in (-1, PLAIN) and weight > best[0]:
                best = (weight, match)
        if best[0] > PLAIN or (best[1] is not None and text is ends):
            break  # files and functions of a traceback tell least
    if best[1] is not None:
        return best[1]
    role = "unknown" if signatures_match.communicates(kind, traceback) else "root"
    return Match(USER, last.split("\n", 1)[0], 1, role)


def restarts(name: str, override: str = "") -> bool:
    """Whether another attempt may help after a class; unknown names are not retried.

    `override` is what the signature says of it, where that differs from its class.
    """
    if override:
        return override != "useless"
    return name in TABLE and TABLE[name].restart
