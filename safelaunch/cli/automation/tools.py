"""The tools of `safelaunch mcp`: commands, whose schemas are made from the commands' options.

Knows nothing of the protocol.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from safelaunch.cli.plan_options import LineCommand
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.runs.brief import brief, brief_group
from safelaunch.runs.store import ShownRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_OUTPUT = 100_000  # bytes of an answer
_ROOM = 4_000  # bytes of it for what is beside events
_HOST = 4  # exit code: a host does not answer
# options that a person decides on, that print for people, or that run without an end
_HIDDEN = frozenset(
    {
        *("as_json", "follow", "foreground", "help", "yes", "force", "delete", "save", "raw"),
        *("brief", "dry_run", "explain", "script", "project_root", "resume", "interval"),
    }
)
_JOB_FILES = (".yaml", ".yml", ".json")
_MAX_RUNS = 50  # of a list


class Tool(NamedTuple):
    """A command as a tool: what it is for, and what it changes."""

    name: str
    commands: tuple[str, ...]  # the command; with `host` the second
    description: str
    words: tuple[str, ...] = ("--json",)  # that it always gets
    defaults: Mapping[str, Any] = {}
    required: tuple[str, ...] = ()
    is_read_only: bool = True
    is_destructive: bool = False
    is_idempotent: bool = True


TOOLS = (
    Tool(
        "check",
        ("check",),
        "Find what would prevent a job from running, on this machine or on hosts, before a start.",
    ),
    Tool(
        "dry_run",
        ("run", "remote"),
        "Show the command, environment and script that a start would run. Starts nothing.",
        ("--dry-run", "--json"),
    ),
    Tool(
        "start",
        ("run", "remote"),
        "Start a job on this machine, or with `host` sync the project there and start it on hosts. "
        "It runs until it ends or is stopped, and may cost money. Give an `id` of your own: the "
        "same id starts once.",
        is_read_only=False,
        is_idempotent=False,
    ),
    Tool("list", ("ps",), "List runs, here and on hosts, with how they are."),
    Tool("show", ("show",), "Show how a run is: state, progress, failure.", ("--json", "--brief")),
    Tool(
        "logs",
        ("logs",),
        "Read the end of a run's log, or the lines with a text.",
        (),
        {"tail": 200, "max_bytes": 20_000},
    ),
    Tool(
        "events",
        ("events",),
        "Read what has happened to a run, to the steps of a file or to all runs that have not "
        "ended. Give the `cursor` of the answer as `since` the next time: only what is new comes.",
    ),
    Tool("diagnose", ("diagnose",), "Find the root cause of a failure, in a run or in log files."),
    Tool(
        "wait",
        ("wait",),
        "Wait until a run has ended, for at most `timeout` seconds, and show how it is then.",
        defaults={"timeout": 60.0},
    ),
    Tool(
        "stop",
        ("stop",),
        "Stop a run and all its processes. What it has not saved is lost.",
        required=("run",),
        is_read_only=False,
        is_destructive=True,
    ),
)


def available(*, read_only: bool) -> dict[str, Tool]:
    """Return the tools by name; `read_only`: those that start and stop nothing."""
    return {tool.name: tool for tool in TOOLS if tool.is_read_only or not read_only}


def input_schema(tool: Tool, commands: Mapping[str, click.Command]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments, from the options of its commands."""
    properties = {}
    for name, (parameter, command) in _parameters(tool, commands).items():
        only = f" Only with `host`: {command}." if command != tool.commands[0] else ""
        schema = _schema(parameter)
        schema["description"] = _help(parameter) + (only if name != "host" else "")
        if name in tool.defaults:
            schema["default"] = tool.defaults[name]
        properties[name] = schema
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(tool.required)} if tool.required else schema


def argv(
    tool: Tool, arguments: Mapping[str, Any], commands: Mapping[str, click.Command]
) -> list[str]:
    """Return the words of the command line. Raises ConfigError."""
    parameters = _parameters(tool, commands)
    values = {**tool.defaults, **{k: v for k, v in arguments.items() if v is not None}}
    missing = [name for name in tool.required if not values.get(name)]
    if missing:
        raise ConfigError(f"`{tool.name}` needs `{missing[0]}`")
    command = tool.commands[-1] if values.get("host") else tool.commands[0]
    words, positional = [command, *tool.words], []
    for name, value in values.items():
        if name not in parameters:
            raise ConfigError(
                f"`{tool.name}` has no argument `{name}`", hint=did_you_mean(name, parameters)
            )
        parameter, _ = parameters[name]
        if isinstance(parameter, click.Option):
            words += _option(parameter, name, value)
        else:
            positional += _positional(commands[command], name, value)
    return [*words, *positional]


def _parameters(
    tool: Tool, commands: Mapping[str, click.Command]
) -> dict[str, tuple[click.Parameter, str]]:
    """Return {name: (parameter, command)} of what a tool takes."""
    return {
        name: (parameter, command)
        for command in reversed(tool.commands)
        for name, parameter in _visible(commands[command])
    }


