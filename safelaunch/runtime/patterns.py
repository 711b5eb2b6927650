r"""The signs themselves, as data: a class with its role, and under it fragments of one line each.

Roles: `root` names a cause; `unknown` may be a consequence; `late` counts less than an uncaught
exception; `cascade` is a consequence; `warning` is harmless unless nothing else explains a failure.
Of two on one line the first here counts. Longer than a module should be: it is one table.
"""

from __future__ import annotations

_TABLE = r"""
# what was started, and how
crlf-bad-interpreter root
    \^M: bad interpreter
    \$'\\r': command not found
    env: .{0,3}(?:bash|sh|python\d?)\\r
    near unexpected token .{1,4}(?:\w*\\r|\r)
    cannot execute: required file not found
    invalid option name.{0,4}pipefail\\r
command-not-found root
    line \d+: \S+: No such file or directory
    : command not found
    (?:sh|bash|env|dash): (?:\d+: )?[\w./-]+: not found
    env: .{0,3}[\w./-]+.{0,3}: No such file or directory
    exec: [\"']?[\w./-]+[\"']?: (?:executable file )?not found
    FileNotFoundError: .*: '(?:nvcc|ninja|nvidia-smi|git|accelerate|torchrun)'
argument-error root
    error: (?:unrecognized arguments|the following arguments are required|argument )
    error: (?:ambiguous option|invalid choice|too few arguments)
    Some specified arguments are not used by the HfArgumentParser
    (?:ERROR: )?Could not consume arg:[ ]
    remaining_argv: \[
    No such option:? -
    Could not override '
    (?:ConfigAttributeError|ConfigKeyError|OverrideParseException|ConfigCompositionException)
    Key '.*' is not in struct
import-version-conflict root
    cannot import name '\w+' from '[\w.]+' \(\S*(?:site|dist)-packages
    cannot import name '\w+' from '(?:torch|transformers|accelerate|peft|trl|vllm|numpy|datasets)
    module '(?:torch|numpy|transformers|accelerate|peft|trl|vllm|ray)[\w.]*' has no attribute
    module '(?:deepspeed|triton|jax|tensorflow|pyarrow|pkg_resources)[\w.]*' has no attribute
    No module named '(?:huggingface_hub|transformers|torch|numpy|accelerate|peft|trl)\.
    No module named '(?:deepspeed|vllm|datasets|tokenizers|ray|megatron|triton)\.
    compiled using NumPy 1\.x cannot be run
    numpy\.(?:dtype|ufunc|core\S*) size changed
    is required for a normal functioning of this module, but found
    (?:VersionConflict|ContextualVersionConflict)
    requires? .{1,60} but (?:you have|found|the installed)
    GLIBC(?:XX)?_[\d.]+'? not found
    Failed to import \S+ because of the following error
    Ensure that it is registered via torch::class_
    operator \S+ does not exist
    lib[\w.+-]+\.so[.\d]*: cannot open shared object file
    Descriptors cannot (?:not )?be created directly
# packages built by hand
flash-attn root
    [Ff]lash ?[Aa]ttention ?\d? (?:forward )?(?:is not available|only supports|is only supported)
    packages that were not found in your environment: flash_attn
    flash_?attn\S*\.so: undefined symbol
    No module named '(?:flash_attn|flash_attn_2_cuda)
    FlashAttention only supports .{0,40}(?:GPUs or newer|Ampere)
    (?:flash_attn|FlashAttention-?\d?) (?:seems to be not|is not) installed
    FlashAttention2 has been toggled on, but it cannot be used
    No such file or directory: '[^']*flash_attn
deepspeed-build root
    Error building extension '
    nvcc: (?:No such file or directory|not found|command not found)
    (?:CUDA_HOME|cuda_home) (?:environment variable is not set|does not exist)
    MissingCUDAException
    Ninja is required to load C\+\+ extensions
    CUDAMismatchException|Installed CUDA version .* does not match the version torch was compiled
    [Uu]nable to JIT load the \S+ op
    The detected CUDA version .* mismatches the version that was used to compile
    ninja: build stopped: subcommand failed
    OpBuilderException|Unable to find CUDA_HOME
deepspeed-config root
    Check batch related parameters
    train_batch_size is not equal to micro_batch
    Please correct the following DeepSpeed config values
    DeepSpeedConfigError|deepspeed\S*ConfigError
    DeepSpeed is not compatible with[ ]
    deepspeed/runtime/config\.py\", line \d+, in
    hf_?ds_?config|HfTrainerDeepSpeedConfig\(|HfDeepSpeedConfig\(
    'auto' .{0,60}[dD]eep[sS]peed|[dD]eep[sS]peed .{0,60}[\"']auto[\"']
# the hub, checkpoints, files
hf-gated-repo root
    GatedRepoError
    You are trying to access a gated repo
    Access to model \S+ is restricted
    Your request to access model .* (?:has been rejected|is awaiting)
    (?:401|403) Client Error.*huggingface\.co
    Invalid user token|Invalid username or password
hf-hub-offline root
    We couldn't connect to '?https?://huggingface
    LocalEntryNotFoundError|OfflineModeIsEnabled
    429 Client Error.*(?:huggingface|hf\.co|rate limit)
    429 Client Error: Too Many Requests
    Cannot reach https?://huggingface|outgoing traffic has been disabled
    host='(?:huggingface\.co|hf-mirror\.com|cdn-lfs[^']*)'.*Max retries exceeded
    HTTPSConnectionPool\(host='(?:huggingface\.co|hf-mirror\.com|cdn-lfs[^']*)'
    An error happened while trying to locate the file on the Hub
hf-lock-wait unknown
    file lock '.*' could not be acquired
    Still waiting to acquire lock on
checkpoint-mismatch root
    Error\(s\) in loading state_dict for
    size mismatch for \S+: copying a param
    (?:Missing|Unexpected) key\(s\) in state_dict
    loaded state dict (?:has|contains) a (?:different number of|parameter group)
    Invalid recover checkpoint when recover_mode
    (?:ignore_mismatched_sizes|Trying to set a tensor of shape .* this look)
checkpoint-missing root
    is not a local folder and is not a valid model identifier
    Unable to find latest file at|[Cc]heckpoint\S* .{0,80}(?:is empty|is incomplete|cannot be found)
    (?:No|[Cc]ouldn't find (?:a|any)) (?:checkpoint|safetensors|model weights)
    does not appear to have a file named
    HFValidationError.*Repo id must
    Repo id must (?:be in the form|use alphanumeric)
    No such file or directory: '[^']*(?:\.ckpt|\.pth?|\.safetensors|\.bin|checkpoint[^']*)'
    (?:[Cc]heckpoint|[Mm]odel)\S* (?:path|file|directory|dir) .{0,120}(?:does not exist|not found)
    Can't find a (?:valid )?checkpoint at
    No valid checkpoint found in
    Provided path \(.*\) does not contain
    no file named (?:pytorch_model\.bin|model\.safetensors|tf_model)
    Can't load (?:tokenizer|the model|the configuration|config|feature extractor) (?:for|of) '
    Can't find '(?:adapter_)?config\.json' at
    [Ii]ncorrect path_or_model_id
    Repository Not Found|RepositoryNotFoundError|EntryNotFoundError
    Error while deserializing header|PytorchStreamReader failed
nccl-shm root
    (?:Error while creating|[Ff]ailed to (?:extend|open|create|mmap)).{0,60}/dev/shm/nccl
    Error: failed to extend /dev/shm
    /dev/shm/nccl-\S+.*(?:No space left|size)
    posix_fallocate failed ?: ?No space left
disk-full root
    No space left on device
    [Dd]isk quota exceeded|FilesystemQuotaExceeded|EDQUOT
    PytorchStreamWriter failed writing
    unexpected pos \d+ vs \d+
    ENOSPC
# DataLoader, and the system's limits
dataloader-worker-killed unknown
    DataLoader worker \(pid(?:\(s\))?[ :]*[\d, ]+\) (?:is killed by signal|exited unexpectedly)
    dataloader's workers are out of shared memory
    Unexpected bus error encountered in worker
    unable to (?:open|mmap|write|allocate) .{0,40}shared memory
too-many-open-files root
    Too many open files
    received 0 items of ancdata
    EMFILE
permission-denied root
    PermissionError: \[Errno 13\]
    PermissionError: \[Errno 1\]
    ^\S+: Permission denied$
    [Cc]annot (?:open|create|write|mkdir|touch) .{0,200}: Permission denied
    (?:Read-only file system|Errno 30)
    sh: (?:line \d+: |\d+: )?\S+: Permission denied
# memory
ray-oom root
    ray\S*\.OutOfMemoryError
    (?:[Tt]ask|[Ww]orker)s? .{0,80}killed (?:due to|because).{0,40}running (?:low on|out of) memory
    [Ww]orkers? \(tasks / actors\) killed due to memory pressure
host-oom root
    [Oo]ut of memory: [Kk]ill(?:ed)? process
    [Mm]emory cgroup out of memory
    oom-kill(?::|er| event)|oom_kill
    cgroup out-of-memory handler
    OOMKilled|OUT_OF_MEMORY|oom_reaper
    DefaultCPUAllocator: (?:can't|not enough memory)
    Unable to allocate [\d.]+ [KMGT]iB for an array
    (?:OSError: \[Errno 12\]|Cannot allocate memory)
    std::bad_alloc
    ^MemoryError
vllm-kv-cache-memory root
    [Nn]o available memory for the cache blocks
    KV cache is needed, which is larger than the available
    model's max seq len \(\d+\) .{0,60}larger than the maximum number of tokens
    less than desired GPU memory utilization
    [Ff]ailed to allocate memory for (?:the )?KV cache
    larger than the available KV cache memory
    Not enough memory\. Please try to increase --mem-fraction-static
    Initial free memory \S+ .{0,40}[Cc]urrent free memory
vllm-cpu-swap root
    lack of CPU swap space
    Too large swap space
    swap space .{0,60}(?:exceed|larger than)
cuda-oom root
    (?:CUDA|HIP|XPU|NPU) out of memory
    (?:torch\.(?:cuda\.)?|cuda)OutOfMemoryError
    CUDA [Ee]rror: out of memory
    cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED
    cuda runtime error \(2\) ?: ?out of memory
    Tried to allocate [\d.]+ [KMG]i?B(?:\.| \()
    NVML_SUCCESS == r INTERNAL ASSERT FAILED
# the cards
gpu-hardware-ecc root
    GPU is lost|RmInitAdapter failed
    uncorrectable (?:ECC|NVLink) error
    double[- ]bit ECC
    NVRM: Xid .{0,30}: (?:48|63|64|74|79|92|94|95|119|120)\b
    GPU has fallen off the bus
    cudaErrorECCUncorrectable
    unspecified launch failure .{0,60}(?:ECC|hardware)
cuda-no-kernel-image root
    no kernel image is available for execution
    CUDA capability sm_\d+\w? is not compatible
    cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU
    provided PTX was compiled with an unsupported toolchain|cudaErrorUnsupportedPtxVersion
    ptxas (?:fatal|error) ?: .{0,80}(?:gpu-name|sm_|arch|version)
    Value 'sm_\w+' is not defined for option 'gpu-name'
    ncclMaxSharedMem \d+ exceeds device/fn maxSharedMem
    invalid device function
device-side-assert root
    device-side assert triggered
    \.cuh?:\d+: .{0,200}Assertion .{1,200} failed
    cudaErrorAssert
cuda-illegal-memory-access root
    illegal memory access was encountered
    cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS|Cuda failure 700
    (?:misaligned address|Warp Illegal Address)
cuda-unavailable root
    cudaGetDeviceCount\(\)|CUDA initialization:[ ]
    No CUDA runtime is found|CUDA error: (?:initialization error|unknown error)
    Torch not compiled with CUDA enabled
    invalid device ordinal
    No CUDA GPUs are available
    Found no NVIDIA driver
    NVIDIA driver on your system is too old
    CUDA driver version is insufficient
    CUDA unknown error
    (?:Cuda failure|[Ee]rror) 802|system not yet initialized
    cudaErrorNoDevice|no CUDA-capable device is detected
    torch\.cuda\.is_available\(\) (?:is|returns?) False
    Failed to (?:infer device type|initialize NVML)
    CUDA-capable device\(s\) is/are busy or unavailable
    Driver/library version mismatch
bf16-unsupported root
    [Bb](?:f|float)16 is only supported on GPUs with compute capability
    setup doesn't support bf16
    bf16 .{0,40}(?:requires|not supported|isn't supported|mixed precision requires)
    (?:BFloat16|bfloat16) is not supported on (?:your|this|the)
    not implemented for '(?:BFloat16|Half)'
# NCCL and DDP
nccl-duplicate-gpu root
    Duplicate GPU detected
    both on CUDA device
nccl-socket-no-interface root
    no socket interface found
    [Uu]nable to find (?:address|interface) for:? ?\w*|No interface found in the same subnet
    (?:Bootstrap|NET/Socket) ?: .{0,30}no (?:usable )?(?:socket )?interface
    makeDeviceForInterface\(\): unsupported
    (?:ifa|ifaddrs).{0,20}Unable to find interface
nccl-ib root
    NET/IB ?: ?(?:Got completion|Async event|Unable|No device|\S+:\d+ Got async)
    ibv_\w+ failed|wrap_ibv_\w+
    IBV_(?:WC|EVENT)_\w*(?:ERR|FATAL)
    transport retry counter exceeded
nccl-p2p root
    transport/p2p\.cc:\d+ NCCL WARN
    peer access is not supported between these two devices
    peer mapping resources exhausted|cudaErrorPeerAccess\w+
    P2P(?: access)? is (?:not supported|disabled) between
    doesn't support faster communication
    Cuda failure .{0,4}(?:217|peer)
cpu-tensor-with-nccl root
    No backend type associated with device type cpu
    Tensors must be CUDA and dense
    ProcessGroupNCCL only supports CUDA|does not support .{0,20}CPU tensors
    Expected .{0,20}tensors? .{0,30}cuda.{0,40}NCCL
pin-memory-cuda-tensor root
    only dense CPU tensors can be pinned
    cannot pin '?torch\.(?:cuda\.)?\w*Tensor
sampler-set-epoch root
    has no attribute 'set_epoch'
ddp-mark-ready-twice root
    mark a variable ready only once
    has been marked as ready twice
ddp-unused-parameters root
    have finished reduction in the prior iteration
    did not receive grad(?:ient)? for rank
    parameters that were not used in producing loss
    find_unused_parameters=True` to `torch
batch-size-divisibility root
    divisible by the number of generations
    batch.?size.{0,80} (?:must|should|has to|needs to) be (?:evenly )?(?:divisible|a multiple)
    generation_batch_size .{0,80} must be
    (?:ppo_)?mini_batch_size.{0,60}(?:divisible|divide|multiple)
    (?:real_train_batch_size|minimal possible batch size)
    only support equal chunk
yaml-float-as-string root
    not supported between instances of '(?:float|int)' and 'str'
    not supported between instances of 'str' and '(?:float|int)'
    unsupported operand type\(s\) for \S+ 'str' and 'float'
nan-loss root
    Attempting to unscale FP16 gradients
    '(?:loss|grad_norm)': '?nan\b|'loss': '?inf\b
    \b[Ll]oss(?: is|:|=)? ?(?:nan|NaN)\b
    (?:loss|gradients?) (?:is|are|became|contains?) .{0,30}(?:nan|NaN|inf|Inf|non-finite|infinite)
    (?:non-finite|NaN or Inf|NaN/Inf|nan or inf).{0,60}(?:loss|grad|norm|found|detected|element)
    [Cc]urrent loss scale already at minimum
    probability tensor contains either `inf`, `nan`
    [Mm]inimum loss scale reached|FloatingPointError
    No inf checks were recorded|unscale_\(\) has already been called
    returned nan values in its
# how machines meet
port-in-use root
    [Aa]ddress already in use
    EADDRINUSE|errno: 98\b|Errno 98\b
    [Pp]ort \d+ is (?:already )?(?:in use|occupied|not available)
    server socket has failed to (?:listen|bind)
    No address added out of total
rendezvous-timeout root
    RuntimeError: Socket Timeout|connect\(\) timed out
    (?:TCPStore|c10d|rendezvous)\S* .{0,120}[Cc]onnection refused
    Failed to connect to GCS|GcsRpcClient|[Tt]imed out .{0,40}GCS
    waiting for clients\b
    client socket has (?:timed out|failed to connect)
    [Ff]ailed to connect to \S+ ?.{0,30}(?:timed out|TCPStore)
    RendezvousTimeoutError
    connection to the C10d store has failed|RendezvousConnectionError
    Timed out (?:initializing process group|waiting for .{0,60} to join)
    Gloo connectFullMesh failed
    (?:DistStoreError|Store timeout|wait timeout after \d+ ?ms)
    failed to connect/validate to host
    Timeout waiting for key: default_pg
    Servers not reachable after|Timeout waiting for rollout servers
    Exit barrier (?:failed|timed)
    Placement group .{0,40}timed? ?out|GetTimeoutError
ssh-host-key-changed root
    REMOTE HOST IDENTIFICATION HAS CHANGED
    Host key verification failed
    BadHostKeyException
ssh-kex-closed root
    kex_exchange_identification
    ssh_exchange_identification
    Error reading SSH protocol banner
    banner exchange:[ ]
ssh-auth-failed root
    Permission denied(?:, please try again| \([a-z,-]+\))
    AuthenticationException|Authentication failed
    Too many authentication failures
    No (?:more|supported) authentication methods
ssh-timeout root
    ssh: connect to host .{1,80}(?:timed out|No route|unreachable|refused)
    Unable to connect to port \d+ on
tracker-offline root
    host='api\.(?:wandb\.ai|swanlab\.cn|comet\.\w+)'
    wandb: ERROR|wandb\.errors\.\w+
    api_key not configured|No API key configured
    (?:wandb|swanlab|mlflow|comet|neptune)\S* .{0,60}(?:not (?:reachable|logged in)|timed out)
scheduler-cancelled unknown
    CANCELLED AT[ ]
    Force Terminated job
scheduler-cancelled root
    DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAIL)
    TERM_RUNLIMIT|job killed: walltime|exceeded (?:its )?walltime
module-not-found root
    No module named[ ]
    ModuleNotFoundError
# may be a consequence
nccl-timeout unknown
    Heartbeat monitor timed out
    NCCL (?:watchdog|operation|collective)?\s?timed? ?out
    [Ww]atchdog caught collective operation timeout
    Timeout at NCCL work
    (?:WorkNCCL|OpType)\S*.{0,120}ran for \d+ milliseconds before timing out
    collective operation timed? ?out|Wait timed out after
    Some NCCL operations have failed or timed out
    Timed out waiting \d+ms for (?:recv|send) operation
nccl-unhandled-error unknown
    unhandled (?:system|cuda) error|ncclUnhandledCudaError|ncclSystemError
    ncclInternalError|ncclInvalidUsage|ncclInvalidArgument
    NCCL [Ee]rror(?: \d+)?(?: in)?:[ ]
    NCCL WARN (?:Cuda failure|Call to)
    ncclCommInitRank
    DistBackendError
vllm-engine-init unknown
    Engine core initialization failed
    Engine process failed to start|Engine loop is not running
    EngineDeadError|EngineCore (?:encountered an issue|failed to start|hit an exception)
    WorkerProc initialization failed
    Model architectures? \[.{1,80}\] (?:are|failed|is)[ ]
    vllm/(?:config|envs|engine/arg_utils)\S*\.py\", line
    vllm/v1/engine/core\.py\", line \d+, in (?:__init__|run_engine_core)
killed-by-signal late
    Fatal Python error: (?:Segmentation fault|Aborted|Bus error|Floating point|Illegal)
    Segmentation fault|core dumped
    exitcode ?: -(?:4|6|7|8|11|15)\b|Signal (?:4|6|7|8|11|15) \(SIG
    died with <Signals\.SIG(?:SEGV|ABRT|BUS|FPE|TERM|ILL)
    got signal: 15
host-oom late
    exitcode ?: -9\b|Signal 9 \(SIGKILL\)
    ^(?:.*\s)?Killed(?:\s{2,}.*)?$
    (?:exit(?:ed)?|status|code)\D{0,20}\b137\b
    died with <Signals\.SIGKILL|interrupted by signal 9
# consequences
peer-lost cascade
    [Ff]light recorder dump signal from another rank
    [Rr]eceived a dump signal from another rank
    [Cc]onnection closed by (?:remote )?peer|[Cc]onnection reset by peer|[Ss]ocket closed
    [Bb]roken pipe
    Application timeout caused pair closure
    failed to recv, got 0 bytes|Connection was likely closed
    (?:sendBytes|recvBytes|recvValue|recvVector) failed
    TCPStore server has shut down too early
    RendezvousClosedError|RendezvousGracefulExitError
nccl-unhandled-error cascade
    ncclRemoteError|remote process exited or there was a network error
    NCCL communicator (?:was aborted|encountered error)
    communicator .{0,40}(?:was )?aborted
    watchdog thread terminated with exception
    taking the entire process down
ray-node-dead cascade
    OwnerDiedError|(?:[Rr]aylet|owner) (?:has )?died
    (?:RayActorError|ActorDiedError|ActorUnavailableError|NodeDiedError|WorkerCrashedError)
    [Aa]ctor (?:died|is dead|is unavailable)|node .{0,60}(?:has been marked dead|died|is dead)
    missed too many heartbeats|Worker unexpectedly exits with a connection error
tracker-offline late
    wandb: Network error|entering retry loop
tokenizers-fork warning
    process just got forked
"""


def _read(table: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return (class, role, fragments) of each paragraph."""
    found = []  # type: list[tuple[str, str, list[str]]]
    for line in table.split("\n"):
        if line.startswith("    "):
            found[-1][2].append(line[4:])
        elif line and not line.startswith("#"):
            name, _, role = line.partition(" ")
            found.append((name, role, []))
    return tuple((name, role, tuple(patterns)) for name, role, patterns in found)


SIGNS = _read(_TABLE)
