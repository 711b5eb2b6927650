"""Which words of a job are paths, what they are for, and a look at them where they lie.

A path in the project, or in an asset, travels to the host: it is there if it is here. Results and
checkpoints lie on the host alone, so that one is asked as well.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING, Any

from safelaunch.analysis import option_roles
from safelaunch.checks import job_options
from safelaunch.checks.answers import NotKnown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.checks.context import Site
    from safelaunch.model import Args, Job

_SHARED = ("fileroot", "log_dir", "logging_dir", "tensorboard_dir")  # runs may have them in common
_FILE = re.compile(r"\.(jsonl?|csv|tsv|txt|parquet|log|md|html)$")
_OPEN = re.compile(r"[$<>{}\n]|^\s*$")  # nothing can be said of these before the start
_MAGIC = re.compile(r"[*?\[]")


def outputs(site: Site) -> list[str]:
    """Return the folders that the job says it writes to, in its arguments or its environment."""
    env = {name: var.value for name, var in site.plan.env.items() if isinstance(var.value, str)}
    found = [one for args in job_options.all_words(site.case.job)
             for one in option_roles.output_folders(args, env)]  # fmt: skip
    return _paths(_folder(one.value) for one in found)


def saved(args: Iterable[Args]) -> list[str]:
    """Return the folders of results that no two runs should have in common."""
    found = [one for given in args for one in option_roles.output_folders(given, {})]
    return _paths(_folder(o.value) for o in found if not o.option.endswith(_SHARED))


def _folder(path: str) -> str:
    """Return the folder of a file of results: `res/final.json`."""
    return posixpath.dirname(path) or "." if _FILE.search(path) else path


def weights(job: Job) -> list[str]:
    """Return the models that the job's arguments name: paths, and ids of a hub; no tokenizers."""
    return _paths(one.value for one in _models(job) if not _is_tokenizer(one))


def has_tokenizer(job: Job) -> bool:
    """Whether the arguments name a tokenizer apart from the model."""
    return any(_is_tokenizer(one) for one in _models(job))


def _models(job: Job) -> list[option_roles.NamedArgument]:
    return [one for args in job_options.all_words(job) for one in option_roles.model_paths(args)]


def _is_tokenizer(one: option_roles.NamedArgument) -> bool:
    return one.option.startswith("tokenizer")


def ids(job: Job) -> list[tuple[str, str]]:
    """Return (kind, id) of what the arguments take from the hub, unless a folder has that name."""
    found = [("models", one.value) for one in _models(job)]
    found += [("datasets", one.value) for args in job_options.all_words(job)
              for one in option_roles.dataset_paths(args)]  # fmt: skip
    return [one for one in dict.fromkeys(found) if option_roles.looks_like_hub_id(one[1])]


def resumes(job: Job) -> list[str]:
    """Return the checkpoints that the job's arguments name to go on from."""
    found = (
        one.value for args in job_options.all_words(job) for one in option_roles.resume_paths(args)
    )
    return _paths(value for value in found if value.lower() not in ("latest", "last", "best"))


def configs(job: Job) -> list[str]:
    """Return the configuration files that the job's arguments name."""
    return _paths(
        o.value for args in job_options.all_words(job) for o in option_roles.config_files(args)
    )


def _paths(values: Iterable[str]) -> list[str]:
    """Return values that may be paths, each once, without quotes that a framework takes off."""
    bare = (value.strip("'\"") for value in values)
    return list(dict.fromkeys(one for one in bare if not _OPEN.search(one) and "://" not in one))


def is_path(text: str) -> bool:
    """Whether the name of a model can only be a path."""
    return text.startswith("~") or ("/" in text and not option_roles.looks_like_hub_id(text))


def is_glob(text: str) -> bool:
    """Whether a path has the signs of a glob."""
    return _MAGIC.search(text) is not None


# -- where they lie --------------------------------------------------------------------------------


def full(site: Site, path: str) -> str:
    """Return a path of the job from the root on, or from `~/`, the home folder of a host."""
    if path.startswith("~/"):
        return path
    return posixpath.normpath(posixpath.join(site.cwd, path))


def on_machine(site: Site, path: str) -> str:
    """Return a path of the job as its machine has it, as far as its home folder is known."""
    return _expanded(full(site, path), str(site.known("system", "home") or "~"))


def _expanded(path: str, home: str) -> str:
    return home + path[1:] if path.startswith("~/") else path


def travelling(site: Site, path: str) -> str | None:
    """Return where on this machine lies what a host will have at a path; None for its own."""
    roots = _roots(site, path)
    if roots is None:
        return None
    here, there = roots
    return os.path.normpath(here + full(site, path)[len(there) :])


