"""Quotes shell words and renders bash, alone in safelaunch: launch.sh, and the line to paste.

LF, UTF-8, no BOM. Everything that reaches a shell passes `quote`, except the user's own `setup`
lines, which are verbatim by contract.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from safelaunch.environ import BASICS, PROXIES, removals
from safelaunch.model import LateValue, ShellVar, Slot, Template, bind_word, join_words, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.model import DirectStart, EnvVar, NodePlan, RankVariable, Topology, Word

# What the pasted line has in place of slots that a start would fill. The port is below the
# ephemeral range (Linux: 32768 and up), so no outgoing connection can use it by chance.
_PASTE = {
    Slot.PORT: "$((20000 + RANDOM % 12000))",
    Slot.PYTHON: '$(command -v "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/}python3")',
    Slot.PREFIX: '$(dirname "$(dirname "$(command -v python3)")")',
    Slot.GPUS: "$(nvidia-smi -L | grep -c ^GPU)",
    Slot.RUN_DIR: "$d",
}
_SITE = "SAFELAUNCH_SITE"
_ENABLED = "[Tt][Rr][Uu][Ee] | [Yy] | 1"  # of LLaMA-Factory: extras/misc.py, is_env_enabled
_MAX_LINE = 96  # characters


def quote(word: Word) -> str:
    """Return one shell word; unbound slots appear as `<name>`, quoted too."""
    if isinstance(word, str) or not any(isinstance(part, ShellVar) for part in word.parts):
        return _literal(str(word))
    return "".join(
        f'"{part}"' if isinstance(part, ShellVar) else _literal(str(part)) for part in word.parts
    )


def _literal(text: str) -> str:
    # zsh replaces `=name` by the path of a program, also after `NAME=`
    return f"'{text}'" if text.startswith("=") and "'" not in text else shlex.quote(text)


def quote_directive(word: str) -> str:
    """Return one word of an `#SBATCH` line.

    Its quotes are not a shell's: in both kinds a backslash is an escape, and the other kind ends
    them too (tried with Slurm 22.05).
    """
    if re.search(r"[\s\"'\\#]", word) is None and word:
        return word
    return '"' + re.sub(r"([\"'\\])", r"\\\1", word) + '"'


# how shlex.quote writes a quote inside of quotes
QUOTE_IN_QUOTES = "'\"'\"'"


def quoted_placeholder(name: str) -> str:
    """Return a text that `quote` always puts into quotes, to be replaced by a path later."""
    return f"safelaunch {name}"  # for the blank


def with_home_as_text(word: Word) -> Word:
    """Return a word with `<home>` as text, to be filled in by hand."""
    return bind_word(word, {Slot.HOME: str(Slot.HOME)})


def launch_script(node: NodePlan, title: str, first: Sequence[str] = ()) -> str:
    """Return the text of launch.sh for one node.

    `title` is a line for people; the lines of `first` come before the variables are removed that
    are left over.
    """
    blocks = [
        *_title(title, "to run it by hand: bash launch.sh"),
        *first,
        *_surroundings(node),
        "# under safelaunch each rank logs to a file of its own; by hand this changes nothing",
        f'[ -z "${{{_SITE}:-}}" ] || export PYTHONPATH="${_SITE}${{PYTHONPATH:+:$PYTHONPATH}}"',
        "",
    ]
    if node.ranks is None:
        blocks.append("exec " + _command(node.argv, node.program))
    else:
        blocks += _ranks(node, node.ranks)
    return "\n".join(blocks) + "\n"


def end_script(node: NodePlan, title: str) -> str:
    """Return the text of end.sh, which runs the command in its arguments as a job's own would."""
    lines = [*_title(title, "it runs the commands at the end of the run"), *_surroundings(node)]
    return "\n".join([*lines, 'exec "$@"']) + "\n"


def _title(title: str, usage: str) -> list[str]:
    return [
        "#!/usr/bin/env bash",
        f"# {' '.join(title.split())}",
        f"# written by safelaunch; {usage}",
    ]


def _surroundings(node: NodePlan) -> list[str]:
    """Return the lines that set the directory and the variables of a node."""
    lines = [*_scrub(node), f"cd -- {quote(node.cwd)} || exit 1"]
    if node.setup:
        lines += ["", "# the job's own setup, verbatim", *node.setup]
        lines += [f"cd -- {quote(node.cwd)} || exit 1"]
    return [*lines, "", *_environment(node)]


