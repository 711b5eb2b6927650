from __future__ import annotations

import pytest

from safelaunch.analysis.options.parsers.hydra import grammar
from safelaunch.analysis.options.parsers.hydra.grammar import SyntaxProblem, parse

# The expected values are those of hydra-core 1.3.8.


@pytest.mark.parametrize(
    ("word", "sign", "key", "package"),
    [
        ("a=1", "", "a", None),
        ("+a.b=1", "+", "a.b", None),
        ("++a.0.b-c=1", "++", "a.0.b-c", None),
        ("~a", "~", "a", None),
        ("hydra/launcher=joblib", "", "hydra/launcher", None),
        ("model/head@net.head=big", "", "model/head", "net.head"),
        ("=1", "", "", None),
    ],
)
def test_key_is_read_with_its_sign_and_package(
    word: str, sign: str, key: str, package: str | None
) -> None:
    override = parse(word)
    assert (override.sign, override.key, override.package) == (sign, key, package)


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        ("large", grammar.TEXT, "large"),
        (" /data/x-1.yaml", grammar.TEXT, "/data/x-1.yaml"),
        ("'a, b'", grammar.TEXT, "a, b"),
        (r"'it\'s'", grammar.TEXT, "it's"),
        (r"a\,b", grammar.TEXT, "a,b"),
        ("", grammar.TEXT, ""),
        ("null", grammar.NULL, ""),
        ("1e-4", grammar.NUMBER, ""),
        ("True", grammar.NUMBER, ""),
        ("[a,'b',[1]]", grammar.COMPOUND, ""),
        ("{a:1, b:[2]}", grammar.COMPOUND, ""),
        ("a,b", grammar.SWEEP, ""),
        ("choice(1, 2)", grammar.SWEEP, ""),
        ("range(start=1,stop=5)", grammar.SWEEP, ""),
        ("int('1')", grammar.COMPOUND, ""),
    ],
)
def test_value_has_a_form(value: str, form: str, text: str) -> None:
    override = parse(f"a={value}")
    assert (override.form, override.text) == (form, text)


def test_elements_of_a_sweep_are_its_choices() -> None:
    assert parse("model=a,'b c',3").choices == ("a", "b c")


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("train", "has no `=`"),
        ("a b=1", "has ` ` in its key"),
        ("/x=1", "has `/` in its key"),
        ("a=b=c", "has an unquoted `=`"),
        ("a=f(x)y", "has an unquoted `y`"),
        ("a=~/data", "has an unquoted `~`"),
        ("a=[1,2", "lacks a `]`"),
        ("a={1", "lacks a `:`"),
        ("a=don't", "has an unquoted `'`"),
        ("a=1,", "ends too early"),
        ("a=" + "[" * 60, "is nested too deeply"),
    ],
)
def test_word_that_hydra_does_not_parse_has_a_reason(word: str, what: str) -> None:
    with pytest.raises(SyntaxProblem) as error:
        parse(word)
    assert str(error.value) == what
