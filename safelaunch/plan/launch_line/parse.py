"""One launch line -> a job: variables, wrappers, then a launcher, Python or a command.

Literal words only: nothing is expanded as a shell would.
"""

# ruff: noqa: PLC0415 - shutil: only for a line whose program PATH alone can tell

from __future__ import annotations

import itertools
import os
import re
import shlex
from types import MappingProxyType
from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.config.yaml_io.node import mapping, scalar
from safelaunch.environ import RANK_NAMES, check_name, rank_values
from safelaunch.errors import ConfigError
from safelaunch.launchers.flag_table import PASTED_LINE
from safelaunch.model import Topology
from safelaunch.plan.launch_line import nodes
from safelaunch.plan.launch_line.launcher_flags import launcher_keys, read_scalars
from safelaunch.plan.launch_line.shell_text import join_folder
from safelaunch.plan.launch_line.wrappers import Unwrapped, finds_python, text_of, unwrap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.config.yaml_io.node import Node
    from safelaunch.plan.launch_line.shell import Shell

# quoted text: operators outside of it are the shell's
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_CONTINUED = re.compile(r"""('[^']*')|\\\r?\n""")
_OPERATOR = re.compile(r"[|&;<>()`\n]+")
# a pipe, a file, the background: what safelaunch itself does with a launch
_REDIRECTION = re.compile(r"(?<!\|)\|(?!\|)|[<>]|(?<![&>])&(?![&>])")
# quotes, escapes and words are kept, also `a#b`; a `#` that begins a word begins a comment
_COMMENT = re.compile(
    r"""(\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s#'"\\][^\s'"\\]*)|(?<!\S)\#[^\n]*""", re.DOTALL
)
# a dash that a text processor put in place of `-` or `--`
_WRONG_DASH = re.compile(r"[\u2010-\u2015\u2212]+[A-Za-z]")
_SCRIPT = re.compile(r"\w\.(py|sh|bash)$")
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
# options of Python in one word, the last of which takes what follows
_CLUSTER = re.compile(r"-([bBdEiIOPqsSuvx]+)([mc])")
_NAME = re.compile(r"[A-Za-z./][\w./-]*")
# what a prompt ends with in documentation: of a user, of root, of csh, of a continued line
_PROMPTS = ("$", "#", "%", ">")
_NOTEBOOK = ("!", "%")
# a module that starts ranks, of a launcher that is not known: it is no plain program
_STARTS_RANKS = re.compile(r"(.*\.)?(distributed|launcher)\.(launch|run|runner|launcher)")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_PLAIN = "python"  # the launcher of one process
_COMMAND = "command"  # the launcher of what is run as it stands


def parse_line(
    words: Sequence[str],
    shell: Shell | None = None,
    exported: Mapping[str, str] = MappingProxyType({}),
) -> Node:
    """Return the keys of a job that runs this line. Raises ConfigError where it is not literal.

    Without a shell no config file is read. `exported` counts as if it stood in front of the line.
    Values of variables that hold secrets stay; line.py takes them out.
    """
    outer = Unwrapped(list(words))
    if len(words) == 1 and re.search(r"\s", words[0]):
        outer = _shell_text(words[0])
    _refuse_prompt(outer.words)
    for word in outer.words:
        if _WRONG_DASH.match(word):
            raise ConfigError(
                f"`{word}` begins with a dash that is no ASCII `-`",
                where=PASTED_LINE,
                hint="a text processor has replaced it",
            )
    inner = unwrap(outer.words, _is_launch)
    inner = outer.around(inner) or outer
    if not inner.words:
        raise ConfigError("no command in the line", where=PASTED_LINE)
    env = {**exported, **inner.env}
    if shell is not None:
        brings_python = inner.venv is not None or finds_python(inner.prefix)
        shell = shell._replace(workdir=inner.workdir, brings_python=brings_python)
    keys = _command(inner.words, env, shell)
    keys |= _surroundings(inner, keys.get("python"))
    for name in env:
        check_name(name, PASTED_LINE)
    if "gpus" in keys and keys["gpus"].text != nodes.AUTO:  # accelerate's --gpu_ids overrides it
        env.pop(_VISIBLE, None)
    elif (gpus := env.get(_VISIBLE)) and re.fullmatch(r"\d+(,\d+)*", gpus):
        keys["gpus"] = nodes.words(gpus.split(","))
        del env[_VISIBLE]
    if env:
        keys["env"] = mapping({name: nodes.value(text) for name, text in env.items()}, PASTED_LINE)
    return mapping(keys, PASTED_LINE)


