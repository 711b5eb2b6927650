"""Checks the program's text: what it imports, and which options it accepts. They warn at most."""

# ruff: noqa: PLC0415 - the readers of options and the rules of lint are heavy; few jobs need them

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.analysis.option_model import HF
from safelaunch.checks import job_options, job_paths
from safelaunch.checks.answers import Answer, NotKnown, ok, skip, warn
from safelaunch.checks.environment import pip_commands
from safelaunch.checks.project_libraries import PACKAGES, library_paths
from safelaunch.checks.registry import check
from safelaunch.config.supervision import RESUME_EXAMPLE
from safelaunch.model import Args

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from safelaunch.analysis.imports.follow import ImportedModule
    from safelaunch.analysis.option_model import OptionProblem, ScriptOptions
    from safelaunch.checks.context import CheckContext, HostContext
    from safelaunch.model import Job

_SHOWN = 5
_RESUME = "--resume_from_checkpoint"
_HF_PROGRAMS = ("swift", "trl")  # their command lines are HfArgumentParser's
_MAX_MODULES = 200
# transformers 5.23.0 hf_argparser.py:426, parse_yaml_file: yaml.safe_load, and no conversion
_PYYAML_READERS = frozenset({"yaml", "transformers"})
# OmegaConf and jsonargparse 4.53.0 (_loaders_dumpers.py) have their own floats; the argparse of
# TRL 1.16.0 (scripts/utils.py, TrlParser) converts text
_OTHER_READERS = frozenset({"hydra", "omegaconf", "jsonargparse", "lightning", "trl"})
# variables that select other classes or accept any key (0.9.5 hparams/parser.py, cli.py)
_SELECTING_VARIABLES = {
    "llamafactory": ("ALLOW_EXTRA_ARGS", "USE_MCA", "USE_MEGATRON_BRIDGE", "USE_V1"),
    "swift": ("RAY_SWIFT_ARGS",),  # 4.6 utils/utils.py, parse_args
}
# limits of the search for a module in the project: deeper folders hardly ever have one
_MAX_DEPTH, _MAX_FOLDERS = 3, 500
_MAX_ABOVE = 5  # folders above the project
_LIBRARIES = ("torch", "accelerate", "transformers", "deepspeed", "trl", "peft", "vllm", "numpy")
_ROOTS = (".", "src", "python")  # folders of a project that have its own package
_NOT_SOURCE = ("node_modules", "site-packages", "__pycache__", "venv", "env", "build", "dist")

_INSTALLED = re.compile(r"/(?:site|dist)-packages/")

# names that many projects give a file of their own; on PyPI they are something else
_PROJECT_NAMES = frozenset(
    {
        *("utils", "util", "helpers", "helper", "common", "config", "configs", "constants", "core"),
        *("src", "lib", "tools", "scripts", "models", "model", "data", "dataset", "dataloader"),
        *("trainer", "train", "eval", "arguments", "args", "losses", "modules", "layers"),
    }
)


def _required(host: HostContext) -> list[ImportedModule]:
    """Return the modules that the program cannot start without. Raises NotKnown."""
    if not host.runs_python:
        raise NotKnown("another program chooses the interpreter")
    imports = host.context.project_files.imports
    if imports.path_changed is not None:
        raise NotKnown(f"{imports.path_changed} changes where modules are searched")
    modules = [m for m in (*imports.third_party, *imports.standard) if m.is_required]
    return modules[:_MAX_MODULES]


@check("imports", asks=lambda host: [("module", m.name) for m in _required(host)], quick=True)
def imports(host: HostContext) -> Answer | None:
    """Whether the interpreter finds the modules that the program always imports."""
    context = host.context
    if context.project_files.script is None:
        return None
    modules = _required(host)
    missing = [m for m in modules if not host.answer("module", m.name)["found"]]
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        what = f"the interpreter does not find {_located(context, missing)}{more}"
        return warn(what, _provide_modules(host, [module.name for module in missing]))
    if len(modules) < 2:  # noqa: PLR2004 - the plural
        return ok("the module that the script imports was found")
    return ok(f"the {len(modules)} modules that the script imports were found")


def _located(context: CheckContext, modules: Sequence[ImportedModule]) -> str:
    """Return the first modules with the lines that import them."""
    shown = ((m.name, _below(context, str(m.location))) for m in modules[:_SHOWN])
    return ", ".join(f"`{name}` ({place})" for name, place in shown)


