"""Checks of models and data: weights that are whole, ids of a hub that nobody can ask, assets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.checks import job_options, job_paths
from safelaunch.checks.answers import Answer, NotKnown, Question, fail, ok, warn
from safelaunch.checks.job_paths import how_to_provide
from safelaunch.checks.registry import check
from safelaunch.runtime.units import job_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from safelaunch.checks.context import HostContext

_SHOWN = 3
_CACHES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
_YES = ("1", "ON", "YES", "TRUE")  # huggingface_hub constants.py, ENV_VARS_TRUE_VALUES
_HUB = "huggingface_hub documentation, HF_HUB_OFFLINE"


# -- weights ---------------------------------------------------------------------------------------


def _weights(host: HostContext) -> Iterator[Question]:
    for path in job_paths.model_args(host.job):
        yield ("path", path)
        yield ("model", path)


@check("models", "project", asks=_weights)
def models(host: HostContext) -> Iterator[Answer]:
    """Whether models that lie on disk are whole: no pointers of Git LFS, no missing parts."""
    whole = []
    for path in job_paths.model_args(host.job):
        kind = job_paths.answer(host, "path", path)["kind"]
        if kind is None:
            if job_paths.is_path(path):
                yield warn(f"the model {path} is not there", how_to_provide(host, path))
            continue
        if kind != "folder":
            continue
        told = job_paths.answer(host, "model", path)
        wrong = _wrong(host, path, told)
        if wrong is None:
            whole.append(f"{path} ({told['weights']} files of weights)")
        else:
            yield wrong
    if whole:
        yield ok(", ".join(whole))


def _wrong(host: HostContext, path: str, told: Mapping[str, Any]) -> Answer | None:
    """Return what is wrong with a folder of weights."""
    pointers, missing = told["pointers"], told["missing"]
    at = job_paths.local_source(host, path) or job_paths.absolute(host, path)
    if pointers:
        names = ", ".join(pointers[:_SHOWN])
        return warn(
            f"{path}: {len(pointers)} files are pointers of Git LFS, not the weights: {names}",
            f"git -C {at} lfs pull" + ("" if host.is_local else _push(host)),
            "git-lfs specification: pointer files",
        )
    if missing:
        names = ", ".join(missing[:_SHOWN])
        return warn(f"{path}: its index names {len(missing)} files that are not there: {names}",
                    f"bring the rest; `hf download ID --local-dir {at}` goes on where it was cut"
                    + ("" if host.is_local else _push(host)))  # fmt: skip
    return None if told.get("other") is not None else _incomplete(host, path, told)


def _incomplete(host: HostContext, path: str, told: Mapping[str, Any]) -> Answer | None:
    """Return what a folder of transformers lacks beside its weights."""
    at = job_paths.local_source(host, path) or job_paths.absolute(host, path)
    if not told["config"] and told["weights"]:
        return warn(f"{path} has weights but no config.json",
                    f"copy config.json of the model into {at}")  # fmt: skip
    if not told["weights"]:
        what = "no weights in it" if told["config"] else "neither config.json nor weights in it"
        return warn(f"{path}: {what}", how_to_provide(host, path))
    if not told.get("tokenizer", True) and not job_paths.has_tokenizer(host.job):
        return warn(f"{path} has no tokenizer", f"copy tokenizer.json and tokenizer_config.json "
                    f"of the model into {at}")  # fmt: skip
    return None


def _push(host: HostContext) -> str:
    return f", then `safelaunch push` it to {host.name} again"


# -- the hub ---------------------------------------------------------------------------------------


def _ids(host: HostContext) -> list[tuple[str, str]]:
    """Return (kind, id) of what the arguments take from the hub of Hugging Face."""
    job = host.job
    switch = launchers.load(job.launcher).HUB_SWITCH
    if switch is not None and job_options.variable(host, switch) != "1":
        return []  # from another hub, with a cache of its own
    return job_paths.hub_ids(job)


def _settings(host: HostContext) -> list[str]:
    """Return the variables of the plan that say where the cache is."""
    named = [(name, host.plan.env.get(name)) for name in _CACHES]
    return [f"{name}={var.value}" for name, var in named
            if var is not None and isinstance(var.value, str)]  # fmt: skip


def _hub(host: HostContext) -> Iterator[Question]:
    for kind, name in _ids(host):
        yield ("path", name)
        yield ("hub", kind, name, *_settings(host))


def _offline(host: HostContext) -> str | None:
    """Return what forbids the job to ask the hub; None where nothing does."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        value = job_options.variable(host, name)
        if value and value.upper() in _YES:
            return f"{name}={value}"
    return None


@check("hub", "project", asks=_hub)
def hub(host: HostContext) -> Iterator[Answer]:
    """Whether models and data named by id are in the cache of a machine without the hub."""
    why = _offline(host)
    if why is None:
        return
    cached = []
    for kind, name in _ids(host):
        if job_paths.answer(host, "path", name)["kind"] is not None:
            continue  # a folder of that name
        told = host.answer("hub", kind, name, *_settings(host))
        if told["cached"]:
            cached.append(name)
            continue
        hint = f"`hub: online`, or the address of a mirror, in the entry of {host.name}; or "
        if host.is_local:
            names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
            hint = f"env: {{{', '.join(f'{one}: null' for one in names)}}}; or "
        what = "model" if kind == "models" else "data set"
        yield warn(
            f"{why}, and the {what} {name} is not in the cache ({told['folder']})",
            hint + _without_hub(host, kind, name),
            _HUB,
        )
    if cached:
        yield ok(f"{why}; {', '.join(cached)} is in the cache")


def _without_hub(host: HostContext, kind: str, name: str) -> str:
    folder = name.rpartition("/")[2]
    switch = " --repo-type dataset" if kind == "datasets" else ""
    fetch = f"`hf download {name}{switch} --local-dir {folder}` where there is a network"
    if host.is_local:
        return f"{fetch}, and that folder in `args`"
    return (
        f"{fetch}, `safelaunch push {folder} --host {host.name}`, and the path it prints in `args`"
    )


# -- assets ----------------------------------------------------------------------------------------


def _assets(host: HostContext) -> Iterable[Question]:
    if host.is_local:
        return [("path", asset.path) for asset in host.plan.assets]
    if host.context.is_quick:
        return []
    found: list[Question] = []
    for asset in host.plan.assets:
        found += [("room", asset.place), ("size", asset.place)]
    return found


@check("assets", "project", asks=_assets)
def assets(host: HostContext) -> Iterator[Answer]:
    """Whether the assets of a job are on this machine, and there is room for them on the host."""
    there = []
    for asset in host.plan.assets:
        if host.is_local:
            is_there = host.answer("path", asset.path)["kind"] is not None
        else:
            is_there = os.path.lexists(asset.path)
        if not is_there:
            yield fail(f"the asset `{asset.name}` ({asset.origin}) is not there: {asset.path}",
                       f"correct its path at {asset.origin}")  # fmt: skip
        else:
            there.append(asset)
    if not host.is_local and not host.context.is_quick:
        yield from _no_room(host)
    if there:
        yield ok(f"{', '.join(asset.name for asset in there)} {'is' if len(there) == 1 else 'are'} "
                 "there")  # fmt: skip


def _no_room(host: HostContext) -> Iterator[Answer]:
    """Yield the file systems of a host that the assets do not fit on."""
    from safelaunch.runtime.facts import questions  # noqa: PLC0415 - for hosts only

    wanted: dict[Any, list[Any]] = {}
    for asset in {one.place: one for one in host.plan.assets}.values():
        try:
            room = host.answer("room", asset.place)
            held = host.answer("size", asset.place)
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
