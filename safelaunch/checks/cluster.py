"""What an engine says to a job before its start, as results of checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.checks.registry import CheckResult
from safelaunch.engines.ray.job import bundle
from safelaunch.engines.slurm.refusals import choices
from safelaunch.errors import did_you_mean
from safelaunch.runtime.commands import NOT_RUN, CommandResult
from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.model import Plan, Ray, Slurm

_FAMILY = "cluster"
_SBATCH = "https://slurm.schedmd.com/sbatch.html"
_RAY = "https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html"


def results(host: str, block: Slurm, answer: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Yield results from what runtime/engines/slurm/trial.py has asked on a login node."""
    yield _request(host, answer)
    yield from _accounts(host, block, [str(line).split("|") for line in answer["accounts"]])


def quick_results(host: str | None, answer: Mapping[str, Any]) -> list[CheckResult]:
    """Return what is to be said before a start; a silent Slurm decides at the submission."""
    is_silent = CommandResult(*answer["test"]).code == NOT_RUN
    return [] if is_silent else [_request(host, answer, is_quick=True)]


def _request(host: str | None, answer: Mapping[str, Any], *, is_quick: bool = False) -> CheckResult:
    """Return whether Slurm takes the job.

    It refuses one to test that it would let wait for nodes which start nothing now, in the same
    words as one that none of its nodes can run. Before a start its answer to the submission decides
    about these, which has more words.
    """
    test = CommandResult(*answer["test"])
    lines = [line.strip() for line in (test.err or test.out).splitlines() if line.strip()]
    words = printable("; ".join(line.replace("sbatch: ", "", 1) for line in lines))
    words = words.replace("error: ", "").replace("allocation failure: ", "")
    if test.code == 0:
        return CheckResult("slurm-request", _FAMILY, host, "ok", words, "", _SBATCH)
    away = printable(str(answer.get("away") or ""))
    is_open = "node" in words.lower() and "not available" in words.lower()
    if is_open and (away or is_quick):
        evidence = f"no node could run the job as they are now: {words}"
        hint = f"down, drained, reserved or silent: {away} (sinfo -R)" if away else "sinfo --Node"
        return CheckResult("slurm-request", _FAMILY, host, "warn", evidence, hint, _SBATCH)
    limits = [printable(name) for name in answer["partitions"]]

    def names(*, with_limits: bool) -> list[str]:
        return limits if with_limits else [name.partition(" (")[0] for name in limits]

    hint = choices(words, names) or ""
    evidence = f"Slurm does not accept the job: {words or f'exit code {test.code}'}"
    return CheckResult("slurm-request", _FAMILY, host, "fail", evidence, hint, _SBATCH)


def capacity_results(
    host: str, plan: Plan, block: Ray, answer: Mapping[str, Any]
) -> Iterator[CheckResult]:
    """Yield whether a Ray answers, and has machines such as a plan asks for, free or not."""
    problem, machines = printable(str(answer["problem"])), answer["machines"]
    if problem:
        yield CheckResult("ray-address", _FAMILY, host, "fail", problem, "", _RAY)
        return
    yield CheckResult("ray-address", _FAMILY, host, "ok", f"a Ray answers at {block.address}")
    if not machines:
        return
    demand, nodes = bundle(block), plan.topology.nodes
    fitting = [
        name
        for name, own in machines.items()
        if all(own.get(key, 0) >= count for key, count in demand.items())
    ]
    shown = ", ".join(f"{key} {count}" for key, count in demand.items())
    evidence = f"{len(fitting)} of {quantity(len(machines), 'machine')} have {shown}"
    least = nodes if block.placement == "STRICT_SPREAD" else 1
    if len(fitting) >= least:
        yield CheckResult("ray-capacity", _FAMILY, host, "ok", evidence, "", _RAY)
    else:
        hint = f"the job asks for {least}: fewer `nodes`, or less on each"
        yield CheckResult("ray-capacity", _FAMILY, host, "fail", evidence, hint, _RAY)


def _accounts(host: str, block: Slurm, rows: list[list[str]]) -> Iterator[CheckResult]:
    """Yield warnings of an account and a QOS that the user does not have.

    Slurm takes such a job where the site does not enforce them (AccountingStorageEnforce), and it
    may wait for ever.
    """
    if not rows:
        return
    names = {"account": {row[0] for row in rows}}
    names["qos"] = {name for row in rows for name in row[-1].split(",") if name}
    for key, own in names.items():
        value = getattr(block, key)
        if value is None or not own:
            continue
        if value in own:
            yield CheckResult(f"slurm-{key}", _FAMILY, host, "ok", f"{key} {value}")
        else:
            hint = did_you_mean(value, sorted(own)) or f"yours: {', '.join(sorted(own))}"
            what = f"{key} {value} is none of yours (set at {block.origins[key]})"
            yield CheckResult(f"slurm-{key}", _FAMILY, host, "warn", what, hint)


def node_result(host: str, status: str, evidence: str, hint: str = "") -> CheckResult:
    """Return the result of the look at a node."""
    return CheckResult("slurm-node", _FAMILY, host, status, evidence, hint)


def shared_result(host: str, what: str, folder: str, node: str, *, is_shared: bool) -> CheckResult:
    """Return whether a node sees a folder of the login node."""
    if is_shared:
        return CheckResult("slurm-shared", _FAMILY, host, "ok", f"{what} is on {node} too")
    evidence = f"{what} ({folder}) is another one on {node}"
    hint = "it must be on a file system that login and compute nodes share: "
    hint += "`workdir:` of the host, SAFELAUNCH_HOME there"
    return CheckResult("slurm-shared", _FAMILY, host, "fail", evidence, hint)
