"""Facts of interpreters and what is installed for them, as a probe would have fetched them."""

from __future__ import annotations

from typing import Any

PATH = "/envs/rl/bin/python"
# torch.cuda.get_arch_list() of wheels of PyPI and of the cu128 index (cuobjdump of the wheels)
CU126 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
CU128 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]
SYSTEM = {"os": "Linux", "machine": "x86_64", "libc": "glibc 2.35", "home": "/home/me"}


def python(
    packages: dict[str, str] | None = None,
    *,
    version: str = "3.10.14",
    path: str = PATH,
    kind: str = "venv",
    prefix: str | None = None,
) -> dict[str, Any]:
    """Return what an interpreter says of itself."""
    return {
        "executable": path,
        "real": path,
        "version": version,
        "implementation": "cpython",
        "prefix": path.rpartition("/bin/")[0] if prefix is None else prefix,
        "base_prefix": "/usr",
        "kind": kind,
        "packages": {"pip": "24.0", **(packages or {})},
    }


def torch(
    version: str = "2.8.0+cu128",
    cuda: str | None = "12.8",
    archs: list[str] | None = CU128,
    nccl: str | None = "2.27.3",
    built: str | None = "12.8",
    *,
    wheel: str | None = None,
    hip: str | None = None,
) -> dict[str, Any]:
    """Return what is read off a torch and its NCCL."""
    package = f"nvidia-nccl-cu12 {wheel}" if wheel else None
    nccl_facts = {"version": nccl, "cuda": built, "library": "/x/libnccl.so.2", "package": package}
    return {
        "path": "/envs/rl/lib/python3.10/site-packages/torch",
        "version": version,
        "cuda": cuda,
        "hip": hip,
        "archs": archs,
        "cudnn": None,
        "nccl": nccl_facts if nccl else None,
    }


def other(path: str, **packages: str) -> dict[str, Any]:
    """Return another environment of the machine."""
    prefix = path.rpartition("/bin/")[0]
    installed = {name.replace("_", "-"): version for name, version in packages.items()}
    return {"prefix": prefix, "kind": "conda", "python": path, "version": "3.10",
            "packages": installed}  # fmt: skip
