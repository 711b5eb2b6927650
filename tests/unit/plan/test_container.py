"""The container of a plan: whose keys count, what it sees, and the command that is printed."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.errors import ConfigError
from safelaunch.plan.build import make_plan
from safelaunch.plan.container import printed_words
from safelaunch.plan.serialize import freeze, plan_json, thaw
from safelaunch.script import engine_line

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import Container, NodePlan


def node(
    folder: Path,
    container: object,
    host: dict[str, Any] | None = None,
    flags: Flags | None = None,
    **keys: object,
) -> NodePlan:
    """Return the node of a job with a container, on a host with an entry of its own."""
    job = {"launcher": "python", "script": "t.py", **keys}
    if container is not None:
        job["container"] = container
    (folder / "t.py").touch()
    (folder / "pyproject.toml").touch()
    (folder / "t.yaml").write_text(json.dumps(job))
    (folder / "hosts.yaml").write_text(json.dumps({"hosts": {"localhost": host or {}}}))
    flags = (flags or Flags())._replace(hosts_file="hosts.yaml")
    return make_plan(resolve_file("t.yaml", flags, str(folder))).nodes[0]


def block(folder: Path, container: object, *more: Any, **keys: Any) -> Container:
    container = node(folder, container, *more, **keys).container
    assert container is not None
    return container


def mounts(container: Container) -> list[tuple[str, str, bool]]:
    return [(str(m.source), str(m.place), m.read_only) for m in container.mounts]


# -- whose keys count


def test_a_plain_word_is_the_image(tmp_path: Path) -> None:
    assert block(tmp_path, "torch:2").image == "torch:2"


def test_a_job_lies_over_its_host_key_by_key(tmp_path: Path) -> None:
    host = {"container": {"image": "host:1", "engine": "podman", "mounts": ["/data"]}}
    merged = block(tmp_path, {"image": "job:2", "mounts": ["/more"]}, host)
    assert (merged.image, merged.engine) == ("job:2", "podman")
    assert [m for m in mounts(merged) if m[0] in ("/data", "/more")] == [
        ("/data", "/data", False),
        ("/more", "/more", False),
    ]


@pytest.mark.parametrize("off", [("off", Flags()), (None, Flags(container="off"))])
def test_off_runs_the_job_without_the_hosts_container(
    tmp_path: Path, off: tuple[str | None, Flags]
) -> None:
    assert node(tmp_path, off[0], {"container": "host:1"}, off[1]).container is None


def test_the_option_changes_the_image_alone(tmp_path: Path) -> None:
    changed = block(tmp_path, {"image": "a:1", "shm": "1GiB"}, None, Flags(container="b:2"))
    assert (changed.image, changed.shm) == ("b:2", 1 << 30)


def test_the_hosts_interpreter_and_setup_do_not_count_in_a_container(tmp_path: Path) -> None:
    host = {"container": "host:1", "python": "/opt/env/bin/python", "setup": ["module load cuda"]}
    planned = node(tmp_path, None, host)
    assert (planned.interpreter.path, planned.setup) == (None, ())


def test_a_container_without_an_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without an image"):
        node(tmp_path, {"engine": "docker"})


def test_a_container_inside_a_slurm_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="after its end"):
        node(tmp_path, "torch:2", None, Flags(engine="slurm"), profile="cpu")


SLURM = Flags(engine="slurm")
IN_SLURM = [
    ("apptainer", "torch:2", "hint: docker://torch:2"),
    ("apptainer", "images/a.sif", "absolute path"),
    ("apptainer", "docker://torch:2", "apptainer pull /SHARED/NAME.sif docker://torch:2"),
    ("pyxis", "nvcr.io/a:1", "enroot import -o /SHARED/NAME.sqsh docker://nvcr.io/a:1"),
    ("pyxis", "/images/a.sif", "`engine: apptainer`"),
    ("charliecloud", "torch:2", "ch-image pull torch:2"),
]


@pytest.mark.parametrize(("engine", "image", "words"), IN_SLURM)
def test_an_image_that_a_tool_of_a_cluster_does_not_take_is_refused(
    tmp_path: Path, engine: str, image: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        node(tmp_path, {"engine": engine, "image": image}, None, SLURM, profile="cpu")
    assert words in f"{caught.value.message} hint: {caught.value.hint}"
    assert "t.yaml:1:" in str(caught.value.where)


@pytest.mark.parametrize(
    ("engine", "keys", "words"),
    [
        ("apptainer", {"mounts": ["/a,b"]}, "cannot mount /a,b"),
        ("charliecloud", {"mounts": ["/a:/a:ro"]}, "for reading only"),
        ("pyxis", {"shm": "8GiB"}, "/dev/shm is that of the machine"),
    ],
)
def test_what_a_tool_of_a_cluster_cannot_do_is_refused(
    tmp_path: Path, engine: str, keys: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        node(tmp_path, {"engine": engine, "image": "/i", **keys}, None, SLURM, profile="cpu")


def test_a_tool_of_a_cluster_is_refused_without_slurm(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="inside of a Slurm job alone"):
        node(tmp_path, {"engine": "apptainer", "image": "/a.sif"})


def test_an_image_may_be_fetched_where_the_job_says_so(tmp_path: Path) -> None:
    keys = {"engine": "pyxis", "image": "nvcr.io/a:1", "pull": "missing", "user": "root"}
    words = printed_words(node(tmp_path, keys, None, SLURM, profile="cpu"))
    assert {"--container-image=nvcr.io/a:1", "--container-remap-root"} <= set(words)


def test_kubernetes_has_an_image_of_its_own(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"kubernetes": {"image": "b:2", "workdir": "/w"}, "profile": "cpu"}
    keys |= {"script": "t.py", "env_from": []}
    assert node(tmp_path, "a:1", None, Flags(engine="kubernetes"), **keys).container is None


@pytest.mark.parametrize(
    ("option", "hint"), [("--user=0", "user: root"), ("--rm", "to its end"), ("--ipc", "shm: host")]
)
def test_an_option_that_the_plan_has_is_refused(tmp_path: Path, option: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        node(tmp_path, {"image": "a:1", "options": ["--memory=2g", option]})
    assert hint in (caught.value.hint or "")


# -- what it sees


def test_it_sees_project_inputs_and_runs_at_the_same_paths(tmp_path: Path) -> None:
    visible = mounts(block(tmp_path, "a:1", inputs=["/data/set", "/models/*/w.pt", "local.csv"]))
    assert visible == [
        (str(tmp_path), str(tmp_path), False),
        ("/data/set", "/data/set", True),
        ("/models", "/models", True),
        *[(f"<safelaunch-home>/{name}",) * 2 + (False,) for name in ("container-home", "runs")],
    ]


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("/data", ("/data", "/data", False)),
        ("/data:ro", ("/data", "/data", True)),
        ("/a:/b:ro", ("/a", "/b", True)),
        ("~/c", ("<home>/c", "<safelaunch-home>/container-home/c", False)),
        ("~/c:/c", ("<home>/c", "/c", False)),
    ],
)
def test_a_mount_is_read(tmp_path: Path, text: str, mount: tuple[str, str, bool]) -> None:
    assert mount in mounts(block(tmp_path, {"image": "a:1", "mounts": [text]}))


@pytest.mark.parametrize("text", ["", ":/b", "/a:b", "/a:/b:/c", "/a:/b:rx"])
def test_what_is_no_mount_is_refused_where_it_stands(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        node(tmp_path, {"image": "a:1", "mounts": [text]})
    assert str(caught.value.where).startswith("t.yaml:1:")


def test_the_root_folder_is_no_mount(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the image has its own"):
        node(tmp_path, {"image": "a:1", "mounts": ["/:/"]})


def test_a_folder_inside_of_another_is_mounted_once(tmp_path: Path) -> None:
    visible = mounts(block(tmp_path, {"image": "a:1", "mounts": [str(tmp_path / "x")]}))
    assert sum(source.startswith(str(tmp_path)) for source, *_ in visible) == 1


def test_a_folder_for_writing_inside_of_one_for_reading_stays(tmp_path: Path) -> None:
    visible = mounts(block(tmp_path, {"image": "a:1", "mounts": ["/d:ro", "/d/out"]}))
    assert ("/d/out", "/d/out", False) in visible


# -- the command


def test_the_printed_line_is_the_command_word_for_word(tmp_path: Path) -> None:
    container = {"image": "a:1", "mounts": ['/a "b", c'], "options": ["--memory=2g"]}
    words = printed_words(node(tmp_path, container))
    line = f"printf '%s\\0' {engine_line(words)}"
    printed = subprocess.run(["bash", "-c", line], check=True, capture_output=True).stdout
    assert printed.decode().split("\0")[:-1] == words


@pytest.mark.parametrize(
    ("engine", "accelerator", "words"),
    [
        ("docker", "a100", "--gpus all"),
        ("podman", "a100", "--device nvidia.com/gpu=all"),
        ("docker", "mi300x", "--device /dev/kfd --device /dev/dri"),
    ],
)
def test_accelerators_come_in_by_the_profile(
    tmp_path: Path, engine: str, accelerator: str, words: str
) -> None:
    container = {"image": "a:1", "engine": engine}
    line = " ".join(printed_words(node(tmp_path, container, profile=accelerator)))
    assert f" {words} " in line


def test_an_option_for_gpus_beats_the_plans(tmp_path: Path) -> None:
    container = {"image": "a:1", "options": ["--gpus=device=1"]}
    assert "--gpus" not in printed_words(node(tmp_path, container, profile="a100"))


def test_a_secret_is_in_no_word(tmp_path: Path) -> None:
    planned = node(tmp_path, "a:1", env_from=["HF_TOKEN"])
    assert not any("HF_TOKEN" in word for word in printed_words(planned))


def test_only_names_of_inherit_are_passed(tmp_path: Path) -> None:
    planned = node(tmp_path, "a:1", inherit=["NCCL_*"])
    assert (planned.passed, planned.keep) == (("NCCL_*",), None)


def test_a_plan_with_a_container_survives_its_record(tmp_path: Path) -> None:
    planned = node(tmp_path, {"image": "a:1", "mounts": ["~/c"]})
    assert thaw(json.loads(json.dumps(freeze(planned)))) == planned


def test_json_has_the_command_and_the_origin_of_each_key(tmp_path: Path) -> None:
    node(tmp_path, {"image": "a:1"})
    plan = make_plan(resolve_file("t.yaml", Flags(), str(tmp_path)))
    shown = plan_json(plan)["nodes"][0]["container"]
    assert shown["argv"][:2] == ["docker", "run"]
    assert {"key": "pull", "value": "never", "origin": "built-in"} in shown["origins"]
