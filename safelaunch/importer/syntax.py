"""The syntax tree of a script, by shfmt as a process (https://github.com/mvdan/sh, JSON).

shfmt accepts what bash accepts, and says how each part of a word is quoted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from safelaunch.errors import ConfigError, StartError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

MAX_BYTES = 512 * 1024  # the tree takes a hundred times as much; real launch scripts have 50 lines
_SECONDS = 30
_LONGEST_SHEBANG = 256
# shfmt indents its JSON and holds it in memory: it grows with the square of the depth
_MEMORY = 3 << 30
_OTHER_SHELLS = re.compile(
    r"#!.*\b(fish|t?csh|zsh|pwsh|powershell|python[\d.]*|perl|ruby|node|lua)\b"
)
_OTHER_SUFFIXES = {
    ".fish": "fish", ".csh": "csh", ".tcsh": "csh", ".zsh": "zsh", ".ps1": "PowerShell",
    ".bat": "cmd.exe", ".cmd": "cmd.exe", ".py": "Python",
}  # fmt: skip
_OTHER_SYNTAX = (
    (re.compile(r"^[ \t]*\$env:\w+[ \t]*=", re.MULTILINE), "PowerShell"),
    (re.compile(r"^[ \t]*setenv[ \t]+\w+", re.MULTILINE), "csh"),
    (
        re.compile(
            r"^[ \t]*set[ \t]+-(?:x|gx|Ux|xg|l|g)[ \t]+[A-Za-z_]\w*[ \t]+[^\s;&|#]", re.MULTILINE
        ),
        "fish",
    ),
    (re.compile(r"^[ \t]*(?:print -l|setopt|unsetopt|autoload)\b|\$\{\(", re.MULTILINE), "zsh"),
)


class SyntaxNode:
    """One node of shfmt's tree, with typed access to its fields."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    @property
    def kind(self) -> str:
        """The node's type, such as `CallExpr`; empty where its place says what it is."""
        return str(self._fields.get("Type", ""))

    @property
    def line(self) -> int:
        """Line of its first character, from 1."""
        return int(self._fields["Pos"]["Line"]) if "Pos" in self._fields else 0

    @property
    def span(self) -> tuple[int, int]:
        """Offsets of its first byte, and of the byte behind its last."""
        return int(self._fields["Pos"]["Offset"]), int(self._fields["End"]["Offset"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SyntaxNode) and self._fields is other._fields

    __hash__ = None  # type: ignore[assignment]

    def position(self, name: str, unit: str = "Offset") -> int:
        """Return the offset, line or column in a field that is a position."""
        return int(self._fields[name][unit])

    def child(self, name: str) -> SyntaxNode | None:
        """Return a field that is a node, or None."""
        fields = self._fields.get(name)
        return SyntaxNode(fields) if isinstance(fields, dict) else None

    def children(self, name: str) -> list[SyntaxNode]:
        """Return a field that is a list of nodes."""
        items = self._fields.get(name)
        return [SyntaxNode(item) for item in items] if isinstance(items, list) else []

    def without(self, name: str) -> SyntaxNode:
        """Return a copy without a field."""
        return SyntaxNode({key: value for key, value in self._fields.items() if key != name})

    def with_field(self, name: str, value: SyntaxNode | list[SyntaxNode]) -> SyntaxNode:
        """Return a copy with another field."""
        fields = [item._fields for item in value] if isinstance(value, list) else value._fields
        return SyntaxNode({**self._fields, name: fields})

    def text(self, name: str) -> str:
        """Return a field that is text; that of a node is its `Value`."""
        value = self._fields.get(name, "")
        return str(value.get("Value", "")) if isinstance(value, dict) else str(value)

    def set_text(self, name: str, text: str) -> None:
        """Add a field of text."""
        self._fields[name] = text

    def has(self, name: str) -> bool:
        """Whether a field is there and not false."""
        return bool(self._fields.get(name))

    def walk(self, skipped: Container[tuple[int, int]] = ()) -> Iterator[SyntaxNode]:
        """Yield this node and all below it, without nodes that have a skipped span."""
        stack: list[Any] = [self._fields]
        while stack:
            item = stack.pop()
            node = SyntaxNode(item)
            if skipped and "Pos" in item and "End" in item and node.span in skipped:
                continue
            yield node
            for value in reversed(item.values()):
                if isinstance(value, dict):
                    # positions are no nodes, and three of four dictionaries
                    if not isinstance(value.get("Offset"), int):
                        stack.append(value)
                elif isinstance(value, list):
                    stack.extend(each for each in reversed(value) if isinstance(each, dict))

    def move(self, line: int) -> None:
        """Place this node and all below it on one line, of another text than its own."""
        for node in self.walk():
            for value in node._fields.values():
                if isinstance(value, dict) and isinstance(value.get("Offset"), int):
                    value["Line"] = line
                    value["Offset"] -= MAX_BYTES

    @property
    def literal(self) -> str | None:
        """Text of a word without expansions; None where something is expanded or left out."""
        texts = []
        for part in self.children("Parts"):
            if part.kind == "DblQuoted":
                inner = part.literal
                if inner is None:
                    return None
                texts.append(inner)
            elif part.kind in ("Lit", "SglQuoted"):
                texts.append(part.text("Value"))
            else:
                return None
        return "".join(texts)


def literal_words(node: SyntaxNode) -> list[str]:
    """Return the words of a command; `VALUE` for those that are expanded."""
    if node.kind != "CallExpr":
        return []
    literals = [word.literal for word in node.children("Args")]
    return ["VALUE" if text is None else text.replace("\\\n", "") for text in literals]


def read_script(path: str) -> str:
    """Return the text of a bash script. Raises ConfigError where it is none."""
    try:
        if os.path.isdir(path):
            raise ConfigError("is a folder, not a script", where=path)
        if not os.path.isfile(path):
            what = "is no regular file" if os.path.exists(path) else "no such file"
            raise ConfigError(what, where=path)
        size = os.path.getsize(path)
        if size > MAX_BYTES:
            raise ConfigError(
                f"{size:,} bytes are too many for a launch script",
                where=path,
                hint=f"at most {MAX_BYTES:,}; import the part that starts the training",
            )
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else str(e)
        raise ConfigError(f"cannot be read: {reason}", where=path) from e
    return _text(path, content)


def _text(path: str, content: bytes) -> str:
    if b"\0" in content:
        raise ConfigError("is a binary file, not a script", where=path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as e:
        line = content.count(b"\n", 0, e.start) + 1
        raise ConfigError("is not UTF-8", where=f"{path}:{line}", hint="save it as UTF-8") from None
    if "\r" in text:
        line = text.count("\n", 0, text.index("\r")) + 1
        raise ConfigError(
            "a carriage return (Windows line end), which bash hands on as part of a word",
            where=f"{path}:{line}",
            hint=f"safelaunch lint --fix {path}" if "\r\n" in text else "remove it",
        )
    if text.startswith("\ufeff"):
        raise ConfigError("begins with a byte order mark", where=path, hint="save without BOM")
    other = _other_shell(path, text)
    if other:
        raise ConfigError(
            f"is a script of {other}, not of bash",
            where=path,
            hint="safelaunch init -- LINE takes its launch line",
        )
    return text


def first_line(path: str) -> str:
    """Return the first line of a file; nothing of one that is not there, or cannot be read."""
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, "rb") as file:
            return file.readline(_LONGEST_SHEBANG).decode("utf-8", "replace").rstrip("\n")
    except (OSError, ValueError):
        return ""


def interpreter_of(path: str) -> str | None:
    """Return the program that the first line of a file names; None for other files."""
    words = first_line(path).removeprefix("#!").split() if first_line(path)[:2] == "#!" else []
    names = [os.path.basename(word) for word in words if not word.startswith("-")]
    if names[:1] == ["env"]:
        del names[0]
    return names[0] if names else None


def _other_shell(path: str, text: str) -> str | None:
    shebang = _OTHER_SHELLS.match(text)
    if shebang:
        return shebang[1]
    suffix = _OTHER_SUFFIXES.get(os.path.splitext(path)[1].lower())
    bash = text.startswith("#!")
    return suffix or next((n for p, n in _OTHER_SYNTAX if not bash and p.search(text)), None)


def parse(text: str, where: str, *, posix: bool = False, line: int = 0) -> SyntaxNode:
    """Return the tree of a script; all of it is at `line`, if that is set.

    Raises ConfigError where bash would not read it.
    """
    words = [
        find_shfmt(os.path.dirname(sys.executable)),
        "--to-json",
        "-ln",
        "posix" if posix else "bash",
    ]
    try:
        status, output, errors = _run(words, text)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"cannot be parsed within {_SECONDS} s", where=where) from None
    except OSError as e:
        raise StartError(f"`{words[0]}` cannot be started: {e.strerror}") from e
    if b"out of memory" in errors:
        raise ConfigError("is nested too deeply, or too large", where=where)
    if status:
        message = errors.decode("utf-8", "replace").strip().splitlines()
        match = re.match(r"(?:<standard input>:)?(\d+):(\d+): (.*)", message[0] if message else "")
        at, what = (f"{where}:{match[1]}", match[3]) if match else (where, "cannot be parsed")
        raise ConfigError(f"bash cannot read this: {what}", where=at, hint=_syntax_hint(what))
    try:
        fields = json.loads(output)
    except RecursionError:
        raise ConfigError("is nested too deeply", where=where) from None
    tree = SyntaxNode(fields)
    _check_comments(tree, text, where)
    _keep_sources(tree, text)
    if line:
        tree.move(line)
    return tree


