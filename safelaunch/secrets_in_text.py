"""How to recognize secrets: names of variables, and the forms of tokens.

Patterns are text here: a plan needs them rarely, and compiling them costs some milliseconds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Token(NamedTuple):
    """A form of a secret: what it is, literals of which it contains one, its pattern, its source.

    Repeats of a pattern are bounded, so that no line is slow to search.
    """

    name: str
    literals: tuple[str, ...]
    pattern: str
    source: str


_GITLEAKS = "https://github.com/gitleaks/gitleaks/blob/master/config/gitleaks.toml"
_HF = "https://huggingface.co/docs/hub/security-tokens"
_GITHUB = "https://github.blog/engineering/behind-githubs-new-authentication-token-formats/"
_GITLAB = "https://docs.gitlab.com/security/tokens/"
_AWS = "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html"
_SLACK = "https://docs.slack.dev/authentication/tokens"
_GOOGLE = "https://developers.google.com/identity/protocols/oauth2"
_DISCORD = "https://discord.com/developers/docs/resources/webhook"
_MICROSOFT = "https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/"
_GITLAB_PREFIXES = (
    "glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glimt-", "glagent-",
    "gloas-", "glffct-",
)  # fmt: skip

# `report` redacts them, `lint` finds them, and a job file or command line with one is refused
TOKENS = (
    Token("a Hugging Face token", ("hf_",), r"hf_[A-Za-z0-9]{20,255}", _HF),
    Token("a Hugging Face token", ("api_org_",), r"api_org_[A-Za-z]{20,64}", _HF),
    # OpenAI, Anthropic, OpenRouter, DeepSeek; with a capital letter or digit: no name of a file
    Token("an API key", ("sk-",), r"sk-(?=[a-z-]{0,40}[A-Z0-9])[A-Za-z0-9_-]{20,512}", _GITLEAKS),
    Token("a W&B key", ("wandb_v1_",), r"wandb_v1_[A-Za-z0-9_]{20,200}", "https://docs.wandb.ai/"),
    Token("a GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
          r"gh[pousr]_[A-Za-z0-9]{20,255}", _GITHUB),
    Token("a GitHub token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{30,255}", _GITHUB),
    Token("a GitLab token", _GITLAB_PREFIXES,
          r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas|ffct)-[A-Za-z0-9_.-]{20,255}", _GITLAB),
    Token("an AWS key id", ("AKIA", "ASIA", "AROA", "AIDA", "ABIA", "ACCA", "AGPA", "ANPA"),
          r"A(?:KIA|SIA|ROA|IDA|BIA|CCA|GPA|NPA)[A-Z0-9]{12,128}", _AWS),
    Token("a Slack token", ("xox",), r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,255}", _SLACK),
    Token("a Slack token", ("xapp-",), r"xapp-[A-Za-z0-9-]{10,255}", _SLACK),
    Token("a Google API key", ("AIza",), r"AIza[A-Za-z0-9_-]{35}", _GITLEAKS),
    Token("a Google token", ("ya29.",), r"ya29\.[A-Za-z0-9_.-]{10,2048}", _GOOGLE),
    Token("a Google client secret", ("GOCSPX-",), r"GOCSPX-[A-Za-z0-9_-]{10,64}", _GOOGLE),
    Token("a Google refresh token", ("1//0",), r"1//0[A-Za-z0-9_-]{20,255}", _GOOGLE),
    Token("an Azure secret", ("Q~",), r"[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{20,64}", _GITLEAKS),
    Token("an NVIDIA key", ("nvapi-",), r"nvapi-[A-Za-z0-9_-]{20,255}",
          "https://build.nvidia.com/"),
    Token("an npm token", ("npm_",), r"npm_[A-Za-z0-9]{30,64}", _GITHUB),
    Token("a PyPI token", ("pypi-",), r"pypi-(?=[a-z-]{0,40}[A-Z0-9])[A-Za-z0-9_-]{40,512}",
          "https://pypi.org/help/#apitoken"),
    Token("a Docker token", ("dckr_",), r"dckr_[a-z]{3}_[A-Za-z0-9_-]{20,64}",
          "https://docs.docker.com/security/access-tokens/"),
    Token("a Databricks token", ("dapi",), r"dapi[0-9a-f]{32}(?:-\d)?", _GITLEAKS),
    Token("a DigitalOcean token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"do[opr]_v1_[0-9a-f]{32,128}",
          _GITLEAKS),
    Token("a Vault token", ("hvs.", "hvb.", "hvr."), r"hv[sbr]\.[A-Za-z0-9_-]{20,255}",
          "https://developer.hashicorp.com/vault/docs/concepts/tokens"),
    Token("a Replicate token", ("r8_",), r"r8_[A-Za-z0-9]{20,64}", "https://replicate.com/docs"),
    Token("a Groq key", ("gsk_",), r"gsk_[A-Za-z0-9]{20,128}", "https://console.groq.com/docs"),
    Token("an xAI key", ("xai-",), r"xai-[A-Za-z0-9]{20,128}", "https://docs.x.ai/"),
    Token("a Perplexity key", ("pplx-",), r"pplx-[A-Za-z0-9]{20,128}", _GITLEAKS),
    Token("a Tavily key", ("tvly-",), r"tvly-[A-Za-z0-9_-]{16,128}", "https://docs.tavily.com/"),
    Token("a ModelScope token", ("ms-",), r"ms-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}",
          "https://modelscope.cn/docs"),
    Token("a Stripe key", ("_live_", "_test_"), r"[srpw][kh]_(?:live|test)_[A-Za-z0-9]{16,255}",
          "https://docs.stripe.com/keys"),
    Token("a SendGrid key", ("SG.",), r"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,128}",
          _GITLEAKS),
    Token("a Telegram token", (":AA",), r"\d{8,10}:AA[A-Za-z0-9_-]{30,40}",
          "https://core.telegram.org/bots/api"),
    Token("a JSON web token", ("eyJ",),
          r"eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{4,4096}(?:\.[A-Za-z0-9_-]{0,4096}){0,3}",
          "https://www.rfc-editor.org/rfc/rfc7519"),
)  # fmt: skip
_BY_LITERAL = [(literal, token) for token in TOKENS for literal in token.literals]
_SHORTEST = 15  # characters: a Slack token; a test checks it against the table

# `https://hooks.slack.com/services/T0/B0/x`: the path `v` is the secret
WEBHOOK = Token(
    "the address of a webhook",
    ("hooks.", "/webhooks/", "webhook.office"),
    r"https?://(?:hooks\.slack\.com/(?:services|workflows)|(?:\w{1,20}\.)?discord(?:app)?\.com/api"
    r"(?:/v\d{1,3})?/webhooks|[\w.-]{1,100}webhook\.office\.com)/(?P<v>[^\s\"'<>\\]{8,500})",
    f"{_SLACK} {_DISCORD} {_MICROSOFT}",
)
# the label of a PEM block (RFC 7468) and of PGP's (RFC 4880, 6.2)
PRIVATE_KEY_LABEL = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
PASSWORD_IN_ADDRESS = r"[a-z]://[^/\s:@$\"']*:(?P<password>[^/\s:@$\"']+)@"  # noqa: S105 - a pattern

_ENDS = ("key", "token", "passwd", "password", "passphrase", "secret", "credential", "credentials")
_NAME = (
    r"(^|[_.-])(api[_-]?key|token|passwd|password|passphrase|secret|secret[_-]?key|access[_-]?key"
    r"|private[_-]?key|credentials?)$"
)
# names that end in "token" and mean one of a tokenizer's
_PIECE_OF_TEXT = (
    r"(^|[_.-])(bos|eos|pad|unk|sep|cls|mask|image|video|audio|stop|start|end|think|special|max|new"
    r"|per)[_-]token$"
)


def is_secret_name(name: str) -> bool:
    """Whether a variable of that name holds a password, token or key."""
    lower = name.lower()
    # most names stop at the first check: the patterns are compiled when needed
    return lower.endswith(_ENDS) and bool(
        re.search(_NAME, lower) and not re.search(_PIECE_OF_TEXT, lower)
    )


def tokens(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the tokens, private keys and webhooks in a text: what each is, and its match."""
    if len(text) < _SHORTEST:
        return
    for token in dict.fromkeys(token for literal, token in _BY_LITERAL if literal in text):
        for match in re.finditer(f"(?<![A-Za-z0-9])(?:{token.pattern})(?![A-Za-z0-9])", text):
            yield token.name, match
    if "PRIVATE KEY" in text:
        for match in re.finditer(f"-----BEGIN {PRIVATE_KEY_LABEL}", text):
            yield "a private key", match
    if "://" in text:
        for match in re.finditer(WEBHOOK.pattern, text):
            yield WEBHOOK.name, match
