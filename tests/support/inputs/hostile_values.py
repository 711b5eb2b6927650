"""Hostile values, and a runner that sends them through a real start and looks at what arrived.

Used by tests/golden/test_hostile.py with few values and by `scripts/bench hostile` with many.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from safelaunch.secrets_in_text import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# what shells, YAML, JSON, argparse and path code trip over, whole and as fragments
PIECES = (
    "'", '"', "$", "$$", "${local_rank}", "$HOME", "${HOME}", "$(id)", "`id`", "\\", "\\\\", "\\n",
    "\n", "\n\n", "\t", " ", "  ", ",", ";", "&", "|", "<", ">", "(", ")", "{", "}", "{a,b}",
    "{time}", "[", "]", "[a]", "*", "?", "!", "!!", "#", "~", "~root", "%", "%s", "%(x)s", "^",
    "=", ":", "@", "+", "-", "--", "--help", "-x", "--k=v", "/", "//", "..", ".", "null", "true",
    "false", "no", "~/x", "1e-3", "0x1f", "012", "1_000", "2001-01-01", "é", "ß", "漢字", "🚀",
    "👩‍👧", "e\u0301", "\u00a0", "\u200b", "\u2028", "\ufeff", "\u0085", "\x01", "\x1b[31m", "\x7f",
    "<port>", "<run-dir>", "EOF", "&&", "||", "2>&1", "$'a'", "\\'", "'\\''",
)  # fmt: skip
# Always among them: each has broken some launcher. torchrun's agent makes `$` of `$$` and a number
# of `${local_rank}` (torch/distributed/elastic/utils/api.py, macros). Not an empty one first:
# accelerate itself fails where the script's first argument is empty or `-` (utils/launch.py).
CLASSICS = (
    " ", "", "$$", "a$$b$", "${local_rank}", "$local_rank", "'", '"', "\\", "\n", "a\n", "-", "--",
    "-n", "--config", "$PATH", "$(exit 1)", "*", "!", "~", "%", "%%", "{}", "[]", "{a: b}",
    "# no comment", "a #b", "key: value", "a=b", "a,b", "\t", "naïve", "🚀", "\\\\boxed{x}", "it's",
    '{"use_reentrant": false}', "x" * 5000, "\ufeffx",
)  # fmt: skip

_CHARS = st.characters(codec="utf-8", exclude_characters="\0\r")
values = st.one_of(
    st.text(_CHARS, max_size=30),
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(_CHARS, max_size=5)), max_size=8).map(
        "".join
    ),
)

RECORDER = """
import json, os, sys
hexed = lambda text: os.fsencode(text).hex()
told = {
    "argv": [hexed(word) for word in sys.argv[1:]],
    "env": {hexed(k): hexed(v) for k, v in os.environ.items()},
    "cwd": hexed(os.getcwd()),
    "script": hexed(sys.argv[0]),
}
path = os.path.join(os.environ["TOLD"], "rank-" + os.environ.get("RANK", "0") + ".json")
with open(path, "x") as file:
    json.dump(told, file)
"""
ROOT = "hostile-"  # of the temporary folder


@functools.cache
def generate(count: int, seed: int) -> list[str]:
    """Return so many different values, the classics first; the same for the same seed."""
    texts = dict.fromkeys(CLASSICS)

    @seeded(seed)
    @settings(
        max_examples=3 * count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(values)
    def collect(value: str) -> None:
        texts.setdefault(value)

    collect()
    return list(texts)[:count]


def yaml_text(value: str) -> str:
    """Return a value as a double-quoted YAML scalar: JSON's escapes, and \\U for astral planes."""
    shown = ""
    for char in value:
        if ord(char) > 0xFFFF:
            shown += f"\\U{ord(char):08x}"
        else:
            shown += json.dumps(char)[1:-1] if char != "\x7f" else "\\x7f"
    return f'"{shown}"'


def as_folder(value: str) -> str:
    """Return the part of a value that one name in a folder can hold, on one line."""
    name = value.replace("/", "").replace("\n", "").encode()[:200].decode("utf-8", "ignore")
    return name if name not in ("", ".", "..") else ""


class Batch(NamedTuple):
    """Values for one start: in every position that a job file has."""

    launcher: str
    values: Sequence[str]
    mapping: bool
    workdir: str  # its folder, its script's folder and its script have hostile names too
    folder: str
    script: str

    @property
    def processes(self) -> int:
        """How many ranks record what they got."""
        return 1 if self.launcher == "python" else 2

    @property
    def paths(self) -> list[str]:
        """The values that can be entries of PYTHONPATH."""
        names = (as_folder(v) for v in self.values)
        return [name for name in names if name and ":" not in name]

    def job(self) -> str:
        """Return the job file."""
        if self.mapping:
            entries = (f"k{i}: {yaml_text(v)}" for i, v in enumerate(self.values))
            args = "{" + ", ".join(entries) + "}"
        else:
            args = "[" + ", ".join(yaml_text(v) for v in self.values) + "]"
        env = ", ".join(f"V{i}: {yaml_text(v)}" for i, v in enumerate(self.values))
        lines = [
            "name: hostile",
            f"launcher: {self.launcher}",
            "profile: cpu",
            f"processes: {self.processes}",
            f"python: {yaml_text(sys.executable)}",
            f"workdir: {yaml_text(self.workdir)}",
            f"script: {yaml_text(f'{self.folder}/{self.script}')}",
            f"args: {args}",
            f"env: {{{env}}}",
            "pythonpath: [" + ", ".join(yaml_text(f"p/{p}") for p in self.paths) + "]",
        ]
        return "\n".join(lines) + "\n"

    def words(self) -> list[str]:
        """Return the words that the script must get."""
        if not self.mapping:
            return list(self.values)
        words = []
        for i, value in enumerate(self.values):
            words += [f"--k{i}={value}"] if value.startswith("-") else [f"--k{i}", value]
        return words


