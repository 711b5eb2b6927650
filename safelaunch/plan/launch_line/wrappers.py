"""Programs in front of a launch: what they mean as keys of a job, and which the job keeps.

One that is not understood in full is left alone: the line becomes `launcher: command`, which runs
it as it stands.
"""

from __future__ import annotations

import posixpath
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.launchers.flag_table import PASTED_LINE
from safelaunch.plan.launch_line.shell_text import join_folder, read_setup
from safelaunch.runtime.units import SECONDS, job_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    _Reader = Callable[[Sequence[str]], "Unwrapped | None"]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SHELLS = ("bash", "sh")
_MAX_WRAPPERS, _MAX_OPTIONS = 20, 100  # more are no line that somebody has typed
_SHORTEST, _LONGEST = 0.01, 1e9  # seconds that a job file can say without an exponent


class Unwrapped(NamedTuple):
    """The words behind wrappers, and what those say of the job."""

    words: list[str]
    env: Mapping[str, str | None] = MappingProxyType({})  # None: removed
    max_duration: str | None = None
    prefix: tuple[str, ...] = ()  # what the job keeps in front of its launcher
    workdir: str = ""
    venv: str | None = None
    setup: tuple[str, ...] = ()  # lines of shell before it
    runs_script: bool = False  # the prefix runs the script itself: `uv run train.py`

    def around(self, inner: Unwrapped) -> Unwrapped | None:
        """Return both in one; None where a job cannot say both, in this order."""
        twice = (self.max_duration and inner.max_duration) or (self.venv and inner.venv)
        # the prefix may name files of another folder, and setup runs in front of it
        if twice or (self.prefix and (inner.workdir or inner.setup)):
            return None
        if self.setup and inner.workdir:
            return None
        return Unwrapped(
            inner.words,
            {**self.env, **inner.env},
            inner.max_duration or self.max_duration,
            (*self.prefix, *inner.prefix),
            join_folder(self.workdir, inner.workdir),
            inner.venv or self.venv,
            (*self.setup, *inner.setup),
            inner.runs_script or self.runs_script,
        )


def unwrap(
    words: Sequence[str], is_launch: Callable[[list[str]], bool], limit: int = _MAX_WRAPPERS
) -> Unwrapped:
    """Return what stands behind the assignments and wrappers that are understood.

    `is_launch`: whether words start a known launcher or Python. What else a shell runs is left to
    it, since `cd` and other builtins are no programs; and what stands before an unknown program
    is a part of its command. Raises ConfigError where the job cannot run under a wrapper.
    """
    env: dict[str, str | None] = {}
    begin = 0
    for match in map(ASSIGNMENT.fullmatch, words):
        if match is None:
            break
        env[match[1]] = match[2]
        begin += 1
    line = Unwrapped(list(words[begin:]), env)
    name = posixpath.basename(line.words[0]) if line.words and limit else ""
    if name in _SCANNED:
        wrapper = _scan(line.words, is_launch)
    else:
        wrapper = _READERS[name](line.words) if name in _READERS else None
    if wrapper is None:
        return line
    inner = unwrap(wrapper.words, is_launch, limit - 1)
    is_for_launches = wrapper.prefix or name in _SHELLS
    if is_for_launches and not is_launch(inner.words):
        return line
    if name == _SUDO:
        raise ConfigError(
            "`sudo` starts the job as another user: it could not be watched or stopped",
            where=PASTED_LINE,
            hint="leave it out, or start safelaunch itself as that user",
        )
    outer = line.around(wrapper) or line
    return outer.around(inner) or (line if is_for_launches else outer)


def _scan(words: list[str], is_launch: Callable[[list[str]], bool]) -> Unwrapped | None:
    """Return what begins at the first word that is a program, whatever the options before it."""

    def is_program(at: int) -> bool:
        name = posixpath.basename(words[at])
        is_wrapper = name in _SCANNED or name in _READERS
        return is_wrapper or (not name.startswith("-") and is_launch(words[at:]))

    for at in range(1, min(len(words), _MAX_OPTIONS)):
        if not is_program(at):
            continue
        # what follows `-o` may be its value, although it looks like a program
        is_option = words[at - 1].startswith("-") and words[at - 1] != "--"
        if is_option and "=" not in words[at - 1] and at + 1 < len(words) and is_program(at + 1):
            return None
        return Unwrapped(words[at:], prefix=tuple(words[:at]))
    return None


