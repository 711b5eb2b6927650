"""The batch script of a plan for Slurm, and the line that submits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.engines.slurm import container
from safelaunch.engines.slurm.directives import SCRIPT, directives
from safelaunch.engines.slurm.options import has_dependency
from safelaunch.engines.submission import ARRAY_TASK, PLACEHOLDERS, SCRIPTS
from safelaunch.errors import ConfigError
from safelaunch.model import Slurm
from safelaunch.runtime.engines.exit_codes import REQUEUE
from safelaunch.runtime.engines.slurm.dependencies import job_of
from safelaunch.runtime.parts import preparation
from safelaunch.script import quote, quote_directive

if TYPE_CHECKING:
    from safelaunch.engines.submission import Submission
    from safelaunch.model import Plan


def sbatch_script(plan: Plan, submission: Submission = PLACEHOLDERS) -> str:
    """Return the text of the batch script; empty for a plan that Slurm does not start."""
    block = plan.engine
    if not isinstance(block, Slurm):
        return ""
    nodes = plan.topology.nodes
    lines = [
        "#!/bin/bash",
        f"# {plan.name}: {plan.launcher}, {nodes} node{'s' * (nodes > 1)}; written by safelaunch",
        *(
            "#SBATCH " + " ".join(map(quote_directive, directive.words))
            for directive in directives(plan, submission)
        ),
    ]
    # a command, behind which sbatch reads no more directives: setup may have such comments
    lines += ["", "# a stop goes to the supervisors, and this script waits for their end"]
    lines += ["trap : TERM"]
    if block.setup:
        lines += ["", "# the site's own setup, verbatim", *block.setup]
    lines += [
        "",
        *(_warning(plan, submission) if block.signal else ()),
        *_srun(plan, block, submission),
        *(_requeue(plan) if block.requeue else ()),
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def _srun(plan: Plan, block: Slurm, submission: Submission) -> list[str]:
    """Return the lines that start a supervisor on each node, and take the highest exit code.

    The supervisors end each other: with --kill-on-bad-exit=1 srun would kill them first. Since
    22.05 srun does not inherit --cpus-per-task (its release notes). --export is said again for
    sites that set SLURM_EXPORT_ENV. All ranks of a node share its GPUs, so that none is bound.
    """
    nodes, first = plan.topology.nodes, next(iter(plan.nodes), None)
    python, own, before = quote(submission.python), list[str](), list[str]()
    if first is not None and first.container is not None:
        own = [quote(word) for word in container.srun_options(first.container, submission.facts)]
        before = _lines(container.command(first.container, submission.facts))
        python = quote(container.interpreter(first, submission.facts))
    options = [
        f"--nodes={nodes} --ntasks={nodes} --ntasks-per-node=1",
        "--kill-on-bad-exit=0 --wait=0",
        "--export=ALL --mpi=none",
        '${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"}',
    ]
    if block.gpus_per_node and not block.gres:
        options[2] += " --gpu-bind=none"
    join = f"{submission.folder}/{SCRIPTS}/join.py"
    if plan.fan_out is not None:
        join = f"{submission.folder}/{ARRAY_TASK}"
    # in a file: bash 5.2 may lose the status of a process that ends while a signal ends its `wait`
    file = f'{_place(plan, submission, "srun.")}"${{SLURM_RESTART_COUNT:-0}}"'
    return [
        "{",
        "  code=0",
        "  srun \\",
        *(f"    {words} \\" for words in (*options, *own, *before)),
        f"    {python} -I -S -B \\",
        f"    {quote(join)} \\",
        f"    {quote(submission.folder)} || code=$?",
        f'  echo "$code" > {file}',
        "} &",
        'while kill -0 "$!" 2>/dev/null; do wait "$!" || :; done  # a signal ends a wait',
        f"read -r code < {file} || code=1",
    ]


def _lines(words: list[str]) -> list[str]:
    """Return a command with a line for each of its options, and for what is behind them."""
    first = next((at for at, word in enumerate(words) if word.startswith("-")), 1)
    return [" ".join(words[:first]), *map(quote, words[first:])] if words else []


def _place(plan: Plan, submission: Submission, name: str) -> str:
    """Return the path of a file beside the node's folder, of an array beside that of the part."""
    if plan.fan_out is None:
        return quote(f"{submission.folder}/{name}")
    start = preparation.folder(f"{submission.folder}/node-0", "")
    return f'{quote(start)}"$SLURM_ARRAY_TASK_ID"{quote("/" + name)}'


def _warning(plan: Plan, submission: Submission) -> list[str]:
    """Return the lines that pass on Slurm's warning of the time limit, as a file.

    A signal to the steps would reach the ranks too, and end them (scancel(1): it signals all
    processes of a step).
    """
    path = f'{_place(plan, submission, "time-limit.")}"${{SLURM_RESTART_COUNT:-0}}"'
    return [f"warn() {{ : > {path}; }}  # the supervisors look for it", "trap warn USR2"]


def _requeue(plan: Plan) -> list[str]:
    job = '"$SLURM_JOB_ID"'
    if plan.fan_out is not None:  # the number of one task is that of the whole array
        job = '"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"'
    return [
        f'if [ "$code" -eq {REQUEUE} ]; then  # the supervisors ask for another life of the run',
        f"  scontrol requeue {job}",
        "fi",
    ]


def submit_line(plan: Plan, script: str, *, test_only: bool = False) -> tuple[str, ...]:
    """Return the words that submit a script, or with `test_only` ask whether it would be taken.

    A job whose dependency can never be satisfied would otherwise stay pending for ever.
    """
    block = plan.engine
    if not isinstance(block, Slurm):
        return ()
    words = [*block.prefix, "sbatch", "--parsable"]
    if plan.after:
        if has_dependency(block):
            raise ConfigError(
                "`--after`, and a dependency among the options of sbatch",
                where=str(block.origin),
                hint="give one of the two",
            )
        ends = [(d.run, "afterany" if d.is_any_end else "afterok") for d in plan.after]
        words += ["--dependency=" + ",".join(f"{kind}:{job_of(run)}" for run, kind in ends)]
    words += ["--kill-on-invalid-dep=yes"] if plan.after or has_dependency(block) else []
    words += ["--test-only"] if test_only else []
    return (*words, script)


def script_path(submission: Submission = PLACEHOLDERS) -> str:
    """Return where a start writes the batch script."""
    return f"{submission.folder}/{SCRIPT}"
