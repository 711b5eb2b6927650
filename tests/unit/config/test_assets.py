"""`assets:` of a job: where they lie, the words that name them, and what is refused."""

from __future__ import annotations

import ntpath
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from pathspec import GitIgnoreSpec
from support.project import Project

from safelaunch.config import assets as assets_module
from safelaunch.config import paths as paths_module
from safelaunch.config.assets import windows_path
from safelaunch.config.paths import Paths
from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.config.yaml_io.reader import parse
from safelaunch.model import Placed, Plan, Slot, text
from safelaunch.plan.build import bind, make_plan
from safelaunch.plan.serialize import freeze, plan_json, thaw

if TYPE_CHECKING:
    from pathlib import Path

AWAY = Flags(remote=True, hosts=("gpu1",))
SCRIPT = "launcher: torchrun\nprocesses: 2\nscript: train.py\n"
JOB = f"{SCRIPT}assets:\n  base: models/Qwen2-7B\n  data: {{path: /data/c4.bin, to: /big/c4.bin}}\n"
PUSHED = "<home>/safelaunch/assets"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "llm")


def placed(project: Project, text: str, flags: Flags = AWAY) -> dict[str, Placed]:
    node = project.plan(text, flags).nodes[0]
    return {asset.name: asset for asset in node.assets}


# -- where they lie


def test_on_this_machine_an_asset_is_used_where_it_lies(project: Project) -> None:
    assets = placed(project, JOB, Flags())
    local = f"{project.folder}/models/Qwen2-7B"
    assert (assets["base"].path, assets["base"].place) == (local, local)
    assert assets["data"].place == "/data/c4.bin"


def test_on_a_host_it_lies_where_push_puts_it_unless_the_job_says_where(project: Project) -> None:
    assets = placed(project, JOB)
    assert assets["base"].path == f"{project.folder}/models/Qwen2-7B"
    assert str(assets["base"].place) == f"{PUSHED}/Qwen2-7B"
    assert assets["data"].place == "/big/c4.bin"


@pytest.mark.parametrize(
    ("workdir", "place"),
    [("", "<home>/safelaunch/llm/data/x"), ("workdir: sub\n", "<home>/safelaunch/llm/sub/data/x")],
)
def test_a_relative_place_is_below_the_working_directory_there(
    project: Project, workdir: str, place: str
) -> None:
    (project.folder / "sub").mkdir()
    (project.folder / "sub" / "train.py").touch()
    text = f"{SCRIPT}{workdir}assets: {{x: {{path: x, to: data/x}}}}\n"
    assert str(placed(project, text)["x"].place) == place


def test_a_path_starts_at_the_file_that_says_it(project: Project) -> None:
    project.write(f"{SCRIPT}assets: {{base: {{path: m/a, to: /a}}, old: m/b}}\n", "lib/base.yaml")
    text = "extends: lib/base.yaml\nassets:\n  base: {to: /b}\n  old: null\n  own: m/c\n"
    assets = placed(project, text)
    assert assets["base"].path == f"{project.folder}/lib/m/a"
    assert assets["base"].place == "/b"
    assert str(assets["base"].origin) == "lib/base.yaml:4:23"
    assert assets["own"].path == f"{project.folder}/m/c"
    assert "old" not in assets


def test_a_flag_replaces_or_takes_away(project: Project) -> None:
    flags = AWAY._replace(sets=("assets.base=other/Base", "assets.data=null"))
    assets = placed(project, JOB, flags)
    assert list(assets) == ["base"]
    assert assets["base"].path == f"{project.folder}/other/Base"
    assert str(assets["base"].origin) == "--set assets.base"


def test_a_flag_changes_one_part(project: Project) -> None:
    assets = placed(project, JOB, AWAY._replace(sets=("assets.data.to=/x/c4.bin",)))
    assert (assets["data"].path, assets["data"].place) == ("/data/c4.bin", "/x/c4.bin")


