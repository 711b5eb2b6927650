"""setsid: the supervisor in a session of its own, for machines without tmux; it has no terminal."""

# ruff: noqa: ARG001 - the parameters are those of the Protocol

from __future__ import annotations

from safelaunch.runtime import commands, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.runtime.commands import CommandResult

NAME = "setsid"
PROBE: Sequence[str] = ()


def unusable(probe: CommandResult) -> None:
    """Return None: every machine can start a session."""


def reserve(run_id: str) -> None:
    """Return None: nothing has to be named."""


def start(
    run_id: str, handle: str | None, argv: Sequence[str], *, cwd: str, environ: Mapping[str, str]
) -> Callable[[], bool]:
    """Start the supervisor; return whether it is alive. Raises OSError."""
    pid = commands.detach(argv, cwd=cwd, environ=environ)
    return lambda: processes.start_time(pid) is not None


def serves(handle: str | None) -> bool:
    """Return False: there is no terminal."""
    return False


def attach(handle: str | None) -> tuple[str, ...]:
    """Return no command: there is no terminal."""
    return ()


def clean_up(handle: str | None) -> None:
    """Do nothing: it leaves nothing behind."""
