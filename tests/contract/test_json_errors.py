"""With --json an error is one object on stdout, with a code that stays."""

from __future__ import annotations

import importlib
import json
import pkgutil
from typing import TYPE_CHECKING, Any

import pytest
from support.cli_process import safelaunch

import safelaunch as package
from safelaunch import errors
from safelaunch.cli import output
from safelaunch.errors import CODES, SafelaunchError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def classes(base: type[SafelaunchError]) -> Iterator[type[SafelaunchError]]:
    yield base
    for derived in base.__subclasses__():
        yield from classes(derived)


def error(folder: Path, *words: str, code: int = 2) -> dict[str, Any]:
    result = safelaunch(folder, *words, SAFELAUNCH_HOME=str(folder / "home"))
    [line] = result.out.splitlines()
    shown = json.loads(line)
    assert shown.keys() == {"version", "error"}
    assert (result.code, shown["version"], result.err.count("error:")) == (code, 1, 1)
    assert isinstance(shown["error"], dict)
    return shown["error"]


def test_every_error_of_the_package_has_a_code_of_the_table() -> None:
    for module in pkgutil.walk_packages(package.__path__, "safelaunch."):
        if ".runtime" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    codes = {derived.__name__: derived.code for derived in classes(SafelaunchError)}
    assert {name: code for name, code in codes.items() if code not in CODES} == {}
    assert CODES.keys() - set(codes.values()) == {"interrupted", "internal"}


def test_each_class_of_the_base_has_a_code_of_its_own() -> None:
    own = [
        c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, SafelaunchError)
    ]
    assert len({c.__dict__["code"] for c in own}) == len(own)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["show", "nothing"], "run-not-found"),
        (["show", "--nonsense"], "usage"),
        (["nonsense"], "config"),
        (["run", "--dry-run", "no.yaml"], "config"),
        (["events", "--since", "x"], "config"),
    ],
)
def test_an_error_is_an_object_with_its_code(words: list[str], code: str, tmp_path: Path) -> None:
    assert error(tmp_path, *words, "--json")["code"] == code


def test_it_says_what_where_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("launcher: python\nproceses: 2\nscript: t.py\n")
    shown = error(tmp_path, "run", "--dry-run", "--json", "bad.yaml")
    assert shown == {
        "code": "config",
        "message": "unknown key `proceses`",
        "where": "bad.yaml:2:1",
        "hint": "did you mean `processes`?",
        "exit_code": 2,
    }


def test_a_fault_of_ours_is_internal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_printed", [])
    fault = SafelaunchError("unexpected KeyError: 'x'")
    fault.exit_code = 5
    output.print_error(fault, "/tmp/details.txt")
    shown = json.loads(capsys.readouterr().out)["error"]
    assert (shown["code"], shown["details"]) == ("internal", "/tmp/details.txt")


def test_without_json_stdout_stays_empty(tmp_path: Path) -> None:
    result = safelaunch(tmp_path, "show", "nothing", SAFELAUNCH_HOME=str(tmp_path / "home"))
    assert (result.code, result.out) == (2, "")


def test_the_option_of_a_pasted_line_is_not_ours(tmp_path: Path) -> None:
    words = ["run", "--profile", "none", "--", "python", "t.py", "--json"]
    assert safelaunch(tmp_path, *words, SAFELAUNCH_HOME=str(tmp_path / "home")).out == ""
