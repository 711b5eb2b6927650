"""What is made of the answers of a Ray's jobs interface; those here are as 2.60 gives them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.recorded_http import RecordedHttp

from safelaunch.runtime.engines.errors import SubmitError, UnclearSubmitError, UnreachableEngine
from safelaunch.runtime.engines.ray import jobs, query, submit
from safelaunch.runtime.records import EngineJob, JobEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN = "sft-20260102-030405-abcd"
REQUEST = json.dumps({"submission_id": RUN, "entrypoint": "exec python"})
TWICE = f"""Traceback (most recent call last):
  File "job_head.py", line 419, in submit_job
    resp = await job_agent_client.submit_job_internal(submit_request)
ValueError: Job with submission_id {RUN} already exists. Please use a different submission_id.
"""
WRONG = """Traceback (most recent call last):
  File "utils.py", line 100, in parse_and_validate_request
TypeError: JobSubmitRequest.__init__() got an unexpected keyword argument 'x'
"""


def entry(state: str = "RUNNING", run: str = RUN, **values: Any) -> dict[str, Any]:
    """Return an entry of the list."""
    return {
        "type": "SUBMISSION", "job_id": None, "submission_id": run, "driver_info": None,
        "status": state, "entrypoint": "exec python", "message": "Job is currently running.",
        "error_type": None, "start_time": 1795855326848, "end_time": None,
        "metadata": {"safelaunch": run, "name": "sft"}, "runtime_env": None,
        "driver_agent_http_address": "http://127.0.0.2:29803", "driver_node_id": "08c7",
        "driver_exit_code": None, **values,
    }  # fmt: skip


@pytest.fixture
def ray() -> Iterator[RecordedHttp]:
    """Yield a Ray with one job of ours, and two of others."""
    foreign = entry(run="x", metadata=None)
    driver = {"type": "DRIVER", "job_id": "01000000", "submission_id": None, "status": "RUNNING"}
    entries = json.dumps([entry(), foreign, driver])
    with RecordedHttp({"GET /api/jobs/": (200, entries)}) as server:
        yield server


def engine_job(ray: RecordedHttp, **values: Any) -> EngineJob:
    return EngineJob(name="ray", job=RUN, comment=RUN, cluster=ray.address, **values)


def submission(ray: RecordedHttp) -> tuple[str, str]:
    return submit.submit({"cluster": ray.address, "script": ["ray-job.json", REQUEST]}, {})


def test_a_job_is_posted_once_as_it_was_written(ray: RecordedHttp) -> None:
    ray.answers["POST /api/jobs/"] = (200, json.dumps({"job_id": RUN, "submission_id": RUN}))
    assert submission(ray) == (RUN, ray.address)
    assert ray.calls == ["POST /api/jobs/"]
    assert json.loads(ray.bodies[0]) == json.loads(REQUEST)


def test_a_job_that_is_there_already_is_ours_by_its_mark_alone(ray: RecordedHttp) -> None:
    ray.answers["POST /api/jobs/"] = (500, TWICE)
    ray.answers[f"GET /api/jobs/{RUN}"] = (200, json.dumps(entry()))
    assert submission(ray) == (RUN, ray.address)
    ray.answers[f"GET /api/jobs/{RUN}"] = (200, json.dumps(entry(metadata=None)))
    with pytest.raises(SubmitError, match="already exists"):
        submission(ray)


def test_what_ray_refuses_is_told_in_its_last_words(ray: RecordedHttp) -> None:
    ray.answers["POST /api/jobs/"] = (400, WRONG)
    with pytest.raises(
        SubmitError, match=r"HTTP 400: TypeError: .* unexpected keyword argument 'x'"
    ):
        submission(ray)


def test_a_proxy_that_gives_up_may_have_passed_the_job_on(ray: RecordedHttp) -> None:
    ray.answers["POST /api/jobs/"] = (504, "<html>Gateway Time-out</html>")
    with pytest.raises(UnclearSubmitError, match="HTTP 504"):
        submission(ray)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            (404, "404: Not Found"),
            "no jobs interface of a Ray; .* answers: HTTP 404: 404: Not Found",
        ),
        ((200, "<html>Grafana</html>"), "no jobs interface of a Ray; .*: HTTP 200: <html>Grafana"),
        ((200, '{"ray_version": "1.8"}'), "no jobs interface"),
        ((302, "see /login"), "HTTP 302: see /login"),
        ((401, "Unauthorized: Missing authentication token"), "wants a token; .* HTTP 401"),
    ],
    ids=["old version", "another program", "no list", "login page", "token"],
)
def test_an_address_that_is_no_ray_is_named_with_its_answer(
    ray: RecordedHttp, answer: tuple[int, str], words: str
) -> None:
    ray.answers["GET /api/jobs/"] = answer
    with pytest.raises(UnreachableEngine, match=words):
        submit.check({"cluster": ray.address}, {})


def test_an_address_that_speaks_no_http_is_named(ray: RecordedHttp) -> None:
    with pytest.raises(UnreachableEngine, match=r"SSL|EOF"):
        submit.check({"cluster": ray.address.replace("http:", "https:")}, {})
    with pytest.raises(
        UnreachableEngine, match=r"no Ray answers at http://127\.0\.0\.1:9: Connection refused"
    ):
        submit.check({"cluster": "http://127.0.0.1:9"}, {})


def test_a_token_goes_with_each_request(ray: RecordedHttp, tmp_path: Path) -> None:
    submit.check({"cluster": ray.address, "token_from": "T", "env": {"T": "a"}}, {"T": "b"})
    submit.check({"cluster": ray.address, "token_from": "T"}, {"T": "b"})
    (tmp_path / "node-0").mkdir()
    JobEnvironment(variables={"T": "c"}).write(str(tmp_path / "node-0"))
    submit.find(engine_job(ray, token_from="T"), str(tmp_path))  # noqa: S106 - a variable's name
    assert ray.tokens == ["Bearer a", "Bearer b", "Bearer c"]


def test_a_home_asks_once_in_ten_seconds_for_all_its_runs(
    ray: RecordedHttp, tmp_path: Path
) -> None:
    runs = {"a": engine_job(ray), "b": engine_job(ray, submitted_at=1000.0)}
    runs["b"].job = "other-run"
    answers = [
        query.look(runs, str(tmp_path), clock=lambda now=now: now)  # type: ignore[misc]
        for now in (1000.0, 1009.0, 1011.0)
    ]
    assert ray.calls == ["GET /api/jobs/"] * 2
    assert [(a["a"] or jobs.RayJob()).state for a in answers] == ["RUNNING"] * 3
    assert [a["b"] for a in answers] == [None] * 3


def test_an_answer_that_is_older_than_a_submission_says_nothing_of_it(
    ray: RecordedHttp, tmp_path: Path
) -> None:
    query.look({"a": engine_job(ray)}, str(tmp_path), clock=lambda: 1000.0)
    query.look({"a": engine_job(ray, submitted_at=1001.0)}, str(tmp_path), clock=lambda: 1002.0)
    assert ray.calls == ["GET /api/jobs/"] * 2


@pytest.mark.parametrize("answer", [(500, "Internal error"), (200, "{}"), (200, "not JSON")])
def test_a_ray_that_does_not_answer_ends_nothing_and_keeps_the_ends_that_it_told(
    ray: RecordedHttp, tmp_path: Path, answer: tuple[int, str]
) -> None:
    ended = entry("FAILED", "ended", end_time=5000, driver_exit_code=1)
    ray.answers["GET /api/jobs/"] = (200, json.dumps([entry(), ended]))
    runs = {"a": engine_job(ray), "b": engine_job(ray)}
    runs["b"].job = "ended"
    query.look(runs, str(tmp_path), clock=lambda: 1000.0)
    ray.answers["GET /api/jobs/"] = answer
    later = query.look(runs, str(tmp_path), clock=lambda: 1020.0)
    a, b = later["a"], later["b"]
    assert a is not None
    assert b is not None
    assert (a.state, f"{ray.address} answers: HTTP" in a.problem) == ("", True)
    assert (b.state, b.exit_code, b.ended_at) == ("FAILED", 1, 5.0)


@pytest.mark.parametrize(
    "data", [None, [], "x", {"metadata": "x"}, {"metadata": {"safelaunch": 7}}]
)
def test_an_entry_of_another_form_is_no_job_of_ours(data: Any) -> None:
    assert jobs.parse(data) is None


def test_a_job_that_waits_stays_with_ray_which_is_said(
    ray: RecordedHttp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(submit, "PENDING_PATIENCE", 0.0)
    ray.answers[f"GET /api/jobs/{RUN}"] = (200, json.dumps(entry("PENDING")))
    ray.answers[f"POST /api/jobs/{RUN}/stop"] = (200, '{"stopped": true}')
    begun_at = time.monotonic()
    is_over, note = submit.end(engine_job(ray), str(tmp_path))
    assert (is_over, "Ray keeps its job as PENDING" in note) == (True, True)
    assert time.monotonic() - begun_at < submit.END_PATIENCE


@pytest.mark.parametrize("text", ["{}", "[]", '{"data": {"summary": [{"ip": "a"}]}}', "no JSON"])
def test_machines_of_another_form_are_none(ray: RecordedHttp, text: str) -> None:
    ray.answers["GET /nodes?view=summary"] = (200, text)
    assert submit.capacity({"cluster": ray.address}, {}) == {"problem": "", "machines": {}}


def test_only_machines_that_live_have_something(ray: RecordedHttp) -> None:
    rows = [
        {"ip": ip, "raylet": {"state": state, "resourcesTotal": {"CPU": 4.0}}}
        for ip, state in (("127.0.0.2", "ALIVE"), ("127.0.0.3", "DEAD"))
    ]
    text = json.dumps({"result": True, "msg": "", "data": {"summary": rows}})
    ray.answers["GET /nodes?view=summary"] = (200, text)
    machines = submit.capacity({"cluster": ray.address}, {})["machines"]
    assert machines == {"127.0.0.2": {"CPU": 4.0}}
