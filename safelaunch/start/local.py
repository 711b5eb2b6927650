"""Bound Plan -> Run: the only code that starts jobs. A run is started, or nothing is left."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING

from safelaunch.errors import StartError
from safelaunch.model import NodePlan, Plan, Slot
from safelaunch.plan.build import bind
from safelaunch.runs import store
from safelaunch.runtime import PLACE, processes, run_state
from safelaunch.runtime.agent import start as agent_start
from safelaunch.start import backend as start_backend
from safelaunch.start import preflight, restart_scripts, resume, run_dir, tmux
from safelaunch.start.backend import Backend, Supervised
from safelaunch.start.caller import Caller, Started

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.start.process import Transport


def start(plan: Plan, caller: Caller, *, foreground: bool = False) -> Started:
    """Start a plan on this machine. Raises StartError or Refused, with nothing left behind."""
    node = _only_node(plan)
    preflight.check_secrets(node, caller.environ)
    preflight.check_machine(node, caller.environ)
    preflight.check_assets(node.assets)
    from safelaunch.start.process import Local  # noqa: PLC0415 - not on other systems

    own = {k: v for k, v in caller.environ.items() if not k.startswith("SAFELAUNCH_")}
    machine = Local(own)  # without our own names: they would mark the supervisor
    python = preflight.find_interpreter(node, caller.environ)
    run_id = store.new_id(plan.name, caller.utc, caller.random)
    found = preflight.ask(machine, node, python, run_id, caller.environ)
    run = store.Run(run_id, os.path.join(store.folder(caller.home), run_id))
    filled = {**found, Slot.RUN_ID: run_id, Slot.RUN_DIR: run.node_dir}
    bound = bind(plan, filled)
    resume.check(bound)
    backend = _backend(machine, run_id, foreground=foreground)
    (node,) = bound.nodes
    spec = {**run_dir.spec(bound, run_id, caller, backend, node), **run_dir.here()}
    if foreground:
        spec["foreground"] = os.getpid()
    files = run_dir.files(bound, plan, node) | run_dir.runtime_files()
    files["run.json"] = (json.dumps(spec, indent=1).encode(), 0o600)
    files |= restart_scripts.scripts(plan, filled, spec["again"])
    made: list[str] = []
    try:
        run_dir.reserve_log(spec["log"], made)
        run_dir.write(files, run, made)
        supervisor = _launch(machine, found[Slot.PYTHON], run, backend.socket)
        recorder = _record(machine, found[Slot.PYTHON], run, node)
    except BaseException:
        _undo(run, made, backend.socket)
        raise
    notes = [backend.note] if backend.note else []
    notes += preflight.inherited(node, caller.environ)
    return Started(run, backend.socket, tuple(notes), supervisor, recorder)


def _record(
    machine: Transport, python: str, run: store.Run, node: NodePlan
) -> tuple[int, int] | None:
    """Let a process beside the job write down what the run is made of."""
    program = os.path.join(run.node_dir, PLACE, "provenance.py")
    try:
        pid = machine.detach([python, program, run.node_dir, node.cwd], cwd=run.node_dir)
    except StartError:
        return None  # without a record the run is still a run
    return pid, processes.start_time(pid) or 0


def _only_node(plan: Plan) -> NodePlan:
    if not sys.platform.startswith("linux"):
        raise StartError(
            f"jobs run on Linux, not on {sys.platform}",
            hint="start it on a Linux host with `safelaunch remote --host NAME`",
        )
    if len(plan.nodes) > 1:
        raise StartError(
            f"this job has {len(plan.nodes)} nodes; `run` starts this machine only",
            hint="start the lines that --dry-run prints by hand, one on each node",
        )
    return plan.nodes[0]


def _backend(machine: Transport, run_id: str, *, foreground: bool) -> Backend:
    if foreground:
        return Backend(start_backend.NAME, None, None)
    why, socket = tmux.why_not(machine), None
    if why is None:
        try:
            socket = tmux.socket_path(run_id)
        except StartError as e:
            why = e.message
    if why is None:
        return Backend(tmux.NAME, socket, None)
    return Backend(
        start_backend.NAME, None, f"{why}: started without it; everything but `attach` works"
    )


def _undo(run: store.Run, made: list[str], socket: str | None) -> None:
    """Leave nothing of a start that failed: no process, no directory, no log."""
    before = signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a second Ctrl-C must not leave half of it
    if run.folder in made and os.path.isdir(run.node_dir):
        run_state.stop(run.node_dir, 2.0)
    run_dir.remove(made)
    run_state.drop_socket(socket)
    signal.signal(signal.SIGINT, before)


def _launch(
    machine: Transport, python: str, run: store.Run, socket: str | None
) -> tuple[int, int] | None:
    supervisor = os.path.join(run.node_dir, PLACE, "supervise", "supervisor.py")
    supervised = Supervised(
        run_id=run.id, argv=(python, "-I", "-S", "-B", supervisor, run.node_dir), cwd=run.node_dir
    )
    if socket is not None:
        tmux.start(machine, supervised, socket)
        return _await_start(run, lambda: agent_start.is_served(socket))
    pid = start_backend.start(machine, supervised)
    return _await_start(run, lambda: processes.start_time(pid) is not None)


def _await_start(run: store.Run, is_there: Callable[[], bool]) -> tuple[int, int] | None:
    """Wait until the supervisor has started the job; return its pid and start time."""
    try:
        who = agent_start.await_start(run.node_dir, is_there)
    except agent_start.StartFailed as e:
        raise StartError(
            "the supervisor did not start", hint=agent_start.supervisor_said(run.node_dir) or None
        ) from e
    return (int(who["pid"]), int(who["start"])) if who else None
