"""What is asked of Slurm before a start: whether it takes the job, and a look at one node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from safelaunch.engines.slurm.batch_script import sbatch_script, submit_line
from safelaunch.engines.slurm.directives import directives
from safelaunch.engines.slurm.options import is_dependency
from safelaunch.engines.submission import PLACEHOLDERS, Submission
from safelaunch.model import Plan, Slurm, Topology
from safelaunch.runtime.engines.slurm import NAME

NODE_LIMIT = 20  # seconds in which a node must be free for a look at it
# what says which nodes a job gets, and how much of them
_OF_NODES = (
    "--partition", "--account", "--qos", "--reservation", "--constraint", "--exclude", "--gres",
    "--gpus-per-node", "--cpus-per-task", "--mem", "--mem-per-gpu", "--mem-per-cpu", "--clusters",
    "--licenses", "--wckey",
)  # fmt: skip


def trial_request(plan: Plan, *, is_quick: bool = False) -> dict[str, Any]:
    """Return the request of runtime/engines/slurm/trial.py for a plan.

    Without what it waits for: `--test-only` refuses a dependency that is not met yet, in the words
    for one that never can be.
    """
    block = plan.engine
    if isinstance(block, Slurm):
        block = replace(block, options=tuple(o for o in block.options if not is_dependency(o)))
        plan = replace(plan, engine=block, after=())
    script = sbatch_script(plan, Submission("check", "/tmp", "python3"))  # noqa: S108 - not used
    return {
        "engine": NAME,
        "submit": list(submit_line(plan, "", test_only=True)[:-1]),
        "script": script,
        "prefix": list(block.prefix) if isinstance(block, Slurm) else [],
        "quick": is_quick,
    }


def plan_of_block(block: Slurm) -> Plan:
    """Return a plan of no program, with which a cluster is asked without a job."""
    return Plan(
        name="check",
        launcher="command",
        profile=None,
        job_file="",
        log=None,
        topology=Topology(),
        ranks_log=False,
        nodes=(),
        warnings=(),
        engine=block,
    )


def node_step(plan: Plan) -> tuple[str, ...]:
    """Return the words that run a command on one node such as the plan asks for, for a minute."""
    block = plan.engine
    if not isinstance(block, Slurm):
        return ()
    own = [
        directive.words
        for directive in directives(plan, PLACEHOLDERS)
        if directive.words[0].partition("=")[0] in _OF_NODES
    ]
    return (
        *block.prefix,
        "srun",
        "--job-name=safelaunch-check",
        "--nodes=1",
        "--ntasks=1",
        "--time=1",
        f"--immediate={NODE_LIMIT}",
        "--export=ALL",
        "--mpi=none",
        "--quiet",
        "--unbuffered",
        *(word for words in own for word in words),
    )
