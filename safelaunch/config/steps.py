"""`steps:` of a job file: jobs one after another, each with the keys of the file as its defaults.

A step waits for the one before it in the file, or for those of its `after:`. What an earlier step
leaves has words of its own, such as `{steps.train.checkpoint}`: they are known only once that step
has ended, and stay in the keys until the plan is made.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config.members.order import OrderCycle, in_order
from safelaunch.config.schema.files import StepsType
from safelaunch.config.schema.members.words import late_words
from safelaunch.config.set_option import apply_set_option
from safelaunch.config.supervision import MAX_NAME
from safelaunch.config.yaml_io.node import Node, mapping, overlay
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import STEP_OUTPUT
from safelaunch.runtime.preconditions.step_outputs import FORMS, is_output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SETTING = re.compile(r"steps\.([^.=]+)\.(.+)", re.DOTALL)


class Step(NamedTuple):
    """One step: its name, the steps that must have succeeded before, its keys, those it reads."""

    name: str
    after: tuple[str, ...]
    tree: Node
    inputs: tuple[str, ...] = ()  # steps whose outputs it has in its words


def has_steps(tree: Node) -> bool:
    """Whether a job file has steps."""
    steps = tree.get("steps")
    return steps is not None and not steps.is_null


def split(
    tree: Node, default_name: str, sets: Sequence[str] = ()
) -> tuple[str, list[Step], tuple[str, ...]]:
    """Return the name of a file with steps, its steps, and the settings that are for all of them.

    A setting `steps.NAME.KEY=VALUE` is for one. The steps are in an order in which each comes
    after those that it waits for. Raises ConfigError.
    """
    node = tree.get("steps")
    if node is None:
        return default_name, [], tuple(sets)
    StepsType().read(node)
    common = Node(
        "map", tree.origin, items=tuple(item for item in tree.items if item[0].text != "steps")
    )
    own_name = tree.get("name")
    name = default_name if own_name is None or own_name.is_null else own_name.text
    items = [(key.text, value) for key, value in node.items if not value.is_null]
    names = [step for step, _ in items]
    steps: list[Step] = []
    for at, (step, value) in enumerate(items):
        after = _after(value, names, at)
        keys = tuple(item for item in value.items if item[0].text != "after")
        own = overlay(common, Node("map", value.origin, items=keys))
        own = overlay(own, mapping({"name": _name(name, step, own_name, value)}, value.origin))
        for setting in sets:
            match = _SETTING.match(setting)
            if match is not None and match[1] == step:
                own = apply_set_option(own, match[2])
        steps.append(Step(step, after, own))
    for setting in sets:
        match = _SETTING.match(setting)
        if match is not None and match[1] not in names:
            raise _unknown(match[1], names, f"--set {setting}")
    ordered = _ordered(steps, node)
    by_name = {step.name: step for step in ordered}
    checked = [step._replace(inputs=_inputs(step, by_name)) for step in ordered]
    return name, checked, tuple(s for s in sets if _SETTING.match(s) is None)


def _name(name: str, step: str, own_name: Node | None, value: Node) -> Node:
    whole = f"{name}-{step}"
    if len(whole) > MAX_NAME:
        raise ConfigError(
            f"the step would be named `{whole}`: a name has at most {MAX_NAME} characters",
            where=value.origin,
            hint="a shorter `name:` of the file, or of the step",
        )
    return Node("scalar", value.origin if own_name is None else own_name.origin, text=whole)


def _after(step: Node, names: Sequence[str], at: int) -> tuple[str, ...]:
    """Return the steps that one waits for, by default the one before. Raises ConfigError."""
    node = step.get("after")
    if node is None or node.is_null:
        return (names[at - 1],) if at else ()
    items = node.items if node.kind == "list" else (node,)
    for item in items:
        if item.text not in names:
            raise _unknown(item.text, names, item.origin)
    return tuple(dict.fromkeys(item.text for item in items))


def _unknown(name: str, names: Sequence[str], where: object) -> ConfigError:
    hint = did_you_mean(name, names) or f"the steps of this file: {', '.join(names)}"
    return ConfigError(f"no step `{name}`", where=where, hint=hint)


def _ordered(steps: Sequence[Step], node: Node) -> list[Step]:
    """Return the steps, each after those that it waits for. Raises ConfigError for a cycle."""
    by_name = {step.name: step for step in steps}
    try:
        names = in_order({name: step.after for name, step in by_name.items()})
    except OrderCycle as e:
        step = node.get(e.path[0])
        key = None if step is None else step.get("after")
        raise ConfigError(
            f"the steps wait for each other: {e}",
            where=(key or step or node).origin,
            hint="`after:` names steps that come before",
        ) from None
    return [by_name[name] for name in names]


def _inputs(step: Step, steps: Mapping[str, Step]) -> tuple[str, ...]:
    """Return the steps whose outputs are words of one. Raises ConfigError for a wrong word."""
    before: dict[str, Step] = {}
    new = [steps[name] for name in step.after]
    while new:
        before |= {other.name: other for other in new}
        new = [steps[name] for other in new for name in other.after if name not in before]
    used = []
    services = step.tree.get("services")
    trees = [step.tree, *(keys for _, keys in (services.items if services is not None else ()))]
    for _, node, match in (word for tree in trees for word in late_words(tree, STEP_OUTPUT)):
        text = match[1]
        name, _, output = text.partition(".")
        if name not in steps:
            raise _unknown(name, list(steps), node.origin)
        if name not in before:
            raise ConfigError(
                f"`{{steps.{text}}}`: `{step.name}` does not wait for `{name}`",
                where=node.origin,
                hint=f"after: [{name}]",
            )
        _check_output(before[name], text, output, node)
        used.append(name)
    return tuple(dict.fromkeys(used))


def _check_output(step: Step, text: str, output: str, node: Node) -> None:
    if not is_output(output):
        hint = ", ".join(f"{{steps.{step.name}.{form}}}" for form in FORMS)
        raise ConfigError(
            f"`{{steps.{text}}}` is no output of a step", where=node.origin, hint=hint
        )
    recovery = step.tree.get("recovery")
    glob = recovery.get("checkpoint") if recovery is not None else None
    if output.startswith("checkpoint") and (glob is None or glob.is_null):
        raise ConfigError(
            f"`{{steps.{text}}}`: step `{step.name}` does not say where its checkpoints are",
            where=node.origin,
            hint=f"{step.name}: {{recovery: {{checkpoint: out/checkpoint-*}}}}",
        )