def _refuse_prompt(words: Sequence[str]) -> None:
    """Refuse a line that begins with what no shell could start. Raises ConfigError."""
    first = words[0] if words else ""
    if first in _PROMPTS:
        what, hint = "is the prompt of a shell", "leave it out"
    elif first.startswith(_NOTEBOOK) and len(first) > 1:
        what, hint = "is the way of a notebook to start a program", f"leave `{first[0]}` out"
    elif first.startswith("-"):
        what, hint = "is an option, and no program stands before it", "name the program first"
    else:
        return
    raise ConfigError(f"the line begins with `{first}`, which {what}", where=PASTED_LINE, hint=hint)


def _surroundings(line: Unwrapped, python: Node | None) -> dict[str, Node]:
    """Return the keys of what stands around a command; `python` is the interpreter it names."""
    keys: dict[str, Node] = {}
    if line.runs_script:
        keys["version"] = nodes.word("script")
    if line.max_duration is not None:
        keys["max_duration"] = nodes.word(line.max_duration)
    if line.prefix:
        keys["prefix"] = nodes.words(line.prefix)
    if line.setup:
        keys["setup"] = nodes.words(line.setup)
    if line.workdir:
        keys["workdir"] = nodes.word(line.workdir)
    if python is not None:
        keys["python"] = nodes.word(join_folder(line.workdir, python.text))
    elif line.venv is not None:
        keys["venv"] = nodes.word(line.venv)
    return keys


def _is_launch(words: list[str]) -> bool:
    return bool(words) and _command(words, {}, None)["launcher"].text != _COMMAND


def _as_command(words: Sequence[str]) -> dict[str, Node]:
    return {"launcher": scalar(_COMMAND, PASTED_LINE), "command": nodes.words(words)}


def default_name(tree: Node) -> str:
    """Return the name of a pasted line's job: that of its script, its module or its program."""
    script, module, command = (tree.get(key) for key in ("script", "module", "command"))
    launcher = tree.get("launcher")
    words = [item.text for item in command.items] if command is not None else []
    if launcher is not None and launcher.text != _COMMAND:
        words = [launcher.text, *words]
    file = script.text if script is not None else next(filter(_SCRIPT.search, words), None)
    if file is not None:
        text = os.path.splitext(os.path.basename(file))[0]
    elif module is not None:
        text = module.text
    elif "-m" in words[:-1] and _PYTHON.fullmatch(os.path.basename(words[words.index("-m") - 1])):
        text = words[words.index("-m") + 1]
    else:  # `swift sft`, `make train`
        text = "-".join(map(os.path.basename, itertools.takewhile(_NAME.fullmatch, words[:2])))
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")[:41] or "job"


def _shell_text(line: str) -> Unwrapped:
    """Return a line in one word as a shell reads it. Raises ConfigError."""
    line = _without_comment(_CONTINUED.sub(lambda match: match[1] or "", line)).strip()
    try:
        words = shlex.split(line, comments=False)
    except ValueError as e:
        raise ConfigError(f"the line cannot be read: {e}", where=PASTED_LINE) from None
    operator = _OPERATOR.search(_QUOTED.sub("_", line))
    if operator:
        prepared = text_of(line)
        if prepared is not None and _is_launch(unwrap(prepared.words, _is_launch).words):
            return prepared
        shown = operator[0].strip() or "a line break"
        if not _REDIRECTION.search(_QUOTED.sub("_", line)):
            return Unwrapped(["bash", "-c", line])
        raise ConfigError(
            f"`{shown}` is shell, not part of a launch line",
            where=PASTED_LINE,
            hint="leave it out: a run has its own log, and goes on in the background; "
            "or `bash -c '...'` runs the text as it stands",
        )
    return Unwrapped(words)


def _without_comment(line: str) -> str:
    """Return a text without what a shell takes for comments: from a `#` that begins a word."""
    return _COMMENT.sub(lambda match: match[1] or "", line)