def test_assets_are_below_the_home_folder_of_each_host(project: Project) -> None:
    project.write(f'{JOB}args: {{m: "{{assets.base}}"}}\nnodes: 2\n')
    flags = Flags(remote=True, hosts=("a", "b"))
    plan = make_plan(resolve_file("job.yaml", flags, str(project.folder)))
    assert str(plan.nodes[1].assets[0].place) == f"{PUSHED}/Qwen2-7B"
    for rank, home in enumerate(("/home/me", "/root")):
        node = bind(plan, {Slot.HOME: home}).nodes[rank]
        assert node.argv[-1] == node.assets[0].place == f"{home}/safelaunch/assets/Qwen2-7B"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("/mnt/d/models/q", "D:/models/q"),
        ("/mnt/d", "D:/"),
        ("models/q", "models/q"),
        ("D:\\models", "D:\\models"),
        ("/mnt/data/q", "/mnt/data/q"),
    ],
)
def test_a_drive_as_wsl_shows_it_is_the_drive_on_windows(written: str, expected: str) -> None:
    assert windows_path(written) == expected


@pytest.mark.parametrize(
    ("written", "path", "name"),
    [
        ("D:\\models\\Qwen", "D:\\models\\Qwen", "Qwen"),
        ("D:/models/Qwen", "D:\\models\\Qwen", "Qwen"),
        ("/mnt/d/models/Qwen", "D:\\models\\Qwen", "Qwen"),
        ("models/Qwen", "C:\\llm\\models\\Qwen", "Qwen"),
        ("\\\\nas\\share\\Qwen", "\\\\nas\\share\\Qwen", "Qwen"),
    ],
)
def test_a_windows_machine_brings_what_its_paths_say(
    monkeypatch: pytest.MonkeyPatch, written: str, path: str, name: str
) -> None:
    windows = SimpleNamespace(path=ntpath, sep="\\")
    monkeypatch.setattr(paths_module, "os", windows)
    monkeypatch.setattr(assets_module, "os", windows)
    paths = Paths("C:\\llm", "C:\\llm", "C:\\llm", text(Slot.PROJECT))
    tree = parse(f"assets: {{a: '{written}'}}", "job.yaml")
    (placed,) = assets_module.place_assets(tree, paths, remote=True)
    assert (placed.path, str(placed.place)) == (path, f"<home>/safelaunch/assets/{name}")
    inside = written.startswith("models")
    assert assets_module.ignore_patterns([placed], paths) == (("/models/Qwen",) if inside else ())


# -- the words that name them


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('args: {model: "{assets.base}"}', ["--model", f"{PUSHED}/Qwen2-7B"]),
        ('args: {model: ["{assets.base}/a", b]}', ["--model", f"{PUSHED}/Qwen2-7B/a", "b"]),
        ('args: [--m, "{assets.base}"]', ["--m", f"{PUSHED}/Qwen2-7B"]),
        ('args: ["d={a: {assets.base}, b: {assets.data}}"]',
         [f"d={{a: {PUSHED}/Qwen2-7B, b: /big/c4.bin}}"]),
        ("args: ['{\"a\": {\"assets.base\": 1}}']", ['{"a": {"assets.base": 1}}']),
        ("args: ['x=${assets.base}']", ["x=${assets.base}"]),
    ],
)  # fmt: skip
def test_a_name_is_replaced_in_args(project: Project, keys: str, words: list[str]) -> None:
    assert project.words(f"{JOB}{keys}\n", AWAY) == words


def test_a_name_is_replaced_in_the_other_keys(project: Project) -> None:
    node = project.plan(
        f"{JOB}"
        'launcher_args: {log_dir: "{assets.base}/logs"}\n'
        'args: {a: 1}\nrecovery: {resume_args: {resume: "{assets.base}"}}\n'
        'env: {HF_HOME: "{assets.data}/hf", LD_LIBRARY_PATH: {prepend: ["{assets.base}/lib"]}}\n',
        AWAY,
    ).nodes[0]
    assert f"{PUSHED}/Qwen2-7B/logs" in map(str, node.argv)
    assert str((node.resume_argv or ("",))[-1]) == f"{PUSHED}/Qwen2-7B"
    assert node.env["HF_HOME"].value == "/big/c4.bin/hf"
    assert str(node.env["LD_LIBRARY_PATH"].value) == f"{PUSHED}/Qwen2-7B/lib"


