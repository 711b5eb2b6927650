"""The value types of a schema. Each reads one node and says in a word what it wants."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from safelaunch.environ import check_name
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import Args, EnvVar, Gate, ProfileVar

if TYPE_CHECKING:
    from safelaunch.config.load import Node

# Linux: MAX_ARG_STRLEN, the longest single argument or NAME=value that execve takes, less the NUL
# (include/uapi/linux/binfmts.h: 32 pages)
MAX_WORD = 128 * 1024 - 1

_SECRET_ENDS = (
    "key",
    "token",
    "passwd",
    "password",
    "passphrase",
    "secret",
    "credential",
    "credentials",
)
_HIDDEN_NAME = (
    r"(^|[_-])(api[_-]?key|token|passwd|password|passphrase|secret|secret[_-]?key|access[_-]?key"
    r"|private[_-]?key|credentials?)$"
)
# names that end in "token" and mean a piece of text
_MODEL_WORD = (
    r"(^|[_-])(bos|eos|pad|unk|sep|cls|mask|image|video|audio|stop|start|end|think|special|max|new"
    r"|per)[_-]token$"
)
_TOKEN_STARTS = ("hf_", "sk-", "gh", "github_pat_", "AKIA", "glpat-", "xox", "PRIVATE KEY-----")
_HIDDEN_VALUE = (
    r"(^|[^A-Za-z0-9])(hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}"
    r"|github_pat_[A-Za-z0-9_]{30,}|AKIA[A-Z0-9]{16}|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abp]-[A-Za-z0-9-]{20,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_HARMLESS = frozenset({"", "EMPTY", "empty", "dummy", "none", "None", "null", "False", "false"})
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")


class Type(Protocol):
    """How a node becomes a value. `wants` completes the sentence "expected ..."."""

    wants: str

    def read(self, node: Node) -> Any: ...  # noqa: D102


def wrong(node: Node, wants: str) -> ConfigError:
    """Return the error for a node of the wrong type."""
    if node.kind == "scalar":
        got = "nothing" if node.is_null else f"`{shorten(node.text)}`"
    else:
        got = {"map": "a mapping", "list": "a list"}[node.kind]
    hint = None
    if wants.startswith("true or false") and node.text.lower() in ("yes", "no", "on", "off"):
        hint = "only `true` and `false` are booleans here"
    return ConfigError(f"expected {wants}, got {got}", where=node.origin, hint=hint)


def shorten(text: str, most: int = 40) -> str:
    """Return the text for a message: one line, at most `most` characters."""
    line = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return line if len(line) <= most else line[: most - 3] + "..."


def read_words(node: Node) -> str:
    """Return a scalar as it will stand on a command line or in the environment."""
    if node.kind != "scalar":
        raise wrong(node, "a single value")
    check_text(node)
    return node.text


def check_text(node: Node) -> None:
    """Refuse what no command line or script can carry unharmed, and secrets."""
    text = node.text
    if "\0" in text:
        raise ConfigError("a NUL byte cannot be part of a value", where=node.origin)
    if "\r" in text:
        raise ConfigError(
            "a carriage return in a value (Windows line end?)",
            where=node.origin,
            hint="remove it: it would end up at the end of a path or a number",
        )
    if len(text) > MAX_WORD // 4 and len(text.encode()) > MAX_WORD:
        raise ConfigError(
            f"a word of {len(text.encode()):,} bytes; Linux takes at most {MAX_WORD:,}",
            where=node.origin,
            hint="put it into a file and pass the file's name",
        )
    if any(s in text for s in _TOKEN_STARTS) and re.search(_HIDDEN_VALUE, text):
        raise ConfigError(
            "this value looks like an access token or a private key",
            where=node.origin,
            hint="name the variable under `env_from:`; its value is taken from your environment",
        )


def check_secret(key: str, node: Node) -> None:
    """Refuse a password, token or key written into a file under a name that says so."""
    if not is_secret_name(key) or node.is_null or node.kind != "scalar":
        return
    if node.text in _HARMLESS:
        return
    raise ConfigError(
        f"`{key}`: a secret does not belong into a file",
        where=node.origin,
        hint=f"write `env_from: [{key.upper().replace('-', '_')}]`; "
        "its value is taken from your environment at the start",
    )


def is_secret_name(name: str) -> bool:
    """Whether a name says that its value is a password, token or key."""
    lower = name.lower()
    return (
        lower.endswith(_SECRET_ENDS)  # most names stop here: the patterns are compiled when needed
        and re.search(_HIDDEN_NAME, lower) is not None
        and re.search(_MODEL_WORD, lower) is None
    )


class Text:
    """A single value as text, in the file's own spelling."""

    def __init__(self, wants: str = "text", pattern: str | None = None, rule: str = "") -> None:
        self.wants = wants
        self.pattern = pattern
        self.rule = rule

    def read(self, node: Node) -> str:
        """Return the text."""
        if node.kind != "scalar" or node.is_null:
            raise wrong(node, self.wants)
        check_text(node)
        if self.pattern and not re.fullmatch(self.pattern, node.text):
            raise ConfigError(f"`{shorten(node.text)}` {self.rule}", where=node.origin)
        return node.text


