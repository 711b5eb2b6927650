"""Checks of the program's text: what it imports, and which options it takes. They warn at most."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.checks.answers import Answer, NotKnown, Question, ok, skip, warn
from safelaunch.checks.registry import check
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from safelaunch.analysis.imports.follow import ImportedModule
    from safelaunch.checks.context import CheckContext, HostContext

_SHOWN = 5
_ASKED = 200  # modules
# folders that are looked through for a module of the project: below three others hardly any is
_DEEPEST, _MOST_FOLDERS = 3, 500
_LIBRARIES = ("torch", "accelerate", "transformers", "deepspeed", "trl", "peft", "vllm", "numpy")
_NOT_OURS = ("node_modules", "site-packages", "__pycache__", "venv", "env", "build", "dist")

# names that many projects give a file of their own; on PyPI they are something else
_OUR_OWN = frozenset(
    {
        *("utils", "util", "helpers", "helper", "common", "config", "configs", "constants", "core"),
        *("src", "lib", "tools", "scripts", "models", "model", "data", "dataset", "dataloader"),
        *("trainer", "train", "eval", "arguments", "args", "losses", "modules", "layers"),
    }
)

# import name -> what to install, where PyPI has another name for it or someone else's under it
_WHEELS = {
    "cv2": "opencv-python",
    "yaml": "pyyaml",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "bs4": "beautifulsoup4",
    "dotenv": "python-dotenv",
    "flash_attn": "flash-attn",
    "swift": "ms-swift",
    "Levenshtein": "python-Levenshtein",
    "google": "protobuf",
    "hydra": "hydra-core",
    "attr": "attrs",
    "dateutil": "python-dateutil",
    "serial": "pyserial",
    "sentence_transformers": "sentence-transformers",
    "pytorch_lightning": "pytorch-lightning",
    "rouge_score": "rouge-score",
}


def _modules(host: HostContext) -> Iterable[Question]:
    return [("module", one.name) for one in _required(host.context)]


def _required(context: CheckContext) -> list[ImportedModule]:
    """Return what the program cannot start without. Raises NotKnown."""
    imports = context.project_files.imports
    if imports.path_changed is not None:
        raise NotKnown(f"{imports.path_changed} changes where modules are looked for")
    found = [one for one in (*imports.third_party, *imports.standard) if one.is_required]
    return found[:_ASKED]


@check("imports", "project", asks=_modules, quick=True)
def imports(host: HostContext) -> Answer | None:
    """Whether the interpreter finds what the program imports, whatever happens in it."""
    if host.context.project_files.script is None:
        return None
    wanted = _required(host.context)
    missing = [one for one in wanted if not host.answer("module", one.name)["found"]]
    if not missing:
        return ok(
            f"the {len(wanted)} modules that the script imports were found"
            if len(wanted) > 1
            else "the module that the script imports was found"
        )
    shown = ", ".join(f"`{one.name}` ({_place(host.context, one)})" for one in missing[:_SHOWN])
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    return warn(f"the interpreter does not find {shown}{more}", _brought(host, missing))


def _brought(host: HostContext, missing: Sequence[ImportedModule]) -> str:
    """Return how modules are found: a folder of the project's own has them, or pip."""
    own = _own_folders(host.context, [one.name for one in missing])
    hints = []
    if own:
        which = ", ".join(f"`{name}`" for name in own)
        path = _search_path(host.context, own.values())
        hints.append(f"`--set 'pythonpath={path}'` for {which} of the project")
    rest = [one.name for one in missing if one.name not in own]
    lost = [f"`{name}`" for name in rest if name in _OUR_OWN]
    if lost:
        hints.append(f"bring the project's {', '.join(lost)}, or name its folder: `pythonpath:`")
    wheels = [_WHEELS.get(name, name) for name in rest if name not in _OUR_OWN]
    if wheels:
        python = quote(host.get("python", "executable") or host.interpreter or "python3")
        hints.append(f"`{python} -m pip install {' '.join(wheels)}`; or name the one that has them "
                     "with `python:`")  # fmt: skip
    return "; ".join(hints)


def _own_folders(context: CheckContext, names: Sequence[str]) -> dict[str, str]:
    """Return {module: the folder of the project that holds it}."""
    if context.project is None:
        return {}
    found: dict[str, str] = {}
    for at, (folder, folders, files) in enumerate(os.walk(context.project)):
        depth = folder[len(context.project) :].count(os.sep)
        inside = [one for one in folders if one[:1] not in ".~" and one not in _NOT_OURS]
        folders[:] = sorted(inside) if depth < _DEEPEST and at < _MOST_FOLDERS else []
        for name in names if "__init__.py" not in files else ():
            is_file = f"{name}.py" in files
            if name not in (*found, *_LIBRARIES) and (is_file or _is_package(folder, name, inside)):
                found[name] = folder
    return found


