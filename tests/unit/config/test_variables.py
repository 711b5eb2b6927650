"""`vars:` of a job: values in its keys, word by word, and what is refused at which place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.api import plan as api_plan
from safelaunch.cli.lint.job_files import check_job
from safelaunch.config.resolve import Flags, resolve_file, resolve_steps
from safelaunch.errors import ConfigError
from safelaunch.plan.build import make_plan
from safelaunch.plan.serialize import plan_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HEAD = "launcher: python\nscript: t.py\nprofile: cpu\n"


def words(folder: Path, text: str, *sets: str) -> list[str]:
    """Return the words of a program behind its script."""
    argv: list[str] = node(folder, text, *sets)["argv"]
    return argv[2:]


def node(folder: Path, text: str, *sets: str, smoke: bool = False) -> dict[str, Any]:
    (folder / "t.py").touch()
    (folder / "job.yaml").write_text(text)
    resolved = resolve_file("job.yaml", Flags(sets=sets, smoke=smoke), str(folder))
    nodes: list[dict[str, Any]] = plan_json(make_plan(resolved))["nodes"]
    return nodes[0]


def refused(folder: Path, text: str, *sets: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        node(folder, text, *sets)
    return caught.value


JOB = HEAD + 'vars: {x: null}\nargs: ["{vars.x}", "a{vars.x}b"]\n'


@pytest.mark.parametrize(
    "value",
    ["", "a b", "-x", "--x=1", "null", "~", "true", "[1, 2]", "{a: b}", "{vars.x}", "$HOME", "*",
     "'", '"', "\\", "a\nb", "1e-3", "ä", "a=b", "{assets.x}", "#", ": "],
)  # fmt: skip
def test_a_value_is_one_word_whatever_is_in_it(value: str, tmp_path: Path) -> None:
    assert words(tmp_path, JOB, f"vars.x={value}") == [value, f"a{value}b"]


def test_a_list_is_as_many_words_as_it_has(tmp_path: Path) -> None:
    text = HEAD + 'vars: {x: []}\nargs: [a, "{vars.x}", b]\n'
    assert words(tmp_path, text) == ["a", "b"]
    assert words(tmp_path, text, "vars.x=[--lr, 1e-3, '', 'c d', \"null\"]") == [
        *("a", "--lr", "1e-3", "", "c d", "null", "b"),
    ]
    in_mapping = HEAD + 'vars: {x: [1, 2]}\nargs: {sizes: "{vars.x}"}\n'
    assert words(tmp_path, in_mapping) == ["--sizes", "1", "2"]


def test_a_value_in_a_mapping_of_options_is_a_word_and_no_switch(tmp_path: Path) -> None:
    text = HEAD + 'vars: {x: true}\nargs: {flag: "{vars.x}"}\n'
    assert words(tmp_path, text) == ["--flag", "true"]
    assert words(tmp_path, text, "vars.x=false") == ["--flag", "false"]


def test_numbers_switches_and_paths_may_be_variables(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "t.py").touch()
    text = (
        'launcher: torchrun\nscript: "{vars.s}.py"\nprofile: cpu\nworkdir: "{vars.d}"\n'
        'vars: {n: null, s: t, d: sub}\nprocesses: "{vars.n}"\ncapture: "{vars.c}"\n'
        'env: {N: "{vars.n}", M: "x{vars.s}"}\n'
    ).replace("d: sub}", "d: sub, c: false}")
    planned = node(tmp_path, text, "vars.n=3")
    assert planned["argv"][planned["argv"].index("--nproc_per_node") + 1] == "3"
    assert planned["cwd"] == str(tmp_path / "sub")
    assert (planned["env"]["N"]["value"], planned["env"]["M"]["value"]) == ("3", "xt")
    error = refused(tmp_path, text, "vars.n=two")
    assert "`vars.n`: expected a whole number of at least 1, got `two`" in error.message


def test_all_values_that_are_missing_are_named_at_once(tmp_path: Path) -> None:
    text = (
        HEAD + 'vars:\n  a: null\n  b:\n  c: 1\n  d: null\nargs: ["{vars.b}", "{vars.a}{vars.c}"]\n'
    )
    error = refused(tmp_path, text)
    assert error.message == "no value for `vars.b`, `vars.a` (also at job.yaml:5:6)"
    assert (str(error.where), error.hint) == (
        "job.yaml:6:5",
        "--set vars.b=VALUE --set vars.a=VALUE",
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('vars: {x: 1}\nargs: ["{vars.y}"]', "no variable `y` in `vars`"),
        ('vars: {x: [a]}\nargs: ["--x={vars.x}"]', "is a list, and stands inside of a word"),
        ('vars: {x: [a]}\nenv: {A: "{vars.x}"}', "expected"),
        ('vars: {x: 1}\nsetup: ["echo {vars.x}"]', "in `setup` is not replaced"),
        ("vars: {x: 1}\nargs: [{vars.x}]", "`{vars.x}` without quotes is a mapping"),
        ("vars: {x y: 1}", "is no name of a variable"),
        ("vars: {hf_token: null}", "a secret is no variable of a job"),
        ("vars: {x: {default: 1, typ: word}}", "unknown key `typ`"),
        ('vars: {x: {default: "a b", type: word}}', "has `type: word`"),
        ("vars: {x: {default: '', type: nonempty}}", "`vars.x` is empty"),
        ("vars: [x]", "expected a mapping of names to values"),
        ('vars: {x: 1}\nargs: {"{vars.x}": 1}', "in a name is not replaced"),
    ],
)
def test_what_cannot_be_is_refused(keys: str, message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, f"{HEAD}{keys}\n").message


def test_what_is_set_keeps_the_type_of_its_variable(tmp_path: Path) -> None:
    text = HEAD + 'vars: {x: {default: null, type: word}, y: []}\nargs: ["{vars.x}", "{vars.y}"]\n'
    assert words(tmp_path, text, "vars.x=a", "vars.y=[b]") == ["a", "b"]
    assert "has `type: word`" in refused(tmp_path, text, "vars.x=a b").message
    assert refused(tmp_path, text, "vars.x=a", "vars.y=b").hint == "--set 'vars.y=[b]'"
    (tmp_path / "base.yaml").write_text(text)
    child = 'extends: base.yaml\nvars: {x: "a*"}\n'
    assert "has `type: word`" in refused(tmp_path, child).message
    error = refused(tmp_path, text, "vars.z=1")
    assert "no variable `z` in `vars`" in error.message


def test_a_job_without_variables_keeps_such_words(tmp_path: Path) -> None:
    text = HEAD + 'args: ["{vars.x}", "${vars.y}"]\n'
    assert words(tmp_path, text) == ["{vars.x}", "${vars.y}"]
    with_block = HEAD + 'vars: {x: 1}\nargs: ["{vars.x}", "${vars.y}"]\n'
    assert words(tmp_path, with_block) == ["1", "${vars.y}"]


def test_a_smoke_run_may_set_them(tmp_path: Path) -> None:
    text = JOB + "smoke: {vars: {x: small}, args: ['{vars.x}']}\n"
    assert node(tmp_path, text, smoke=True)["argv"][2:] == ["small"]
    assert "no value for `vars.x`" in refused(tmp_path, text).message


def steps(folder: Path, text: str, *sets: str) -> list[Sequence[str]]:
    (folder / "t.py").touch()
    (folder / "job.yaml").write_text(text)
    resolved = resolve_steps("job.yaml", Flags(sets=sets), str(folder))[1]
    return [step.resolved.job.args.words for step in resolved]


def test_steps_have_the_variables_of_the_file_and_their_own(tmp_path: Path) -> None:
    text = HEAD + (
        "vars: {x: null, y: 1}\nsteps:\n  a: {args: ['{vars.x}', '{vars.y}']}\n"
        "  b: {vars: {y: 2, z: 3}, args: ['{vars.y}{vars.z}'], processes: '{vars.y}',"
        " launcher: torchrun}\n"
    )
    assert steps(tmp_path, text, "vars.x=v") == [("v", "1"), ("23",)]
    assert steps(tmp_path, text, "vars.x=v", "vars.z=5") == [("v", "1"), ("25",)]
    assert steps(tmp_path, text, "vars.x=v", "steps.a.vars.y=7") == [("v", "7"), ("23",)]
    with pytest.raises(ConfigError, match="no variable `q`"):
        steps(tmp_path, text, "vars.x=v", "vars.q=1")


def test_services_have_the_variables_of_the_job_and_their_own(tmp_path: Path) -> None:
    text = HEAD + (
        "vars: {x: null, y: 1}\nargs: ['{vars.x}']\nservices:\n"
        "  s: {vars: {y: 2}, launcher: command, command: [serve, '{vars.x}', '{vars.y}'],"
        " ready: {http: '/{vars.x}'}}\n"
    )
    (tmp_path / "t.py").touch()
    (tmp_path / "job.yaml").write_text(text)
    for sets, y in (((), "2"), (("vars.y=9",), "9")):
        resolved = resolve_file("job.yaml", Flags(sets=("vars.x=v", *sets)), str(tmp_path))
        (service,) = resolved.services
        assert service.resolved.job.command == ("serve", "v", y)
        assert service.keys["ready"].http == "/v"


def test_the_api_takes_them_as_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").touch()
    (tmp_path / "job.yaml").write_text(JOB)
    assert [str(w) for w in api_plan("job.yaml", sets=["vars.x=a b"]).nodes[0].argv][-2:] == [
        *("a b", "aa bb"),
    ]


def test_lint_names_variables_that_are_not_used_or_not_declared(tmp_path: Path) -> None:
    (tmp_path / "t.py").touch()
    file = tmp_path / "job.yaml"

    def findings() -> list[tuple[int, str, str]]:
        job = check_job(str(file), "job.yaml", None, str(tmp_path))
        assert job.error is None
        return [(f.line, f.message, f.severity) for f in job.variables or ()]

    file.write_text(HEAD + 'vars: {x: null, n: 1}\nargs: ["{vars.x}"]\nprocesses: "{vars.n}"\n')
    assert findings() == []
    file.write_text(HEAD + "vars: {x: null}\n")
    assert findings() == [(4, "`{vars.x}` is not used in this job", "note")]
    file.write_text(HEAD + 'args: ["{vars.x}"]\n')
    assert findings() == [(4, "`{vars.x}` stays as it is: the job has no `vars`", "warning")]
