from __future__ import annotations

import re

from support import REPOSITORY

from safelaunch.lint.env.names import table

DOC = (REPOSITORY / "docs" / "lint.md").read_text(encoding="utf-8")
SOURCES = [
    *(REPOSITORY / "safelaunch" / "lint").rglob("*.py"),
    REPOSITORY / "safelaunch" / "cli" / "lint" / "lint.py",
]
CODE = "".join(path.read_text(encoding="utf-8") for path in SOURCES)


def documented() -> set[str]:
    rows = DOC.split("## Rules")[1].splitlines()
    return {name for row in rows if row.startswith("| `") for name in _ids(row)}


def _ids(row: str) -> list[str]:
    return re.findall(r"`([a-z-]+)`", row.split("|")[1])


def test_every_rule_is_described() -> None:
    named = set(re.findall(r'"((?:yaml|shell|requirements|config|env)-[a-z-]+)"', CODE))
    value_rules = {
        f"env-{name}"
        for name in re.findall(r'(?:ValueProblem|CombinationProblem)\("([a-z-]+)"', CODE)
    }
    whole = {"crlf", "bom", "encoding", "secret", "too-large", "unreadable"}
    assert (named | value_rules | whole) - documented() == set()


def test_every_rule_that_is_described_exists() -> None:
    files = {"job-file", "profile-file", "hosts-file"}
    unknown = {name for name in documented() - files if name.removeprefix("env-") not in CODE}
    assert unknown == set()


def test_the_numbers_of_the_table_are_right() -> None:
    retired = len(table().retired)
    current = len(table().variables.keys() - table().retired.keys())
    assert f"{current}\ncurrent names, {retired} removed" in DOC
