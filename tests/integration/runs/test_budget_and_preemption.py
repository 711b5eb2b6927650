"""A run ends with a request for a checkpoint: its budget is used up, or its machine taken away."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import wait_for

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workspace import Place

# saves a checkpoint on TERM, after longer than a plain stop would take to be impatient
TRAIN = (
    "import pathlib, signal, sys, time\n"
    "def save(*_):\n    pathlib.Path('saved').write_text('yes')\n    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, save)\nprint('runs', flush=True)\ntime.sleep(600)\n"
)


class Metadata(BaseHTTPRequestHandler):
    """A stand-in for the metadata services: a notice once `server.is_preempted`."""

    server: Any

    def do_PUT(self) -> None:
        self._answer(200, "token-1")

    def do_GET(self) -> None:
        if self.path.startswith("/aws"):
            is_allowed = self.headers["X-aws-ec2-metadata-token"] == "token-1"
        elif self.path.startswith("/gcp"):
            is_allowed = self.headers["Metadata-Flavor"] == "Google"
        elif self.path.startswith("/azure"):
            is_allowed = self.headers["Metadata"] == "true"
        else:
            is_allowed = True
        self.server.paths.add(self.path)
        kind, is_preempted = self.path[1:], self.server.is_preempted
        if not is_allowed:
            return self._answer(401, "")
        if kind == "gcp":
            return self._answer(200, "TRUE" if is_preempted else "FALSE")
        if kind == "azure":
            event = {"EventType": "Preempt" if is_preempted else "Reboot", "NotBefore": ""}
            return self._answer(200, json.dumps({"Events": [event]}))
        return self._answer(200 if is_preempted else 404, '{"action": "terminate"}')

    def _answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def metadata() -> Iterator[Any]:
    server: Any = HTTPServer(("127.0.0.1", 0), Metadata)
    server.is_preempted, server.paths = False, set()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_budget_that_is_used_up_stops_the_run_with_a_checkpoint(place: Place) -> None:
    # 3600 an hour: one a second
    run = place.start(place.job(TRAIN, max_cost={"per_hour": 3600, "total": 4}))
    shown = place.json("wait", run, code=1)
    assert (shown["state"], shown["stopped_by"]) == ("stopped", "max_cost")
    assert shown["reason"] == "its budget of 4 is used up (4s at 3600 an hour)"
    assert (place.project / "saved").exists()
    assert " of 4, at 3600 an hour" in place.cli("show", run).stdout


def test_the_price_of_the_hosts_file_makes_the_budget_of_a_job(place: Place) -> None:
    hosts = str(place.write("hosts.yaml", "hosts:\n  localhost: {max_cost: {per_hour: 1.2}}\n"))
    job = place.job(TRAIN, max_cost={"total": 40})
    shown = place.cli("run", "--dry-run", "--hosts", hosts, job).stdout
    assert "costs 1.2 an hour: stopped at 40, after " in shown
    assert "`max_cost` without `per_hour`" in place.cli("run", "--dry-run", job, code=2).stderr


@pytest.mark.parametrize("kind", ["aws", "gcp", "azure", "url"])
def test_a_notice_of_a_metadata_service_is_passed_to_the_job(
    kind: str, metadata: Any, place: Place
) -> None:
    keys = {"url": f"http://127.0.0.1:{metadata.server_port}/{kind}", "every": "0.1s"}
    keys |= {} if kind == "url" else {"preset": kind}
    run = place.start(place.job(TRAIN, preemption=keys, recovery={}))
    place.wait_for_text(run, "runs")
    wait_for(lambda: f"/{kind}" in metadata.paths, "question")
    assert place.status(run)["state"] == "running"
    metadata.is_preempted = True
    shown = place.json("wait", run, code=1)
    assert (shown["state"], shown["failure"]["class"]) == ("failed", "preempted")
    assert (place.project / "saved").exists()
    assert len(shown["attempts"]) == 1
    assert processes.marked(run) == {}


def test_a_file_is_a_notice_and_the_job_may_be_restarted_under_it(place: Place) -> None:
    notice = place.root / "preempted"
    job = place.job(
        TRAIN,
        preemption={"file": str(notice)},
        recovery={"classes": {"preempted": "restart"}, "backoff": "0s"},
    )
    run = place.start(job)
    place.wait_for_text(run, "runs")
    notice.touch()
    place.wait_for_text(run, "runs", attempt=2)
    assert place.json("show", run)["attempts"][0]["class"] == "preempted"
    place.cli("stop", run)


def test_a_term_that_no_person_has_sent_is_a_notice_where_the_job_says_so(place: Place) -> None:
    runs = [place.start(place.job(TRAIN, name, preemption="sigterm")) for name in ("one", "two")]
    for run in runs:
        place.wait_for_text(run, "runs")
    supervisor = place.status(runs[0])["supervisor"]
    processes.terminate(supervisor["pid"], supervisor["start"])
    assert place.json("wait", runs[0], code=1)["failure"]["class"] == "preempted"
    place.cli("stop", runs[1])
    assert place.json("show", runs[1])["state"] == "stopped"


def test_a_metadata_service_that_does_not_answer_is_said(place: Place) -> None:
    job = place.job(TRAIN, preemption={"url": "http://127.0.0.1:1/x", "every": "0.1s"})
    run = place.start(job)
    warning = wait_for(lambda: place.status(run).get("warning"), "warning")
    assert "a preemption would not be noticed" in warning
    place.cli("stop", run)
