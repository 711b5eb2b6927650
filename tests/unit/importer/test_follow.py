"""What is followed without running it is what real bash starts."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

import pytest
from support import REPOSITORY
from support.bash_launches import Call, base_environment, difference, run

from safelaunch.importer.shell.interpreter import follow
from safelaunch.importer.state import CALLER_VALUE, ScriptCaller

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.importer.findings import Findings

# each script begins with `#: name`; what it starts is asked of bash
DATA = REPOSITORY / "tests" / "data" / "scripts"


def snippets(name: str) -> dict[str, str]:
    text = (DATA / name).read_text("utf-8")
    return dict(re.findall(r"^#: (.*)\n((?:(?!#: ).*\n)*)", text, re.MULTILINE))


OTHER_SCRIPTS = {
    "sub/here.sh": 'HERE=$(dirname "${BASH_SOURCE[0]}")\nwhere() { echo "${BASH_SOURCE[*]}"; }\n',
    "fails.sh": "python fails.py\nexit 3\n",
    "false.sh": "false\npython false.py\n",
    "strict.sh": "#!/bin/bash -e\nfalse\npython strict.py\n",
    "plain": '#!/usr/bin/env bash\npython plain.py "$@"\n',
    "posix.sh": """#!/bin/sh
. ./lib.sh
if [ "$1" = x ]; then python "$@" "$FROM_LIB"; fi
export Y="$1"
python p.py
""",
    "braces.sh": "python t.py {1..3}\n",
    "equals.sh": "#!/bin/sh\nif [ a == a ]; then python a.py; else python b.py; fi\n",
    "escapes.sh": 'X=$(echo "$1")\npython t.py "$X"\n',
    "sub/get.sh": 'if [ "$1" != y ]; then mkdir -p a; else python get.py; fi\n',
    "assigns.sh": "X=5\npython assigns.py $X\n",
    "arguments-split.sh": "X='a,b c'\npython t.py $X\n",
    "arguments.sh": "set -- p q\n",
    "shifts.sh": "shift\n",
    "returns.sh": "python a.py\nreturn 5\npython b.py\n",
}
SCRIPTS, REFUSED = snippets("followed.txt"), snippets("refused.txt")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work" / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "work" / "lib.sh").write_text('hello() { python hello.py "$1"; }\nFROM_LIB=5\n')
    (tmp_path / "work" / "child.sh").write_text(
        'SET_IN_CHILD=1\npython child.py $A ${B:-none} "$@" $0 $#\n'
    )
    for name, text in OTHER_SCRIPTS.items():
        (tmp_path / "work" / name).write_text(text)
        (tmp_path / "work" / name).chmod(0o755)
    (tmp_path / "work" / "link").symlink_to("sub/deep")
    return tmp_path


def followed(script: Path, place: Path, *arguments: str, **answers: str) -> Findings:
    caller = ScriptCaller(base_environment(place), str(script.parent), arguments, answers)
    before = os.getcwd()
    os.chdir(script.parent)
    try:
        return follow(script.name, caller)
    finally:
        os.chdir(before)


def calls(findings: Findings, place: Path) -> list[Call]:
    base = base_environment(place)
    return [
        Call(
            launch.folder,
            launch.words,
            difference({**base, **with_caller(launch.env, base)}, base),
        )
        for launch in findings.launches
    ]


def with_caller(env: object, base: dict[str, str]) -> dict[str, str | None]:
    assert isinstance(env, dict)
    return {
        name: value if value is None else value.replace(CALLER_VALUE, base.get(name, ""))
        for name, value in env.items()
    }


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_starts_what_bash_starts(text: str, place: Path) -> None:
    script = place / "work" / "script.sh"
    script.write_text(text)
    findings = followed(script, place)
    assert (findings.stop, [p.reason for p in findings.problems]) == (None, [])
    assert calls(findings, place) == run(script, place)


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_a_script_does_not_say_is_refused(text: str, place: Path) -> None:
    script = place / "work" / "script.sh"
    script.write_text(text)
    findings = followed(script, place)
    assert findings.stop is not None or findings.problems


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("python t.py $DATA ${MODEL}", ["DATA", "MODEL"]),
        ("R=$(date)\npython t.py $R", ["R"]),
        ("P=$((RANDOM % 9))\nX=a-$P\npython t.py $X", ["P"]),
        ("if [ -f ckpt ]; then R=--resume; fi\npython t.py $R", ["R"]),
        ("H=$(hostname)\npython t.py $H", ["H"]),
        ("read M\npython t.py $M", ["M"]),
        ("python t.py $1 $2", ["$1", "$2"]),
        ("case $(uname) in Linux) X=1;; esac\npython t.py $X", ["X"]),
        ("case $(uname) in a) X=1;; b) X=2;; *) exit 1;; esac\npython t.py $X", ["X"]),
        ("if [ -f a ]; then X=1; elif [ -f b ]; then X=2; else exit; fi\npython t.py $X", ["X"]),
        ("if [ -f a ]; then export X=1; fi\npython t.py", ["X"]),
        ("[ -d a ] && export X=1 || export X=2\npython t.py", ["X"]),
        ("echo a | grep -q b && declare -x X=1\npython t.py", ["X"]),
        ("f() { export X=1; }\nif [ -f a ]; then f; fi\npython t.py", ["X"]),
        ("for f in conf/*; do export X=$f; done\npython t.py", ["X"]),
        ("if [ -f a ]; then echo; exit 1; elif [ -f b ]; then export X=1; fi\npython t.py", ["X"]),
        ('A=$A\nif [ -z "$A" ]; then A=o; fi\npython t.py $A', []),
        ('A="$A"\nif [ -n "$A" ]; then X="-a $A"; fi\npython t.py $X', ["X"]),
        ("A=$A\npython t.py $A", ["A"]),
        ('A=$A/x\nif [ -z "$A" ]; then A=o; fi\npython t.py $A', ["A"]),
        ('A=$A\nif [ -z "$A" ]; then echo none; fi\npython t.py $A', ["A"]),
    ],
)
def test_a_value_of_the_caller_is_asked_for_by_its_name(
    text: str, names: list[str], place: Path
) -> None:
    script = place / "work" / "script.sh"
    script.write_text(text)
    assert [problem.name for problem in followed(script, place).problems] == names


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("python t.py $X", (("X", "a b"),)),
        ("X=$(date)\npython t.py $X", ()),
        ("export X=$(date)\npython t.py $X", (("X", "a b"),)),
        ("X=${X:-3}\npython t.py $X", (("X", "a b"),)),
        ("if [ $HOME = x ]; then X=1; fi\npython t.py $X", (("X", "a b"),)),
    ],
)
def test_an_answer_is_a_value_of_the_caller(
    text: str, env: tuple[tuple[str, str], ...], place: Path
) -> None:
    script = place / "work" / "script.sh"
    script.write_text(text)
    (call,) = calls(followed(script, place, X="a b"), place)
    assert (call.words, call.env) == (("python", "t.py", "a", "b"), env)


@pytest.mark.parametrize(
    "text",
    [
        "X+=' c'\npython t.py $X",
        "X=($X c)\npython t.py ${X[@]}",
        "python u.py\nif [ -z $X ]; then X=1; fi\npython t.py $X",
        "python u.py $X\nX=5\npython t.py $X",
        "X=5 python u.py\npython t.py $X",
        "f() { local X=3; python u.py; }\nf\npython t.py $X",
    ],
)
def test_an_answer_that_is_read_is_in_the_environment_from_the_beginning(
    text: str, place: Path
) -> None:
    script, other = place / "work" / "script.sh", place / "work" / "other.sh"
    script.write_text(text)
    other.write_text(f"export X='a b'\n{text}")
    assert calls(followed(script, place, X="a b"), place) == run(other, place)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("E=$1\nif [ $E = dsw ]; then N=1; elif [ $E = dlc ]; then N=2; fi", "dsw`, `dlc"),
        ('if [[ "$1" == a || ${1:-x} != b ]]; then N=1; fi', "a`, `b"),
        ("case $1 in x|y) N=1;; -*) N=2;; *) N=3;; esac", "x`, `y"),
        ('[ "$#" -eq 1 ] && [ "$1" = on ] || exit 1', "on"),
    ],
)
def test_a_question_for_an_argument_says_what_it_is_compared_with(
    text: str, reason: str, place: Path
) -> None:
    script = place / "work" / "script.sh"
    script.write_text(f"{text}\npython t.py $1 $N")
    reasons = [problem.reason for problem in followed(script, place).problems]
    assert any(item.startswith(f"argument 1 of the script (`{reason}`)") for item in reasons)


def test_what_is_asked_for_grows_no_faster_than_its_values(place: Path) -> None:
    script = place / "work" / "script.sh"
    lines = [f'A{n + 1}="$A{n}$A{n}$B{n}"' for n in range(60)]
    script.write_text("\n".join([*lines, "python t.py $A60"]))
    names = [problem.name or "" for problem in followed(script, place).problems]
    assert sorted(names) == sorted(["A0", *(f"B{n}" for n in range(60))])


def test_an_array_that_the_script_fills_is_no_answer(place: Path) -> None:
    script = place / "work" / "script.sh"
    script.write_text("X=(1 2)\npython t.py ${X[@]}")
    (call,) = calls(followed(script, place, X="3"), place)
    assert (call.words, call.env) == (("python", "t.py", "1", "2"), ())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("if [ $1 = a ]; then N=1; fi\npython t.py $N $3 ${4:-x}", ["N", "$1", "$3"]),
        ("[ $# -eq 2 ] || exit 1\npython t.py", ["$1", "$2"]),
        ('if (($# < 2)); then exit 1; fi\nA=$1; shift\npython t.py $A "$@"', ["$1", "$2"]),
        ('[[ $1 ]] || { echo "no input"; exit 2; }\npython t.py $1 $2', ["$1", "$2"]),
        ("set -e\nA=$1; B=$2\npython t.py $B", ["$1", "$2"]),
        ('python t.py "$A-$1-$B" $C$2', ["A", "B", "C", "$1", "$2"]),
        ("A=${B}c${D:-1}$E\npython t.py $A$F", ["B", "E", "F"]),
        ("set -- a\npython t.py $1 $X $2", ["X"]),
        ('f() { python t.py $1 $3 "$X"; }\nf a', ["X"]),
        ("set -euo pipefail\n[ $# -lt 2 ] && exit 1\npython t.py $1", ["$1", "$2"]),
        ("A=${1:?usage}\npython t.py $A", ["$1"]),
        ("A=$1; shift; B=$1; shift 2\npython t.py $A $B $1", ["$1", "$2", "$4"]),
        ('f() { python t.py $1 $2; }\nf x "$@"', ["$1"]),
        ('f() { A=$1; [ -z "$A" ] && A=x; python t.py $A $2; }\nf "$@"', ["$1", "$2"]),
        ('f() { A=$1; [ -z "$A" ] && A=x; python t.py $A; }\nf "$@"', []),
        ("f() { python t.py $1; }\nf ${@:2}", []),
        ("bash -c 'python t.py $1 $2' x a $@", ["$1"]),
        ('if [ -z "${A:-}" ]; then\nexit 1\nfi\npython t.py ${B:-1} $2', ["A", "$2"]),
        ('if [ -z "$1" ]; then\necho usage\nexit\nfi\npython t.py $2', ["$1", "$2"]),
        ('[[ "$1" == "" ]] && exit 0\nC="python t.py $1"\neval $C', ["$1"]),
        (': "${A:?}" ${B?set it}\npython t.py', ["A", "B"]),
        ("export A=${A:?} C=${B:?}\npython t.py", ["A", "B"]),
        ("echo $1; shift; : ${1:?}\npython t.py", ["$1", "$2"]),
        ('A=$1; B=$2\n[ -z "$B" ] && B=4\npython t.py $A $B', ["$1"]),
        ('A=$1; B=$2\n[ -z "$A" ] && A=4\npython t.py $A $B', ["$1", "$2"]),
        ('A=$1\nif [ -n "$A" ]; then echo $A; fi\npython t.py $A', ["$1"]),
        ('A=$1\nif [ "$A" == on ]; then A=x; fi\npython t.py $A', ["$1"]),
        ("while [ $# -gt 0 ]; do case $1 in -x) Y=$2;; esac; shift; done\npython $X", ["X"]),
    ],
)
def test_all_that_a_script_needs_of_its_caller_is_asked_for_at_once(
    text: str, names: list[str], place: Path
) -> None:
    script = place / "work" / "script.sh"
    script.write_text(text)
    findings = followed(script, place)
    assert (findings.stop, [problem.name for problem in findings.problems]) == (None, names)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('A=$1\nif [ "$A" == "" ]; then A=./o; fi\npython t.py $A', ("./o",)),
        ('A=$1; B="$2"\n[[ -z $A ]] && A=1\n[ -z "$B" ] && B=2\npython t.py $A $B', ("1", "2")),
        ('A=$1\nif [ -n "$A" ]; then X="--resume $A"; fi\npython t.py $X', ()),
        ("A=${1}\npython t.py ${A:-3}", ("3",)),
    ],
)
def test_an_argument_that_a_script_does_without_is_taken_as_empty_and_noted(
    text: str, words: tuple[str, ...], place: Path
) -> None:
    script = place / "work" / "script.sh"
    script.write_text(f"X=\n{text}")
    findings = followed(script, place)
    assert [launch.words[2:] for launch in findings.launches] == [words]
    outcome = "assumed that it is empty; else `-- ARG...`"
    assert (2, "argument 1 is not given", outcome) in findings.notes


@pytest.mark.parametrize(
    ("value", "notes"),
    [
        ("run-$lr-$RANDOM", ["`run-1-...`, `run-2-...`"]),
        ("run-$RANDOM", []),
        ("run-$lr", []),
    ],
)
def test_one_answer_for_several_values_is_noted(value: str, notes: list[str], place: Path) -> None:
    script = place / "work" / "script.sh"
    script.write_text(f"for lr in 1 2; do\nout={value}\npython t.py $out\ndone\n")
    texts = [note.text for note in followed(script, place, out="x").notes if note.line == 2]
    assert [text.partition("such as ")[2] for text in texts] == notes


@pytest.mark.parametrize(
    "text", ["source ./env.sh\n", "bash tool.sh\n", "if true; then . env.sh; bash tool.sh; fi\n"]
)
def test_a_script_that_needs_files_of_a_folder_above_it_is_followed_from_there(
    text: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place / "work" / "jobs"
    (folder / "a").mkdir(parents=True)
    (folder / "env.sh").write_text("A=1\n")
    (folder / "tool.sh").write_text("echo\n")
    script = folder / "a" / "script.sh"
    script.write_text(f"{text}python t.py $PWD")
    monkeypatch.chdir(place / "work")
    findings = follow("jobs/a/script.sh", ScriptCaller({}, str(place / "work")))
    assert [launch.words for launch in findings.launches] == [("python", "t.py", str(folder))]
    assert findings.notes[0].outcome == "assumed that `jobs` is where it is started"


@pytest.mark.parametrize(
    "line",
    [
        "set -e; cd nowhere/a",
        "set -e; tar -xf a.tar && ./unpack; cd nowhere/a",
        "cd nowhere/a || exit",
        "./unpack; cd nowhere/a || { echo gone; exit 1; }",
    ],
)
def test_a_folder_without_which_a_script_ends_is_assumed_to_be_there(
    line: str, place: Path
) -> None:
    script = place / "work" / "script.sh"
    script.write_text(f"\n{line}\npython t.py")
    findings = followed(script, place)
    assert [launch.folder for launch in findings.launches] == [f"{place}/work/nowhere/a"]
    text = "changes to `nowhere/a`, which is not there"
    assert (2, text, "assumed to be there at the start") in findings.notes


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("git clone https://h/x/Own.git\ncd Own", "Own"),
        ("git clone --depth 1 -b main git@h:x/own/ && cd own", "own"),
        ("git clone --recursive https://h/x/y.git sub/z; cd sub/z", "sub/z"),
        ("if [ ! -d y ]; then git clone https://h/x/y; fi\ncd y", "y"),
        ("[ -d y ] || git clone https://h/x/y\ncd y || exit", "y"),
    ],
)
def test_a_folder_that_git_clone_makes_is_there(text: str, folder: str, place: Path) -> None:
    script = place / "work" / "script.sh"
    script.write_text(f"{text}\npython t.py")
    findings = followed(script, place)
    assert [launch.folder for launch in findings.launches] == [f"{place}/work/{folder}"]


@pytest.mark.parametrize(
    "line",
    ["git clone https://h/x/y.git\ncd z", "git clone --bare https://h/y\ncd y", "git pull\ncd y"],
)
def test_a_folder_that_git_does_not_make_is_not_there(line: str, place: Path) -> None:
    script = place / "work" / "script.sh"
    script.write_text(f"{line}\npython t.py")
    findings = followed(script, place)
    assert not findings.launches
    assert [problem.reason[:10] for problem in findings.problems] == ["no folder "]


@pytest.mark.parametrize(
    "text",
    [
        "if [ ! -d v ]; then python -m venv v; . v/bin/activate; else . v/bin/activate; fi",
        'V=v; if [[ ! -d $V ]]; then python3 -m venv $V; source "$V/bin/activate"; fi',
        "if command -v uv; then source v/bin/activate; else . v/bin/activate; fi",
    ],
)
def test_an_environment_that_is_active_in_each_case_is_that_of_the_job(
    text: str, place: Path
) -> None:
    script = place / "work" / "script.sh"
    script.write_text(f"{text}\npython t.py")
    [launch] = followed(script, place).launches
    assert launch.interpreter == (("venv", f"{place}/work/v"),)


def test_an_environment_that_is_active_only_if_it_is_there_is_taken_as_absent(place: Path) -> None:
    script = place / "work" / "script.sh"
    script.write_text("[ -d v ] && . v/bin/activate\npython t.py")
    [launch] = followed(script, place).launches
    assert launch.interpreter == ()


def test_an_output_below_a_folder_that_is_taken_as_there_is_its_log(place: Path) -> None:
    script = place / "work" / "script.sh"
    script.write_text("cd nowhere/a || exit\npython t.py > logs/t.log\n")
    [launch] = followed(script, place).launches
    assert (launch.folder, launch.redirection.log) == (f"{place}/work/nowhere/a", "logs/t.log")


def test_an_answer_does_not_replace_what_the_script_sets(place: Path) -> None:
    script = place / "work" / "script.sh"
    script.write_text("X=1\npython t.py $X")
    (call,) = calls(followed(script, place, X="2"), place)
    assert call.words == ("python", "t.py", "1")


def test_arguments_are_those_of_the_command_line(place: Path) -> None:
    script = place / "work" / "script.sh"
    script.write_text('python t.py "$@" $2')
    (call,) = calls(followed(script, place, "a b", "c"), place)
    assert call.words == ("python", "t.py", "a b", "c", "c")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("pip install x\npython t.py", (1, "installs packages: `pip install x`")),
        ("wget u\npython t.py", (1, "downloads: `wget u`")),
        ("ray start --head\npython t.py", (1, "starts Ray: `ray start --head`")),
        ("vllm serve m &\npython t.py", (1, "starts a server: `vllm serve m`")),
        ("mkdir -p o\npython t.py", (1, "makes folders: `mkdir -p o`")),
        ("python t.py\nrm -r o", (2, "removes files: `rm -r o`")),
        ("python t.py\n./clean it", (2, "runs `./clean it`")),
        ("python t.py ${X:-1}", (1, "`X` is not set")),
        ("if [ x = y ]; then\npython u.py\nfi\npython t.py", (2, "`python` is not reached with")),
        ("if [ ! -f d ]; then exit 1; fi\npython t.py", (1, "ends here, depending on `-f d`")),
        ("X=$(python x.py --a 1)\npython t.py", (1, "runs `python x.py --a 1` for its output")),
    ],
)
def test_what_else_a_script_does_is_noted_with_its_line(
    text: str, note: tuple[int, str], place: Path
) -> None:
    script = place / "work" / "script.sh"
    script.write_text(text)
    notes = [(n.line, n.text[: len(note[1])]) for n in followed(script, place).notes]
    assert note in notes


def test_python_that_imports_a_launcher_starts_nothing(place: Path) -> None:
    script = place / "work" / "script.sh"
    script.write_text("python - <<'PY'\nimport deepspeed\nPY\npython t.py\n")
    findings = followed(script, place)
    assert [launch.words for launch in findings.launches] == [("python", "t.py")]
    assert (1, "runs `python -`", "left to you") in findings.notes


@pytest.mark.parametrize(
    "text",
    ["tmux new -d 'torchrun a.py'", "sbatch --wrap='python a.py'", "flock l -c 'torchrun a.py'"],
)
def test_a_launch_in_a_text_for_another_program_is_one(text: str, place: Path) -> None:
    script = place / "work" / "script.sh"
    script.write_text(f"{text}\npython t.py\n")
    words = [launch.words for launch in followed(script, place).launches]
    assert words == [tuple(shlex.split(text)), ("python", "t.py")]
