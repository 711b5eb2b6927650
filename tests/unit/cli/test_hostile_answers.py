"""Commands that ask a host which answers as an agent does, with hostile text in each answer."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.hostile_agent import HostileAgent, frame
from support.hostile_text import CONTROLS, HOSTILE, make_run, output_of

from safelaunch.remote.session import HostResolver, HostSession
from safelaunch.runs import mirror
from safelaunch.runtime.agent import server, wire
from safelaunch.runtime.records import NodePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RUN = "job-20260102-030405-abcd"
FORGED = "error: forged"
TEXT = HOSTILE.replace("\ud83d", "") + "\n" + FORGED  # no file name holds half an emoji


class Connection:
    """The connection of a session, which is closed at its end."""

    def close(self) -> None:
        """Close it."""


def spoilt(value: Any, key: str = "") -> Any:
    """Return a JSON value with hostile text behind each text but those a client decides by."""
    if isinstance(value, dict):
        return {name: spoilt(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [spoilt(item, key) for item in value]
    return value + TEXT if isinstance(value, str) and key not in ("state", "id") else value


def answers(request: dict[str, Any]) -> Iterator[bytes]:
    """Answer as an agent on this machine, with hostile text in the answer."""
    service, _, verb = request["verb"].partition(".")
    output = bytearray()
    link = wire.Link(lambda _: b"", output.extend)
    try:
        module: Any = importlib.import_module("safelaunch.runtime." + server.SERVICES[service])
        result = {"ok": spoilt(module.VERBS[verb](request, link))}
    except (OSError, ValueError, KeyError) as e:
        result = {"error": {"kind": "OSError" + TEXT, "message": f"{e}{TEXT}", "path": TEXT}}
    yield bytes(output) + frame(wire.MESSAGE, json.dumps(result).encode())


def refusals(request: dict[str, Any]) -> Iterator[bytes]:
    """Answer each request with an error."""
    del request
    error = {"kind": TEXT, "message": TEXT, "path": TEXT}
    yield frame(wire.MESSAGE, json.dumps({"error": error}).encode())


@pytest.fixture(params=[answers, refusals], ids=["answers", "refusals"])
def box(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with a run on a host that is not to be trusted."""
    home, host_home = tmp_path / "home", tmp_path / "there"
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    make_run(host_home, RUN, TEXT)
    node = host_home / "runs" / RUN / "node-0"
    place = NodePlace(host="box", node=0, run_dir=str(node))
    mirror.create(str(home), RUN, [place], "job")

    def open_session(
        self: HostResolver, name: str, before_login: Callable[[], object] = lambda: None
    ) -> HostSession:
        before_login()

        def reply(words: dict[str, Any]) -> Iterator[bytes]:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SAFELAUNCH_HOME", str(host_home))
                yield from list(request.param(words))

        connection: Any = Connection()
        return HostSession(self.host(name), connection, HostileAgent(reply))

    monkeypatch.setattr(HostResolver, "open", open_session)
    monkeypatch.setenv("SAFELAUNCH_HOME", str(home))
    (tmp_path / "job.yaml").write_text("launcher: command\ncommand: [true]\n")
    return home


COMMANDS = (
    ("ps", "--host", "box"),
    ("show", RUN),
    ("logs", RUN),
    ("stop", RUN),
    ("pull", f"{RUN}:*"),
    ("push", "job.yaml", "--host", "box"),
    ("remote", "--host", "box", "job.yaml"),
)  # those that probe a machine take seconds, and print through the same functions


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.usefixtures("box")
def test_text_of_a_host_changes_no_terminal_and_forges_no_message(words: tuple[str, ...]) -> None:
    code, out, err = output_of(list(words))
    assert code != 5, err
    assert "Traceback (most recent" not in err
    assert CONTROLS.findall(out + err) == []
    assert [line for line in (out + err).splitlines() if line.startswith(FORGED)] == []