def _keep_sources(tree: SyntaxNode, text: str) -> None:
    """Give values of assignments that are expanded their text, as `Source`."""
    content = text.encode()
    for node in tree.walk():
        value = node.child("Value") if node.has("Name") else None
        if value is not None and value.has("Parts") and value.literal is None:
            start, end = value.span
            value.set_text("Source", content[start:end].decode())


def _check_comments(tree: SyntaxNode, text: str, where: str) -> None:
    r"""Refuse a comment with a `\` at its end in a command: shfmt joins its line with the next."""
    lines = text.encode().split(b"\n")
    comments = {n.position("Hash", "Line"): n for n in tree.walk() if n.has("Hash")}
    arrays = [node for node in tree.walk() if node.has("Elems")]
    lists = [*arrays, *(element for node in arrays for element in node.children("Elems"))]
    harmless = [c for node in lists for c in (*node.children("Last"), *node.children("Comments"))]
    for number, node in comments.items():
        if not _goes_on(lines[number - 1 :]) or node in harmless:  # a line ends no array
            continue
        before = lines[number - 1][: node.position("Hash", "Col") - 1].strip()
        is_continued = number > 1 and lines[number - 2].endswith(b"\\")
        if before or (is_continued and number - 1 not in comments):
            raise ConfigError(
                "a comment that ends in `\\`: the command ends there, and goes on for its reader",
                where=f"{where}:{number}",
                hint="put the comment before the command",
            )


