from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.cards.pretended import PretendedCards

from safelaunch.runtime.cards import inventory
from safelaunch.runtime.cards.inventory import MachineCard

if TYPE_CHECKING:
    from pathlib import Path

MIG = """GPU 0: NVIDIA A100 (UUID: GPU-00000000-0000-4000-8000-000000000000)
  MIG 3g.20gb     Device  0: (UUID: MIG-aaaa)
  MIG 3g.20gb     Device  1: (UUID: MIG-bbbb)
GPU 1: NVIDIA A100 (UUID: GPU-00000001-0000-4000-8000-000000000000)
"""
NPU = """
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 92.9        36                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3390 / 65536         |
| 4     910B3               | OK            | 95.1        37                0    / 0             |
| 0                         | 0000:81:00.0  | 50          0    / 0          40000/ 65536         |
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 0                                                            |
| 4       0                 | 12345         | python3                  | 39000                   |
"""


@pytest.fixture
def cards(tmp_path: Path) -> PretendedCards:
    return PretendedCards(tmp_path, 3)


def look(cards: PretendedCards, **more: str) -> inventory.Inventory:
    return inventory.look({**os.environ, **cards.environ(), **more})


def test_cards_have_names_and_who_computes_on_them(cards: PretendedCards) -> None:
    cards.use(os.getpid(), 1)
    machine = look(cards).cards
    assert [(card.word, card.name, bool(card.use)) for card in machine] == [
        ("0", "NVIDIA H100", False),
        ("1", "NVIDIA H100", True),
        ("2", "NVIDIA H100", False),
    ]
    assert machine[1].use.startswith(f"python3 (pid {os.getpid()}, ")


@pytest.mark.parametrize(
    ("load", "used", "memory", "use"),
    [
        (0.0, 900.0, 24564.0, ""),  # a desktop
        (0.0, 3000.0, 81920.0, ""),  # less than a twentieth
        (0.0, 1500.0, 24564.0, "1500 MiB in use"),  # of a process in another container
        (9.0, 10.0, 24564.0, ""),
        (40.0, 10.0, 24564.0, "40 % load"),
        (None, None, None, ""),  # of unified memory: the tool does not say
    ],
)
def test_a_card_is_free_by_one_rule(
    load: float | None, used: float | None, memory: float | None, use: str
) -> None:
    assert MachineCard("k", "0", "cuda", "", load, used, memory).use == use


def test_slices_of_a_card_are_given_one_by_one(cards: PretendedCards) -> None:
    (cards.folder / "list").write_text(MIG)
    assert [card.word for card in look(cards).cards] == ["MIG-aaaa", "MIG-bbbb", "1", "2"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("2,0", ["2", "0"]),
        (PretendedCards.uuid(1), ["1"]),
        ("GPU-00000002", ["2"]),
        ("", []),
        ("7", []),
    ],
)
def test_the_environment_leaves_some_cards(
    cards: PretendedCards, value: str, words: list[str]
) -> None:
    machine = look(cards).cards
    visible = inventory.visible(machine, {"CUDA_VISIBLE_DEVICES": value})
    assert [card.word for card in visible] == words
    assert inventory.visible(machine, {}) == list(machine)


def test_cards_of_amd_are_named_within_what_the_runtime_below_leaves() -> None:
    machine = [MachineCard(f"rocm:{at}", str(at), "rocm") for at in range(4)]
    environ = {"ROCR_VISIBLE_DEVICES": "2,3"}
    visible = inventory.visible(machine, environ)
    assert [card.key for card in visible] == ["rocm:2", "rocm:3"]
    assert inventory.words(visible[1:], environ) == ["1"]
    assert inventory.words(visible[1:], {}) == ["3"]


def test_the_processes_of_an_npu_are_read_from_the_second_table() -> None:
    processes = inventory._npu_processes(NPU)
    assert {index: [p.pid for p in who] for index, who in processes.items()} == {"1": [12345]}


def test_a_tool_that_fails_is_no_machine_without_cards(cards: PretendedCards) -> None:
    (cards.folder / "query").write_text("Failed to initialize NVML: Driver/library mismatch\n")
    machine = look(cards)
    assert (machine.cards, machine.is_without) == ((), False)
    assert "Driver/library mismatch" in machine.error
    (cards.folder / "query").write_text("No devices were found\n")
    assert look(cards).is_without


def test_a_tool_that_hangs_is_given_up(cards: PretendedCards) -> None:
    (cards.folder / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 600\n")
    machine = inventory.look({**os.environ, **cards.environ()}, limit=0.3)
    assert "did not answer within 0.3 s" in machine.error
    assert not machine.is_without
