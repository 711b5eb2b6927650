"""Which files of a project hold secrets: keys and credentials, by their names or contents.

They are not copied to a host unless the job names them under `sync: include`, and the record of a
run's code has none of their contents.
"""

from __future__ import annotations

import functools
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Pattern

# of the end of a path, in lower case
_NAMES = (
    ".env", ".env.*", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf",
    ".git-credentials", ".dockercfg", ".htpasswd", ".s3cfg", ".boto", "kaggle.json", "kubeconfig",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "*.ppk", "*.p12",
    "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.tfstate", "*.tfstate.backup",
    "application_default_credentials.json",
    *(
        name + end
        for name in ("credentials", "secret", "secrets")
        for end in ("", ".json", ".y*ml", ".toml", ".ini", ".cfg", ".conf", ".txt", ".env")
    ),
    ".aws/credentials", ".aws/config", ".aws/sso/*", ".aws/cli/*", ".azure/*", ".ssh/*", ".gnupg/*",
    ".kube/*", ".config/gcloud/*", ".config/gh/hosts.yml", ".docker/config.json",
    ".huggingface/token", "huggingface/token", "stored_tokens",
)  # fmt: skip
_TEMPLATES = (".env.*example*", ".env.*sample*", ".env.*template*", ".env.dist", ".env.defaults",
              ".env.schema", ".ssh/*.pub", ".ssh/known_hosts", ".ssh/config")  # fmt: skip
# decided by the contents: a certificate is no secret, and a tokenizer may have a file `token`
_SUSPECTS = (
    "*.pem", "*.key", "*.p8", "*.pk8", "*.asc", "*.gpg", "*.priv", "*_rsa", "*_dsa", "*_ecdsa",
    "*_ed25519", "*_key", "*-key", "*credential*.json", "*service[-_]account*", "*secret*.json",
    "*service*account*.json", "*[-_]key.json", "token", "token.json",
)  # fmt: skip
_KEY_HEAD = b"-----BEGIN "
_PRIVATE_KEY = rb"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_KEY = re.compile(_PRIVATE_KEY)
_CONTENTS = re.compile(
    _PRIVATE_KEY + rb"|PuTTY-User-Key-File-"
    rb"|\"(?:private_key|client_secret|refresh_token)\"\s*:\s*\"[^\"\s]|\A(?:hf_|sk-|ghp_)\w{16}"
)
_MAX_READ = 1 << 16  # bytes of a file that are searched


@functools.lru_cache(maxsize=None)  # most projects have no name that needs one: 2 ms
def _matcher(patterns: tuple[str, ...]) -> Pattern[str]:
    """Return one expression for patterns of the end of a path; `/*` at an end is all below."""
    texts = []
    for pattern in patterns:
        is_folder = pattern.endswith("/*")
        special = {"*": "[^/]*", "[": "[", "]": "]"}
        name = pattern[:-2] if is_folder else pattern
        text = "".join(special.get(c, re.escape(c)) for c in name)
        texts.append(text + ("/.*" if is_folder else ""))
    return re.compile(f"(?:.*/)?(?:{'|'.join(texts)})", re.DOTALL)


# most names have none of these, which is quicker to see than that no pattern matches
_QUICK = re.compile(
    r"\.env|netrc|rc$|pass|cnf|cred|cfg|boto|kaggle|kube|id_|p12|ppk|pfx|jks|keystore|kdbx|tfstate"
    r"|secret|\.aws/|\.azure/|\.ssh/|\.gnupg/|gcloud|gh/|docker/|token|pem$|key|p8$|pk8$|asc$|gpg$"
    r"|priv$|_rsa|dsa|account|25519"
)


def is_secret(path: str, local: str) -> bool:
    """Whether a file of a project holds a secret; `local` is where it can be read."""
    candidate = _candidate(path)
    if candidate is None:
        return False
    if _matcher(_NAMES).fullmatch(candidate) is not None:
        return True
    return _matcher(_SUSPECTS).fullmatch(candidate) is not None and _holds_secret(local)


def may_be_secret(path: str) -> bool:
    """Whether a file has a name under which secrets are kept, whatever it contains."""
    candidate = _candidate(path)
    if candidate is None:
        return False
    return any(_matcher(names).fullmatch(candidate) is not None for names in (_NAMES, _SUSPECTS))


def holds_private_key(data: bytes) -> bool:
    """Whether a private key is part of a text."""
    return _KEY_HEAD in data and _KEY.search(data) is not None


def _candidate(path: str) -> str | None:
    """Return a path in lower case, as the patterns are; None where none of them can match."""
    path = path.lower()
    folder, _, name = path.rpartition("/")
    if _QUICK.search(name) is None and not _may_hold_secrets(folder):
        return None
    return None if _matcher(_TEMPLATES).fullmatch(path) else path


@functools.lru_cache(maxsize=None)
def _may_hold_secrets(folder: str) -> bool:
    """Whether a folder's path has a part of a pattern: thousands of files share its answer."""
    return _QUICK.search(f"{folder}/") is not None


def _holds_secret(local: str) -> bool:
    try:
        with open(local, "rb") as file:
            return _CONTENTS.search(file.read(_MAX_READ)) is not None
    except OSError:
        return False
