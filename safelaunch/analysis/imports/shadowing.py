"""Finds files of the project that shadow a module of the standard library or of a package.

A file next to the script comes before the standard library and before installed packages, for
every import of the whole process. A folder without `__init__` shadows nothing, and is not reported.
"""

# ruff: noqa: PLC0415 - ast is imported only if there is a program to read

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.imports import stdlib
from safelaunch.analysis.python.module_search import ModuleLocation, find_module, has_exact_case
from safelaunch.analysis.python.trees import SourceLine

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Sequence

    from safelaunch.analysis.python.statements import ImportStatement
    from safelaunch.analysis.python.trees import Trees

# Packages of PyPI that training scripts import; a project's own module of such a name is reported
# only if it lacks a name that is imported from it.
_PACKAGES = """
accelerate apex bitsandbytes click cv2 datasets deepspeed diffusers einops evaluate faiss fire
flash_attn gymnasium hydra jax lightning matplotlib numpy omegaconf openai optimum pandas peft PIL
pytorch_lightning ray requests safetensors scipy sentence_transformers sglang sklearn swift
tensorboard tensorflow timm tokenizers torch torchaudio torchmetrics torchvision tqdm transformers
triton trl verl vllm wandb xformers yaml
"""
PACKAGES = frozenset(_PACKAGES.split())


class Shadow(NamedTuple):
    """A module of the project that shadows one of the standard library or of a package.

    `location` is an import of a name that the module lacks, or None where the module's name is
    enough: torch itself imports that module of the standard library.
    """

    name: str
    path: str
    location: SourceLine | None
    is_standard: bool


def find_shadows(
    trees: Trees, folders: Sequence[str], project_imports: Sequence[tuple[str, ImportStatement]]
) -> tuple[Shadow, ...]:
    """Return the shadowing modules in the search path, sorted by name."""
    shadows = {shadow.name: shadow for shadow in _by_use(trees, folders, project_imports)}
    for name in sorted(stdlib.TORCH_IMPORTS - shadows.keys()):
        module = find_module(name, folders)
        if module is not None and module.path is not None and has_exact_case(module.path):
            shadows[name] = Shadow(name, module.path, None, True)
    return tuple(shadows[name] for name in sorted(shadows))


def _by_use(
    trees: Trees, folders: Sequence[str], project_imports: Sequence[tuple[str, ImportStatement]]
) -> Iterator[Shadow]:
    for file, statement in project_imports:
        name = statement.module.partition(".")[0]
        is_standard = name in stdlib.NAMES - stdlib.PRELOADED
        if not is_standard and name not in PACKAGES:
            continue
        module = find_module(name, folders)
        if module is None or module.path is None or not has_exact_case(module.path):
            continue
        if _lacks_name(trees, module, file, statement):
            yield Shadow(name, module.path, SourceLine(file, statement.line), is_standard)


def _lacks_name(
    trees: Trees, module: ModuleLocation, file: str, statement: ImportStatement
) -> bool:
    """Whether an import uses a name that the module lacks."""
    tree = trees.tree(module.path or "")
    name, dot, submodule = statement.module.partition(".")
    if tree is None:
        return False
    defined = defined_names(tree)
    if "*" in defined or "__getattr__" in defined:
        return False
    if dot:
        names = {submodule.partition(".")[0]} - defined
    elif statement.names:
        names = set(statement.names) - defined - {"*"}
    else:
        names = set(_attributes(trees, file, name)) - defined
    return any(
        not used_name.startswith("__") and find_module(used_name, module.folders) is None
        for used_name in names
    )


def defined_names(tree: ast.Module) -> frozenset[str]:
    """Return the names that a module defines; `*` if they cannot be determined."""
    import ast

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
    """Yield the attributes `x` that a file uses as `name.x`, unless it rebinds `name`."""
    import ast

    tree = trees.tree(file)
    if tree is None:
        return
    nodes = list(ast.walk(tree))
    for node in nodes:
        is_stored = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        variable = getattr(node, "id", None) if is_stored else None
        if name in (variable, getattr(node, "asname", None), getattr(node, "arg", None)):
            return
    for node in nodes:
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == name:
            yield node.attr