def _command(line: list[str], env: dict[str, str | None], shell: Shell | None) -> dict[str, Node]:
    """Return the keys of a line; variables that they replace are removed from `env`."""
    program = _look_up(line[0], env, shell)
    if program is None:
        return _as_command(line)
    line = [program, *line[1:]]
    if _PYTHON.fullmatch(os.path.basename(line[0])):
        return _python(line, env, shell)
    program = launchers.find_program(line)
    if program is None:
        return _as_command(line)
    flags = launchers.load(launchers.programs()[program]).FLAGS
    python = {}
    if "/" in line[0]:  # `/env/bin/accelerate` means the interpreter of that environment
        python = {"python": nodes.word(os.path.join(os.path.dirname(line[0]), "python"))}
    if flags is None:
        name = launchers.programs()[program]
        if python and not launchers.load(name).RUNS_PYTHON:  # another installation of srun, mpirun
            return _as_command(line)
        keys = _subcommand(name, line[1:], env, shell)
        return _as_command(line) if keys is None else {**python, **keys}
    name, *subcommand = program.split()
    rest = line[1 + len(subcommand) :]
    if line[1 : 1 + len(subcommand)] != subcommand:
        raise ConfigError(
            f"`{name} {line[1] if len(line) > 1 else ''}` starts no job",
            where=PASTED_LINE,
            hint=f"did you mean `{program}`?",
        )
    keys = launcher_keys(launchers.programs()[program], flags, rest, env, shell)
    return _as_command(line) if keys is None else {**python, **keys}


def _look_up(name: str, env: Mapping[str, str | None], shell: Shell | None) -> str | None:
    """Return the path of a Python, or of a launcher of Python, that only PATH can tell.

    That is so of `python3.11`, and where the line sets PATH. Any other name stays as it is: the
    start takes the active environment's. None where the machine of the line is another one.
    """
    is_python = _PYTHON.fullmatch(name)
    if not (is_python and is_python[2]) and env.get("PATH") is None:
        return name
    if "/" in name or shell is None or shell.brings_python:
        return name
    if not is_python and not _is_python_launcher(name):
        return name
    if not shell.is_here:
        return None
    import shutil

    return shutil.which(name, path=shell.with_env(env).environ.get("PATH"))


def _is_python_launcher(name: str) -> bool:
    program = launchers.find_program([name])
    return program is not None and launchers.load(launchers.programs()[program]).RUNS_PYTHON


def _subcommand(
    name: str,
    words: list[str],
    env: dict[str, str | None],
    shell: Shell | None,
    module: str | None = None,
) -> dict[str, Node] | None:
    """Return the keys that a launcher itself reads from its line; None if it reads none."""
    launcher = launchers.load(name)

    def settings(file: str | None) -> dict[str, str]:
        return {} if shell is None else read_scalars(file, shell.with_env(env))

    job = launcher.job_keys(launchers.CommandLine(tuple(words), env, module, settings))
    if job is None or (launcher.STARTS_RANKS and _contradicts(job.keys, env)):
        return None
    for variable in job.variables:
        del env[variable]
    keys = {"launcher": scalar(name, PASTED_LINE)}
    for key, value in job.keys.items():
        if isinstance(value, str):
            keys[key] = nodes.gpus(value, PASTED_LINE) if key == "gpus" else nodes.word(value)
        else:
            keys[key] = nodes.words(value)
    return {**keys, **(_inner_program(job, env) if job.program else {})}


def _contradicts(keys: Mapping[str, str | tuple[str, ...]], env: Mapping[str, str | None]) -> bool:
    """Whether variables say that a line of one process is a rank of several: both may be meant.

    Where a launcher starts several ranks, it sets them.
    """
    if keys.get("processes", "1") != "1" or "gpus" in keys or "nodes" in keys:
        return False
    values = rank_values(Topology())
    return any(
        value not in (None, values.get(name)) for name, value in env.items() if name in RANK_NAMES
    )


