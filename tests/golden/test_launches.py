"""Each example starts what its system's own script starts, but for what is listed here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from support import example_checkouts
from support.example_checkouts import ROOT, planned, recorded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FREE_PORT = "a fixed port collides with the next job; a free one is chosen at each start"
LOOPBACK = "localhost may mean ::1 first; the address is unambiguous"
FLAGS_SAY_IT = "only fills in the command line, where the launcher's own flags stand"
CLOUD = "a cloud's names for what the script then passes as flags"


@dataclass(frozen=True)
class Launch:
    """A recorded launch, how its command begins, and the wanted differences with their reasons."""

    recorded: str
    starts: tuple[str, ...]  # the words before the launcher's flags or the program
    program: str  # where the program's words begin
    # flag or preceding word: (its value, ours, why); added words stand at the end
    replaced_flags: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    replaced_words: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    added_words: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    without_env: Mapping[str, str] = field(default_factory=dict)


ACCELERATE = ("-m", "accelerate.commands.launch")
TORCHRUN = ("-m", "torch.distributed.run")
SWIFT = ("-m", "swift.cli.main")
DDP_TIMEOUT = "swift's own default is 208 days: a hang would never end"

LAUNCHES = {
    "companionguard": Launch(
        "companionguard",
        ACCELERATE,
        "scripts/train_ppo.py",
    ),
    "lightrft-grpo": Launch(
        "lightrft-grpo",
        TORCHRUN,
        "examples/gsm8k_geo3k/train_colocate.py",
        replaced_flags={
            "master_port": ("20090", "<port>", FREE_PORT),
            "master_addr": ("localhost", "127.0.0.1", LOOPBACK),
        },
        replaced_words={
            "--use_wandb": ("***", "true", "the API key: `ps` would show it to everybody"),
        },
        without_env={
            "MASTER_ADDR": FLAGS_SAY_IT,
            "MASTER_PORT": FLAGS_SAY_IT,
            "NNODES": FLAGS_SAY_IT,
            "NODE_RANK": FLAGS_SAY_IT,
            "GPUS_PER_NODE": FLAGS_SAY_IT,
            "MLP_ROLE_INDEX": CLOUD,
            "MLP_WORKER_0_HOST": CLOUD,
            "MLP_WORKER_0_PORT": CLOUD,
            "MLP_WORKER_GPU": CLOUD,
            "MLP_WORKER_NUM": CLOUD,
        },
    ),
    "areal-v0.2": Launch(
        "areal-v0.2",
        (),
        "-m",
        added_words={("mode=ray",): "what the config file says; stated, so the plan shows it"},
    ),
    "areal-launcher": Launch("areal-launcher", (), "-m"),
    "areal-v1": Launch("areal-1x", (), "examples/math/gsm8k_rl.py"),
    "areal-v1-spmd": Launch("areal-infra-launcher", (), "-m"),
    "swift-sft": Launch(
        "swift-sft", SWIFT, "sft", added_words={("--ddp_timeout", "1800"): DDP_TIMEOUT}
    ),
    "swift-rlhf": Launch(
        "swift-rlhf", SWIFT, "rlhf", added_words={("--ddp_timeout", "1800"): DDP_TIMEOUT}
    ),
    "swift-rollout": Launch("swift-rollout", SWIFT, "rollout"),
    "minionerec-sft": Launch("minionerec-sft", TORCHRUN, "sft.py"),
    "minionerec-rl": Launch("minionerec-rl", ACCELERATE, "rl.py"),
}


def flags(words: Sequence[str]) -> dict[str, str]:
    """Return launcher flags in normal form: `--nproc-per-node=8` is {"nproc_per_node": "8"}."""
    values: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            values[name] = value if equals else ""
        else:
            values[name] = word
    return values


def program(words: Sequence[str], first: str) -> list[str]:
    """Return the program's own words."""
    return list(words[words.index(first) :])


def of_launcher(words: Sequence[str], launch: Launch) -> dict[str, str]:
    """Return the launcher's flags: what stands between its name and the program."""
    return flags([w for w in words[1 : words.index(launch.program)] if w != "launch"])


@pytest.fixture(scope="module", params=sorted(LAUNCHES))
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Launch, Any, Any]:
    launch = LAUNCHES[request.param]
    checkout = tmp_path_factory.mktemp("launches") / "checkout"
    return launch, recorded(launch.recorded), planned(request.param, checkout)


Case = tuple[Launch, Any, Any]


def test_the_launcher_is_the_same_program_run_by_an_absolute_interpreter(case: Case) -> None:
    launch, _, plan = case
    assert tuple(plan["argv"][1 : 1 + len(launch.starts)]) == launch.starts


def test_the_program_gets_the_same_words_in_the_same_order(case: Case) -> None:
    launch, original, plan = case
    expected = program(original["argv"], launch.program)
    for after, (its, ours, _) in launch.replaced_words.items():
        at = expected.index(after) + 1
        assert expected[at] == its, "a listed difference that is none"
        expected[at] = ours
    for words in launch.added_words:
        expected += words
    assert program(plan["argv"], launch.program) == expected


def test_every_launcher_flag_is_said_with_its_value(case: Case) -> None:
    launch, original, plan = case
    expected = of_launcher(original["argv"], launch)
    for name, (its, ours, _) in launch.replaced_flags.items():
        assert expected[name] == its, "a listed difference that is none"
        expected[name] = ours
    actual = of_launcher(plan["argv"][len(launch.starts) :], launch)
    assert expected.items() <= actual.items()


def test_the_environment_holds_every_variable_with_its_value(case: Case) -> None:
    launch, original, plan = case
    expected = {k: v for k, v in original["env"].items() if k not in launch.without_env}
    env = {name: var["value"] for name, var in plan["env"].items()}
    assert expected.items() <= env.items()


def test_a_variable_listed_as_left_out_was_there_and_is_gone(case: Case) -> None:
    launch, original, plan = case
    assert set(launch.without_env) <= set(original["env"]) - set(plan["env"])


def test_the_working_directory_is_the_checkout(case: Case) -> None:
    _, original, plan = case
    assert (original["cwd"], plan["cwd"]) == (".", ROOT)


def test_every_recorded_launch_has_an_example() -> None:
    stems = {path.stem for path in example_checkouts.LAUNCHES.iterdir()}
    assert {launch.recorded for launch in LAUNCHES.values()} == stems


def test_the_low_memory_overlay_changes_only_memory(tmp_path: Path) -> None:
    full = flags(planned("lightrft-grpo", tmp_path / "full")["argv"])
    low = flags(planned("lightrft-low-mem", tmp_path / "low")["argv"])
    changed = {name: value for name, value in low.items() if full.get(name) != value}
    assert changed == {
        "micro_train_batch_size": "1",
        "micro_rollout_batch_size": "1",
        "engine_mem_util": "0.4",
        "fsdp_cpu_offload": "",
        "prompt_max_len": "512",
        "generate_max_len": "1024",
    }
