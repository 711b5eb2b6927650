"""Whether a service is ready: a path over HTTP, a TCP port, a line of its log, a command.

Each check returns "" once the service is ready, else what is missing, for people.
"""

from __future__ import annotations

import os
import re
import time

from safelaunch.runtime.plain_text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from safelaunch.runtime.records import ReadyCheck

ANSWER_LIMIT = 1.0  # seconds for an answer: the supervisor does nothing else meanwhile
BODY_LIMIT = 1 << 20  # bytes of an answer that are read
COMMAND_LIMIT = 30.0  # seconds
LOG_LIMIT = 1 << 20  # bytes of a log that are searched at once
OVERLAP = 4096  # bytes that are searched again: the line may have been half there


LOOPBACK = "127.0.0.1"
PRIVATE_LIMIT = 5.0  # seconds after which a server that listens there alone will not do otherwise


class Readiness:
    """The check of one service; it is asked again and again."""

    def __init__(
        self, check: ReadyCheck, port: int, log: str, cwd: str, address: str = LOOPBACK
    ) -> None:
        self.check = check
        self.port = port
        self.address = address  # by which the job will reach it
        self.private_since: float | None = None  # since when only this machine reaches it
        self.log = log
        self.cwd = cwd
        self.offset = 0
        self.command: subprocess.Popen[bytes] | None = None
        self.command_began = 0.0
        self.command_answer = ""  # of the last one that has ended

    def missing(self) -> str:
        """Return what is missing, "" once it is ready."""
        check = self.check
        if check.http is not None:
            return self._http(check.http)
        if check.log is not None:
            return self._line(check.log)
        if check.command:
            return self._command(check.command)
        return self._connection()

    @property
    def target(self) -> str:
        """What is asked, for people."""
        check = self.check
        if check.http is not None:
            return url(self.address, self.port) + check.http
        if check.log is not None:
            return f"a line `{printable(check.log)}` in its log"
        if check.command:
            return f"`{printable(os.path.basename(check.command[0]))}`"
        return f"port {self.port}"

    def close(self) -> None:
        """End the command, if one runs."""
        if self.command is not None and self.command.poll() is None:
            self.command.kill()
            self.command.wait()

    @property
    def is_private(self) -> bool:
        """Whether it has listened for a while at an address of this machine alone."""
        since = self.private_since
        return since is not None and time.monotonic() - since > PRIVATE_LIMIT

    def _connection(self) -> str:
        import socket  # noqa: PLC0415 - only for jobs with services

        try:
            socket.create_connection((self.address, self.port), ANSWER_LIMIT).close()
        except OSError as e:
            return f"port {self.port}: {_reason(e)}{self._note_private()}"
        return ""

    def _note_private(self) -> str:
        """Return that it listens at 127.0.0.1, where it does and is to be reached elsewhere."""
        if self.address == LOOPBACK:
            return ""
        import socket  # noqa: PLC0415 - only for jobs with services

        try:
            socket.create_connection((LOOPBACK, self.port), ANSWER_LIMIT).close()
        except OSError:
            self.private_since = None
            return ""
        self.private_since = self.private_since or time.monotonic()
        return f"; it listens on {LOOPBACK} alone"

    def _http(self, path: str) -> str:
        import http.client  # noqa: PLC0415 - 20 ms: only for jobs with services

        connection = http.client.HTTPConnection(self.address, self.port, timeout=ANSWER_LIMIT)
        place = url(self.address, self.port) + path
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read(BODY_LIMIT)
        except (OSError, http.client.HTTPException) as e:
            return f"{place}: {_reason(e)}{self._note_private()}"
        finally:
            connection.close()
        if answer.status != self.check.status:
            return f"{place} answers {answer.status}, not {self.check.status}"
        return _difference(place, body, self.check.json) if self.check.json else ""

    def _line(self, pattern: str) -> str:
        try:
            with open(self.log, "rb") as file:
                file.seek(max(0, self.offset - OVERLAP))
                data = file.read(LOG_LIMIT + OVERLAP)
                self.offset = file.tell()
        except OSError:
            data = b""
        match = re.search(pattern, data.decode("utf-8", "replace"), re.MULTILINE)
        return "" if match else f"no line of its log matches `{printable(pattern)}`"

    def _command(self, words: Sequence[str]) -> str:
        import subprocess  # noqa: PLC0415 - only for jobs with such services

        name = printable(os.path.basename(words[0]))
        if self.command is None:
            try:
                self.command = subprocess.Popen(
                    words,
                    cwd=self.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as e:
                return f"`{name}` cannot be run: {e.strerror}"
            self.command_began = time.monotonic()
        code = self.command.poll()
        if code is None:
            if time.monotonic() - self.command_began < COMMAND_LIMIT:
                return self.command_answer or f"`{name}` has not ended"
            self.close()
            code = self.command.returncode
        self.command = None
        self.command_answer = f"`{name}` ends with {code}" if code else ""
        return self.command_answer


def url(address: str, port: int) -> str:
    """Return the URL of an address and a port."""
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return printable(str(text)).lower()


def _difference(place: str, body: bytes, values: Mapping[str, str]) -> str:
    """Return what an answer in JSON lacks of the values; keys may be `a.b`."""
    import json  # noqa: PLC0415

    try:
        data = json.loads(body.decode("utf-8", "replace"))
    except ValueError:
        return f"{place} answers no JSON"
    for key, value in values.items():
        part_value = data
        for part in key.split("."):
            part_value = part_value.get(part) if isinstance(part_value, dict) else None
        text = part_value if isinstance(part_value, str) else json.dumps(part_value)
        if text != value:
            return f"{place}: {printable(key)} is {printable(text)[:80]}"
    return ""
