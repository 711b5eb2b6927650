"""Services beside a job on a host: planned here, started, watched and ended there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.cli_process import CLI
from support.ssh import sshd
from support.ssh.faulty_proxy import Faults
from support.workspace import DEADLINE, wait_for

if TYPE_CHECKING:
    from support.ssh.sshd import Sshd
    from support.workspace import Place

pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
USER = "alice" if sshd.ROOT else None
# answers with its version, which only the code that was sent has, and counts until the end
SERVER = """\
import http.server, itertools, os, pathlib, sys, threading, time
VERSION = 1
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"version %d" % VERSION)
    def log_message(self, *words): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("serving from", os.path.dirname(os.path.abspath(sys.argv[0])), flush=True)
print("token of", len(os.environ.get("SERVICE_TOKEN", "")), flush=True)
for number in itertools.count(1):
    print("served", number, flush=True)
    time.sleep(0.02)
    if pathlib.Path(sys.argv[4]).exists():
        print("out of cache", flush=True)
        os._exit(7)
"""
ASKS = """\
import sys, urllib.request
print("answer:", urllib.request.urlopen(sys.argv[2], timeout=9).read().decode(), flush=True)
"""
WAITS = ASKS + "import time\ntime.sleep(600)\n"


@pytest.fixture
def far(place: Place, server: Sshd) -> Place:
    """Return a place whose ~/.ssh/config knows the host as gpu1."""
    place.ssh_config(server.ssh_config("gpu1", USER))
    return place


def _job(place: Place, program: str, server: dict[str, Any] | None = None, **more: Any) -> str:
    place.write("server.py", SERVER)
    service = {
        "launcher": "python",
        "script": "server.py",
        "args": {"port": "{services.server.port}", "die": "die"},
        "ready": {"http": "/health", "limit": "60s"},
        **(server or {}),
    }
    keys = {"python": None, "args": {"url": "{services.server.url}"}, **more}
    return place.job(program, name="far", services={"server": service}, **keys)


def _start(place: Place, file: str, *words: str) -> str:
    return str(place.json("remote", "--no-check", "--host", "gpu1", *words, file)["id"])


def _service(place: Place, run: str) -> dict[str, Any]:
    (service,) = place.json("show", run)["services"]
    assert isinstance(service, dict)
    return service


def _answers(place: Place, run: str) -> None:
    """Wait until the job has had an answer of its service."""
    wait_for(lambda: "answer:" in place.cli("logs", run, code=None).stdout, "an answer")


def test_a_job_and_its_service_run_there_and_are_watched_and_stopped_from_here(
    far: Place, server: Sshd
) -> None:
    run = _start(far, _job(far, WAITS))
    _answers(far, run)
    service = _service(far, run)
    assert (service["state"], service["url"]) == ("ready", f"http://127.0.0.1:{service['port']}")
    assert service["run_dir"].startswith(str(server.home(USER)))
    shown = far.cli("show", run).stdout
    assert f"server: ready, http://127.0.0.1:{service['port']} on gpu1\n" in shown
    assert "running" in far.cli("ps").stdout
    log = far.cli("logs", run, "--service", "server").stdout
    assert log.startswith(f"serving from {server.home(USER)}/safelaunch/project")
    assert "no service `serve`" in far.cli("logs", run, "--service", "serve", code=1).stderr
    following = far.popen("logs", "-f", run, "--service", "server")
    assert following.stdout is not None
    assert following.stdout.readline().decode().startswith("serving from")
    stopped = far.json("stop", run)
    assert (stopped["state"], stopped.get("alive", 0), stopped["proof"]) == ("stopped", 0, "wait")
    followed, messages = following.communicate(timeout=DEADLINE)
    assert following.returncode == 0
    assert f"{run}/server: stopped" in messages.decode()
    assert _service(far, run)["state"] == "stopped"
    # its end was seen: what is recorded here says so without the host, its log is there alone
    whole = far.cli("logs", run, "--service", "server").stdout.encode()
    assert whole.endswith(followed)
    far.ssh_config("Host gpu1\n  HostName 127.0.0.1\n  Port 1\n")
    assert _service(far, run)["state"] == "stopped"
    assert "gpu1" in far.cli("logs", run, "--service", "server", code=4).stderr


def test_a_job_ends_with_its_service_and_says_so_to_its_client(far: Place) -> None:
    done = far.cli("remote", "--host", "gpu1", "--follow", _job(far, ASKS))
    assert "waits for service server" in done.stdout
    assert done.stdout.splitlines()[-1] == "answer: version 1"
    assert "succeeded" in done.stderr


def test_a_service_that_dies_there_is_the_cause_told_here(far: Place) -> None:
    run = _start(far, _job(far, WAITS))
    _answers(far, run)
    Path(far.json("show", run)["place"], "die").touch()
    waited = far.cli("wait", run, code=1).stderr
    assert "service server has ended (failed, exit code 7)" in " ".join(waited.split())
    (command,) = (line for line in waited.splitlines() if "--service server" in line)
    assert f"safelaunch logs {run} --service server" in command
    log = far.cli("logs", run, "--service", "server", "--tail", "1")
    assert log.stdout == "out of cache\n"
    kinds = [
        json.loads(line)["event"] for line in far.cli("events", run, "--json").stdout.splitlines()
    ]
    assert kinds[-1] == "end"


def test_a_cut_connection_changes_nothing_for_a_job_and_its_service(
    far: Place, server: Sshd
) -> None:
    with Faults(server.address, server.port) as proxy:
        config = server.ssh_config("gpu1", USER).replace(str(server.port), str(proxy.port))
        far.ssh_config(config + f"  HostKeyAlias [{server.address}]:{server.port}\n")
        run = _start(far, _job(far, WAITS))
        _answers(far, run)
        words = ["logs", "-f", run, "--service", "server", "--grep", "served"]
        follow = subprocess.Popen(
            [*CLI, *words], env=far.env, cwd=far.project, stdout=subprocess.PIPE
        )
        far.started.append(follow)
        assert follow.stdout is not None
        lines = [follow.stdout.readline()]
        proxy.reset()
        lines += [follow.stdout.readline() for _ in range(50)]
        assert far.json("show", run)["state"] == "running"
        far.cli("stop", run)
        lines += follow.stdout.read().splitlines(keepends=True)
        assert follow.wait(DEADLINE) == 0
    numbers = [int(line.split()[1]) for line in lines]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_secret_of_a_service_reaches_it_and_no_file(far: Place, server: Sshd) -> None:
    file = _job(far, ASKS, {"env_from": ["SERVICE_TOKEN"]})
    refused = far.cli("remote", "--host", "gpu1", "-f", file, code=3).stderr
    assert "variable SERVICE_TOKEN" in refused
    missing = far.cli("remote", "--host", "gpu1", "-f", "--yes", file, code=2).stderr
    assert "`env_from` names SERVICE_TOKEN, not set in your environment" in missing
    far.env["SERVICE_TOKEN"] = "sv_verysecret"  # noqa: S105 - that is the point
    run = _start(far, file, "--yes")
    assert far.json("wait", run)["state"] == "succeeded"
    assert "token of 13" in far.cli("logs", run, "--service", "server").stdout
    matches = subprocess.run(
        ["grep", "-rl", "sv_verysecret", str(server.home(USER)), str(far.home)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert matches.stdout == ""


def test_a_rerun_has_the_service_of_the_launch_or_that_of_today(far: Place) -> None:
    run = _start(far, _job(far, ASKS))
    assert far.json("wait", run)["state"] == "succeeded"
    far.write("server.py", SERVER.replace("VERSION = 1", "VERSION = 22"))
    again = far.json("rerun", run)["id"]
    assert far.json("wait", again)["state"] == "succeeded"
    assert "answer: version 1\n" in far.cli("logs", again).stdout
    today = far.json("rerun", "--current", run)["id"]
    assert far.json("wait", today)["state"] == "succeeded"
    assert "answer: version 22\n" in far.cli("logs", today).stdout


def test_a_service_runs_in_the_copy_of_the_project_that_its_run_has(far: Place) -> None:
    first = _start(far, _job(far, WAITS))
    _answers(far, first)
    file = _job(far, ASKS)
    far.write("server.py", SERVER.replace("VERSION = 1", "VERSION = 22"))
    second = _start(far, file)
    assert far.json("wait", second)["state"] == "succeeded"
    assert "answer: version 22\n" in far.cli("logs", second).stdout
    tree = far.json("show", second)["tree"]
    assert f"serving from {tree}\n" in far.cli("logs", second, "--service", "server").stdout
    far.cli("stop", first)


def test_a_dry_run_plans_the_service_for_the_host_and_asks_nobody(far: Place) -> None:
    far.ssh_config("Host gpu1\n  HostName 192.0.2.1\n")
    hosts = {"hosts": {"gpu1": {"python": "/opt/env/bin/python", "workdir": "/data/work"}}}
    far.home.mkdir()
    (far.home / "hosts.yaml").write_text(json.dumps(hosts))
    words = ("remote", "--host", "gpu1", "--dry-run", _job(far, ASKS, {"gpus": [1]}, gpus=[0]))
    shown = far.cli(*words).stdout
    assert "# service server, a free port; ready once GET /health answers 200" in shown
    (service,) = far.json(*words)["services"]
    (node,) = service["nodes"]
    assert (node["host"], node["cwd"]) == ("gpu1", "/data/work")
    assert node["argv"][:2] == ["/opt/env/bin/python", "server.py"]
    assert "<services.server.port>" in node["argv"]
    assert node["env"]["CUDA_VISIBLE_DEVICES"]["value"] == "1"


def test_services_that_one_host_cannot_have_are_refused(far: Place) -> None:
    file = _job(far, ASKS, launcher="torchrun", processes=1)
    hosts = {
        "gpu1": {"container": {"image": "pytorch:2.7"}},
        "login": {"slurm": {"partition": "a100"}},
        "gpu2": {},
    }
    far.home.mkdir()
    (far.home / "hosts.yaml").write_text(json.dumps({"hosts": hosts}))
    for words, message in (
        (("--host", "gpu1"), "`services` and the container of the host gpu1"),
        (("--host", "login"), "`services` and --on slurm"),
        (("--host", "gpu2", "--host", "gpu1"), "`services` and the container of the host gpu1"),
    ):
        assert message in far.cli("remote", *words, "--dry-run", file, code=2).stderr