def finds_python(prefix: Sequence[str]) -> bool:
    """Whether the job's Python is the one that the prefix puts first on PATH."""
    names = [posixpath.basename(word) for word in prefix]
    # options may stand between the two: `uv --project=p run`
    return any(name in _ENVIRONMENTS and "run" in names[at:] for at, name in enumerate(names))


def keeps_process(prefix: Sequence[str]) -> bool:
    """Whether the launcher replaces the process of the prefix, instead of being a child of it."""
    rest = list(prefix)
    while rest:
        name = posixpath.basename(rest[0])
        inner = _READERS[name](rest) if name in _REPLACED else None
        if inner is None:
            return False
        rest = inner.words
    return True


def _split_options(
    words: Sequence[str],
    valued: Collection[str] = (),
    flags: Collection[str] = (),
    end: Collection[str] = (),
) -> tuple[list[tuple[str, str]], list[str]] | None:
    """Return the options with their values and the words behind them; None for an unknown one.

    A value follows `=`, a letter (`-k5`), or as the next word. The command may begin with `end`.
    """
    options, rest = [], list(words)
    while rest and rest[0].startswith("-") and rest[0] not in end:
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if not word.startswith("--") and word[:2] in valued and len(word) > len("-k"):
            name, equals, value = word[:2], "=", word[2:]
        if name in valued and (equals or rest):
            options.append((name, value if equals else rest.pop(0)))
        elif word in flags:
            options.append((word, ""))
        else:
            return None
    return options, rest


def _drop(valued: Collection[str] = (), flags: Collection[str] = ()) -> _Reader:
    """Return the reader of a wrapper whose work safelaunch does itself."""

    def read(words: Sequence[str]) -> Unwrapped | None:
        split = _split_options(words[1:], valued, flags)
        return None if split is None else Unwrapped(split[1])

    return read


def _keep(
    valued: Collection[str] = (),
    flags: Collection[str] = (),
    *,
    subcommand: str = "",
    operands: int = 0,
) -> _Reader:
    """Return the reader of a wrapper that stays; `operands` of its own follow its options."""

    def read(words: Sequence[str]) -> Unwrapped | None:
        rest = words[1:]
        if subcommand:
            before = _split_options(rest, valued, flags)
            if before is None or before[1][:1] != [subcommand]:
                return None
            rest = before[1][1:]
        split = _split_options(rest, valued, flags, _MODULE if subcommand else ())
        if split is None:
            return None
        rest = split[1][operands:]
        return Unwrapped(rest, prefix=tuple(words[: len(words) - len(rest)]))

    return read


def _env(words: Sequence[str]) -> Unwrapped | None:
    split = _split_options(words[1:], ("-u", "--unset", "-C", "--chdir"))
    if split is None:
        return None
    folders = [value for name, value in split[0] if name in ("-C", "--chdir")]
    env: dict[str, str | None] = {v: None for name, v in split[0] if name in ("-u", "--unset")}
    return Unwrapped(split[1], env, workdir=folders[-1] if folders else "")


def _time(words: Sequence[str]) -> Unwrapped | None:
    """Return what follows `time`: its plain form tells what `show` tells too."""
    plain = _drop(flags=("-p",))(words)
    return plain or _keep(("-o", "-f"), ("-v", "-a", "-q", "-p", "--verbose"))(words)


def _with_script(keep: _Reader) -> _Reader:
    """Return the reader of a wrapper that stays, and takes a script without `python` too."""

    def read(words: Sequence[str]) -> Unwrapped | None:
        inner = keep(words)
        if inner is None or not inner.words or not inner.words[0].endswith(".py"):
            return inner
        return inner._replace(words=["python", *inner.words], runs_script=True)

    return read


def _uv(words: Sequence[str]) -> Unwrapped | None:
    """Return what follows `uv run`: a command, a script, or `-m` and a module."""
    inner = _with_script(_keep((*_UV_VALUED, "--directory"), _UV_FLAGS, subcommand="run"))(words)
    if inner is None:
        return None
    if inner.words and inner.words[0] in _MODULE:
        inner = inner._replace(words=["python", "-m", *inner.words[1:]])
    return _with_folder(inner, "--directory")


