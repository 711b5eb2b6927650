"""The imports of one file, each with what decides whether it happens at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator

REQUIRED = "required"
FUNCTION = "function"  # inside a function: only if that is called
TRY = "try"  # its failure is caught
CONDITIONAL = "conditional"  # under an `if`, in a loop, in a `match`
TYPING = "typing"  # under `if TYPE_CHECKING`: never at run time
DYNAMIC = "dynamic"  # by `import_module` or `__import__`

_CATCHING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


class Statement(NamedTuple):
    """One import: module `module` with `names` of it, or without; `level` dots before it."""

    module: str
    names: tuple[str, ...]
    level: int
    line: int
    kind: str


def imports(tree: ast.Module, *, is_main: bool, has_dynamic: bool) -> Iterator[Statement]:
    """Yield the imports in the file's order. `is_main`: it runs as `__main__`."""
    reader = _Reader(is_main)
    yield from reader.block(tree.body, REQUIRED)
    if has_dynamic:
        yield from _dynamic(tree)


class _Reader:
    def __init__(self, is_main: bool) -> None:
        import ast  # noqa: PLC0415

        self.ast = ast
        self.is_main = is_main

    def block(self, body: Iterable[ast.stmt], kind: str) -> Iterator[Statement]:
        """Yield the imports of statements that run under `kind`."""
        stack = [(node, kind) for node in reversed(list(body))]
        while stack:
            node, kind = stack.pop()
            if isinstance(node, self.ast.Import):
                for alias in node.names:
                    yield Statement(alias.name, (), 0, node.lineno, kind)
            elif isinstance(node, self.ast.ImportFrom):
                names = tuple(alias.name for alias in node.names)
                yield Statement(node.module or "", names, node.level, node.lineno, kind)
            else:
                inner = [(n, k) for part, k in self.parts(node, kind) for n in part]
                stack.extend(reversed(inner))

    def parts(self, node: ast.AST, kind: str) -> list[tuple[list[ast.stmt], str]]:  # noqa: PLR0911 - one for each kind of statement
        """Return the blocks of a statement, each with the kind of an import in it."""
        ast = self.ast
        if isinstance(node, ast.If):
            return self.branches(node, kind)
        if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":  # Python 3.11
            return self.attempts(node, kind)  # type: ignore[arg-type]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return [(node.body, weaker(kind, FUNCTION))]
        if isinstance(node, ast.ClassDef):
            return [(node.body, kind)]
        if isinstance(node, (ast.With, ast.AsyncWith)):
            calls = (item.context_expr for item in node.items)
            caught = any(_last(getattr(call, "func", None)) == "suppress" for call in calls)
            return [(node.body, weaker(kind, TRY) if caught else kind)]
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            return [(block, weaker(kind, CONDITIONAL)) for block in (node.body, node.orelse)]
        if isinstance(node, ast.Match):
            return [(case.body, weaker(kind, CONDITIONAL)) for case in node.cases]
        return []

    def branches(self, node: ast.If, kind: str) -> list[tuple[list[ast.stmt], str]]:
        """Return the two blocks of an `if`."""
        may = weaker(kind, CONDITIONAL)
        guard = main_guard(node)
        if guard is not None:
            inside = (node.body, node.orelse) if guard else (node.orelse, node.body)
            return [(inside[0] if self.is_main else inside[1], kind)]
        test, is_not = node.test, False
        if isinstance(test, self.ast.UnaryOp) and isinstance(test.op, self.ast.Not):
            test, is_not = test.operand, True
        if _last(test) == "TYPE_CHECKING":
            typed, real = (node.orelse, node.body) if is_not else (node.body, node.orelse)
            return [(typed, TYPING), (real, kind)]
        if isinstance(test, self.ast.Constant):
            return [(node.body if bool(test.value) is not is_not else node.orelse, kind)]
        return [(node.body, may), (node.orelse, may)]

    def attempts(self, node: ast.Try, kind: str) -> list[tuple[list[ast.stmt], str]]:
        """Return the blocks of a `try`. A handler that ends in `raise` catches nothing."""
        may = weaker(kind, TRY)
        caught = any(self.catches(handler) for handler in node.handlers)
        handlers = [(handler.body, may) for handler in node.handlers]
        first = may if caught else kind
        return [(node.body, first), *handlers, (node.orelse, first), (node.finalbody, kind)]

    def catches(self, handler: ast.ExceptHandler) -> bool:
        """Whether the program goes on after a failed import."""
        kinds = handler.type
        named = kinds.elts if isinstance(kinds, self.ast.Tuple) else [kinds]
        if kinds is not None and not any(_last(name) in _CATCHING for name in named):
            return False
        return not isinstance(handler.body[-1], self.ast.Raise)


def weaker(outer: str, inner: str) -> str:
    """Return the kind of an import inside another block: the outermost condition names it."""
    return inner if outer == REQUIRED else outer


def main_guard(node: ast.If) -> bool | None:
    """Whether the `if` holds for the program itself; None if it asks for something else."""
    import ast  # noqa: PLC0415

    test = node.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    sides = (test.left, test.comparators[0])
    is_name = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    is_main = any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)
    if not (is_name and is_main):
        return None
    return isinstance(test.ops[0], ast.Eq)


def _last(node: ast.AST | None) -> str | None:
    """Return the last part of a dotted name."""
    return getattr(node, "attr", None) or getattr(node, "id", None)


def _dynamic(tree: ast.Module) -> Iterator[Statement]:
    import ast  # noqa: PLC0415

    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        first = node.args[0]
        if _last(node.func) not in ("import_module", "__import__"):
            continue
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            module = first.value
            if all(part.isidentifier() for part in module.split(".")):
                yield Statement(module, (), 0, node.lineno, DYNAMIC)