def _provide_modules(host: HostContext, names: Sequence[str]) -> str:
    """Return how missing modules are found: in a folder of the project, or installed by pip."""
    folders = _project_folders(host.context, names)
    own = {name: f for name, f in folders.items() if not _is_library(host, name, f)}
    hints = []
    if own:
        path = _search_path(host.context, own.values())
        listed = ", ".join(f"`{name}`" for name in own)
        hints.append(f"`--set '{path}'` for {listed} of the project")
    names = [name for name in names if name not in own]
    lost = ", ".join(f"`{name}`" for name in names if name in _PROJECT_NAMES)
    if lost:
        hints.append(f"add the project's {lost}, or name its folder: `pythonpath:`")
    external = [name for name in names if name not in _PROJECT_NAMES]
    if external:
        install = pip_commands.install(host, external)
        hints.append(f"{install}; or name an interpreter that has them with `python:`")
    if "megatron" in external:
        hints.append(
            "a wheel has `megatron.core` alone: `pythonpath:` names a checkout for the rest"
        )
    return "; ".join(hints)


def _is_library(host: HostContext, name: str, folder: str) -> bool:
    """Whether a module is a library, for which a module of the project in a folder is none.

    A project's `data/datasets.py` would hide the library, for each other import of it too. The
    project itself may be that library: then it is a package in its root, or in `src`.
    """
    from safelaunch.analysis.imports.shadowing import PACKAGES
    from safelaunch.checks.environment.packages import required_modules

    if name in _LIBRARIES or name in required_modules(host):
        return True
    below = os.path.relpath(folder, host.context.project or folder)
    is_own = below in _ROOTS and os.path.isfile(os.path.join(folder, name, "__init__.py"))
    return not is_own and (name in PACKAGES or name in pip_commands.PROJECTS)


def _project_folders(context: CheckContext, names: Sequence[str]) -> dict[str, str]:
    """Return {module: the folder of the project that contains it}."""
    if context.project is None:
        return {}
    result: dict[str, str] = {}
    for index, (folder, folders, files) in enumerate(os.walk(context.project)):
        depth = folder[len(context.project) :].count(os.sep)
        inside = [name for name in folders if name[:1] not in ".~" and name not in _NOT_SOURCE]
        folders[:] = sorted(inside) if depth < _MAX_DEPTH and index < _MAX_FOLDERS else []
        for name in names if "__init__.py" not in files else ():
            package = os.path.join(folder, name, "__init__.py")
            exists = f"{name}.py" in files or (name in inside and os.path.isfile(package))
            if exists and name not in result:
                result[name] = folder
    return {**_folders_above(context.project, names), **result}


def _folders_above(project: str, names: Sequence[str]) -> dict[str, str]:
    """Return {package: the folder above a project without a repository of its own that has it}.

    The project is then the folder that the line was typed in: an example of the package.
    """
    result: dict[str, str] = {}
    folder, above = project, os.path.dirname(project)
    for _ in range(_MAX_ABOVE):
        if above == folder or os.path.lexists(os.path.join(folder, ".git")):
            break
        for name in names:
            if os.path.isfile(os.path.join(above, name, "__init__.py")):
                result.setdefault(name, above)
        folder, above = above, os.path.dirname(above)
    return result


def _search_path(context: CheckContext, folders: Iterable[str]) -> str:
    """Return `KEY=VALUE` of `--set` that adds folders to those that the job searches.

    Those of `pythonpath:` are relative to the job file, those of a variable to `workdir:`.
    """
    file = context.resolved.job_file if context.resolved is not None else ""
    is_file = bool(file) and os.path.isfile(file) and not context.is_pythonpath_set
    base = os.path.dirname(os.path.abspath(file)) if is_file else context.local_path(".") or ""
    paths = [context.local_path(path) or path for path in map(str, context.pythonpath)]
    paths = [os.path.relpath(path, base).replace(os.sep, "/") if os.path.isabs(path) else path
             for path in (*paths, *folders)]  # fmt: skip
    paths = list(dict.fromkeys(paths))
    if context.is_pythonpath_set:
        return f"env.PYTHONPATH={':'.join(paths)}"
    return f"pythonpath=[{', '.join(paths)}]"


