"""Resolves a job file or a pasted line, and prints plans."""

# ruff: noqa: PLC0415 - the parser of pasted lines, and engines, are imported only for such jobs

from __future__ import annotations

import itertools
import os
import sys
from typing import TYPE_CHECKING

import click

from safelaunch.cli.output import say, warn, wrap
from safelaunch.config.hosts_file.reader import LOCAL
from safelaunch.config.paths import Paths
from safelaunch.config.resolve import resolve, resolve_file
from safelaunch.environ import removals
from safelaunch.errors import ConfigError
from safelaunch.model import Hang
from safelaunch.plan import direct
from safelaunch.runtime.units import job_duration, quantity
from safelaunch.script import paste_line, quote, rank_words, with_home_as_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.config.resolve import Flags, Resolved
    from safelaunch.config.yaml_io.node import Node
    from safelaunch.model import EnvVar, NodePlan, Origin, Plan, Preemption


def resolve_target(files: Sequence[str], line: Sequence[str], flags: Flags) -> Resolved:
    """Return the resolved job of a file, or of a pasted launch line."""
    cwd = os.getcwd()
    if line:
        from safelaunch.plan.launch_line.parse import default_name
        from safelaunch.plan.launch_line.read import read_line
        from safelaunch.plan.launch_line.shell import Shell

        tree, words, secrets, notes = read_line(
            line, Shell(cwd, os.environ), is_remote=flags.remote
        )
        for note in notes:
            say(f"note: {note}")
        if secrets:
            os.environ.update(secrets)
            say(
                f"{', '.join(secrets)}: passed on as by `env_from`, written to no file; `export` "
                "it instead, since others can read a command line with `ps`"
            )
        at = os.path.join(cwd, "-")
        paths = Paths.from_job(at, cwd, flags.project_root, remote=flags.remote)
        resolved = resolve(tree, flags, paths, default_name=default_name(tree), job_file="")
        profile = resolved.profile  # the line itself names one only to run on the CPU
        if tree.get("profile") and profile is not None and profile.accelerator != "cpu":
            raise ConfigError(
                f"the line runs on the CPU, profile `{profile.name}` is for GPUs",
                where="--profile",
                hint="remove one of the two",
            )
        return resolved._replace(line=words)
    return resolve_file(files[0], flags, cwd)


def print_plan(plan: Plan) -> None:
    """Print a plan: the line to paste, then every variable with its origin and reason.

    For an engine that takes a file, that one.
    """
    if plan.engine is None or not _print_file(plan):
        _print_for_people(plan)
    print_warnings(plan)


def _print_file(plan: Plan) -> bool:
    from safelaunch.cli.plan_text.engine import print_file

    return print_file(plan)


def _engine_title(plan: Plan) -> str:
    from safelaunch import engines

    engine = engines.of_plan(plan)
    return "" if engine is None else engine.TITLE


def _print_for_people(plan: Plan) -> None:
    several, host = len(plan.nodes) > 1, plan.nodes[0].host
    where = "" if several or host == LOCAL else f" on {host}"
    if plan.engine is not None:
        several, where = False, f" on {_engine_title(plan)}"
    click.echo(
        f"# {plan.name}: {plan.launcher}{_shape(plan)}{where}, profile {plan.profile or 'none'}"
    )
    if several and plan.fan_out is None:
        click.echo(
            "# by hand: fill in an address of node 0, a free port there, each node's own interface"
        )
    if plan.manual_node is not None:
        click.echo(f"# node {plan.manual_node}; start the others on their machines")
    nodes = _shown_nodes(plan)
    if plan.engine is not None:
        from safelaunch.cli.plan_text.engine import print_submission

        print_submission(plan)
    _print_services(plan)
    _print_parts(plan)
    for node in nodes if plan.engine is None else ():
        if several:
            own = ": services alone, until the ranks have ended" if not node.processes else ""
            own = own if plan.service_nodes else ""
            click.echo(f"# node {node.node_rank} on {node.host}{own}")
        if node.container is not None:
            from safelaunch.cli.plan_text.container import print_container

            print_container(node)
        click.echo(paste_line(node, plan.topology))
    if plan.log is not None:
        click.echo(f"\nlog, beside the run's own: {plan.log}")
    _print_dependencies(plan)
    _print_queue(plan)
    print_supervision(plan)
    _print_ending(plan)
    _print_assets(plan)
    for node in nodes:
        _print_ranks(node, several)
        _print_environment(node, several)


def _print_parts(plan: Plan) -> None:
    if plan.fan_out is not None:
        from safelaunch.cli.plan_text.fan_out import print_fan_out

        print_fan_out(plan.fan_out, [node.host for node in plan.nodes])


def _print_services(plan: Plan) -> None:
    if plan.services:
        from safelaunch.cli.plan_text.services import print_services

        print_services(plan)


def _print_queue(plan: Plan) -> None:
    if plan.queue is not None:
        priority = f" (priority {plan.queue.priority})" if plan.queue.priority else ""
        cards = quantity(plan.queued_cards, "free card")
        click.echo(f"\nqueue: waits for {cards} of the machine{priority}")


