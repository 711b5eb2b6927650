from __future__ import annotations

from typing import Any

from support.facts.gpu_host_records import records

from safelaunch.cli.info.show_facts import lines
from safelaunch.hostfacts import assemble

MESSAGE = "Failed to initialize NVML: Driver/library version mismatch"
SMI = "/usr/bin/nvidia-smi"


def shown(width: int = 80, **gpus: Any) -> str:
    answer = {"parts": {"cards": {"value": {"nvidia_smi": SMI, **gpus}}}}
    printed = list(lines(assemble.from_probe("gpu1", answer), width))
    assert all(len(line) <= width for line in printed)
    return " ".join(" ".join(printed).split())


def output(text: str, code: int = 0, command: str = "") -> dict[str, Any]:
    return {"exit": code, "text": text, "command": command}


def test_gpus_of_one_model_are_one_line() -> None:
    rows = "".join(f"{n}, NVIDIA H100 80GB HBM3, 9.0, 81559 MiB\n" for n in range(8))
    query = output("index, name, compute_cap, memory.total [MiB]\n" + rows)
    assert "8 x NVIDIA H100 80GB HBM3, 79.6 GiB, sm_90" in shown(said={"query": query})


def test_an_error_of_nvidia_smi_is_shown_with_its_remedy() -> None:
    text = shown(said={"query": output(MESSAGE, 18)})
    assert "gpus not known" in text
    assert "reboot, or reload the nvidia modules" in text
    assert MESSAGE in text


def test_processes_on_the_gpus_are_shown() -> None:
    query = output("index, uuid\n0, GPU-a\n")
    apps = output(
        "pid, gpu_uuid, used_gpu_memory [MiB], process_name\n77, GPU-a, 2048 MiB, /x/python"
    )
    text = shown(said={"query": query, "apps": apps}, users={"77": "bob"})
    assert "GPU 0: bob, process 77 (python), 2 GiB" in text


def test_a_missing_fabric_manager_is_shown() -> None:
    manager = {"switches": 4, "running": False}
    expected = "4 NVSwitches, the fabric manager was not found running"
    assert expected in shown(fabric_manager=manager)


def test_every_recorded_output_can_be_shown() -> None:
    for record in records():
        answer = output(record["text"], command=record["command"])
        names = ("query", "xml", "topology", "peers", "links", "link_errors", "apps", "list")
        assert shown(said=dict.fromkeys(names, answer)).isprintable()


def test_facts_without_values_are_a_headline_alone() -> None:
    assert next(lines(assemble.from_probe("gpu1", {}), 80)) == "gpu1: probed now"
