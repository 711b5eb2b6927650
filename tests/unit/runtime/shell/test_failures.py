"""Which failures a shell script handles, by its text."""

from __future__ import annotations

import pytest

from safelaunch.runtime.shell import failures

A, B = "python a.py", "python b.py"
HANDLED = [
    f"{A} || true",
    f"{A} || echo skipped; echo done",
    f"if ! {A}; then echo skipped; fi",
    f"if {A}; then {B}; fi",
    f"if {A}; then\n  {B}\nelse\n  echo no\nfi",
    f"{A} && {B} || echo c",
    f"{A} || {B} || echo c",
    f"! {A}",
    f"while {A}; do sleep 1; done",
    f"until {A}; do sleep 1; done",
    f"for i in 1 2 3; do {A} --n $i || break; done",
    f"for ((i=0; i<3; i++)); do {A} || continue; done",
    f"set -e\n{A} || true\necho done",
    f"set +e; {A} || :",
    f"trap 'kill $(jobs -p)' EXIT\n{A} || true",
    f"( {A} || true )",
    f"{{ {A} || true; }} | tee log",
    f"{A} 2>&1 | tee log || true",
    f"({A}) || echo skipped",
    f"time {A} || true",
    f"timeout 5 {A} || true",
    f"X=1 nohup {A} > log 2>&1 || true",
    f"x=$({A}) || x=1",
    f"cat <<EOF\n{A}\nEOF\n{A} || true",
    f"run() {{ {A} || true; }}\nrun",
    f"function run {{\n  {A}\n}}\nrun || true",
    f'run() {{ "$@" || echo failed; }}\nrun {A}; echo done',
    f"run() ( {A} || return 1 )\nrun || echo failed",
    f'bash -c "{A} || true"; echo done',
    f'bash -euo pipefail -c "{A}" || true',
    "bash inner.sh || true",
    "./handled.sh; echo done",
    f"case $1 in\n  train) {A} || true;;\n  *) echo no;;\nesac",
    f"[[ -f a.py && -f b.py ]] && {A} || echo skipped",
    f"if [ -f a.py ]; then {A} || echo skipped; fi",
    f"{A} || {{ echo failed; }}",
    f"{A} || exit 0",
    "torchrun --nproc_per_node 2 a.py || true",
    f"{A} \\\n  --x 1 \\\n  || true  # not {A}",
    f"if {A}; then exit 1; fi",
    # functions, and what they pass on
    f"f() {{ {A}; }}; f || true",
    f"f() {{ local x=1; {A}; }}\nif f; then echo ok; fi",
    f"f() {{ {A}; }}\n! f",
    f"f() {{ {A}; }}\nf && echo ok || echo no",
    f"f() {{ {A}; }}\nwhile f; do echo again; done",
    f"f() {{ set -e; {A}; }}\nf || true",
    f"f() ( set -e; {A} )\nf | tee log || true",
    f"f() {{ {A} | tee log; }}\nf || true",
    f"g() {{ {A}; }}\nf() {{ g; }}\nf || true",
    f"f() {{ {A} || return 1; echo ok; }}\nf || true",
    f"f() {{ if ! {A}; then return 1; fi; echo ok; }}\nf || true",
    f"f() {{ for i in 1 2; do {A} || return 1; done; echo ok; }}\nf || true",
    f"f() {{ {A} || {{ rc=$?; echo no; return $rc; }}; echo ok; }}\nf || true",
    f"f() {{ {A}; return $?; }}\nf || true",
    f"f() {{ {A}; return; }}\nf || true",
    f'f() {{ {A}; local rc=$?; echo "$rc"; return "$rc"; }}\nf || true',
    f"f() {{ local rc; {A}; rc=$?; echo x; return ${{rc}}; }}\nf || true",
    f"f() {{ {A} | tee log; return ${{PIPESTATUS[0]}}; }}\nf || true",
    f"( {A} || exit 1; echo ok ) || true",
    f"bash -c '{A} || exit 1; echo ok' || true",
    f"f() {{ {A} & wait $!; }}\nf || true",
    f"{A} & pid=$!\necho started\nwait $pid || echo no",
    ". ./lib.sh\ntrain || true",
    "source ./lib.sh; if train; then echo ok; fi",
    "bash ./exits.sh || true",
]
LOST = [
    A,
    f"{A} | tee log",
    f"{A}; echo done",
    f"{A} & wait",
    f"{A} && echo ok; echo done",
    f"{A} || {{ echo x; exit 1; }} | cat",
    f"({A} || exit 1); echo done",
    f"{A} | tee log || exit 1",
    f"{A} || false; echo done",
    f"if ! {A}; then exit 1; fi | cat",
    f"if {A}; then echo ok; else exit 1; fi | cat",
    f"echo x || true; {A} | tee log",
    f"true || {A}; echo done",
    f"{{ {A}; }} | tee log",
    f"bash -c '{A}'; echo done",
    "bash inner.sh; echo done",
    f"echo $({A}); echo done",
    f"run() {{ {A}; }}\nrun; echo done",
    f"run() {{ {A} || return 1; }}\nrun | cat",
    f"{A} & echo ok || true; wait",
    f"echo '{A} || true'; {A}; echo done",
    f"f() {{ {A}; echo ok; }}\nf || true",
    f"f() {{ {A} || return 1; echo ok; }}\nf; echo done",
    f"f() {{ {A}; return $?; }}\nf; echo done",
    f"f() {{ {A}; return $?; }}\nf | cat",
    f"f() {{ {A}; echo ok; return $?; }}\nf || true",
    f"f() {{ {A}; return 0; }}\nf || true",
    f"( {A} || exit 1; echo ok ); echo done",
    f"{A} & wait $!; echo done",
    f"{A} & {B} & wait $! || true",
    ". ./lib.sh\ntrain; echo done",
    "( . ./exits.sh || true ); echo done",
]
UNKNOWN = [
    f"eval '{A} || true'",
    f"f() {{ {A}; f; }}\nf || true",
    f"for i in 1 2; do {A}; done; echo done",
    "bash gone.sh || true",
    f"{A} || true; )",
    f"{A} || true\n{A} | tee log",  # which of them failed?
    f"if {A}; then",
    "echo a.txt",
    f"f() {{ {A}; rc=$?; rc=0; return $rc; }}\nf || true",  # which of the values?
    f"{A}; rc=$?; [ $rc = 0 ] || echo no",
    f"f() {{ {A}; echo $?; }}\nf || true",
    ". ./gone.sh\ntrain || true",
    'python "$script" | tee log; $CMD || true; for x in 1; do python $y; done',
]
FILES = {
    "inner.sh": f"#!/bin/bash\n{A}\n",
    "./lib.sh": f"train() {{\n  {A}\n}}\n",
    "./exits.sh": f"{A} || exit 1\n",
    "./handled.sh": f"#!/usr/bin/env bash\n{A} || echo skipped\n",
}