def _with_folder(line: Unwrapped, option: str) -> Unwrapped:
    """Return a line whose prefix changes to a folder first, with that as the job's own."""
    prefix: list[str] = []
    folder = ""
    rest = list(line.prefix)
    while rest:
        word = rest.pop(0)
        if word == option:
            folder = rest.pop(0)
        elif word.startswith(f"{option}="):
            folder = word.partition("=")[2]
        else:
            prefix.append(word)
    return line._replace(prefix=tuple(prefix), workdir=folder) if folder else line


def _only_script(keep: _Reader) -> _Reader:
    """Return the reader of a wrapper that stays, and runs the script in its own process."""

    def read(words: Sequence[str]) -> Unwrapped | None:
        inner = _with_script(keep)(words)
        return inner if inner is not None and inner.runs_script else None

    return read


def _conda(words: Sequence[str]) -> Unwrapped | None:
    """Return what follows `conda run`, which without -s shows all output at the end only."""
    shows = ("-s", "--no-capture-output", "--live-stream")
    inner = _keep(_ENVIRONMENT, (*shows, "-v", "--verbose"), subcommand="run")(words)
    if inner is None or not set(shows).isdisjoint(inner.prefix):
        return inner
    begin = inner.prefix.index("run") + 1
    prefix = (*inner.prefix[:begin], "--no-capture-output", *inner.prefix[begin:])
    return inner._replace(prefix=prefix)


def _timeout(words: Sequence[str]) -> Unwrapped | None:
    valued, flags = ("-k", "--kill-after", "-s", "--signal"), ("--foreground", "--preserve-status")
    split = _split_options(words[1:], valued, (*flags, "-v", "--verbose"))
    if split is None or not split[1]:
        return None
    options, (limit, *rest) = split
    signals = [value for name, value in options if name in ("-s", "--signal")]
    match = _DURATION.fullmatch(limit)
    # safelaunch stops with TERM, and with KILL after a grace period
    if match is None or any(name.removeprefix("SIG") != "TERM" for name in signals):
        return None
    seconds = float(match[1]) * SECONDS[match[2] or "s"]
    if seconds and not _SHORTEST <= seconds <= _LONGEST:
        return None
    return Unwrapped(rest, max_duration=job_duration(seconds) if seconds else None)


def _shell(words: Sequence[str]) -> Unwrapped | None:
    """Return the command of `bash -c TEXT`, where the text is one with what prepares it."""
    split = _split_options(words[1:], ("-o",), ("-c", "-e", "-u", "-x", "-ec", "-euc", "-xc"))
    if split is None or len(split[1]) != 1 or not any("c" in name for name, _ in split[0]):
        return None
    return text_of(split[1][0])


def text_of(text: str) -> Unwrapped | None:
    """Return the command of a shell's text, and what the text prepares before it."""
    setup = read_setup(text)
    if setup is None:
        return None
    return Unwrapped(
        setup.words, setup.env, workdir=setup.workdir, venv=setup.venv, setup=setup.setup
    )


