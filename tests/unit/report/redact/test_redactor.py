"""Redaction: what is planted is gone in every form, what is harmless stays as it is."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from support.inputs.planted_secrets import FQDN, HARMLESS, HOST, PLAN_SECRET, PLANTED, USER

from safelaunch.report import excerpt
from safelaunch.report.redact.redactor import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable

WRAPPINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "in json": json.dumps,
    "in json in json": lambda text: json.dumps({"message": json.dumps(text)}),
    "among lines": lambda text: f"[rank0]: step 1\n{text}\nstep 2",
}


def make_redactor() -> Redactor:
    redactor = Redactor()
    redactor.add_value("secret", PLAN_SECRET)
    redactor.add_value("user", USER)
    redactor.add_value("host", HOST)
    return redactor


def redacted(text: str) -> str:
    redactor = make_redactor()
    redactor.text(text)
    return redactor.text(text)


def test_at_least_thirty_kinds_are_planted() -> None:
    assert len(PLANTED) >= 30


@pytest.mark.parametrize("kind", PLANTED)
def test_nothing_is_left_of_what_was_planted(kind: str) -> None:
    text, needles = PLANTED[kind]
    shown = {wrapping: redacted(wrap(text)) for wrapping, wrap in WRAPPINGS.items()}
    left = [(w, needle) for w, output in shown.items() for needle in needles if needle in output]
    assert left == []


@pytest.mark.parametrize("kind", PLANTED)
def test_redaction_of_what_is_redacted_changes_nothing(kind: str) -> None:
    redactor = make_redactor()
    once = redactor.text(PLANTED[kind][0])
    assert redactor.text(once) == once


@pytest.mark.parametrize("line", HARMLESS.splitlines())
def test_harmless_lines_stay_as_they_are(line: str) -> None:
    assert redacted(line) == line


def test_harmless_text_stays_among_what_is_not() -> None:
    planted = "\n".join(text for text, _ in PLANTED.values())
    redactor = make_redactor()
    redactor.text(planted)
    assert redactor.text(HARMLESS) == HARMLESS


def test_the_same_value_has_the_same_placeholder() -> None:
    redactor = Redactor()
    shown = redactor.text("10.0.0.5:1 to 10.0.0.6:2, then 10.0.0.5:3")
    assert shown == "<ip-1>:1 to <ip-2>:2, then <ip-1>:3"


def test_a_host_and_its_full_name_have_the_same_placeholder() -> None:
    assert redacted(f"{HOST}: up, {FQDN}: up") == "<host-1>: up, <host-1>: up"


def test_a_name_that_one_text_tells_is_replaced_in_another() -> None:
    redactor = Redactor()
    redactor.text("/home/erikamuster/x")
    assert redactor.text("erikamuster has started it") == "<user-1> has started it"


@pytest.mark.parametrize("name", ["root", "ubuntu", "max", "test", "model"])
def test_a_user_whose_name_is_a_common_word_damages_no_other_text(name: str) -> None:
    redactor = Redactor()
    redactor.add_value("user", name)
    assert redactor.text(f"the {name} of it, {name}(x)") == f"the {name} of it, {name}(x)"


def test_a_common_word_is_replaced_where_it_is_a_home() -> None:
    assert Redactor().text("/home/max/x.py, max(1, 2)") == "/home/<user-1>/x.py, max(1, 2)"


@pytest.mark.parametrize(
    "text",
    [
        "token=os.environ['HF_TOKEN']",
        "password=args.password",
        "api_key=get_key(name)",
        "PASSWORD=$SECRET",
        "HF_TOKEN=***",
        "token: None",
        "hub_token=hub_token",
    ],
)
def test_code_and_references_are_no_secrets(text: str) -> None:
    assert redacted(text) == text


def test_keys_of_data_tell_what_a_value_is() -> None:
    shown = Redactor().data(
        {"password": "a b", "hosts": ["n1"], "user": "erika", "args": ["--token", "x1y2z3a"]}
    )
    assert shown == {
        "password": "<secret-1>",
        "hosts": ["<host-1>"],
        "user": "<user-1>",
        "args": ["--token", "<secret-2>"],
    }  # fmt: skip


def test_secrets_alone_leave_names_readable() -> None:
    shown = Redactor().secrets("/home/erika/x, gpu-node-7, password=hunter22")
    assert shown == "/home/erika/x, gpu-node-7, password=<secret-1>"


@pytest.mark.parametrize("secret", ["hunt", "hunter", "hunter2"])
def test_a_short_secret_that_is_known_is_gone_wherever_it_stands(secret: str) -> None:
    redactor = Redactor()
    redactor.add_value("secret", secret)
    assert secret not in redactor.text(f"connecting with {secret} as guest")


def test_the_password_of_an_address_is_gone_elsewhere_too() -> None:
    address, elsewhere = "fetch https://erika:Tr0ub4dor3x@git.example.com/x", "sent Tr0ub4dor3x"
    redactor = Redactor()
    redactor.text(address)
    assert "Tr0ub4dor3x" not in redactor.text(elsewhere)


SLOW = (
    "a", "\\", "-", "eyJ", "/home/", "password=", "1.2.3.4.", "a@", "(", "ab:", "http://a:b@",
    "-----BEGIN PRIVATE KEY-----\n", "A\n-----END PRIVATE KEY-----\n",
)  # fmt: skip


@pytest.mark.parametrize("text", SLOW)
def test_time_grows_with_the_length_and_not_with_its_square(text: str) -> None:
    def seconds(length: int) -> float:
        redactor, data = Redactor(), text * (length // len(text))
        start = time.process_time()
        redactor.text(data)
        return time.process_time() - start

    seconds(1000)
    # sixteen times the text: linear is 16, square 256; the least of three, beside other load
    short, long = (min(seconds(n) for _ in range(3)) for n in (2_000, 32_000))
    assert long < 64 * short + 0.2


# -- logs ------------------------------------------------------------------------------------------


def taken(data: bytes, head: int = 1000, tail: int = 3000) -> excerpt.LogExcerpt:
    read: list[int] = []

    def part(start: int, length: int) -> bytes:
        read.append(length)
        return data[start : start + length]

    texts, log = excerpt.head_and_tail(part, len(data), head, tail)
    assert sum(read) <= head + tail + 2 * excerpt.MARGIN_BYTES
    redactor = Redactor()
    return excerpt.concat([redactor.text(text) for text in texts], log, head, tail)


def test_of_a_long_log_head_and_tail_are_kept_and_the_rest_is_counted() -> None:
    data = b"".join(b"step %d\n" % i for i in range(20_000))
    shown = taken(data)
    assert shown.text.startswith("step 0\n")
    assert shown.text.endswith("step 19999\n")
    assert f"[left out here: {len(data) - 4000:,} bytes of {len(data):,}]" in shown.text


@pytest.mark.parametrize("shift", range(0, 60, 7))
def test_a_secret_at_a_cut_is_not_half_left(shift: int) -> None:
    secret = b"hf_" + b"Ab1" * 20
    data = b"x" * (970 + shift) + b" " + secret + b" " + b"y " * 20_000
    assert "Ab1Ab1" not in taken(data).text


def test_of_a_line_of_a_mebibyte_its_ends_are_kept() -> None:
    shown = taken(b"begin " + b"z" * (1 << 20) + b" end\nnext\n", 64 << 10, 192 << 10)
    assert shown.text.startswith("begin ")
    assert shown.text.endswith(" end\nnext\n")
    assert len(shown.text) < 40_000


def test_colours_and_overwritten_bars_are_taken_away() -> None:
    shown = taken(b"\x1b[31mred\x1b[0m\n10%\r20%\r30%\nhf_\x1b[1m" + b"A1b2" * 8 + b"\n")
    assert shown.text == "red\n30%\n<secret-1>\n"


def test_zeros_between_the_letters_hide_no_secret() -> None:
    shown = taken("hf_A1b2A1b2A1b2A1b2A1b2A1b2\n".encode("utf-16-le"))
    assert "A1b2" not in shown.text


def test_a_log_that_is_no_text_is_said_to_be_none() -> None:
    assert taken(bytes(range(256)) * 10).note == "not all of it is text"
