"""Which profile is for a host's cards, and which of its facts a hosts file gets."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from support.facts.gpu_machines import (
    A100,
    GTX1080,
    H100,
    RTX5090,
    T4,
    box,
    matrix,
    other,
    recorded,
)

from safelaunch.cli.info.profiles import command
from safelaunch.config import profiles
from safelaunch.hostfacts.profile_detection import ProfileMatch, gate_facts, match_profile
from safelaunch.model import Origin

if TYPE_CHECKING:
    from pathlib import Path

SHIPPED = [profiles.load(name, Origin("test"), ".") for name in profiles.names()]

CASES = {
    "a board of a family": (box(A100, A100), "a100-sxm"),
    "by /proc": (box(RTX5090, proc=True), "rtx5090"),
    "recorded table": (recorded(query="smi-h200x8-570"), "h200"),
    "recorded list": (recorded(query="list-h100x8-vm"), "h100"),
    "recorded slices": (recorded(query="list-h100-mig-4"), "h100"),
    "recorded mix": (recorded(query="smi-pro6000-5090-mixed-trimmed"), None),
    "of no profile": (box(GTX1080), None),
    "mixed": (box(A100, H100), None),
    "none": (box(), "cpu"),
    "of another maker": (box(others={"mx-smi": {"path": "/opt/mxdriver/bin/mx-smi"}}), None),
    "of AMD": (box(others=other("amd-smi", "amdsmi-static-mi350x")), "mi355x"),
    "of AMD, virtual": (box(others=other("amd-smi", "amdsmi-mi300x-vf")), "mi300x"),
    "of Huawei": (box(others=other("npu-smi", "npu-info-a3-two-chips")), "ascend910c"),
    "of NVIDIA beside graphics of AMD": (
        box(RTX5090, others=other("amd-smi", "amdsmi-static-mi350x")),
        "rtx5090",
    ),
    "unknown": (box(outputs={"query": {"text": "", "why": "it did not end within 10 s"}}), None),
    "refused": (recorded(query="err-version-mismatch-470"), None),
    "nothing": ({}, None),
}


@pytest.mark.parametrize("what", CASES)
def test_the_profile_for_a_hosts_cards_is_found(what: str) -> None:
    facts, expected = CASES[what]
    result = match_profile(facts, SHIPPED)
    assert result.profile == expected
    assert expected is not None or result.why


def test_every_model_of_a_mixed_machine_is_named() -> None:
    assert match_profile(box(RTX5090, GTX1080, RTX5090), SHIPPED) == ProfileMatch(
        None,
        ("NVIDIA GeForce RTX 5090", "NVIDIA GeForce GTX 1080 Ti"),
        {"NVIDIA GeForce RTX 5090": "rtx5090", "NVIDIA GeForce GTX 1080 Ti": None},
        "the GPUs are of different models",
    )


def nccl(version: str, cuda: str | None = None, package: str | None = None) -> dict[str, Any]:
    return {"torch": {"version": "2.7.0+cu128", "cuda": "12.8",
                      "nccl": {"version": version, "cuda": cuda, "package": package}}}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "version"),
    [
        (nccl("2.27.3"), "2.27.3"),
        (nccl("2.26.2", "12.2", "nvidia-nccl-cu12 2.26.2"), "2.26.2"),
        (nccl("2.26.2", "12.8", "nvidia-nccl-cu12 2.26.2.post1"), "2.26.2.post1"),
        (nccl("2.26.2", "12.8"), "2.26.2.post1"),
        (nccl("2.27.3", "12.8", "nvidia-nccl-cu12 2.26.2.post1"), "2.27.3"),  # the library counts
    ],
)
def test_the_nccl_that_gates_ask_for_is_that_of_the_wheel(
    facts: dict[str, Any], version: str
) -> None:
    assert gate_facts(facts)["nccl"] == version


def test_facts_of_gates_are_those_of_the_host() -> None:
    result = gate_facts({**box(A100), **nccl("2.27.3")})
    assert result == {
        "nccl": "2.27.3", "driver": "570.86.10", "torch": "2.7.0+cu128", "cuda": "12.8",
    }  # fmt: skip


@pytest.mark.parametrize(
    "facts", [{}, {"torch": None, "gpus": None}, {"torch": {"version": "2 :x", "nccl": {}}}]
)
def test_what_is_not_known_or_no_version_is_no_fact(facts: dict[str, Any]) -> None:
    assert gate_facts(facts) == {}


# -- safelaunch profiles --detect ------------------------------------------------------------------


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a program that stands for nvidia-smi."""
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    path = tmp_path / "nvidia-smi"
    path.touch(0o755)
    return path


def answer(smi: Path, facts_text: str) -> None:
    (smi.parent / "said").write_text(facts_text)
    smi.write_text(f"#!/bin/sh\ncat {smi.parent}/said\n")


def test_the_command_says_the_line_to_write(smi: Path) -> None:
    from support.facts.gpu_machines import query  # noqa: PLC0415 - the text, not facts

    answer(smi, query(RTX5090, RTX5090))
    result = CliRunner().invoke(command, ["--detect"], standalone_mode=False)
    assert "localhost: 2 x NVIDIA GeForce RTX 5090" in result.output
    assert "in the job file, or in the host's entry: profile: rtx5090" in result.output
    assert "safelaunch run --profile rtx5090" in result.output
    assert result.return_value == 0


def test_the_command_says_what_is_known_where_no_profile_fits(smi: Path) -> None:
    from support.facts.gpu_machines import query  # noqa: PLC0415 - as above

    answer(smi, query(GTX1080, RTX5090))
    result = CliRunner().invoke(command, ["--detect"], standalone_mode=False)
    assert "the GPUs are of different models" in result.output
    assert "GTX 1080 Ti: no profile" in result.output
    assert result.return_value == 1
    result = CliRunner().invoke(command, ["--detect", "--json"], standalone_mode=False)
    (host,) = json.loads(result.output)["hosts"]
    assert (host["profile"], host["by_name"][GTX1080[0]]) == (None, None)


def test_cards_of_two_models_are_no_failure_where_each_has_a_profile(smi: Path) -> None:
    from support.facts.gpu_machines import query  # noqa: PLC0415 - as above

    answer(smi, query(T4, RTX5090))
    result = CliRunner().invoke(command, ["--detect"], standalone_mode=False)
    assert ("Tesla T4: profile t4" in result.output, result.return_value) == (True, 0)


@pytest.mark.parametrize(
    ("status", "p2p"), [("OK", "yes"), ("CNS", "no"), ("GNS", "no"), ("NS", "no"), ("U", None)]
)
def test_peer_access_is_read_from_what_nvidia_smi_says_of_the_pairs(
    status: str, p2p: str | None
) -> None:
    facts = box(RTX5090, RTX5090, outputs={"peers": matrix(2, status)})
    assert gate_facts(facts).get("p2p") == p2p


def test_peer_access_of_one_pair_is_not_cut_off() -> None:
    assert gate_facts(recorded(peers="p2p-h100x8-all-ok"))["p2p"] == "yes"


def test_one_gpu_says_nothing_about_peer_access() -> None:
    assert "p2p" not in gate_facts(box(RTX5090, outputs={"peers": matrix(1, "OK")}))
