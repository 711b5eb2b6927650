"""Starts a plan on an engine: each node's files, with placeholders for what the node fills in.

The machine of the start is a login node. It shares its file system with the nodes, so paths, the
interpreter and the packages are those of the nodes; address, ports, card and cores are not.
"""

from __future__ import annotations

import os
import posixpath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch import engines
from safelaunch.engines.submission import Reason, Submission
from safelaunch.errors import ConfigError, StartError
from safelaunch.model import Slot, bind_word
from safelaunch.plan.container import HOME_FOLDER, on_login_node
from safelaunch.plan.members.words import late_values as late_words
from safelaunch.runs import store
from safelaunch.runtime.engines import submission, table
from safelaunch.runtime.engines.errors import SubmitError
from safelaunch.runtime.records import EngineStart, NodePlace
from safelaunch.runtime.start import starter
from safelaunch.start import local, preflight
from safelaunch.start.caller import Started
from safelaunch.start.container import passed_variables
from safelaunch.start.fan_out import with_array
from safelaunch.start.local_probe import LocalProbe
from safelaunch.start.run_files import start_request
from safelaunch.start.scripts import late_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.engines import Engine
    from safelaunch.model import LateValue, Plan
    from safelaunch.runtime.engines.submission import SubmitAnswer
    from safelaunch.start.caller import Caller
    from safelaunch.start.preflight import MachineReport
    from safelaunch.start.resume import CheckpointChoice

_OF_IMAGE = (Slot.PYTHON, Slot.PREFIX)


class EngineRequest(NamedTuple):
    """A request of runtime/engines/submission.py, the bytes behind it, and notes for the user.

    `run_dirs` are the folders of the nodes, `plan_json` is the record of the plan in that of node
    0. `words` has of the request what the nodes need; `request` adds the engine's script.
    """

    words: Mapping[str, Any]
    data: bytes
    notes: tuple[str, ...]
    run_dirs: Sequence[str]
    plan_json: bytes


class CodePlace(NamedTuple):
    """Where a login node that was reached over SSH has the project, and who sent it."""

    place: str = ""  # folder of the project
    tree: str | None = None  # the run's own copy of it
    owner: str = ""  # id of the checkout that the folder belongs to
    is_shared: bool = False  # whether several nodes use the copy
    client: str | None = None  # user@machine that starts the run


class StartChoice(NamedTuple):
    """What is decided for all nodes before they are known, beside the plan itself."""

    checkpoint: CheckpointChoice
    versions: Mapping[str, str]  # decide open gates
    files: Mapping[str, bytes] = MappingProxyType({})  # of the folder of node 0


def request(
    report: MachineReport,
    caller: Caller,
    choice: StartChoice,
    *,
    run_id: str,
    environ: Mapping[str, str],
    code: CodePlace = CodePlace(),  # noqa: B008 - a tuple
) -> EngineRequest:
    """Return the request that submits an unbound plan on a login node that has reported itself.

    `environ` is that of the login node. Raises ConfigError and StartError.
    """
    plan = choice.checkpoint.plan
    engine = submitting_engine(plan)
    parts = node_requests(
        engine.start(plan), report, caller, choice, run_id=run_id, environ=environ, code=code
    )
    facts = {Slot.HOME: report.home, Slot.STORE: report.base}
    place = Submission(run_id, posixpath.dirname(parts.run_dirs[0]), report.python, facts)
    words = {**parts.words, **engine.request(plan, place)}
    secret = engine.secret(plan)
    if secret is not None:
        words["env"] = {**parts.words["env"], secret: caller.environ.get(secret, "")}
    return parts._replace(words=words)


