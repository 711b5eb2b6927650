from __future__ import annotations

import pytest

from safelaunch.config import profiles
from safelaunch.errors import ConfigError
from safelaunch.model import Origin, Profile
from safelaunch.plan import gates

WHERE = Origin("test")
BUILT_IN = profiles.names()

NVSWITCH = (
    "a100", "a100-sxm", "a800", "h100", "h200", "h800", "h20", "b200", "b300", "gb200", "gb300",
)  # fmt: skip
# cards that need nothing: all but those with variables of their own
OWN_VARIABLES = {"cpu", "h800", "rtx4090", "rtx5090", "ascend", "ascend910b", "ascend910c"}
DEFAULTS = sorted(set(BUILT_IN) - OWN_VARIABLES)
NVLINK_SWITCHES = {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_P2P_LEVEL"}
RTX5090_SWITCHES = ["NCCL_SHM_DISABLE", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"]


def load(name: str) -> Profile:
    return profiles.load(name, WHERE, ".")


def select(
    name: str,
    *,
    gpus: int | None = 4,
    nodes: int = 1,
    ladder: int | None = None,
    workarounds: bool = True,
    **facts: str,
) -> gates.SelectedVariables:
    declared = gates.DeclaredFacts(gpus=gpus, nodes=nodes, facts=facts)
    return gates.select(load(name), declared, ladder=ladder, workarounds=workarounds)


def chosen(selection: gates.SelectedVariables) -> list[str]:
    return [var.name for var in selection.env]


def missing(selection: gates.SelectedVariables) -> list[str]:
    return [entry.var.name for entry in selection.missing]


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_profile_loads_under_its_own_name(name: str) -> None:
    assert load(name).name == name


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_profile_has_a_description(name: str) -> None:
    assert load(name).description


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_variable_says_why_and_from_where(name: str) -> None:
    profile = load(name)
    silent = [e.var.name for e in profile.env + profile.site if not (e.var.why and e.var.source)]
    assert silent == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_fact_and_variable_has_a_source_and_the_day_it_was_read(name: str) -> None:
    profile = load(name)
    stated = [(key, fact.source, fact.origin) for key, fact in profile.facts.items()]
    stated += [
        (e.var.name, e.var.source, e.var.origin)
        for e in (*profile.env, *profile.site, *(e for step in profile.ladder for e in step))
    ]
    dated = profile.checked
    assert [key for key, source, at in stated if not (source and at.source in dated)] == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_workaround_says_what_it_costs(name: str) -> None:
    assert [e.var.name for e in load(name).env if e.var.workaround and not e.var.cost] == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_nccl_values_are_digits_because_nccl_reads_words_as_zero(name: str) -> None:
    profile = load(name)
    values = [(e.var.name, str(e.var.value)) for e in profile.env]
    values += [(e.var.name, str(e.var.value)) for step in profile.ladder for e in step]
    words = [v for v in values if v[0].startswith("NCCL_") and v[0] != "NCCL_DEBUG"]
    assert [v for v in words if not v[1].isdigit()] == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_site_variable_has_no_value(name: str) -> None:
    assert [e.var.name for e in load(name).site if e.var.value is not None] == []


@pytest.mark.parametrize("name", NVSWITCH)
def test_nvswitch_profiles_never_switch_nvlink_off(name: str) -> None:
    profile = load(name)
    named = {entry.var.name for entry in profile.env + profile.site}
    named |= {entry.var.name for step in profile.ladder for entry in step}
    assert named & NVLINK_SWITCHES == set()


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_of_nccl_stand_where_they_are_right(name: str) -> None:
    assert chosen(select(name, gpus=8, nodes=2)) == []


@pytest.mark.parametrize("name", ["a100-sxm", "a100-pcie"])
def test_a100_boards_inherit_what_they_share(name: str) -> None:
    assert load(name).fact("compute_capability") == "8.0"


def test_rtx5090_sets_all_switches_while_nccl_is_not_declared() -> None:
    assert chosen(select("rtx5090")) == RTX5090_SWITCHES


def test_rtx5090_says_which_undeclared_fact_keeps_switches_on() -> None:
    assert select("rtx5090").undeclared == {
        "nccl": RTX5090_SWITCHES,
        "p2p": ["NCCL_P2P_DISABLE"],
    }


def test_rtx5090_variables_are_all_workarounds() -> None:
    selection = select("rtx5090")
    assert list(selection.workarounds) == chosen(selection)


def test_no_workarounds_removes_all_switches_of_rtx5090() -> None:
    assert chosen(select("rtx5090", workarounds=False)) == []


def test_rtx5090_leaves_one_gpu_alone() -> None:
    assert chosen(select("rtx5090", gpus=1)) == []


def test_rtx5090_treats_uncounted_gpus_as_several() -> None:
    assert chosen(select("rtx5090", gpus=None)) == RTX5090_SWITCHES


def test_rtx5090_never_switches_infiniband_off_between_nodes() -> None:
    assert "NCCL_IB_DISABLE" not in chosen(select("rtx5090", nodes=2))


@pytest.mark.parametrize("version", ["2.27.3", "2.26.5", "2.26.2.post1"])
def test_nccl_with_blackwell_code_lifts_all_switches_of_rtx5090(version: str) -> None:
    assert chosen(select("rtx5090", nccl=version)) == []


@pytest.mark.parametrize("version", ["2.26.2", "2.25.1"])
def test_nccl_without_blackwell_code_keeps_the_switches_of_rtx5090(version: str) -> None:
    assert chosen(select("rtx5090", nccl=version)) == RTX5090_SWITCHES


LADDER = [
    "NCCL_CUMEM_HOST_ENABLE=0",
    "NCCL_P2P_DISABLE=1",
    "NCCL_IB_DISABLE=1",
    "NCCL_SHM_DISABLE=1",
    "NCCL_DEBUG=INFO",
]


@pytest.mark.parametrize("name", ["rtx5090", "rtx4090", "rtxpro6000", "a100-pcie", "l4"])
@pytest.mark.parametrize(("step", "count"), [(0, 0), (1, 1), (2, 3), (3, 4), (4, 5)])
def test_ladder_of_pcie_cards_begins_with_the_cheapest_step(
    name: str, step: int, count: int
) -> None:
    steps = select(name, ladder=step).ladder
    assert [f"{v.name}={v.value}" for v in steps] == LADDER[:count]


def test_every_step_of_a_ladder_says_what_it_costs_and_from_where() -> None:
    steps = {id(e): e for name in BUILT_IN for step in load(name).ladder for e in step}
    silent = [e.var.name for e in steps.values() if not (e.var.cost and e.var.source)]
    assert silent == []


def test_ladder_replaces_the_default_workarounds() -> None:
    assert chosen(select("rtx5090", ladder=1)) == []


def test_ladder_goes_beyond_a_declared_nccl_because_it_is_asked_for() -> None:
    steps = select("rtx5090", ladder=2, nccl="2.27.3").ladder
    assert "NCCL_P2P_DISABLE" in [var.name for var in steps]


def test_ladder_of_rtx5090_leaves_infiniband_on_between_nodes() -> None:
    steps = select("rtx5090", nodes=2, ladder=2).ladder
    assert [var.name for var in steps] == ["NCCL_CUMEM_HOST_ENABLE", "NCCL_P2P_DISABLE"]


@pytest.mark.parametrize(("p2p", "is_set"), [("yes", False), ("no", True)])
def test_rtx5090_leaves_peer_access_to_a_driver_that_has_it(p2p: str, *, is_set: bool) -> None:
    assert ("NCCL_P2P_DISABLE" in chosen(select("rtx5090", nccl="2.25.1", p2p=p2p))) is is_set


def test_ladder_refuses_a_step_that_it_lacks() -> None:
    with pytest.raises(ConfigError, match="ladder of `rtx5090` ends at 4"):
        select("rtx5090", ladder=5)


def test_ladder_is_refused_where_a_profile_has_none() -> None:
    with pytest.raises(ConfigError, match="has no ladder"):
        select("h800", ladder=1)


def test_rtx4090_sets_both_switches_while_the_driver_is_not_declared() -> None:
    assert chosen(select("rtx4090")) == ["NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"]


@pytest.mark.parametrize("driver", ["535.183.01", "550.40.06"])
def test_older_driver_keeps_the_switches_of_rtx4090(driver: str) -> None:
    assert chosen(select("rtx4090", driver=driver)) == ["NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"]


@pytest.mark.parametrize("driver", ["550.40.07", "550.127.08", "580.65.06"])
def test_newer_driver_lifts_the_switches_of_rtx4090(driver: str) -> None:
    assert chosen(select("rtx4090", driver=driver)) == []


def test_rtx4090_never_switches_infiniband_off_between_nodes() -> None:
    assert chosen(select("rtx4090", nodes=2)) == ["NCCL_P2P_DISABLE"]


def test_rtx4090_variables_are_all_workarounds() -> None:
    assert chosen(select("rtx4090", workarounds=False)) == []


def test_h800_sets_nothing_on_one_node() -> None:
    assert chosen(select("h800", gpus=8)) == []


def test_h800_asks_for_nothing_on_one_node() -> None:
    assert missing(select("h800", gpus=8)) == []


def test_h800_sets_its_roce_block_between_nodes() -> None:
    selection = select("h800", gpus=8, nodes=2)
    assert {var.name: var.value for var in selection.env} == {
        "NCCL_IB_TIMEOUT": "22",
        "NCCL_IB_QPS_PER_CONNECTION": "4",
    }


def test_roce_block_of_h800_is_no_workaround() -> None:
    assert select("h800", gpus=8, nodes=2).workarounds == ()


def test_h800_asks_the_site_for_its_fabric_between_nodes() -> None:
    assert missing(select("h800", gpus=8, nodes=2, nccl="2.27.3")) == [
        "NCCL_IB_HCA",
        "NCCL_IB_TC",
        "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME",
    ]


def test_h800_asks_for_a_gid_index_where_nccl_cannot_choose_it() -> None:
    assert "NCCL_IB_GID_INDEX" in missing(select("h800", gpus=8, nodes=2, nccl="2.20.5"))


@pytest.mark.parametrize(
    ("value", "condition", "expected"),
    [
        ("4", ">1", True),
        ("1", ">1", False),
        ("10", ">9", True),  # numbers, not text
        ("1", "1", True),
        ("2", "1", False),
        ("2", "== 2", True),
        ("2", "!=2", False),
        ("8", "<8", False),
        ("8", "<=8", True),
        ("8", ">=9", False),
        ("4", ">1,<8", True),
        ("8", ">1,<8", False),
        ("2.9.0", "<2.26.5", True),  # versions, not text
        ("2.26.2", "<2.26.5,!=2.26.2.post1", True),
        ("2.26.2.post1", "<2.26.5,!=2.26.2.post1", False),
        ("2.26.2.post1", ">2.26.2", True),  # a post-release comes after its release
        ("2.26.5", "<2.26.5", False),
        ("550.40.07", "<550.40.07", False),
        ("550.127.08", "<550.40.07", False),
        ("550.40.7", "==550.40.07", True),
        ("12.8", ">=12.6", True),
        ("no", "no", True),
        ("yes", "no", False),
    ],
)
def test_gates_compare_numbers_and_versions(value: str, condition: str, expected: bool) -> None:
    assert gates.holds(value, condition, WHERE) is expected


def test_a_fact_that_is_no_version_is_refused() -> None:
    with pytest.raises(ConfigError, match="`newest` is no version"):
        gates.holds("newest", "<2.26.5", WHERE)
