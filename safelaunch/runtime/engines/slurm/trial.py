"""Asks Slurm whether it would take a script, and for whom; nothing is submitted."""

from __future__ import annotations

import os
import re
import tempfile

from safelaunch.runtime import commands
from safelaunch.runtime.engines.slurm import arrays
from safelaunch.runtime.engines.slurm.submit import LIMIT, partitions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

QUICK_LIMIT = 10.0  # seconds before a start: a slurmctld that is busy decides at the submission
# sinfo(1), NODE STATE CODES: of nodes that run jobs, or would; a `*` behind it: does not respond
_USABLE = re.compile(r"(idle|allocated|mixed|completing|planned|powering_up)[~#+%!-]?")
_ACCOUNTS = ("sacctmgr", "--noheader", "--parsable2", "show", "assoc")


def ask(
    submit: Sequence[str],
    script: str,
    prefix: Sequence[str],
    environ: Mapping[str, str],
    *,
    is_quick: bool = False,
) -> dict[str, Any]:
    """Return what Slurm says to a script: `test`, the result of `sbatch --test-only`.

    `submit` are the words of the line that submits a script from stdin: a wrapper of the site may
    run it on another machine. `partitions` are what there is, `away` the nodes that start nothing
    now, where Slurm does not take it; and `accounts` lines `account|qos,qos` of this user, none
    where there is no accounting, or where it `is_quick`: then one question is enough.
    """
    with tempfile.TemporaryFile() as file:
        file.write(script.encode())
        file.seek(0)
        command = commands.RunningCommand(submit, environ, file.fileno())
        test = command.result(QUICK_LIMIT if is_quick else LIMIT)
    is_refused = test.code not in (0, commands.NOT_RUN)
    problem = arrays.problem(script, prefix, environ) if is_refused else ""
    if problem:
        test = commands.CommandResult(test.code, "", problem)
    return {
        "test": test.to_json(),
        "partitions": partitions(prefix, environ, with_limits=True) if is_refused else [],
        "away": _away(prefix, environ) if is_refused else "",
        "accounts": [] if is_quick else _accounts(prefix, environ),
    }


def _away(prefix: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the nodes that start nothing now, and for which Slurm lets a job wait."""
    query = (*prefix, "sinfo", "--noheader", "--format=%T %N")
    answer = commands.RunningCommand(query, environ).result(LIMIT)
    lines = [line.split() for line in answer.out.splitlines()] if answer.code == 0 else []
    pairs = [words for words in lines if len(words) == 2]  # noqa: PLR2004 - state and nodes
    away = [nodes for state, nodes in pairs if not _USABLE.fullmatch(state)]
    return ",".join(dict.fromkeys(away))


def _accounts(prefix: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    query = (*prefix, *_ACCOUNTS, f"user={_user(environ)}", "format=account,qos")
    accounts = commands.RunningCommand(query, environ).result(LIMIT)
    lines = [line.strip() for line in accounts.out.splitlines() if line.strip()]
    return lines if accounts.code == 0 else []


def _user(environ: Mapping[str, str]) -> str:
    import pwd  # noqa: PLC0415 - missing on Windows

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return environ.get("USER", "")
