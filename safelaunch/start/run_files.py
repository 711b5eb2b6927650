"""The request of a start to a machine's starter: run.json and the files of the run directory."""

# ruff: noqa: PLC0415 - hmac, 3 ms: only for a node that is started by hand

from __future__ import annotations

import json
import os
import posixpath
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch import __version__
from safelaunch.environ import rank_values
from safelaunch.errors import ConfigError
from safelaunch.model import Slot
from safelaunch.plan import direct, gates
from safelaunch.plan.build import bind
from safelaunch.plan.serialize import freeze, plan_json, script_of, supervision_json
from safelaunch.runtime.records import ManualNode, PeersAddress, PlanRecord, RunRecord
from safelaunch.runtime.start.placeholders import UNBOUND
from safelaunch.runtime.supervise.ending.words import SCRIPT as END_SCRIPT
from safelaunch.script import end_script
from safelaunch.start import preflight, resume
from safelaunch.start.scripts import card_requests, restart_scripts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import ManualStart, NodePlan, Plan
    from safelaunch.runtime.containers.image_probe import ContainerReport
    from safelaunch.start.caller import Caller

SECRET_VARIABLE = "SAFELAUNCH_SECRET"  # noqa: S105 - a name; the same value for each node by hand


class StartRequest(NamedTuple):
    """A request of runtime/start/starter.py, the bytes behind it, and notes for the user.

    `run` becomes run.json; `words` are the rest of the request.
    """

    run: RunRecord
    words: dict[str, Any]
    data: tuple[bytes, ...]
    plan_json: bytes
    notes: tuple[str, ...]

    def waiting(self, late: Mapping[Slot, str]) -> StartRequest:
        """Return a request whose supervisor fills in the late values once it has waited."""
        if not late:
            return self
        self.run.placeholders = {slot.value: text for slot, text in late.items()}
        return self.unbound(late)

    def unbound(self, late: Mapping[Slot, str]) -> StartRequest:
        """Return a request whose files are filled in later; plan.json is there at once too.

        `show` and `rerun` read that while the run waits. Without such values it is the same.
        """
        if not late:
            return self
        plan_json = self.plan_json
        for slot, placeholder in late.items():
            plan_json = plan_json.replace(placeholder.encode(), str(slot).encode())
        # the supervisor meets those of the other nodes before it waits
        files = [
            [name if name == PeersAddress.FILE else f"{UNBOUND}/{name}", size]
            for name, size in self.words["files"]
        ]
        files.append([PlanRecord.FILE, len(plan_json)])
        words = {**self.words, "files": files}
        self.run.placeholders = {slot.value: text for slot, text in late.items()}
        return self._replace(words=words, data=(*self.data, plan_json), plan_json=plan_json)


def start_request(
    plan: Plan,
    facts: Mapping[Slot, str],
    caller: Caller,
    environ: Mapping[str, str],
    *,
    rank: int = 0,
    versions: Mapping[str, str] = MappingProxyType({}),
    more: Mapping[str, bytes] = MappingProxyType({}),
    packages: Sequence[Mapping[str, str]] = (),
    container: ContainerReport | None = None,
) -> StartRequest:
    """Return the request for a node of an unbound plan on a machine with these facts and `environ`.

    `versions` decide open gates; `packages`, the versions on the machines of all nodes, whether
    ranks are started without the launcher. `more` are further files of the run directory. Raises
    ConfigError and StartError.
    """
    decided, whys = direct.decide(plan, packages)
    node, reasons = gates.decide(decided.nodes[rank], versions)
    decided = replace(decided, nodes=(*decided.nodes[:rank], node, *decided.nodes[rank + 1 :]))
    bound = bind(decided, facts)
    resume.check(bound)
    node = bound.nodes[rank]
    record = _run_record(bound, rank, facts, caller, environ)
    record.decisions = (*whys, *reasons)
    if plan.manual_node is not None:
        manual = plan.manual_node
        record.manual_node = ManualNode(node=manual.number, nodes=manual.nodes)
        more = {**_peers_file(plan.manual_node, caller.environ), **more}
    plan_record = PlanRecord.from_json({**plan_json(bound), "unbound": freeze(plan)})
    texts = {
        "launch.sh": script_of(bound, node),
        PlanRecord.FILE: json.dumps(plan_record.to_json(), indent=1, ensure_ascii=False),
        **{name: str(body) for name, body in node.files},
    }
    if plan.supervision.ending is not None and not rank:
        texts[END_SCRIPT] = end_script(node, f"{plan.name}: the end")
    try:
        files = {name: body.encode() for name, body in texts.items()}
    except UnicodeEncodeError:
        raise ConfigError("a word of the command is not UTF-8") from None
    files |= {**more, **restart_scripts.scripts(decided, facts, record.again, rank)}
    env = {name: caller.environ[name] for name in node.secrets if name in caller.environ}
    words = {
        "files": [[name, len(body)] for name, body in files.items()],
        "env": env,
        "python": facts[Slot.PYTHON],
    }
    if container is not None:
        from safelaunch.start.container import passed_variables, start_record

        record.container = start_record(node, container, facts)
        record.decisions = (*record.decisions, *container.notes)
        env |= passed_variables(node, caller.environ)
    same = rank_values(plan.topology) if plan.ranks_log else {}
    notes = tuple(preflight.inherited(node, environ, same))
    return StartRequest(record, words, tuple(files.values()), files[PlanRecord.FILE], notes)


