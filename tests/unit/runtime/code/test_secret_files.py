from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.code import secret_files
from safelaunch.sync.ignore import SENSITIVE, Rules
from safelaunch.sync.project_tree import scan

if TYPE_CHECKING:
    from pathlib import Path

# in two parts: a scanner of this repository must not take it for a key
KEY = "-----BEGIN " + "OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
SECRETS = (
    ".env", ".env.local", ".ENV", ".envrc", "conf/.env.production", "id_rsa", ".ssh/id_ed25519",
    ".ssh/work", ".netrc", ".npmrc", ".pypirc", ".aws/credentials", ".aws/sso/cache/1f.json",
    ".config/gcloud/credentials.db", ".azure/msal_token_cache.json", ".kube/config", "kubeconfig",
    ".docker/config.json", ".huggingface/token", "terraform.tfstate", "infra/prod.tfstate.backup",
    "credentials.json", "secrets.yaml", "conf/secrets.yml", ".streamlit/secrets.toml",
    "kaggle.json", ".git-credentials", "store.p12", "android.jks", "debug.keystore", "team.kdbx",
    "www/.htpasswd", "credentials", "conf/credentials.toml", "credentials.yml", "secret.json",
    "secrets.txt", "conf/Secrets.INI",
)  # fmt: skip
OTHERS = (
    ".env.example", ".env.template", ".env.sample", ".env.prod.example", "env.py", ".environment",
    "id_rsa.pub", ".ssh/id_ed25519.pub", ".ssh/config", "secrets.py", "secrets/readme.md",
    "tokenizer.json", "token", "monkey", "keys.py", "credentials.py", "config.json",
    "secrets.md", "secret_santa.txt", "service-account.md", "keystore.py",
    "docker/config.json", ".aws/task-definition.json", "data/environment.yml", "kube.yaml",
)  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_a_file_of_credentials_is_known_by_its_name(name: str) -> None:
    assert secret_files.is_secret(name, "/nonexistent")


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_that_holds_no_credentials_is_none(name: str) -> None:
    assert not secret_files.is_secret(name, "/nonexistent")


@pytest.mark.parametrize(
    ("name", "text", "secret"),
    [
        ("server.pem", CERTIFICATE, False),
        ("server.pem", CERTIFICATE + KEY, True),
        ("server.key", KEY.replace("OPENSSH ", ""), True),
        ("model.key", "vocabulary", False),
        ("deploy_key", KEY, True),
        ("ci-ed25519", "ssh-ed25519 AAAA", False),
        ("lab_ed25519", KEY, True),
        ("gcp-service-account.json", '{"private_key": "-----B..."}', True),
        ("my-service-accounts.json", '{"accounts": []}', False),
        ("client_secret_1.json", '{"installed": {"client_secret": "x"}}', True),
        ("token", "hf_" + "a" * 34, True),
        ("token", "token\n", False),
        ("backup.asc", KEY.replace("OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"), True),
        ("signature.asc", "-----BEGIN PGP SIGNATURE-----", False),
    ],
)
def test_a_private_key_is_known_by_its_contents(
    tmp_path: Path, name: str, text: str, secret: bool
) -> None:
    (tmp_path / name).write_text(text)
    assert secret_files.is_secret(name, str(tmp_path / name)) is secret


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [(".env", True), ("a/.env.local", True), (".env.example", False), ("id_ed25519", True),
     ("id_ed25519.pub", False), ("a/server.key", True), ("keys.py", False), (".netrc", True),
     ("credentials.json", True), ("credentials.py", False), ("secrets.yaml", True),
     ("tokenizer.json", False), ("token", True), ("service-account-x.json", True),
     ("environment.yaml", False), ("signature.asc", True), ("deploy_key", True),
     ("service_account.yaml", True), ("team.kdbx", True)],
)  # fmt: skip
def test_the_code_of_a_run_is_recorded_without_files_that_may_be_secret(
    name: str, is_secret: bool
) -> None:
    assert secret_files.may_be_secret(name) == is_secret


@pytest.mark.parametrize(
    ("include", "sent"),
    [
        ((), set()),
        (("*", "**", "conf/**", "."), set()),
        ((".env",), {".env", "sub/.env"}),
        (("/.env",), {".env"}),
        (("sub/.env",), {"sub/.env"}),
        ((".env*",), {".env", "sub/.env"}),
        (("*.key",), {"server.key"}),
        ((".aws/",), {".aws/credentials"}),
        ((".aws/**", "id_rsa"), {".aws/credentials", "id_rsa"}),
    ],
)
def test_a_secret_is_sent_only_if_the_job_names_it(
    tmp_path: Path, include: tuple[str, ...], sent: set[str]
) -> None:
    names = {".env", "sub/.env", "id_rsa", ".aws/credentials", "server.key"}
    for name in (*names, "train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(KEY)
    tree = scan(Rules(str(tmp_path), include))
    assert {item.path for item in tree.files} == {"train.py", *sent}
    skipped = {item.path for item in tree.skipped if item.why == SENSITIVE}
    assert skipped == names - sent


def test_an_ignore_file_does_not_bring_a_secret_back(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n!.env\n")
    (tmp_path / ".env").touch()
    assert [item.path for item in scan(Rules(str(tmp_path))).files] == [".gitignore"]


def test_a_pushed_folder_brings_no_secret_nor_a_link_to_one(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/.netrc").touch()
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights.bin").touch()
    (model / ".env").touch()
    (model / "config").symlink_to(tmp_path / "outside/.netrc")
    tree = scan(Rules(str(model), everything=True))
    assert [item.path for item in tree.files] == ["weights.bin"]
