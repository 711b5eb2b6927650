"""What to do after a failure of each class: one or two sentences, the cheapest step first."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import LibraryFrame

OTHER = "read the lines above in the log of the rank that failed first"
NO_TRACEBACK = (
    "the message is all that this log shows: the traceback, with the line that raised it, may stand"
    " in the log of that rank"
)
ADVICE = {
    "cuda-oom": "lower the batch size per GPU or the sequence length, or turn on gradient"
    " checkpointing; if another process fills the GPU, `nvidia-smi` shows it",
    "host-oom": "give the job more memory, or use fewer DataLoader workers and ranks per machine;"
    " loading weights in every rank multiplies them",
    "killed": "find out who sent SIGKILL: the kernel (`dmesg -T | grep -i oom` as root), a"
    " container's limit, or a person; memory is the likely reason",
    "killed-by-signal": "the frames above are where native code ended; check that torch and"
    " extensions fit each other",
    "cuda-illegal-memory-access": "run once with `CUDA_LAUNCH_BLOCKING=1` to see the true line; on"
    " several consumer GPUs try `NCCL_SHM_DISABLE=1 NCCL_P2P_DISABLE=1` or a newer NCCL",
    "cuda-no-kernel-image": "install builds for this GPU: `python -c 'import torch;"
    " print(torch.cuda.get_arch_list())'` lists what torch has",
    "cuda-unavailable": "compare `nvidia-smi` with `torch.version.cuda`, and check that"
    " CUDA_VISIBLE_DEVICES names GPUs that exist",
    "device-side-assert": "an index is out of range, often a label or token id; run once on the CPU"
    " or with `CUDA_LAUNCH_BLOCKING=1` to see which",
    "nccl-timeout": "look at what the slowest rank did: the first rank with another error, or the"
    " one that printed least; raise the timeout only where the work really takes that long",
    "nccl-unhandled-error": "run again with `NCCL_DEBUG=INFO` and read its first WARN line",
    "nccl-duplicate-gpu": "start no more processes than GPUs, and use"
    " `torch.cuda.set_device(LOCAL_RANK)` before the first collective",
    "nccl-socket-no-interface": "set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to a name that"
    " `ip -br link` shows on every node",
    "nccl-ib": "check the links with `ibstat`; `NCCL_IB_DISABLE=1` goes on without them, slower",
    "nccl-shm": "give the container more shared memory (`--shm-size=8g` or `--ipc=host`) and remove"
    " stale /dev/shm/nccl-* files",
    "nccl-p2p": "set `NCCL_P2P_DISABLE=1`, or `NCCL_CUMEM_HOST_ENABLE=0` with newer NCCL",
    "port-in-use": "start again: a fresh port is chosen each time; where the job names a port,"
    " `ss -ltnp` shows who has it",
    "rendezvous-timeout": "read the logs of the other nodes first: a rank that never came shows"
    " why there; then check the address, firewall and proxy variables",
    "peer-lost": "this rank only lost its peer: look for the rank or node that ended first",
    "cpu-tensor-with-nccl": "move the tensor to the GPU before the collective, or create the group"
    " with `cpu:gloo,cuda:nccl`",
    "pin-memory-cuda-tensor": "return CPU tensors from the dataset, or set `pin_memory=False`",
    "sampler-set-epoch": "call `set_epoch` only where the sampler has it",
    "yaml-float-as-string": "write the number as `1.0e-4` in YAML, or convert it with `float()`",
    "module-not-found": "install it into the job's interpreter, or name its folder in the job's"
    " `pythonpath`; `safelaunch show` prints which interpreter ran",
    "command-not-found": "install the program where the job runs, or name the interpreter that has"
    " it with `python:`, so that its bin folder goes first on PATH",
    "wrong-env": "name the environment in the job: `python:`, `venv:` or `conda:`",
    "crlf-bad-interpreter": "rewrite the script with LF line ends: `sed -i 's/\\r$//' FILE`",
    "hf-hub-offline": "download before the run, then set `HF_HUB_OFFLINE=1`; a model folder that"
    " does not exist is reported in the same words",
    "hf-lock-wait": "if no other download runs, remove the named .lock file",
    "hf-gated-repo": "ask for access on the model's page, and pass HF_TOKEN with `env_from:`",
    "disk-full": "free space or quota (`df -h`, `df -i`, `quota -s`), keep fewer checkpoints, then"
    " resume: the newest checkpoint may be incomplete",
    "checkpoint-mismatch": "load the checkpoint with the configuration that wrote it; the message"
    " names the first keys that differ",
    "checkpoint-missing": "check the path on the machine that runs the job, and that the folder"
    " holds config.json and weights",
    "nan-loss": "go back to a checkpoint before the first NaN; try bf16 instead of fp16, a lower"
    " learning rate, and gradient clipping",
    "deepspeed-config": "set the batch sizes in one place only: `auto` in DeepSpeed's file, and"
    " numbers in the trainer's arguments",
    "deepspeed-build": "install ninja and the CUDA toolkit of torch's version, and set CUDA_HOME",
    "flash-attn": "reinstall flash-attn for this torch (`--no-build-isolation`), or choose"
    ' `attn_implementation="sdpa"`',
    "vllm-kv-cache-memory": "lower max_model_len, or give vLLM more of the GPU"
    " (gpu_memory_utilization) after freeing what else uses it",
    "vllm-engine-init": "the cause stands above, in the engine's own lines: read the first error"
    " of EngineCore",
    "vllm-cpu-swap": "lower swap_space",
    "bf16-unsupported": "use fp16 on GPUs before Ampere; on newer ones check that torch has CUDA",
    "dataloader-worker-killed": "try `num_workers=0` to see the true error; bus errors need more"
    " /dev/shm (`--shm-size`)",
    "permission-denied": "`ls -ld` the path on the machine that runs the job, as the job's user",
    "too-many-open-files": "raise the limit with `setup: [ulimit -n 65536]`, or share tensors by"
    ' `torch.multiprocessing.set_sharing_strategy("file_system")`',
    "argument-error": "compare `args` with the program's `--help`; flags change between versions",
    "batch-size-divisibility": "choose a batch per device so that batch x processes x accumulation"
    " is a multiple of the number in the message",
    "ddp-unused-parameters": "use `find_unused_parameters=True`, or take the unused parameters out",
    "ddp-mark-ready-twice": "with gradient checkpointing use `use_reentrant=False`, or"
    " `static_graph=True`",
    "import-version-conflict": "install versions that fit together: the named package is older or"
    " newer than the one that imports it",
    "tokenizers-fork": "set `TOKENIZERS_PARALLELISM=false`",
    "ray-oom": "give Ray's workers less to hold or the node more memory; the message lists the"
    " processes by size",
    "ray-node-dead": "look at the logs of the node or actor that died, in Ray's session folder"
    " (/tmp/ray/session_latest)",
    "user-code-exception": "fix the line above and start again; a restart alone fails the same way",
    "scheduler-cancelled": "find out who cancelled it, or resume from the last checkpoint",
    "time-limit": "ask for more time, or resume from the last checkpoint",
    "preempted": "go on from its checkpoint on another machine, or here once it is back, with"
    " `safelaunch run --resume`",
    "earlier-run": "look at the run before it with `safelaunch show`, and start this one again once"
    " that has succeeded",
    "service-failed": "`safelaunch logs --service NAME` shows its log",
    "cards": "ask for fewer cards, or start on a machine with as many: `safelaunch gpus --host`",
    "scheduler": "read the reason that the scheduler gives: a setting of the job, a partition or a"
    " node has to change first",
    "gpu-hardware-ecc": "take the GPU out of `gpus:` and reset it (`nvidia-smi -q -d ECC`)",
    "tracker-offline": "set `WANDB_MODE=offline` in the job's `env:`, or pass the key with"
    " `env_from:`",
    "hang": "read the stacks that were saved: the rank that is not in a collective is the cause",
    "ssh-kex-closed": "wait a minute and try again: sshd limits new connections (MaxStartups)",
    "ssh-auth-failed": "check user and key with `ssh -v HOST`",
    "ssh-host-key-changed": "if the machine was set up anew, `ssh-keygen -R HOST`; else ask why",
    "ssh-timeout": "check address, port, VPN and firewall",
}
_SIGNALS = {
    "SIGBUS": "a bus error usually means that /dev/shm is full: give the container more shared"
    " memory (`--shm-size=8g` or `--ipc=host`)",
    "SIGABRT": "native code gave up (an assertion, a C++ exception): the last lines of the log may"
    " say why; the frames above are where it was called",
    "SIGILL": "binaries built for another CPU: install builds for this machine",
    "SIGTERM": "somebody or a service outside the run sent it: a container's stop, a scheduler, a"
    " person; start again",
    "SIGINT": "somebody pressed Ctrl-C or sent it; start again",
    "SIGHUP": "a session ended and took the process with it; start again",
}
_CRASHES = ("SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL")
LEFT_EARLY = (
    "this rank left early: fewer batches than the others, a `return` or `sys.exit(0)` of its own."
    " Give all ranks as many batches (`drop_last=True`, DistributedSampler), or wrap the loop in"
    " `Join([model])`; a restart repeats it"
)


def advice_for(name: str, signal: str = "", has_frame: bool = True, cuda: bool = True) -> str:
    """Return advice for a signal, or for an exit without exception; "" where the class's fits."""
    if name == "user-code-exception" and not has_frame:
        return "no exception was seen: the program's last output may show why it gave up"
    if name != "killed-by-signal":
        return ""
    late = "; CUDA errors come late: `CUDA_LAUNCH_BLOCKING=1` shows the true line"
    return _SIGNALS.get(signal, ADVICE[name]) + (late if cuda and signal in _CRASHES else "")