class PathText(Text):
    """A path as text; one line, not empty."""

    def __init__(self) -> None:
        super().__init__("a path")

    def read(self, node: Node) -> str:
        """Return the path as written."""
        path = super().read(node)
        if not path:
            raise ConfigError("an empty path", where=node.origin)
        if "\n" in path:
            raise ConfigError("a line break in a path", where=node.origin)
        return path


class Count:
    """A whole number of at least `least`."""

    def __init__(self, least: int = 1) -> None:
        self.least = least
        self.wants = f"a whole number of at least {least}"

    def read(self, node: Node) -> int:
        """Return the number."""
        if node.kind != "scalar" or not node.plain or not _INT.fullmatch(node.text):
            raise wrong(node, self.wants)
        if len(node.text) > 9 or int(node.text) < self.least:  # noqa: PLR2004 - no such machine
            raise wrong(node, self.wants)
        return int(node.text)


class Choice:
    """One of a few words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words
        self.wants = "one of " + ", ".join(words)

    def read(self, node: Node) -> str:
        """Return the word."""
        if node.kind != "scalar" or node.text not in self.words:
            error = wrong(node, self.wants)
            error.hint = did_you_mean(node.text, self.words) if node.kind == "scalar" else None
            raise error
        return node.text


class ListOf:
    """A list of values of one type; `single` accepts one value for a list of one."""

    def __init__(self, item: Type, what: str, *, single: bool = False) -> None:
        self.item = item
        self.single = single
        self.wants = f"a list of {what}"

    def read(self, node: Node) -> tuple[Any, ...]:
        """Return the items."""
        if node.kind == "scalar" and self.single and not node.is_null:
            return (self.item.read(node),)
        if node.kind != "list":
            raise wrong(node, self.wants)
        return tuple(self.item.read(item) for item in node.items)


class MapOf:
    """A map from names to values of one type."""

    def __init__(self, value: Type, what: str) -> None:
        self.value = value
        self.wants = f"a mapping of {what}"

    def read(self, node: Node) -> dict[str, Any]:
        """Return the entries; nulls are left out."""
        if node.kind != "map":
            raise wrong(node, self.wants)
        return {key.text: self.value.read(value) for key, value in node.items if not value.is_null}


class WordOrList:
    """One of a few fixed words, or a list."""

    def __init__(self, words: tuple[str, ...], other: ListOf) -> None:
        self.words = words
        self.other = other
        self.wants = " or ".join((*(f"`{w}`" for w in words), other.wants))

    def read(self, node: Node) -> Any:
        """Return the word, or what the list type reads."""
        if node.kind == "scalar" and node.text in self.words:
            return node.text
        if node.kind == "scalar":
            raise wrong(node, self.wants)
        return self.other.read(node)


class GpuSet:
    """`auto`, a count (the first n), or a list of indices or UUIDs without repeats."""

    wants = "`auto`, a number (the first n GPUs) or a list such as [0, 1]"

    def read(self, node: Node) -> tuple[str, ...]:
        """Return the GPUs by name; ("auto",) for all that the machine shows."""
        if node.kind == "scalar" and node.text == "auto":
            return ("auto",)
        if node.kind == "scalar":
            if not node.plain or not re.fullmatch(r"[1-9][0-9]{0,2}", node.text):
                raise wrong(node, self.wants)
            return tuple(str(i) for i in range(int(node.text)))
        if node.kind != "list" or not node.items:
            raise wrong(node, self.wants)
        seen: dict[str, int] = {}
        for item in node.items:
            name = read_words(item)
            if not re.fullmatch(r"[0-9]+|(GPU|MIG)-[A-Za-z0-9/-]+", name):
                raise wrong(item, "a GPU index or UUID")
            if name in seen:
                raise ConfigError(f"GPU {name} is listed twice", where=item.origin)
            seen[name] = 1
        return tuple(seen)


class ArgsType:
    """Arguments: a list of words, or a mapping of options."""

    wants = "a mapping of options or a list of words"

    def read(self, node: Node) -> Args:
        """Return the arguments in file order.

        `k: v` -> `--k v`; true -> `--k`; false or null -> nothing; a list -> `--k a b`; a value
        that begins with `-` -> `--k=v`.
        """
        if node.kind == "list":
            words = tuple(read_words(item) for item in node.items)
            for word, after in zip(node.items, (*node.items[1:], None), strict=True):
                if word.text.startswith("-") and after is not None:
                    check_secret(word.text.lstrip("-"), after)
            return Args(words=words)
        if node.kind != "map":
            raise wrong(node, self.wants)
        options = []
        for key, value in node.items:
            option = self._option(key, value)
            if option is not None:
                options.append((key.text, option))
        words = tuple(w for key, values in options for w in expand_option(key, values))
        return Args(options=tuple(options), words=words, is_mapping=True)

    def _option(self, key: Node, value: Node) -> tuple[str, ...] | None:
        if not key.text or key.text.startswith("-") or re.search(r"[\s=]", key.text):
            hint = "leave the dashes out" if key.text.startswith("-") else None
            raise ConfigError(
                f"`{shorten(key.text)}` is no option name", where=key.origin, hint=hint
            )
        check_text(key)
        check_secret(key.text, value)
        if value.kind == "map":
            raise wrong(value, "a single value or a list")
        if value.kind == "list":
            return tuple(read_words(item) for item in value.items)
        if value.is_null or (value.plain and value.text == "false"):
            return None
        if value.plain and value.text == "true":
            return ()
        return (read_words(value),)


def expand_option(key: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of one option: `--k`, `--k v`, `--k a b`, or `--k=-v`."""
    if len(values) == 1 and values[0].startswith("-"):
        return (f"--{key}={values[0]}",)
    return (f"--{key}", *values)


