from __future__ import annotations

import ast
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from safelaunch.analysis.python.cpu_budget import CpuBudget
from safelaunch.analysis.python.libraries import Libraries, LibraryPaths
from safelaunch.analysis.python.names import Module
from safelaunch.analysis.python.trees import Trees, Unclear

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.analysis.python.names import Definition


def definition(
    folder: Path, init: str, files: dict[str, str] | None = None, seconds: float | None = None
) -> Definition | None:
    """Return what `from lib import Config` is, in a package with these files."""
    for name, text in {"__init__": init, **(files or {})}.items():
        path = folder / "lib" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    tree = ast.parse("from lib import Config\nConfig\n")
    paths = LibraryPaths((str(folder),))
    libraries = Libraries(Trees(), lambda: paths, CpuBudget(seconds))
    return libraries.resolve(Module("train.py", tree), tree.body[1].value)  # type: ignore[attr-defined]


REEXPORTS = {
    "the class itself": "class Config: ...",
    "an import": "from .inner import Config",
    "a name of its own": "from .inner import Config as Config, other",
    "for type checkers": """
        if TYPE_CHECKING:
            from .inner import (
                A,  # (x)
                Config,
            )
    """,
    "twice the same": """
        from .inner import Config
        if TYPE_CHECKING:
            from lib.inner import Config
    """,
    "by its full name": "from lib.inner import Config",
    "continued": "from .inner import A, \\\n    Config",
}


@pytest.mark.parametrize("init", REEXPORTS.values(), ids=REEXPORTS)
def test_a_class_is_read_through_a_reexport(tmp_path: Path, init: str) -> None:
    result = definition(tmp_path, init, {"inner": "class A: ...\nclass Config:\n    x: int = 1\n"})
    assert result is not None
    assert result.node.name == "Config"


UNCLEAR = {
    "one of two": """
        try:
            from .inner import Config
        except ImportError:
            from .other import Config
    """,
    "not there": "from .inner import Missing as Config2",
    "a circle": "from . import Config",
    "a function": "def Config(): ...",
    "defined twice": "if x:\n    class Config: ...\nelse:\n    class Config: ...",
    "broken": "from .inner import (Config",
    "broken with comments": "from .inner import (Config,\n" + "# a b c d\n" * 200,
    "in a string": "text = 'Config'",
}


@pytest.mark.parametrize("init", UNCLEAR.values(), ids=UNCLEAR)
def test_a_class_that_is_not_certain_is_none(tmp_path: Path, init: str) -> None:
    files = {"inner": "class Config:\n    x: int\n", "other": "class Config:\n    y: int\n"}
    assert definition(tmp_path, init, files) is None


def test_lines_are_those_of_the_file_though_functions_are_left_out(tmp_path: Path) -> None:
    function = "def f(\n    x,\n) -> int:\n    return 1\n\n"
    text = f"{function}class Config:\n    def g(self):\n        x\n\n    x: int = 1\n"
    result = definition(tmp_path, text)
    assert result is not None
    assert [node.lineno for node in result.node.body] == [7, 10]


def test_a_string_that_looks_like_a_function_hides_no_field(tmp_path: Path) -> None:
    docstring = '    """\n    def f(x):\n        """\n'
    text = f'class Config:\n{docstring}    x: int = 1\n    y = """\n    def g():\n  """\n'
    result = definition(tmp_path, text)
    assert result is not None
    assert any(isinstance(node, ast.AnnAssign) for node in result.node.body)


def test_spent_time_makes_it_unclear(tmp_path: Path) -> None:
    with pytest.raises(Unclear, match="time limit"):
        definition(tmp_path, "class Config: ...", seconds=-1.0)
