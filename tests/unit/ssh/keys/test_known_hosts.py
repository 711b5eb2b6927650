from __future__ import annotations

import base64
import os
import shutil
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from safelaunch.ssh.keys import known_hosts
from safelaunch.ssh.keys.known_hosts import (
    add_entry,
    entries_for,
    fingerprint,
    host_key_algorithms,
    known_hosts_name,
    read_entries,
)

if TYPE_CHECKING:
    from pathlib import Path

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIBmysGQzpJvhSxSkUmJFXVKJAJgfPN+yRaRZBPzkHO1E"
OTHER = "AAAAC3NzaC1lZDI1NTE5AAAAIJDhGGtfNYkj0gfP4tYpVDW4FSsTJiISnvTDR1r6Lr1h"
BLOB = base64.b64decode(KEY)


def names(tmp_path: Path, text: str, name: str) -> list[int]:
    """Return the numbers of the lines of a file that are about a name."""
    path = tmp_path / "known_hosts"
    path.write_text(text)
    return [line.number for line in entries_for(read_entries([str(path)]), [name])]


@pytest.mark.parametrize(
    ("hosts", "name", "fits"),
    [
        ("gpu1", "gpu1", True),
        ("GPU1", "gpu1", True),
        ("gpu1", "gpu10", False),
        ("gpu1,10.0.0.7", "10.0.0.7", True),
        ("*.lab,!bad.lab", "gpu.lab", True),
        ("*.lab,!bad.lab", "bad.lab", False),
        ("!bad.lab,*.lab", "bad.lab", False),
        ("gpu?", "gpu1", True),
        ("gpu1", "[gpu1]:2222", False),
        ("[gpu1]:2222", "[gpu1]:2222", True),
        ("[gpu1]:2222", "g:2222", False),
        ("[*]:2222", "[gpu1]:2222", True),
        ("a.b", "axb", False),
    ],
)
def test_a_line_is_about_the_hosts_that_its_patterns_name(
    tmp_path: Path, hosts: str, name: str, fits: bool
) -> None:
    assert names(tmp_path, f"{hosts} ssh-ed25519 {KEY}\n", name) == [1] * fits


def test_a_name_has_its_port_unless_it_is_the_usual_one() -> None:
    assert known_hosts_name("GPU1", 22) == "gpu1"
    assert known_hosts_name("gpu1", 2222) == "[gpu1]:2222"


def test_comments_empty_and_broken_lines_are_passed_over(tmp_path: Path) -> None:
    text = (
        f"# gpu1 ssh-ed25519 {KEY}\n\n   \ngpu1\ngpu1 ssh-ed25519\ngpu1 ssh-ed25519 ???\n"
        f"\tgpu1 ssh-ed25519 {KEY} me@home with a comment\ngpu1 ssh-rsa {OTHER}\r\n\xff\xfe\n"
    )
    assert names(tmp_path, text, "gpu1") == [7, 8]


def test_a_file_that_is_not_there_has_no_keys(tmp_path: Path) -> None:
    assert read_entries([str(tmp_path / "none"), str(tmp_path)]) == []


def test_markers_are_kept_apart_from_keys(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(
        f"@cert-authority *.lab ssh-ed25519 {KEY}\n@revoked * ssh-ed25519 {OTHER}\n"
        f"gpu.lab ssh-rsa {KEY}\n"
    )
    lines = entries_for(read_entries([str(path)]), ["gpu.lab"])
    assert [line.marker for line in lines] == ["@cert-authority", "@revoked", None]
    assert host_key_algorithms(lines) == ["rsa-sha2-512", "rsa-sha2-256"]
    assert lines[2].where == f"{path}:3"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")
def test_hashed_lines_and_fingerprints_are_those_of_openssh(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"gpu1,[gpu2]:2222 ssh-ed25519 {KEY}\n")
    command = ["ssh-keygen", "-H", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    assert "gpu" not in path.read_text()
    for name in ("gpu1", "[gpu2]:2222"):
        assert [line.blob for line in entries_for(read_entries([str(path)]), [name])] == [BLOB]
    assert entries_for(read_entries([str(path)]), ["gpu2"]) == []
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(path)], check=True, capture_output=True, text=True
    ).stdout
    assert fingerprint(BLOB) in shown


def test_a_damaged_hash_is_about_nobody(tmp_path: Path) -> None:
    for field in ("|1|zz", "|1|!|!", "|2|YQ==|YQ==", "|"):
        assert names(tmp_path, f"{field} ssh-ed25519 {KEY}\n", "gpu1") == []


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")
def test_what_is_added_openssh_finds(tmp_path: Path) -> None:
    path = tmp_path / "new" / "known_hosts"
    add_entry(str(path), ["gpu1", "[gpu2]:2222"], "ssh-ed25519", BLOB)
    assert path.read_text() == f"gpu1,[gpu2]:2222 ssh-ed25519 {KEY}\n"
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for name in ("gpu1", "[gpu2]:2222"):
        subprocess.run(["ssh-keygen", "-F", name, "-f", str(path)], check=True, capture_output=True)


def test_adding_keeps_a_last_line_that_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_bytes(f"old ssh-ed25519 {OTHER} me".encode())
    add_entry(str(path), ["gpu1"], "ssh-ed25519", BLOB)
    add_entry(str(path), ["gpu2"], "ssh-ed25519", BLOB)
    assert path.read_text().splitlines() == [
        f"old ssh-ed25519 {OTHER} me",
        f"gpu1 ssh-ed25519 {KEY}",
        f"gpu2 ssh-ed25519 {KEY}",
    ]


def test_adding_to_a_hashed_file_tells_no_names(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    line = f"{known_hosts._hash('old')} ssh-ed25519 {OTHER}\n"
    path.write_text(line)
    add_entry(str(path), ["gpu1", "10.0.0.7"], "ssh-ed25519", BLOB)
    text = path.read_text()
    assert text.startswith(line)
    assert "gpu1" not in text
    for name in ("gpu1", "10.0.0.7"):
        assert [entry.blob for entry in entries_for(read_entries([str(path)]), [name])] == [BLOB]


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("ssh-ed25519", "ED25519"),
        ("ssh-rsa", "RSA"),
        ("ecdsa-sha2-nistp256", "ECDSA"),
        ("sk-ssh-ed25519@openssh.com", "ED25519-SK"),
        ("ssh-rsa-cert-v01@openssh.com", "RSA-CERT"),
        ("rsa-sha2-512", "RSA"),
    ],
)
def test_key_types_are_called_as_openssh_calls_them(kind: str, shown: str) -> None:
    assert known_hosts.key_type_name(kind) == shown