def handles(script: str, program: str = "/home/me/proj/a.py") -> bool | None:
    return failures.handles("", ["bash", "-c", script], program, FILES.get)


@pytest.mark.parametrize("script", HANDLED)
def test_a_failure_that_the_script_looks_at_is_handled(script: str) -> None:
    assert handles(script) is True


@pytest.mark.parametrize("script", LOST)
def test_a_failure_that_nothing_looks_at_is_lost(script: str) -> None:
    assert handles(script) is False


@pytest.mark.parametrize("script", UNKNOWN)
def test_what_the_text_does_not_show_is_unknown(script: str) -> None:
    assert handles(script) is None


@pytest.mark.parametrize(
    ("script", "program", "result"),
    [
        ("python -c 1/0 || true", failures.CODE, True),
        ("python -c 1/0 | tee log", failures.CODE, False),
        ("bash -c 'python3.11 -c 1/0' || true", failures.CODE, True),
        ("python - <<EOF || true\n1/0\nEOF", failures.STDIN, True),
        ("echo 1/0 | python; echo done", failures.STDIN, False),
        ("python -m pkg.train --x || true", "pkg.train", True),
        ("trl sft --x || true", "/opt/venv/bin/trl", True),
        ("$PY a.py || true", "a.py", True),
        ("grep x a.py; python a.py || true", "a.py", True),
        ("cp a.py b.py || true; python a.py | cat", "a.py", False),
        ("./a.py || true", "./a.py", True),
        ("python $SCRIPT || true", "a.py", True),
        ("python $SCRIPT | tee log", "a.py", False),
        ("python $SCRIPT | tee log; python a.py || true", "a.py", None),
        ("python b.py || true; python a.py | cat", "a.py", False),
    ],
)
def test_a_program_is_found_by_its_name(script: str, program: str, result: bool | None) -> None:
    assert handles(script, program) is result


TWICE = f"{A} || true; {A}"
LOOSE = f"{A}; {A} || true; echo done"


@pytest.mark.parametrize(("script", "turn", "result"), [
    (TWICE, (0, 2), True),
    (TWICE, (1, 2), False),
    (LOOSE, (0, 2), False),
    (LOOSE, (1, 2), True),
    (f"{A} --lr 1 || true\n{A} --lr 2 | tee log", (1, 2), False),
    (f"( {A} || true; {A} ) 2>&1 | tee log", (0, 2), True),
    (f"f() {{ {A}; }}\nf || true\nf", (0, 2), True),
    (f"f() {{ {A}; }}\nf || true\nf", (1, 2), False),
    (f"timeout 5 {A} || true; X=1 nohup {A}", (0, 2), True),
    (f"if {A}; then echo ok; fi; {A}; {A}", (0, 3), True),
    ("torchrun a.py || true; torchrun a.py", (0, 2), True),
    # not each of them has run once, in this order
    (TWICE, (0, 0), None),
    (TWICE, (0, 1), None),
    (TWICE, (1, 3), None),
    (f"{A} || {A}; echo done", (0, 2), None),
    (f"{A} & {A} || true; wait", (0, 2), None),
    (f"{A} | {A} && echo ok || true; {A}", (0, 3), None),
    (f"if test -f x; then {A} || true; fi; {A}", (0, 2), None),
    (f"for i in 1 2; do {A} || true; done; {A}", (0, 2), None),
    (f"xargs -n1 {A} || true; {A}", (0, 2), None),
    (f"srun {A} || true; {A}", (0, 2), None),
    (f"$RUN {A} || true; {A}", (0, 2), None),
])  # fmt: skip
def test_of_several_starts_of_a_program_the_turn_decides(
    script: str, turn: tuple[int, int], result: bool | None
) -> None:
    argv = ["bash", "-c", script]
    assert failures.handles("", argv, "/home/me/proj/a.py", FILES.get, turn) is result


def test_lines_of_setup_are_read_too() -> None:
    assert failures.handles("python a.py || true", ["b"], "a.py", FILES.get) is True
    assert failures.handles("cd x", ["bash", "inner.sh"], "a.py", FILES.get) is False


@pytest.mark.parametrize("text", ["((" * 5000, "{ " * 5000, "$(" * 5000, "if " * 3000, "'", "\\"])
def test_any_text_has_an_answer(text: str) -> None:
    assert handles(text) is None
