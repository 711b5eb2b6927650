"""Ranks that are forks of one process, each compared with `python PROGRAM`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
from support import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

STARTER = REPOSITORY / "safelaunch" / "runtime" / "ranks" / "start_ranks.py"
SHARED = "import os\nPID = os.getpid()\n"


class Ended(NamedTuple):
    """How ranks ended, and what they wrote."""

    code: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shared.py").write_text(SHARED)
    return tmp_path


def environment() -> dict[str, str]:
    removed = ("SAFELAUNCH_", "PYTHON", "RANK", "LOCAL_RANK")
    return {name: value for name, value in os.environ.items() if not name.startswith(removed)}


def run(folder: Path, program: str, *words: str, preload: str = "shared", ranks: int = 2) -> Ended:
    (folder / "train.py").write_text(program)
    starter = [sys.executable, "-u", str(STARTER), f"--ranks={ranks}", "--grace=0"]
    argv = [*starter, f"--preload={preload}", "--", sys.executable, "-u", *(words or ["train.py"])]
    result = subprocess.run(
        argv, cwd=folder, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    return Ended(result.returncode, result.stdout, result.stderr)


def test_a_module_is_imported_once_for_all_ranks(folder: Path) -> None:
    shown = "(shared.PID, b'another' * (os.getpid() != shared.PID))"
    program = f"import os, shared\nos.write(1, b'%d %s\\n' % {shown})"
    ended = run(folder, program)
    first, second = sorted(ended.out.splitlines())
    assert first == second
    assert first.endswith("another")


def test_each_rank_has_its_number(folder: Path) -> None:
    names = "('RANK', 'LOCAL_RANK', 'ROLE_RANK')"
    program = f"import os\nos.write(1, ' '.join(os.environ[n] for n in {names}).encode() + b'\\n')"
    assert sorted(run(folder, program).out.splitlines()) == ["0 0 0", "1 1 1"]


LOOK = """
import json, sys
shown = ("__name__", "__file__", "__package__", "__spec__", "__doc__")
names = {n: str(globals()[n]) for n in shown}
print(json.dumps([sys.argv, sys.path[0], names, sys.modules["__main__"].__dict__ is globals()]))
"""


@pytest.mark.parametrize("words", [["train.py", "--lr", "1", ""], ["./train.py"]], ids=str)
def test_a_script_sees_what_python_shows_it(folder: Path, words: list[str]) -> None:
    ended = run(folder, LOOK, *words, ranks=1)
    plain = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment(), capture_output=True, check=True
    )
    assert json.loads(ended.out) == json.loads(plain.stdout)


def test_a_module_is_the_main_module(folder: Path) -> None:
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text("import sys\nprint(__name__, __package__, sys.argv)")
    ended = run(folder, "", "-m", "package.train", "--lr", "1", ranks=1)
    assert ended.out == f"__main__ package ['{package / 'train.py'}', '--lr', '1']\n"


def test_a_class_of_the_script_can_be_pickled(folder: Path) -> None:
    program = "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)"
    assert run(folder, program, ranks=1).out == "True\n"


def test_each_rank_draws_other_random_numbers(folder: Path) -> None:
    ended = run(
        folder, "import os, random\nos.write(1, b'%r\\n' % random.random())", preload="random"
    )
    first, second = ended.out.splitlines()
    assert first != second


def test_an_uncaught_exception_is_shown_without_frames_of_safelaunch(folder: Path) -> None:
    ended = run(folder, "def f():\n    raise KeyError('x')\nf()\n", ranks=1)
    files = [line.split('"')[1] for line in ended.err.splitlines() if line.startswith("  File")]
    assert files == [str(folder / "train.py")] * 2
    assert ended.err.endswith("KeyError: 'x'\n")
    assert ended.code == 1


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('text')", 1),
        ("import os; os._exit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
        ("raise KeyboardInterrupt", 128 + signal.SIGINT),
        ("pass", 0),
    ],
)
def test_the_exit_code_is_that_of_the_program(folder: Path, program: str, code: int) -> None:
    assert run(folder, program, ranks=1).code == code


def test_functions_of_atexit_run(folder: Path) -> None:
    program = "import atexit\natexit.register(print, 'end')"
    assert run(folder, program, ranks=1).out == "end\n"


REFUSED = {
    "thread": (
        "import threading as t\nt.Thread(target=t.Event().wait, args=(60,), daemon=True).start()",
        "an import has started 1 thread",
    ),
    "connection": ("import socket\ns = socket.socket()", "an import has opened a connection"),
    "random numbers": ("import random\nrandom.seed(1)", "drawn or seeded random numbers"),
    "error": ("1/0", "`shared` cannot be imported (ZeroDivisionError"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_fork_would_lose_lets_each_rank_import_for_itself(folder: Path, kind: str) -> None:
    source, reason = REFUSED[kind]
    (folder / "shared.py").write_text(source)
    ended = run(folder, "import os\nos.write(1, b'ran\\n')")
    assert "safelaunch: each rank imports for itself, no preload: " in ended.err
    assert reason in ended.err
    assert ended.out == "ran\n" * 2
    assert ended.code == 0


def test_an_open_file_is_no_reason(folder: Path) -> None:
    (folder / "shared.py").write_text("import os\nf = open(os.devnull)\nPID = 1")
    assert run(folder, "import shared", ranks=1).err == ""


def test_the_modules_of_the_project_are_found(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "own.py").write_text("import os\nPID = os.getpid()")
    (folder / "src" / "train.py").write_text("import os, own\nprint(own.PID != os.getpid())")
    ended = run(folder, "", "src/train.py", preload="own", ranks=1)
    assert (ended.out, ended.err) == ("True\n", "")
