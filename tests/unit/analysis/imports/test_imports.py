from __future__ import annotations

import os
import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from safelaunch.analysis.imports import stdlib
from safelaunch.analysis.imports.follow import ImportedModule, Imports, read_imports
from safelaunch.analysis.python import statements
from safelaunch.analysis.python.trees import MAX_BYTES, Trees

if TYPE_CHECKING:
    from pathlib import Path


def project(folder: Path, **files: str) -> Path:
    """Write files; `src__a` is src/a.py, `src` an empty package."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/").replace("/init", "/__init__") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return folder / "train.py"


def read(folder: Path, text: str, **files: str) -> Imports:
    return read_imports(project(folder, train=text, **files), [folder], seconds=30)


def kinds(result: Imports) -> dict[str, str]:
    return {item.name: item.kind for item in result.third_party}


def names(items: tuple[ImportedModule, ...]) -> list[str]:
    return [item.name for item in items]


def test_names_of_project_and_standard_library_are_not_needed(tmp_path: Path) -> None:
    text = "import os, json\nimport torch.nn as nn\nfrom src import model\nimport numpy as np\n"
    model = "import __main__\nfrom einops import rearrange\n"
    result = read(tmp_path, text, src__init="", src__model=model)
    assert kinds(result) == dict.fromkeys(("torch", "numpy", "einops"), "required")


def test_the_place_is_that_of_the_first_required_import(tmp_path: Path) -> None:
    text = "def f():\n    import torch\nfrom a import x\nimport torch\n"
    result = read(tmp_path, text, a="import torch\n")
    assert str(result.third_party[0].location) == f"{tmp_path}/train.py:4"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("try:\n    import x\nexcept ImportError:\n    x = None\n", "try"),
        ("try:\n    import x\nexcept (OSError, ModuleNotFoundError):\n    pass\n", "try"),
        ("try:\n    import x\nexcept:\n    pass\n", "try"),
        ("try:\n    pass\nexcept Exception:\n    import x\n", "try"),
        ("try:\n    import x\nexcept AttributeError:\n    pass\n", "required"),
        (
            "try:\n    import x\nexcept ImportError as e:\n    raise SystemExit(1) from e\n",
            "required",
        ),
        ("try:\n    pass\nfinally:\n    import x\n", "required"),
        ("import contextlib\nwith contextlib.suppress(ImportError):\n    import x\n", "try"),
        ("with open('f') as f:\n    import x\n", "required"),
        ("import sys\nif sys.platform == 'linux':\n    import x\n", "conditional"),
        ("if True:\n    import x\n", "required"),
        ("for i in range(2):\n    import x\n", "conditional"),
        ("match 1:\n    case 1:\n        import x\n", "conditional"),
        ("def f():\n    import x\n", "function"),
        ("class A:\n    import x\n", "required"),
        ("class A:\n    def f(self):\n        import x\n", "function"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import x\n", "typing"),
        ("import typing\nif not typing.TYPE_CHECKING:\n    import x\n", "required"),
        ("if __name__ == '__main__':\n    import x\n", "required"),
        ("import importlib\nm = importlib.import_module('x.y')\n", "dynamic"),
        ("m = __import__('x')\n", "dynamic"),
    ],
)
def test_an_import_is_as_needed_as_what_stands_around_it(
    tmp_path: Path, text: str, kind: str
) -> None:
    assert kinds(read(tmp_path, text)) == {"x": kind}


def test_what_runs_only_as_the_program_is_not_needed_elsewhere(tmp_path: Path) -> None:
    result = read(tmp_path, "import a\n", a="if __name__ == '__main__':\n    import x\n")
    assert result.third_party == ()


def test_a_module_that_is_imported_only_perhaps_needs_nothing_for_sure(tmp_path: Path) -> None:
    text = "try:\n    import a\nexcept ImportError:\n    pass\n"
    assert kinds(read(tmp_path, text, a="import x\n")) == {"x": "try"}


def test_relative_imports_are_followed(tmp_path: Path) -> None:
    files = {
        "src__init": "",
        "src__a__init": "from .b import f\nfrom .. import c\nfrom ..d.e import g\n",
        "src__a__b": "import one\n",
        "src__c": "import two\n",
        "src__d__e": "import three\n",
    }
    result = read(tmp_path, "from src.a import f\n", **files)
    assert sorted(kinds(result)) == ["one", "three", "two"]


def test_a_folder_without_init_is_the_projects_where_it_has_the_module(tmp_path: Path) -> None:
    result = read(tmp_path, "import wandb\nfrom parts import a\n", parts__a="import x\n")
    (tmp_path / "wandb").mkdir()  # what wandb writes its runs into
    (tmp_path / "wandb" / "run-1.log").touch()
    assert kinds(read_imports(tmp_path / "train.py", [], seconds=30)) == dict.fromkeys(
        ("wandb", "x"), "required"
    )
    assert kinds(result) == dict.fromkeys(("wandb", "x"), "required")


def test_a_compiled_module_of_the_project_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "fast.cpython-311-x86_64-linux-gnu.so").touch()
    assert read(tmp_path, "import fast\n").third_party == ()


def test_a_module_that_a_package_lacks_is_absent(tmp_path: Path) -> None:
    text = "from src.gone import f\nfrom src import attribute\nimport src.here\n"
    result = read(tmp_path, text, src__init="attribute = 1\n", src__here="from . import gone2\n")
    assert names(result.missing_submodules) == ["src.gone"]


def test_a_package_that_moves_its_path_lacks_nothing(tmp_path: Path) -> None:
    init = "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n"
    assert read(tmp_path, "import src.gone\n", src__init=init).missing_submodules == ()


def test_a_relative_import_of_a_script_is_named_and_of_a_module_is_not(tmp_path: Path) -> None:
    script = project(tmp_path, pkg__init="", pkg__train="from .a import f\n", pkg__a="import x\n")
    script = tmp_path / "pkg" / "train.py"
    assert read_imports(script, [tmp_path], seconds=30).relative_import == (str(script), 1)
    as_module = read_imports(script, [tmp_path], is_module=True, seconds=30)
    assert as_module.relative_import is None
    assert names(as_module.third_party) == ["x"]


def test_modules_that_came_or_went_are_told_apart(tmp_path: Path) -> None:
    result = read(tmp_path, "import distutils.util\nimport tomllib\nimport json\n")
    assert names(result.standard) == ["distutils", "tomllib"]
    assert stdlib.REMOVED["distutils"] == "3.12"
    assert stdlib.ADDED["tomllib"] == "3.11"
    assert result.third_party == ()


def test_this_pythons_library_is_as_the_tables_say() -> None:
    current = ".".join(map(str, sys.version_info[:2]))
    key = [int(part) for part in current.split(".")]
    for name, version in stdlib.REMOVED.items():
        removed = key >= [int(part) for part in version.split(".")]
        assert (name in sys.stdlib_module_names) is not removed or name.startswith("_"), name


@pytest.mark.parametrize(
    "line",
    [
        "sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))",
        "sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..'))",
        "sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))",
        "sys.path.append(str(pathlib.Path(__file__).parents[1]))",
        "root = os.path.dirname(__file__)\nsys.path.append(os.path.join(root, os.pardir))",
        "sys.path.extend(['..'])",
    ],
)
def test_a_folder_that_the_script_adds_is_searched(tmp_path: Path, line: str) -> None:
    text = f"import os, pathlib, sys\n{line}\nimport lib\n"
    project(tmp_path, lib="", jobs__train=text)
    cwd = str(tmp_path / "jobs")
    result = read_imports(tmp_path / "jobs" / "train.py", [], cwd=cwd, seconds=30)
    assert (result.third_party, result.path_changed) == ((), None)


def test_a_folder_that_is_not_known_is_said_so(tmp_path: Path) -> None:
    result = read(tmp_path, "import os, sys\nsys.path.append(os.environ['CODE'])\nimport lib\n")
    assert result.path_changed == (str(tmp_path / "train.py"), 2)


def shadows(result: Imports) -> list[tuple[str, bool]]:
    return [(shadow.name, shadow.location is not None) for shadow in result.shadows]


def test_a_file_that_shadows_what_torch_imports_is_named(tmp_path: Path) -> None:
    assert shadows(read(tmp_path, "import torch\n", random="x = 1\n")) == [("random", False)]


def test_a_module_that_lacks_what_is_taken_from_it_shadows(tmp_path: Path) -> None:
    files = {"datasets__init": "from .own import f\n", "datasets__own": "f = 1\n"}
    text = "from datasets import load_dataset\n"
    assert shadows(read(tmp_path, text, **files)) == [("datasets", True)]


def test_a_script_named_like_a_package_shadows_it(tmp_path: Path) -> None:
    path = tmp_path / "deepspeed.py"
    path.write_text("import deepspeed\ndeepspeed.initialize()\n")
    assert shadows(read_imports(path, [], seconds=30)) == [("deepspeed", True)]


@pytest.mark.parametrize("name", ["test", "utils", "parser", "data", "abc"])
def test_a_harmless_name_does_not_shadow(tmp_path: Path, name: str) -> None:
    assert shadows(read(tmp_path, "import torch\n", **{name: "x = 1\n"})) == []


def test_an_own_package_of_a_known_name_does_not_shadow(tmp_path: Path) -> None:
    text = "from datasets import own\nimport datasets\ndatasets.build()\n"
    files = {"datasets__init": "def build(): ...\n", "datasets__own": ""}
    assert shadows(read(tmp_path, text, **files)) == []


def test_a_folder_of_data_does_not_shadow(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    result = read(tmp_path, "import datasets\n")
    assert (shadows(result), names(result.third_party)) == ([], ["datasets"])


def test_the_script_is_read_whatever_the_limits(tmp_path: Path) -> None:
    script = project(tmp_path, train="import a, torch\n", a="import x\n")
    for limits in ({"seconds": 0.0, "most": 400}, {"seconds": 30.0, "most": 1}):
        result = read_imports(
            script, [tmp_path], seconds=limits["seconds"], max_files=int(limits["most"])
        )
        assert (names(result.third_party), result.is_complete) == (["torch"], False)


def test_imports_in_a_circle_end(tmp_path: Path) -> None:
    assert read(tmp_path, "import a\n", a="import b\n", b="import a, train\n").is_complete


BAD = {
    "syntax": b"def f(:\n",
    "python 2": b"print 'x'\nimport torch\n",
    "nul": b"import torch\0\n",
    "encoding": b"# -*- coding: no-such -*-\nimport torch\n",
    "bytes": b"\xff\xfe\x80import torch\n",
    "brackets": b"x = " + b"(" * 5000 + b")" * 5000 + b"\n",
    "sum": b"import torch\nx = " + b"1+" * 100_000 + b"1\n",
    "minus": b"x = " + b"-" * 100_000 + b"1\n",
    "chain": b"x = a" + b".b" * 100_000 + b"\n",
    "blocks": b"".join(b" " * i + b"if x:\n" for i in range(99)) + b" " * 99 + b"pass\n",
    "long": b"#" * (MAX_BYTES + 1) + b"\nimport torch\n",
    "empty": b"",
    "half string": b'import torch\ndef f():\n    """\nimport x\n',
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_no_file_makes_it_raise(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "train.py").write_text("import bad\nimport torch\n")
    (tmp_path / "bad.py").write_bytes(data)
    assert "torch" in names(read_imports(tmp_path / "train.py", [], seconds=30).third_party)
    read_imports(tmp_path / "bad.py", [], seconds=30)


