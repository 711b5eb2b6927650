from __future__ import annotations

from dataclasses import replace

import pytest

from safelaunch.environ import NOTEWORTHY, SCRUBBED, check_name, inherited, matches, merge
from safelaunch.errors import ConfigError
from safelaunch.model import EnvVar, Origin, Slot, Word, text


def var(value: Word | None, source: str = "", *, prepend: bool = False) -> EnvVar:
    return EnvVar("A", value, Origin(source), prepend=prepend)


def merged(*layers: EnvVar) -> EnvVar:
    return merge([[layer] for layer in layers])["A"]


def test_a_later_layer_wins() -> None:
    assert merged(var("low"), var("high")).value == "high"


def test_null_removes_what_a_lower_layer_set() -> None:
    assert merged(var("low"), var(None)).value is None


def test_a_value_comes_back_above_a_null() -> None:
    assert merged(var("low"), var(None), var("high")).value == "high"


def test_a_variable_remembers_all_that_it_beat_nearest_first() -> None:
    beaten = merged(var("1", "profile"), var("2", "host"), var("3", "job")).beats
    assert [str(b.origin) for b in beaten] == ["host", "profile"]


def test_layers_keep_the_order_in_which_names_appear() -> None:
    layers = [[EnvVar("B", "", Origin(""))], [var(""), EnvVar("B", "", Origin(""))]]
    assert list(merge(layers)) == ["B", "A"]


def test_prepend_joins_the_layers_below() -> None:
    assert merged(var("/low"), var("/high", prepend=True)).value == "/high:/low"


def test_prepend_replaces_the_targets_own_where_a_layer_below_did() -> None:
    assert not merged(var("/low"), var("/high", prepend=True)).prepend


def test_prepend_over_prepend_stays_before_the_targets_own() -> None:
    both = merged(var("/low", prepend=True), var("/high", prepend=True))
    assert (both.value, both.prepend) == ("/high:/low", True)


def test_prepend_alone_stays_before_the_targets_own() -> None:
    assert merged(var("/high", prepend=True)).prepend


def test_prepend_over_a_removal_does_not_bring_the_targets_own_back() -> None:
    both = merged(var(None), var("/high", prepend=True))
    assert (both.value, both.prepend) == ("/high", False)


def test_prepend_over_nothing_adds_no_colon() -> None:
    assert merged(var(""), var("/high", prepend=True)).value == "/high"


def test_prepend_keeps_the_slots_of_the_layer_below() -> None:
    low = EnvVar("A", text(Slot.PREFIX, "/bin"), Origin(""), prepend=True)
    assert str(merged(low, var("/high", prepend=True)).value) == "/high:<prefix>/bin"


@pytest.mark.parametrize("name", ["A", "_A", "a1", "NCCL_DEBUG", "PATH", "A" * 200])
def test_usual_names_are_accepted(name: str) -> None:
    check_name(name, "job")


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A.B", "A B", "A=", "é", "A\n", "$A"])
def test_what_bash_takes_for_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no variable name"):
        check_name(name, "job")


@pytest.mark.parametrize("name", ["UID", "SHELLOPTS", "RANDOM", "SHLVL", "_", "SAFELAUNCH_X"])
def test_names_that_a_job_cannot_set_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"read-only|bash sets|reserved"):
        check_name(name, "job")


@pytest.mark.parametrize("name", ["RANK", "PET_NNODES", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"])
def test_left_overs_of_other_jobs_are_scrubbed(name: str) -> None:
    assert matches(name, SCRUBBED)


@pytest.mark.parametrize("name", ["RANKS", "MY_RANK", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES"])
def test_other_names_are_not_scrubbed(name: str) -> None:
    assert not matches(name, SCRUBBED)


def test_inherited_names_are_sorted() -> None:
    environ = {"NCCL_B": "", "A": "", "NCCL_A": ""}
    assert inherited(environ, ["NCCL_*"]) == ["NCCL_A", "NCCL_B"]


def test_prepend_leaves_a_computed_variable_to_the_target() -> None:
    computed = replace(var("of the target"), computed="no_proxy")
    assert merged(computed, var("x", prepend=True)) == var("x", prepend=True).over(computed)


@pytest.mark.parametrize(
    "name",
    ["NCCL_DEBUG", "TORCH_NCCL_BLOCKING_WAIT", "GLOO_SOCKET_IFNAME", "UCX_TLS", "FI_PROVIDER",
     "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_ORDER", "PYTORCH_ALLOC_CONF",
     "PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREADS", "TORCH_DISTRIBUTED_DEBUG", "LD_PRELOAD"],
)  # fmt: skip
def test_an_inherited_name_that_changes_a_job_is_noteworthy(name: str) -> None:
    assert inherited({name: "", "EDITOR": ""}, NOTEWORTHY) == [name]
