"""Which arguments a script reads, and what it says of them."""

from __future__ import annotations

import pytest

from safelaunch.importer.record.arguments import (
    arguments_read,
    example,
    is_optional,
    numbers_read,
    numbers_used,
)


def test_arguments_have_the_names_of_their_variables_and_the_words_they_are_compared_with() -> None:
    text = (
        "MODE=$1\nexport SIZE=${2}\nif [ $SIZE = 7B ]; then :\n"
        'elif [[ "$SIZE" == 13B ]]; then :; fi\n'
        'case $MODE in\n  sft|dpo) ;;\n  *) ;;\nesac\npython t.py "$3"\n'
    )
    arguments = arguments_read(text)
    assert [(a.number, a.line, a.placeholder, a.choices) for a in arguments] == [
        (1, 1, "MODE", ("sft", "dpo")),
        (2, 2, "SIZE", ("7B", "13B")),
        (3, 9, "ARG", ()),
    ]


def test_arguments_of_functions_are_not_those_of_the_script() -> None:
    text = "f() {\n  echo $4\n}\nfunction g {\n  echo $5\n}\nh() { echo $6; }\n# $7\nf $1\n"
    assert [a.number for a in arguments_read(text)] == [1]


@pytest.mark.parametrize(
    ("command", "numbers"),
    [
        ("python t.py $1 ${12} $3x", [1, 12, 3]),
        ("awk '{print $1}' \"it's $2\"", [2]),
        ("X=${1:-8} Y=${2=a} Z=${3+b} W=${4:?} V=${5##*/}", [4, 5]),
        (r"echo \$1 $0 $# $@ # $2", []),
    ],
)
def test_an_argument_is_read_outside_single_quotes_and_without_a_default(
    command: str, numbers: list[int]
) -> None:
    assert numbers_read(command) == numbers


@pytest.mark.parametrize(
    "command",
    ['[ -z "$1" ]', "[[ $1 == a ]]", "case $1 in ", "echo use $1", "shift $1", "(($1 > 2))"],
)
def test_a_test_uses_no_argument(command: str) -> None:
    assert numbers_used(command) == []


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ('[ -z "$X" ] && X=3', True),
        ("echo ${X:-3}", True),
        ('if [ "$X" == "" ]; then X=3; fi', True),
        ("[ $X = 3 ]", False),
        ("[ -z $XY ]", False),
    ],
)
def test_an_argument_whose_variable_is_tested_is_optional(rest: str, expected: bool) -> None:
    text = f"X=$1\n{rest}\n"
    assert is_optional(text, arguments_read(text)[0]) is expected


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("# bash scripts/run.sh 7B '/d a' 8", ("7B", "/d a", "8")),
        ("#sh run.sh dsw", ("dsw",)),
        ("# run.sh <model> <size>", ()),
        ("# bash other_run.sh 7B", ()),
        ("# run.sh", ()),
    ],
)
def test_a_comment_may_show_how_a_script_is_called(comment: str, words: tuple[str, ...]) -> None:
    assert example(f"#!/bin/bash\n{comment}\npython t.py $1\n", "scripts/run.sh") == words
