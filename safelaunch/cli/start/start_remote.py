"""What `remote` does after its plan: connects, syncs, starts, and says how to look."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from safelaunch.checks import machines as check_machines
from safelaunch.checks import quick
from safelaunch.checks import run as checks_run
from safelaunch.checks.machines import ProjectLocation
from safelaunch.cli import plan_options as shared
from safelaunch.cli.check.quick import report
from safelaunch.cli.connections import catalog, host_pool, resolver
from safelaunch.cli.output import print_json, say
from safelaunch.cli.runs.follow import follow, outcome
from safelaunch.cli.show_plan import say_warnings
from safelaunch.cli.start.start_local import caller, interruptible
from safelaunch.cli.transfer.progress_bar import Bar
from safelaunch.errors import ConfigError
from safelaunch.model import Slot
from safelaunch.remote import assets, project_dir
from safelaunch.remote import machine as remote_machine
from safelaunch.remote import start as remote
from safelaunch.remote.agent_client import EARLY, AgentError
from safelaunch.remote.parallel import together
from safelaunch.remote.shared_filesystem import groups
from safelaunch.runs import store
from safelaunch.start.resume import of_run
from safelaunch.sync import LIMIT, Rules, begin_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.checks.run import Case
    from safelaunch.cli.remote_job import Ordered
    from safelaunch.model import Plan
    from safelaunch.remote.agent_client import Pending
    from safelaunch.remote.machine import Machine
    from safelaunch.remote.routes import Routes
    from safelaunch.remote.start import Seen, Started
    from safelaunch.runs.mirror import Pointer
    from safelaunch.sync import Begun


def start(ordered: Ordered, options: dict[str, Any]) -> int:
    """Start what is ordered on its hosts; return the exit code of the command."""
    _check(options, "remote")
    hosts_path = os.path.abspath(options["hosts_file"]) if options["hosts_file"] else None
    homes = [project_dir.HOME] * len(ordered.hosts)
    known, resolved = ordered.plan(homes)
    if not options["no_sync"]:
        assets.check(known)
    case = None
    if not options["no_check"]:
        location = ProjectLocation(ordered.root, tuple(ordered.places(homes)))
        case = check_machines.for_plan(resolved, known, location, os.environ, is_quick=True)
    begun = _Begun(known, [host.name for host in ordered.hosts], hosts_path, case)
    sync = None if options["no_sync"] else _Sync(ordered, begun.machines, options)
    if sync is not None and len(begun.machines) == 1:
        sync.begin([0], ordered.places(["~"])[0])  # on its way with the look
    begun.ask_checks()
    homes = [about.home for about in begun.see()]
    plan, _ = ordered.plan(homes)
    if shared.resumes(options):
        plan = of_run(plan, begun.caller.home, options["resume_from"])
    say_warnings(plan)
    begun.check()
    begun.find_routes([host.interface for host in ordered.hosts])
    if sync is not None:
        sync.finish(ordered.places(homes))
        _bring(begun.machines, plan, options)
    return begun.start(plan, options)


def again(plan: Plan, at: Pointer, options: dict[str, Any]) -> int:
    """Start a recorded plan again on its hosts, with the project as it lies there."""
    _check(options, "rerun")
    begun = _Begun(plan, [place.host for place in at.places], at.hosts_file)
    begun.see()
    known = resolver(at.hosts_file, may_prompt=False)
    begun.find_routes([known.host(place.host).interface for place in at.places])
    return begun.start(plan, options)


def _check(options: dict[str, Any], command: str) -> None:
    if options["as_json"] and options["follow"]:
        raise ConfigError(
            "the log and `--json` together would be neither",
            hint=f"{command} --json, then safelaunch wait --json",
        )


class _Begun:
    """A start on its way: an id, connections, and what was seen of each host."""

    def __init__(
        self, plan: Plan, hosts: Sequence[str], hosts_path: str | None, case: Case | None = None
    ) -> None:
        self.caller = caller()
        self.run_id = store.new_id(plan.name, self.caller.utc, self.caller.random)
        self.hosts_path = hosts_path
        pool = host_pool(hosts_path)
        self.machines = [remote_machine.Machine(host, pool) for host in hosts]
        self.routes: Routes | None = None
        self.plan = plan
        self.seen: list[Seen] = []
        self._case = case  # what is checked before anything is sent; None: nothing
        sites = case.sites if case is not None else ()
        self._wanted = [checks_run.questions(site.case, site) for site in sites]
        self._checks: list[Pending] = []
        self._asked = together(self._look, range(len(hosts)))

    def _look(self, rank: int) -> Pending:
        python = self.plan.nodes[rank].interpreter.path
        if self._case is not None:
            asked = quick.request(self._case.sites[rank], self._wanted[rank], python)
            agent = self.machines[rank].agent
            # what is longer than a command may be is a round trip more
            ask = agent.ask_first if len(json.dumps(asked)) < EARLY else agent.ask
            ask("facts.begin", **asked)
        return remote.look(self.machines[rank], python, self.run_id)

    def see(self) -> list[Seen]:
        """Wait until each host has told what a start needs to know. Raises HostError."""
        self.seen = together(lambda asked: remote.Seen(asked.result()), self._asked)
        return self.seen

    def ask_checks(self) -> None:
        """Ask for what the checks need: it is found out beside all that was asked before."""
        if self._case is not None:
            self._checks = [machine.agent.ask_first("facts.end") for machine in self.machines]

    def check(self) -> None:
        """Make the quick checks. Raises Refused."""
        if self._case is not None:
            early = quick.run_early(self._case)
            answers = together(_answer, self._checks)
            report(quick.results(self._case, self._wanted, answers, early), self._case)

    def find_routes(self, interfaces: Sequence[str | None]) -> None:
        """Try the network between the hosts, before anything is sent or started."""
        if len(self.machines) > 1:
            from safelaunch.remote import routes  # noqa: PLC0415 - for several hosts only

            first = remote.bound_facts(self.plan.nodes[0], self.seen[0], self.run_id)
            self.routes = routes.find(self.machines, interfaces, int(first[Slot.PORT]))

    def start(self, plan: Plan, options: dict[str, Any]) -> int:
        """Start the plan, and tell of it."""
        order = remote.Order(
            plan,
            self.caller,
            self.run_id,
            self.hosts_path,
            self.routes,
            follow=bool(options["follow"]),
        )
        with interruptible():  # of several nodes all start, or none
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


class _Sync:
    """The project on its way to all hosts; to those that see one file system once."""

    def __init__(
        self, ordered: Ordered, machines: Sequence[Machine], options: dict[str, Any]
    ) -> None:
        sync = ordered.sync
        self._rules = Rules(ordered.root, sync.include, sync.exclude)
        self._machines = machines
        self._options = options
        self._begun: dict[int, Begun] = {}  # by the first host of each group

    def begin(self, group: Sequence[int], folder: str) -> None:
        """Ask what a group of hosts holds; `~/` is the home folder there."""
        self._begun[group[0]] = begin_tree(
            self._machines[group[0]].agent,
            self._rules.root,
            folder,
            self._rules,
            delete=self._options["delete"],
            force=self._options["force"],
            cache=os.path.join(store.home(os.environ), "cache"),
        )

    def finish(self, folders: Sequence[str]) -> None:
        """Bring what the hosts lack, and say what that was."""
        several = groups(self._machines, folders)

        def one(group: Sequence[int]) -> list[str]:
            if group[0] not in self._begun:
                self.begin(group, folders[group[0]])
            summary = self._begun[group[0]].finish(
                confirm=_confirm if sys.stdin.isatty() else None,
                report=say,
                limit=None if self._options["yes"] else LIMIT,
            )
            return list(summary.lines(", ".join(self._machines[index].name for index in group)))

        for lines in together(one, several):
            for line in lines:
                say(line)


def _bring(machines: Sequence[Machine], plan: Plan, options: dict[str, Any]) -> None:
    """Bring the assets to all hosts."""
    cache = os.path.join(store.home(os.environ), "cache")
    with Bar() as bar:
        brought = assets.everywhere(
            machines,
            plan.nodes,
            force=options["force"],
            cache=cache,
            report=say,
            progress=bar.show,
        )
        told = [line for hosts, summary in brought for line in summary.lines(hosts)]
    for line in told:
        say(line)


def _answer(asked: Pending) -> dict[str, Any]:
    """Return what a probe told; nothing where it failed: that keeps no job from starting."""
    try:
        told: dict[str, Any] = asked.result()
    except AgentError:
        return {}
    return told


_turn = threading.Lock()


def _confirm(question: str) -> bool:
    with _turn:
        return click.confirm(question, err=True)


def _tell(started: Started, options: dict[str, Any]) -> int:
    run = catalog().open(started.run)
    for note in started.notes:
        say(f"note: {note}")
    hosts = ", ".join(place.host for place in started.places)
    if options["as_json"]:
        print_json(
            {
                "version": 1,
                "id": run.id,
                "state": run.last_status().get("state"),
                "host": started.places[0].host,
                "run_dir": started.places[0].run_dir,
                "attach": f"safelaunch attach {run.id}" if started.with_tmux else None,
                "nodes": [place._asdict() for place in started.places],
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
    if started.routes is not None:
        pairs = zip(
            started.places, started.routes.addresses, started.routes.interfaces, strict=True
        )
        ways = ", ".join(f"{place.host} {address} ({card})" for place, address, card in pairs)
        click.echo(f"  network  {ways}")
    return 0
