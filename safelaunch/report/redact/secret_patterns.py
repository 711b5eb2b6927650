"""Patterns of secrets in text: tokens, headers, keys followed by a value.

The group `v` of a pattern is replaced. Repeats are bounded, so that no line is slow. A pattern is
tried only on text with one of its (lower-case) words.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from safelaunch.secrets_in_text import PRIVATE_KEY_LABEL, TOKENS, WEBHOOK, is_secret_name


class Form(NamedTuple):
    """A pattern of one kind of value, and words of which a text must have one."""

    kind: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]


def forms(kinds: dict[str, dict[str, str]]) -> list[Form]:
    """Return the forms of {kind: {words, separated by spaces: pattern}}."""
    return [
        Form(kind, tuple(words.split(" ")), re.compile(pattern))
        for kind, patterns in kinds.items()
        for words, pattern in patterns.items()
    ]


# a letter or digit before it would make it part of another word; `\n` in JSON ends with one too
WORD_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))"
_END = r"(?![A-Za-z0-9])"

_B64 = r"[A-Za-z0-9+/=]"
_NEWLINE = r"(?:\\+r)?(?:\\+n|\r?\n)"
# whole, or as much of it as there is
PEM = re.compile(
    rf"(?P<v>-----BEGIN {PRIVATE_KEY_LABEL}(?:{_NEWLINE}[ \t>|]{{0,8}}(?:[A-Za-z-]{{2,20}}: "
    rf"[^\r\n\\]{{0,200}}|{_B64}{{0,128}})(?=\s|\\|[\"'-]|$)){{0,2000}}(?:{_NEWLINE})?"
    rf"(?:-----END {PRIVATE_KEY_LABEL})?)",
)
PEM_END = re.compile(rf"-----END {PRIVATE_KEY_LABEL}")
# a line of one, read backwards from its end
PEM_LINE = re.compile(rf"{_B64}{{1,128}}")

_QUOTED = r"(?:\\*\")(?P<v>[^\"\r\n]{1,8192})|(?:\\*')(?P<w>[^'\r\n]{1,8192})"
_SCHEMES = r"(?:(?:bearer|basic|token|negotiate|apikey|aws4-hmac-sha256)[ \t]{1,4})?"
HEADERS = forms(
    {
        "secret": {
            "authorization": r"(?i)authorization\\*[\"']?[ \t]{0,4}[:=,][ \t]{0,4}"
            rf"(?:\\*[\"'])?{_SCHEMES}(?P<v>digest [^\r\n]{{1,8192}}|[^\"'\r\n\\]{{1,8192}})",
            "bearer": r"(?i)\bbearer[ \t]{1,4}(?P<v>(?=\S{0,64}\d)[\w.~+/=-]{8,8192})",
            "cookie": rf"(?i)\bcookie2?\\*[\"']?[ \t]{{0,4}}[:=,][ \t]{{0,4}}(?:{_QUOTED}|(?P<x>"
            rf"[^'\r\n]{{1,8192}}))",
        },
    }
)

HOOKS = Form("secret", WEBHOOK.literals, re.compile(WEBHOOK.pattern, re.IGNORECASE))
SSH_KEYS = forms(
    {
        "ssh-key": {
            "aaaa": r"\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\w{1,20}|sk-[\w-]{1,40}@openssh\.com)"
            r"[ \t]{1,4}(?P<v>AAAA[A-Za-z0-9+/=]{16,8192}(?:[ \t]{1,4}[^\s\"'\\<>]{1,200})?)",
        }
    }
)
OTHERS = [
    *forms(
        {
            "secret": {
                "login": r"\blogin[ \t][^\r\n]{0,100}?[ \t]-p[ \t]{1,4}(?P<v>[^\s\"']{1,500})",
            },
        }
    ),
    *forms(
        {
            "secret": {
                "login": r"(?i)\blogin[ \t]{1,8}\S{1,200}[ \t]{1,8}password[ \t]{1,8}"
                r"(?P<v>\S{1,500})",
                "password": r"(?im)^[ \t]*password[ \t]{1,8}(?P<v>\S{1,500})[ \t]*$",
                "sshpass": r"\bsshpass[ \t]{1,4}-p[ \t]{0,4}[\"']?(?P<v>[^\s\"']{1,500})",
                "-u --user --proxy-user": r"(?<!\S)(?:-u|--user|--proxy-user)[ \t=]{1,4}[\"']?"
                r"(?P<v>[^\s:\"'/]{1,100}:[^\s\"']{1,500})",
            },
            "fingerprint": {
                "sha256: md5:": r"\bSHA256:(?P<v>[A-Za-z0-9+/]{43})=?|\bMD5:(?P<w>(?:"
                r"[0-9a-f]{2}:){15}[0-9a-f]{2})",
            },
        }
    ),
]
TOKEN_FORMS = tuple(
    Form(
        "secret",
        tuple(literal.lower() for literal in token.literals),
        re.compile(f"{WORD_START}(?P<v>{token.pattern}){_END}"),
    )
    for token in TOKENS
)

# -- a key and its value ---------------------------------------------------------------------------

_KEY = (
    r"pass(?:word|wd|phrase|code)|pwd|secret|token|api[_-]?key|(?:access|private|secret|account"
    r"|auth|subscription|encryption|signing|master|license|service|shared|ssh)[_-]?key|apikey"
    r"|credentials?|client[_-]?secret|connection[_-]?string|session[_-]?id|netrc"
)
KEY_WORDS = (
    "pass", "pwd", "secret", "token", "key", "credential", "connection", "session", "netrc",
)  # fmt: skip
_VALUE = (
    r"(?:[bruf]{0,2}(?:\"(?P<d>(?:\\.|[^\"\\\r\n]){1,8192})|'(?P<s>(?:\\.|[^'\\\r\n]){1,8192})|"
    r"(?P<e>\\+[\"'])(?P<f>[^\"'\\\r\n]{1,8192}))|(?P<b>[^\s\"'\\][^\s\"']{0,8191}))"
)
KEYED = re.compile(
    rf"(?i)(?:{_KEY})(?:\\*[\"'])?\]?(?P<sep>[ \t]{{0,4}}(?:=>|:=|[:=])[ \t]{{0,4}}){_VALUE}"
)
# `--token x`, and as a list prints it: '--token', 'x'
OPTION = re.compile(
    rf"(?i)(?<![\w-])--?(?=[A-Za-z])[\w.-]{{0,60}}?(?:{_KEY})(?P<sep>[ \t]{{1,4}}|\\*[\"'],"
    rf"[ \t]{{0,4}})(?!-){_VALUE}"
)
QUERY = re.compile(r"[?&;](?P<name>[\w.%-]{1,60})=(?P<v>[^&\s\"'<>#\\;]{1,8192})")
_QUERY_KEYS = (
    "sig", "signature", "x-amz-signature", "x-amz-credential", "x-amz-security-token", "code",
    "x-goog-signature", "x-goog-credential", "awsaccesskeyid", "googleaccessid", "key", "auth",
    "key-pair-id", "policy", "se-token", "skoid", "sktid", "hdnea", "password", "jwt", "state",
)  # fmt: skip
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_NAME = re.compile(
    r"(?i)(pass(word|wd|phrase|code)|apikey|secret|credentials?|(access|private|account|secret|api"
    r"|auth|subscription|signing|shared)[_-]?key|connection[_-]?string|session[_-]?id)$"
)
_EMPTY_VALUE = re.compile(
    r"(?i)[-*x.]{1,100}|none|null|nil|true|false|undefined|unset|redacted|hidden|<[^>]{0,40}>?|\["
    r"[^\]]{0,40}\]?|\{\}|\(\)|not|is|was|the|an?"
)
# code and references, not values
_CODE = re.compile(
    r"(?:self|cls|args?|cfg|config|conf|os|sys|kwargs|opts?|options|params|settings|environ|env"
    r"|getpass|typing|Optional|request)\s{0,2}[.\[(].*|[A-Za-z_][\w.]{0,60}\((?:[^()]*\))?|\$"
    r"(?:\{\w{1,60}[^}]{0,40}\}?|[A-Z_][A-Z0-9_]{0,60}|\(.*)|%(?:\(\w{1,40}\))?[sdr]",
    re.DOTALL,
)
_MIN_TOKEN_CHARS = 8  # letters from which on a token without a digit counts as one


def is_secret(name: str) -> bool:
    """Whether a name marks its value as secret; broader than the rule of `lint`."""
    snake = _CAMEL.sub("_", name)
    if is_secret_name(snake) or _SECRET_NAME.search(name):
        return True
    return snake.lower() in ("pwd", "sshpass", "pgpass", "netrc", "mysql_pwd", "wandb_key", "pat")


def is_empty_value(value: str) -> bool:
    """Whether a value is empty, a word for none, or an already hidden secret."""
    return not value or _EMPTY_VALUE.fullmatch(value) is not None


def is_secret_query(name: str) -> bool:
    """Whether a parameter in the query of a URL is secret."""
    return name.lower() in _QUERY_KEYS or is_secret(name)


def is_value(name: str, value: str) -> bool:
    """Whether the text after a secret name is a value: no code, no `None`, no `$NAME`."""
    if _EMPTY_VALUE.fullmatch(value) or _CODE.fullmatch(value):
        return False
    if name.lower().endswith("pwd") and value[:1] in "/~":
        return False  # the working directory
    bare = value.strip("'\"$")
    if bare.isidentifier() and (bare == name or is_secret(bare)):
        return False  # token=hf_token
    if name.lower().endswith("token") and not name.isupper():  # prose has tokens too
        return not (bare.isdigit() and len(bare) < _MIN_TOKEN_CHARS) and (
            any(c.isdigit() for c in bare) or len(bare) >= _MIN_TOKEN_CHARS
        )
    return bool(bare)
