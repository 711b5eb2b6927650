"""Which host keys are accepted: known, new, changed, revoked, and those of an alias."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.ssh.config.target import Target
from safelaunch.ssh.errors import UntrustedHostKey
from safelaunch.ssh.keys import known_hosts
from safelaunch.ssh.keys.verify_host_key import HostKeyVerifier

if TYPE_CHECKING:
    from pathlib import Path

KIND, OTHER = "ssh-ed25519", "ecdsa-sha2-nistp256"
NAME = "[192.0.2.7]:2222"


def key(number: int, kind: str = KIND) -> bytes:
    """Return the blob of a host key."""
    name = kind.encode()
    return len(name).to_bytes(4, "big") + name + (32).to_bytes(4, "big") + bytes([number]) * 32


MINE, OTHERS = key(1), key(2)


def line(blob: bytes, name: str = NAME, kind: str = KIND, marker: str = "") -> str:
    return f"{marker}{name} {kind} {base64.b64encode(blob).decode()}\n"


class Person:
    """Somebody who is asked, and what they were asked and told."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.prompts: list[str] = []
        self.notes: list[str] = []

    def __call__(self, prompt: str, *, secret: bool) -> str:
        assert not secret
        self.prompts.append(prompt)
        return self.answers.pop(0)


def check(
    file: Path, shown: bytes, person: Person | None = None, kind: str = KIND, **settings: Any
) -> None:
    target = Target(
        **{
            "name": "gpu1",
            "address": "192.0.2.7",
            "port": 2222,
            "user": "me",
            "identities": (),
            "known_hosts": (str(file),),
            "strict": "ask",
            **settings,
        }
    )
    notes = person.notes if person else []
    HostKeyVerifier(target, [target]).check(kind, shown, person, notes.append)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "known_hosts"


STRICT = ("yes", "ask", "accept-new", "no")


@pytest.mark.parametrize("strict", STRICT)
def test_a_known_key_is_accepted_without_a_question(file: Path, strict: str) -> None:
    file.write_text(line(MINE))
    person = Person()
    check(file, MINE, person, strict=strict)
    assert person.prompts == []


@pytest.mark.parametrize("strict", STRICT)
def test_a_revoked_key_is_refused_though_it_is_known_too(file: Path, strict: str) -> None:
    file.write_text(line(MINE) + line(MINE, marker="@revoked "))
    with pytest.raises(UntrustedHostKey, match="is revoked in"):
        check(file, MINE, Person("yes"), strict=strict)


def test_a_revoked_key_takes_no_other_key_with_it(file: Path) -> None:
    file.write_text(line(MINE) + line(OTHERS, marker="@revoked "))
    check(file, MINE)


@pytest.mark.parametrize("strict", STRICT)
def test_a_changed_key_is_refused_and_nobody_is_asked(file: Path, strict: str) -> None:
    file.write_text(line(MINE))
    person = Person("yes")
    with pytest.raises(UntrustedHostKey, match="its host key has changed"):
        check(file, OTHERS, person, strict=strict)
    assert (person.prompts, file.read_text()) == ([], line(MINE))


@pytest.mark.parametrize("strict", ["accept-new", "no"])
def test_accept_new_keeps_the_key_of_a_machine_without_any(file: Path, strict: str) -> None:
    person = Person()
    check(file, MINE, person, strict=strict)
    assert ["new host key" in note for note in person.notes] == [True]
    check(file, MINE, strict="yes")
    with pytest.raises(UntrustedHostKey, match="has changed"):
        check(file, OTHERS, strict=strict)


@pytest.mark.parametrize("strict", ["accept-new", "no"])
def test_accept_new_is_not_for_a_machine_of_which_another_key_is_known(
    file: Path, strict: str
) -> None:
    file.write_text(line(MINE))
    with pytest.raises(UntrustedHostKey, match=r"which the server does not offer"):
        check(file, key(3, OTHER), Person("yes"), kind=OTHER, strict=strict)
    assert file.read_text() == line(MINE)


def test_strict_refuses_a_machine_that_is_not_known(file: Path) -> None:
    with pytest.raises(UntrustedHostKey, match="not known"):
        check(file, MINE, Person("yes"), strict="yes")
    assert not file.exists()


def test_a_person_may_accept_by_yes_or_by_the_fingerprint(file: Path) -> None:
    person = Person("of course", known_hosts.fingerprint(MINE))
    check(file, MINE, person)
    assert known_hosts.fingerprint(MINE) in person.prompts[0]
    check(file, MINE, strict="yes")


@pytest.mark.parametrize("answers", [["no"], [known_hosts.fingerprint(OTHERS), "no"]])
def test_what_a_person_does_not_accept_is_refused_and_not_kept(
    file: Path, answers: list[str]
) -> None:
    with pytest.raises(UntrustedHostKey, match="was not accepted"):
        check(file, MINE, Person(*answers))
    assert not file.exists()


def test_without_a_person_an_unknown_key_is_refused(file: Path) -> None:
    with pytest.raises(UntrustedHostKey, match="not known"):
        check(file, MINE)


def test_a_key_of_the_usual_port_is_known_at_another_port_too(file: Path) -> None:
    file.write_text(line(MINE, "192.0.2.7"))
    check(file, MINE, strict="yes")


def test_a_key_of_the_address_is_not_known_for_an_alias(file: Path) -> None:
    file.write_text(line(MINE, "192.0.2.7") + line(MINE))
    with pytest.raises(UntrustedHostKey, match="not known"):
        check(file, MINE, strict="yes", host_key_alias="cluster")


def test_a_key_of_the_alias_is_known(file: Path) -> None:
    file.write_text(line(MINE, "cluster"))
    check(file, MINE, strict="yes", host_key_alias="cluster")


def test_a_new_key_is_kept_under_the_alias(file: Path) -> None:
    check(file, MINE, Person("yes"), host_key_alias="cluster")
    assert file.read_text() == line(MINE, "cluster")