def _scrub(node: NodePlan) -> list[str]:
    lines, line = ["", "# left over from other jobs or a cluster's prologue"], "unset -v"
    removed = removals(node.unset, node.requested)
    for name, exceptions in removed.items():
        if name == "SAFELAUNCH_*" or exceptions:
            continue  # the supervisor finds its processes by these; the others are below
        word = f"${{!{name[:-1]}@}}" if name.endswith("*") else name
        if len(line) + len(word) > _MAX_LINE:
            lines.append(line + " \\")
            line = " "
        line += f" {word}"
    lines.append(line)
    for pattern, exceptions in removed.items():
        if exceptions and pattern != "SAFELAUNCH_*":
            lines += [
                f"for safelaunch_name in ${{!{pattern[:-1]}@}}; do",
                f"  case $safelaunch_name in {'|'.join(exceptions)}) ;;",
                '    *) unset -v "$safelaunch_name" ;; esac',
                "done",
            ]
    if node.keep is not None:
        # the supervisor finds its processes by the last two
        names = "|".join((*BASICS, *node.keep, *node.secrets, "SAFELAUNCH_*", "SPT_NOENV"))
        lines += [
            "for safelaunch_name in $(compgen -e); do",
            f"  case $safelaunch_name in {names}) ;;",
            '    *) unset -v "$safelaunch_name" 2>/dev/null ;; esac',
            "done",
        ]
    return [*lines, ""]


def _environment(node: NodePlan) -> list[str]:
    # the other computed variables come from the lines that follow
    lines = [_export(var) for var in node.env.values() if not var.computed or var.soft]
    lines += [f': "${{{name}:?is not set}}" && export {name}' for name in node.secrets]
    return [*lines, *_interpreter(node), *_proxies(node), ""]


def _export(var: EnvVar) -> str:
    if var.value is None:
        return f"unset -v {var.name}"
    if var.soft:
        return f': "${{{var.name}:={_in_braces(var.value)}}}" && export {var.name}'
    if var.prepend:
        return f'export {var.name}={quote(var.value)}"${{{var.name}:+:${var.name}}}"'
    return f"export {var.name}={quote(var.value)}"


def _in_braces(word: Word) -> str:
    """Return a word inside of double quotes within `${name:=...}`."""
    parts = (word,) if isinstance(word, str) else word.parts
    return "".join(
        str(part) if isinstance(part, ShellVar) else re.sub(r'([\\"$`}])', r"\\\1", str(part))
        for part in parts
    )


def _interpreter(node: NodePlan) -> list[str]:
    """Let VIRTUAL_ENV and CONDA_PREFIX name the interpreter's own environment, if it is one."""
    if "VIRTUAL_ENV" not in node.env or not node.env["VIRTUAL_ENV"].computed:
        return []
    prefix = quote(node.interpreter.prefix_word)
    return [
        "unset -v VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV",
        f"if [ -e {prefix}/pyvenv.cfg ]; then export VIRTUAL_ENV={prefix}",
        f"elif [ -d {prefix}/conda-meta ]; then export CONDA_PREFIX={prefix}; fi",
    ]


def _proxies(node: NodePlan) -> list[str]:
    if not node.direct:
        return []
    tests = "".join(f"${{{name}:-}}" for name in PROXIES)
    return [
        "# the ranks talk to each other directly, whatever proxy there is",
        f'if [ -n "{tests}" ]; then',
        '  no_proxy="${no_proxy:-${NO_PROXY:-}}"',
        f'  no_proxy={quote(join_words(",", node.direct))}"${{no_proxy:+,$no_proxy}}"',
        '  export no_proxy NO_PROXY="$no_proxy"',
        "fi",
    ]


def _command(argv: Sequence[Word], program: int) -> str:
    """Return a command with a line for each option, and for the program, at index `program`."""
    text = quote(argv[0])
    if text.startswith("-"):
        text = f"-- {text}"
    for at, word in enumerate(argv[1:], 1):
        shown = quote(word)
        breaks = shown.startswith(("--", "'--")) or at == program > 1
        text += f" \\\n  {shown}" if breaks else f" {shown}"
    return text


def engine_line(words: Sequence[Word]) -> str:
    """Return the command that runs a container, with a line for each option."""
    image = words.index("-I") - 2  # and the interpreter
    text = quote(words[0])
    for at, word in enumerate(words[1:], 1):
        breaks = at == image or (at < image and str(word).startswith("--"))
        text += f" \\\n  {quote(word)}" if breaks else f" {quote(word)}"
    return text


def _ranks(node: NodePlan, ranks: DirectStart) -> list[str]:
    """Return the lines that start the ranks of a node without the launcher."""
    launcher = " ".join(map(quote, node.argv)).replace("\n", "\n#   ")
    options = ("-u",) if ranks.preload else ("-I", "-S", "-B")
    starter: list[Word] = [*node.argv[: node.prefix], node.interpreter.word, *options]
    starter += [ranks.starter, join_words("--ranks=", ("", ranks.count))]
    starter += [f"--first={ranks.first}"] if ranks.first else []
    starter += [f"--grace={ranks.grace:g}"]
    starter += [f"--preload={','.join(ranks.preload)}"] if ranks.preload else []
    starter += [*ranks.options, "--"]
    return [
        "# what the launcher sets for its ranks; it would start the same with",
        f"#   {launcher}",
        *map(_rank_variable, ranks.variables),
        "# each rank gets RANK, LOCAL_RANK, ROLE_RANK and TORCHELASTIC_ERROR_FILE beside these",
        "exec " + _command((*starter, *rank_words(node, ranks)), 0),
    ]


