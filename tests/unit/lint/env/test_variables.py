from __future__ import annotations

import pytest

from safelaunch.lint.env.model import Facts, VariableProblem
from safelaunch.lint.env.names import check as check_variables
from safelaunch.lint.env.names import table
from safelaunch.lint.finding import NOTE
from safelaunch.lint.fix import apply_edits
from safelaunch.lint.run import check

RETIRED = sorted(table().retired)
LIVING = sorted(set(table().variables) - set(table().retired))


def problems(facts: Facts | None = None, **variables: str | None) -> list[VariableProblem]:
    return list(check_variables(variables, facts))


def ids(facts: Facts | None = None, **variables: str | None) -> list[str]:
    return [p.id for p in problems(facts, **variables)]


def test_the_table_is_as_large_as_it_was() -> None:
    assert len(RETIRED) >= 64
    assert len(LIVING) >= 550
    assert all(entry.get("source") for entry in table().variables.values())
    assert all(entry.get("source") for entry in table().retired.values())


@pytest.mark.parametrize("name", RETIRED)
def test_every_dead_or_renamed_name_is_caught(name: str) -> None:
    (result,) = check("run.sh", f"export {name}=$VALUE\n".encode()).findings
    assert result.id in ("env-removed", "env-renamed", "env-never-existed", "env-unknown")
    assert name in result.message


def test_no_living_name_is_caught() -> None:
    scripts = {name: f"export {name}=$VALUE\n".encode() for name in LIVING}
    assert [name for name, text in scripts.items() if check("run.sh", text).findings] == []


@pytest.mark.parametrize("name", [n for n in RETIRED if "rename" in table().retired[n]])
def test_a_new_name_is_itself_living(name: str) -> None:
    assert table().retired[name]["rename"] in LIVING


@pytest.mark.parametrize(
    ("launcher", "knob"),
    [
        ("swift", "`--ddp_timeout`"),
        ("accelerate", "InitProcessGroupKwargs(timeout"),
        ("torchrun", "init_process_group(timeout"),
        ("areal", "AReaL"),
        (None, "init_process_group(timeout"),
    ],
)
def test_the_real_knob_of_the_launcher_is_named(launcher: str | None, knob: str) -> None:
    (result,) = problems(Facts(launcher=launcher), NCCL_TIMEOUT="1800")
    assert (result.id, result.severity) == ("env-never-existed", "error")
    assert knob in str(result.fix)


def test_a_script_tells_its_launcher_itself() -> None:
    text = b"export NCCL_TIMEOUT=1800\nswift sft --x\n"
    (result,) = check("run.sh", text).findings
    assert "--ddp_timeout" in str(result.fix)


def test_an_unknown_name_gets_the_nearest() -> None:
    (result,) = problems(NCCL_SOCKET_IFNAMES="eth0")
    assert (result.id, result.fix) == ("env-unknown", "did you mean `NCCL_SOCKET_IFNAME`?")
    assert ids(CUDA_VISIBLE_DEVICE="0") == ["env-unknown"]


@pytest.mark.parametrize(
    "name",
    ["NCCL_FASTRAK_X", "NCCL_TESTS_DEVICE", "OFI_NCCL_X", "HF_X", "MY_PATH", "PET_NNODES", "nccl_x",
     "CUDA_HOME", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "HCCL_ANYTHING", "DATA_DIR"],
)  # fmt: skip
def test_names_of_plugins_and_of_users_are_left_alone(name: str) -> None:
    assert ids(None, **{name: "1"}) == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("NCCL_IB_DISABLE", "true", "nothing is disabled"),
        ("NCCL_DMABUF_ENABLE", "on", "it is off"),
        ("NCCL_NVLS_ENABLE", "yes", "means 0"),
        ("NCCL_BUFFSIZE", "4M", "reads 4"),
        ("NCCL_IB_TIMEOUT", "x", "means 0"),
        ("NCCL_MIN_CTAS", "010", "reads 8"),
        ("NCCL_IB_DISABLE", "1\r", "carriage return"),
        ("NCCL_SOCKET_IFNAME", "eth0\r", "carriage return"),
        ("TORCH_NCCL_DESYNC_DEBUG", "on", "raises"),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "10m", "raises"),
        ("HF_HUB_OFFLINE", "enabled", "is false"),
        ("NCCL_P2P_LEVEL", "pix", "ignores"),
        ("NCCL_DEBUG", "debug", "not a level"),
        ("NCCL_IB_RETRY_CNT", "13", "three bits"),
        ("NCCL_IB_TIMEOUT", "32", "forever"),
        ("NCCL_P2P_NET_CHUNKSIZE", "1048576", "wrong results"),
        ("NCCL_DEBUG_FILE", "/tmp/nccl.log", "the same file"),
        ("GLOO_SOCKET_IFNAME", "^lo", "exact names"),
        ("WANDB_MODE", "dryrun", "offline"),
    ],
)
def test_a_value_that_is_read_otherwise_is_found(name: str, value: str, message: str) -> None:
    (result,) = problems(None, **{name: value})
    assert message in result.message
    assert "\r" not in result.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_IB_DISABLE", "0"), ("NCCL_P2P_DISABLE", "1"), ("NCCL_BUFFSIZE", "0x400000"),
        ("NCCL_P2P_LEVEL", "PIX"), ("NCCL_NET_GDR_LEVEL", "2"), ("NCCL_DEBUG", "warn"),
        ("TORCH_NCCL_DESYNC_DEBUG", "TRUE"), ("HF_HUB_OFFLINE", "1"), ("HF_HUB_OFFLINE", "0"),
        ("NCCL_DEBUG_FILE", "/tmp/%h.%p"), ("NCCL_IB_GID_INDEX", "3"), ("NCCL_CROSS_NIC", "-2"),
        ("NCCL_IB_TIMEOUT", "22"), ("NCCL_SOCKET_IFNAME", "^lo,docker0"), ("NCCL_ALGO", "RING"),
        ("CUDA_LAUNCH_BLOCKING", "1"), ("NCCL_IB_DISABLE", ""), ("NCCL_IB_HCA", "=mlx5_0"),
    ],
)  # fmt: skip
def test_a_value_that_is_read_as_meant_is_none(name: str, value: str) -> None:
    assert ids(None, **{name: value}) == []


