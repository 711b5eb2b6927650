from __future__ import annotations

from safelaunch.importer import syntax


def test_a_slice_is_walked_though_its_fields_are_named_as_those_of_a_position() -> None:
    tree = syntax.parse("echo ${x:$y:2}\n", "x.sh")
    assert [n.text("Param") for n in tree.walk() if n.kind == "ParamExp"] == ["x", "y"]


def test_positions_are_no_nodes() -> None:
    tree = syntax.parse("echo a\n", "x.sh")
    assert not any(n.has("Col") for n in tree.walk())


def test_all_of_another_text_is_on_one_line() -> None:
    tree = syntax.parse("echo a\n\necho $(echo b)\n", "x.sh", line=7)
    assert {n.line for n in tree.walk() if n.line} == {7}
