"""Reads a YAML file into nodes that know their line and column. Strict, never ambiguous.

Built from PyYAML's event stream, not its composer: the C composer recurses on deep nesting until
the stack overflows, and neither composer limits aliases. No YAML 1.1 types are resolved here; the
schema types a plain scalar by the type of its key.
"""

# ruff: noqa: PLC0415 - PyYAML, 9 ms: `ps --host` reads no file where there are no hosts of one

from __future__ import annotations

import os
import stat
from typing import Any

from safelaunch.config.yaml_io.node import Node
from safelaunch.errors import ConfigError
from safelaunch.model import Origin

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_NODES = 100_000  # after aliases are expanded: an alias bomb passes this long before memory


def read_file(path: str, shown: str) -> Node:
    """Return the single map in a YAML file. `shown` names the file in messages.

    Raises ConfigError with the position for everything that is not a plain, small, strict YAML map.
    """
    return parse(read_text(path, shown), shown)


def read_text(path: str, shown: str) -> str:
    """Return the text of a regular file of at most 1 MiB, decoded as UTF-8."""
    try:
        if os.path.isdir(path):
            raise ConfigError("a directory, not a YAML file", where=shown)
        # opening a FIFO for reading must not wait for a writer
        flag = getattr(os, "O_NONBLOCK", 0)
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | flag)) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise ConfigError("not a regular file", where=shown)
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("no such file", where=shown) from None
    except (OSError, ValueError) as e:
        raise ConfigError(f"cannot read: {getattr(e, 'strerror', None) or e}", where=shown) from e
    if len(data) > MAX_BYTES:
        size = max(info.st_size, len(data))  # it may have grown since fstat
        raise ConfigError(f"{size:,} bytes: a file of this kind has at most 1 MiB", where=shown)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        column = e.start - (data.rfind(b"\n", 0, e.start) + 1) + 1
        raise ConfigError(
            f"byte 0x{data[e.start]:02x} is not UTF-8",
            where=Origin(shown, line, column),
            hint="save the file as UTF-8",
        ) from None


def parse(text: str, shown: str) -> Node:
    """Return the map that the YAML text holds."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(shown)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.add_event(event)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        where = Origin(shown, mark.line + 1, mark.column + 1) if mark else shown
        problem = e.problem or e.context or "not YAML"
        if "nesting depth" in problem:  # libyaml from PyYAML 6.0.4 on refuses 1000 open brackets
            raise ConfigError(f"nested deeper than {MAX_DEPTH} levels", where=where) from None
        message = problem.replace("'\\t'", "a tab").replace("'", "`")
        raise ConfigError(message, where=where, hint=_yaml_hint(problem, text, mark)) from None
    except UnicodeEncodeError:
        raise ConfigError("not valid Unicode text", where=shown) from None
    except yaml.reader.ReaderError as e:
        position = e.position if isinstance(e.position, int) else 0
        # the C reader counts bytes, Python's characters; both only matter for the line
        before = text.encode()[:position].decode("utf-8", "ignore")
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        where = Origin(shown, line, column)
        raise ConfigError("a control character is not allowed", where=where) from None
    root = builder.root
    if root is None:
        raise ConfigError("the file is empty", where=Origin(shown, 1, 1))
    if root.kind != "map":
        raise ConfigError("expected `key: value` lines at the top", where=root.origin)
    return root


def _yaml_hint(problem: str, text: str, mark: Any) -> str | None:
    line = "".join(text.split("\n")[mark.line :][:1]) if mark is not None else ""
    if "\t" in line:
        return "YAML does not allow tabs for indentation; use spaces"
    if "{assets." in line:
        return 'quote a value that holds `{assets.NAME}`: "{assets.NAME}/part"'
    if "mapping values are not allowed" in problem:
        return "quote a value that contains `: `, or indent this key like the one above"
    if "cannot start any token" in problem:
        return "quote a value that begins with a special character"
    return None


class _Builder:
    """Turns YAML events into nodes without recursion, with limits on depth and on expanded size."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.anchors: dict[str, Node] = {}
        self.open: list[tuple[Node, list[Node], str | None]] = []
        self.root: Node | None = None
        self.documents = 0

    def add_event(self, event: Any) -> None:
        import yaml

        origin = Origin(self.shown, event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.ScalarEvent):
            self._check_tag(event, origin)
            plain = event.style is None or event.style == ""
            node = Node("scalar", origin, text=event.value, plain=plain and event.tag is None)
            self._add(node, event.anchor)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._check_tag(event, origin)
            if len(self.open) >= MAX_DEPTH:
                raise ConfigError(f"nested deeper than {MAX_DEPTH} levels", where=origin)
            kind = "map" if isinstance(event, yaml.MappingStartEvent) else "list"
            self.open.append((Node(kind, origin), [], event.anchor))
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            node, children, anchor = self.open.pop()
            node.items = tuple(children) if node.kind == "list" else _pairs(children)
            self._add(node, anchor)
        elif isinstance(event, yaml.AliasEvent):
            target = self.anchors.get(str(event.anchor))
            if target is None:
                raise ConfigError(f"unknown alias `*{event.anchor}`", where=origin)
            self._add(target, None)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise ConfigError("a second document (`---`); one file holds one", where=origin)

    def _check_tag(self, event: Any, origin: Origin) -> None:
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            raise ConfigError(f"YAML tag `{event.tag}` is not supported", where=origin)

    def _add(self, node: Node, anchor: str | None) -> None:
        if anchor is not None:
            self.anchors[anchor] = node
        if not self.open:
            self.root = node
            return
        parent, children, _ = self.open[-1]
        children.append(node)
        parent.size += node.size
        parent.depth = max(parent.depth, node.depth + 1)
        limit = None
        if len(self.open) + node.depth > MAX_DEPTH:  # only an alias gets here
            limit = f"nested deeper than {MAX_DEPTH} levels"
        elif parent.size > MAX_NODES:
            limit = f"more than {MAX_NODES:,} values"
        if limit is not None:
            raise ConfigError(f"{limit} once aliases are expanded", where=node.origin)


def _pairs(children: list[Node]) -> tuple[tuple[Node, Node], ...]:
    pairs = tuple(zip(children[::2], children[1::2], strict=True))
    lines: dict[str, int] = {}
    for key, _ in pairs:
        if key.kind != "scalar":
            raise ConfigError("a key must be plain text", where=key.origin)
        if key.plain and key.text == "<<":
            hint = "use `extends:`"
            raise ConfigError("merge keys (`<<`) are not supported", where=key.origin, hint=hint)
        if key.text in lines:
            hint = f"first given in line {lines[key.text]}"
            raise ConfigError(f"duplicate key `{key.text}`", where=key.origin, hint=hint)
        lines[key.text] = key.origin.line
    return pairs
