"""Which platform a card's name stands for: here, in the vendors' lists, and in the profiles.

tests/data/hardware/names.yaml says where its names come from.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import DATA

from safelaunch.config import profiles
from safelaunch.hostfacts import gpu_models
from safelaunch.model import Origin

FILE = DATA / "hardware" / "names.yaml"
PLATFORMS: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
PROFILES = {
    name: profiles.load(name, Origin("test"), str(FILE.parent)) for name in profiles.names()
}
# those that others extend say less: a name belongs to one of the others
BASES = {
    Path(file).stem
    for name, entry in PROFILES.items()
    for file in entry.files
    if Path(file).stem != name
}
# the profile of a platform where it has another name
OF_MODEL = {"h100-sxm": "h100", "gb10": "dgx-spark"}
# another board of the same platform has a profile of its own
OF_NAME = {
    "NVIDIA A800 40GB Active": "a800-pcie",
    "NVIDIA A800 80GB PCIe": "a800-pcie",
    "NVIDIA A800 80GB PCIe LC": "a800-pcie",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H200 NVL": "h200-nvl",
    "NVIDIA L40": "l40",
}


def named(*keys: str) -> list[tuple[str, str]]:
    """Return (id, name) of every platform for some kinds of names."""
    return [
        (entry["id"], name) for entry in PLATFORMS for key in keys for name in entry.get(key, ())
    ]


NAMES = named("names", "legacy")


def matching(name: str) -> set[str]:
    """Return the profiles, less those that others extend, whose pattern is that of a name."""
    leaves = {key: entry for key, entry in PROFILES.items() if key not in BASES and entry.gpu_names}
    return {key for key, entry in leaves.items() if re.fullmatch(entry.gpu_names, name)}


def test_every_platform_is_known_and_no_other() -> None:
    assert [model.id for model in gpu_models.MODELS] == [entry["id"] for entry in PLATFORMS]


def test_a_name_of_the_lists_is_its_platforms() -> None:
    assert [(gpu_models.model_of(name), name) for _, name in NAMES] == NAMES


@pytest.mark.parametrize(("platform", "name"), named("not"))
def test_a_name_that_only_looks_alike_is_not(platform: str, name: str) -> None:
    assert gpu_models.model_of(name) != platform
    assert platform not in matching(name)


def test_no_name_fits_two_platforms() -> None:
    listed = [(e["id"], n) for _, n in NAMES for e in PLATFORMS if re.search(e["regex"], n)]
    assert set(listed) <= set(NAMES)
    models = [
        (m.id, name) for _, name in NAMES for m in gpu_models.MODELS if m.name.fullmatch(name)
    ]
    assert models == NAMES


def test_a_name_has_the_profile_of_its_platform_and_no_other() -> None:
    assert {name: matching(name) for _, name in NAMES} == {
        name: {OF_NAME.get(name, OF_MODEL.get(platform, platform))} for platform, name in NAMES
    }


def test_every_profile_of_a_card_belongs_to_a_platform() -> None:
    of_cards = {name for name, entry in PROFILES.items() if entry.gpu_names}
    assert of_cards - BASES == set().union(*(matching(name) for _, name in NAMES))


def test_profiles_of_gpus_are_found_without_parsing_all() -> None:
    for _, name in NAMES:
        listed = {entry.name for entry in profiles.of_gpus([name])}
        everyone = {
            key
            for key, entry in PROFILES.items()
            if entry.gpu_names and re.fullmatch(entry.gpu_names, name)
        }
        assert listed == everyone, name


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA GeForce RTX 4090 D", "rtx4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 5090 D", "rtx5090"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA H20-3e", "h20"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtxpro6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtxpro6000"),
        ("NVIDIA RTX PRO 5000 Blackwell", None),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
    ],
)
def test_a_printed_name_has_its_own_profile(name: str, profile: str | None) -> None:
    assert matching(name) == ({profile} if profile else set())
