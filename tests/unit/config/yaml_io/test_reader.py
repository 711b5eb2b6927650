from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from safelaunch.config.yaml_io.node import Node, overlay
from safelaunch.config.yaml_io.reader import MAX_BYTES, MAX_DEPTH, parse, read_file
from safelaunch.errors import ConfigError
from safelaunch.model import Origin

if TYPE_CHECKING:
    from pathlib import Path


def refused(text: str) -> str:
    """Return the one line that is said about the text."""
    with pytest.raises(ConfigError) as caught:
        parse(text, "job.yaml")
    return str(caught.value)


def unreadable(path: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_file(path, "job.yaml")
    return str(caught.value)


def value(text: str, key: str = "a") -> Node:
    node = parse(text, "job.yaml").get(key)
    assert node is not None
    return node


def test_a_value_knows_its_line_and_column() -> None:
    assert value("# one\nb: 1\na:   two\n").origin == Origin("job.yaml", 3, 6)


def test_columns_count_characters_not_bytes() -> None:
    assert value("{é漢🚀: 1, a: 2}").origin.column == 13


def test_a_column_after_a_tab_counts_the_tab_as_one() -> None:
    assert value("a:\t5\n").origin.column == 4


def test_scalars_keep_their_spelling() -> None:
    texts = ["1e-3", "False", "017", "on", "0x1F", "1_000", "12:30:45", "2001-01-01", ".5", "+1"]
    assert [value(f"a: {text}").text for text in texts] == texts


@pytest.mark.parametrize("text", ["null", "~", "Null", "NULL", ""])
def test_plain_nulls_are_null(text: str) -> None:
    assert value(f"a: {text}\n").is_null


@pytest.mark.parametrize("text", ['"null"', "'~'", '""', "!!str null"])
def test_quoted_nulls_are_text(text: str) -> None:
    assert not value(f"a: {text}\n").is_null


def test_duplicate_key_is_refused_at_the_second() -> None:
    assert refused("a: 1\nb: 2\na: 3\n") == "job.yaml:3:1: duplicate key `a`"


def test_duplicate_key_names_the_first_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("a: 1\na: 2\n", "job.yaml")
    assert caught.value.hint == "first given in line 1"


def test_duplicate_key_in_a_nested_map_is_refused() -> None:
    assert refused("a: {b: 1, b: 2}\n").startswith("job.yaml:1:11: duplicate key")


def test_tab_indentation_is_refused_with_its_place() -> None:
    assert refused("a:\n\tb: 1\n").startswith("job.yaml:2:1: ")


def test_tab_indentation_is_named_in_the_hint() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("a:\n\tb: 1\n", "job.yaml")
    assert "tab" in (caught.value.hint or "")


def test_merge_key_is_refused() -> None:
    assert refused("a: &x {b: 1}\nc:\n  <<: *x\n").startswith("job.yaml:3:3: merge keys")


def test_second_document_is_refused() -> None:
    assert refused("a: 1\n---\nb: 2\n").startswith("job.yaml:2:1: a second document")


def test_one_document_may_begin_with_dashes() -> None:
    assert value("---\na: 1\n").text == "1"


@pytest.mark.parametrize("tag", ["!!int", "!!python/object:os.system", "!mine", "!!binary"])
def test_tags_are_refused(tag: str) -> None:
    assert refused(f"a: {tag} x\n").startswith("job.yaml:1:4: YAML tag ")


def test_an_alias_repeats_its_anchor() -> None:
    assert [item.text for item in value("b: &x [1, 2]\na: *x\n").items] == ["1", "2"]


def test_unknown_alias_is_refused() -> None:
    assert refused("a: *nowhere\n").startswith("job.yaml:1:4: unknown alias")


def test_recursive_alias_is_refused() -> None:
    assert refused("a: &x [1, *x]\n").startswith("job.yaml:1:11: unknown alias")


def test_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 20)]
    assert "once aliases are expanded" in refused("\n".join(lines))


def test_aliases_cannot_nest_deeper_than_plain_text() -> None:
    # ran overlay into Python's recursion limit: 40 levels, aliased 40 times
    nested = [f"a{i}: &a{i} " + "{k: " * 40 + f"*a{i - 1}" + "}" * 40 for i in range(1, 40)]
    assert f"deeper than {MAX_DEPTH}" in refused("\n".join(["a0: &a0 {k: 1}", *nested]))


def test_a_depth_of_64_is_accepted() -> None:
    inner = MAX_DEPTH - 1  # the top map is the first level
    assert value("a: " + "[" * inner + "1" + "]" * inner).depth == inner