def _visible(command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
    for parameter in command.params:
        if parameter.name and parameter.name not in _HIDDEN:
            long = max(parameter.opts, key=len) if isinstance(parameter, click.Option) else ""
            yield long.lstrip("-").replace("-", "_") or parameter.name, parameter


def _schema(parameter: click.Parameter) -> dict[str, Any]:
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return {"type": "boolean"}
    schema: dict[str, Any] = {"type": "string"}
    kind = parameter.type
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        schema = {"type": "integer" if isinstance(kind, click.IntRange) else "number"}
        schema |= {} if kind.min is None else {"minimum": kind.min}
        schema |= {} if kind.max is None else {"maximum": kind.max}
    elif isinstance(kind, click.Choice):
        schema["enum"] = [str(choice) for choice in kind.choices]
    elif kind in (click.INT, click.FLOAT):
        schema = {"type": "integer" if kind is click.INT else "number"}
    if parameter.multiple or parameter.nargs == -1:
        return {"type": "array", "items": schema}
    return schema


def _help(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        metavar = f" ({parameter.metavar})" if parameter.metavar else ""
        return f"{parameter.help or ''}{metavar}"
    if parameter.name == "run":
        return "A run's id, a prefix of it, or a job's name (its newest run). Default: the newest."
    if parameter.name == "job":
        return (
            "A job file; or the words of a launch line, such as torchrun, train.py and its options."
        )
    return str(parameter.metavar or parameter.name)


def _option(option: click.Option, name: str, value: Any) -> list[str]:
    long = max(option.opts, key=len)
    if option.is_flag:
        if not isinstance(value, bool):
            raise ConfigError(f"`{name}` is true or false")
        return [long] if value else []
    values = value if option.multiple and isinstance(value, list) else [value]
    return [f"{long}={_word(name, part)}" for part in values]


def _positional(command: click.Command, name: str, value: Any) -> list[str]:
    """Return arguments: job files, names or paths, or behind `--` the words of a launch line."""
    words = [_word(name, part) for part in (value if isinstance(value, list) else [value])]
    is_line = isinstance(command, LineCommand) and not "".join(words[:1]).endswith(_JOB_FILES)
    if is_line and words and not words[0].startswith("-"):
        return ["--", *words]
    options = [word for word in words if word.startswith("-")]
    if options:  # one that is hidden would come in so
        raise ConfigError(
            f"`{name}` has the option `{options[0]}`", hint="options are arguments of their own"
        )
    return words


def _word(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ConfigError(f"`{name}` has a value that is neither a text nor a number")
    text = str(value)
    if "\0" in text:
        raise ConfigError(f"`{name}` has a NUL character")
    return text


def answer(tool: Tool, code: int, out: str, err: str, since: str | None = None) -> tuple[str, bool]:
    """Return the text of an answer, which is bounded, and whether it is an error.

    `since` is the cursor of a question for events.
    """
    data: Any = None
    if tool.name == "events" and code in (0, _HOST):
        return json.dumps(_events(out, err, since), ensure_ascii=False), False
    with contextlib.suppress(ValueError):
        data = json.loads(out)
    if not isinstance(data, dict):
        is_error = code not in (0, 1) or (code != 0 and not out)
        return _bounded(out + (err if tool.name == "logs" or is_error else "")), is_error
    if tool.name == "list":
        data = _short_list(data)
    elif tool.name in ("wait", "stop") and "error" not in data:
        data = brief_group(data) if "steps" in data else brief(ShownRun.from_json(data))
    return _bounded(json.dumps(data, ensure_ascii=False)), "error" in data


def _short_list(data: dict[str, Any]) -> dict[str, Any]:
    if "error" in data:
        return data
    runs: Sequence[Any] = data.get("runs") or []
    shown = [brief(ShownRun.from_json(run)) for run in runs[-_MAX_RUNS:]]
    return {**data, "runs": shown, "left_out": max(0, len(runs) - _MAX_RUNS)}


def _events(out: str, err: str, cursor: str | None) -> dict[str, Any]:
    """Return the lines of events as one object, with the cursor behind the last of them.

    Without a line it is the `cursor` of the question. Of more than an answer may have, the first
    come; the cursor goes on with the others.
    """
    events: list[dict[str, Any]] = []
    size, lines = 0, [json.loads(line) for line in out.splitlines()]
    lines = [line for line in lines if "error" not in line]
    for line in lines:
        own = {key: value for key, value in line.items() if key not in ("version", "cursor")}
        size += len(json.dumps(own, ensure_ascii=False).encode()) + 2
        if size + len(line["cursor"]) > MAX_OUTPUT - _ROOM:
            break
        events.append(own)
        cursor = line["cursor"]
    answer = {
        "version": 1,
        "events": events,
        "cursor": cursor,
        "left_out": len(lines) - len(events),
    }
    return {**answer, "hosts": err[-_ROOM // 2 :]} if err else answer


def _bounded(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_OUTPUT:
        return data.decode("utf-8")
    cut = data[:MAX_OUTPUT].decode("utf-8", "ignore")
    return f"{cut}\n[safelaunch: {len(data) - MAX_OUTPUT} bytes behind this left out]"
