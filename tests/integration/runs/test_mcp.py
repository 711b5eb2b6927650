"""`safelaunch mcp` serves a client of the SDK over stdin and stdout."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

if TYPE_CHECKING:
    from support.workspace import Place

mcp = pytest.importorskip("mcp")


def session(place: Place, calls: Any, *words: str) -> Any:
    """Return what `calls`, a function with a client, returns."""

    async def run() -> Any:
        server = mcp.StdioServerParameters(
            command=sys.executable,
            args=["-m", "safelaunch", "mcp", *words],
            env=place.env,
            cwd=str(place.project),
        )
        async with mcp.Client(server, read_timeout_seconds=90) as client:
            return await calls(client)

    return anyio.run(run)


async def call(client: Any, name: str, **arguments: Any) -> Any:
    """Return the object that a tool answers."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    return json.loads(result.content[0].text)


def test_an_assistant_starts_and_watches_a_job(place: Place) -> None:
    job = place.job("print('st' 'ep 1/1'); raise ValueError('no')")

    async def calls(client: Any) -> None:
        plan = await call(client, "dry_run", job=[job])
        assert plan["nodes"][0]["argv"][-1].endswith("job.py")
        start = {"job": [job], "no_check": True, "id": "once"}
        started = await call(client, "start", **start)
        assert (await call(client, "start", **start))["id"] == started["id"]
        ended = await call(client, "wait", run=started["id"])
        assert (ended["state"], ended["failure"]["class"]) == ("failed", "user-code-exception")
        shown = await call(client, "show", run=started["id"])
        assert shown["id"] == started["id"]
        log = await client.call_tool("logs", {"run": started["id"], "grep": "step"})
        assert log.content[0].text == "step 1/1\n"
        [finding, *_] = (await call(client, "diagnose", logs=[started["id"]]))["findings"]
        assert finding["class"] == "user-code-exception"
        assert [run["id"] for run in (await call(client, "list"))["runs"]] == [started["id"]]
        assert (await call(client, "stop", run=started["id"]))["state"] == "failed"
        wrong = await client.call_tool("show", {"run": "nothing"})
        assert wrong.is_error
        assert json.loads(wrong.content[0].text)["error"]["code"] == "run-not-found"

    session(place, calls)


def test_an_assistant_reads_what_is_new_of_the_steps_of_a_file(place: Place) -> None:
    place.write("job.py", "print('x')")
    steps = {name: {"script": "job.py"} for name in ("train", "export")}
    job = {"name": "demo", "launcher": "python", "python": sys.executable, "steps": steps}
    place.write("steps.yaml", json.dumps(job))

    async def calls(client: Any) -> None:
        started = await call(client, "start", job=["steps.yaml"], no_check=True, id="once")
        group = started["group"]
        first = await call(client, "events", run=group)
        ended = await call(client, "wait", run=group)
        assert [step["state"] for step in ended["steps"]] == ["succeeded"] * 2
        assert [step["step"] for step in ended["steps"]] == ["train", "export"]
        rest = await call(client, "events", run=group, since=first["cursor"])
        lines = [*first["events"], *rest["events"]]
        ends = [line["step_name"] for line in lines if line["event"] == "end"]
        assert ends == ["train", "export"]
        assert len({json.dumps(line) for line in lines}) == len(lines)
        last = await call(client, "events", run=group, since=rest["cursor"])
        assert last == {"version": 1, "events": [], "cursor": rest["cursor"], "left_out": 0}

    session(place, calls)
    place.note()


def test_read_only_offers_nothing_that_starts_or_stops(place: Place) -> None:
    async def calls(client: Any) -> Any:
        tools = (await client.list_tools()).tools
        refused = await client.call_tool("start", {"job": ["job.yaml"]})
        return [tool.name for tool in tools], {t.annotations.read_only_hint for t in tools}, refused

    names, hints, refused = session(place, calls, "--read-only")
    assert {"start", "stop"} & set(names) == set()
    assert (hints, refused.is_error) == ({True}, True)
