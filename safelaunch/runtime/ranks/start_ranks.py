"""Starts the ranks of one node, and ends all of them where one fails: no launcher beside it.

    python -I -S -B start_ranks.py --ranks=N [--first=R] [--grace=SECONDS] [OPTION...] -- WORD...
    python -u start_ranks.py --ranks=N ... --preload=MODULE,... -- PYTHON -u WORD...

Each rank runs the words in this environment, with RANK (from R on), LOCAL_RANK, ROLE_RANK and
TORCHELASTIC_ERROR_FILE of its own, in a session of its own, as torch's elastic agent starts it
(torch/distributed/elastic/multiprocessing). What else a launcher does when it runs:

--python       the first word is this Python; torchrun takes its own, or that of PYTHON_EXEC
--local-rank   the program gets `--local-rank=N` first, as torch.distributed.launch adds it
--upper-case   each variable is there in upper case too (accelerate's patch_environment)
--new-run-id   TORCHELASTIC_RUN_ID is a new one, as torchrun draws it where there is none
--store        a process beside the ranks opens the store at MASTER_ADDR and MASTER_PORT, as the
               agent of the first node does; it ends with the ranks, and they with it
--own-folder   this folder ends PYTHONPATH, without empty parts (accelerate's env_var_path_add)

Where a rank fails, the others may go on for `--grace` seconds: what they lost, and their own
traceback, is worth more than their time. Then they get TERM and, after PATIENCE, KILL. TERM, INT,
HUP and QUIT go on to all ranks, and the same one again ends them by KILL. The exit code is that of
the first rank that failed, of a signal 128 + its number, as in a shell. Where no rank had failed
before, a signal that ends the ranks ends this process too: so a code is always that of a rank.

With `--preload` this process imports the modules, and each rank is a fork of it
(safelaunch_preload.py). With `--fork-server` beside it a copy stays for the next attempt, whose
ranks are forks of that copy (safelaunch_fork_server.py).

No rank is reaped here: a zombie shows the supervisor, which is no parent of it, how the rank ended.

Any Python 3 of the job may run it: no syntax newer than 3.5.
"""

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, Protocol

    class Relay(Protocol):
        """The connection to the process that passes signals on."""

        def sender(self, pid: int) -> int:
            """Return who has sent a signal that came from a process."""

        def close(self) -> None:
            """Close the connection, in a rank."""


PATIENCE = 30.0  # seconds between TERM and KILL: the agent's own (shutdown_timeout)
AFTER_KILL = 5.0  # seconds for a rank that was killed; one in a driver may never end
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)  # what Python ignores, and a child would inherit
# what the agent sets after all else
OF_AGENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
OF_AGENT_PREFIXES = ("GROUP_", "ROLE_", "TORCHELASTIC_")
PYTHON = 2  # words in front of the program: the interpreter and -u
# its import of torch may take long: the ranks wait in their own connect
STORE = """
import os, sys, time
from torch.distributed import TCPStore
host, port, parent = sys.argv[1:]
store = TCPStore(host, int(port), None, True, wait_for_workers=False)
while os.getppid() == int(parent):
    time.sleep(1)
"""
NOT_RUN = 127  # exit code of a shell for a program that is not there