def _shown_nodes(plan: Plan) -> tuple[NodePlan, ...]:
    """Return the nodes that are shown; of an engine's the first: they have the same variables."""
    return plan.nodes if plan.engine is None else plan.nodes[:1]


def _print_dependencies(plan: Plan) -> None:
    if plan.after:
        click.echo("\nbegins once")
    for dependency in plan.after:
        click.echo(f"  {dependency}")


def print_supervision(plan: Plan) -> None:
    """Print how the job is supervised, where that differs from the defaults."""
    own = plan.supervision
    lines = [*_restarts(plan), *_hang(own.hang)]
    if own.smoke:
        steps = own.success.min_steps if own.success else None
        end = f"succeeds after {steps} steps" if steps else "runs to its normal end"
        lines.insert(0, f"smoke: the job with its `smoke:` block applied; {end}")
    if own.max_duration is not None:
        lines.append(f"stopped after {job_duration(own.max_duration)} (max_duration)")
    if own.max_cost is not None:
        price = f"costs {own.max_cost.per_hour:g} an hour"
        total = own.max_cost.total
        hours = "" if total is None else job_duration(total / (own.max_cost.per_hour or 1) * 3600)
        lines.append(price if total is None else f"{price}: stopped at {total:g}, after {hours}")
    lines += _preemption(own.preemption)
    if own.success is not None:
        required = [*own.success.artifacts]
        required += [f"{own.success.min_steps} steps"] if own.success.min_steps else []
        lines.append("succeeded only with " + ", ".join(required))
    if not own.capture:
        lines.append("exceptions are not recorded (capture: false)")
    if lines:
        click.echo("\nwhile it runs")
    for line in lines:
        click.echo(f"  {line}")


def _print_ending(plan: Plan) -> None:
    if plan.supervision.ending is not None:
        from safelaunch.cli.plan_text.ending import print_ending

        print_ending(plan)


def _print_assets(plan: Plan) -> None:
    """Print the path of each asset on this machine and on each host."""
    first = plan.nodes[0].assets
    alike = all(node.assets == first for node in plan.nodes)
    for node in plan.nodes[: 1 if alike else None]:
        if node.assets:
            click.echo("\nassets" if alike else f"\nassets of {node.host}")
        for asset in node.assets:
            on_host = f" -> {asset.place}" if asset.place != asset.path else ""
            click.echo(f"  {asset.name}: {asset.path}{on_host}    {asset.origin}")


def _print_ranks(node: NodePlan, several: bool) -> None:
    """Print what runs in place of the launcher's line, where the ranks are started without it."""
    ranks = direct.newest(node).ranks
    if ranks is None:
        return
    where = f" of {node.host}" if several else ""
    click.echo(f"\n{ranks.count} ranks{where}, started without the launcher (`--script` shows how)")
    click.echo(f"  {' '.join(map(quote, rank_words(node, ranks)))}")
    values = " ".join(f"{var.name}={quote(var.value)}" for var in ranks.variables)
    _print_indented(f"with what the launcher's line would set for them: {values}")


def _restarts(plan: Plan) -> list[str]:
    recovery, node = plan.supervision.recovery, plan.nodes[0]
    if recovery is None:
        return []
    times = f"at most {recovery.max_restarts}"
    times += f" within {job_duration(recovery.budget)}" if recovery.budget is not None else ""
    pause = f"the first after {job_duration(recovery.backoff)}, then twice as long"
    pause += f", up to {job_duration(recovery.backoff_max)}"
    lines = [f"restarts: {times}, by failure class; {pause}"]
    if node.resume_argv is not None and node.resume_argv != node.argv:
        lines.append("a restart runs " + " ".join(map(quote, node.resume_argv[node.program :])))
    if node.rungs:
        steps = ["+".join(f"{v.name}={v.value}" for v in rung) for rung in node.rungs]
        lines.append("ladder: an illegal memory access adds " + ", then ".join(steps))
    return lines


def _preemption(source: Preemption | None) -> list[str]:
    if source is None:
        return []
    places = [place for place in (source.file, source.url) if place]
    places += ["a TERM that no person has sent"] if source.sigterm else []
    grace = job_duration(source.grace)
    return [f"preempted on notice from {' or '.join(places)}: the ranks get TERM, and {grace}"]


def _hang(hang: Hang | None) -> list[str]:
    if hang is None:
        return ["hangs are not detected (hang: off)"]
    if hang == Hang():
        return []
    first = job_duration(hang.first_progress)
    text = f"hang: {hang.action} after {hang.factor} median steps without progress, at least "
    return [f"{text}{job_duration(hang.floor)}; {first} until two steps are known"]


def print_warnings(plan: Plan, *, is_start: bool = False) -> None:
    """Print the warnings and notes of a plan, each once."""
    for warning in plan.warnings:
        if warning.id == "undeclared-fact":
            if not is_start:  # which decides, and says what
                say(f"note: {warning.where}: {warning.text}")
            continue
        warn(f"{warning.where}: {warning.text}" if warning.where else warning.text)
    for note in plan.notes:
        say(f"note: {note}")