def _roots(site: Site, path: str) -> tuple[str, str] | None:
    """Return the folder here that holds a path of a host, and where that lies there."""
    of, at = site.case, full(site, path)
    if of.is_here or of.project is None:
        return None
    pairs = [(asset.path, str(asset.place)) for asset in site.plan.assets]
    for here, there in (*pairs, (of.project, of.shown[site.rank])):
        if at == there or at.startswith(there.rstrip("/") + "/"):
            return here, there.rstrip("/")
    return None


def exists(path: str) -> bool:
    """Whether something is at a path of this machine."""
    return os.path.lexists(path)


def look(site: Site, kind: str, path: str) -> Any:
    """Return the answer to a question about a path: from here if it travels, else the host's.

    Raises NotKnown.
    """
    at = travelling(site, path)
    if at is not None:
        from safelaunch.runtime.facts import commands, questions  # noqa: PLC0415

        try:
            found = questions.answer("/", kind, [at])
        except commands.Skip:
            found = None
        if found is not None and found.get("kind", "") is not None:
            return found
    elif not path.startswith(("/", "~")):
        check_workdir(site)
    return site.told(kind, path)


def check_workdir(site: Site) -> None:
    """Raise NotKnown where the folder that paths begin at is known to be missing: that is told."""
    told = site.answers.get(("path", "."), {}).get("value")
    if told is not None and told["kind"] is None:
        raise NotKnown(f"{full(site, '.')} does not exist, where the path begins")


def matches(site: Site, pattern: str) -> tuple[int, list[str]]:
    """Return how many paths fit a glob, and the first of them: there, or to be brought there."""
    told = site.told("glob", pattern)
    roots, at = _roots(site, pattern), travelling(site, pattern)
    if roots is None or at is None:
        return told["count"], [_below(path, site.cwd) for path in told["found"]]
    from safelaunch.runtime.facts import commands, questions  # noqa: PLC0415

    try:
        here = questions.answer("/", "glob", [at])
    except commands.Skip as e:
        raise NotKnown(str(e)) from e
    home = site.known("system", "home") or ""
    there = _expanded(roots[1], home)
    names = {_below(path, roots[0]) for path in here["found"]}
    both = sorted(names | {_below(path, there) for path in told["found"]})
    return max(len(both), told["count"], here["count"]), both


def near(site: Site, path: str) -> str | None:
    """Return the path of this machine that is most like one that is not there."""
    at = full(site, path) if site.case.is_here else travelling(site, path)
    folder, name = posixpath.split(path)
    try:
        names = os.listdir(os.path.dirname(at)) if at is not None else []
    except OSError:
        return None
    import difflib  # noqa: PLC0415 - where something is missing

    stem = posixpath.splitext(name)[0]
    for found in difflib.get_close_matches(name, names, n=5, cutoff=0.6):
        # a common ending such as `.jsonl` makes no name alike
        if difflib.SequenceMatcher(None, stem, posixpath.splitext(found)[0]).ratio() >= 0.6:  # noqa: PLR2004 - as above
            return posixpath.join(folder, found)
    return None


def from_project(site: Site, path: str) -> str | None:
    """Return how the job names a path that lies where its file or its project begins.

    None where it does not lie there, or paths begin there.
    """
    of, base = site.case, site.case.here(".", site.rank)
    if base is None or of.project is None or path.startswith(("/", "~")):
        return None
    import glob  # noqa: PLC0415 - where something is missing

    file = of.resolved.job_file if of.resolved is not None else ""
    for folder in ([os.path.dirname(os.path.abspath(file))] if file else []) + [of.project]:
        at = os.path.join(folder, path)
        if os.path.lexists(at) or (is_glob(path) and any(glob.iglob(at))):
            return os.path.relpath(at, base).replace(os.sep, "/")
    return None


def _below(path: str, root: str) -> str:
    """Return what is below a folder; a host's home folder may stand before it."""
    before, found, after = path.partition(root.rstrip("/") + "/")
    del before
    return after if found and root else path


def bring(site: Site, path: str) -> str:
    """Return how a path gets to where the job runs."""
    other = from_project(site, path)
    if other is not None:
        return f"write `{other}`: paths begin at `workdir:`"
    closest = None if is_glob(path) else near(site, path)
    if closest is not None and all(closest != one.path for one in site.case.job.inputs):
        return f"did you mean `{closest}`? else {_put(site, path)}"
    return _put(site, path)


def _put(site: Site, path: str) -> str:
    if is_glob(path) and site.case.is_here:
        return f"put a file there that fits {full(site, path)}, or correct the path"
    if site.case.is_here:
        return f"put it at {full(site, path)}, or correct the path"
    if travelling(site, path) is not None:
        return f"put it into the project at {path}, or correct the path"
    folder = posixpath.dirname(full(site, path))
    name = posixpath.basename(path)
    return f"safelaunch push {name} --host {site.name} --to {folder}, or correct the path"
