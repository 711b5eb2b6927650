"""Which files of a project hold secrets: keys and credentials, by their names or contents.

They are not copied to a host unless the job names them under `sync: include`.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

RULE = "a secret"
# of the end of a path, in lower case
_NAMES = (
    ".env", ".env.*", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf",
    ".git-credentials", ".dockercfg", ".s3cfg", ".boto", "kaggle.json", "kubeconfig",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "*.ppk", "*.p12",
    "*.pfx", "*.tfstate", "*.tfstate.backup", "credentials.json", "credentials.y*ml",
    "application_default_credentials.json", "secrets.y*ml", "secrets.json", "secrets.toml",
    ".aws/credentials", ".aws/config", ".aws/sso/*", ".aws/cli/*", ".azure/*", ".ssh/*", ".gnupg/*",
    ".kube/*", ".config/gcloud/*", ".config/gh/hosts.yml", ".docker/config.json",
    ".huggingface/token", "huggingface/token", "stored_tokens",
)  # fmt: skip
_TEMPLATES = (".env.*example*", ".env.*sample*", ".env.*template*", ".env.dist", ".env.defaults",
              ".env.schema", ".ssh/*.pub", ".ssh/known_hosts", ".ssh/config")  # fmt: skip
# decided by the contents: a certificate is no secret, and a tokenizer may have a file `token`
_SUSPECTS = (
    "*.pem", "*.key", "*.p8", "*.pk8", "*.asc", "*.gpg", "*.priv", "*_rsa", "*_dsa", "*_ecdsa",
    "*_ed25519", "*_key", "*-key", "*credential*.json", "*service*account*.json", "*secret*.json",
    "*[-_]key.json", "token", "token.json",
)  # fmt: skip
_CONTENTS = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-"
    rb"|\"(?:private_key|client_secret|refresh_token)\"\s*:\s*\"[^\"\s]|\A(?:hf_|sk-|ghp_)\w{16}"
)
_MAX_READ = 1 << 16  # bytes of a file that are searched


def _matcher(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return one expression for patterns of the end of a path; `/*` at an end is all below."""
    texts = []
    for pattern in patterns:
        special = {"*": "[^/]*", "[": "[", "]": "]"}
        text = "".join(special.get(c, re.escape(c)) for c in pattern.removesuffix("/*"))
        texts.append(text + ("/.*" if pattern.endswith("/*") else ""))
    return re.compile(f"(?:.*/)?(?:{'|'.join(texts)})", re.DOTALL)


_NAME, _TEMPLATE, _SUSPECT = map(_matcher, (_NAMES, _TEMPLATES, _SUSPECTS))
# most names have none of these, which is quicker to see than that no pattern matches
_QUICK = re.compile(
    r"\.env|netrc|rc$|pass|cnf|cred|cfg|boto|kaggle|kube|id_|p12|ppk|pfx|tfstate|secret|\.aws/"
    r"|\.azure/|\.ssh/|\.gnupg/|gcloud|gh/|docker/|token|pem$|key|p8$|pk8$|asc$|gpg$|priv$|_rsa|dsa"
    r"|account|25519"
)


def is_secret(path: str, local: str) -> bool:
    """Whether a file of a project holds a secret; `local` is where it can be read."""
    path = path.lower()
    if _QUICK.search(path) is None or _TEMPLATE.fullmatch(path):
        return False
    if _NAME.fullmatch(path):
        return True
    return _SUSPECT.fullmatch(path) is not None and _holds_secret(local)


def _holds_secret(local: str) -> bool:
    try:
        with open(local, "rb") as file:
            return _CONTENTS.search(file.read(_MAX_READ)) is not None
    except OSError:
        return False


def is_named(path: str, pattern: str) -> bool:
    """Whether a pattern that matches a path names its file or a folder above: `**` names none."""
    names = path.lower().split("/")
    words = [word for word in pattern.lower().split("/") if any(map(str.isalnum, word))]
    return any(fnmatchcase(name, word) for word in words for name in names)
