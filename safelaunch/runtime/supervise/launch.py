"""Starts launch.sh for the supervisor: its environment, its signals, its session."""

from __future__ import annotations

import os
import signal

try:
    import ctypes
except ImportError:  # a Python that was built without libffi
    ctypes = None  # type: ignore[assignment]

from safelaunch.runtime import SITE, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import RunRecord

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)

# What tmux sets for its panes; the job gets the caller's values, from run.json, or none.
TERMINAL = ("TMUX", "TMUX_PANE", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "SHELL", "PWD")


def job_environment(run: RunRecord, node_dir: str, attempt: int, out: int) -> dict[str, str]:
    """Return the environment of launch.sh: the supervisor's own, the mark, the hooks' settings.

    `out` is the pipe that the job writes to.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SAFELAUNCH_")}
    for name in TERMINAL:
        environment.pop(name, None)
    environment.update(run.terminal)
    environment.update(
        {
            processes.MARK: run.id,
            "SAFELAUNCH_NODE_DIR": node_dir,
            "SAFELAUNCH_ATTEMPT": str(attempt),
            "SAFELAUNCH_SUPERVISOR": str(os.getpid()),  # it adopts what a script leaves behind
            "SPT_NOENV": "1",  # setproctitle would overwrite the environment, and the mark
        }
    )
    if run.rank_logs:
        info = os.fstat(out)
        environment["SAFELAUNCH_LAUNCHER_PIPE"] = f"{info.st_dev}:{info.st_ino}"
    if run.capture:
        environment["SAFELAUNCH_CAPTURE"] = "1"
        if run.single:
            environment["SAFELAUNCH_SINGLE"] = run.single
        if run.evidence:
            environment["SAFELAUNCH_EVIDENCE"] = ",".join(run.evidence)
    if len(run.hosts) > 1 and run.rank_logs:
        environment["SAFELAUNCH_WORLD_SIZE"] = str(run.world_size or "")
    if run.rank_logs or run.capture:
        environment["SAFELAUNCH_SITE"] = SITE
    return environment


def fork(
    script: str,
    out: int,
    environment: dict[str, str],
    umask: int,
    limits: tuple[int, int] | None,
    *,
    is_bound: bool = False,
) -> int:
    """Start bash with a script and return its pid; output goes to `out`. Raises OSError.

    `limits` of open files are set back where ours were raised. `is_bound`: it ends with this
    process, whatever ends that.
    """
    return fork_words(["bash", script], out, environment, umask, limits, is_bound=is_bound)


def fork_words(
    words: list[str],
    out: int,
    environment: dict[str, str],
    umask: int = 0o077,
    limits: tuple[int, int] | None = None,
    *,
    is_bound: bool = False,
) -> int:
    """Start a program and return its pid; output goes to `out`. Raises OSError.

    The child has default signals, a session of its own, no stdin, and `limits` of open files where
    ours were raised.
    """
    parent, pid = os.getpid(), os.fork()
    if pid != 0:
        return pid
    try:
        os.setsid()
        if is_bound and prctl(PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:
            os._exit(127)
        os.umask(umask)
        for signum in range(1, signal.NSIG):
            try:
                # also those that Python or the caller ignores: exec would keep that
                signal.signal(signum, signal.SIG_DFL)
            except (OSError, ValueError):
                continue
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        processes.restore_descriptors(limits)
        environment["SAFELAUNCH_MAIN"] = str(os.getpid())  # launch.sh execs: the launcher's own pid
        os.execvpe(words[0], words, environment)  # noqa: S606 - no shell but the script's own
    except BaseException as e:  # noqa: BLE001 - nothing of the supervisor may run on in the child
        os.write(2, f"safelaunch: cannot start {words[0]}: {e}\n".encode())
    finally:
        os._exit(127)


def libc() -> object:
    """Return the C library; an empty object where it cannot be called."""
    try:
        return ctypes.CDLL(None, use_errno=True)
    except (AttributeError, OSError):
        return object()


def prctl(option: int, value: int) -> bool:
    """Set an option of this process (man 2 prctl); False where the kernel refuses."""
    call = getattr(libc(), "prctl", None)
    return call is not None and call(option, value, 0, 0, 0) == 0
