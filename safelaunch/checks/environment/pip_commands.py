"""The pip commands that install what is missing, for an interpreter and its machine's GPUs.

Which torch has code for which GPU was read off the wheels (`cuobjdump`, pytorch issue 172352 and
PR 175253); the indexes of its builds are on https://pytorch.org/get-started.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from safelaunch.checks.environment import cuda_compat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.checks.context import HostContext

INDEX = "https://download.pytorch.org/whl/"
SOURCE = "https://pytorch.org/get-started; pytorch issue 172352, PR 175253"
# module -> what to install, where PyPI has another name for it or another package under it
PROJECTS = {
    "Bio": "biopython", "Crypto": "pycryptodome", "IPython": "ipython",
    "Levenshtein": "python-Levenshtein", "OpenSSL": "pyopenssl", "PIL": "pillow", "absl": "absl-py",
    "antlr4": "antlr4-python3-runtime", "attr": "attrs", "bs4": "beautifulsoup4",
    "cleanfid": "clean-fid", "comet_ml": "comet-ml", "cpuinfo": "py-cpuinfo",
    "cv2": "opencv-python", "dateutil": "python-dateutil", "docx": "python-docx",
    "dotenv": "python-dotenv", "faiss": "faiss-cpu", "fastchat": "fschat",
    "ffmpeg": "ffmpeg-python", "fitz": "pymupdf", "flash_attn": "flash-attn", "git": "gitpython",
    "google": "protobuf", "grpc": "grpcio", "hydra": "hydra-core", "jwt": "pyjwt",
    "liger_kernel": "liger-kernel", "mmseg": "mmsegmentation", "nuscenes": "nuscenes-devkit",
    "open_clip": "open-clip-torch", "optimi": "torch-optimi", "pynvml": "nvidia-ml-py",
    "pytorch_lightning": "pytorch-lightning", "pywt": "PyWavelets", "realhf": "areal",
    "rouge_score": "rouge-score", "sat": "SwissArmyTransformer",
    "sentence_transformers": "sentence-transformers", "serial": "pyserial",
    "skimage": "scikit-image", "sklearn": "scikit-learn", "skvideo": "scikit-video",
    "swift": "ms-swift", "transformer_engine": "transformer-engine[pytorch]", "tree": "dm-tree",
    "umap": "umap-learn", "websocket": "websocket-client", "whisper": "openai-whisper",
    "yaml": "pyyaml", "zmq": "pyzmq",
}  # fmt: skip
# what brings a module, where PyPI has another program or nothing under its name; setuptools 80 says
# of pkg_resources "pin to Setuptools<81"
_SOURCES = {
    "alignment": "git+https://github.com/huggingface/alignment-handbook",
    "apex": "git+https://github.com/NVIDIA/apex", "clip": "git+https://github.com/openai/CLIP",
    "megatron": "megatron-core", "mpl_toolkits": "matplotlib", "pkg_resources": "setuptools<81",
}  # fmt: skip
# their set-up imports torch, which pip hides from a build; https://pypi.org/project/flash-attn
_BUILT_WITH_TORCH = re.compile(
    r"(flash-attn|causal[-_]conv1d|mamba[-_]ssm|grouped[-_]gemm|transformer-engine|git\+\S+/apex)\b"
)
_NO_ISOLATION = "--no-build-isolation"
_OLDEST_GLIBC = 17  # manylinux2014 is manylinux_2_17
_REINSTALL = "--force-reinstall"  # else pip leaves another build of the same version in place
_SYSTEM = ("/usr", "/usr/local")


def python(host: HostContext) -> str:
    """Return the path of the job's interpreter, as far as it is known."""
    path = host.get("python", "executable") or host.interpreter
    if path is None and host.is_local:
        environ = host.context.environ
        prefix = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
        path = f"{prefix}/bin/python" if prefix else None
    return str(path or "python3")


def install(host: HostContext, names: Iterable[str], *options: str) -> str:
    """Return the command that installs modules or requirements on the host."""
    listed = (_SOURCES.get(name) or PROJECTS.get(name, name) for name in names)
    requirements = list(dict.fromkeys(listed))
    if any(map(_BUILT_WITH_TORCH.match, requirements)) and _NO_ISOLATION not in options:
        options = (*options, _NO_ISOLATION)
    if "areal" in requirements:  # the launchers of AReaL 0.2 to 1 come with its repository
        return f"in AReaL's checkout{on_host(host)}: `{_pip(host)} -e .`"
    words = shlex.join([*requirements, *options])
    if host.get("python", "prefix") in _SYSTEM:
        return _new_environment(host, words)
    index = shlex.join(o for o in options if o not in (_REINSTALL, _NO_ISOLATION))
    download = _download(host, shlex.join(requirements), index)
    offline = f"; without internet there, run here: {download}" if download else ""
    return f"`{_pip(host)} {words}`{on_host(host)}{offline}"