def library_error(frame: LibraryFrame, file: str, line: int) -> tuple[str, str]:
    """Return the cause and what to do, for an exception in a library that no signature recognises.

    `file` and `line` are the user's own from which it was reached; "" if there is none. In a clone
    of the library that is the same line.
    """
    is_call = bool(file) and not (line == frame.line and file.endswith(frame.path))
    place = (
        f"in {frame.library}{' ' * bool(frame.version)}{frame.version} ({frame.path}:{frame.line})"
    )
    if frame.is_raise:
        cause = f"raised {place}: a setting or an argument that it refuses; read its message"
        step = "change the setting or the argument that its message names"
    else:
        cause = (
            f"failed {place}: a setting, an argument, a file or another package's version that it"
            " does not handle; read its message"
        )
        step = (
            "look for what its message names in the settings and arguments, then in the packages:"
            " which versions fit each other changes with each release"
        )
    return cause, step + (f"; it was called from {file}:{line}" if is_call else "")


def killed(source: str) -> str:
    """Return what to do about a SIGKILL; `source`, if any, shows that memory was no reason."""
    if not source:
        return ADVICE["killed"]
    return (
        f"{source} shows no memory kill: most likely a person or another process ended it"
        " (`kill -9`, a container's stop, a scheduler)"
    )