def _peers_file(node: ManualStart, environ: Mapping[str, str]) -> dict[str, bytes]:
    """Return the file from which the supervisor learns where those of the other nodes are.

    The lines on the machines have no secret in common, but a variable may have one.
    """
    if node.address is None or node.port is None:
        return {}
    from safelaunch.runtime.messages import proof

    secret = environ.get(SECRET_VARIABLE, "")
    token = proof.derive(secret, "nodes by hand", str(node.port), str(node.nodes))
    peers = PeersAddress(address=node.address, port=node.port, token=token)
    return {PeersAddress.FILE: json.dumps(peers.to_json()).encode()}


def _run_record(
    plan: Plan, rank: int, facts: Mapping[Slot, str], caller: Caller, environ: Mapping[str, str]
) -> RunRecord:
    """Return run.json of a node, for the supervisor and for `show`.

    The starter adds its machine, the backend and its handle, and the files that it creates.
    """
    node, run_id = plan.nodes[rank], facts[Slot.RUN_ID]
    terminal = ("TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "SHELL", "PWD")
    record = RunRecord(
        version=1,
        id=run_id,
        name=plan.name,
        node=node.node_rank,
        hosts=[other.host for other in plan.nodes],
        world_size=plan.topology.world_size,
        rank_logs=plan.ranks_log,
        ranks=node.processes,
        single=node.single,
        cwd=str(node.cwd),
        roots=_roots(node),
        python=str(node.interpreter.path),
        gpus=preflight.visible_gpus(node, environ),
    )
    if node.ranks is not None:
        record.start, record.peer_grace = "direct", node.ranks.grace
    if node.evidence:
        record.evidence = list(node.evidence)
    record.update(RunRecord.from_json(supervision_json(plan.supervision)))
    record.again = restart_scripts.spec(plan, run_id)
    record.fingerprint, record.resumes = dict(plan.fingerprint), plan.resumes
    record.resume_checkpoint = facts.get(Slot.CHECKPOINT)
    record.log = _log_path(plan, run_id, caller, node)
    record.terminal = {n: environ[n] for n in terminal if n in environ}
    record.job_file = os.path.abspath(plan.job_file) if plan.job_file else None
    record.safelaunch = __version__
    record.after = caller.earlier_runs(rank)
    record.group, record.step = caller.group or None, caller.step or None
    record.key = caller.key or None
    record.queue, record.cards = card_requests.requests(plan, node, record.gpus, environ)
    if record.queue is not None:
        record.gpus = []  # none until it has waited
    record.service_nodes = plan.service_nodes
    if not node.processes and plan.service_nodes:
        _without_ranks(record)
    return record


def _without_ranks(record: RunRecord) -> None:
    """Leave out of run.json of a node without ranks what watches ranks."""
    record.rank_logs, record.gpus, record.cards = False, [], None
    record.success = record.hang = record.start = record.peer_grace = record.log = None
    record.progress, record.logs, record.evidence = (), (), ()


def _roots(node: NodePlan) -> list[str]:
    """Return the folders of the user's own code: the working directory and PYTHONPATH."""
    path = node.env.get("PYTHONPATH")
    entries = str(path.value).split(":") if path is not None and path.value is not None else []
    cwd = str(node.cwd)
    absolute = (posixpath.join(cwd, entry) for entry in entries if entry)
    return list(dict.fromkeys([cwd, *map(posixpath.normpath, absolute)]))


def _log_path(plan: Plan, run_id: str, caller: Caller, node: NodePlan) -> str | None:
    if plan.log is None:
        return None
    path = plan.log.replace("{name}", plan.name).replace("{time}", caller.local_time)
    path = path.replace("{id}", run_id)
    if node.node_rank > 0:  # the nodes may see one file system
        stem, ending = posixpath.splitext(path)
        path = f"{stem}.node-{node.node_rank}{ending}"
    return posixpath.join(str(node.cwd), path)
