"""Services beside a job: ready before it begins, owned, and named where they are the cause."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.faults.member_kills import MemberCase, run_case
from support.workspace import DEADLINE, wait_for

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from support.workspace import Place

# ready once it listens; ends with 7 where it is told to
SERVER = """\
import http.server, os, pathlib, sys, threading, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'{"model": {"ready": true}}')
    def log_message(self, *words): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("serving", flush=True)
while not pathlib.Path("die").exists():
    time.sleep(0.02)
print("out of cache", flush=True)
os._exit(7)
"""
CLIENT = """\
import sys, urllib.request
print("answer", urllib.request.urlopen(sys.argv[2], timeout=9).read().decode(), flush=True)
"""
WAITS = CLIENT + "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)\n"
URL = {"url": "{services.server.url}"}
READY = {"http": "/health", "json": {"model.ready": "true"}, "limit": "60s"}


CLASSES = {"user-code-exception": "restart"}


def _job(place: Place, program: str, server: dict[str, Any] | None = None, **more: Any) -> str:
    place.write("server.py", SERVER)
    service = {
        "launcher": "python",
        "script": "server.py",
        "args": {"port": "{services.server.port}"},
        "ready": READY,
        **(server or {}),
    }
    others = more.pop("services", {})
    return place.job(program, args=URL, services={"server": service, **others}, **more)


def _processes(run: str) -> dict[int, int]:
    return processes.marked(run)


def test_the_job_begins_once_its_service_is_ready_and_ends_it(place: Place) -> None:
    run = place.start(_job(place, CLIENT))
    shown = place.json("wait", run)
    assert (shown["state"], shown["proof"]) == ("succeeded", "wait")
    assert 'answer {"model": {"ready": true}}' in place.cli("logs", run).stdout
    assert "serving" in place.cli("logs", run, "--service", "server").stdout
    assert [(service["name"], service["state"]) for service in shown["services"]] == [
        ("server", "stopped")
    ]
    assert not _processes(run)


def test_a_service_that_dies_is_the_cause_of_the_end(place: Place) -> None:
    run = place.start(_job(place, WAITS))
    wait_for(lambda: "answer" in place.cli("logs", run).stdout, "an answer of the service")
    place.write("die", "")
    failure = place.json("wait", run, code=1)["failure"]
    assert failure["service"] == "server"
    assert "service server has ended (failed, exit code 7)" in failure["what"]
    assert f"safelaunch logs {run} --service server" in place.cli("show", run).stdout
    assert not _processes(run)


def test_the_job_starts_again_with_its_service(place: Place) -> None:
    program = CLIENT + (
        "import os, pathlib, time\n"
        "if os.environ['SAFELAUNCH_ATTEMPT'] == '1':\n"
        "    pathlib.Path('die').touch(); time.sleep(99)\n"
    )
    server = {"setup": ["rm -f die"]}
    run = place.start(
        _job(
            place,
            program,
            server,
            recovery={"max_restarts": 1, "backoff": "0s", "classes": CLASSES},
        )
    )
    shown = place.json("wait", run)
    assert shown["state"] == "succeeded"
    assert "service server has ended" in shown["attempts"][0]["what"]
    assert len(shown["attempts"]) == 2


def test_a_service_that_is_never_ready_fails_the_run(place: Place) -> None:
    run = place.start(_job(place, CLIENT, {"ready": {"command": ["false"], "limit": "2s"}}))
    failure = place.json("wait", run, code=1)["failure"]
    assert failure["class"] == "service-failed"
    assert failure["what"] == "service server was not ready after 2.0 s: `false` ends with 1"
    assert not _processes(run)


def test_a_port_of_another_program_fails_the_run(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        run = place.start(_job(place, CLIENT, {"port": port}))
        failure = place.json("wait", run, code=1)["failure"]
    assert failure["class"] == "port-in-use"
    assert failure["what"] == f"port {port} is taken, of service server"


def test_a_service_that_ends_before_it_is_ready_says_why(place: Place) -> None:
    run = place.start(
        _job(
            place,
            CLIENT,
            {"script": None, "command": ["false"], "args": None, "launcher": "command"},
        )
    )
    failure = place.json("wait", run, code=1)["failure"]
    assert "service server ended before it was ready (failed, exit code 1)" in failure["what"]


def test_a_service_waits_for_the_one_that_it_needs(place: Place) -> None:
    # it is ready only where the first one already answers
    script = (
        "exec 3<>/dev/tcp/127.0.0.1/{services.server.port} || exit\nexec 3>&-\n"
        "echo at {services.server.url}; exec sleep 99"
    )
    words = ["bash", "-c", script]
    second = {
        "launcher": "command",
        "command": words,
        "after": "server",
        "ready": {"log": "^at http://127"},
    }
    run = place.start(_job(place, CLIENT, services={"second": second}))
    assert place.json("wait", run)["state"] == "succeeded"
    assert "waits for service server" in place.cli("logs", run).stdout
    assert not _processes(run)


def test_the_log_of_a_service_is_waited_for_until_that_starts(place: Place) -> None:
    server = {"ready": {"command": ["test", "-e", "go"]}}
    second = {
        "launcher": "command",
        "command": ["bash", "-c", "echo up; exec sleep 99"],
        "after": "server",
        "ready": {"log": "^up"},
    }
    run = place.start(_job(place, CLIENT, server, services={"second": second}))
    wait_for(lambda: place.json("show", run).get("waits_for"), "a run that waits")
    early = place.cli("logs", run, "--service", "second", code=1).stderr
    assert f"service second of {run} has not started yet" in early
    assert f"hint: {run} waits for service server" in early
    following = place.popen("logs", "-f", run, "--service", "second")
    assert following.stderr is not None
    line = following.stderr.readline().decode()
    assert line.startswith("service second has not started yet: ")
    place.write("go", "")
    assert following.communicate(timeout=DEADLINE)[0].startswith(b"up\n")


def test_a_service_that_a_stopped_run_has_never_started_is_named_so(place: Place) -> None:
    second = {"launcher": "command", "command": ["sleep", "99"], "after": "server"}
    server = {"ready": {"command": ["false"]}}
    run = place.start(_job(place, CLIENT, server, services={"second": second}))
    wait_for(lambda: place.json("show", run).get("waits_for"), "a run that waits")
    place.cli("stop", run)
    assert "second: never started" in place.cli("show", run).stdout
    late = place.cli("logs", "-f", run, "--service", "second", code=1).stderr
    assert late == f"error: service second of {run} was never started\n"


def test_a_service_has_the_umask_of_the_caller(place: Place) -> None:
    run = place.start(_job(place, CLIENT, {"setup": ["touch by-service"]}, setup=["touch by-job"]))
    assert place.json("wait", run)["state"] == "succeeded"
    modes = [(place.project / name).stat().st_mode for name in ("by-service", "by-job")]
    assert modes[0] == modes[1]


def test_a_rerun_gives_its_service_a_port_of_its_own(place: Place) -> None:
    first = place.start(_job(place, CLIENT))
    assert place.json("wait", first)["state"] == "succeeded"
    again = place.json("rerun", first)["id"]
    assert place.json("wait", again)["state"] == "succeeded"


def test_stop_ends_job_and_service(place: Place) -> None:
    run = place.start(_job(place, WAITS))
    wait_for(lambda: "answer" in place.cli("logs", run).stdout, "an answer of the service")
    place.cli("stop", run)
    assert place.json("show", run)["state"] == "stopped"
    assert not _processes(run)


def test_a_service_ends_with_the_supervisor_of_its_run(place: Place) -> None:
    run = place.start(_job(place, WAITS))
    wait_for(lambda: "answer" in place.cli("logs", run).stdout, "an answer of the service")
    server = Path(place.node(run), "members", "server", "node-0")
    supervisor = place.status(run)["supervisor"]
    os.kill(supervisor["pid"], signal.SIGKILL)
    wait_for(lambda: '"state": "stopped"' in (server / "status.json").read_text(), "its end")
    place.cli("stop", run)
    assert not _processes(run)


@pytest.mark.parametrize(
    "case",
    [
        MemberCase("service", "KILL", "service's supervisor"),
        MemberCase("part", "TERM", "part's supervisor"),
        MemberCase("step", "KILL", "supervisor"),
    ],
    ids=str,
)
def test_a_run_whose_member_is_hit_ends_as_stated(case: MemberCase, tmp_path: Path) -> None:
    assert run_case(case, str(tmp_path)) is None