def test_a_depth_of_65_is_refused() -> None:
    assert refused("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH).endswith(
        f"nested deeper than {MAX_DEPTH} levels"
    )


@pytest.mark.parametrize("bracket", ["[", "{a: ", "- "])
def test_very_deep_nesting_is_refused_without_a_crash(bracket: str) -> None:
    assert "nested deeper" in refused("a:\n  " + bracket * 200_000)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "--- \n...\n"])
def test_an_empty_file_is_refused(text: str) -> None:
    assert "empty" in refused(text) or "expected `key: value`" in refused(text)


def test_an_empty_file_is_named_with_line_and_column() -> None:
    assert refused("") == "job.yaml:1:1: the file is empty"


def test_a_list_at_the_top_is_refused() -> None:
    assert refused("- a\n- b\n").startswith("job.yaml:1:1: expected `key: value` lines")


def test_a_scalar_at_the_top_is_refused() -> None:
    assert refused("just words\n").startswith("job.yaml:1:1: expected `key: value` lines")


def test_a_map_as_key_is_refused() -> None:
    assert refused("? {a: 1}\n: 2\n").startswith("job.yaml:1:3: a key must be plain text")


@pytest.mark.parametrize("char", ["\x00", "\x07", "\x1b", "\x7f"])
def test_a_control_character_is_refused_with_its_place(char: str) -> None:
    assert refused(f"é: 1\nb: é{char}\n").startswith("job.yaml:2:")


def test_a_surrogate_is_refused() -> None:
    assert "not valid Unicode" in refused("a: \udcff\n")


@pytest.mark.parametrize(
    "text", ["a: [1\n", "a: 'x\n", "a: b: c\n", "a: @x\n", "a: 1\n b: 2\n", "a: %x\n", "&a"]
)
def test_broken_yaml_is_refused_with_its_place(text: str) -> None:
    assert refused(text).startswith("job.yaml:")


def test_overlay_merges_maps_key_by_key() -> None:
    merged = overlay(parse("a: {x: 1, y: 2}", "base"), parse("a: {y: 3}", "top")).get("a")
    assert merged is not None
    assert [(k.text, v.text) for k, v in merged.items] == [("x", "1"), ("y", "3")]


def test_overlay_remembers_what_a_value_beat() -> None:
    top = overlay(parse("a: 1", "base"), parse("a: 2", "top")).get("a")
    assert top is not None
    assert [str(node.origin) for node in top.beats] == ["base:1:4"]


def test_overlay_of_a_flag_keeps_the_place_of_the_file() -> None:
    flag = Node("map", Origin("--set name"), items=())
    assert str(overlay(parse("a: 1", "job.yaml"), flag).origin) == "job.yaml:1:1"


# -- files -----------------------------------------------------------------------------------------


def test_malformed_utf8_is_refused_with_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"a: 1\nb: \xff\n")
    assert unreadable(str(file)) == "job.yaml:2:4: byte 0xff is not UTF-8"


def test_utf16_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes("a: 1\n".encode("utf-16"))
    assert "is not UTF-8" in unreadable(str(file))


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert [k.text for k, _ in read_file(str(file), "job.yaml").items] == ["a"]


def test_windows_line_ends_leave_no_trace_in_values(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"a: 1\r\nb: |\r\n  x\r\n  y\r\n")
    assert [v.text for _, v in read_file(str(file), "job.yaml").items] == ["1", "x\ny\n"]


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert unreadable(str(tmp_path)) == "job.yaml: a directory, not a YAML file"


def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert unreadable(str(tmp_path / "fifo")) == "job.yaml: not a regular file"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused(device: str) -> None:
    assert unreadable(device) == "job.yaml: not a regular file"


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)  # a terabyte: reading it would not end
    assert "at most 1 MiB" in unreadable(str(file))


def test_a_file_of_one_mebibyte_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"a: 1\n#" + b"x" * (MAX_BYTES - 6))
    assert read_file(str(file), "job.yaml").kind == "map"


def test_a_missing_file_is_refused() -> None:
    assert unreadable("/nowhere/job.yaml") == "job.yaml: no such file"


def test_a_nul_in_the_path_is_refused() -> None:
    assert unreadable("job\0.yaml").startswith("job.yaml: cannot read: ")


def test_a_file_as_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "Not a directory" in unreadable(str(tmp_path / "file" / "job.yaml"))


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.touch(0o000)
    assert unreadable(str(file)) == "job.yaml: cannot read: Permission denied"