def _inner_program(job: launchers.JobKeys, env: Mapping[str, str | None]) -> dict[str, Node]:
    """Return the keys of what a program such as srun starts: Python, or else a command.

    `-u` is no difference: PYTHONUNBUFFERED is set. What is wrong with another launcher's line is
    left to that one, as its words are.
    """
    try:
        keys = _command(list(job.program), dict(env), None)
    except ConfigError:
        return {"command": nodes.words(job.program)}
    version = _PYTHON.fullmatch(job.program[0])
    if version and version[2]:  # `python3.11`, which PATH decides on the machines of the ranks
        return {"command": nodes.words(job.program)}
    options = keys.pop("launcher_args", None)
    is_plain = options is None or all(option.text == "-u" for option in options.items)
    if job.is_opaque or keys.pop("launcher").text != _PLAIN or not is_plain:
        return {"command": nodes.words(job.program)}
    return keys


def _module(
    line: list[str], words: list[str], env: dict[str, str | None], shell: Shell | None
) -> dict[str, Node] | None:
    """Return the keys of the launcher that `python -m` starts with the words; None if none."""
    module, *after = words
    name = launchers.find_module(module)
    if name is None:
        return None
    launcher = launchers.load(name)
    if launcher.FLAGS is None:
        return _subcommand(name, after, env, shell, module)
    first = launcher.FLAGS if module == launcher.MODULES[0] else None
    table = launcher.MODULE_FLAGS.get(module, first)
    if table is None:
        return None
    keys = launcher_keys(name, table, after, env, shell)
    return _as_command(line) if keys is None else keys


def _own_script(
    line: list[str], words: list[str], env: dict[str, str | None], shell: Shell | None
) -> dict[str, Node] | None:
    """Return the keys of `python swift/cli/main.py` in a checkout, which is its `-m` there."""
    script, *after = words
    module = script.removesuffix(".py").replace("/", ".")
    name = launchers.find_module(module)
    is_own = name is not None and module in launchers.load(name).MODULES
    if name is None or not is_own or not launchers.load(name).STARTS_RANKS:
        return None
    return _module(line, [module, *after], env, shell)


def _python(line: list[str], env: dict[str, str | None], shell: Shell | None) -> dict[str, Node]:
    python = {"python": nodes.word(line[0])} if "/" in line[0] else {}
    options, rest = _python_options(line[1:])
    is_module = rest[:1] == ["-m"] and len(rest) > 1
    program = rest[1:] if is_module else rest
    if not program or (not is_module and program[0][:2] in ("-c", "-", "-m")):
        return _as_command(line)
    if is_module and len(program) > 1:
        options = [option for option in options if option != "-u"]
    console = _console_program(program[0], is_module=is_module)
    if console is not None:
        keys: dict[str, Node] | None = _command([console, *program[1:]], env, shell)
    else:
        keys = (_module if is_module else _own_script)(line, program, env, shell)
    if keys is not None:
        return _with_python(line, keys, python, options)
    if is_module and _STARTS_RANKS.fullmatch(program[0]):
        return _as_command(line)
    target = {"module" if is_module else "script": nodes.word(program[0])}
    keys = {"launcher": scalar(_PLAIN, PASTED_LINE), **python, **target}
    if options:
        keys["launcher_args"] = nodes.words(options)
    return {**keys, **nodes.args(program[1:])}


def _python_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of Python, and the words from the program, `-m` or `-c` on."""
    options: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0][:2] not in ("-m", "-c", "-"):
        if cluster := _CLUSTER.fullmatch(rest[0]):  # `-um torch.distributed.run`
            rest[:1] = [f"-{cluster[1]}", f"-{cluster[2]}"]
        options.append(rest.pop(0))
        if options[-1] in ("-X", "-W", "--check-hash-based-pycs") and rest:
            options.append(rest.pop(0))
    if rest and rest[0].startswith("-m") and rest[0] != "-m":
        rest[:1] = ["-m", rest[0][2:]]
    return options, rest


def _console_program(name: str, *, is_module: bool) -> str | None:
    """Return the launcher whose program a module, or a path like that of `which torchrun`, is."""
    if is_module:
        return launchers.find_console_module(name)
    program = os.path.basename(name)
    return program if launchers.find_program([program]) else None


def _with_python(
    line: list[str], keys: dict[str, Node], python: dict[str, Node], options: Sequence[str]
) -> dict[str, Node]:
    """Return the keys of a launcher behind `python`, with the interpreter and its options."""
    launcher = keys["launcher"].text
    if launcher == _COMMAND or not launchers.load(launcher).RUNS_PYTHON:
        return _as_command(line)
    own = {"python_options": nodes.words(options)} if options else {}
    return {**python, **keys, **own}
