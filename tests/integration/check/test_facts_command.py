"""`safelaunch facts`, here and on real hosts."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd
from support.ssh.sshd import Sshd
from support.workspace import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workspace import Place

needs_sshd = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
USER = "alice" if sshd.ROOT else None
# safelaunch, which has less patience
HURRIED = """
from safelaunch.cli.main import main
from safelaunch.runtime.facts import probe
probe.EACH = 2.0
main()
"""
NOWHERE = "Host nowhere\n  HostName 127.0.0.1\n  Port 9\n"


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Sshd, Sshd]]:
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(Sshd()), stack.enter_context(Sshd())


@pytest.fixture
def far(place: Place, servers: tuple[Sshd, Sshd]) -> Place:
    """Return a place that knows two hosts, gpu1 and gpu2, and one that does not answer."""
    config = [servers[0].ssh_config("gpu1", USER), servers[1].ssh_config("gpu2", USER), NOWHERE]
    place.ssh_config("\n".join(config))
    place.env |= {"NO_COLOR": "1", "COLUMNS": "80"}
    return place


def hosts(place: Place, *words: str, code: int = 0) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = place.json("facts", *words, code=code)["hosts"]
    return results


# -- here ------------------------------------------------------------------------------------------


def test_this_machine_is_shown_within_80_columns(place: Place) -> None:
    place.env |= {"COLUMNS": "80"}
    lines = place.cli("facts").stdout.splitlines()
    assert lines[0].endswith("probed now")
    assert {line.split()[0] for line in lines if line[0] != " "} >= {"system", "memory", "gpus"}
    assert max(map(len, lines)) <= 80


def test_facts_of_this_machine_are_kept_for_this_user_alone(place: Place) -> None:
    (results,) = hosts(place)
    assert (results["host"], results["age"]) == ("localhost", 0.0)
    saved = place.home / "facts" / "localhost.json"
    assert json.loads(saved.read_text())["facts"]["cores"] == results["cores"]
    assert stat.S_IMODE(saved.parent.stat().st_mode) == 0o700


def test_an_interpreter_that_does_not_exist_is_reported_and_no_failure(place: Place) -> None:
    (results,) = hosts(place, "--python", "/no/such/python")
    assert results["skipped"]["python"] == "/no/such/python: No such file or directory"
    assert results["memory"]["total"]


def test_a_machine_whose_nvidia_smi_hangs_is_reported_in_time(place: Place) -> None:
    place.hanging("nvidia-smi")
    done = subprocess.run(
        [sys.executable, "-c", HURRIED, "facts"],
        env=place.env, cwd=place.project, capture_output=True, text=True, check=True,
        timeout=DEADLINE,
    )  # fmt: skip
    assert "nvidia-smi, query: it did not end within 2 s" in " ".join(done.stdout.split())


# -- hosts -----------------------------------------------------------------------------------------


@needs_sshd
def test_a_host_tells_its_facts(far: Place) -> None:
    (results,) = hosts(far, "--host", "gpu1")
    assert (results["host"], results["system"]["kernel"]) == ("gpu1", os.uname().release)
    assert abs(results["clock_offset"]) < DEADLINE  # it grows with the time that an answer takes
    assert results["python"]["version"]
    if USER:
        assert results["system"]["user"] == USER


@needs_sshd
def test_what_was_asked_lately_is_shown_with_its_age_and_refreshed_on_demand(far: Place) -> None:
    hosts(far, "--host", "gpu1")
    saved = far.home / "facts" / "gpu1.json"
    answers = json.loads(saved.read_text())
    saved.write_text(json.dumps({**answers, "at": time.time() - 300}))
    assert "probed 5 min ago; --refresh probes again" in far.cli("facts", "--host", "gpu1").stdout
    assert hosts(far, "--host", "gpu1")[0]["age"] == pytest.approx(300, abs=60)
    assert hosts(far, "--host", "gpu1", "--refresh")[0]["age"] == 0.0


@needs_sshd
@pytest.mark.parametrize("spoilt", ["", "{", "[]", '{"at": 1}', '{"asked": 1, "at": "x"}'])
def test_a_spoilt_file_of_facts_is_asked_anew(far: Place, spoilt: str) -> None:
    folder = far.home / "facts"
    folder.mkdir(parents=True)
    (folder / "gpu1.json").write_text(spoilt)
    assert hosts(far, "--host", "gpu1")[0]["age"] == 0.0


@needs_sshd
def test_facts_that_are_old_are_asked_anew(far: Place) -> None:
    hosts(far, "--host", "gpu1")
    saved = far.home / "facts" / "gpu1.json"
    answers = json.loads(saved.read_text())
    saved.write_text(json.dumps({**answers, "at": time.time() - 3600}))
    assert hosts(far, "--host", "gpu1")[0]["age"] == 0.0


@needs_sshd
def test_a_host_that_does_not_answer_hides_no_other(far: Place) -> None:
    first, second = hosts(far, "--host", "gpu1", "--host", "nowhere", code=4)
    assert first["system"]["kernel"]
    assert second["host"] == "nowhere"
    assert "nowhere" in second["error"]
    done = far.cli("facts", "--host", "nowhere", "--host", "gpu1", code=4)
    assert done.stdout.startswith("gpu1")
    assert "warning: nowhere: " in done.stderr


# answers once it has been asked on both hosts, each of which has a home of its own
TOGETHER = """#!/bin/sh
mkdir -p "$(dirname "$0")/asked/$(echo "$HOME" | tr / _)"
until [ "$(ls "$(dirname "$0")/asked" | wc -l)" -ge 2 ]; do sleep 0.05; done
exec python3 "$@"
"""


@pytest.fixture
def together() -> Iterator[str]:
    """Yield an interpreter for whoever uses it, which is of no use to one host alone."""
    folder = Path(tempfile.mkdtemp(prefix="safelaunch-together-"))
    folder.chmod(0o755)
    path = folder / "python"
    path.write_text(TOGETHER)
    path.chmod(0o755)
    (folder / "asked").mkdir()
    (folder / "asked").chmod(0o777)
    yield str(path)
    shutil.rmtree(folder)


@needs_sshd
def test_several_hosts_are_asked_beside_each_other(far: Place, together: str) -> None:
    results = hosts(far, "--host", "gpu1", "--host", "gpu2", "--python", together)
    assert [bool(host["python"]["version"]) for host in results] == [True, True]


@needs_sshd
def test_this_machine_is_no_host(far: Place) -> None:
    done = far.cli("facts", "--host", "localhost", code=2)
    assert "leave `--host` out" in done.stderr