_SUDO = "sudo"
_MODULE = ("-m", "--module")  # of a wrapper that runs modules itself, and of Python
# what runs a program in an environment of its own choice, as `NAME run`
_ENVIRONMENTS = frozenset(
    ("uv", "conda", "mamba", "micromamba", "poetry", "pixi", "pdm", "hatch", "pipenv", "rye")
)
_ENVIRONMENT = ("-n", "--name", "-p", "--prefix")
# their options are many: the program begins where a launcher does
_SCANNED = frozenset(("nsys", "ncu", "py-spy", "strace", "perf", "xvfb-run", _SUDO))
# uv 0.13: those of `uv run --help` that leave the command and its folder as they are
_UV_VALUED = (
    "--extra", "--no-extra", "--group", "--no-group", "--only-group", "--env-file", "-w", "--with",
    "--with-editable", "--with-requirements", "--package", "--index", "--default-index", "-i",
    "--index-url", "--extra-index-url", "-f", "--find-links", "--index-strategy", "-P",
    "--upgrade-package", "--resolution", "--prerelease", "--exclude-newer", "--link-mode",
    "--no-build-isolation-package", "--no-build-package", "--no-binary-package", "--cache-dir",
    "-p", "--python", "--project", "--config-file", "--color", "--python-platform",
    "--no-install-package", "--torch-backend", "--allow-insecure-host",
)  # fmt: skip
_UV_FLAGS = (
    "--all-extras", "--dev", "--no-dev", "--only-dev", "--no-default-groups", "--all-groups",
    "--no-editable", "--exact", "--no-env-file", "--isolated", "--active", "--no-sync", "--locked",
    "--frozen", "--all-packages", "--no-project", "--no-index", "-U", "--upgrade", "--no-sources",
    "--reinstall", "--compile-bytecode", "--no-build-isolation", "--no-build", "--no-binary", "-n",
    "--no-cache", "--refresh", "--managed-python", "--no-managed-python", "--no-python-downloads",
    "-q", "--quiet", "-v", "--verbose", "--offline", "--no-progress", "--no-config", "--preview",
    "--no-preview", "--native-tls", "--no-install-project", "--no-install-workspace", "-s",
    "--script",
)  # fmt: skip
# coverage 7.17, `coverage help run`
_COVERAGE_VALUED = (
    "--concurrency", "--context", "--data-file", "--include", "--omit", "--save-signal", "--source",
    "--debug", "--rcfile",
)  # fmt: skip
_COVERAGE_FLAGS = (
    "-a",
    "--append",
    "--branch",
    "-L",
    "--pylib",
    "-p",
    "--parallel-mode",
    "--timid",
)
_READERS: dict[str, _Reader] = {
    "nohup": _drop(),
    "time": _time,
    "exec": _drop(),
    "setsid": _drop(flags=("-w", "-f", "--wait", "--fork")),
    "stdbuf": _drop(valued=("-i", "-o", "-e", "--input", "--output", "--error")),
    "env": _env,
    "timeout": _timeout,
    **dict.fromkeys(_SHELLS, _shell),
    # numactl.c, util-linux 2.38 (taskset, ionice, chrt), coreutils 9 (nice)
    "numactl": _keep(
        ("-i", "--interleave", "-p", "--preferred", "-c", "--cpubind", "-N", "--cpunodebind", "-C",
         "--physcpubind", "-m", "--membind", "-P", "--preferred-many", "-w",
         "--weighted-interleave"),
        ("-l", "--localalloc", "-a", "--all", "-b", "--balancing"),
    ),
    "taskset": _keep(flags=("-c", "--cpu-list"), operands=1),
    "nice": _keep(("-n", "--adjustment"), tuple(f"-{number}" for number in range(1, 20))),
    "ionice": _keep(("-c", "--class", "-n", "--classdata"), ("-t", "--ignore")),
    "chrt": _keep(
        flags=("-b", "--batch", "-f", "--fifo", "-i", "--idle", "-o", "--other", "-r", "--rr"),
        operands=1,
    ),
    "uv": _uv,
    "coverage": _only_script(_keep(_COVERAGE_VALUED, _COVERAGE_FLAGS, subcommand="run")),
    # line_profiler 5.1, `kernprof --help`
    "kernprof": _only_script(
        _keep(("-o", "--outfile", "-u", "--unit", "-s", "--setup", "-p", "--prof-mod"),
              ("-l", "-v", "-b", "-r", "-z", "-q", "-lv", "-vl", "-lb", "-lvr", "--view"))
    ),
    "conda": _conda,
    "mamba": _keep(_ENVIRONMENT, subcommand="run"),
    "micromamba": _keep((*_ENVIRONMENT, "-r", "--root-prefix"), ("-q",), subcommand="run"),
    "poetry": _keep(flags=("-q", "-v", "-n", "--no-interaction", "--no-ansi"), subcommand="run"),
    "hatch": _keep(("-e", "--env"), ("-q", "-v"), subcommand="run"),
    "pipenv": _keep(subcommand="run"),
    "rye": _keep(subcommand="run"),
    "pixi": _keep(
        ("-e", "--environment", "--manifest-path"),
        ("--frozen", "--locked", "-x", "--executable", "-q", "--quiet"),
        subcommand="run",
    ),
    "pdm": _keep(flags=("-v", "-q", "-s", "--site-packages"), subcommand="run"),
}  # fmt: skip
NAMES = frozenset(_READERS) | _SCANNED  # of all programs that are looked through
_REPLACED = ("numactl", "taskset", "nice", "ionice", "chrt")