def test_a_value_that_bash_makes_is_not_judged() -> None:
    assert check("a.sh", b"export NCCL_IB_DISABLE=$OFF\n").findings == ()


def test_harmful_pairs_are_found() -> None:
    assert ids(NCCL_SHM_DISABLE="1", NCCL_P2P_DISABLE="1") == ["env-together"]
    assert ids(NCCL_SHM_DISABLE="1", NCCL_P2P_DISABLE="0") == []
    both = {"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    assert ids(None, **both) == ["env-together"]
    hook = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"
    conf = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", hook: "1"}
    assert ids(None, **conf) == ["env-together"]


@pytest.mark.parametrize(
    ("facts", "variables"),
    [
        (Facts(nvlink=True), {"NCCL_P2P_DISABLE": "1"}),
        (Facts(nvlink=True), {"NCCL_P2P_LEVEL": "LOC"}),
        (Facts(nodes=2, rdma=True), {"NCCL_IB_DISABLE": "1"}),
        (Facts(nodes=2), {"NCCL_SOCKET_IFNAME": "lo"}),
        (Facts(nccl="2.27.3"), {"NCCL_IB_GID_INDEX": "3"}),
        (Facts(torch="2.9.1"), {"PYTORCH_ALLOC_CONF": "x:1"}),
        (Facts(torch="2.15.0"), {"TORCH_NCCL_ENABLE_MONITORING": "1"}),
        (Facts(nccl="2.18.1"), {"NCCL_MNNVL_ENABLE": "0"}),
        (Facts(library=frozenset({"NCCL_DEBUG"})), {"NCCL_IB_HCA": "x"}),
    ],
)
def test_what_is_known_of_the_machines_counts(facts: Facts, variables: dict[str, str]) -> None:
    assert len(problems(facts, **variables)) == 1
    assert problems(None, **variables) == []


def test_a_name_is_alive_where_the_library_still_reads_it() -> None:
    assert ids(Facts(nccl="2.27.3"), NCCL_SHM_USE_CUDA_MEMCPY="1") == []
    (result,) = problems(Facts(nccl="2.31.2"), NCCL_SHM_USE_CUDA_MEMCPY="1")
    assert result.severity == "warning"
    (unknown,) = problems(None, NCCL_SHM_USE_CUDA_MEMCPY="1")
    assert unknown.severity == NOTE
    assert ids(Facts(library=frozenset({"NCCL_OF_TOMORROW"})), NCCL_OF_TOMORROW="1") == []


@pytest.mark.parametrize("name", ["HF_HUB_ENABLE_HF_TRANSFER", "TRANSFORMERS_CACHE"])
def test_a_name_that_an_older_release_of_its_library_reads_is_a_note(name: str) -> None:
    (result,) = problems(None, **{name: "1"})
    assert (result.id, result.severity) == ("env-removed", NOTE)


def test_a_renamed_variable_is_mended_in_a_script() -> None:
    before = b"export NCCL_ASYNC_ERROR_HANDLING=1\nNCCL_IB_QPS_PER_CONN=4 torchrun t.py\n"
    after = (
        b"export TORCH_NCCL_ASYNC_ERROR_HANDLING=1\nNCCL_IB_QPS_PER_CONNECTION=4 torchrun t.py\n"
    )
    assert apply_edits(before, check("a.sh", before).findings) == after


def test_a_renamed_variable_that_the_script_uses_is_left_to_its_author() -> None:
    text = b"export NCCL_BLOCKING_WAIT=1\necho ${NCCL_BLOCKING_WAIT}\n"
    assert apply_edits(text, check("a.sh", text).findings) == text


def test_a_renamed_variable_is_mended_in_a_job() -> None:
    text = b'launcher: torchrun\nscript: t.py\nenv: {"NCCL_MNNVL": 1, HUGGINGFACE_HUB_CACHE: x}\n'
    after = b'launcher: torchrun\nscript: t.py\nenv: {"NCCL_MNNVL_ENABLE": 1, HF_HUB_CACHE: x}\n'
    assert apply_edits(text, check("job.yaml", text).findings) == after


@pytest.mark.parametrize(
    "text",
    [
        "launcher: swift\ncommand: [x]\nenv:\n  NCCL_TIMEOUT: 5\n",
        "hosts:\n  a:\n    address: x\n    env: {NCCL_TIMEOUT: 5}\n",
        "accelerator: cuda\nenv:\n  NCCL_TIMEOUT: {value: '5', why: x}\n",
        "model: x\nENV:\n  NCCL_TIMEOUT: 5\n",
    ],
)
def test_variables_in_yaml_are_judged(text: str) -> None:
    assert [f.id for f in check("x.yaml", text.encode()).findings] == ["env-never-existed"]


def test_a_profile_may_switch_off_what_a_job_should_not() -> None:
    text = "env:\n  NCCL_SHM_DISABLE: {value: 1}\n  NCCL_P2P_DISABLE: {value: 1}\n"
    job = "launcher: torchrun\nscript: t.py\nenv: {NCCL_SHM_DISABLE: 1, NCCL_P2P_DISABLE: 1}\n"
    assert check("p.yaml", f"accelerator: cuda\n{text}".encode()).findings == ()
    assert [f.id for f in check("j.yaml", job.encode()).findings] == ["env-together"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NCCL_DEBUG=INFO\ntorchrun t.py\n", ["env-not-exported"]),
        ("NCCL_DEBUG=INFO; torchrun t.py\n", ["env-not-exported"]),
        ("NCCL_DEBUG=INFO torchrun t.py\n", []),
        ("NCCL_DEBUG=INFO\nexport NCCL_DEBUG\n", []),
        ("set -a\nNCCL_DEBUG=INFO\n", []),
        ("NCCL_DEBUG=INFO\ntorchrun t.py --x $NCCL_DEBUG\n", []),
        ("MASTER_PORT=29500\n", []),
        ("docker run -e NCCL_DEBUG=INFO x\n", []),
    ],
)
def test_a_variable_that_no_program_sees_is_found(text: str, expected: list[str]) -> None:
    assert [f.id for f in check("a.sh", text.encode()).findings] == expected


