"""Checks of the health of NVIDIA GPUs, from `nvidia-smi -q -x` as a machine printed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.facts.check_cases import make_context, project_at, results_of
from support.facts.gpu_machines import RECORDS, Replies, box

from safelaunch.hostfacts.tools.recognise import read_report

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

    from safelaunch.checks.registry import CheckResult

# one GPU of the recorded machine, whose recorded values are those of a healthy one
XML = RECORDS["xml-t4-515"]["text"]
JOB = "launcher: torchrun\nscript: train.py\nprofile: t4\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def run_check(
    project: Project, check_id: str, *changes: tuple[str, str], job: str = "processes: 1\n"
) -> list[CheckResult]:
    text = XML
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    facts = box(outputs={"query": RECORDS["xml-t4-515"]["text"], "xml": text})
    context = make_context(project, JOB + job, facts=facts, answers=Replies())
    return [r for r in results_of(context, check_id) if r.status != "ok"]


UNCORRECTED = "<dram_uncorrectable>0</dram_uncorrectable>"
REMAP = "<remapped_rows>N/A</remapped_rows>"
FAULTS = {
    "uncorrected": ("gpu-errors", UNCORRECTED, UNCORRECTED.replace("0", "3"), "uncorrected"),
    "row pending": (
        "gpu-errors",
        REMAP,
        "<remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>",
        "at the next reset",
    ),
    "row failed": (
        "gpu-errors",
        REMAP,
        "<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>",
        "could not replace",
    ),
    "page pending": (
        "gpu-errors",
        "<pending_retirement>No<",
        "<pending_retirement>Yes<",
        "at the next reset",
    ),
    "ECC": ("gpu-errors", "<pending_ecc>Enabled<", "<pending_ecc>Disabled<", "after the next"),
    "heat": (
        "gpu-clocks",
        "hw_thermal_slowdown>Not Active<",
        "hw_thermal_slowdown>Active<",
        "too hot",
    ),
    "power brake": (
        "gpu-clocks",
        "hw_power_brake_slowdown>Not Active<",
        "hw_power_brake_slowdown>Active<",
        "power supply",
    ),
    "power limit": (
        "gpu-clocks",
        "<enforced_power_limit>70.00 W<",
        "<enforced_power_limit>60.00 W<",
        "may draw 60 W, and 70 W",
    ),
    "closed": ("compute-mode", "<compute_mode>Default<", "<compute_mode>Prohibited<", "Prohibited"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_gpu_that_slows_or_ends_a_job_is_named(what: str, project: Project) -> None:
    check_id, old, new, evidence = FAULTS[what]
    [result] = run_check(project, check_id, (old, new))
    assert (evidence in result.evidence, bool(result.hint)) == (True, True), result


@pytest.mark.parametrize("check_id", ["gpu-errors", "gpu-clocks", "pcie-width", "compute-mode"])
def test_a_healthy_gpu_has_no_warning(check_id: str, project: Project) -> None:
    assert run_check(project, check_id) == []  # 8 lanes of 16 too, where no other GPU has more


def test_a_gpu_for_one_process_does_not_take_two_ranks(project: Project) -> None:
    mode = ("<compute_mode>Default<", "<compute_mode>Exclusive_Process<")
    [result] = run_check(project, "compute-mode", mode, job="processes: 2\n")
    assert "takes one process each" in result.evidence


def test_an_mps_server_of_another_user_is_named(project: Project) -> None:
    text = XML[: XML.index("<processes>")] + (
        "<processes><process_info><pid>77</pid><type>C</type>"
        "<process_name>nvidia-cuda-mps-server</process_name><used_memory>27 MiB</used_memory>"
        "</process_info></processes></gpu></nvidia_smi_log>"
    )
    for user, expected in (("ann", ["warn"]), ("me", [])):
        facts = box(outputs={"query": XML, "xml": text}, users={"77": user})
        context = make_context(project, JOB + "processes: 1\n", facts=facts, answers=Replies())
        assert [r.status for r in results_of(context, "mps") if r.status != "skip"] == expected


def test_a_gpu_with_fewer_lanes_than_its_like_is_named(project: Project) -> None:
    start, end = XML.index("<gpu "), XML.index("</gpu>") + len("</gpu>")
    second = XML[start:end].replace("1E.0", "1F.0").replace("link_width>8x<", "link_width>4x<")
    text = XML[:end] + second + "</nvidia_smi_log>"
    facts = box(outputs={"query": text, "xml": text})
    context = make_context(project, JOB + "processes: 2\n", facts=facts, answers=Replies())
    [result] = results_of(context, "pcie-width")
    assert "GPU 1 has 4 PCIe lanes, and others like it 8" in result.evidence


def test_health_is_read_alike_from_text_and_from_xml() -> None:
    health = read_report(RECORDS["q-h100-mig-590"]["text"], "nvidia-smi -q").health[0]
    assert (health.uncorrected, health.ecc, health.width, health.width_max) == (
        0,
        "Enabled",
        16,
        16,
    )
    assert (health.power_limit_w, health.power_default_w, health.slowdowns) == (700, 700, ())
    old = read_report(XML, "nvidia-smi -q -x").health[0]
    assert (old.power_limit_w, old.power_default_w, old.width, old.width_max) == (70, 70, 8, 16)
