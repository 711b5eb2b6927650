"""docs/show-json.md, generated from the declared records; scripts/show-json writes it."""

from __future__ import annotations

import inspect
import re

from safelaunch.runs.store import ShownRun
from safelaunch.runtime import records
from safelaunch.runtime.records import Record
from support import REPOSITORY

PAGE = REPOSITORY / "docs" / "show-json.md"
HEAD = """# What `show --json` prints

`safelaunch show --json` prints one object, `wait --json` and `stop --json` print the same, and
`ps --json` prints `{"version": 1, "runs": [...], "errors": [...]}` with one for each run; `errors`
has `host`, `reason` and `hint` of each host that does not answer. Keys are only ever added.
A key without a value is missing, or null where the table says so. Times are seconds since 1970.

`failure` and `attempts` are as in `failure.json` and `status.json` of the run directory.
scripts/show-json writes this page from the declarations in safelaunch/runtime/records.py.
"""
TYPES = {"str": "text", "int": "integer", "float": "number", "bool": "true or false"}


def page() -> str:
    """Return the page: a table for the object, and one for each kind of object in it."""
    kinds: dict[str, type[Record]] = {}
    _collect(ShownRun, kinds)
    return HEAD + "".join(f"\n{_table(kind)}" for kind in kinds.values())


def write() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def docs(kind: type[Record]) -> dict[str, str]:
    """Return {attribute: the comment behind it} of those that a class declares."""
    source = inspect.getsource(kind)
    return dict(re.findall(r"^    (\w+): .* = .*  # (.+)$", source, flags=re.MULTILINE))


def _collect(kind: type[Record], kinds: dict[str, type[Record]]) -> None:
    """Add a record, and the records in it, in the order in which its table names them."""
    kinds.setdefault(kind.__name__, kind)
    for field in _fields(kind).values():
        for name in re.findall(r"\w+", field.kind):
            nested = records.CLASSES.get(name)
            if nested is not None and name not in kinds:
                _collect(nested, kinds)


def _fields(kind: type[Record]) -> dict[str, records.Field]:
    """Return the fields of a record, its own before those of its bases."""
    fields, own = kind.fields(), docs(kind)
    first = {key: field for key, field in fields.items() if field.name in own}
    return {**first, **fields}


def _table(kind: type[Record]) -> str:
    bases = [base for base in kind.__mro__ if issubclass(base, Record)]
    texts = {name: doc for base in bases for name, doc in docs(base).items()}
    title = "The run" if kind is ShownRun else _title(kind.__name__)
    about = (kind.__doc__ or "").split("\n")[0]
    rows = [
        f"| `{field.key}` | {_type(field)} | {texts[field.name]} |"
        for field in _fields(kind).values()
    ]
    return "\n".join(
        [f"## {title}", "", about, "", "| key | type | meaning |", "|---|---|---|", *rows, ""]
    )


def _title(name: str) -> str:
    words = re.sub(r"(?<!^)([A-Z])", r" \1", name).lower()
    return words[0].upper() + words[1:]


def _type(field: records.Field) -> str:
    parts = [_words(part) for part in field.kind.split(" | ") if part != "None"]
    return " or ".join([*parts, *(["null"] if field.is_nullable else [])])


def _words(kind: str) -> str:
    base, _, inner = kind.removesuffix("]").partition("[")
    if base == "Sequence":
        return f"list of {_words(inner)}"
    if base == "Mapping":
        return f"object: {_words(inner.partition(', ')[2])} by key"
    if base in records.CLASSES:
        title = _title(base)
        return f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
    return TYPES.get(base, "any")
