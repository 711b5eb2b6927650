"""Why Slurm lets a job wait: its reasons in words, and what to do about each.

The reasons are those of Slurm's job_state_reason.c, of 20.11 to 25.11, and of
https://slurm.schedmd.com/job_reason_codes.html; a few hundred limits follow from a few patterns.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.engines.slurm.jobs import SlurmJob

_RELEASE = "look why it was held, then `scontrol release {id}`"
_ASK_HOLD = "ask who has held it; only an administrator can release it"
_STOP = "stop it and start it again once the other job can succeed"
_LIMITS = "`sacctmgr show qos` and `sacctmgr show assoc user=$USER` show the limits"
_SMALLER = f"stop it, and ask for less; {_LIMITS}"
_PARTITION = (
    "`sinfo -p {partition}` shows its state; ask the administrator, or use another partition"
)
_NAMES = "stop it, and name another in `slurm:` of the job or host"

# begin of the reason, in words, what to do ("" where waiting is all); the first that fits
REASONS = (
    ("Priority", "jobs of higher priority are before it", ""),
    ("Resources", "it waits for nodes that are free", ""),
    ("BeginTime", "it may not start before its time", ""),
    (
        "DependencyNeverSatisfied",
        "the job that it depends on has failed: it will never start",
        _STOP,
    ),
    ("Dependency", "it waits for the job that it depends on", ""),
    ("JobHeldUser", "it is held", "`scontrol release {id}` lets it start"),
    ("JobHeldAdmin", "an administrator holds it", _ASK_HOLD),
    ("JobHoldMaxRequeue", "it was queued again too often, and is held", _RELEASE),
    ("job requeued in held state", "it was queued again and is held", _RELEASE),
    ("launch failed requeued held", "a node could not start it, and it is held", _RELEASE),
    ("PartitionDown", "partition {partition} is down", _PARTITION),
    ("PartitionInactive", "partition {partition} starts no jobs", _PARTITION),
    (
        "PartitionNodeLimit",
        "partition {partition} does not allow so many nodes, or too few of them work",
        "`sinfo -p {partition} -o '%l %D %T'` shows what it allows",
    ),
    (
        "PartitionTimeLimit",
        "it asks for more time than partition {partition} allows",
        "stop it, and ask for less time: `sinfo -p {partition} -o %l`",
    ),
    ("PartitionConfig", "it asks for what partition {partition} does not allow", _NAMES),
    (
        "ReqNodeNotAvail",
        "a node that it needs cannot be used",
        "`sinfo -R` shows why; wait for the node, or do not ask for it",
    ),
    (
        "(Nodes required",
        "the nodes that it needs are down, drained or reserved",
        "`sinfo -R` shows why; wait, or use another partition",
    ),
    ("Nodes required", "the nodes that it needs are down or drained", "`sinfo -R` shows why"),
    ("NodeDown", "a node that it needs is down", "`sinfo -R` shows why"),
    ("ReservationDeleted", "its reservation is no longer there", _NAMES),
    ("ReservationInvalid", "its reservation cannot be used", _NAMES),
    ("Reservation", "it waits for its reservation", "`scontrol show reservation` shows when"),
    ("Licenses", "it waits for a licence", ""),
    ("InvalidAccount", "its account is not valid", _NAMES),
    ("InvalidQOS", "its QOS is not valid", _NAMES),
    ("AccountNotAllowed", "its account may not use partition {partition}", _NAMES),
    ("QOSNotAllowed", "its QOS may not use partition {partition}, or its account", _NAMES),
    ("BadConstraints", "no node can ever have what it asks for", _SMALLER),
    ("Constraints", "no node that it may use has what it asks for", _SMALLER),
    ("MaxMemPerLimit", "it asks for more memory than it may", _SMALLER),
    ("JobArrayTaskLimit", "as many tasks of its array as may are running", ""),
    ("DeadLine", "its deadline cannot be kept any more", "stop it, and give it a later one"),
    ("Prolog", "its nodes are prepared", ""),
    ("Cleaning", "its earlier nodes are cleaned up", ""),
    ("SchedDefer", "the scheduler has not come to it yet", ""),
    ("BurstBuffer", "it waits for its burst buffer", ""),
    ("FedJobLock", "the clusters agree on which one starts it", ""),
    ("NvidiaImexChannels", "it waits for a channel between GPUs of several nodes (IMEX)", ""),
    ("MpiPortsBusy", "it waits for ports", ""),
    ("MaxPoweredUpNodes", "as many nodes as may are switched on", ""),
)
_LIMIT_STARTS = ("QOS", "Assoc", "Max", "Accounting")
_PER_JOB = ("PerJob", "PerNode", "QOSMin", "NotSatisfied", "QOSTimeLimit", "QOSResourceLimit")


def describe(job: SlurmJob) -> tuple[str, str]:
    """Return why a job waits, in words with Slurm's own, and what to do, "" where nothing."""
    reason = " ".join(job.reason.replace("_", " ").split())
    if not reason:
        return "the scheduler has not come to it yet", ""
    words, remedy = _words(reason)
    values = {"id": job.id, "partition": job.partition or "PARTITION"}
    return f"{words.format(**values)} ({reason.strip('()')})", remedy.format(**values)


def _words(reason: str) -> tuple[str, str]:
    for start, words, remedy in REASONS:
        if reason.startswith(start):
            return words, remedy
    if reason.startswith(_LIMIT_STARTS):
        whose = "QOS" if reason.startswith("QOS") else "account or user"
        if any(part in reason for part in _PER_JOB):
            return f"it asks for more, or less, than one job of its {whose} may", _SMALLER
        return f"a limit of its {whose} is reached: it waits for other jobs to end", _LIMITS
    return "Slurm gives this reason", "https://slurm.schedmd.com/job_reason_codes.html explains it"
