"""The only place that quotes shell words and renders bash: launch.sh, and the line to paste.

LF, UTF-8, no BOM. Everything that reaches a shell passes `quote`; the user's own `setup` lines are
the exception, verbatim by contract.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from safelaunch.environ import BASICS, PROXIES
from safelaunch.model import EnvVar, NodePlan, Slot, Template, Topology, Word, bind_word

if TYPE_CHECKING:
    from collections.abc import Iterable

# What a person who pastes the line gets where a start would fill a slot. The port lies below the
# ephemeral range (Linux: 32768 and up), so no outgoing connection can have taken it by chance.
_PASTE = {
    Slot.PORT: "$((20000 + RANDOM % 12000))",
    Slot.PYTHON: '$(command -v "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/}python3")',
    Slot.PREFIX: '$(dirname "$(dirname "$(command -v python3)")")',
    Slot.GPUS: "$(nvidia-smi -L | grep -c ^GPU)",
    Slot.RUN_DIR: "$d",
}
_SITE = "SAFELAUNCH_SITE"


def quote(word: Word) -> str:
    """Return one shell word; slots that are not bound yet appear as `<name>`, quoted too."""
    return _literal(str(word))


def _literal(text: str) -> str:
    # zsh replaces `=name` by the path of a program, also behind `NAME=`
    return f"'{text}'" if text.startswith("=") and "'" not in text else shlex.quote(text)


def with_home_as_text(word: Word) -> Word:
    """Return a word with `<home>` as text, which whoever pastes it fills in."""
    return bind_word(word, {Slot.HOME: str(Slot.HOME)})


def launch_script(node: NodePlan, title: str) -> str:
    """Return the text of launch.sh for one node. `title` is a line for people."""
    blocks = [
        "#!/usr/bin/env bash",
        f"# {_comment(title)}",
        "# written by safelaunch; to run it by hand: bash launch.sh",
        *_scrub(node),
        f"cd -- {quote(node.cwd)} || exit 1",
    ]
    if node.setup:
        blocks += ["", "# the job's own setup, verbatim", *node.setup]
        blocks += [f"cd -- {quote(node.cwd)} || exit 1"]
    blocks += ["", *_environment(node)]
    blocks += [
        "# under safelaunch each rank logs to a file of its own; by hand this changes nothing",
        f'[ -z "${{{_SITE}:-}}" ] || export PYTHONPATH="${_SITE}${{PYTHONPATH:+:$PYTHONPATH}}"',
        "",
        "exec " + _command(node),
    ]
    return "\n".join(blocks) + "\n"


def _comment(text: str) -> str:
    return " ".join(text.split())


def _scrub(node: NodePlan) -> list[str]:
    names = [n for n in node.unset if n != "SAFELAUNCH_*"]  # the supervisor's mark must stay
    words = [f"${{!{n[:-1]}@}}" if n.endswith("*") else n for n in names]
    lines = ["", "# left over from other jobs or a cluster's prologue"]
    lines += _wrapped("unset -v", words)
    if node.keep is not None:
        # the last two are how the supervisor knows its processes again
        kept = "|".join((*BASICS, *node.keep, *node.secrets, "SAFELAUNCH_*", "SPT_NOENV"))
        lines += [
            "for safelaunch_name in $(compgen -e); do",
            f"  case $safelaunch_name in {kept}) ;;",
            '    *) unset -v "$safelaunch_name" 2>/dev/null ;; esac',
            "done",
        ]
    return [*lines, ""]


def _wrapped(first: str, words: Iterable[str]) -> list[str]:
    lines, line = [], first
    for word in words:
        if len(line) + len(word) > 96:  # noqa: PLR2004 - a line that still fits a terminal
            lines.append(line + " \\")
            line = " "
        line += f" {word}"
    return [*lines, line]


def _environment(node: NodePlan) -> list[str]:
    lines = []
    for var in node.env.values():
        if var.computed and not var.soft:
            continue  # worked out below
        lines += _export(var)
    lines += [f': "${{{name}:?is not set}}" && export {name}' for name in node.secrets]
    return [*lines, *_interpreter(node), *_proxies(node), ""]


def _export(var: EnvVar) -> list[str]:
    if var.value is None:
        return [f"unset -v {var.name}"]
    if var.soft:
        return [f': "${{{var.name}:={_in_quotes(str(var.value))}}}" && export {var.name}']
    if var.prepend:
        return [f'export {var.name}={quote(var.value)}"${{{var.name}:+:${var.name}}}"']
    return [f"export {var.name}={quote(var.value)}"]


def _in_quotes(text: str) -> str:
    """Escape text for the inside of double quotes within `${name:=...}`."""
    for char in ("\\", '"', "$", "`", "}"):
        text = text.replace(char, "\\" + char)
    return text


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
        f'  no_proxy={quote(",".join(node.direct))}"${{no_proxy:+,$no_proxy}}"',
        '  export no_proxy NO_PROXY="$no_proxy"',
        "fi",
    ]


def _command(node: NodePlan) -> str:
    """Return the command over several lines: one for each option, and for the program."""
    text = quote(node.argv[0])
    if text.startswith("-"):
        text = f"-- {text}"
    for at, word in enumerate(node.argv[1:], 1):
        shown = quote(word)
        breaks = shown.startswith(("--", "'--")) or at == node.program > 1
        text += f" \\\n  {shown}" if breaks else f" {shown}"
    return text


def paste_line(node: NodePlan, topology: Topology) -> str:
    """Return the command as one line that works pasted into bash or zsh, or behind `ssh HOST`.

    Slots become what a shell can work out itself; files of the run directory are made in a fresh
    temporary folder; secrets appear as `$NAME`. What several nodes must agree on stays `<port>`.
    """
    processes = topology.count()
    count = _expand(processes, _PASTE)
    threads = f"$(( $(nproc) / {count} ? $(nproc) / {count} : 1 ))"
    if processes == "1":
        threads = "$(nproc)"
    slots = {**_PASTE, Slot.THREADS: threads}
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
    words = [f"{name}={value}" for name, value in _assignments(node, slots)]
    words += [f'{name}="${name}"' for name in node.secrets]
    removed = [v.name for v in node.env.values() if v.value is None and not v.computed]
    if removed:
        words += ["env", *(w for name in removed for w in ("-u", name))]
    words += [_expand(word, slots) for word in node.argv]
    return " && ".join([*parts, " ".join(words)])


def _assignments(node: NodePlan, slots: dict[Slot, str]) -> list[tuple[str, str]]:
    found = []
    for var in node.env.values():
        if var.value is None or (var.computed and not var.soft):
            continue
        if var.prepend and isinstance(var.value, Template) and Slot.PREFIX in var.value.parts:
            continue  # the folder of the python3 that PATH itself finds
        value = _expand(var.value, slots)
        if var.soft and isinstance(var.value, Template):
            value = f'"${{{var.name}:-{value.strip(chr(34))}}}"'
        elif var.prepend:
            value = f'{value}"${{{var.name}:+:${var.name}}}"'
        found.append((var.name, value))
    return found


def _expand(word: Word, slots: dict[Slot, str]) -> str:
    """Return a shell word in which unbound slots are worked out by the shell."""
    word = with_home_as_text(word)
    if isinstance(word, str):
        return _literal(word)
    shown = ""
    for part in word.parts:
        if isinstance(part, Slot):
            shown += f'"{slots[part]}"' if part in slots else shlex.quote(str(part))
        elif part:
            shown += shlex.quote(part)
    return shown
