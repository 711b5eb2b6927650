from __future__ import annotations

from typing import Any

from support.facts.gpu_host_records import records

from safelaunch.cli.info.show_facts import lines
from safelaunch.hostfacts import assemble

MESSAGE = "Failed to initialize NVML: Driver/library version mismatch"
SMI = "/usr/bin/nvidia-smi"


def shown(width: int = 80, **cards: Any) -> str:
    told = {"parts": {"cards": {"value": {"nvidia_smi": SMI, **cards}}}}
    found = list(lines(assemble.from_probe("gpu1", told), width))
    assert all(len(line) <= width for line in found)
    return " ".join(" ".join(found).split())


def said(text: str, code: int = 0, command: str = "") -> dict[str, Any]:
    return {"exit": code, "text": text, "command": command}


def test_cards_of_one_kind_are_one_line() -> None:
    rows = "".join(f"{n}, NVIDIA H100 80GB HBM3, 9.0, 81559 MiB\n" for n in range(8))
    query = said("index, name, compute_cap, memory.total [MiB]\n" + rows)
    assert "8 x NVIDIA H100 80GB HBM3, 79.6 GiB, sm_90" in shown(said={"query": query})


def test_a_trouble_is_told_with_what_to_do() -> None:
    text = shown(said={"query": said(MESSAGE, 18)})
    assert "gpus not known" in text
    assert "reboot, or reload the nvidia modules" in text
    assert MESSAGE in text


def test_who_uses_the_cards_is_told() -> None:
    query = said("index, uuid\n0, GPU-a\n")
    apps = said(
        "pid, gpu_uuid, used_gpu_memory [MiB], process_name\n77, GPU-a, 2048 MiB, /x/python"
    )
    text = shown(said={"query": query, "apps": apps}, users={"77": "bob"})
    assert "card 0: bob, process 77 (python), 2 GiB" in text


def test_a_missing_fabric_manager_is_told() -> None:
    manager = {"switches": 4, "running": False}
    assert "4 NVSwitches, the fabric manager is not seen to run" in shown(fabric_manager=manager)


def test_every_recorded_output_can_be_shown() -> None:
    for record in records():
        answer = said(record["text"], command=record["command"])
        names = ("query", "xml", "topology", "peers", "links", "apps", "list")
        shown(said=dict.fromkeys(names, answer))


def test_nothing_known_is_shown_as_nothing() -> None:
    assert next(lines(assemble.from_probe("gpu1", {}), 80)) == "gpu1: asked now"
