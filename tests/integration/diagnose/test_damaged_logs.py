"""What `safelaunch diagnose` does with what is no log, or not a whole one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from support.workspace import Place

LIMIT = 60.0  # seconds that no command here may take
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
TRACEBACK = f"""\
Traceback (most recent call last):
  File "/home/user/project/train.py", line 12, in main
    loss = model(batch)
  File "/usr/lib/python3/site-packages/torch/nn/modules/module.py", line 1553, in _call_impl
    return forward_call(*args, **kwargs)
{OOM}
"""
PROGRESS = "step 1 loss 0.5 lr 1e-5\nstep 2 loss 0.4 lr 1e-5\n"
FAILED = PROGRESS + TRACEBACK
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes, links and names")


def diagnose(place: Place, *words: str | Path, code: int = 1, **options: Any) -> dict[str, Any]:
    arguments = [str(word) for word in words]
    return place.json("diagnose", *arguments, code=code, timeout=LIMIT, **options)


def shown(place: Place, *words: str | Path, code: int = 1, **options: Any) -> str:
    arguments = [str(word) for word in words]
    return place.cli("diagnose", *arguments, code=code, timeout=LIMIT, **options).stdout


def test_an_absent_log_is_exit_code_2(place: Place) -> None:
    place.write("train.log", FAILED)
    done = place.cli("diagnose", "trian.log", code=2)
    assert done.stderr.splitlines() == [
        "error: no file or folder `trian.log`",
        "hint: did you mean `train.log`?",
    ]


def test_what_cannot_be_read_is_exit_code_2(place: Place) -> None:
    path = place.write("model.pt", os.urandom(100_000))
    assert "is not text" in place.cli("diagnose", str(path), code=2).stderr


def test_beside_a_log_that_can_be_read_others_are_told(place: Place) -> None:
    binary, log = place.write("a.log", os.urandom(100_000)), place.write("b.log", FAILED)
    done = place.cli("diagnose", str(binary), str(log), code=1)
    assert done.stderr == f"note: {binary}: is not text; it was not read\n"


def test_an_empty_log_has_no_failure(place: Place) -> None:
    assert shown(place, place.write("a.log", ""), code=0) == "no failure found in 0 lines\n"


@posix
def test_dev_null_has_no_failure(place: Place) -> None:
    assert shown(place, "/dev/null", code=0) == "no failure found in 0 lines\n"


@posix
def test_a_closed_standard_input_is_told(place: Place) -> None:
    command = f"{sys.executable} -m safelaunch diagnose - <&-"
    done = subprocess.run(
        ["bash", "-c", command], env=place.env, capture_output=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 2
    assert b"standard input" in done.stderr


def test_a_reader_that_closes_is_no_failure(place: Place) -> None:
    log = place.write("train.log", FAILED)
    process = place.popen("diagnose", str(log), "--all")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=LIMIT) in (0, 1)
    assert b"Traceback" not in process.stderr.read()


def test_crlf_changes_nothing(place: Place) -> None:
    path = place.write("train.log", FAILED.replace("\n", "\r\n"))
    (finding,) = diagnose(place, path)["findings"]
    assert (finding["line"], finding["line_number"]) == (OOM, 8)


def test_utf_16_of_powershell_is_read(place: Place) -> None:
    path = place.write("train.log", FAILED.replace("\n", "\r\n").encode("utf-16"))
    assert diagnose(place, path)["findings"][0]["line"] == OOM


@posix
@pytest.mark.parametrize("name", [b"two\nlines.log", b"\xff.log", b"--all.log", b"a b'$(id).log"])
def test_odd_names_are_read_and_shown(place: Place, name: bytes) -> None:
    path = os.fsencode(place.project) + b"/" + name
    with open(path, "wb") as file:
        file.write(FAILED.encode())
    (finding,) = diagnose(place, ".")["findings"]
    assert finding["line_number"] == 8
    out = shown(place, ".")
    assert len([line for line in out.splitlines() if ".log:8" in line]) == 1


@posix
def test_a_named_pipe_is_read(place: Place) -> None:
    os.mkfifo(place.project / "pipe.log")
    process = place.popen("diagnose", "pipe.log", "--json")
    with open(place.project / "pipe.log", "w", encoding="utf-8") as file:
        file.write(FAILED)
    out, _ = process.communicate(timeout=LIMIT)
    assert json.loads(out)["findings"][0]["line_number"] == 8


@posix
def test_ten_gib_of_nothing_have_no_failure(place: Place) -> None:
    path = place.write("train.log", "")
    os.truncate(path, 10 << 30)
    assert shown(place, path, code=0).startswith("no failure found in ")


@posix
def test_ctrl_c_tells_what_came_so_far(place: Place) -> None:
    out, into = os.pipe()
    with open(out, "rb") as reading, open(into, "wb", buffering=0) as writing:
        process = place.popen("diagnose", "--json", stdin=reading)
        writing.write(FAILED.encode())
        wait_for(lambda: _unread(out) == 0, "reader")
        process.send_signal(signal.SIGINT)
        printed, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    result = json.loads(printed)
    assert result["findings"][0]["line_number"] == 8
    assert result["notes"] == ["standard input: interrupted; read up to line 8"]
    assert b"Traceback" not in stderr


def _unread(pipe: int) -> int:
    """Return the bytes that wait in a pipe."""
    import array  # noqa: PLC0415 - POSIX
    import fcntl  # noqa: PLC0415 - as above
    import termios  # noqa: PLC0415 - as above

    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


@posix
def test_a_silent_writer_is_told(place: Place) -> None:
    stderr_file = place.project / "stderr"
    out, into = os.pipe()
    with open(out, "rb") as reading, open(into, "wb", buffering=0) as writing:
        with open(stderr_file, "wb") as stderr:
            process = place.popen("diagnose", stdin=reading, stderr=stderr)
        writing.write(PROGRESS.encode())
        wait_for(stderr_file.read_bytes, "word of what is waited for", LIMIT)
    assert stderr_file.read_text().startswith("standard input is silent; waiting for its end")
    assert process.wait(timeout=LIMIT) == 0
