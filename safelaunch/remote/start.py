"""Starts a plan on hosts: one look at each, then everything that it needs in one request.

All or nothing: where one node cannot be started, those that were are stopped.
"""

from __future__ import annotations

import posixpath
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.backends import setsid, tmux
from safelaunch.environ import NOTEWORTHY
from safelaunch.errors import HostError, StartError
from safelaunch.execute import Backend, again, facts, folder, resume
from safelaunch.model import Slot
from safelaunch.plan import bind
from safelaunch.remote import mirror
from safelaunch.remote.agent import AgentError, Lost
from safelaunch.remote.look import PATIENCE
from safelaunch.ssh.explain import Unreachable
from safelaunch.transports import Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch import runs
    from safelaunch.execute import Caller
    from safelaunch.model import NodePlan, Plan
    from safelaunch.remote.agent import Agent
    from safelaunch.remote.look import Looker


class Machine(NamedTuple):
    """A host, and this command's connections."""

    name: str
    looker: Looker

    @property
    def agent(self) -> Agent:
        """The agent there. Raises HostError."""
        return self.looker.session(self.name).agent


class Seen(NamedTuple):
    """What an agent says of its machine, and how the commands ended that a start asks for."""

    about: Mapping[str, Any]

    @property
    def home(self) -> str:
        """The user's home folder there."""
        return str(self.about["home"])

    def result(self, index: int) -> Result:
        """How a command ended."""
        return Result(*self.about["results"][index])


class Started(NamedTuple):
    """A run that was started on hosts, and what to say about it."""

    run: runs.Run
    notes: tuple[str, ...]
    places: tuple[mirror.Place, ...]
    with_tmux: bool


def look(machine: Machine, python: str | None, run_id: str) -> Seen:
    """Ask a host once for what a start there needs. Raises HostError."""
    question = facts.question(run_id)
    about = machine.agent.call(
        "begin.look",
        commands=[[python, *question], [python, "-V"], ["tmux", "-V"]],
        environ=[*NOTEWORTHY, "CUDA_VISIBLE_DEVICES", "PATH"],
    )
    return Seen(about)


def bound_facts(node: NodePlan, seen: Seen, run_id: str) -> dict[Slot, str]:
    """Return what a node's slots are filled with. Raises StartError."""
    python = node.interpreter.path or str(seen.about["python"])
    if not seen.about["bash"]:
        raise StartError(f"{node.host} has no `bash`; it runs the job's launch.sh")
    found = facts.understand(
        node, python, seen.result(0), seen.result(1).last_line, seen.about["environ"]
    )
    run_dir = posixpath.join(str(seen.about["base"]), "runs", run_id, f"node-{node.node_rank}")
    return {**found, Slot.RUN_ID: run_id, Slot.RUN_DIR: run_dir}


class Order(NamedTuple):
    """What is to be started, by whom and as what."""

    plan: Plan  # not bound
    caller: Caller
    run_id: str
    common: Mapping[Slot, str]  # what all nodes share: master address and port
    hosts_file: str | None = None


def start(order: Order, machines: Sequence[Machine], seen: Sequence[Seen]) -> Started:
    """Start each node of a plan on its machine. Raises StartError, HostError."""
    plan, run_id = order.plan, order.run_id
    for node in plan.nodes:
        facts.check_secrets(node, order.caller.environ)
    requests = [_request(order, rank, about) for rank, about in enumerate(seen)]
    places = tuple(
        mirror.Place(machine.name, rank, request.run_dir)
        for rank, (machine, request) in enumerate(zip(machines, requests, strict=True))
    )
    run = mirror.make(order.caller.home, run_id, places, plan.name, order.hosts_file)
    asked: list[Machine] = []
    try:
        for rank, (machine, request) in enumerate(zip(machines, requests, strict=True)):
            asked.append(machine)
            answer = _ask(machine, request, run_id)
            mirror.keep(run, places[rank], {"status": answer["status"], "files": request.kept})
    except Lost:
        raise  # it may run there: the pointer stays, and a second start asks for the same run
    except BaseException:
        taken = [_is_taken_back(machine, run, rank) for rank, machine in enumerate(asked[:-1])]
        if all(taken):
            mirror.forget(run)
        raise
    notes = dict.fromkeys(note for request in requests for note in request.notes)
    return Started(run, tuple(notes), places, all(request.with_tmux for request in requests))


def _ask(machine: Machine, request: _Request, run_id: str) -> dict[str, Any]:
    """Ask for a start, and again where the connection is lost: the host starts an id once."""
    pauses = iter(PATIENCE)
    while True:
        try:
            answer: dict[str, Any] = machine.agent.call(
                "begin.start", data=request.data, **request.words
            )
        except AgentError as e:  # noqa: PERF203 - each try is another connection
            if e.kind == "StartFailed":
                raise StartError(e.message, where=machine.name) from e
            raise
        except (Lost, Unreachable) as e:
            machine.looker.drop(machine.name)
            pause = next(pauses, None)
            if pause is None:
                raise Lost(
                    f"the connection was lost during the start of {run_id}: {e.message}",
                    where=machine.name,
                    hint=f"it runs there or it does not: safelaunch show {run_id}",
                ) from e
            time.sleep(pause)
        else:
            return answer


def _is_taken_back(machine: Machine, run: runs.Run, rank: int) -> bool:
    try:
        machine.agent.call("views.stop", id=run.id, node=rank, grace=2.0)
    except HostError:
        return False
    return True


class _Request(NamedTuple):
    words: dict[str, Any]
    data: tuple[bytes, ...]
    run_dir: str
    kept: dict[str, Any]
    notes: tuple[str, ...]
    with_tmux: bool


def _request(order: Order, rank: int, seen: Seen) -> _Request:
    plan, caller, run_id = order.plan, order.caller, order.run_id
    node = plan.nodes[rank]
    filled = {**bound_facts(node, seen, run_id), **order.common}
    bound = bind(plan, filled)
    resume.check(bound)
    node = bound.nodes[rank]
    why_not = tmux.judge(seen.result(2)) if seen.result(2).code >= 0 else "`tmux` is not installed"
    backend = Backend(tmux.NAME if why_not is None else setsid.NAME, None, why_not)
    on_host = caller._replace(environ=seen.about["environ"])
    spec = folder.spec(bound, run_id, on_host, backend, node)
    files = folder.files(bound, plan, node) | again.scripts(plan, filled, spec["again"], rank)
    notes = [f"{node.host}: {why_not}: started without it; everything but `attach` works"] * bool(
        why_not
    )
    notes += [
        note.replace("your environment", f"the environment of {node.host}")
        for note in facts.inherited(node, seen.about["environ"])
    ]
    secrets = {name: caller.environ[name] for name in node.secrets if name in caller.environ}
    words = {
        "run": spec,
        "node": rank,
        "files": [[name, mode, len(body)] for name, (body, mode) in files.items()],
        "env": secrets,
        "python": filled[Slot.PYTHON],
    }
    return _Request(
        words=words,
        data=tuple(body for body, _ in files.values()),
        run_dir=filled[Slot.RUN_DIR],
        kept={"run.json": spec, "plan.json": files["plan.json"][0]},
        notes=tuple(notes),
        with_tmux=why_not is None,
    )