MEMORY_LIMIT = "the memory that `ulimit -v` or `ulimit -d` allows the process is exhausted"
GROUP_LIMIT = "the memory limit of its cgroup is reached, not that of the machine"


def memory_limit(limit: str) -> str:
    """Return what to do where a limit was reached, and not the memory of the machine."""
    if limit == GROUP_LIMIT:
        return (
            "raise the limit (container: `--memory`, Slurm: `--mem`, systemd: MemoryMax), or use"
            " fewer DataLoader workers and ranks per machine"
        )
    return (
        "raise the limit: `setup: [ulimit -v unlimited]`, or where the hard limit forbids that"
        " (`ulimit -Hv`), in /etc/security/limits.conf or the service that starts the job"
    )


def port(number: int, fixed: bool, own: bool) -> str:
    """Return what to do about a port in use: one that the job fixes, or the user's `own` line."""
    who = f"`ss -ltnp 'sport = :{number}'`" if number else "`ss -ltnp`"
    if fixed:
        return f"the job fixes the port {number}: drop it, or see who has it: {who}"
    if own:
        return (
            f"the line above takes a port that is in use: see who has it: {who}, or let the program"
            " choose a free one (port 0)"
        )
    return ADVICE["port-in-use"]


def disk(path: str, is_run_directory: bool) -> str:
    """Return what to do about a full disk; `path` is a folder on it."""
    advice = f"free space or quota on the disk of {path} (`df -h {path}`, `df -i`, `quota -s`)"
    if is_run_directory:
        return advice + ", or set SAFELAUNCH_HOME to a folder on a larger one"
    return advice + ", keep fewer checkpoints, then resume: the newest may be incomplete"


def hang(rank: int | None, location: str, pid: int, state: str) -> str:
    """Return what to do about a hang; `rank` blocks the others, `state` says how."""
    if rank is None:
        return "read the stacks of all ranks: which one is somewhere else than the others?"
    if state == "stopped":
        return f"let rank {rank} go on: `kill -CONT {pid}`; find out who stopped it"
    if state == "thread":
        return (
            "fix the line above: its thread is gone, and what waits for it waits forever; pass"
            " the exception on to the main thread, or give `get()` and `join()` a timeout"
        )
    if state == "left":
        return LEFT_EARLY
    where = f" at {location}" if location else ""
    return f"look at what rank {rank} does{where}: the others wait for it"
