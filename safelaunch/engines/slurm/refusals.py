"""The errors of submissions that Slurm did not take, with what there is instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import Refused, StartError
from safelaunch.runtime.engines.errors import MissingProgram, SubmitError, UnclearSubmitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.engines.submission import Reason
    from safelaunch.errors import SafelaunchError

# in Slurm's words about a request that no partition can satisfy
_LIMITED = ("node count", "node configuration", "memory", "time limit", "cpu", "processor")


def refusal(reason: Reason) -> SafelaunchError:
    """Return the error of a submission that has failed; its names are those of the partitions."""
    kind, words, where = reason.kind, reason.words, reason.host or None
    if kind == MissingProgram.__name__:
        hint = "start it on a login node of the cluster, or --dry-run"
        if where:
            prefix = "prefix: [env, 'PATH=/opt/slurm/bin:/usr/bin:/bin']"
            hint = f"if it is elsewhere, in the hosts file of {where}: slurm: {{{prefix}}}"
        return StartError(words, where=where, hint=hint)
    if kind == UnclearSubmitError.__name__:
        message = f"Slurm did not say whether it has accepted the job: {words}"
        hint = f"squeue --me; then safelaunch stop {reason.run_id}"
        return StartError(message, where=where or reason.run_id, hint=hint)
    if kind == SubmitError.__name__:
        message = f"Slurm does not accept the job: {words}"
        return Refused(message, where=where, hint=choices(words, reason.names))
    return StartError(words, where=where)


def choices(words: str, names: Callable[..., Sequence[str]]) -> str | None:
    """Return what there is instead of what the engine does not have; None where that is unknown."""
    words = words.lower()
    if "account" in words or "qos" in words:
        return "yours: sacctmgr show assoc user=$USER format=account,partition,qos"
    has_limits = any(name in words for name in _LIMITED)
    if "partition" not in words and not has_limits:
        return None
    shown = names(with_limits=has_limits)
    return f"partitions: {', '.join(shown)}" if shown else None
