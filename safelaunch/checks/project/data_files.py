"""Checks the data that a job's arguments name, and the paths that its variables name."""

# ruff: noqa: PLC0415 - answers of the probe: only for jobs that name data on this machine

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from safelaunch.checks import job_options, job_paths
from safelaunch.checks.answers import Answer, Question, ok, warn
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.context import HostContext

_SHOWN = 5
# files that a library opens at its first use, and what it does without one
_FILES = {
    "REQUESTS_CA_BUNDLE": "requests refuses each https address",
    "CURL_CA_BUNDLE": "requests refuses each https address",
    "SSL_CERT_FILE": "httpx and Python verify no certificate",
    "GOOGLE_APPLICATION_CREDENTIALS": "Google's clients refuse to log in",
}
# folders that a library creates; an existing one may be read-only on purpose
_CACHES = (
    "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "VLLM_CACHE_ROOT",
)  # fmt: skip
_DOCUMENTED = (
    "documentation of requests (SSL Cert Verification), huggingface_hub, Triton and PyTorch, "
    "Environment variables"
)


def _beside_script(host: HostContext, path: str) -> str | None:
    """Return a relative path from the folder of the script on, where some programs look for it."""
    folder = posixpath.dirname(host.job.script or "")
    return posixpath.join(folder, path) if folder and not path.startswith(("/", "~")) else None


def _data_questions(host: HostContext) -> Iterator[Question]:
    for path in job_paths.data_files(host.job):
        yield ("path", path)
        other = _beside_script(host, path)
        if other is not None:
            yield ("path", other)


@check("data-files", asks=_data_questions)
def data_files(host: HostContext) -> Iterator[Answer]:
    """Whether the data that the arguments name exists, and is no pointer of Git LFS."""
    existing = []
    for path in job_paths.data_files(host.job):
        others = filter(None, (path, _beside_script(host, path)))
        if all(job_paths.answer(host, "path", name)["kind"] is None for name in others):
            if not host.plan.setup:  # which may fetch it
                what = f"`args` name the data {path}, which does not exist"
                yield warn(what, job_paths.how_to_provide(host, path))
        elif not _is_pointer(host, path):
            existing.append(path)
    for path in (*job_paths.data_files(host.job), *(entry.path for entry in host.job.inputs)):
        if _is_pointer(host, path):
            yield warn(
                f"{path} is a pointer of Git LFS, not the data",
                f"`git lfs pull --include {path}` in the project",
                "git-lfs specification: pointer files",
            )
    if existing:
        yield ok(", ".join(existing[:_SHOWN]))


def _is_pointer(host: HostContext, path: str) -> bool:
    """Whether a file of this machine is a pointer of Git LFS; False where only the host has it."""
    from safelaunch.runtime.facts import answers

    file = host.context.local_path(path, host.rank)
    return file is not None and not job_paths.is_glob(path) and answers.is_pointer(file)


def _paths(host: HostContext, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (variable, path) of these variables; not those whose path only the start knows."""
    for name in names:
        value = job_options.variable(host, name)
        if value and value.startswith(("/", "~/")) and "$" not in value:
            yield name, value


def _variable_questions(host: HostContext) -> Iterator[Question]:
    yield from (("path", path) for _, path in _paths(host, tuple(_FILES)))
    yield from (("room", path) for _, path in _paths(host, _CACHES))


@check("variable-paths", asks=_variable_questions, source=_DOCUMENTED)
def variable_paths(host: HostContext) -> Iterator[Answer]:
    """Whether files that variables name exist, and folders of caches can be created."""
    for name, path in _paths(host, tuple(_FILES)):
        if host.answer("path", path)["kind"] is None:
            what = f"{name}={path} does not exist: {_FILES[name]}"
            yield warn(what, f"correct it, or `env: {{{name}: null}}`")
    for name, path in _paths(host, _CACHES):
        room = host.answer("room", path)
        is_there = room["folder"] == job_paths.host_path(host, path)
        if not room["writable"] and not is_there:
            why = room.get("why") or "cannot be written"
            why = "is a file" if room.get("is_file") else why
            what = f"{name}={path} cannot be created: {room['folder']} {why}"
            yield warn(what, f"name a folder of your own: `env: {{{name}: ...}}`")
