from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.analysis.arithmetic import Subject, find_problems
from safelaunch.analysis.arithmetic.areal_allocation import parse_allocation
from safelaunch.analysis.arithmetic.expression import BadExpression, NoValue, names_in, value_of
from safelaunch.analysis.arithmetic.option_values import options_from_words

# the expressions


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + b * 2", 8),
        ("(a + b) * 2", 10),
        ("b // a", 1),
        ("b % a", 1),
        ("b / a", 1.5),
        ("-a", -2),
        ("a < b <= 3", True),
        ("a == 2 and not b == 2", True),
        ("a > 2 or b > 2", True),
        ("min(a, b) + max(a, b, 9)", 11),
        ("len(list)", 2),
        ("len(a)", 1),
        ("1.5 * a", 3.0),
    ],
)
def test_an_expression_has_the_value_that_python_gives_it(text: str, value: float) -> None:
    assert value_of(text, {"a": 2, "b": 3, "list": ("x", "y")}) == value


@pytest.mark.parametrize(
    "text",
    [
        *("a ** 2", "a.real", "a[0]", "(lambda: 1)()", "[1]", "'text'", "f(a)", "__import__('os')"),
        *("a if a else b", "a << 2", "a @ b", "~a", "a := 1", "min(a)", "min(a, b, key=a)", "a +"),
        *("len('x')", "len(a + a)", "True", "None", "", "x" * 500, "(" * 300, "a;b", "a\0"),
        *(
            "a is b",
            "a in b",
            "{a}",
            "*a",
            "yield",
            "await a",
            "a & b",
            "1j",
            "min(*a)",
            "...",
            "\n",
        ),
    ],
)
def test_what_no_rule_needs_is_no_expression(text: str) -> None:
    with pytest.raises(BadExpression):
        value_of(text, {"a": 1, "b": 2})


@pytest.mark.parametrize("text", ["a // 0", "a % 0", "a / 0", "b", "a + list", "a * a * a * a * a"])
def test_what_has_no_value_is_unknown(text: str) -> None:
    with pytest.raises(NoValue):
        value_of(text, {"a": 10**9, "list": ("x",)})


def test_the_names_of_an_expression_are_those_it_reads() -> None:
    assert names_in("min(a, b) % c == 0 and len(d) > 1") == {"a", "b", "c", "d"}


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6))
def test_divisions_agree_with_python(a: int, b: int, c: int) -> None:
    names = {"a": a, "b": b, "c": c}
    assert value_of("a * b % c == 0", names) is (a * b % c == 0)
    assert value_of("a // b // c", names) == a // b // c


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    with contextlib.suppress(BadExpression, NoValue):
        value_of(text, {"a": 1})


# allocations


@pytest.mark.parametrize(
    ("text", "generate", "train"),
    [
        ("sglang.d64p1m1+d32p2m1", 64, 64),
        ("sglang:d4p1t1+d4p1t1", 4, 4),
        ("sglang:d2t4+fsdp:d8", 8, 8),
        ("vllm[rollout]:d1t2+megatron[actor]:d2p2t2c2", 2, 16),
        ("megatron:d2p1t4e8", 0, 8),
        ("d4p2m1", 0, 8),
        ("sglang:d8", 8, 0),
        ("'sglang:d2p1t1+d2p1t1'", 2, 2),
    ],
)
def test_an_allocation_counts_the_gpus_of_each_part(text: str, generate: int, train: int) -> None:
    result = parse_allocation(text)
    assert result is not None
    assert (result["generate"], result["train"]) == (generate, train)


@pytest.mark.parametrize(
    "text",
    [
        *("", "+", "search", "manual", "actor_gen:d4p1m2,*:d4p2m1", "sglang:d4+eval", "d4d2", "d0"),
        *("megatron:(attn:d1p12t4|ffn:d1p12e4)", "sglang:d4|fsdp:d4", "d2+d2", "sglang:d2+vllm:d2"),
        *("d" + "9" * 50, "$MODE", "sglang:d4+", "sglang:", "sglang:x4", "SGLANG:d4"),
    ],
)
def test_an_allocation_of_another_form_is_not_read(text: str) -> None:
    assert parse_allocation(text) is None


# options


@pytest.mark.parametrize(
    ("words", "name", "text"),
    [
        (["--batch-size", "8"], "batch_size", "8"),
        (["--batch_size=8"], "batch_size", "8"),
        (["-n", "8"], "n", "8"),
        (["--lr", "-1"], "lr", "-1"),
        (["trainer.nnodes=2"], "trainer.nnodes", "2"),
        (["+trainer.nnodes=2"], "trainer.nnodes", "2"),
        (["++trainer.nnodes=2"], "trainer.nnodes", "2"),
        (["mode='sglang:d2'"], "mode", "sglang:d2"),
        (["--config", "c.yaml", "a.b=3"], "a.b", "3"),
        (["--config", "c.yaml", "a.b=3"], "config", "c.yaml"),
        (["--verbose", "a.b=3"], "a.b", "3"),
        (["--n", "1", "--n", "2"], "n", "2"),
        (["a=1", "a=2"], "a", "2"),
        (["train.py", "--n", "3"], "n", "3"),
    ],
)
def test_each_usual_spelling_of_an_option_is_read(words: list[str], name: str, text: str) -> None:
    assert options_from_words(words)[name].text == text


def test_a_switch_and_a_list_have_no_single_value() -> None:
    result = options_from_words(["--flag", "--list", "a", "b"])
    assert result["flag"].values is True
    assert (result["list"].values, result["list"].text) == (("a", "b"), None)


@given(st.lists(st.text(max_size=12), max_size=12))
def test_any_words_are_read(words: list[str]) -> None:
    options_from_words(words)
    list(find_problems(Subject(("trl.scripts.grpo",), options_from_words(words), processes=2)))