class EnvType:
    """Variables: `NAME: value` in the file's spelling, null removes, `{prepend: ...}`."""

    wants = "a mapping of variables"

    def read(self, node: Node) -> tuple[EnvVar, ...]:
        """Return the variables in file order."""
        if node.kind != "map":
            raise wrong(node, self.wants)
        return tuple(self._variable(key, value) for key, value in node.items)

    def _variable(self, key: Node, value: Node) -> EnvVar:
        check_name(key.text, key.origin)
        check_secret(key.text, value)
        if value.is_null:
            return EnvVar(key.text, None, value.origin)
        if value.kind == "map":
            return self._prepend(key, value)
        if value.kind == "list":
            raise wrong(value, "a single value, null or {prepend: ...}")
        return EnvVar(key.text, env_text(key.text, value), value.origin)

    def _prepend(self, key: Node, value: Node) -> EnvVar:
        for entry, _ in value.items:
            if entry.text != "prepend":
                raise ConfigError(
                    f"unknown key `{entry.text}`", where=entry.origin, hint="known here: `prepend`"
                )
        paths = value.get("prepend")
        if paths is None:
            raise wrong(value, "a single value, null or {prepend: ...}")
        words = ListOf(Text(), "paths", single=True).read(paths)
        return EnvVar(key.text, ":".join(words), value.origin, prepend=True)