def _search_path(context: CheckContext, folders: Iterable[str]) -> str:
    """Return `pythonpath:` with more folders, as the job file names them: relative to itself."""
    file = context.resolved.job_file if context.resolved is not None else ""
    is_file = bool(file) and os.path.isfile(file)
    base = os.path.dirname(os.path.abspath(file)) if is_file else context.local_path(".") or ""
    kept = [context.local_path(path) or path for path in context.hosts[0].pythonpath]
    named = [os.path.relpath(one, base).replace(os.sep, "/") if os.path.isabs(one) else one
             for one in (*kept, *folders)]  # fmt: skip
    return f"[{', '.join(dict.fromkeys(named))}]"


def _is_package(folder: str, name: str, folders: Sequence[str]) -> bool:
    return name in folders and os.path.isfile(os.path.join(folder, name, "__init__.py"))


@check("shadowed", "project", once=True, quick=True)
def shadowed(context: CheckContext) -> Iterator[Answer] | None:
    """Whether no file of the project takes the place of a module that others import."""
    if context.project_files.script is None:
        return None
    return (
        warn(
            f"{_below(context, one.path)} is imported instead of the module `{one.name}` everywhere"
            + (f", also at {_place_text(context, str(one.location))}" if one.location else ""),
            f"rename {_below(context, one.path)}",
        )
        for one in context.project_files.imports.shadows[:_SHOWN]
    )


@check("own-modules", "project", once=True)
def own_modules(context: CheckContext) -> Answer | None:
    """Whether what the program imports of its own packages is there."""
    if context.project_files.script is None:
        return None
    found = context.project_files.imports
    if found.relative_import is not None:
        job = context.job
        hint = f"start it as a module: {_as_module(context)} instead of `script:`"
        return warn(
            f"{_place_text(context, str(found.relative_import))}: a relative import; "
            f"`{job.script}` is started as a script, not as part of a package",
            hint,
            "Python documentation, tutorial, Packages: intra-package references",
        )
    if not found.missing_submodules:
        return None
    shown = ", ".join(
        f"`{one.name}` ({_place(context, one)})" for one in found.missing_submodules[:_SHOWN]
    )
    return warn(f"the project has no {shown}", "correct the import, or bring the missing file")


def _as_module(context: CheckContext) -> str:
    """Return how a job names its script as a part of the package that it lies in."""
    script, root = context.project_files.script or "", context.local_path(".") or ""
    folder = os.path.dirname(script)
    while os.path.isfile(os.path.join(folder, "__init__.py")) and folder != root:
        folder = os.path.dirname(folder)
    if folder == os.path.dirname(script):
        folder = root  # a package without __init__.py
    name = os.path.splitext(os.path.relpath(script, folder))[0].replace(os.sep, ".")
    if name.startswith("..") or not all(part.isidentifier() for part in name.split(".")):
        return "`module: package.name`"
    if folder == root:
        return f"`module: {name}`"
    return f"`module: {name}` with `pythonpath: {_search_path(context, [folder])}`"


@check("flags", "project", once=True, quick=True)
def flags(context: CheckContext) -> Iterable[Answer] | None:
    """Whether the program takes the options that the job gives it."""
    if context.project_files.script is None:
        return None
    from safelaunch.analysis.options.unknown_options import option_problems  # noqa: PLC0415 - where a program is read

    taken = context.project_files.flags
    if taken is None:
        return None
    if taken.is_incomplete:
        return [] if context.is_quick else [skip(f"{taken.why}: options cannot be judged")]
    found = list(option_problems(taken, context.job.args))
    where = context.job.origin("args") if "args" in context.job.origins else "`args:` of the job"
    said = [
        warn(f"{one.message} ({_place_text(context, str(one.location))})", f"{one.fix} ({where})")
        for one in found[:_SHOWN]
    ]
    return said or [ok("the script knows all options of the job")]


@check("settings-files", "project", once=True)
def settings_files(context: CheckContext) -> Iterator[Answer] | None:
    """Whether the settings files among the arguments say the same to every YAML loader."""
    from safelaunch.checks import job_paths  # noqa: PLC0415 - it imports context.py, which imports us
    from safelaunch.lint.finding import NOTE  # noqa: PLC0415 - as above
    from safelaunch.lint.run import check as lint  # noqa: PLC0415 - its rules are heavy

    named = [
        (path, context.project_files.text(path)) for path in job_paths.config_files(context.job)
    ]
    return (
        warn(f"{path}:{one.line}:{one.column}: {one.message}", one.fix or f"safelaunch lint {path}")
        for path, data in named
        if data is not None
        for one in [f for f in lint(path, data).findings if f.severity != NOTE][:_SHOWN]
    )


def _place(context: CheckContext, needed: ImportedModule) -> str:
    return _place_text(context, str(needed.location))


def _place_text(context: CheckContext, place: str) -> str:
    """Return `file:line` below the project's folder."""
    path, _, line = place.rpartition(":")
    return f"{_below(context, path)}:{line}"


def _below(context: CheckContext, path: str) -> str:
    root = (context.project or "").rstrip("/\\")
    return path[len(root) + 1 :] if root and path.startswith(root) else path