def batches(texts: Sequence[str], size: int, launcher: str) -> Iterator[Batch]:
    """Deal values out to starts, twice: as a list and as a mapping of arguments."""
    names = [name for name in dict.fromkeys(as_folder(v) for v in texts) if name] or ["x"]
    for at in range(0, len(texts), size):
        some = [v for v in texts[at : at + size] if not is_secret_name(v.lstrip("-"))]
        for mapping in (False, True):
            n = 2 * (at // size) + mapping
            odd = [names[(3 * n + i) % len(names)] for i in range(3)]
            yield Batch(launcher, some, mapping, *odd)


def start(batch: Batch) -> list[str]:
    """Start a batch for real and return what arrived differently, one line each."""
    top = os.path.realpath(tempfile.mkdtemp(prefix=ROOT))
    try:
        return _compare(batch, top, *_run(batch, top))
    finally:
        shutil.rmtree(top)


def _run(batch: Batch, top: str) -> tuple[int, str]:
    script = os.path.join(top, batch.workdir, batch.folder, batch.script)
    os.makedirs(os.path.dirname(script))
    with open(script, "w", encoding="utf-8") as file:
        file.write(RECORDER)
    with open(os.path.join(top, "job.yaml"), "w", encoding="utf-8") as file:
        file.write(batch.job())
    home = os.path.join(top, "home")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SAFELAUNCH_", "PYTHON"))}
    env |= {"SAFELAUNCH_HOME": home, "TOLD": top}
    run = [sys.executable, "-m", "safelaunch", "run", "--foreground", os.path.join(top, "job.yaml")]
    done = subprocess.run(run, env=env, capture_output=True, text=True, check=False, cwd=top)
    lines = (done.stdout + done.stderr).splitlines()
    return done.returncode, "\n".join(x for x in lines if not x.startswith("warning: "))[-600:]


def _compare(batch: Batch, top: str, code: int, output: str) -> list[str]:
    wrong = [] if code == 0 else [f"exit code {code}: {output}"]
    for rank in range(batch.processes):
        path = os.path.join(top, f"rank-{rank}.json")
        if not os.path.exists(path):
            wrong.append(f"rank {rank} was not started")
            continue
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        wrong += [f"rank {rank}, {line}" for line in _differences(batch, top, record)]
    return wrong


def _differences(batch: Batch, top: str, record: dict[str, object]) -> Iterator[str]:
    argv, env = record["argv"], record["env"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    words = batch.words()
    if len(argv) != len(words):
        yield f"{len(words)} words were sent, {len(argv)} arrived"
    got = [bytes.fromhex(word) for word in argv]
    for sent, word in zip(words, got, strict=False):
        if word != sent.encode():
            yield f"the word {sent!r} arrived as {word!r}"
    arrived = {bytes.fromhex(k): bytes.fromhex(v) for k, v in env.items()}
    for i, value in enumerate(batch.values):
        if arrived.get(f"V{i}".encode()) != value.encode():
            yield f"the variable {value!r} arrived as {arrived.get(f'V{i}'.encode())!r}"
    entries = [os.path.join(top, "p", name).encode() for name in batch.paths]
    path = arrived.get(b"PYTHONPATH", b"").split(b":")
    path = path[max(0, len(path) - len(entries)) :]
    yield from (
        f"the path {sent!r} arrived as {got!r}"
        for sent, got in zip_longest(entries, path)
        if sent != got
    )
    workdir = os.path.join(top, batch.workdir).encode()
    if bytes.fromhex(str(record["cwd"])) != workdir:
        yield f"the folder {batch.workdir!r} became {bytes.fromhex(str(record['cwd']))!r}"
    script = os.path.join(os.curdir, batch.folder, batch.script)
    sent = os.path.normpath(os.path.join(workdir.decode(), script))
    ran = os.path.normpath(os.path.join(workdir, bytes.fromhex(str(record["script"]))))
    if ran != sent.encode():
        yield f"the script {sent!r} became {ran!r}"


def run(count: int, *, size: int, seed: int, launcher: str = "python") -> tuple[int, list[str]]:
    """Send so many values through real starts; return how many went, and what arrived wrong."""
    texts = generate(count, seed)
    wrong = []
    for batch in batches(texts, size, launcher):
        wrong += start(batch)
    return len(texts), wrong
