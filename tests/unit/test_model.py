from __future__ import annotations

import pytest

from safelaunch.model import Slot, Word, bind_word, join_path, join_words, parent_path, text

HOME = {Slot.HOME: "/home/me"}
ON_HOST = {Slot.PROJECT: text(Slot.HOME, "/work")}


def test_a_slot_may_be_bound_to_text_with_slots() -> None:
    word = bind_word(text(Slot.PROJECT, "/lib"), ON_HOST)
    assert word == text(Slot.HOME, "/work/lib")
    assert bind_word(word, HOME) == "/home/me/work/lib"


def test_words_with_the_same_text_and_slots_are_equal() -> None:
    assert text(Slot.HOME, "/a", "", "/b") == text(Slot.HOME, "/a/b")


@pytest.mark.parametrize(
    ("folder", "names", "path"),
    [
        ("/a", ("b", "c"), "/a/b/c"),
        ("/a", ("/b",), "/b"),
        (text(Slot.HOME), ("b",), text(Slot.HOME, "/b")),
        (text(Slot.HOME), ("/b",), "/b"),
        (text(Slot.HOME, "/a"), (), text(Slot.HOME, "/a")),
    ],
)
def test_a_path_is_joined_as_text_or_behind_a_slot(
    folder: Word, names: tuple[str, ...], path: Word
) -> None:
    assert join_path(folder, *names) == path


@pytest.mark.parametrize(
    ("path", "parent"),
    [("/a/b", "/a"), (text(Slot.HOME, "/a/b"), text(Slot.HOME, "/a")),
     (text(Slot.HOME, "/a"), text(Slot.HOME))],
)  # fmt: skip
def test_the_folder_of_a_path_is_text_or_behind_a_slot(path: Word, parent: Word) -> None:
    assert parent_path(path) == parent


def test_joined_words_are_text_where_all_of_them_are() -> None:
    assert join_words(":", ("/a", "/b")) == "/a:/b"
    assert join_words(":", (text(Slot.HOME), "/b")) == text(Slot.HOME, ":/b")
