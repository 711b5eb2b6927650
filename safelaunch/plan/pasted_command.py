"""One pasted launch line -> a job: variables, then accelerate, torchrun, python, a command.

Literal words only: whoever pastes a line has already let the shell expand it. What the job's own
keys say (processes, precision, GPUs) becomes those keys; every other launcher flag is kept.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config.schema.types import expand_option
from safelaunch.config.yaml_io.node import Node, mapping, scalar
from safelaunch.environ import check_name
from safelaunch.errors import ConfigError
from safelaunch.model import Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.launchers.flag_table import FlagTable

_WHERE = Origin("command line")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
# what a shell quotes; what is left of a line without it is the shell's to interpret
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_CONTINUED = re.compile(r"""('[^']*')|\\\r?\n""")
_OPERATOR = re.compile(r"[|&;<>()`\n]+")
# a dash that a text processor has made of `-` or `--`
_WRONG_DASH = re.compile(r"[\u2010-\u2015\u2212]+[A-Za-z]")
_AUTO = "auto"

# what people type before a launch and safelaunch does itself; `env` only stands before variables
_WRAPPER = re.compile(r"nohup|time|exec|env")

# launcher flag -> job key; what is not here stays a launcher flag
_KEYS = {
    "accelerate": {
        "num_processes": "processes",
        "num_machines": "nodes",
        "mixed_precision": "mixed_precision",
        "gpu_ids": "gpus",
    },
    "torchrun": {"nproc_per_node": "processes", "nnodes": "nodes"},
}
# said by the plan itself, the same in every launch of one node
_IMPLIED = {
    "accelerate": {"multi_gpu", "same_network", "machine_rank"},
    "torchrun": {"node_rank", "master_addr", "standalone"},
}


class Flags(NamedTuple):
    """Launcher flags of a line: (name, values) in order, and the words from the program on."""

    flags: list[tuple[str, list[str]]]
    rest: list[str]


def parse_line(words: Sequence[str]) -> Node:
    """Return the keys of a job that runs this line. Raises ConfigError where it is not literal.

    Values of variables that hold secrets are kept; whoever runs or writes the job refuses them.
    """
    line = list(words)
    if len(line) == 1 and re.search(r"\s", line[0]):
        line = _shell_words(line[0])
    for word in line:
        if _WRONG_DASH.match(word):
            raise ConfigError(
                f"`{word}` begins with a dash that is no ASCII `-`",
                where=_WHERE,
                hint="a text processor has replaced it",
            )
    env: dict[str, str] = {}
    while line and (found := _ASSIGNMENT.fullmatch(line[0]) or _WRAPPER.fullmatch(line[0])):
        if found.re is _WRAPPER:
            line.pop(0)
            continue
        check_name(found[1], _WHERE)
        env[found[1]] = found[2]
        line.pop(0)
    if not line:
        raise ConfigError("no command in the line", where=_WHERE)
    keys = _command(line)
    _visible(keys, env)
    if env:
        keys["env"] = mapping({k: _word(v) for k, v in env.items()}, _WHERE)
    return mapping(keys, _WHERE)


def _visible(keys: dict[str, Node], env: dict[str, str]) -> None:
    """Turn CUDA_VISIBLE_DEVICES into `gpus:`; accelerate's --gpu_ids beats it."""
    name = "CUDA_VISIBLE_DEVICES"
    stated = keys.get("gpus")
    if stated is not None and stated.text != _AUTO:
        env.pop(name, None)
    elif re.fullmatch(r"\d+(,\d+)*", env.get(name, "")):
        keys["gpus"] = _list(env.pop(name).split(","))


def _shell_words(line: str) -> list[str]:
    line = _CONTINUED.sub(lambda found: found[1] or "", line).strip()
    try:
        words = shlex.split(line, comments=False)
    except ValueError as e:
        raise ConfigError(f"the line cannot be read: {e}", where=_WHERE) from None
    found = _OPERATOR.search(_QUOTED.sub("_", line))
    if found:
        shown = found[0].strip() or "a line break"
        raise ConfigError(
            f"`{shown}` is shell, not part of a launch line",
            where=_WHERE,
            hint="one command; logs, background and pipes are what safelaunch does",
        )
    return words


def _command(line: list[str]) -> dict[str, Node]:
    program = os.path.basename(line[0])
    python = _python_beside(line[0])
    if program == "accelerate" and line[1:2] == ["launch"]:
        return {**python, **_launcher("accelerate", line[2:])}
    if program == "accelerate-launch":
        return {**python, **_launcher("accelerate", line[1:])}
    if program == "accelerate":
        raise ConfigError(
            f"`accelerate {line[1] if len(line) > 1 else ''}` starts no job",
            where=_WHERE,
            hint="did you mean `accelerate launch`?",
        )
    if program == "torchrun":
        return {**python, **_launcher("torchrun", line[1:])}
    if re.fullmatch(r"python(3(\.\d+)?)?", program):
        return _python(line)
    return {"launcher": scalar("command", _WHERE), "command": _list(line)}


def _python_beside(program: str) -> dict[str, Node]:
    """`/env/bin/accelerate` means the interpreter of that environment."""
    if "/" not in program:
        return {}
    return {"python": _word(os.path.join(os.path.dirname(program), "python"))}