def torch(host: HostContext, release: str | None = None) -> str:
    """Return the command that installs torch, or a release of it, for the GPUs and the driver."""
    capabilities = [
        cuda_compat.capability(gpu.get("compute_capability"))
        for gpu in host.get("gpus", "cards") or ()
    ]
    requirement, index = torch_for(
        host.get("gpus", "driver"), host.get("gpus", "cuda"), list(filter(None, capabilities))
    )
    options = [_REINSTALL] if host.get("torch") else []
    options += ["--index-url", INDEX + index] if index else []
    return install(host, [release or requirement], *options)


def torch_for(
    driver: str | None, newest: str | None, capabilities: list[tuple[int, int]]
) -> tuple[str, str]:
    """Return a requirement, and the index of that build; the index is empty for PyPI.

    `newest` is the newest CUDA that the driver supports.
    """
    major = (cuda_compat.number(newest) or (cuda_compat.newest_cuda(driver),))[0]
    oldest = min(capabilities, default=(8, 0))
    if driver is None and newest is None:
        return "torch", "cpu"
    if major is None or major < 12:  # noqa: PLR2004 - torch 2.0.1 is built with CUDA 11.7
        return "torch==2.0.1", ""
    if oldest < (7, 0):
        return "torch==2.7.*", ""  # the last on PyPI with 5.0 and 6.0, for CUDA 12.6
    if oldest < (7, 5):
        return "torch", "cu126"  # the others dropped 7.0 with torch 2.11
    if major >= 13:  # noqa: PLR2004 - as PyPI's torch since 2.11
        return "torch", ""
    is_new = max(capabilities, default=(8, 0))[0] >= cuda_compat.BLACKWELL
    return "torch", "cu128" if is_new or cuda_compat.number(newest) >= (12, 8) else "cu126"


def other_environment(host: HostContext, names: Iterable[str]) -> str | None:
    """Return the job key for another environment of the host that has all of these packages."""
    projects = [PROJECTS.get(name, name) for name in names]
    for environment in host.get("environments") or ():
        packages = environment.get("packages") or {}
        if all(name in packages for name in projects):
            listed = " and ".join(f"{name} {packages[name]}" for name in projects)
            return f"`python: {environment['python']}`, which has {listed}"
    return None


def on_host(host: HostContext) -> str:
    """Return where a command must run, if not on this machine."""
    return "" if host.is_local else f" on {host.name}"


def _pip(host: HostContext) -> str:
    path, packages = shlex.quote(python(host)), host.get("python", "packages")
    if packages is None or "pip" in packages:
        return f"{path} -m pip install"
    if host.get("tools", "uv"):  # environments that uv makes have no pip
        return f"uv pip install --python {path}"
    return f"{path} -m ensurepip && {path} -m pip install"


def _new_environment(host: HostContext, words: str) -> str:
    """Return how to create an environment: pip refuses to change the system's Python."""
    name = "train" if host.node is None else host.job.name
    folder = f"{host.get('system', 'home') or '/opt'}/envs/{name}"
    path, quoted = shlex.quote(python(host)), shlex.quote(folder)
    return (
        f"`{path} -m venv {quoted} && {quoted}/bin/python -m pip install {words}`{on_host(host)}, "
        f"and `venv: {folder}`"
    )


def _download(host: HostContext, requirements: str, index: str) -> str | None:
    """Return how to fetch wheels for another host on this machine; None where that is no use."""
    version = cuda_compat.number(host.get("python", "version"))
    libc = re.fullmatch(r"(glibc|musl)\D*(\d+)\.(\d+).*", host.get("system", "libc") or "")
    machine = host.get("system", "machine")
    if host.is_local or len(version) < 2 or libc is None or machine is None:  # noqa: PLR2004
        return None
    tags = f"--platform=musllinux_1_{{0..{libc[3]}}}_{machine}"
    if libc[1] == "glibc":
        newer = f"--platform=manylinux_{libc[2]}_{{{_OLDEST_GLIBC}..{libc[3]}}}_{machine}"
        tags = f"--platform=manylinux2014_{machine} {newer}"
    words = " ".join([f"{version[0]}.{version[1]}", tags, requirements, index]).strip()
    return (
        f"`python3 -m pip download -d wheels --only-binary=:all: --python-version {words}` in bash"
        ", and in the job `assets: {wheels: {path: wheels, to: wheels}}` with `setup: "
        f"{shlex.quote(python(host))} -m pip install --no-index -f wheels {requirements}`"
    )
