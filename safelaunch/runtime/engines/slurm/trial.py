"""Asks Slurm whether it would take a script, and for whom; nothing is submitted."""

from __future__ import annotations

import os
import tempfile

from safelaunch.runtime import commands
from safelaunch.runtime.engines.slurm.submit import LIMIT, partitions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_ACCOUNTS = ("sacctmgr", "--noheader", "--parsable2", "show", "assoc")


def ask(
    submit: Sequence[str], script: str, prefix: Sequence[str], environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return what Slurm says to a script: `test`, the result of `sbatch --test-only`.

    `submit` are the words before the script's path. `partitions` are what there is, and `accounts`
    lines `account|qos,qos` of this user; none where there is no accounting.
    """
    with tempfile.NamedTemporaryFile(suffix=".sh") as file:
        file.write(script.encode())
        file.flush()
        test = commands.RunningCommand((*submit, file.name), environ).result(LIMIT)
    query = (*prefix, *_ACCOUNTS, f"user={_user(environ)}", "format=account,qos")
    accounts = commands.RunningCommand(query, environ).result(LIMIT)
    lines = [line.strip() for line in accounts.out.splitlines() if line.strip()]
    return {
        "test": test.to_json(),
        "partitions": partitions(prefix, environ, with_limits=True),
        "accounts": lines if accounts.code == 0 else [],
    }


def _user(environ: Mapping[str, str]) -> str:
    import pwd  # noqa: PLC0415 - missing on Windows

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return environ.get("USER", "")