def _python(line: list[str]) -> dict[str, Node]:
    python = {"python": _word(line[0])} if "/" in line[0] else {}
    options: list[str] = []
    rest = line[1:]
    while rest and rest[0].startswith("-") and rest[0][:2] not in ("-m", "-c", "-"):
        options.append(rest.pop(0))
        if options[-1] in ("-X", "-W", "--check-hash-based-pycs") and rest:
            options.append(rest.pop(0))
    if rest and rest[0].startswith("-m") and rest[0] != "-m":
        rest[:1] = ["-m", rest[0][2:]]
    if rest[:1] == ["-m"] and len(rest) > 1:
        module, after = rest[1], rest[2:]
        options = [option for option in options if option != "-u"] if after else options
        if module == "accelerate.commands.launch" and not options:
            return {**python, **_launcher("accelerate", after)}
        if module == "torch.distributed.run" and not options:
            return {**python, **_launcher("torchrun", after)}
        target = {"module": _word(module)}
    elif rest and rest[0][:2] not in ("-c", "-", "-m"):
        target, after = {"script": _word(rest[0])}, rest[1:]
    else:
        return {"launcher": scalar("command", _WHERE), "command": _list(line)}
    keys = {"launcher": scalar("python", _WHERE), **python, **target}
    if options:
        keys["launcher_args"] = _list(options)
    return {**keys, **_args(after)}


def _launcher(name: str, words: list[str]) -> dict[str, Node]:
    from safelaunch.launchers import accelerate, torchrun  # noqa: PLC0415 - only pasted lines

    table = {"accelerate": accelerate.TABLE, "torchrun": torchrun.TABLE}[name]
    parsed = _split(name, words, table)
    keys: dict[str, Node] = {"launcher": scalar(name, _WHERE)}
    kept: list[str] = []
    module = False
    for flag, values in parsed.flags:
        key = _KEYS[name].get(flag)
        if flag == "module":
            module = True
        elif key is not None:
            keys[key] = _gpus(values[0]) if key == "gpus" else _word(values[0])
        elif flag not in _IMPLIED[name]:
            kept += expand_option(flag, tuple(values))
    if not parsed.rest:
        raise ConfigError(f"the line names no program for {name}", where=_WHERE)
    keys["module" if module else "script"] = _word(parsed.rest[0])
    keys.update(_args(parsed.rest[1:]))
    if kept:
        keys["launcher_args"] = _list(kept)
    return _counts(name, keys)


def _split(name: str, words: list[str], table: FlagTable) -> Flags:
    flags: list[tuple[str, list[str]]] = []
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        flag = table.name(word)
        if "=" in word:
            flags.append((flag, [word.split("=", 1)[1]]))
        elif flag in table.switches:
            flags.append((flag, []))
        elif flag in table.valued:
            if not rest:
                raise ConfigError(f"`{word}` has no value", where=_WHERE)
            flags.append((flag, [rest.pop(0)]))
        else:
            _unknown(name, word, flag, table)
    return Flags(flags, rest)


def _unknown(name: str, word: str, flag: str, table: FlagTable) -> None:
    from safelaunch.errors import did_you_mean  # noqa: PLC0415

    near = [known for known in table.known if known.startswith(flag)]
    hint = f"did you mean `--{near[0]}`?" if len(near) == 1 else did_you_mean(flag, table.known)
    raise ConfigError(
        f"{name} is not known to take `{word}`: does a value follow?",
        where=_WHERE,
        hint=hint or f"`{word}=VALUE` says so; or put it under launcher_args in a job file",
    )


def _counts(name: str, keys: dict[str, Node]) -> dict[str, Node]:
    """Turn the launcher's way of counting into processes per node."""
    processes, nodes = keys.get("processes"), keys.get("nodes")
    if nodes is not None and nodes.text == "1":
        del keys["nodes"]
        nodes = None
    if processes is not None and processes.text in ("gpu", _AUTO):
        del keys["processes"]
        keys.setdefault("gpus", scalar(_AUTO, _WHERE))
    elif name == "accelerate" and processes is not None and nodes is not None:
        keys["processes"] = scalar(str(_per_node(processes.text, nodes.text)), _WHERE)
    elif processes is None and name == "accelerate" and "gpus" not in keys:
        _refuse_hidden_count(keys)
        keys["gpus"] = scalar(_AUTO, _WHERE)  # what accelerate itself does: one per visible GPU
    elif processes is None and name == "torchrun":
        keys["processes"] = scalar("1", _WHERE)
    return keys


def _per_node(processes: str, nodes: str) -> int:
    """Accelerate counts the processes of all machines together."""
    if not (processes.isdecimal() and nodes.isdecimal() and int(nodes) > 0):
        raise ConfigError(f"`{processes}` processes on `{nodes}` machines", where=_WHERE)
    if int(processes) % int(nodes):
        raise ConfigError(
            f"{processes} processes cannot be shared evenly by {nodes} machines",
            where=_WHERE,
            hint="--num_processes counts those of all machines",
        )
    return int(processes) // int(nodes)


def _refuse_hidden_count(keys: dict[str, Node]) -> None:
    flags = keys.get("launcher_args")
    if flags is not None and any(item.text == "--config_file" for item in flags.items):
        raise ConfigError(
            "how many processes? only the config file says",
            where=_WHERE,
            hint="add --num_processes N to the line",
        )


def _gpus(text: str) -> Node:
    return scalar(_AUTO, _WHERE) if text == "all" else _list(text.split(","))


def _args(words: list[str]) -> dict[str, Node]:
    return {"args": _list(words)} if words else {}


def _word(text: str) -> Node:
    return Node("scalar", _WHERE, text=text, plain=_looks_plain(text))


def _looks_plain(text: str) -> bool:
    """Numbers are plain scalars, as in a file; everything else is text, `null` and `true` too."""
    return bool(re.fullmatch(r"[0-9]+", text))


def _list(words: list[str]) -> Node:
    return Node("list", _WHERE, items=tuple(_word(word) for word in words))