@check("shadowed", once=True, quick=True)
def shadowed(context: CheckContext) -> Iterator[Answer] | None:
    """Whether no file of the project has the name of a module that others import."""
    if context.project_files.script is None:
        return None
    return (
        warn(
            f"{_below(context, shadow.path)} is imported instead of the module `{shadow.name}`"
            + (f", also at {_below(context, str(shadow.location))}" if shadow.location else ""),
            f"rename {_below(context, shadow.path)}",
        )
        for shadow in context.project_files.imports.shadows[:_SHOWN]
    )


@check("own-modules", once=True)
def own_modules(context: CheckContext) -> Answer | None:
    """Whether the project has the modules that the program imports from it."""
    if context.project_files.script is None:
        return None
    imports = context.project_files.imports
    if imports.relative_import is not None:
        return warn(
            f"{_below(context, str(imports.relative_import))}: a relative import; "
            f"`{context.job.script}` is started as a script, not as part of a package",
            f"start it as a module: {_as_module(context)} instead of `script:`",
            "Python documentation, tutorial, Packages: intra-package references",
        )
    file = next((module for module in imports.no_packages if module.is_required), None)
    if file is not None:
        path, name = _below(context, file.name), os.path.splitext(os.path.basename(file.name))[0]
        return warn(
            f"{path} is imported as `{name}`, and is no package, as "
            f"{_below(context, str(file.location))} wants it",
            f"rename {path}, or correct the import"
            + ("" if context.job.script is None else f"; or start {_as_module(context)}"),
        )
    missing = [module for module in imports.missing_submodules if module.is_required]
    if not missing:
        return None
    what = f"the project has no {_located(context, missing)}"
    return warn(what, "correct the import, or add the missing file")


def _as_module(context: CheckContext) -> str:
    """Return how a job names its script as a module of its package."""
    script, root = context.project_files.script or "", context.local_path(".") or ""
    folder = os.path.dirname(script)
    while os.path.isfile(os.path.join(folder, "__init__.py")) and folder != root:
        folder = os.path.dirname(folder)
    if folder == os.path.dirname(script):
        folder = root  # a package without __init__.py
    name = os.path.splitext(os.path.relpath(script, folder))[0].replace(os.sep, ".")
    if name.startswith("..") or not all(part.isidentifier() for part in name.split(".")):
        return "`module: package.name`"
    path = "" if folder == root else f" with `--set '{_search_path(context, [folder])}'`"
    return f"`module: {name}`{path}"


def _libraries(host: HostContext) -> list[tuple[str, str]]:
    """Return the questions for the packages that may define the program's options."""
    packages = {(host.job.module or "").partition(".")[0]}
    packages |= launchers.load(host.job.launcher).imports(host.job).keys()
    if host.context.project_files.script is not None:
        packages |= {module.name for module in host.context.project_files.imports.third_party}
    if "trl" in packages:  # its classes are those of transformers with more fields
        packages |= {"transformers"}
    return [("module", name) for name in PACKAGES if name in packages]


@check("flags", asks=_libraries, once=True, quick=True)
def flags(context: CheckContext) -> Iterable[Answer] | None:
    """Whether the program accepts the options that the job passes."""
    framework = context.project_files.framework
    for name in () if framework is None else _SELECTING_VARIABLES.get(framework.name, ()):
        if context.hosts and job_options.has_variable(context.hosts[0], name):
            raise NotKnown(f"`{name}` is set: it may select other options")
    accepted = context.project_files.options(lambda: library_paths(context))
    if accepted is None:
        return _resume_switches(context) or None
    if accepted.is_incomplete:
        unread = [] if context.is_quick else [f"{accepted.why}: options cannot be checked"]
        return _resume_switches(context) or [skip(why) for why in unread]
    switches = _resume_switches(context) if accepted.kind == HF else []
    answers: dict[tuple[str, str], Answer] = {}
    for word, remedy in launchers.load(context.job.launcher).rank_options(context.job).items():
        option = word.partition("=")[0]
        words = (word, *context.job.args.words)
        if any(p.option == option for p in _problems(context, accepted, Args(words=words), [])):
            what = f"{context.job.launcher} gives each rank `{option}=N`, which the script refuses"
            answers[option, ""] = warn(what, f"{remedy}; or add the option to the script")
    unclear: list[str] = []
    for args, place in _late_argument_sets(context):
        for p in _problems(context, accepted, args, unclear):
            if switches and p.option == _RESUME:
                continue  # said with an example
            what = f"{p.message} ({_below(context, str(p.location))})"
            answers.setdefault((p.option, p.message), warn(what, f"{p.fix} ({place})"))
    warnings = [*switches, *answers.values()][:_SHOWN]
    return warnings or _without_warnings(unclear, is_quick=context.is_quick)


