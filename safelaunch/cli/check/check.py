"""`safelaunch check`: finds what would prevent a job from running, without starting it."""

# ruff: noqa: PLC0415 - what talks to hosts or changes the hosts file is imported for these only

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from safelaunch.checks import machines, run
from safelaunch.checks.run import HostReply
from safelaunch.cli import plan_options as shared
from safelaunch.cli.check.services import check_services
from safelaunch.cli.output import print_check, print_json, say
from safelaunch.cli.plan_text.plan import resolve_target
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.resolve import Flags, SeveralJobs, resolve_steps
from safelaunch.errors import ConfigError, HostError, Refused
from safelaunch.hostfacts.saved import SavedFacts
from safelaunch.plan.build import make_plan
from safelaunch.plan.members.words import with_step_outputs
from safelaunch.remote.hosts import ask_checks
from safelaunch.runs import store
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.checks.context import CheckContext
    from safelaunch.checks.registry import CheckResult
    from safelaunch.config.resolve import Resolved

_LABEL = 22  # columns of a check's name


@click.command("check", cls=shared.LineCommand)
@click.argument("job", nargs=-1, type=click.Path(), metavar="[JOB.yaml] [-- LINE...]")
@click.option("--host", "names", multiple=True, metavar="NAME", help="Host or group; repeatable.")
@shared.profile_option
@shared.set_option
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@shared.engine_option
@click.option("--container", metavar="IMAGE", help="Check the job in a container of this image.")
@click.option("--smoke", is_flag=True, help="Check the job with its `smoke:` block applied.")
@click.option("--deep", is_flag=True, help="Also import torch; check its versions and GPUs.")
@click.option("--save", is_flag=True, help="Write NCCL's and torch's versions into the hosts file.")
@click.option("--all", "show_all", is_flag=True, help="Show passed and skipped checks too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(job: tuple[str, ...], **options: Any) -> int:
    """Find what would prevent a job from running, on this machine or on hosts over SSH.

    Nothing is started or changed. Without a job only the machines are checked. Exit code 3 if a
    check failed, 4 if a host could not be checked.

    \b
    safelaunch check train.yaml
    safelaunch check --host gpu1 --host gpu2 train.yaml
    safelaunch check --host gpu1 --save
    """  # noqa: D301 - \b is click's mark
    line = shared.pasted_line()
    if len(job) + bool(line) > 1:
        raise ConfigError("more than one job", hint="check them one after another")
    try:
        return _check(job, line, options)
    except SeveralJobs:
        flags = Flags(sets=options["sets"], only_checked=True)
        steps = resolve_steps(job[0], flags, os.getcwd())[1]
        codes = []
        for step in steps:
            if not options["as_json"]:
                click.echo(f"# step {step.name}")
            codes.append(_check(job, line, options, step.name))
        return max(codes)


def _check(
    job: tuple[str, ...], line: tuple[str, ...], options: dict[str, Any], step: str = ""
) -> int:
    """Check a job, or one step of a file with steps; return the exit code of the command."""
    home = store.home(os.environ)
    path = options["hosts_path"] and os.path.abspath(options["hosts_path"])
    context = _context(job, line, options, home, path, step=step)
    pool = None
    if not context.is_local:
        from safelaunch.cli.connections import host_pool

        pool = host_pool(path)
    engine_results: list[CheckResult] = []
    if _has_cluster(context):
        from safelaunch.cli.check import cluster
        from safelaunch.cli.connections import local_pool

        plan, own = cluster.plan_of(context), pool or local_pool(path)
        if plan is not None:
            engine_results, pool = cluster.ask(context, plan, own, path)
            if pool is None:
                return _finish(engine_results, context, options)
    saved = SavedFacts(home, say)
    answers = ask_checks.ask(context, saved, pool, deep=options["deep"])
    has_host_errors = any(isinstance(answer, HostError) for answer in answers)
    if (
        pool is not None
        and context.plan is not None
        and context.plan.fan_out is None  # its parts do not speak with each other
        and len(context.hosts) > 1
        and not has_host_errors
    ):
        routes = ask_checks.try_routes(context, pool)
        folders = ask_checks.shared_folders(context, pool)
        context = run.with_hosts(context, context.hosts, routes=routes, shared=folders)
    if has_host_errors:
        ask_checks.add_hints(answers, home, options["hosts_path"], os.environ)
    results = [*engine_results, *machines.results(context, answers)]
    if context.plan is not None and context.plan.services and not has_host_errors:
        results += check_services(context, results, saved, pool, deep=options["deep"])
    code = _finish(results, context, options)
    if options["save"]:
        _save(home, path, context, answers)
    if has_host_errors:
        return HostError.exit_code
    return code


def _has_cluster(context: CheckContext) -> bool:
    """Whether an engine may choose the machines, which is to be asked."""
    plan = context.plan
    return any(host.entry.slurm for host in context.hosts) if plan is None else bool(plan.engine)


def _finish(results: Sequence[CheckResult], context: CheckContext, options: dict[str, Any]) -> int:
    """Print the results; return the exit code of the command."""
    if options["as_json"]:
        print_json({"version": 1, "results": [_result_json(result) for result in results]})
    else:
        _show(results, context, show_all=options["show_all"])
    return Refused.exit_code if any(result.status == "fail" for result in results) else 0


def _result_json(result: CheckResult) -> dict[str, Any]:
    """Return a result with `service` where it is about one."""
    body = result._asdict()
    if result.service is None:
        del body["service"]
    return body


def _context(
    files: tuple[str, ...],
    line: tuple[str, ...],
    options: dict[str, Any],
    home: str,
    path: str | None,
    *,
    step: str = "",
) -> CheckContext:
    """Return what is to be checked, of a file with steps one. Raises ConfigError."""
    names = options["names"]
    machines.refuse_local(names)
    if not files and not line:
        if options["engine"] is not None:
            raise ConfigError("`--on` without a job", hint="--host NAME asks a login node")
        from safelaunch.remote.session import load_hosts

        hosts = load_hosts(home, path)
        return machines.for_hosts(names, hosts, options["profile"], os.environ)
    flags = Flags(
        options["profile"],
        options["sets"],
        options["hosts_path"],
        smoke=options["smoke"],
        container=options["container"],
        engine=options["engine"],
        only_checked=True,
    )
    resolved = None if names else _resolve(files, line, flags, step)
    is_here = resolved is not None and (
        resolved.job.engine is not None or resolved.job.hosts in ((), (hosts_file.LOCAL,))
    )
    if resolved is None or not is_here:
        hosts_path = options["hosts_path"] or hosts_file.default_path(home)
        flags = flags._replace(remote=True, hosts=names, hosts_file=hosts_path)
        resolved = _resolve(files, line, flags, step)
    plan = make_plan(resolved)
    if step:
        plan = with_step_outputs(plan)
    return machines.for_plan(resolved, plan, os.environ)


def _resolve(files: tuple[str, ...], line: tuple[str, ...], flags: Flags, step: str) -> Resolved:
    if not step:
        return resolve_target(files, line, flags)
    steps = resolve_steps(files[0], flags, os.getcwd())[1]
    return next(own.resolved for own in steps if own.name == step)


def _save(
    home: str, path: str | None, context: CheckContext, answers: Sequence[HostReply | HostError]
) -> None:
    """Write the facts that profiles depend on into the hosts file. Raises ConfigError."""
    from safelaunch.config.hosts_file.save_facts import save
    from safelaunch.config.hosts_file.update_file import change
    from safelaunch.hostfacts.profile_detection import gate_facts

    file = hosts_file.hosts_file_path(home, path)
    versions = {}
    for host, answer in zip(context.hosts, answers, strict=True):
        facts = gate_facts(answer.facts) if isinstance(answer, HostReply) else {}
        if facts:
            versions[host.name] = facts
        else:
            say(f"{host.name}: nothing to save, no version of NCCL, torch, CUDA or the driver")
    if not versions:
        return

    def with_facts(text: str) -> str:
        for name, facts in versions.items():
            text = save(text, file, name, facts)
        return text

    change(file, with_facts)
    for name, facts in versions.items():
        say(f"{name}: {', '.join(f'{key} {value}' for key, value in facts.items())} -> {file}")
    if context.is_local:
        say("`safelaunch run` uses it where it cannot read a version itself")


def _show(results: Sequence[CheckResult], context: CheckContext, *, show_all: bool) -> None:
    """Print errors and warnings, or all results, the most important first, and a summary."""
    shown = [result for result in results if show_all or result.status in ("fail", "warn")]
    # with one machine all in one list: the most important may be about it, or about the job
    several = len(context.hosts) > 1
    groups = {result: (result.service, result.host if several else None) for result in shown}
    for group in dict.fromkeys(groups.values()):
        service, machine = group
        if several:
            click.echo(f"{machine or 'all hosts'}")
        if service is not None:
            click.echo(f"service {service}")
        for result in shown:
            if groups[result] == group:
                hint = result.hint
                if show_all and result.source and result.status in ("fail", "warn"):
                    hint = f"{hint} ({result.source})" if hint else result.source
                print_check(result.status, f"{result.id:<{_LABEL}} ", result.evidence, hint)
    click.echo(summary(results, context))


def summary(results: Sequence[CheckResult], context: CheckContext) -> str:
    """Return `job on gpu1: 1 error, 2 warnings, 9 passed`."""
    count = Counter(result.status for result in results)
    where = "this machine" if context.is_local else ", ".join(host.name for host in context.hosts)
    what = where if context.plan is None else f"{context.plan.name} on {where}"
    skipped = f", {count['skip']} skipped (--all says why)" if count["skip"] else ""
    if not count["fail"] and not count["warn"]:
        return f"{what}: {quantity(count['ok'], 'check')} passed{skipped}"
    errors, warnings = quantity(count["fail"], "error"), quantity(count["warn"], "warning")
    problems = [errors] * bool(count["fail"]) + [warnings] * bool(count["warn"])
    return f"{what}: {', '.join(problems)}, {count['ok']} passed{skipped}"