class Ranks:
    """The ranks of a node: which of them run, and which one failed first."""

    def __init__(
        self,
        first: int,
        words: "list[str]",
        local_rank_at: int,
        environment: "dict[str, str]",
        preload: "object | None",
        *,
        relay: "Relay | None" = None,
    ) -> None:
        self.first = first
        self.words = words
        self.preload = preload  # the module of that name, where the ranks are forks
        self.relay = relay  # where signals come through another process
        self.local_rank_at = local_rank_at  # index of `--local-rank=N` in the words; -1 for none
        self.environment = environment
        self.child_signal = signal.getsignal(signal.SIGCHLD)  # what a rank inherits
        self.mask = set()  # type: set[int]
        self.pids = []  # type: list[int]
        self.running = set()  # type: set[int]
        self.store = 0  # pid of the process that has the store; 0 for none
        self.code = 0  # of the first failure
        self.sender = 0  # pid of whoever has sent the last signal

    def start(self, local: int, errors: str) -> None:
        """Start a rank. Raises OSError."""
        number = str(self.first + local)
        environment = dict(self.environment, RANK=number, LOCAL_RANK=str(local), ROLE_RANK=number)
        environment["TORCHELASTIC_ERROR_FILE"] = error_file(errors, local)
        words = list(self.words)
        if self.local_rank_at >= 0:
            words.insert(self.local_rank_at, "--local-rank=%d" % local)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            if self.relay is not None:
                self.relay.close()
            self.restore_signals()
            if self.preload is not None:
                self.preload.run(words[PYTHON:], environment)  # type: ignore[attr-defined]
            run(words, environment)
        self.pids.append(pid)
        self.running.add(pid)

    def open_store(self) -> None:
        """Start the process that has the store of all ranks. Raises OSError."""
        place = [self.environment[name] for name in ("MASTER_ADDR", "MASTER_PORT")]
        parent = str(os.getpid())
        self.store = os.fork()
        if self.store == 0:
            os.setsid()
            if self.relay is not None:
                self.relay.close()
            self.restore_signals()
            run([sys.executable, "-u", "-c", STORE, *place, parent], self.environment)

    def close_store(self) -> None:
        """End the process that has the store."""
        if self.store:
            os.kill(self.store, signal.SIGKILL)  # not reaped: at least a zombie has the number

    def block(self) -> None:
        """Take signals one by one from here on, in `wait`, and leave ended ranks as zombies."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would reap them
        self.mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *STOPS}))

    def restore_signals(self) -> None:
        """Let a rank, in the child, take signals as one of the agent does.

        The agent has handlers for what it stops at, so that a rank has these at their default, also
        where the launcher was started with them ignored (`nohup`).
        """
        for signum in STOPS:
            signal.signal(signum, signal.SIG_DFL)
        if self.preload is not None:  # as a new Python has it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, self.child_signal)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def update(self) -> bool:
        """Look which ranks have ended; return whether one of them, or the store, has failed."""
        for pid in sorted(self.running):
            code = exit_code_of(pid)
            if code is not None:
                self.running.discard(pid)
                self.code = self.code or code
        if self.store and not self.code and self.running:
            code = exit_code_of(self.store)
            if code is not None:
                os.write(2, b"safelaunch: the store of the ranks has ended with %d\n" % code)
                self.code = code or 1
        return bool(self.code)

    def send(self, signum: int) -> None:
        """Send a signal to the process group of each rank that runs, and to all it has started."""
        for pid in self.pids:
            if pid in self.running:
                try:
                    os.killpg(pid, signum)
                except OSError:  # it is not yet the leader of a group, or has just ended
                    try:
                        os.kill(pid, signum)
                    except OSError:
                        pass

    def wait(self, until: "float | None") -> int:
        """Wait until something happens; return the signal, or 0 where none has come in time."""
        rest = None if until is None else max(until - time.monotonic(), 0.0)
        awaited = {signal.SIGCHLD, *STOPS}
        info = signal.sigwaitinfo(awaited) if rest is None else signal.sigtimedwait(awaited, rest)
        self.sender = info.si_pid if info else 0
        if self.relay is not None and info and info.si_signo in STOPS:
            self.sender = self.relay.sender(self.sender)
        return int(info.si_signo) if info else 0


def exit_code_of(pid: int) -> "int | None":
    """Return the exit code of a child, of a signal 128 + its number; None while it runs."""
    # WNOWAIT leaves the zombie, and with it the exit status
    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is None:
        return None
    return info.si_status + (0 if info.si_code == os.CLD_EXITED else 128)


def error_file(folder: str, local: int) -> str:
    """Return where a rank may write what it failed of, in a folder of its own; "" for nowhere."""
    if not folder:
        return ""
    own = os.path.join(folder, str(local))
    try:
        os.makedirs(own, 0o700, exist_ok=True)
    except OSError:
        return ""
    return os.path.join(own, "error.json")


def error_folder() -> str:
    """Return the folder of this attempt's error files; "" for a start by hand."""
    node, attempt = os.environ.get("SAFELAUNCH_NODE_DIR"), os.environ.get("SAFELAUNCH_ATTEMPT", "1")
    return os.path.join(node, "errors", "attempt-" + attempt) if node else ""


