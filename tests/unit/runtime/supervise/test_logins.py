"""Who is logged in, by the login records of the machine."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from safelaunch.runtime.supervise.ending import logins

if TYPE_CHECKING:
    from pathlib import Path


def _record(kind: int, pid: int, user: bytes, line: bytes) -> bytes:
    """Return a record as utmp(5) describes it."""
    return struct.pack("<hxxi32s4s32s256s52x", kind, pid, line, b"ts/0", user, b"10.0.0.7")


def test_a_login_counts_while_its_process_lives(tmp_path: Path) -> None:
    path = tmp_path / "utmp"
    path.write_bytes(
        _record(2, 0, b"reboot", b"~")
        + _record(7, os.getpid(), b"ana", b"pts/3")
        + _record(7, 2**22 + 1, b"bob", b"pts/4")
        + _record(8, os.getpid(), b"eve", b"pts/5")
        + b"half"
    )
    assert "ana on pts/3" in logins.logins(str(path))
    assert not [name for name in logins.logins(str(path)) if name.startswith(("bob", "eve"))]


def test_a_machine_without_login_records_has_the_sessions_of_its_ssh_server(tmp_path: Path) -> None:
    assert all(" on pts/" in name for name in logins.logins(str(tmp_path / "none")))
