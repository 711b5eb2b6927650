"""Reads the import statements of one file, each with the condition under which it runs."""

# ruff: noqa: PLC0415 - ast is imported only if there is a program to read

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator

REQUIRED = "required"
FUNCTION = "function"  # inside a function: runs only if that is called
TRY = "try"  # its failure is caught
CONDITIONAL = "conditional"  # under an `if`, in a loop, in a `match`
TYPING = "typing"  # under `if TYPE_CHECKING`: never at run time
DYNAMIC = "dynamic"  # by `import_module` or `__import__`

_CATCHING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


class ImportStatement(NamedTuple):
    """One import of `module`, with the `names` imported from it and `level` leading dots."""

    module: str
    names: tuple[str, ...]
    level: int
    line: int
    kind: str


def import_statements(
    tree: ast.Module, *, is_main: bool, has_dynamic: bool
) -> Iterator[ImportStatement]:
    """Yield the imports in file order. `is_main`: the file runs as `__main__`."""
    reader = _ImportReader(is_main)
    yield from reader.read_block(tree.body, REQUIRED)
    if has_dynamic:
        yield from _dynamic_imports(tree)


class _ImportReader:
    def __init__(self, is_main: bool) -> None:
        import ast

        self.ast = ast
        self.is_main = is_main

    def read_block(self, body: Iterable[ast.stmt], kind: str) -> Iterator[ImportStatement]:
        """Yield the imports of statements that run under the condition `kind`."""
        stack = [(node, kind) for node in reversed(list(body))]
        while stack:
            node, kind = stack.pop()
            if isinstance(node, self.ast.Import):
                for alias in node.names:
                    yield ImportStatement(alias.name, (), 0, node.lineno, kind)
            elif isinstance(node, self.ast.ImportFrom):
                names = tuple(alias.name for alias in node.names)
                yield ImportStatement(node.module or "", names, node.level, node.lineno, kind)
            else:
                inner = [(n, k) for part, k in self.blocks(node, kind) for n in part]
                stack.extend(reversed(inner))

    def blocks(self, node: ast.AST, kind: str) -> list[tuple[list[ast.stmt], str]]:  # noqa: PLR0911 - one for each kind of statement
        """Return the blocks of a statement, each with the condition for imports in it."""
        ast = self.ast
        if isinstance(node, ast.If):
            return self.if_blocks(node, kind)
        if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":  # Python 3.11
            return self.try_blocks(node, kind)  # type: ignore[arg-type]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return [(node.body, less_certain(kind, FUNCTION))]
        if isinstance(node, ast.ClassDef):
            return [(node.body, kind)]
        if isinstance(node, (ast.With, ast.AsyncWith)):
            calls = (item.context_expr for item in node.items)
            caught = any(_last_part(getattr(call, "func", None)) == "suppress" for call in calls)
            return [(node.body, less_certain(kind, TRY) if caught else kind)]
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            return [(block, less_certain(kind, CONDITIONAL)) for block in (node.body, node.orelse)]
        if isinstance(node, ast.Match):
            return [(case.body, less_certain(kind, CONDITIONAL)) for case in node.cases]
        return []

    def if_blocks(self, node: ast.If, kind: str) -> list[tuple[list[ast.stmt], str]]:
        """Return the two blocks of an `if`."""
        may = less_certain(kind, CONDITIONAL)
        guard = main_guard(node)
        if guard is not None:
            inside = (node.body, node.orelse) if guard else (node.orelse, node.body)
            return [(inside[0] if self.is_main else inside[1], kind)]
        test, is_not = node.test, False
        if isinstance(test, self.ast.UnaryOp) and isinstance(test.op, self.ast.Not):
            test, is_not = test.operand, True
        if _last_part(test) == "TYPE_CHECKING":
            typed, real = (node.orelse, node.body) if is_not else (node.body, node.orelse)
            return [(typed, TYPING), (real, kind)]
        if isinstance(test, self.ast.Constant):
            return [(node.body if bool(test.value) is not is_not else node.orelse, kind)]
        return [(node.body, may), (node.orelse, may)]

    def try_blocks(self, node: ast.Try, kind: str) -> list[tuple[list[ast.stmt], str]]:
        """Return the blocks of a `try`. A handler that ends in `raise` does not catch."""
        may = less_certain(kind, TRY)
        caught = any(self.catches_import_error(handler) for handler in node.handlers)
        handlers = [(handler.body, may) for handler in node.handlers]
        first = may if caught else kind
        return [(node.body, first), *handlers, (node.orelse, first), (node.finalbody, kind)]

    def catches_import_error(self, handler: ast.ExceptHandler) -> bool:
        """Whether the program continues after a failed import."""
        kinds = handler.type
        named = kinds.elts if isinstance(kinds, self.ast.Tuple) else [kinds]
        if kinds is not None and not any(_last_part(name) in _CATCHING for name in named):
            return False
        return not isinstance(handler.body[-1], self.ast.Raise)


def less_certain(outer: str, inner: str) -> str:
    """Return the condition of an import in nested blocks: the outermost one."""
    return inner if outer == REQUIRED else outer


def main_guard(node: ast.If) -> bool | None:
    """Whether `if __name__ == "__main__"` is true in the main file; None for another `if`."""
    import ast

    test = node.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    sides = (test.left, test.comparators[0])
    is_name = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    is_main = any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)
    if not (is_name and is_main):
        return None
    return isinstance(test.ops[0], ast.Eq)


def _last_part(node: ast.AST | None) -> str | None:
    """Return the last part of a dotted name."""
    return getattr(node, "attr", None) or getattr(node, "id", None)


def _dynamic_imports(tree: ast.Module) -> Iterator[ImportStatement]:
    import ast

    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        first = node.args[0]
        if _last_part(node.func) not in ("import_module", "__import__"):
            continue
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            module = first.value
            if all(part.isidentifier() for part in module.split(".")):
                yield ImportStatement(module, (), 0, node.lineno, DYNAMIC)