def inherited(environ: "dict[str, str]", folder: str, *, upper_case: bool) -> "dict[str, str]":
    """Return what ranks inherit: the environment, changed as accelerate changes it.

    `folder` is the one that ends PYTHONPATH; "" for none.
    """
    environment = dict(environ)
    if folder:
        paths = [path for path in environ.get("PYTHONPATH", "").split(":") if path]
        environment["PYTHONPATH"] = ":".join([*paths, folder])
    if upper_case:
        for name, value in list(environment.items()):  # of two such names the later one stays
            upper = name.upper()
            if upper not in OF_AGENT and not upper.startswith(OF_AGENT_PREFIXES):
                environment[upper] = value
    return environment


def run(words: "list[str]", environment: "dict[str, str]") -> "NoReturn":
    """Become the program of a rank, in the child."""
    try:
        for signum in RESTORED:
            signal.signal(signum, signal.SIG_DFL)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:  # noqa: PLR2004 - what setup has opened, as the agent closes it
                try:
                    os.close(int(name))
                except OSError:
                    pass  # that of the listing
        os.execvpe(words[0], words, environment)  # noqa: S606 - words, no shell
    except BaseException as e:  # noqa: BLE001 - nothing of this may run on in the child
        os.write(2, ("safelaunch: cannot start %s: %s\n" % (words[0], e)).encode())
    finally:
        os._exit(NOT_RUN)


def end(ranks: Ranks, signum: int, received: int = 0) -> None:
    """End what still runs: the signal, then KILL, at once where `received` comes again.

    A supervisor that has sent it has a grace of its own, which may be long, and kills after it.
    """
    is_own = received and str(ranks.sender) == os.environ.get("SAFELAUNCH_SUPERVISOR")
    ranks.send(signum)
    for patience, following in ((PATIENCE, signal.SIGKILL), (AFTER_KILL, 0)):
        until = None if is_own and following else time.monotonic() + patience
        while ranks.running and (until is None or time.monotonic() < until):
            again = ranks.wait(until)
            if again in STOPS:
                if again == received and following:
                    break
                received = received or again
                ranks.send(again)
            ranks.update()
        if ranks.running and following:
            ranks.send(following)


def die(signum: int) -> int:
    """End this process as the signal does; return the code for it where that is not possible."""
    if signum == signal.SIGQUIT:
        import resource  # noqa: PLC0415 - a start does without it

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # nobody wants to look into this process
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
    return 128 + signum


def follow(ranks: Ranks, grace: float) -> int:
    """Wait for all ranks; return the exit code of the first one that failed.

    Where a signal has ended them, and none had failed before: the negative number of it.
    """
    until = None  # type: float | None
    while ranks.running:
        signum = ranks.wait(until)
        if ranks.update() and until is None:
            until = time.monotonic() + grace
        if signum in STOPS:
            code = ranks.code
            end(ranks, signum, signum)
            return code or -signum
        if until is not None and ranks.running and time.monotonic() >= until:
            end(ranks, signal.SIGTERM)
            break  # also where one of them, in a driver, has outlived KILL
    return ranks.code


def main(arguments: "list[str]") -> int:
    """Start the ranks, wait for their end, and return the exit code."""
    values, words = parse(arguments)
    names = [name for name in values.get("--preload", "").split(",") if name]
    node_dir = os.environ.get("SAFELAUNCH_NODE_DIR")
    if names and node_dir and "--fork-server" in values:
        code = start_or_resume(arguments, names, node_dir)
    else:
        code = start(arguments, import_once(names, values, words) if names else None)
    return code if code >= 0 else die(-code)


