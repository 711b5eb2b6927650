"""What `remote` does after its plan: connects, syncs, starts, and says how to look."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from safelaunch import runs
from safelaunch.cli import looking, print_json, say
from safelaunch.cli import options as shared
from safelaunch.cli.planning import say_warnings
from safelaunch.cli.start import caller
from safelaunch.cli.watch import follow, outcome
from safelaunch.errors import ConfigError, StartError
from safelaunch.execute.resume import of_run
from safelaunch.remote import places
from safelaunch.remote import start as remote
from safelaunch.sync import LIMIT, Rules, push_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.cli.remote import Ordered
    from safelaunch.model import Plan
    from safelaunch.remote.mirror import Pointer
    from safelaunch.remote.start import Machine, Started


def start(ordered: Ordered, options: dict[str, Any]) -> int:
    """Start what is ordered on its hosts; return the exit code of the command."""
    _check(options, "remote")
    hosts_path = os.path.abspath(options["hosts_file"]) if options["hosts_file"] else None
    known, _ = ordered.plan([places.HOME] * len(ordered.hosts))
    begun = _Begun(known, [host.name for host in ordered.hosts], hosts_path)
    homes = [about.home for about in begun.seen]
    plan, resolved = ordered.plan(homes)
    if shared.resumes(options):
        plan = of_run(plan, begun.caller.home, options["resume_from"])
    say_warnings(plan)
    if not options["no_sync"]:
        rules = Rules(ordered.root, resolved.job.sync.include, resolved.job.sync.exclude)
        for machine, folder in zip(begun.machines, ordered.places(homes), strict=True):
            _sync(rules, machine, folder, options)
    return begun.start(plan, options)


def again(plan: Plan, at: Pointer, options: dict[str, Any]) -> int:
    """Start a recorded plan again on its hosts, with the project as it lies there."""
    _check(options, "rerun")
    begun = _Begun(plan, [place.host for place in at.places], at.hosts_file)
    return begun.start(plan, options)


def _check(options: dict[str, Any], command: str) -> None:
    if options["as_json"] and options["follow"]:
        raise ConfigError(
            "the log and `--json` together would be neither",
            hint=f"{command} --json, then safelaunch wait --json",
        )


class _Begun:
    """A start on its way: an id, connections, and what was seen of each host."""

    def __init__(self, plan: Plan, hosts: Sequence[str], hosts_path: str | None) -> None:
        if len(hosts) > 1:
            raise StartError(
                f"this job has {len(hosts)} nodes; `remote` starts one host so far",
                hint="start the lines that --dry-run prints by hand, one on each host",
            )
        self.caller = caller()
        self.run_id = runs.new_id(plan.name, self.caller.utc, self.caller.random)
        self.hosts_path = hosts_path
        looker = looking.looker(hosts_path)
        self.machines = [remote.Machine(host, looker) for host in hosts]
        self.seen = [
            remote.look(machine, node.interpreter.path, self.run_id)
            for machine, node in zip(self.machines, plan.nodes, strict=True)
        ]

    def start(self, plan: Plan, options: dict[str, Any]) -> int:
        """Start the plan, and tell of it."""
        order = remote.Order(plan, self.caller, self.run_id, {}, self.hosts_path)
        started = remote.start(order, self.machines, self.seen)
        try:
            return _tell(started, options)
        except KeyboardInterrupt:
            run_id = self.run_id
            say(
                f"\n{run_id} goes on\n  look again: safelaunch logs -f {run_id}\n"
                f"  end it:     safelaunch stop {run_id}"
            )
            return 130


def _sync(rules: Rules, machine: Machine, folder: str, options: dict[str, Any]) -> None:
    summary = push_tree(
        machine.agent,
        rules.root,
        folder,
        rules,
        delete=options["delete"],
        force=options["force"],
        confirm=_confirm if sys.stdin.isatty() else None,
        report=say,
        cache=os.path.join(runs.home(os.environ), "cache"),
        limit=None if options["yes"] else LIMIT,
    )
    for line in summary.lines(machine.name):
        say(line)


def _confirm(question: str) -> bool:
    return click.confirm(question, err=True)


def _tell(started: Started, options: dict[str, Any]) -> int:
    run = started.run
    for note in started.notes:
        say(f"note: {note}")
    hosts = ", ".join(place.host for place in started.places)
    if options["as_json"]:
        print_json(
            {
                "version": 1,
                "id": run.id,
                "state": looking.kept(run).get("state"),
                "host": started.places[0].host,
                "run_dir": started.places[0].run_dir,
                "attach": f"safelaunch attach {run.id}" if started.with_tmux else None,
            }
        )
        return 0
    if options["follow"]:
        say(f"started {run.id} on {hosts}; Ctrl-C leaves it running")
        return outcome(run, follow(run))
    click.echo(f"started {run.id} on {hosts}" + (" in tmux" if started.with_tmux else " (no tmux)"))
    click.echo(f"  follow   safelaunch logs -f {run.id}")
    if started.with_tmux:
        click.echo(f"  attach   safelaunch attach {run.id}")
    click.echo(f"  stop     safelaunch stop {run.id}")
    for place in started.places:
        click.echo(f"  files    {place.host}:{place.run_dir}")
    return 0
