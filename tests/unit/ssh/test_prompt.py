from __future__ import annotations

from support.ssh.clients import Person

from safelaunch.ssh.prompt import SharedAnswers

PASSPHRASE, PASSWORD, CODE = "passphrase of ~/.ssh/id: ", "me@box's password: ", "Code: "


def test_a_passphrase_is_asked_once_for_all_hosts() -> None:
    person = Person("sesame")
    answers = SharedAnswers(person)
    assert [answers.prompter(host)(PASSPHRASE, secret=True) for host in "ab"] == ["sesame"] * 2
    assert len(person.prompts) == 1


def test_a_wrong_passphrase_is_asked_again_and_the_right_one_shared() -> None:
    answers = SharedAnswers(Person("wrong", "right"))
    first, second = answers.prompter("a"), answers.prompter("b")
    assert first(PASSPHRASE, secret=True) == "wrong"
    assert second(PASSPHRASE, secret=True) == "wrong"
    assert first(PASSPHRASE, secret=True) == "right"
    assert second(PASSPHRASE, secret=True) == "right"


def test_a_password_is_never_given_to_another_host() -> None:
    answers = SharedAnswers(Person("of a", "of b"))
    assert answers.prompter("a")(PASSWORD, secret=True) == "of a"
    assert answers.prompter("b")(PASSWORD, secret=True) == "of b"
    assert answers.prompter("a")(PASSWORD, secret=True) == "of a"


def test_a_code_is_asked_each_time() -> None:
    answers = SharedAnswers(Person("123", "456"))
    assert [answers.prompter("a")(CODE, secret=True) for _ in "ab"] == ["123", "456"]
