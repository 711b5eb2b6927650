"""Checks models and data: complete weights, ids that need the Hugging Face Hub, assets."""

# ruff: noqa: PLC0415 - questions: for hosts only

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.checks import job_options, job_paths
from safelaunch.checks.answers import Answer, NotKnown, Question, fail, ok, warn
from safelaunch.checks.job_paths import how_to_provide
from safelaunch.checks.project_libraries import library_paths
from safelaunch.checks.registry import check
from safelaunch.runtime.units import job_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from safelaunch.checks.context import HostContext

_SHOWN = 3
_PARTS = ("weights", "config", "pointers", "missing", "flaws", "other")  # of a model in a folder
_CACHES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
_YES = ("1", "ON", "YES", "TRUE")  # huggingface_hub constants.py, ENV_VARS_TRUE_VALUES
_HUB = "huggingface_hub documentation, HF_HUB_OFFLINE"


def _model_questions(host: HostContext) -> Iterator[Question]:
    for path in job_paths.model_args(host.job):
        yield ("path", path)
        yield ("model", path)


@check("models", asks=_model_questions)
def models(host: HostContext) -> Iterator[Answer]:
    """Whether models on disk are complete: no pointers of Git LFS, no missing parts."""
    complete, kinds = [], job_paths.model_kinds(host.job)
    for path in job_paths.model_args(host.job):
        kind = job_paths.answer(host, "path", path)["kind"]
        if kind is None and job_paths.is_path(path):
            yield warn(f"the model {path} does not exist", how_to_provide(host, path))
        if kind != "folder":
            continue
        model = job_paths.answer(host, "model", path)
        has_parts = any(model.get(key) for key in _PARTS)
        if path in kinds and not has_parts:  # `--model llava` beside the package `llava`
            continue
        problem = _model_problem(host, path, model)
        if problem is None:
            complete.append(f"{path} ({model['weights']} files of weights)")
        else:
            yield warn(*problem)
    if complete:
        yield ok(", ".join(complete))