def node_requests(
    engine: EngineStart,
    report: MachineReport,
    caller: Caller,
    choice: StartChoice,
    *,
    run_id: str,
    environ: Mapping[str, str],
    code: CodePlace = CodePlace(),  # noqa: B008 - a tuple
) -> EngineRequest:
    """Return what a request has of the nodes of a plan. Raises ConfigError and StartError."""
    plan = choice.checkpoint.plan
    first = plan.nodes[0]
    slots: list[Slot | LateValue] = list(late_values.OF_NODE)
    if first.container is not None:
        environ = {}  # of the login node the job gets nothing
        slots += _OF_IMAGE if first.interpreter.path is None else ()
    if plan.fan_out is None:  # else they are others in each part
        slots += late_words(plan)
    late = late_values.placeholders(plan, run_id, slots)
    nodes: list[dict[str, Any]] = []
    run_dirs: list[str] = []
    data: list[bytes] = []
    plans: list[bytes] = []
    env: dict[str, str] = {}
    notes = [choice.checkpoint.note]
    for rank, node in enumerate(plan.nodes):
        more = {slot: str(word) for slot, word in choice.checkpoint.facts(0, report.home).items()}
        facts = {**preflight.facts(node, report, run_id), **more, **late}
        # of the login node's own interpreter: an image has others
        own_packages = preflight.package_versions(node, report.probe)
        packages = [{} if first.container is not None else own_packages] * len(plan.nodes)
        start = start_request(
            plan,
            facts,
            caller,
            environ,
            rank=rank,
            versions=choice.versions,
            more={} if rank else choice.files,
            packages=packages,
        )
        own = EngineStart.from_json(engine.to_json())
        own.placeholders = {slot.value: text for slot, text in late.items()}
        if node.container is not None:
            own.image = str(node.container.image)
            own.home = str(bind_word(HOME_FOLDER, facts))
            env |= passed_variables(node, caller.environ)
        start.run.engine = own
        start.run.client = code.client
        start.run.place, start.run.tree = code.place or None, code.tree
        start.run.checkout, start.run.tree_shared = code.owner or None, code.is_shared
        start = start.unbound(late)
        if plan.fan_out is not None:
            start = with_array(
                start,
                plan,
                caller,
                facts,
                report,
                versions=choice.versions,
                environ=environ,
                engine=own,
            )
        nodes.append({"run": start.run.to_json(), "files": start.words["files"]})
        run_dirs.append(facts[Slot.RUN_DIR])
        data += start.data
        plans.append(start.plan_json)
        env |= start.words["env"]
        notes += [*start.notes, *start.run.decisions]
    words = {"nodes": nodes, "env": env, "python": report.python}
    shown = tuple(dict.fromkeys(note for note in notes if note))
    return EngineRequest(words, b"".join(data), shown, run_dirs, plans[0])


def submitting_engine(plan: Plan) -> Engine:
    """Return the engine that a plan is submitted to.

    Raises ConfigError where only a dry-run shows the plan, and another program submits it.
    """
    engine = engines.of_plan(plan)
    if engine is None:
        raise TypeError("the plan is for no engine")
    if engine.HOW_TO_SUBMIT:
        message = f"safelaunch does not submit to {engine.TITLE}: it prints what kubectl submits"
        raise ConfigError(message, where=f"--on {engine.TITLE.lower()}", hint=engine.HOW_TO_SUBMIT)
    return engine


def check_secret(engine: Engine, plan: Plan, environ: Mapping[str, str]) -> None:
    """Refuse a plan whose engine asks for a token that the environment lacks. Raises StartError."""
    secret = engine.secret(plan)
    if secret is not None and not environ.get(secret):
        raise StartError(f"{secret} is not set", hint="`token_from` names the variable to export")


def submit(
    plan: Plan, caller: Caller, files: Mapping[str, bytes] = MappingProxyType({})
) -> Started:
    """Submit a plan to the engine of this machine, with `files` in the folder of node 0.

    Raises StartError, with nothing left behind.
    """
    engine = submitting_engine(plan)
    check_secret(engine, plan, caller.environ)
    begin, words = engine.start(plan), engine.request(plan, Submission())

    def names(*, with_limits: bool = False) -> Sequence[str]:
        return table.load(begin.name).names(words, caller.environ, with_limits=with_limits)

    try:
        table.load(begin.name).check(words, caller.environ)
    except SubmitError as e:
        raise engine.refusal(Reason(type(e).__name__, str(e), "", names)) from e
    first = plan.nodes[0]
    preflight.check_secrets(first, caller.environ)
    preflight.check_assets(first.assets)
    run_id = caller.run_id(plan.name)
    visible = on_login_node(first)
    probe = LocalProbe(visible, caller.environ, has_backend=False)
    if visible is first:
        report, versions = local.machine_report(visible, caller, probe)
    else:
        report, versions = probe.report(caller.home), {}
    choice = StartChoice(local.newest_checkpoint(plan, caller), versions, files)
    parts = request(report, caller, choice, run_id=run_id, environ=caller.environ)
    try:
        answer = submission.submit(parts.words, parts.data, caller.environ, caller.home)
    except (SubmitError, starter.StartFailed) as e:
        raise engine.refusal(Reason(type(e).__name__, str(e), run_id, names)) from e
    except OSError as e:
        raise StartError(f"{e.strerror} ({e.filename})" if e.filename else str(e)) from e
    return started(parts, answer, store.Run(run_id, os.path.dirname(answer.run_dir)), plan)


def started(
    parts: EngineRequest, answer: SubmitAnswer, run: store.Run, plan: Plan, host: str = ""
) -> Started:
    """Return a run that was submitted; `host` is the login node, "" for this machine."""
    places = [
        NodePlace(host=host or str(node.host), node=rank, run_dir=folder)
        for rank, (node, folder) in enumerate(zip(plan.nodes, parts.run_dirs, strict=True))
    ]
    target = engines.of_plan(plan)
    return Started(
        run=run,
        places=places,
        notes=parts.notes,
        attach=(),
        job=answer.job.key,
        engine="" if target is None else f"{target.TITLE}{answer.job.place}",
    )
