"""The table of secrets: what one of report, lint and the job file finds, the others find too."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from safelaunch.config.schema import text_checks
from safelaunch.config.yaml_io.node import Node
from safelaunch.errors import ConfigError
from safelaunch.lint import secrets, text_file
from safelaunch.model import Origin
from safelaunch.report.redact.redactor import Redactor
from safelaunch.secrets_in_text import TOKENS, WEBHOOK, Token, tokens

ALL = (*TOKENS, WEBHOOK)
ORDINARY = (
    "s3://bucket/gsk_model/checkpoint-1000",
    "pypi-mirror.example.com/simple/torch-cu128-nightly-builds",
    "global-batch-size-1024-learning-rate-3e-4",
    "meta-llama/Llama-3.1-8B-Instruct",
    "sk-learn-pipelines-with-many-words-in-lower-case",
    "nvidia-smi --query-gpu=memory.used --format=csv,noheader",
    "ms-marco-MiniLM-L-6-v2",
    "xai-explainability",
    "ASIA_PACIFIC_REGION",
    "https://example.com/webhooks/deploy",
)


def examples(token: Token) -> st.SearchStrategy[str]:
    """Return texts of a form, with more than one letter behind its first characters."""
    pattern = re.compile(token.pattern, re.ASCII)
    return st.from_regex(pattern, fullmatch=True).filter(lambda text: len(set(text[-8:])) > 3)


def ids(token: Token) -> str:
    return f"{token.name}: {token.literals[0]}"


@pytest.mark.parametrize("token", TOKENS, ids=ids)
@settings(
    max_examples=3,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_each_form_is_found_by_lint_refused_in_a_job_and_redacted(
    token: Token, data: st.DataObject
) -> None:
    secret = data.draw(examples(token))
    assert_is_hidden(secret, secret)


def test_a_webhook_is_found_by_lint_refused_in_a_job_and_redacted() -> None:
    path = "T0A1/B2C3/" + "x1Y2" * 4
    assert_is_hidden("https://hooks.slack.com/services/" + path, path)


def assert_is_hidden(text: str, secret: str) -> None:
    line = f'value = "{text}"'
    source = text_file.decode("train.py", line.encode())
    assert source is not None
    assert [finding.id for finding in secrets.check_text(source)][:1] == ["secret"]
    with pytest.raises(ConfigError, match="access token"):
        text_checks.check_text(Node("scalar", Origin("job"), text=text))
    assert secret not in Redactor().text(line)


@pytest.mark.parametrize("token", ALL, ids=ids)
def test_each_form_names_its_source_and_bounds_its_repeats(token: Token) -> None:
    assert token.source.startswith("https://")
    assert not re.search(r"(?<!\\)[*+](?!/)|,\}", re.sub(r"\[[^]]*\]", "", token.pattern))


@pytest.mark.parametrize("text", ORDINARY)
def test_names_of_every_day_are_no_tokens(text: str) -> None:
    assert list(tokens(text)) == []


@pytest.mark.parametrize("label", ["", "RSA ", "OPENSSH ", "EC ", "ENCRYPTED "])
def test_a_private_key_of_any_kind_is_found(label: str) -> None:
    text = "-----BEGIN " + label + "PRIVATE" + " KEY-----"
    assert [name for name, _ in tokens(text)] == ["a private key"]


def test_a_private_key_of_pgp_is_found() -> None:
    text = "-----BEGIN PGP " + "PRIVATE" + " KEY BLOCK-----"
    assert [name for name, _ in tokens(text)] == ["a private key"]


@pytest.mark.parametrize("start", ["xoxb-", "xapp-", "ya29."])
def test_the_shortest_token_is_long_enough_to_be_looked_for(start: str) -> None:
    assert [match.group() for _, match in tokens(start + "1a2b3c4d5e")] == [start + "1a2b3c4d5e"]