def test_what_is_no_file_is_said_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "folder.py").mkdir()
    for name in ("pipe", "loop", "folder", "missing", "nu\0l"):
        assert len(read_imports(f"{tmp_path}/{name}.py", ["a\0b", ""], seconds=30).unread) == 1


def test_a_syntax_error_has_its_line(tmp_path: Path) -> None:
    assert read(tmp_path, "import os\ndef f(:\n").unread[0].location.line == 2


def test_other_encodings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes("# coding: latin-1\nx = 'é'\nimport torch\n".encode("latin-1"))
    assert names(read_imports(path, [], seconds=30).third_party) == ["torch"]


def test_the_outline_of_a_file_has_its_imports() -> None:
    library = os.path.dirname(os.__file__)
    paths = [f"{library}/{name}" for name in sorted(os.listdir(library))[:120:3]]
    for path in (path for path in paths if path.endswith(".py")):
        whole, outline = Trees().tree(path), Trees().outline(path)
        assert whole is not None
        assert outline is not None
        read_whole = statements.import_statements(whole, is_main=False, has_dynamic=False)
        read_outline = statements.import_statements(outline, is_main=False, has_dynamic=False)
        assert list(read_outline) == list(read_whole), path


@pytest.mark.parametrize(
    "text",
    [
        'def f():\n    """\nimport x\n"""\n    return 1\n',
        "def f(\n    a,\n) -> int:\n    return a\nimport x\n",
        "def f():\n    s = '''\n'''\n    return 1\nimport x\n",
        "class A:\r\n    a = 1\r\n\r\nimport x\r\n",
        "@wraps\nasync def f():\n    pass\n# comment\nimport x\n",
        "def f(): pass\nimport x",
    ],
)
def test_an_outline_equals_the_whole(tmp_path: Path, text: str) -> None:
    path = str(tmp_path / "a.py")
    (tmp_path / "a.py").write_bytes(text.encode())
    whole, outline = Trees().tree(path), Trees().outline(path)
    assert whole is not None
    assert outline is not None
    expected = list(statements.import_statements(whole, is_main=True, has_dynamic=False))
    assert list(statements.import_statements(outline, is_main=True, has_dynamic=False)) == expected