def test_a_name_is_replaced_in_a_command(project: Project) -> None:
    text = 'launcher: command\ncommand: [cat, "{assets.base}"]\nassets: {base: a/b}\n'
    assert project.node(text, Flags()).argv == ("cat", f"{project.folder}/a/b")


def test_a_smoke_run_may_name_them(project: Project) -> None:
    text = f'{JOB}smoke: {{args: {{m: "{{assets.base}}"}}}}\n'
    assert project.words(text, AWAY._replace(smoke=True)) == ["--m", f"{PUSHED}/Qwen2-7B"]


def test_a_flag_may_name_them_without_quotes(project: Project) -> None:
    sets = ("args.m={assets.base}", "args.n={assets.base}/x")
    words = project.words(JOB, AWAY._replace(sets=sets))
    assert words == ["--m", f"{PUSHED}/Qwen2-7B", "--n", f"{PUSHED}/Qwen2-7B/x"]


def test_without_assets_text_stays_as_it_is(project: Project) -> None:
    assert project.words(f'{SCRIPT}args: ["{{assets.base}}"]\n', AWAY) == ["{assets.base}"]


def test_a_name_that_no_asset_has_is_refused_where_it_stands(project: Project) -> None:
    error = project.refused(f'{JOB}args: [--m, "{{assets.bse}}"]\n', AWAY)
    assert error.message == "`{assets.bse}`: no asset has that name"
    assert error.where == "job.yaml:7:13"
    assert "`base`, `data`" in error.hint


@pytest.mark.parametrize("taken", ["assets=null", "assets.base=null"])
def test_the_name_of_an_asset_that_was_taken_away_is_refused(project: Project, taken: str) -> None:
    text = f'{SCRIPT}assets: {{base: a}}\nargs: {{m: "{{assets.base}}"}}\n'
    error = project.refused(text, AWAY._replace(sets=(taken,)))
    assert (error.where, error.hint) == ("job.yaml:5:11", "this job has no assets")


@pytest.mark.parametrize(
    ("line", "column"), [("args: {m: {assets.base}}", 11), ("args: [a, {assets.base}]", 11)]
)
def test_a_name_without_quotes_is_refused_with_the_quotes(
    project: Project, line: str, column: int
) -> None:
    error = project.refused(f"{JOB}{line}\n", AWAY)
    assert "without quotes is a mapping" in error.message
    assert error.where == f"job.yaml:7:{column}"
    assert error.hint == 'write "{assets.base}"'


def test_a_path_behind_a_name_without_quotes_is_refused_with_the_quotes(project: Project) -> None:
    error = project.refused(f"{JOB}env:\n  HF_HOME: {{assets.base}}/hf\n", AWAY)
    assert str(error.where).startswith("job.yaml:8:")
    assert '"{assets.NAME}/part"' in error.hint


def test_a_name_in_a_key_that_cannot_hold_it_is_refused(project: Project) -> None:
    error = project.refused(f'{JOB}setup: ["pip install {{assets.base}}/*.whl"]\n', AWAY)
    assert error.message == "`{assets.base}` in `setup` is not replaced"
    assert error.where == "job.yaml:7:9"
    assert "to:" in error.hint


# -- what is refused


