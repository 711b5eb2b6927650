"""This machine, through plumbum. Imported only when something is really run."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from plumbum.commands.processes import CommandNotFound, ProcessTimedOut
from plumbum.machines.local import local

from safelaunch.errors import StartError
from safelaunch.transports import Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Local:
    """This machine."""

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a command to its end, without stdin. Raises StartError if it cannot be started."""
        try:
            command = local[argv[0]][list(argv[1:])]
            code, out, err = command.run(
                retcode=None,
                stdin=subprocess.DEVNULL,
                env=None if env is None else dict(env),
                timeout=timeout,
            )
        except CommandNotFound:
            raise StartError(f"`{argv[0]}` is not installed") from None
        except ProcessTimedOut:
            raise StartError(f"`{argv[0]}` did not answer within {timeout:g} s") from None
        except OSError as e:
            raise StartError(f"`{argv[0]}` cannot be run: {e.strerror}") from e
        return Result(code, out or "", err or "")

    def detach(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str) -> int:
        """Start a command in its own session, without terminal and pipes; return its pid."""
        process = local[argv[0]][list(argv[1:])].popen(
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        return int(process.pid or 0)

    def put(self, path: str, data: bytes, mode: int) -> None:
        """Write a new file with exactly these bytes and this mode."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)

    def get(self, path: str) -> bytes:
        """Read a file."""
        with open(path, "rb") as file:
            return file.read()
