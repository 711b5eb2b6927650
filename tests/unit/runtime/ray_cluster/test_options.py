"""What a node gives to `ray start`, and where Ray's files and hooks go."""

from __future__ import annotations

import pytest

from safelaunch.runtime.ray_cluster import options as cluster_options
from safelaunch.runtime.ray_cluster.options import ClusterOptions

PLACE = ("--address=127.0.0.1", "--port=6400", "--cpus=8")
RUN = {"SAFELAUNCH_RUN_ID": "job-20260101-000000-abcd", "SAFELAUNCH_ATTEMPT": "1"}


def start_words(*options: str, gpus: int | None = None) -> list[str]:
    """Return the command of a node, without the Python in front."""
    own = ClusterOptions.parse([*options, *PLACE])
    return cluster_options.start_words(own, "python", "/tmp/x/t", gpus)[3:]


def test_the_words_behind_two_dashes_are_the_program_whatever_they_look_like() -> None:
    own = ClusterOptions.parse(["--node=1", "--nodes=2", *PLACE, "--", "p", "--node=7", "--"])
    assert (own.node, own.nodes, own.cpus) == (1, 2, 8)
    assert own.place == "127.0.0.1:6400"
    assert own.words == ["p", "--node=7", "--"]


def test_a_single_node_is_a_head_with_a_folder_and_ports_of_its_own() -> None:
    assert start_words("--node=0", "--nodes=1", gpus=4) == [
        *("start", "--block", "--head", "--port=6400", "--temp-dir=/tmp/x/t"),
        *("--include-dashboard=false", "--disable-usage-stats"),
        *("--num-cpus=8", "--num-gpus=4", "--min-worker-port=0", "--max-worker-port=0"),
    ]


def test_another_node_joins_by_its_address_on_the_way_and_ray_counts_its_gpus() -> None:
    assert start_words("--node=1", "--nodes=2") == [
        *("start", "--block", "--address=127.0.0.1:6400", "--node-ip-address=127.0.0.1"),
        *("--num-cpus=8", "--min-worker-port=0", "--max-worker-port=0"),
    ]


@pytest.mark.parametrize(
    ("value", "count"),
    [(None, None), ("", 0), ("-1", 0), ("NoDevFiles", 0), ("3", 1), ("0,1,GPU-1f,MIG-2", 4)],
)
def test_visible_cards_are_counted_where_the_environment_names_them(
    value: str | None, count: int | None
) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert cluster_options.visible_gpus(environ) == count


def test_processes_of_ray_have_the_jobs_variables_and_no_hooks_for_ranks() -> None:
    hooks = {"SAFELAUNCH_NODE_DIR": "/run", "SAFELAUNCH_CAPTURE": "1", "SAFELAUNCH_MAIN": "7"}
    site = {"SAFELAUNCH_SITE": "/run/site", "PYTHONPATH": "/run/site:/project"}
    environment = cluster_options.ray_environment({**RUN, **hooks, **site, "NCCL_DEBUG": "INFO"})
    assert not hooks.keys() & environment.keys()
    assert environment["PYTHONPATH"] == "/project"
    assert environment["NCCL_DEBUG"] == "INFO"
    assert environment["SAFELAUNCH_RUN_ID"] == RUN["SAFELAUNCH_RUN_ID"]  # they belong to the run
