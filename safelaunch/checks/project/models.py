"""Checks of models and data: weights that are whole, ids of a hub that nobody can ask, assets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.checks import job_options, job_paths
from safelaunch.checks.answers import Answer, NotKnown, Question, fail, ok, warn
from safelaunch.checks.job_paths import bring
from safelaunch.checks.registry import check
from safelaunch.runtime.units import job_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from safelaunch.checks.context import Site

_SHOWN = 3
_CACHES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
_YES = ("1", "ON", "YES", "TRUE")  # huggingface_hub constants.py, ENV_VARS_TRUE_VALUES
_HUB = "huggingface_hub documentation, HF_HUB_OFFLINE"


# -- weights ---------------------------------------------------------------------------------------


def _weights(site: Site) -> Iterator[Question]:
    for path in job_paths.weights(site.case.job):
        yield ("path", path)
        yield ("model", path)


@check("models", "project", asks=_weights)
def models(site: Site) -> Iterator[Answer]:
    """Whether models that lie on disk are whole: no pointers of Git LFS, no missing parts."""
    whole = []
    for path in job_paths.weights(site.case.job):
        kind = job_paths.look(site, "path", path)["kind"]
        if kind is None:
            if job_paths.is_path(path):
                yield warn(f"the model {path} is not there", bring(site, path))
            continue
        if kind != "folder":
            continue
        told = job_paths.look(site, "model", path)
        wrong = _wrong(site, path, told)
        if wrong is None:
            whole.append(f"{path} ({told['weights']} files of weights)")
        else:
            yield wrong
    if whole:
        yield ok(", ".join(whole))


def _wrong(site: Site, path: str, told: Mapping[str, Any]) -> Answer | None:
    """Return what is wrong with a folder of weights."""
    pointers, missing = told["pointers"], told["missing"]
    at = job_paths.travelling(site, path) or job_paths.full(site, path)
    if pointers:
        names = ", ".join(pointers[:_SHOWN])
        return warn(
            f"{path}: {len(pointers)} files are pointers of Git LFS, not the weights: {names}",
            f"git -C {at} lfs pull" + ("" if site.case.is_here else _push(site)),
            "git-lfs specification: pointer files",
        )
    if missing:
        names = ", ".join(missing[:_SHOWN])
        return warn(f"{path}: its index names {len(missing)} files that are not there: {names}",
                    f"bring the rest; `hf download ID --local-dir {at}` goes on where it was cut"
                    + ("" if site.case.is_here else _push(site)))  # fmt: skip
    return None if told.get("other") is not None else _incomplete(site, path, told)


def _incomplete(site: Site, path: str, told: Mapping[str, Any]) -> Answer | None:
    """Return what a folder of transformers lacks beside its weights."""
    at = job_paths.travelling(site, path) or job_paths.full(site, path)
    if not told["config"] and told["weights"]:
        return warn(f"{path} has weights but no config.json",
                    f"copy config.json of the model into {at}")  # fmt: skip
    if not told["weights"]:
        what = "no weights in it" if told["config"] else "neither config.json nor weights in it"
        return warn(f"{path}: {what}", bring(site, path))
    if not told.get("tokenizer", True) and not job_paths.has_tokenizer(site.case.job):
        return warn(f"{path} has no tokenizer", f"copy tokenizer.json and tokenizer_config.json "
                    f"of the model into {at}")  # fmt: skip
    return None


def _push(site: Site) -> str:
    return f", then `safelaunch push` it to {site.name} again"


# -- the hub ---------------------------------------------------------------------------------------


def _ids(site: Site) -> list[tuple[str, str]]:
    """Return (kind, id) of what the arguments take from the hub of Hugging Face."""
    job = site.case.job
    switch = launchers.load(job.launcher).HUB_SWITCH
    if switch is not None and job_options.variable(site, switch) != "1":
        return []  # from another hub, with a cache of its own
    return job_paths.ids(job)


def _settings(site: Site) -> list[str]:
    """Return the variables of the plan that say where the cache is."""
    named = [(name, site.plan.env.get(name)) for name in _CACHES]
    return [f"{name}={var.value}" for name, var in named
            if var is not None and isinstance(var.value, str)]  # fmt: skip


def _hub(site: Site) -> Iterator[Question]:
    for kind, name in _ids(site):
        yield ("path", name)
        yield ("hub", kind, name, *_settings(site))


def _offline(site: Site) -> str | None:
    """Return what forbids the job to ask the hub; None where nothing does."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        value = job_options.variable(site, name)
        if value and value.upper() in _YES:
            return f"{name}={value}"
    return None


