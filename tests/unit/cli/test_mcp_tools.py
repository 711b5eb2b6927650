"""The tools of `safelaunch mcp` are the commands, without what a person decides on."""

from __future__ import annotations

import json
from typing import Any

import click
import jsonschema
import pytest

from safelaunch.cli.automation import tools
from safelaunch.cli.automation.mcp import _commands
from safelaunch.errors import ConfigError

TOOLS = tools.available(read_only=False)
COMMANDS = _commands(TOOLS)


def words(name: str, **arguments: Any) -> list[str]:
    return tools.argv(TOOLS[name], arguments, COMMANDS)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_the_schema_of_a_tool_is_one(tool: tools.Tool) -> None:
    schema = tools.input_schema(tool, COMMANDS)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert all(value["description"] for value in schema["properties"].values())


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_every_argument_of_a_schema_is_an_option_of_the_command(tool: tools.Tool) -> None:
    example = {"string": "x", "boolean": True, "integer": 1, "number": 1.0, "array": ["x"]}
    properties = tools.input_schema(tool, COMMANDS)["properties"]
    arguments = {
        name: value.get("enum", [example[value["type"]]])[0] for name, value in properties.items()
    }
    line = tools.argv(tool, arguments, COMMANDS)
    context = click.Context(COMMANDS[line[0]])
    COMMANDS[line[0]].parse_args(context, line[1:])  # else a usage error
    assert context.args == []


def test_read_only_leaves_what_starts_or_stops() -> None:
    assert TOOLS.keys() - tools.available(read_only=True).keys() == {"start", "stop"}


def test_what_changes_something_is_marked_so() -> None:
    marks = {tool.name: (tool.is_read_only, tool.is_destructive) for tool in TOOLS.values()}
    assert (marks["start"], marks["stop"]) == ((False, False), (False, True))


@pytest.mark.parametrize("name", ["yes", "force", "delete", "save", "follow", "dry_run"])
def test_what_a_person_decides_on_is_no_argument(name: str) -> None:
    for tool in ("start", "check"):
        with pytest.raises(ConfigError, match="has no argument"):
            words(tool, **{name: True})


def test_an_option_does_not_come_in_as_a_job() -> None:
    for job in (["job.yaml", "--yes"], ["--yes"], "--yes"):
        with pytest.raises(ConfigError, match="has the option"):
            words("start", job=job)


def test_a_start_is_on_hosts_where_they_are_named() -> None:
    assert words("start", job=["job.yaml"], id="x") == ["run", "--json", "--id=x", "job.yaml"]
    assert words("start", host=["a"], job=["job.yaml"])[:3] == ["remote", "--json", "--host=a"]


def test_the_words_of_a_launch_line_are_no_options_of_ours() -> None:
    line = ["torchrun", "t.py", "--yes"]
    assert words("dry_run", job=line)[-4:] == ["--", *line]


def test_the_outputs_of_logs_and_wait_are_bounded_by_default() -> None:
    assert words("logs") == ["logs", "--tail=200", "--max-bytes=20000"]
    assert words("wait", timeout=5) == ["wait", "--json", "--timeout=5"]


def test_a_stop_needs_a_run() -> None:
    with pytest.raises(ConfigError, match="needs `run`"):
        words("stop")


def test_a_long_answer_is_cut_with_a_note() -> None:
    text, is_error = tools.answer(TOOLS["logs"], 0, "x" * 200_000, "")
    assert (len(text) < tools.MAX_OUTPUT + 100, is_error) == (True, False)
    assert text.endswith("[safelaunch: 100000 bytes behind this left out]")


def test_the_error_of_a_command_is_an_error() -> None:
    out = json.dumps({"version": 1, "error": {"code": "config"}})
    assert tools.answer(TOOLS["show"], 2, out, "") == (out, True)


def test_a_run_that_has_failed_is_no_error() -> None:
    out = json.dumps({"version": 1, "id": "x", "state": "failed", "exit_code": 1})
    text, is_error = tools.answer(TOOLS["wait"], 1, out, "")
    assert (json.loads(text)["state"], is_error) == ("failed", False)


def test_events_that_are_too_many_end_with_the_cursor_that_goes_on() -> None:
    lines = [
        {"version": 1, "run": "r", "message": "m" * 900, "cursor": f"1.{n}"} for n in range(200)
    ]
    text, is_error = tools.answer(TOOLS["events"], 0, "\n".join(map(json.dumps, lines)), "")
    answer = json.loads(text)
    assert len(text.encode()) <= tools.MAX_OUTPUT
    assert not is_error
    assert answer["cursor"] == f"1.{len(answer['events']) - 1}"
    assert answer["left_out"] == 200 - len(answer["events"]) > 0


def test_events_say_which_host_does_not_answer_and_still_give_the_others() -> None:
    line = json.dumps({"version": 1, "run": "r", "event": "end", "cursor": "1.x"})
    error = json.dumps({"version": 1, "error": {"code": "host-unreachable"}})
    answer = json.loads(tools.answer(TOOLS["events"], 4, f"{line}\n{error}\n", "error: gpu1")[0])
    assert [line["event"] for line in answer["events"]] == ["end"]
    assert (answer["cursor"], answer["hosts"]) == ("1.x", "error: gpu1")
