"""Starts a plan on hosts: one look at each, then everything that it needs in one request.

All or nothing: where one node cannot be started, nothing is left of the others.
"""

from __future__ import annotations

import json
import posixpath
import secrets
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.environ import NOTEWORTHY
from safelaunch.errors import HostError, StartError
from safelaunch.model import Slot
from safelaunch.plan.build import bind
from safelaunch.remote.agent_client import AgentError, Lost
from safelaunch.remote.host_pool import PATIENCE
from safelaunch.remote.parallel import together
from safelaunch.runs import mirror
from safelaunch.runtime.supervise import peers
from safelaunch.ssh.errors import Unreachable
from safelaunch.start import backend as start_backend
from safelaunch.start import preflight, restart_scripts, resume, tmux
from safelaunch.start import run_dir as start_run_dir
from safelaunch.start.backend import Backend
from safelaunch.start.process import Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import NodePlan, Plan
    from safelaunch.remote.agent_client import Pending
    from safelaunch.remote.machine import Machine
    from safelaunch.remote.routes import Routes
    from safelaunch.runs import store
    from safelaunch.start.caller import Caller


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

    run: store.Run
    notes: tuple[str, ...]
    places: tuple[mirror.Place, ...]
    with_tmux: bool
    routes: Routes | None = None


def look(machine: Machine, python: str | None, run_id: str) -> Pending:
    """Ask a host once for what a start there needs; the answer makes a Seen. Raises HostError."""
    question = preflight.question(run_id)
    return machine.agent.ask_first(
        "start.look",
        commands=[[python, *question], [python, "-V"], ["tmux", "-V"]],
        environ=[*NOTEWORTHY, "CUDA_VISIBLE_DEVICES", "PATH"],
    )


def bound_facts(node: NodePlan, seen: Seen, run_id: str) -> dict[Slot, str]:
    """Return what a node's slots are filled with. Raises StartError."""
    python = node.interpreter.path or str(seen.about["python"])
    if not seen.about["bash"]:
        raise StartError(f"{node.host} has no `bash`; it runs the job's launch.sh")
    found = preflight.understand(
        node, python, seen.result(0), seen.result(1).last_line, seen.about["environ"]
    )
    run_dir = posixpath.join(str(seen.about["base"]), "runs", run_id, f"node-{node.node_rank}")
    return {**found, Slot.RUN_ID: run_id, Slot.RUN_DIR: run_dir}


class Order(NamedTuple):
    """What is to be started, by whom and as what."""

    plan: Plan  # not bound
    caller: Caller
    run_id: str
    hosts_file: str | None = None
    routes: Routes | None = None  # between several nodes
    follow: bool = False  # the log will be read at once

    def common(self, rank: int) -> dict[Slot, str]:
        """Return what all nodes share, and which way each goes to the others."""
        if self.routes is None:
            return {}
        return {
            Slot.MASTER_ADDR: self.routes.addresses[0],
            Slot.PORT: str(self.routes.port),
            Slot.INTERFACE: self.routes.interfaces[rank],
        }


def start(order: Order, machines: Sequence[Machine], seen: Sequence[Seen]) -> Started:
    """Start each node of a plan on its machine. Raises StartError, HostError."""
    plan, run_id = order.plan, order.run_id
    for node in plan.nodes:
        preflight.check_secrets(node, order.caller.environ)
    token = secrets.token_hex(16)
    requests = [_request(order, rank, about, token) for rank, about in enumerate(seen)]
    places = tuple(
        mirror.Place(machine.name, rank, request.run_dir)
        for rank, (machine, request) in enumerate(zip(machines, requests, strict=True))
    )
    run = mirror.make(order.caller.home, run_id, places, plan.name, order.hosts_file)

    asking = _Asking(run, threading.Event(), follow=order.follow)

    def one(rank: int) -> HostError | StartError | None:
        try:
            answer = _ask(machines[rank], requests[rank], places[rank], asking)
        except (HostError, StartError) as e:
            return e
        mirror.keep(run, places[rank], {"status": answer["status"], "files": requests[rank].kept})
        return None

    def call_off() -> None:
        asking.is_off.set()
        for machine in machines:
            machine.looker.drop(machine.name)

    failed: list[HostError | StartError | None]
    try:
        failed = list(together(one, range(len(machines)), end=call_off))
    except BaseException:
        # Ctrl-C: what the connections were busy with is not known
        asking.is_off.set()
        if not _take_back(machines, run, afresh=True):
            machines[0].looker.say(f"it may run there: safelaunch stop {run_id}")
        raise
    lost = next((error for error in failed if isinstance(error, Lost)), None)
    error = next((error for error in failed if error and error is not lost), lost)
    if error is not None:
        if len(machines) > 1 or lost is None:
            others = [m for m, e in zip(machines, failed, strict=True) if not isinstance(e, Lost)]
            # a log that was asked for would never let go of its connection
            _take_back(others, run, afresh=order.follow, keep=lost is not None)
        raise error  # one that was lost may run there: the pointer to it stays
    notes = dict.fromkeys(note for request in requests for note in request.notes)
    with_tmux = all(request.with_tmux for request in requests)
    return Started(run, tuple(notes), places, with_tmux, order.routes)