def start_or_resume(arguments: "list[str]", names: "list[str]", node_dir: str) -> int:
    """Start the ranks in the process that has imported their modules, or import them for all."""
    # its folder is in front of the path: that of this script
    import safelaunch_fork_server as server  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

    values, words = parse(arguments)
    own = PYTHON + (2 if words[PYTHON] == "-m" else 1)
    around = server.surroundings(names, words[:own])
    inherited_descriptors = server.open_descriptors()
    began = time.time_ns()
    code = server.resume(node_dir, arguments, around)
    if code is None:
        preload = import_once(names, values, words)
        if preload is not None:
            server.keep(
                node_dir,
                around,
                inherited_descriptors,
                began,
                lambda later, relay: start(later, preload, relay),
            )
        code = start(arguments, preload)
    return int(code)


def parse(arguments: "list[str]") -> "tuple[dict[str, str], list[str]]":
    """Return the options and the words of a rank."""
    at = arguments.index("--")
    values = {}  # type: dict[str, str]
    for option in arguments[:at]:
        name, _, value = option.partition("=")
        values[name] = value
    words = arguments[at + 1 :]
    if "--python" in values:
        words[0] = os.environ.get("PYTHON_EXEC", sys.executable)
    return values, words


def start(arguments: "list[str]", preload: "object | None", relay: "Relay | None" = None) -> int:
    """Start the ranks and wait for them; return the exit code, or a signal as a negative one."""
    values, words = parse(arguments)
    program = local_rank_index(words) if "--local-rank" in values else -1
    count, first = int(values["--ranks"]), int(values.get("--first", "0"))
    folder = os.getcwd() if "--own-folder" in values else ""
    environment = inherited(dict(os.environ), folder, upper_case="--upper-case" in values)
    if "--new-run-id" in values:
        environment["TORCHELASTIC_RUN_ID"] = new_run_id()
    errors = error_folder()
    ranks = Ranks(first, words, program, environment, preload, relay=relay)
    ranks.block()
    try:
        if "--store" in values:
            ranks.open_store()
        for local in range(count):
            ranks.start(local, errors)
    except OSError as e:
        message = "safelaunch: rank %d cannot be started: %s\n" % (first + len(ranks.pids), e)
        os.write(2, message.encode())
        end(ranks, signal.SIGTERM)
        code = 1
    else:
        code = follow(ranks, float(values.get("--grace", "0")))
    ranks.close_store()
    return code


def import_once(
    names: "list[str]", values: "dict[str, str]", words: "list[str]"
) -> "object | None":
    """Return the module that runs ranks as forks; None, with the reason printed, for none."""
    # its folder is in front of the path: that of this script
    import safelaunch_preload  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

    if words[0] != sys.executable:
        why = "PYTHON_EXEC names another Python"
    elif "--own-folder" in values:
        why = "the launcher adds a folder to PYTHONPATH"
    else:
        why = safelaunch_preload.import_all(names, words[PYTHON:])
    if not why:
        return safelaunch_preload  # type: ignore[no-any-return,unused-ignore]
    os.write(2, ("safelaunch: each rank imports for itself, no preload: %s\n" % why).encode())
    return None


def new_run_id() -> str:
    """Return a random UUID (version 4, RFC 9562)."""
    number = int.from_bytes(os.urandom(16), "big")
    number = number & ~(0xF << 76) | 4 << 76
    number = number & ~(3 << 62) | 2 << 62
    digits = "%032x" % number
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def local_rank_index(words: "list[str]") -> int:
    """Return where `--local-rank=N` goes: behind the script, or behind `-m` and the module."""
    own = 2  # python -u
    return own + (2 if words[own] == "-m" else 1)


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    os._exit(exit_code)  # at once: Python's own end takes its modules apart
