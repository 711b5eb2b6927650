"""`safelaunch mcp`: the commands as tools of the Model Context Protocol, over stdin and stdout."""

# ruff: noqa: PLC0415 - the SDK, 1 s: for this command only

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click

from safelaunch import __version__
from safelaunch.cli.automation import tools
from safelaunch.errors import ConfigError, SafelaunchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.lowlevel import Server

LIMIT = 3600.0  # seconds of a command: the sync of a large project
_INSTRUCTIONS = (
    "Starts and watches training jobs. Look before a start: `check`, then `dry_run`. Give `start` "
    "an `id`. Watch with `wait` and a timeout, read failures with `show` and `diagnose`."
)


@click.command("mcp")
@click.option("--read-only", is_flag=True, help="Offer no tool that starts or stops anything.")
def command(read_only: bool) -> int:
    """Serve the commands to a coding assistant as tools (MCP, over stdin and stdout).

    The tools: check, dry_run, start, list, show, logs, events, diagnose, wait, stop. Paths are
    relative to the folder in which this command runs. Needs the extra `mcp`.
    """
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise ConfigError(
            "the Python SDK of the Model Context Protocol is not installed",
            hint="pip install 'safelaunch[mcp]'",
        ) from None

    async def serve() -> None:
        server = _server(read_only=read_only)
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    anyio.run(serve)
    return 0


def _server(*, read_only: bool) -> Server[Any]:
    import anyio
    import mcp_types as types
    from mcp.server.lowlevel import Server

    available = tools.available(read_only=read_only)
    commands = _commands(available)
    listed = [_tool(tool, commands) for tool in available.values()]

    async def list_tools(_context: Any, _request: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(_context: Any, request: types.CallToolRequestParams) -> Any:
        def call() -> tuple[str, bool]:
            return _call(available, commands, request.name, request.arguments or {})

        text, is_error = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        content = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, is_error=is_error)  # type: ignore[arg-type]

    return Server(
        "safelaunch",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _commands(available: Mapping[str, tools.Tool]) -> dict[str, click.Command]:
    from safelaunch.cli.main import COMMANDS

    names = {name for tool in available.values() for name in tool.commands}
    modules = {name: f"safelaunch.cli.{COMMANDS[name][0]}" for name in names}
    return {name: __import__(path, fromlist=["command"]).command for name, path in modules.items()}


def _tool(tool: tools.Tool, commands: Mapping[str, click.Command]) -> Any:
    import mcp_types as types

    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tools.input_schema(tool, commands),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.is_read_only,
            destructive_hint=tool.is_destructive,
            idempotent_hint=tool.is_idempotent,
            open_world_hint=True,
        ),
    )


def _call(
    available: Mapping[str, tools.Tool],
    commands: Mapping[str, click.Command],
    name: str,
    arguments: Mapping[str, Any],
) -> tuple[str, bool]:
    """Run the command of a tool; return its answer, and whether that is an error."""
    try:
        if name not in available:
            raise ConfigError(f"no tool `{name}`", hint=f"those are: {', '.join(available)}")
        tool = available[name]
        words = tools.argv(tool, arguments, commands)
    except SafelaunchError as e:
        return f"error: {e}" + (f"\nhint: {e.hint}" if e.hint else ""), True
    try:
        result = subprocess.run(
            [sys.executable, "-m", "safelaunch", *words],
            stdin=subprocess.DEVNULL,  # nobody answers a question
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"error: the command had no end within {LIMIT:.0f} s", True
    out, err = (stream.decode("utf-8", "replace") for stream in (result.stdout, result.stderr))
    return tools.answer(tool, result.returncode, out, err, arguments.get("since"))
