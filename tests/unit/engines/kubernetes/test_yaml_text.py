"""The YAML that is written for Kubernetes: any reader takes it for the same data."""

from __future__ import annotations

import io
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from safelaunch.engines.kubernetes.yaml_text import dump

# what readers of YAML 1.1 or 1.2, and go-yaml by itself, may take for something else than text
TYPED = [
    "y", "N", "yes", "No", "on", "OFF", "true", "Null", "~", "", "1", "-1", "+1", "0o7", "010",
    "0x1f", "1_000", "1e3", "1.5", ".5", ".inf", ".NaN", "12:30", "2024-01-01", "=", "<<", "- a",
    "a: b", "a #b", "#a", " a", "a ", "*a", "&a", "!a", "|", ">", "%a", "@a", "`a", "'a", '"a',
    "{a}", "[a]", "a,b", "?", "-", "---", "...", "\t", "a\nb", "\n", "a\u2028b", "\x85", "\ufeff",
    "\x1b", "\x7f", "\U0001f600", "\u200b", "$(X)", "nan", "inf",
]  # fmt: skip
PLAIN = ["a", "registry.example.com:5000/a/b:1", "/dev/shm", "kueue.x-k8s.io/queue-name", "v1"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
DATA = st.recursive(
    TEXT | st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def readings(text: str) -> list[Any]:
    """Return what readers of YAML 1.1 and of 1.2 see."""
    safe = YAML(typ="safe", pure=True)
    safe.version = (1, 2)
    return [list(yaml.safe_load_all(text)), list(safe.load_all(io.StringIO(text)))]


@pytest.mark.parametrize("text", TYPED, ids=repr)
def test_text_that_a_reader_may_take_for_something_else_is_quoted(text: str) -> None:
    assert dump([{"key": text}]).startswith('---\nkey: "')


@pytest.mark.parametrize("text", PLAIN)
def test_plain_words_are_written_as_they_are(text: str) -> None:
    assert dump([{"key": text}]) == f"---\nkey: {text}\n"


@given(st.dictionaries(TEXT, DATA, min_size=1, max_size=3))
def test_readers_of_both_versions_see_the_same_data(data: dict[str, Any]) -> None:
    assert readings(dump([data])) == [[data], [data]]


LINES = ["#!/bin/sh\na  \n\n  b\t'$(X)' é: \"c\"\n", "a\n- b\n---\nc: d\n", "a\n\tb\n"]


@pytest.mark.parametrize("text", LINES)
def test_a_script_stands_as_it_is(text: str) -> None:
    shown = dump([{"a": [{"b": text}]}])
    assert "b: |\n" in shown
    assert readings(shown) == [[{"a": [{"b": text}]}]] * 2


@pytest.mark.parametrize(
    "text", ["a\nb", "a\n\n", " a\nb\n", "\na\n", "a\u2028\nb\n", "a\x1b\nb\n"]
)
def test_lines_that_would_not_be_read_back_are_quoted(text: str) -> None:
    shown = dump([{"a": text}, {"b": text}])
    assert "|" not in shown
    assert readings(shown) == [[{"a": text}, {"b": text}]] * 2