@pytest.mark.parametrize(
    ("assets", "says", "column"),
    [
        ("[models/a]", "expected a mapping of names", 9),
        ("models/a", "expected a mapping of names", 9),
        ("{a: {pth: x}}", "unknown key `pth`", 14),
        ("{a: [x]}", "expected a path", 13),
        ("{a: ''}", "an empty path", 13),
        ("{a: ~/m}", "never expanded", 13),
        ("{a: {path: x, to: /d/}}", "names a folder to put the asset in", 27),
        ("{a: {path: x, to: .}}", "names a folder to put the asset in", 27),
        ("{a: {path: x, to: 'd\\x'}}", "a backslash", 27),
        ("{a: 'D:\\m\\q'}", "is a Windows path", 13),
        ("{a: 'm\\q'}", "has a backslash", 13),
        ("{a: /}", "has no name", 13),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_stands(
    project: Project, assets: str, says: str, column: int
) -> None:
    error = project.refused(f"{SCRIPT}assets: {assets}\n", AWAY)
    assert says in error.message
    assert error.where == f"job.yaml:4:{column}"


def test_a_folder_as_the_place_is_refused_with_the_place_to_write(project: Project) -> None:
    error = project.refused(f"{SCRIPT}assets: {{a: {{path: m/q, to: /d/}}}}\n", AWAY)
    assert "`/d/q`" in error.hint


def test_two_assets_for_one_place_are_refused(project: Project) -> None:
    text = f"{SCRIPT}assets:\n  a: x/data.bin\n  b: y/data.bin\n"
    error = project.refused(text, AWAY)
    assert f"`b` and `a` would have one place on the host: {PUSHED}/data.bin" in error.message
    assert (error.where, "to:" in error.hint) == ("job.yaml:6:6", True)
    assert len(placed(project, text, Flags())) == 2


def test_one_asset_may_have_two_names(project: Project) -> None:
    text = f"{SCRIPT}assets: {{model: m/q, tokenizer: m/q}}\n"
    assert {str(asset.place) for asset in placed(project, text).values()} == {f"{PUSHED}/q"}


# -- what is said and kept


def test_the_plan_tells_name_path_place_and_origin(project: Project) -> None:
    plan = project.plan(JOB, AWAY)
    assert plan_json(plan)["nodes"][0]["assets"][1] == {
        "name": "data",
        "path": "/data/c4.bin",
        "place": "/big/c4.bin",
        "origin": "job.yaml:6:16",
    }
    assert "assets" not in plan_json(project.plan(SCRIPT, AWAY))["nodes"][0]


def test_a_recorded_plan_has_its_assets(project: Project) -> None:
    plan = project.plan(JOB, AWAY)
    again = thaw(freeze(plan))
    assert isinstance(again, Plan)
    assert again.nodes[0].assets == plan.nodes[0].assets != ()


def test_an_asset_in_the_project_does_not_travel_with_it_too(project: Project) -> None:
    text = f"{SCRIPT}sync: {{exclude: [x]}}\nassets: {{a: 'm/q [1] ', b: /elsewhere/b, c: ../c}}\n"
    excluded = project.resolve(text, AWAY).job.sync.exclude
    assert excluded[0] == "x"
    spec = GitIgnoreSpec.from_lines(excluded[1:])
    ignored = [p for p in ("m/q [1] ", "m/q 1 ", "n/m/q [1] ", "b", "c") if spec.match_file(p)]
    assert ignored == ["m/q [1] "]
    assert project.resolve(text).job.sync.exclude == ("x",)


def test_a_plan_is_made_where_an_asset_is_not_there_yet(project: Project) -> None:
    assert make_plan(project.resolve(JOB)).nodes[0].assets


def test_a_relative_place_is_in_each_hosts_own_folder_of_the_project(project: Project) -> None:
    project.write("hosts: {a: {workdir: /data/llm}, b: {workdir: ~/llm}}\n", "hosts.yaml")
    text = f'{SCRIPT}nodes: 2\nassets: {{x: {{path: x, to: in}}}}\nargs: ["{{assets.x}}/y"]\n'
    project.write(text)
    flags = Flags(remote=True, hosts=("a", "b"), hosts_file="hosts.yaml")
    plan = make_plan(resolve_file("job.yaml", flags, str(project.folder)))
    assert [str(node.argv[-1]) for node in plan.nodes] == ["/data/llm/in/y", "<home>/llm/in/y"]
    assert bind(plan, {Slot.HOME: "/root"}).nodes[1].argv[-1] == "/root/llm/in/y"