def _without_warnings(unclear: Sequence[str], *, is_quick: bool) -> list[Answer]:
    """Return that all options are accepted, or why they could not be judged."""
    if not unclear:
        return [ok("the script accepts all options of the job")]
    return [skip(f"{why}: options cannot be checked") for why in unclear[: not is_quick]]


def _problems(
    context: CheckContext, accepted: ScriptOptions, args: Args, unclear: list[str]
) -> Iterator[OptionProblem]:
    """Yield what is wrong in arguments, and in the settings files that they name.

    Append the reason to `unclear` where they cannot be judged.
    """
    from safelaunch.analysis.options.settings_problems import problems
    from safelaunch.analysis.options.unknown_options import option_problems
    from safelaunch.analysis.python.trees import Unclear

    try:
        if accepted.settings:
            yield from problems(accepted, args, context.project_files.text)
        else:
            yield from option_problems(accepted, args)
    except Unclear as e:
        unclear.append(e.why)


def _argument_sets(job: Job) -> Iterator[tuple[Args, str]]:
    """Yield the arguments of each kind of start, and where they are written."""
    where = job.origin("args") if "args" in job.origins else "`args:` of the job"
    # those of `args` first: later attempts and a smoke run have most of them too
    yield job.args, str(where)
    if job.resumed is not None:
        yield job.resumed, "`recovery.resume_args`"
    if job.smoke_args is not None:
        yield job.smoke_args, "`smoke.args`"


def _late_argument_sets(context: CheckContext) -> Iterator[tuple[Args, str]]:
    """Yield the same with plausible values for what is known only late: the port of a service."""
    for args, place in _argument_sets(context.job):
        if context.plan is None or "{" not in "".join(args.words):
            yield args, place
            continue
        from safelaunch.plan.members.examples import example_args

        yield from ((example, place) for example in example_args(args, context.plan))


def _resume_switches(context: CheckContext) -> list[Answer]:
    """Return that transformers' parser wants a path where the job passes a switch."""
    job = context.job
    text = b"" if job.script is None else context.project_files.text(job.script) or b""
    packages = {*launchers.load(job.launcher).imports(job), (job.module or "").partition(".")[0]}
    is_hf = not packages.isdisjoint(_HF_PROGRAMS)
    if not is_hf and b"HfArgumentParser" not in text and b"TrlParser" not in text:
        return []
    for args, place in _argument_sets(job):
        values = job_options.parse(args).get("resume_from_checkpoint", ())
        is_switch = any(value.lower() == "true" for value in values)
        if is_switch and not context.project_files.resumes_by_itself:
            what = "`resume_from_checkpoint` is a path in transformers' options, no switch"
            source = "transformers, training_args.py: resume_from_checkpoint"
            return [warn(what, f"{RESUME_EXAMPLE} ({place})", source)]
    return []


@check("settings-files", once=True)
def settings_files(context: CheckContext) -> Iterator[Answer] | None:
    """Whether every YAML loader reads the same values from the settings files of the arguments."""
    from safelaunch.lint.env.model import Facts
    from safelaunch.lint.finding import NOTE
    from safelaunch.lint.run import check as lint

    paths = [*job_paths.launcher_files(context.job), *job_paths.config_files(context.job)]
    facts = Facts(uses_pyyaml=bool(paths) and _uses_pyyaml(context))
    return (
        warn(f"{path}:{f.line}:{f.column}: {f.message}", f.fix or f"safelaunch lint {path}")
        for path in paths
        if (text := context.project_files.text(path)) is not None
        for f in [f for f in lint(path, text, facts).findings if f.severity != NOTE][:_SHOWN]
    )


def _uses_pyyaml(context: CheckContext) -> bool:
    """Whether the program reads YAML with PyYAML, and no import of it makes numbers of text."""
    if context.project_files.script is None:
        return False
    modules = {module.name for module in context.project_files.imports.third_party}
    return not modules.isdisjoint(_PYYAML_READERS) and modules.isdisjoint(_OTHER_READERS)


def _below(context: CheckContext, path: str) -> str:
    """Return a path or `file:line` below the project's folder, or below that of packages."""
    root = (context.project or "").rstrip("/\\")
    if root and path.startswith(f"{root}/"):
        return path[len(root) + 1 :]
    return _INSTALLED.split(path)[-1]
