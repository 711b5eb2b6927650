"""Checks of a job that a login node submits: what the engine says, and a look at one node."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from safelaunch.checks import cluster, machines
from safelaunch.cli.check.quick import report
from safelaunch.cli.connections import host_pool, local_pool
from safelaunch.engines.ray.job import capacity_request
from safelaunch.engines.slurm.trial import NODE_LIMIT, node_step, plan_of_block, trial_request
from safelaunch.errors import HostError
from safelaunch.model import Ray, Slurm
from safelaunch.runtime.engines import table
from safelaunch.start.engine import submitting_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.checks.context import CheckContext
    from safelaunch.checks.registry import CheckResult
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan
    from safelaunch.remote.host_pool import HostPool


def before_start(resolved: Resolved, plan: Plan) -> None:
    """Ask the Slurm of this machine whether it takes a job. Raises Refused where it does not."""
    if isinstance(plan.engine, Slurm):
        context = machines.for_plan(resolved, plan, os.environ, is_quick=True)
        engine = table.load(plan.engine.engine_name)
        answer = engine.trial(trial_request(plan, is_quick=True), os.environ)
        report(cluster.quick_results(None, answer), context)


def plan_of(context: CheckContext) -> Plan | None:
    """Return the plan of a job for an engine, or one for the Slurm of a host without a job.

    None where there is no engine. Raises ConfigError for one that safelaunch does not ask.
    """
    if context.plan is not None:
        if context.plan.engine is not None:
            submitting_engine(context.plan)
        return context.plan if context.plan.engine is not None else None
    host = context.hosts[0].entry
    is_cluster = len(context.hosts) == 1 and host.slurm is not None and not context.is_local
    return plan_of_block(host.slurm) if is_cluster and host.slurm is not None else None


def ask(
    context: CheckContext, plan: Plan, pool: HostPool, hosts_path: str | None
) -> tuple[list[CheckResult], HostPool | None]:
    """Return results of what the engine says, and connections to a node that it lends for a minute.

    Without such a node None. Raises HostError where the login node does not answer.
    """
    name = context.hosts[0].name
    if isinstance(plan.engine, Ray):
        answer = pool.call(name, "start.trial", **capacity_request(plan.engine, os.environ))
        return list(cluster.capacity_results(name, plan, plan.engine, answer)), pool
    if not isinstance(plan.engine, Slurm):
        return [], pool
    answer = pool.call(name, "start.trial", **trial_request(plan))
    results = list(cluster.results(name, plan.engine, answer))
    if any(result.status == "fail" for result in results):
        return results, None
    step = node_step(plan)
    is_local = context.is_local
    nodes = local_pool(hosts_path, step) if is_local else host_pool(hosts_path, step=step)
    try:
        node = str(nodes.call(name, "start.look")["hostname"])
    except HostError as e:
        evidence = f"no node was looked at: {e.message}"
        hint = f"the checks of the machine need one that is free within {NODE_LIMIT} s"
        return [*results, cluster.node_result(name, "skip", evidence, hint)], None
    results.append(cluster.node_result(name, "ok", f"the checks below are of {node}"))
    folders = {"safelaunch's folder": str(pool.call(name, "start.look")["base"])}
    if context.project:
        folders["the project's folder"] = (*context.project_dirs, context.project)[0]
    for what, folder in folders.items():
        is_shared = _is_shared(pool, nodes, name, folder)
        results.append(cluster.shared_result(name, what, folder, node, is_shared=is_shared))
    return results, nodes


def _is_shared(pool: HostPool, nodes: HostPool, name: str, folder: str) -> bool:
    """Whether a node sees what the login node writes into a folder, or into its nearest parent."""
    token = secrets.token_hex(8)
    where = {"folder": folder, "make": False}
    if not pool.call(name, "shared.leave", token=token, **where)["left"]:
        return True  # its own check tells of a folder that cannot be written
    tokens: Sequence[str] = nodes.call(name, "shared.seen", tokens=[token], **where)["seen"]
    pool.call(name, "shared.take", token=token)
    return token in tokens
