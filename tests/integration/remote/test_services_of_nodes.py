"""Services of a job on several hosts: real servers in network namespaces, each with its address."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.faults.two_machines import BOTH
from support.ssh import network_namespaces
from support.workspace import wait_for

if TYPE_CHECKING:
    from support.ssh.network_namespaces import Lan
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


# -- a service on a host without ranks ----------------------------------------------------------


def _job_beside(place: Place, program: str, **more: Any) -> str:
    """Write a job for one host whose server is on gpu2."""
    return _job(place, program, {"host": "gpu2"}, nodes=1, **more)


def _start_beside(place: Place, file: str) -> str:
    return str(place.json("remote", "--no-check", "--host", "gpu1", file)["id"])


def _answer(place: Place, run: str) -> None:
    """Wait until the job has had an answer of its service."""
    wait_for(lambda: "answer of" in place.cli("logs", run, code=None).stdout, "an answer")


def _files(net: Lan, run: str) -> Path:
    """Return the folder of the node without ranks."""
    return net.hosts[1].home("root") / ".safelaunch" / "runs" / run / "node-1"


def _supervisor(net: Lan, run: str) -> int:
    status = json.loads((_files(net, run) / "status.json").read_text())
    return int(status["supervisor"]["pid"])


def _left(net: Lan, run: str) -> list[str]:
    """Return the command lines of the services of a run on gpu2, and of their supervisors.

    Without those of the run itself: its supervisor may still wait for node 0.
    """
    members = f"{_files(net, run)}/members"
    lines = net.hosts[1].processes()
    return [line for line in lines if members in line or "server.py --port" in line]


def test_a_service_on_a_host_of_its_own_is_reached_and_ends_with_the_job(
    far: Place, net: Lan
) -> None:
    run = _start_beside(far, _job_beside(far, ASKS))
    assert far.json("wait", run)["state"] == "succeeded"
    shown = far.json("show", run)
    assert [node["state"] for node in shown["nodes"]] == ["succeeded", "succeeded"]
    assert shown["proof"] == "wait"
    (service,) = shown["services"]
    assert (service["host"], service["state"]) == ("gpu2", "stopped")
    assert f"answer of http://{service['url'].split('//')[1]} b'it is up'" in (
        far.cli("logs", run).stdout
    )
    log = far.cli("logs", run, "--service", "server").stdout
    assert log.startswith(f"serving from {net.hosts[1].home('root')}/safelaunch/project")
    assert _left(net, run) == []


def test_a_service_that_dies_on_a_host_of_its_own_is_the_cause(far: Place) -> None:
    run = _start_beside(far, _job_beside(far, WAITS))
    _answer(far, run)
    assert far.cli("show", run).stdout.count(" on gpu2\n") == 1
    Path(far.json("show", run)["nodes"][1]["place"], "die").touch()
    waited = " ".join(far.cli("wait", run, code=1).stderr.split())
    assert "service server has ended (failed, exit code 7)" in waited
    shown = far.json("show", run)
    assert [node["state"] for node in shown["nodes"]] == ["stopped", "failed"]
    log = far.cli("logs", run, "--service", "server", "--tail", "1")
    assert log.stdout == "out of cache\n"


def test_a_stop_ends_the_job_and_the_service_on_its_own_host(far: Place, net: Lan) -> None:
    run = _start_beside(far, _job_beside(far, WAITS))
    _answer(far, run)
    stopped = far.json("stop", run)
    assert (stopped["state"], stopped.get("alive", 0), stopped["proof"]) == ("stopped", 0, "wait")
    assert _left(net, run) == []


def test_a_failed_job_ends_the_service_on_its_own_host(far: Place, net: Lan) -> None:
    run = _start_beside(far, _job_beside(far, ASKS + "raise ValueError('bad batch')\n"))
    waited = far.cli("wait", run, code=1).stderr
    assert "bad batch" in waited
    assert [node["state"] for node in far.json("show", run)["nodes"]] == ["failed", "stopped"]
    assert _left(net, run) == []


def test_a_restart_of_the_job_keeps_the_service_on_its_own_host(far: Place) -> None:
    program = (
        ASKS + "import os\nif os.environ['SAFELAUNCH_ATTEMPT'] == '1': raise ValueError('x')\n"
    )
    classes = {"user-code-exception": "restart"}
    recovery = {"max_restarts": 1, "backoff": "0s", "classes": classes}
    run = _start_beside(far, _job_beside(far, program, recovery=recovery))
    shown = far.json("wait", run)
    assert shown["state"] == "succeeded"
    assert len(shown["attempts"]) == 2
    assert "serving from" in far.cli("logs", run, "--service", "server").stdout


def test_a_killed_supervisor_of_the_service_leaves_nothing_on_its_host(
    far: Place, net: Lan
) -> None:
    run = _start_beside(far, _job_beside(far, WAITS))
    _answer(far, run)
    assert _left(net, run)
    net.hosts[1].run(f"kill -KILL {_supervisor(net, run)}")
    wait_for(lambda: not _left(net, run), "end of the service")
    states = [node["state"] for node in far.json("show", run)["nodes"]]
    assert states == ["running", "lost"]
    stopped = far.json("stop", run)
    assert (stopped["state"], stopped.get("alive", 0)) == ("stopped", 0)


def test_a_rerun_has_the_service_on_its_own_host_again(far: Place) -> None:
    run = _start_beside(far, _job_beside(far, ASKS))
    assert far.json("wait", run)["state"] == "succeeded"
    again = far.json("rerun", run)["id"]
    assert far.json("wait", again)["state"] == "succeeded"
    (service,) = far.json("show", again)["services"]
    assert service["host"] == "gpu2"


def test_a_restart_goes_on_from_a_checkpoint_that_the_host_of_the_service_lacks(
    far: Place,
) -> None:
    program = ASKS + "print('resumes', sys.argv[3:])\nos.makedirs('out/7', exist_ok=True)\n"
    program += "open('out/7/weights', 'w').write('x')\n"
    program += "if os.environ['SAFELAUNCH_ATTEMPT'] == '1': raise ValueError('x')\n"
    recovery = {
        "max_restarts": 1,
        "backoff": "0s",
        "classes": {"user-code-exception": "restart"},
        "checkpoint": "out/*",
        "resume_args": {"resume": "{checkpoint}"},
    }
    run = _start_beside(far, _job_beside(far, program, recovery=recovery))
    assert far.json("wait", run)["state"] == "succeeded"
    assert far.json("show", run)["attempts"][1]["resume_checkpoint"].endswith("out/7")


def test_the_host_of_a_service_is_planned_and_shown(far: Place) -> None:
    far.home.mkdir()
    hosts = {"hosts": {"gpu1": {}, "gpu2": {"python": "/opt/env/bin/python", "workdir": "/data"}}}
    (far.home / "hosts.yaml").write_text(json.dumps(hosts))
    file = _job(far, ASKS, {"host": "gpu2", "python": None}, nodes=1)
    words = ("remote", "--host", "gpu1", "--dry-run", file)
    shown = far.cli(*words).stdout
    assert "# service server on gpu2, a free port; ready once GET /health answers 200" in shown
    assert "# node 1 on gpu2: services alone, until the ranks have ended" in shown
    assert far.cli(*words).stdout == shown
    (service,) = far.json(*words)["services"]
    assert service["nodes"][0]["argv"][:2] == ["/opt/env/bin/python", "server.py"]
    assert service["nodes"][0]["cwd"] == "/data"


def test_a_check_judges_a_service_on_its_own_host(far: Place) -> None:
    file = _job(far, ASKS, {"host": "gpu2", "python": "/none/python"}, nodes=1)
    results = far.json("check", "--host", "gpu1", file, code=3)["results"]
    failed = [result for result in results if result["status"] == "fail"]
    assert {(result["host"], result.get("service")) for result in failed} == {("gpu2", "server")}


def test_a_check_sees_that_a_service_on_its_own_host_is_given_no_port(far: Place) -> None:
    file = _job(far, ASKS, {"host": "gpu2", "args": {"port": 8, "host": EVERYWHERE}}, nodes=1)
    results = far.json("check", "--host", "gpu1", file, code=3)["results"]
    (failed,) = (result for result in results if result["status"] == "fail")
    assert (failed["id"], failed["host"]) == ("service-ports", "gpu2")
    assert "is given none" in failed["evidence"]