def rank_words(node: NodePlan, ranks: DirectStart) -> tuple[Word, ...]:
    """Return the command of each rank of a node that is started without its launcher."""
    own = node.argv[node.program + ranks.replaced :]
    words = [*ranks.program, *map(_without_escapes, own)]
    if ranks.python and words[0] == "--module":
        words[0] = "-m"
    return (*ranks.python, *words)


def _without_escapes(word: Word) -> Word:
    """Return a word as torch's elastic agent passes it on (launchers.common.for_elastic)."""
    if isinstance(word, str):
        return word.replace("$$", "$")
    return text(*(p.replace("$$", "$") if isinstance(p, str) else p for p in word.parts))


def _rank_variable(var: RankVariable) -> str:
    if var.soft:
        return f'export {var.name}="${{{var.name}-{_in_braces(var.value)}}}"'
    line = f"export {var.name}={quote(var.value)}"
    if var.switch:
        return f'case "${{{var.switch}-1}}" in {_ENABLED}) {line} ;; esac'
    return line


def paste_line(node: NodePlan, topology: Topology) -> str:
    """Return the command as one line that works pasted into bash or zsh, or after `ssh HOST`.

    Slots become shell expressions; files of the run directory are written into a fresh temporary
    folder; secrets appear as `$NAME`. What several nodes must agree on stays `<port>`.
    """
    count = _expand(topology.count(), _PASTE)
    threads = f"$(( $(nproc) / {count} ? $(nproc) / {count} : 1 ))"
    slots = {**_PASTE, Slot.THREADS: "$(nproc)" if count == "1" else threads}
    if topology.nodes > 1:
        del slots[Slot.PORT]
    parts = []
    if node.files:
        parts.append("d=$(mktemp -d)")
        parts += [
            f'printf %s {_expand(body, slots)} > "$d"/{quote(name)}' for name, body in node.files
        ]
    parts.append(f"cd {quote(node.cwd)}")
    if node.setup:
        lines = " ".join(_literal(line) for text in node.setup for line in text.split("\n"))
        parts.append(f"{{ eval \"$(printf '%s\\n' {lines})\"; cd {quote(node.cwd)}; }}")
    if node.ray_cluster and Slot.PORT in slots:  # it is there twice, in both commands
        parts.append(f"p={slots[Slot.PORT]}")
        slots[Slot.PORT] = "$p"
    words = [f"{name}={value}" for name, value in _assignments(node, slots)]
    words += [f'{name}="${name}"' for name in node.secrets]
    removed = [v.name for v in node.env.values() if v.value is None and not v.computed]
    if removed:
        words += ["env", *(w for name in removed for w in ("-u", name))]
    for argv in _by_hand(node) if node.ray_cluster else [node.argv]:
        parts.append(" ".join([*words, *(_expand(word, slots) for word in argv)]))
    return " && ".join(parts)


def _by_hand(node: NodePlan) -> list[tuple[Word, ...]]:
    """Return the commands that start a Ray, and then on its first node the job's program."""
    prefix, own = node.argv[: node.prefix], node.argv[node.prefix + node.ray_cluster :]
    start = (*prefix, node.argv[node.prefix], "-m", "ray.scripts.scripts", "start")
    address = node.env["RAY_ADDRESS"].value or ""
    if not own:
        return [(*start, join_words("--address=", ("", address)))]
    return [(*start, "--head", text("--port=", Slot.PORT)), (*prefix, *own[1:])]


def _assignments(node: NodePlan, slots: dict[Slot, str]) -> list[tuple[str, str]]:
    assignments = []
    for var in node.env.values():
        if var.value is None or (var.computed and not var.soft):
            continue
        if var.prepend and isinstance(var.value, Template) and Slot.PREFIX in var.value.parts:
            continue  # the folder of the python3 that is in PATH already
        value = _expand(var.value, slots)
        if var.soft and isinstance(var.value, Template):
            value = f'"${{{var.name}:-{value.strip(chr(34))}}}"'
        elif var.prepend:
            value = f'{value}"${{{var.name}:+:${var.name}}}"'
        assignments.append((var.name, value))
    return assignments


def _expand(word: Word, slots: dict[Slot, str]) -> str:
    """Return a shell word with shell expressions for the unbound slots."""
    word = with_home_as_text(word)
    if isinstance(word, str):
        return _literal(word)
    shown = ""
    for part in word.parts:
        if isinstance(part, (Slot, LateValue)):
            shown += (
                f'"{slots[part]}"'
                if isinstance(part, Slot) and part in slots
                else shlex.quote(str(part))
            )
        elif isinstance(part, ShellVar):
            shown += f'"{part}"'
        elif part:
            shown += shlex.quote(part)
    return shown