def env_text(name: str, node: Node) -> str:
    """Return the value of a variable; it must fit into one string of execve."""
    value = read_words(node)
    if len(value) > MAX_WORD // 4 and len(f"{name}={value}".encode()) > MAX_WORD:
        raise ConfigError(
            f"`{name}` is longer than Linux takes ({MAX_WORD:,} bytes with its name)",
            where=node.origin,
        )
    return value


class ProfileEnvType:
    """Variables of a profile: a value, or {value, why, cost, source, workaround, when, example}."""

    wants = "a mapping of variables"

    def __init__(self, *, valued: bool = True) -> None:
        self.valued = valued

    def read(self, node: Node) -> tuple[ProfileVar, ...]:
        """Return the variables with their gates; a null removes an inherited one."""
        if node.kind != "map":
            raise wrong(node, self.wants)
        found = (self._variable(key, value) for key, value in node.items)
        return tuple(var for var in found if var is not None)

    def _variable(self, key: Node, value: Node) -> ProfileVar | None:
        check_name(key.text, key.origin)
        if value.is_null:
            return None
        if value.kind == "scalar":
            return ProfileVar(EnvVar(key.text, env_text(key.text, value), value.origin))
        if value.kind != "map":
            raise wrong(value, "a value or a mapping")
        known = ("value", "why", "cost", "source", "workaround", "when", "example")
        for entry, _ in value.items:
            if entry.text not in known:
                raise ConfigError(
                    f"unknown key `{entry.text}`",
                    where=entry.origin,
                    hint=did_you_mean(entry.text, known),
                )
        return self._record(key, value)

    def _record(self, key: Node, record: Node) -> ProfileVar:
        value = record.get("value")
        if self.valued and (value is None or value.is_null):
            raise ConfigError(f"`{key.text}` has no `value`", where=key.origin)
        workaround = record.get("workaround")
        when = record.get("when")
        var = EnvVar(
            key.text,
            env_text(key.text, value) if value is not None else None,
            key.origin,
            why=_note(record, "why"),
            cost=_note(record, "cost"),
            source=_note(record, "source"),
            workaround=workaround is not None
            and Choice(("true", "false")).read(workaround) == "true",
        )
        gates = _gates(when) if when is not None and not when.is_null else ()
        return ProfileVar(var, gates, _note(record, "example"))


def _note(record: Node, key: str) -> str:
    node = record.get(key)
    return "" if node is None or node.is_null else " ".join(read_words(node).split())


_GATES = ("gpus", "nodes", "nccl", "driver", "torch", "cuda")
_ONE = r"(==|!=|<=|>=|<|>)?\s*[0-9]+(\.[0-9]+)*(\.post[0-9]+|rc[0-9]+)?"
_CONDITION = rf"\s*{_ONE}(\s*,\s*{_ONE})*\s*"


def _gates(when: Node) -> tuple[Gate, ...]:
    if when.kind != "map":
        raise wrong(when, 'conditions such as {gpus: ">1", nccl: "<2.26.5"}')
    gates = []
    for key, value in when.items:
        if value.is_null:
            continue  # lifts an inherited gate
        if key.text not in _GATES:
            raise ConfigError(
                f"unknown condition `{key.text}`",
                where=key.origin,
                hint=did_you_mean(key.text, _GATES),
            )
        condition = read_words(value)
        if not re.fullmatch(_CONDITION, condition):
            raise wrong(value, 'a condition such as ">1" or "<2.26.5,!=2.26.2.post1"')
        gates.append(Gate(key.text, condition.strip(), value.origin))
    return tuple(gates)