@check("hub", "project", asks=_hub)
def hub(site: Site) -> Iterator[Answer]:
    """Whether models and data named by id are in the cache of a machine without the hub."""
    why = _offline(site)
    if why is None:
        return
    cached = []
    for kind, name in _ids(site):
        if job_paths.look(site, "path", name)["kind"] is not None:
            continue  # a folder of that name
        told = site.told("hub", kind, name, *_settings(site))
        if told["cached"]:
            cached.append(name)
            continue
        hint = f"`hub: online`, or the address of a mirror, in the entry of {site.name}; or "
        if site.case.is_here:
            names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
            hint = f"env: {{{', '.join(f'{one}: null' for one in names)}}}; or "
        what = "model" if kind == "models" else "data set"
        yield warn(
            f"{why}, and the {what} {name} is not in the cache ({told['folder']})",
            hint + _without_hub(site, kind, name),
            _HUB,
        )
    if cached:
        yield ok(f"{why}; {', '.join(cached)} is in the cache")


def _without_hub(site: Site, kind: str, name: str) -> str:
    folder = name.rpartition("/")[2]
    switch = " --repo-type dataset" if kind == "datasets" else ""
    fetch = f"`hf download {name}{switch} --local-dir {folder}` where there is a network"
    if site.case.is_here:
        return f"{fetch}, and that folder in `args`"
    return (
        f"{fetch}, `safelaunch push {folder} --host {site.name}`, and the path it prints in `args`"
    )


# -- assets ----------------------------------------------------------------------------------------


def _assets(site: Site) -> Iterable[Question]:
    if site.case.is_here:
        return [("path", asset.path) for asset in site.plan.assets]
    if site.case.is_quick:
        return []
    found: list[Question] = []
    for asset in site.plan.assets:
        found += [("room", asset.place), ("size", asset.place)]
    return found


@check("assets", "project", asks=_assets)
def assets(site: Site) -> Iterator[Answer]:
    """Whether the assets of a job are on this machine, and there is room for them on the host."""
    there = []
    for asset in site.plan.assets:
        if site.case.is_here:
            is_there = site.told("path", asset.path)["kind"] is not None
        else:
            is_there = job_paths.exists(asset.path)
        if not is_there:
            yield fail(f"the asset `{asset.name}` ({asset.origin}) is not there: {asset.path}",
                       f"correct its path at {asset.origin}")  # fmt: skip
        else:
            there.append(asset)
    if not site.case.is_here and not site.case.is_quick:
        yield from _no_room(site)
    if there:
        yield ok(f"{', '.join(asset.name for asset in there)} {'is' if len(there) == 1 else 'are'} "
                 "there")  # fmt: skip


def _no_room(site: Site) -> Iterator[Answer]:
    """Yield the file systems of a host that the assets do not fit on."""
    from safelaunch.runtime.facts import questions  # noqa: PLC0415 - for hosts only

    wanted: dict[Any, list[Any]] = {}
    for asset in {one.place: one for one in site.plan.assets}.values():
        try:
            room = site.told("room", asset.place)
            held = site.told("size", asset.place)
        except NotKnown:
            continue
        if "free" in room:
            ours = questions.answer("/", "size", [asset.path])
            more = max(0, ours["bytes"] - held["bytes"])
            wanted.setdefault(room["device"], [room, 0])[1] += more
    for room, more in wanted.values():
        if more > room["free"]:
            yield warn(
                f"the assets need {job_size(more)} more in {room['folder']}, and "
                f"{job_size(room['free'])} are free",
                "free some there, or give an asset a place on another disk: `to: /data/NAME`",
            )