@pytest.mark.parametrize(
    "text",
    [
        "NCCL_VER=2.30.7\nwget nccl-$NCCL_VER.tgz\n",
        "NCCL_TIMEOUT=5\ntorchrun t.py --timeout $NCCL_TIMEOUT\n",
        "NCCL_HOME_OF_MINE=/x\n",
    ],
)
def test_a_variable_that_stays_in_the_script_is_its_own(text: str) -> None:
    assert check("a.sh", text.encode()).findings == ()


@pytest.mark.parametrize(
    "name", ["TRANSFORMERS_OFFLINE", "HUGGINGFACE_HUB_CACHE", "HUGGING_FACE_HUB_TOKEN"]
)
def test_an_old_name_that_is_still_read_is_a_note(name: str) -> None:
    (result,) = problems(None, **{name: "1"})
    assert (result.id, result.severity) == ("env-renamed", NOTE)


def test_the_name_that_all_releases_of_pytorch_read_passes() -> None:
    assert ids(None, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True") == []


def test_an_env_file_needs_no_export() -> None:
    assert check("x/.env", b"NCCL_DEBUG=INFO\n").findings == ()


def test_names_that_are_not_looked_for_in_libraries_are_not_missed_there() -> None:
    facts = Facts(library=frozenset({"NCCL_DEBUG"}), machine="gpu1 (facts from 2 h ago)")
    assert (
        ids(facts, TORCH_FR_BUFFER_SIZE="1", NCCL_PLUGIN_P2P="x", TORCH_DIST_INIT_BARRIER="1") == []
    )
    (result,) = problems(facts, NCCL_IB_HCA="x")
    assert "the libraries of gpu1 (facts from 2 h ago) do not contain" in result.message


def test_a_name_that_is_gone_is_right_where_the_library_is_older() -> None:
    old = Facts(torch="2.1.2", nccl="2.16.5")
    retired = ("NCCL_BLOCKING_WAIT", "NCCL_MAX_NCHANNELS", "TORCH_NCCL_AVOID_RECORD_STREAMS")
    assert ids(old, **dict.fromkeys(retired, "1")) == []
    new = Facts(torch="2.13.0", nccl="2.27.3")
    assert ids(new, **dict.fromkeys(retired, "1")) == ["env-renamed", "env-renamed", "env-removed"]
    (unknown,) = problems(None, TORCH_NCCL_AVOID_RECORD_STREAMS="1")
    assert unknown.severity == NOTE