def _take_back(
    machines: Sequence[Machine], run: store.Run, *, afresh: bool = False, keep: bool = False
) -> bool:
    """Leave nothing of a start; where that cannot be made sure of, the pointer to it stays.

    Returns whether nothing is left.
    """

    def one(machine: Machine) -> bool:
        if afresh:
            machine.looker.drop(machine.name)
        try:
            for rank in ranks[machine.name]:
                machine.agent.call("start.undo", id=run.id, node=rank)
        except HostError:
            return False
        return True

    at = mirror.pointer(run)
    ranks: dict[str, list[int]] = {}
    for place in at.places if at is not None else ():
        ranks.setdefault(place.host, []).append(place.node)
    is_gone = all(together(one, machines)) and not keep
    if is_gone:
        mirror.forget(run)
    return is_gone


class _Asking(NamedTuple):
    """What all nodes are asked to start."""

    run: store.Run
    is_off: threading.Event  # Ctrl-C: a start is not asked for again, it would begin anew
    follow: bool


def _ask(
    machine: Machine, request: _Request, place: mirror.Place, asking: _Asking
) -> dict[str, Any]:
    """Ask for a start, and again where the connection is lost: the host starts an id once."""
    run, pauses, is_lost = asking.run, iter(PATIENCE), False
    while True:
        try:
            asked = machine.agent.ask("start.start", data=request.data, **request.words)
            if asking.follow:
                machine.looker.session(machine.name).prefetch_log(run.id, place.node)
            answer: dict[str, Any] = asked.result()
        except AgentError as e:  # noqa: PERF203 - each try is another connection
            if e.kind == "StartFailed":
                raise StartError(e.message, where=machine.name) from e
            raise
        except HostError as e:
            if not (is_lost or isinstance(e, (Lost, Unreachable))):
                raise
            machine.looker.drop(machine.name)
            # it may run there also where the host now says anything else, such as not to let us in
            pause = next(pauses, None) if isinstance(e, (Lost, Unreachable)) else None
            if pause is None or asking.is_off.is_set():
                raise Lost(
                    f"the connection was lost during the start of {run.id}: {e.message}",
                    where=machine.name,
                    hint=f"it runs there or it does not: safelaunch show {run.id}",
                ) from e
            if not is_lost:
                machine.looker.say(f"[{machine.name} does not answer; trying again]")
            is_lost = True
            asking.is_off.wait(pause)
        else:
            return answer


class _Request(NamedTuple):
    words: dict[str, Any]
    data: tuple[bytes, ...]
    run_dir: str
    kept: dict[str, Any]
    notes: tuple[str, ...]
    with_tmux: bool


def _request(order: Order, rank: int, seen: Seen, token: str) -> _Request:
    plan, caller, run_id = order.plan, order.caller, order.run_id
    node = plan.nodes[rank]
    filled = {**bound_facts(node, seen, run_id), **order.common(rank)}
    bound = bind(plan, filled)
    resume.check(bound)
    node = bound.nodes[rank]
    why_not = tmux.judge(seen.result(2)) if seen.result(2).code >= 0 else "`tmux` is not installed"
    backend = Backend(tmux.NAME if why_not is None else start_backend.NAME, None, why_not)
    on_host = caller._replace(environ=seen.about["environ"])
    spec = start_run_dir.spec(bound, run_id, on_host, backend, node)
    files = start_run_dir.files(bound, plan, node) | restart_scripts.scripts(
        plan, filled, spec["again"], rank
    )
    if order.routes is not None:
        met = {"address": order.routes.addresses[0], "port": order.routes.meeting, "token": token}
        files[peers.FILE] = (json.dumps(met).encode(), 0o600)
    notes = [f"{node.host}: {why_not}: started without it; everything but `attach` works"] * bool(
        why_not
    )
    notes += [
        note.replace("your environment", f"the environment of {node.host}")
        for note in preflight.inherited(node, seen.about["environ"])
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
