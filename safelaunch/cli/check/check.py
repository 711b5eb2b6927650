"""`safelaunch check`: what would keep a job from starting, found before it starts."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from safelaunch.checks import machines, run
from safelaunch.checks.run import HostReply
from safelaunch.cli import plan_options as shared
from safelaunch.cli import table
from safelaunch.cli.completion import complete_profile
from safelaunch.cli.output import print_json, say
from safelaunch.cli.show_plan import make_plan, resolve_target
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.resolve import Flags
from safelaunch.errors import ConfigError, HostError
from safelaunch.hostfacts.saved import SavedFacts
from safelaunch.remote.hosts import ask_checks
from safelaunch.runs import store
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.checks.context import CheckContext
    from safelaunch.checks.registry import CheckResult

_UNREACHABLE, _REFUSED = 4, 3  # exit codes
_LABEL = 22  # columns of a check's name


@click.command("check", cls=shared.LineCommand)
@click.argument("job", nargs=-1, type=click.Path(), metavar="[JOB.yaml] [-- LINE...]")
@click.option(
    "--host", "names", multiple=True, metavar="NAME", help="A host or group (again for more)."
)
@click.option(
    "--profile",
    metavar="NAME",
    shell_complete=complete_profile,
    help="Hardware profile, by name or path.",
)
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a job key (a.b=c)."
)
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@click.option("--smoke", is_flag=True, help="Check the job with its `smoke:` block laid over it.")
@click.option(
    "--deep", is_flag=True, help="Import torch there as well, and ask it for its versions and GPUs."
)
@click.option("--save", is_flag=True, help="Write what profiles are gated on into the hosts file.")
@click.option("--all", "show_all", is_flag=True, help="Show passed and skipped checks too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(job: tuple[str, ...], **options: Any) -> int:
    """Find what would keep a job from starting, on this machine or on hosts over SSH.

    Nothing is started or changed there. Without a job the machines alone are looked at. Exit code 3
    where a start is impossible, 4 where a host cannot be asked.

    \b
    safelaunch check train.yaml
    safelaunch check --host gpu1 --host gpu2 train.yaml
    safelaunch check --host gpu1 --save
    """  # noqa: D301 - \b is click's mark
    line = shared.pasted_line()
    if len(job) + bool(line) > 1:
        raise ConfigError("more than one job", hint="check them one after another")
    home = store.home(os.environ)
    path = options["hosts_path"] and os.path.abspath(options["hosts_path"])
    context = _context(job[0] if job else None, line, options, home, path)
    pool = None
    if not context.is_local:
        from safelaunch.cli.connections import host_pool  # noqa: PLC0415 - for hosts only

        pool = host_pool(path)
    answers = ask_checks.ask(context, SavedFacts(home, say), pool, deep=options["deep"])
    is_lost = any(isinstance(one, HostError) for one in answers)
    if pool is not None and context.plan is not None and len(context.hosts) > 1 and not is_lost:
        routes = ask_checks.try_routes(context, pool)
        folders = ask_checks.shared_folders(context, pool)
        context = run.with_hosts(context, context.hosts, routes=routes, shared=folders)
    if is_lost:
        ask_checks.add_hints(answers, home, options["hosts_path"], os.environ)
    found = machines.results(context, answers)
    if options["as_json"]:
        print_json({"version": 1, "results": [one._asdict() for one in found]})
    else:
        _show(found, context, show_all=options["show_all"])
    if options["save"]:
        _save(home, path, context, answers)
    if is_lost:
        return _UNREACHABLE
    return _REFUSED if any(one.status == "fail" for one in found) else 0


def _context(
    file: str | None, line: tuple[str, ...], options: dict[str, Any], home: str, path: str | None
) -> CheckContext:
    """Return what is to be checked. Raises ConfigError."""
    names = options["names"]
    machines.refuse_local(names)
    if file is None and not line:
        from safelaunch.remote.session import known_hosts  # noqa: PLC0415 - machines alone

        hosts = known_hosts(home, path)
        return machines.for_hosts(names, hosts, options["profile"], os.environ)
    flags = Flags(
        options["profile"],
        options["sets"],
        options["hosts_path"],
        smoke=options["smoke"],
        only_checked=True,
    )
    files = () if file is None else (file,)
    if not names:
        resolved = resolve_target(files, line, flags)
        if resolved.job.hosts in ((), (hosts_file.LOCAL,)):
            return machines.for_plan(resolved, make_plan(resolved), os.environ)
    hosts_path = options["hosts_path"] or hosts_file.own(home)
    flags = flags._replace(remote=True, hosts=names, hosts_file=hosts_path)
    resolved = resolve_target(files, line, flags)
    return machines.for_plan(resolved, make_plan(resolved), os.environ)


def _save(
    home: str, path: str | None, context: CheckContext, answers: Sequence[HostReply | HostError]
) -> None:
    """Write the facts that profiles are gated on into the hosts file. Raises ConfigError."""
    from safelaunch.config.hosts_file.reader import file_of  # noqa: PLC0415
    from safelaunch.config.hosts_file.save_facts import save  # noqa: PLC0415 - as above
    from safelaunch.config.hosts_file.update_file import change  # noqa: PLC0415 - as above
    from safelaunch.hostfacts.profile_detection import gate_facts  # noqa: PLC0415 - as above

    file = file_of(home, path)
    found = {
        host.name: gate_facts(one.facts) if isinstance(one, HostReply) else {}
        for host, one in zip(context.hosts, answers, strict=True)
    }
    known = {name: facts for name, facts in found.items() if facts}
    for name in found:
        if name not in known:
            say(f"{name}: no version of NCCL, torch, CUDA or the driver is known to save")
    if not known:
        return

    def with_facts(text: str) -> str:
        for name, facts in known.items():
            text = save(text, file, name, facts)
        return text

    change(file, with_facts)
    for name, facts in known.items():
        said = ", ".join(f"{key} {value}" for key, value in facts.items())
        say(f"{name}: {said} -> {file}")
    if context.is_local:
        say(f"`safelaunch run` reads it with --hosts {quote(file)}")


# -- what is printed -------------------------------------------------------------------------------


def _show(found: Sequence[CheckResult], context: CheckContext, *, show_all: bool) -> None:
    """Print what is wrong, what matters most first; one line when all checks passed."""
    shown = [one for one in found if show_all or one.status in ("fail", "warn")]
    # of one machine all in one list: what matters most may be about it, or about the job
    several = len(context.hosts) > 1
    for group in dict.fromkeys(one.host for one in shown) if several else [None]:
        if several:
            click.echo(f"{group or 'all hosts'}")
        for one in shown:
            if not several or one.host == group:
                hint = one.hint
                if show_all and one.source and one.status in ("fail", "warn"):
                    hint = f"{hint} ({one.source})" if hint else one.source
                table.show(one.status, f"{one.id:<{_LABEL}} ", one.evidence, hint)
    click.echo(summary(found, context))


def summary(found: Sequence[CheckResult], context: CheckContext) -> str:
    """Return what was found in one line."""
    count = Counter(one.status for one in found)
    where = "this machine" if context.is_local else ", ".join(host.name for host in context.hosts)
    what = where if context.plan is None else f"{context.plan.name} on {where}"
    skipped = f", {count['skip']} skipped (--all says why)" if count["skip"] else ""
    if not count["fail"] and not count["warn"]:
        return f"{what}: {count['ok']} check{'' if count['ok'] == 1 else 's'} passed{skipped}"
    problems = [
        f"{count[status]} {word}{'' if count[status] == 1 else 's'}"
        for status, word in (("fail", "error"), ("warn", "warning"))
        if count[status]
    ]
    return f"{what}: {', '.join(problems)}, {count['ok']} passed{skipped}"
