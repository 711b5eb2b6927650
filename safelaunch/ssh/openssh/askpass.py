"""Answer the prompts of a starting `ssh` by our own prompter, through SSH_ASKPASS.

`ssh` has a session of its own, so that Ctrl-C does not end it before safelaunch has used it: it has
no terminal. Its helper program sends each prompt to a socket in a folder that only we may enter.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import selectors
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.ssh.prompt import Prompter

_MAX_PROMPT = 1 << 16
_ECHOED = re.compile(r"\(yes/no|fingerprint: $")  # questions whose answer is no secret
_HELPER = """
import json, os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(json.dumps([os.environ.get("SSH_ASKPASS_PROMPT", ""), sys.argv[2]]).encode() + b"\\n")
a = b"".join(iter(lambda: s.recv(4096), b""))
if not a:
    sys.exit(1)
os.write(1, a[1:] + b"\\n")
"""
_PASSPHRASE = re.compile(r"Enter passphrase for key '(.*)': ", re.DOTALL)


def run(
    argv: Sequence[str],
    folder: str,
    ask: Prompter | None,
    notify: Callable[[str], None],
    stderr_path: str,
) -> int:
    """Run an `ssh` that logs in, and return its exit code; prompt in this thread.

    Its stderr goes into a file, which a process that it leaves in the background cannot block.
    """
    with contextlib.ExitStack() as cleanup:
        stderr = cleanup.enter_context(open(stderr_path, "wb"))
        words = [*argv]
        listener = None
        if ask is not None and sys.platform != "win32":
            listener = cleanup.enter_context(socket.socket(socket.AF_UNIX))
            words = [*_environment(folder, listener), *argv]
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
            start_new_session=True,
        )  # fmt: skip
        atexit.register(process.kill)  # a thread that waits here ends with the program, unheard
        try:
            if listener is not None and ask is not None:
                _serve(process, listener, ask, notify)
            return process.wait()
        finally:
            atexit.unregister(process.kill)
            if process.poll() is None:
                process.terminate()
                process.wait()


def _environment(folder: str, listener: socket.socket) -> list[str]:
    """Return words before an argv: `ssh` prompts through a helper, which `listener` answers."""
    path = os.path.join(folder, "askpass.sock")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # of an attempt before this one
    listener.bind(path)
    listener.listen()
    helper, program = (os.path.join(folder, name) for name in ("askpass", "askpass.py"))
    line = " ".join(map(quote, (sys.executable, "-I", "-S", program, path)))
    for name, text in ((program, _HELPER), (helper, f'#!/bin/sh\nexec {line} "$1"\n')):
        with open(os.open(name, os.O_WRONLY | os.O_CREAT, 0o700), "w", encoding="utf-8") as file:
            file.write(text)
    # before OpenSSH 8.4 there is no REQUIRE: there it is used if there is a display and no terminal
    return ["env", f"SSH_ASKPASS={helper}", "SSH_ASKPASS_REQUIRE=force", "DISPLAY=none:0"]


def _serve(
    process: subprocess.Popen[bytes],
    listener: socket.socket,
    ask: Prompter,
    notify: Callable[[str], None],
) -> None:
    """Answer prompts until a process has ended."""
    ended, wake = socket.socketpair()

    def await_end() -> None:
        process.wait()
        wake.close()

    threading.Thread(target=await_end, daemon=True).start()
    with ended, selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if listener in ready:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError, ValueError):
                    connection.sendall(_answer(connection, ask, notify))
            elif ended in ready:
                return


def _answer(connection: socket.socket, ask: Prompter, notify: Callable[[str], None]) -> bytes:
    """Return `+` and the answer to the prompt of a connection; nothing if there is none."""
    request = b""
    while not request.endswith(b"\n") and len(request) < _MAX_PROMPT:
        part = connection.recv(4096)
        if not part:
            return b""
        request += part
    kind, prompt = json.loads(request)
    if kind == "none":  # a notice, such as to touch the key
        notify(prompt.strip())
        return b""
    is_confirmation = kind == "confirm"
    if is_confirmation:
        prompt = f"{prompt.rstrip()} (yes/no) "
    try:
        answer = ask(_as_ours(prompt), secret=not _ECHOED.search(prompt))
    except EOFError:
        return b""
    if is_confirmation and answer.strip().lower() not in ("yes", "y"):
        return b""
    return b"+" + answer.encode()


def _as_ours(prompt: str) -> str:
    """Return a prompt; one for a passphrase in Paramiko's words, which are answered once."""
    match = _PASSPHRASE.fullmatch(prompt)
    return prompt if match is None else f"passphrase of {match[1]}: "