def _shape(plan: Plan) -> str:
    """Return `, 2 nodes x 8`, or nothing for one node whose launcher starts no ranks."""
    topology = plan.topology
    if not plan.ranks_log and topology.nodes == 1:
        return ""
    per_node = "one per GPU" if topology.processes is None else str(topology.processes)
    return f", {topology.nodes} node{'s' * (topology.nodes > 1)} x {per_node}"


def _print_environment(node: NodePlan, several: bool) -> None:
    click.echo(f"\nenvironment of {node.host}" if several else "\nenvironment")
    stated = [var for var in node.env.values() if not var.computed]
    for var in stated:
        click.echo(f"  {format_variable(var)}")
        marks = " (workaround, lifted by --no-workarounds)" if var.workaround else ""
        _print_indented(f"{var.origin}{marks}" + (f": {var.why}" if var.why else ""))
        for key in ("cost", "source"):
            if getattr(var, key):
                _print_indented(f"{key}: {getattr(var, key)}")
    for name in node.secrets:
        click.echo(f"  {name}=***")
        _print_indented("env_from: taken from your environment at the start")
    click.echo("removed from what is inherited")
    removed = removals(node.unset, node.requested)
    _print_indented(", ".join(p + f" (not {', '.join(k)})" * bool(k) for p, k in removed.items()))
    if node.keep is not None:
        _print_indented("and everything else but the basics" + "".join(f", {n}" for n in node.keep))
    computed: dict[str, list[str]] = {}
    for var in node.env.values():
        if var.computed and var.name not in node.secrets:
            computed.setdefault(var.computed, []).append(var.name)
    click.echo("worked out on the machine that runs it")
    for description, names in computed.items():
        click.echo(f"  {', '.join(names)}")
        _print_indented(description)
    _print_evidence(node)


def _print_evidence(node: NodePlan) -> None:
    """Print what each rank sets for itself."""
    for group in node.evidence.values():
        click.echo(f"  {' '.join(f'{var.name}={var.value}' for var in group)}")
        _print_indented(f"{group[0].computed}: {group[0].why}")
        for key in ("cost", "source"):
            _print_indented(f"{key}: {getattr(group[0], key)}")


def _print_indented(text: str) -> None:
    """Print an indented line; on a terminal, break it between words."""
    if not sys.stdout.isatty():
        click.echo(f"      {text}")
        return
    width = min(os.get_terminal_size(sys.stdout.fileno()).columns or 80, 100)
    for line in wrap(text, width, " " * 6, " " * 6, break_words=True):
        click.echo(line)


def format_variable(var: EnvVar) -> str:
    """Return `NAME=value` quoted for a shell, or how the variable is computed or removed."""
    if var.computed:
        return f"{var.name}: {var.computed}"
    if var.value is None:
        return f"{var.name} is removed"
    word = with_home_as_text(var.value)
    value = quote(word) if isinstance(word, str) else str(word)
    return f"{var.name}={value}" + (" (before the target's own)" if var.prepend else "")


def print_explanation(resolved: Resolved, plan: Plan) -> None:
    """Print each value with its origin and the values that it overrides."""
    click.echo("job")
    _explain(resolved.tree, "  ", "")
    if plan.engine is not None:
        from safelaunch.cli.plan_text.engine import print_origins

        print_origins(plan)
    for node in _shown_nodes(plan):
        if node.container is not None:
            from safelaunch.cli.plan_text.container import print_container_origins

            print_container_origins(node)
        click.echo(f"environment of {node.host}")
        for var in node.env.values():
            click.echo(f"  {format_variable(var)}    {_place(var.origin)}")
            for other in var.beats:
                click.echo(f"      beats {format_variable(other)}    {other.origin}")


def _explain(node: Node, indent: str, name: str) -> None:
    if node.kind == "map":
        for key, value in node.items:
            _explain(value, indent, f"{name}.{key.text}" if name else key.text)
        return
    click.echo(f"{indent}{name}: {_leaf(node)}    {_place(node.origin)}")
    if any(item.origin.source != node.origin.source for item in node.items):
        for origin, items in itertools.groupby(node.items, key=lambda item: item.origin):
            click.echo(f"{indent}    {' '.join(map(_leaf, items))}    {origin}")
    for other in node.beats:
        if _leaf(other) != _leaf(node):
            click.echo(f"{indent}    beats {_leaf(other)}    {other.origin}")


def _place(origin: Origin) -> str:
    """Return where a value is, and the variable of the job that it is."""
    is_variable = origin.option.startswith("vars.")
    return f"{origin} ({origin.option})" if is_variable else str(origin)


def _leaf(node: Node) -> str:
    if node.kind == "list":
        return "[" + ", ".join(_leaf(item) for item in node.items) + "]"
    if node.kind == "map":
        return "{...}"
    return "removed" if node.is_null else node.text
