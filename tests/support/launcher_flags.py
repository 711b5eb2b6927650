"""Records the flags of a launcher from its source, for packages that the tests do not install.

`python -m support.launcher_flags fabric "lightning 2.6.6" lightning/fabric/cli.py _run`, where
that file lies, reads its calls of `add_argument` and `click.option`, or those at one function, and
writes tests/data/launchers/fabric.json.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

from support import REPOSITORY

RECORDED = REPOSITORY / "tests" / "data" / "launchers"
_SWITCH = re.compile(r"'(store_true|store_false|version)'|make_\w+_(true|false|bool)_action")


def flags_of(source: str, function: str | None = None) -> dict[str, Any]:
    """Return the flags with a value, the switches, and the short spellings of a parser's source."""
    valued, switches, short = set[str](), {"help"}, dict[str, str]()
    tree: ast.AST = ast.parse(source)
    if function is not None:
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        tree = next(node for node in functions if node.name == function)
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        words = [a.value for a in call.args if isinstance(a, ast.Constant)]
        names = [word for word in map(str, words) if word.startswith("-")]
        if call.func.attr not in ("add_argument", "option") or not names:
            continue
        settings = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        is_switch = _SWITCH.match(settings.get("action", "")) or settings.get("nargs") == "0"
        is_switch = is_switch or settings.get("is_flag") == "True"
        long = [name[2:].replace("-", "_") for name in names if name.startswith("--")]
        (switches if is_switch else valued).update(long)
        short |= {name: long[-1] for name in names if not name.startswith("--")}
    return {"valued": sorted(valued), "switches": sorted(switches), "short": short}


def recorded(launcher: str) -> Any:
    """Return the recorded flags of a launcher."""
    return json.loads((RECORDED / f"{launcher}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    name, package, file, *function = sys.argv[1:]
    flags = flags_of(Path(file).read_text("utf-8"), *function)
    record = {"source": f"{package}, {file}", **flags}
    text = json.dumps(record, indent=1) + "\n"
    (RECORDED / f"{name}.json").write_text(text, encoding="utf-8")
