"""Checks: what compiles CUDA code while a job starts, as DeepSpeed's operators are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.checks import cards, cuda, said, uses, wheels
from safelaunch.checks.check import Answer, Question, check, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.case import Site

_TOOLKITS = "/usr/local/cuda-*/bin/nvcc"
_SOURCE = "https://github.com/deepspeedai/DeepSpeed/pull/3436; docs/_tutorials/advanced-install.md"


def _compiles(site: Site) -> bool:
    """Whether DeepSpeed is asked for: it compiles its operators at their first use."""
    if not uses.runs_python(site) or not cards.wants(site):
        return False
    given = uses.options(site.case.job)
    return "use_deepspeed" in given or uses.is_asked(given, "deepspeed")


def _asks(site: Site) -> Iterator[Question]:
    if _compiles(site):
        yield ("glob", _TOOLKITS)


@check("cuda-compiler", "environment", asks=_asks, source=_SOURCE)
def cuda_compiler(site: Site) -> Answer | None:
    """Whether nvcc is of the same major CUDA as torch: DeepSpeed refuses another one."""
    if not _compiles(site):
        return None
    torch = site.fact("torch")
    wanted = str(torch.get("cuda") or "")
    if not wanted:
        return None
    given = said.variable(site, "CUDA_HOME")
    found = None if given else (site.fact("tools").get("nvcc") or {})
    home = site.known("tools", "cuda_home") or {}
    version = home.get("version") if given is None or given == home.get("path") else None
    version = version or (found or {}).get("version")
    if given is not None and version is None:
        return None  # the job says where it is
    same = cuda.number(version)[:1] == cuda.number(wanted)[:1]
    if version is not None and same:
        return ok(f"nvcc {version}, torch is built with CUDA {wanted}")
    what = "no nvcc is found there" if version is None else f"nvcc is of CUDA {version}"
    return warn(
        f"{what}, torch is built with CUDA {wanted}: DeepSpeed cannot compile its operators",
        _other_toolkit(site, wanted),
    )


def _other_toolkit(site: Site, wanted: str) -> str:
    """Return how to give the job a compiler of the right CUDA: one that is there, else conda's."""
    major = cuda.number(wanted)[0]
    for path in site.told("glob", _TOOLKITS)["found"]:
        folder = str(path).rpartition("/bin/")[0]
        if cuda.number(folder.rpartition("cuda-")[2])[:1] == (major,):
            return f"`env: {{CUDA_HOME: {folder}}}`"
    where = "" if site.case.is_here else f" on {site.name}"
    if site.known("python", "kind") == "conda":
        prefix = site.known("python", "prefix")
        return (
            f"`conda install -p {prefix} -c nvidia cuda-nvcc={wanted}`{where}, "
            f"and `env: {{CUDA_HOME: {prefix}}}`"
        )
    return f"install the CUDA {wanted} toolkit{where}, and `env: {{CUDA_HOME: its folder}}`"


@check("ninja", "environment", source="deepspeed: op_builder/builder.py, jit_load")
def ninja(site: Site) -> Answer | None:
    """Whether ninja is there: DeepSpeed compiles with no other."""
    if not _compiles(site):
        return None
    # pip's ninja is in the interpreter's bin folder, which the plan puts first on PATH
    if "ninja" in site.fact("python", "packages") or site.known("tools", "ninja"):
        return ok("ninja is there")
    return warn("no ninja: DeepSpeed cannot compile its operators", wheels.install(site, ["ninja"]))
