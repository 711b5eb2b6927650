"""The proof that a message comes from a supervisor of the run."""

from __future__ import annotations

import pytest

from safelaunch.runtime.messages.proof import Proof, ProofError, derive, nonce


def pair(secret: str = "secret", other: str = "secret") -> tuple[Proof, Proof]:  # noqa: S107 - of this test
    opening, answer = nonce(), nonce()
    return (
        Proof(secret, opening, answer, is_first=True),
        Proof(other, opening, answer, is_first=False),
    )


def test_messages_are_opened_in_their_order() -> None:
    first, second = pair()
    lines = [first.seal(b"one"), first.seal(b"two")]
    assert [second.open(line) for line in lines] == [b"one", b"two"]


def test_a_message_that_is_repeated_is_refused() -> None:
    first, second = pair()
    line = first.seal(b"{}")
    second.open(line)
    with pytest.raises(ProofError):
        second.open(line)


def test_a_message_after_one_that_is_left_out_is_refused() -> None:
    first, second = pair()
    first.seal(b"{}")
    with pytest.raises(ProofError):
        second.open(first.seal(b"{}"))


def test_a_message_that_is_sent_back_is_refused() -> None:
    first, _ = pair()
    with pytest.raises(ProofError):
        first.open(first.seal(b"{}"))


def test_a_message_of_another_connection_is_refused() -> None:
    first, _ = pair()
    _, second = pair()
    with pytest.raises(ProofError):
        second.open(first.seal(b"{}"))


@pytest.mark.parametrize("line", [b"", b"{}", b"\xff" * 70, b"0" * 64 + b" {}"])
def test_a_line_without_the_right_hmac_is_refused(line: bytes) -> None:
    _, second = pair()
    with pytest.raises(ProofError):
        second.open(line)


def test_another_secret_opens_nothing() -> None:
    first, second = pair("secret", "another")
    with pytest.raises(ProofError):
        second.open(first.seal(b"{}"))


def test_secrets_of_two_purposes_differ() -> None:
    assert derive("secret", "a", "b") != derive("secret", "a", "c")
