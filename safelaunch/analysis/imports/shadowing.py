"""Files of the project that take the place of a module which someone else wants.

A file beside the script comes before the standard library and before what is installed, for every
import of the whole process. A folder without `__init__` takes no one's place, and is not named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.imports import stdlib
from safelaunch.analysis.python.module_search import Found, find, is_spelled_so
from safelaunch.analysis.python.trees import Place

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Sequence

    from safelaunch.analysis.python.statements import Statement
    from safelaunch.analysis.python.trees import Trees

# Packages of PyPI that training scripts import; a project's own module of such a name is judged
# only by whether it has what is taken from it.
_PACKAGES = """
accelerate apex bitsandbytes click cv2 datasets deepspeed diffusers einops evaluate faiss fire
flash_attn gymnasium hydra jax lightning matplotlib numpy omegaconf openai optimum pandas peft PIL
pytorch_lightning ray requests safetensors scipy sentence_transformers sglang sklearn swift
tensorboard tensorflow timm tokenizers torch torchaudio torchmetrics torchvision tqdm transformers
triton trl verl vllm wandb xformers yaml
"""
PACKAGES = frozenset(_PACKAGES.split())


class Shadow(NamedTuple):
    """A module of the project under a name that others want.

    `place` is an import that takes something from it which it does not have, or None where the
    name alone is enough: torch imports that module of the standard library itself.
    """

    name: str
    path: str
    place: Place | None
    is_standard: bool


def find_all(
    trees: Trees, folders: Sequence[str], used: Sequence[tuple[str, Statement]]
) -> tuple[Shadow, ...]:
    """Return the shadows among the folders of the search path, by name; `used`: (file, import)."""
    found = {shadow.name: shadow for shadow in _by_use(trees, folders, used)}
    for name in sorted(stdlib.BY_TORCH - found.keys()):
        module = find(name, folders)
        if module is not None and module.path is not None and is_spelled_so(module.path):
            found[name] = Shadow(name, module.path, None, True)
    return tuple(found[name] for name in sorted(found))


def _by_use(
    trees: Trees, folders: Sequence[str], used: Sequence[tuple[str, Statement]]
) -> Iterator[Shadow]:
    for file, statement in used:
        name = statement.module.partition(".")[0]
        is_standard = name in stdlib.NAMES - stdlib.LOADED
        if not is_standard and name not in PACKAGES:
            continue
        module = find(name, folders)
        if module is None or module.path is None or not is_spelled_so(module.path):
            continue
        if _lacks(trees, module, file, statement):
            yield Shadow(name, module.path, Place(file, statement.line), is_standard)


def _lacks(trees: Trees, module: Found, file: str, statement: Statement) -> bool:
    """Whether an import takes from a module what the module does not have."""
    tree = trees.tree(module.path or "")
    name, dot, below = statement.module.partition(".")
    if tree is None:
        return False
    has = defined(tree)
    if "*" in has or "__getattr__" in has:
        return False
    if dot:
        wanted = {below.partition(".")[0]} - has
    elif statement.names:
        wanted = set(statement.names) - has - {"*"}
    else:
        wanted = set(_attributes(trees, file, name)) - has
    return any(not w.startswith("__") and find(w, module.folders) is None for w in wanted)


def defined(tree: ast.Module) -> frozenset[str]:
    """Return the names that a module has once imported; `*` if they cannot be told."""
    import ast  # noqa: PLC0415

    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name):
            names.add("*" if node.id in ("globals", "setattr", "exec", "vars") else node.id)
    return frozenset(names)


def _attributes(trees: Trees, file: str, name: str) -> Iterator[str]:
    """Yield what a file takes from a module by `name.x`, if the name means nothing else there."""
    import ast  # noqa: PLC0415

    tree = trees.tree(file)
    if tree is None:
        return
    nodes = list(ast.walk(tree))
    for node in nodes:
        is_stored = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        bound = (getattr(node, "id", None) if is_stored else None, getattr(node, "asname", None))
        if name in (*bound, getattr(node, "arg", None)):
            return
    for node in nodes:
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == name:
            yield node.attr