def _model_problem(
    host: HostContext, path: str, model: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """Return evidence, hint and source of what is wrong with a folder of weights."""
    pointers, missing, weights = model["pointers"], model["missing"], model["weights"]
    folder = job_paths.local_source(host, path) or job_paths.absolute(host, path)
    push = "" if host.is_local else f", then `safelaunch push` it to {host.name} again"
    if pointers:
        names = ", ".join(pointers[:_SHOWN])
        what = f"{path}: {len(pointers)} files are pointers of Git LFS, not the weights: {names}"
        return what, f"git -C {folder} lfs pull{push}", "git-lfs specification: pointer files"
    if missing:
        names = ", ".join(missing[:_SHOWN])
        what = f"{path}: its index names {len(missing)} files that do not exist: {names}"
        return what, f"`hf download ID --local-dir {folder}` downloads the missing files{push}"
    flaws = model.get("flaws") or ()
    if flaws:
        listed = ", ".join(f"{name} {why}" for name, why in flaws[:_SHOWN])
        hint = f"`hf download ID --local-dir {folder}` downloads them again{push}"
        return f"{path}: {listed}", hint
    what = hint = ""
    if model.get("other") is not None:
        return None
    # what transformers need beside the weights
    if not weights:
        what = "no weights in it" if model["config"] else "neither config.json nor weights in it"
        what, hint = f"{path}: {what}", f"put the model into {folder}, or correct the path"
    elif not model["config"]:
        what, hint = f"{path} has weights but no config.json", "copy config.json"
    elif not model.get("tokenizer", True) and not job_paths.has_tokenizer(host.job):
        what, hint = f"{path} has no tokenizer", "copy tokenizer.json and tokenizer_config.json"
    if hint.startswith("copy "):
        hint += f" of the model to {folder}"
    return (what, hint) if what else None


def _hub_ids(host: HostContext) -> list[tuple[str, str]]:
    """Return (kind, id) of what the arguments take from the Hugging Face Hub."""
    switch = launchers.load(host.job.launcher).HUB_SWITCH
    if switch is not None and job_options.variable(host, switch) != "1":
        return []  # from another hub, with a cache of its own
    return job_paths.hub_ids(host.job)


def _cache_settings(host: HostContext) -> list[str]:
    """Return the variables of the plan that set the folder of the cache."""
    env = host.plan.env
    return [f"{n}={env[n].value}" for n in _CACHES if n in env and isinstance(env[n].value, str)]


def _hub_questions(host: HostContext) -> Iterator[Question]:
    for kind, name in _hub_ids(host):
        yield ("path", name)
        yield ("hub", kind, name, *_cache_settings(host))


@check("hub", asks=_hub_questions)
def hub(host: HostContext) -> Iterator[Answer]:
    """Whether models and data with a hub id are in the cache of a machine that is offline."""
    values = [(name, job_options.variable(host, name)) for name in _OFFLINE]
    why = next((f"{n}={v}" for n, v in values if v and v.upper() in _YES), None)
    if why is None:
        return
    cached = []
    for kind, name in _hub_ids(host):
        if job_paths.answer(host, "path", name)["kind"] is not None:
            continue  # a folder of that name
        entry = host.answer("hub", kind, name, *_cache_settings(host))
        if entry["cached"]:
            cached.append(name)
            continue
        if name in _chosen_values(host):
            continue
        online = f"`hub: online`, or the address of a mirror, in the entry of {host.name}"
        if host.is_local:
            online = f"env: {{{', '.join(f'{variable}: null' for variable in _OFFLINE)}}}"
        what = "model" if kind == "models" else "data set"
        yield warn(
            f"{why}, and the {what} {name} is not in the cache ({entry['folder']})",
            f"{online}; or {_download(host, kind, name)}",
            _HUB,
        )
    if cached:
        yield ok(f"{why}; {', '.join(cached)} is in the cache")


def _chosen_values(host: HostContext) -> set[str]:
    """Return the values of options that take one of a fixed set: names of architectures, no ids."""
    try:
        accepted = host.context.project_files.options(lambda: library_paths(host.context))
    except NotKnown:
        return set()
    options = [] if accepted is None else accepted.options
    fixed = [name for o in options if o.choices or o.has_choices for name in o.names]
    values = job_options.options(host.job)
    return {value for name in fixed for value in values.get(name.lstrip("-").replace("-", "_"), ())}


def _download(host: HostContext, kind: str, name: str) -> str:
    folder = name.rpartition("/")[2]
    switch = " --repo-type dataset" if kind == "datasets" else ""
    fetch = f"`hf download {name}{switch} --local-dir {folder}` where there is a network"
    if host.is_local:
        return f"{fetch}, and that folder in `args`"
    push = f"`safelaunch push {folder} --host {host.name}`"
    return f"{fetch}, {push}, and the path it prints in `args`"


def _asset_questions(host: HostContext) -> Iterable[Question]:
    if host.is_local:
        return [("path", asset.path) for asset in host.plan.assets]
    if host.context.is_quick:
        return []
    return [(kind, asset.place) for asset in host.plan.assets for kind in ("room", "size")]


@check("assets", asks=_asset_questions)
def assets(host: HostContext) -> Iterator[Answer]:
    """Whether the assets of a job are on this machine, and the host has space for them."""
    existing = []
    for asset in host.plan.assets:
        if host.is_local:
            exists = host.answer("path", asset.path)["kind"] is not None
        else:
            exists = os.path.lexists(asset.path)
        if exists:
            existing.append(asset.name)
        else:
            what = f"the asset `{asset.name}` ({asset.origin}) does not exist: {asset.path}"
            yield fail(what, f"correct its path at {asset.origin}")
    if not host.is_local and not host.context.is_quick:
        yield from _full_disks(host)
    if existing:
        yield ok(f"{', '.join(existing)} {'exists' if len(existing) == 1 else 'exist'}")


def _full_disks(host: HostContext) -> Iterator[Answer]:
    """Yield the file systems of a host that have too little space for the assets."""
    from safelaunch.runtime.facts import questions

    disks: dict[Any, list[Any]] = {}
    for asset in {asset.place: asset for asset in host.plan.assets}.values():
        try:
            room, existing = host.answer("room", asset.place), host.answer("size", asset.place)
        except NotKnown:
            continue
        if room.get("free") is not None:
            size = questions.answer("/", "size", [asset.path])
            missing = max(0, size["bytes"] - existing["bytes"])
            disks.setdefault(room["device"], [room, 0])[1] += missing
    for room, missing in disks.values():
        if missing > room["free"]:
            yield warn(
                f"the assets need {job_size(missing)} more in {room['folder']}, and "
                f"{job_size(room['free'])} are free",
                "free some there, or put an asset on another disk: `to: /data/NAME`",
            )