def _goes_on(lines: list[bytes]) -> bool:
    r"""Whether something follows a first line that ends in `\`, and comments that do so too."""
    if not lines[0].endswith(b"\\"):
        return False
    following = (
        line.strip()
        for line in lines[1:]
        if not (line.lstrip().startswith(b"#") and line.endswith(b"\\"))
    )
    first = next(following, b"")
    return first != b"" and not first.startswith(b"#")


def _run(words: list[str], text: str) -> tuple[int, bytes, bytes]:
    """Return the exit status, output and errors of a program with a limit on its memory."""
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        if sys.platform == "linux":
            import resource  # noqa: PLC0415 - not on Windows

            with contextlib.suppress(OSError, ValueError):
                resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        try:
            output, errors = process.communicate(text.encode(), timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, output, errors


def _syntax_hint(message: str) -> str | None:
    if "must be followed by a word" in message or "redirect" in message:
        return "a `<placeholder>` has to be replaced by its value"
    return None


def find_shfmt(beside: str, path: str | None = None) -> str:
    """Return shfmt of the folder of this Python, else of PATH. Raises StartError without one."""
    program = shutil.which("shfmt", path=beside) or shutil.which("shfmt", path=path)
    if program is None:
        raise StartError(
            "`import` needs shfmt, which is not installed",
            hint=f"{sys.executable} -m pip install shfmt-py",
        )
    return program
