"""How secrets look: names that say so, and tokens that are known by their form.

Patterns are text here: a plan needs them rarely, and compiling them costs some milliseconds.
"""

from __future__ import annotations

import re

# what it is, its first characters, its form
TOKENS = (
    ("a Hugging Face token", "hf_", r"hf_[A-Za-z0-9]{20,}"),
    ("an API key", "sk-", r"sk-(?=[a-z-]{0,40}[A-Z0-9])[A-Za-z0-9_-]{20,}"),
    ("a GitHub token", "gh", r"gh[pousr]_[A-Za-z0-9]{30,}"),
    ("a GitHub token", "github_pat_", r"github_pat_[A-Za-z0-9_]{30,}"),
    ("an AWS access key", "AKIA", r"AKIA[A-Z0-9]{16}"),
    ("a GitLab token", "glpat-", r"glpat-[A-Za-z0-9_-]{20,}"),
    ("a Slack token", "xox", r"xox[abp]-[A-Za-z0-9-]{20,}"),
    ("a Google API key", "AIza", r"AIza[A-Za-z0-9_-]{35}"),
)
PRIVATE_KEY = r"-----BEGIN [A-Z ]*PRIVATE KEY-----"

_ENDS = (
    "key",
    "token",
    "passwd",
    "password",
    "passphrase",
    "secret",
    "credential",
    "credentials",
)
_NAME = (
    r"(^|[_.-])(api[_-]?key|token|passwd|password|passphrase|secret|secret[_-]?key|access[_-]?key"
    r"|private[_-]?key|credentials?)$"
)
# names that end in "token" and mean a piece of text
_PIECE = (
    r"(^|[_.-])(bos|eos|pad|unk|sep|cls|mask|image|video|audio|stop|start|end|think|special|max|new"
    r"|per)[_-]token$"
)


def is_secret_name(name: str) -> bool:
    """Whether a name says that its value is a password, token or key."""
    lower = name.lower()
    return (
        lower.endswith(_ENDS)  # most names stop here: the patterns are compiled when needed
        and re.search(_NAME, lower) is not None
        and re.search(_PIECE, lower) is None
    )
