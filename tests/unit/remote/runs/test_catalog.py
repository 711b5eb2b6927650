"""Which runs lie here and which on hosts, and what is known of those without asking."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from safelaunch.remote.runs.catalog import RunCatalog
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import mirror
from safelaunch.runs.access import LocalRun
from safelaunch.runtime.records import NodePlace, Status

if TYPE_CHECKING:
    from pathlib import Path

LOCAL_ID = "here-20260101-000000-abcd"
REMOTE_ID = "there-20260102-000000-abcd"


def connect(hosts_path: str | None, *, may_prompt: bool = True) -> NoReturn:
    raise AssertionError(hosts_path, may_prompt)


@pytest.fixture
def catalog(tmp_path: Path) -> RunCatalog:
    """Return a catalog of a run here and one on two hosts; it fails where a host is asked."""
    (tmp_path / "runs" / LOCAL_ID / "node-0").mkdir(parents=True)
    places = [
        NodePlace(host=f"gpu{node + 1}", node=node, run_dir=f"/runs/there/node-{node}")
        for node in range(2)
    ]
    mirror.create(str(tmp_path), REMOTE_ID, places, "there")
    return RunCatalog(str(tmp_path), connect)


def test_a_run_with_a_pointer_is_on_hosts(catalog: RunCatalog) -> None:
    run = catalog.find("there")
    assert isinstance(run, RemoteRun)
    assert [place.host for place in run.places()] == ["gpu1", "gpu2"]


def test_a_run_without_a_pointer_is_of_this_machine(catalog: RunCatalog) -> None:
    run = catalog.find("here")
    assert isinstance(run, LocalRun)
    assert run.places() == ()


def test_what_was_seen_last_asks_no_host(catalog: RunCatalog) -> None:
    run = catalog.find_live("there")
    assert run.last_status().state == "pending"
    assert (run.attempts(), run.ranks(), run.notes()) == ([], {}, [])


def test_a_host_that_does_not_answer_ends_no_run(catalog: RunCatalog) -> None:
    assert not catalog.find("there").is_over(Status(state="unknown"))
    assert catalog.find("here").is_over(Status(state="unknown"))
