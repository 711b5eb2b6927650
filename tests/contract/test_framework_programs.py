"""The launchers of frameworks know the command lines that the packages themselves have."""

from __future__ import annotations

import pytest
from support.frameworks import recorded

from safelaunch import launchers
from safelaunch.launchers import torchrun
from safelaunch.launchers.frameworks import (
    axolotl,
    llamafactory,
    megatron,
    ray,
    swift,
    torchrun_variables,
    torchtune,
    trl,
    xtuner,
)

PACKAGES = recorded()
# commands that print something, and start no job
PRINTING = {"env", "version", "help", "agent-docs", "config-schema", "generate-cli-config-options",
            "fetch"}  # fmt: skip
SCRIPTS = {
    "swift": "ms-swift",
    "megatron": "ms-swift",
    "llamafactory": "llamafactory",
    "trl": "trl",
    "axolotl": "axolotl",
    "torchtune": "torchtune",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_launcher_runs_the_module_of_its_console_script(name: str) -> None:
    launcher, scripts = launchers.load(name), PACKAGES[SCRIPTS[name]]["scripts"]
    assert [scripts[program] for program in launcher.PROGRAMS] == [
        launcher.MODULES[0] for _ in launcher.PROGRAMS
    ]


def test_ray_has_the_module_that_a_submitted_job_runs() -> None:
    assert PACKAGES["ray"]["scripts"]["ray"] == "ray.scripts.scripts"


def test_swift_knows_the_subcommands_and_which_ones_torchrun_runs() -> None:
    package = PACKAGES["ms-swift"]
    assert sorted(swift.SWIFT.distributed) == package["distributed"]
    assert sorted((*swift.SWIFT.distributed, *swift.SINGLE)) == package["swift"]
    assert sorted(megatron.MEGATRON.distributed) == package["megatron"]


def test_swift_hands_on_the_variables_that_the_plan_sets() -> None:
    assert set(torchrun_variables.NAMES) == set(PACKAGES["ms-swift"]["variables"])
    assert set(torchrun_variables.NAMES) < set(PACKAGES["llamafactory"]["variables"])


def test_llamafactory_knows_the_subcommands() -> None:
    names = {"train", *llamafactory.SINGLE}
    assert names == set(PACKAGES["llamafactory"]["subcommands"]) - PRINTING


def test_llamafactory_knows_the_variables_that_force_torchrun() -> None:
    used = {*llamafactory.FORCING, *llamafactory.ELASTIC}
    assert used < set(PACKAGES["llamafactory"]["variables"])


def test_trl_knows_the_subcommands() -> None:
    package = PACKAGES["trl"]
    assert sorted(trl.TRAINING) == package["training"]
    assert set(trl.SINGLE) == set(package["others"]) - PRINTING


def test_axolotl_knows_the_subcommands_and_which_ones_have_a_launcher() -> None:
    package = PACKAGES["axolotl"]
    assert sorted(axolotl.DISTRIBUTED) == package["launcher"]
    assert set(axolotl.SINGLE) == set(package["others"]) - PRINTING


def test_torchtune_has_a_subcommand_that_takes_the_flags_of_torchrun() -> None:
    package = PACKAGES["torchtune"]
    assert "run" in package["subcommands"]
    assert package["flags"] == [torchrun.MODULES[0]]
    table = torchtune.RUN_FLAGS
    assert (table.valued, table.switches) == (torchrun.FLAGS.valued, torchrun.FLAGS.switches)


def test_torchtune_decides_itself_what_the_plan_does_not_set() -> None:
    assert {"args.standalone", "args.module"} < set(PACKAGES["torchtune"]["own"])


def test_xtuner_knows_the_subcommands_and_the_variables() -> None:
    package = PACKAGES["xtuner"]
    printing = {"list-cfg", "copy-cfg", "list-dataset-format"}
    assert {*xtuner.DISTRIBUTED, *xtuner.SINGLE} == set(package["subcommands"]) - printing
    assert set(xtuner.READS) == set(package["variables"])
    assert package["scripts"] == {"xtuner": "xtuner"}  # of which `-c` calls `cli`


def test_the_drivers_of_ray_are_those_that_the_packages_have() -> None:
    packaged = {*PACKAGES["verl"]["drivers"], *PACKAGES["openrlhf"]["drivers"]}
    releases = tuple(f"{name} {PACKAGES[name]['version']}" for name in ("verl", "openrlhf"))
    own = {module for module, source in ray.DRIVERS.items() if source.startswith(releases)}
    assert own == packaged - {"verl.utils.debug.trajectory_tracker"}  # an example of its use
