"""Services of a job on several hosts: real servers in network namespaces, each with its address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.faults.two_machines import BOTH
from support.ssh import network_namespaces
from support.workspace import wait_for

if TYPE_CHECKING:
    from support.workspace import Place

WHY_NOT = network_namespaces.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
EVERYWHERE = "0.0.0.0"  # noqa: S104 - the other node asks it
# answers until the file that it is given is there
SERVER = """\
import http.server, os, pathlib, sys, threading, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"it is up")
    def log_message(self, *words): pass
server = http.server.HTTPServer((sys.argv[4], int(sys.argv[2])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("serving from", os.path.dirname(os.path.abspath(sys.argv[0])), flush=True)
while not pathlib.Path("die").exists():
    time.sleep(0.02)
os.remove("die")
print("out of cache", flush=True)
os._exit(7)
"""
ASKS = """\
import os, sys, urllib.request
print("answer of", sys.argv[2], urllib.request.urlopen(sys.argv[2], timeout=9).read(), flush=True)
"""
WAITS = ASKS + "import time\ntime.sleep(600)\n"
ASKS_TWICE = (
    ASKS + "import time, pathlib\nwhile not pathlib.Path('again').exists(): time.sleep(.02)\n"
)


def _job(place: Place, program: str, server: dict[str, Any] | None = None, **more: Any) -> str:
    place.write("server.py", SERVER)
    service = {
        "launcher": "python",
        "script": "server.py",
        "args": {"port": "{services.server.port}", "host": EVERYWHERE},
        "ready": {"http": "/health", "limit": "60s"},
        **(server or {}),
    }
    keys = {"args": {"url": "{services.server.url}"}, "profile": "cpu", **more}
    keys = {"nodes": 2, "services": {"server": service}, **keys}
    return place.ranks(program, 1, "joint", **keys)


def _start(place: Place, file: str, *words: str) -> str:
    return str(place.json("remote", "--no-check", *BOTH, *words, file)["id"])


def _service(place: Place, run: str) -> dict[str, Any]:
    (service,) = place.json("show", run)["services"]
    assert isinstance(service, dict)
    return service


def _answers(place: Place, run: str) -> None:
    """Wait until the ranks of both nodes have had an answer of the service."""
    wait_for(
        lambda: place.cli("logs", run, code=None).stdout.count("answer of") == 2,
        "answers on both nodes",
    )


def test_ranks_of_both_nodes_reach_the_service_on_node_0(far: Place) -> None:
    run = _start(far, _job(far, ASKS))
    assert far.json("wait", run)["state"] == "succeeded"
    service = _service(far, run)
    assert service["host"] == "gpu1"
    url = f"http://10.{service['url'].split('.', 1)[1]}"
    lines = far.cli("logs", run).stdout.splitlines()
    answers = [line for line in lines if f"answer of {url} b'it is up'" in line]
    assert [line.split(" | ")[0] for line in sorted(answers)] == ["gpu1", "gpu2"]


def test_a_service_that_dies_ends_both_nodes_and_is_the_cause(far: Place) -> None:
    run = _start(far, _job(far, WAITS))
    _answers(far, run)
    Path(far.json("show", run)["place"], "die").touch()
    waited = " ".join(far.cli("wait", run, code=1).stderr.split())
    assert "service server has ended (failed, exit code 7)" in waited
    shown = far.json("show", run)
    assert [node["state"] for node in shown["nodes"]] == ["failed", "stopped"]
    assert (shown.get("alive", 0), shown["proof"]) == (0, "wait")


def test_a_service_that_fails_before_it_is_ready_starts_no_rank_on_any_node(far: Place) -> None:
    run = _start(far, _job(far, WAITS, {"args": {"port": "none", "host": EVERYWHERE}}))
    waited = " ".join(far.cli("wait", run, code=1).stderr.split())
    assert "service server ended before it was ready" in waited
    shown = far.json("show", run)
    assert [node["state"] for node in shown["nodes"]] == ["failed", "stopped"]
    assert "gpu1 (node 0) failed: service server ended" in shown["nodes"][1]["reason"]
    assert "attempts" not in shown or shown["attempts"] == []


def test_a_server_that_listens_on_its_machine_alone_is_told_so(far: Place) -> None:
    own = {"args": {"port": "{services.server.port}", "host": "127.0.0.1"}}
    run = _start(far, _job(far, WAITS, own))
    waited = " ".join(far.cli("wait", run, code=1).stderr.split())
    assert "service server listens on 127.0.0.1 alone, and the other nodes need it at 10." in waited
    assert "let it listen on 0.0.0.0" in waited


def test_a_stop_while_the_service_is_waited_for_ends_both_nodes(far: Place) -> None:
    run = _start(far, _job(far, WAITS, {"ready": {"log": "never", "limit": "10m"}}))
    wait_for(lambda: _service(far, run).get("state") == "starting", "service")
    stopped = far.json("stop", run)
    assert (stopped["state"], stopped.get("alive", 0), stopped["proof"]) == ("stopped", 0, "wait")
    assert _service(far, run)["state"] == "stopped"


def test_a_restart_waits_on_both_nodes_for_the_service_that_died(far: Place) -> None:
    classes = {"user-code-exception": "restart"}
    recovery = {"max_restarts": 1, "backoff": "0s", "classes": classes}
    run = _start(far, _job(far, ASKS_TWICE, recovery=recovery))
    _answers(far, run)
    Path(far.json("show", run)["place"], "die").touch()
    attempt = ("logs", run, "--attempt", "2")
    wait_for(
        lambda: far.cli(*attempt, code=None).stdout.count("answer of") == 2,
        "answers of the second attempt",
    )
    for node in far.json("show", run)["nodes"]:
        assert node["state"] == "running"
    far.cli("stop", run)
