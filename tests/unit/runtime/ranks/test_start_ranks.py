"""The program that starts ranks without a launcher, run as a job's Python runs it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.python_versions import interpreter
from support.workspace import DEADLINE, wait_for

from safelaunch import runtime
from safelaunch.runtime.ranks import start_ranks

STARTER = os.path.join(runtime.FOLDER, "ranks", "start_ranks.py")
# with the time between TERM and KILL as short as a test can wait
IMPATIENT = f"""
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("start_ranks", {STARTER!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.PATIENCE = 0.2
os._exit(module.main(sys.argv[1:]))
"""
NOBODY = 65534
# what each rank of the tests does first: it leaves its pid, in one step
HELLO = 'echo $$ >"$TOLD/.$RANK"; mv "$TOLD/.$RANK" "$TOLD/$RANK"; '
WAIT = 'until [ -e "$TOLD/{}" ]; do read -t 0.02 _ <"$TOLD/fifo" || :; done; '
REST = 'until [ -e "$TOLD/go" ]; do read -t 0.02 _ <"$TOLD/fifo" || :; done'


class Starter:
    """Starts of ranks in a folder where they leave what they found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"PATH": os.environ["PATH"], "TOLD": str(folder)}
        os.mkfifo(folder / "fifo")
        # held open, so that a rank waits at it for its time
        self.fifo = os.open(folder / "fifo", os.O_RDWR)

    def popen(
        self, *options: str, words: tuple[str, ...], ranks: int = 2, **more: Any
    ) -> subprocess.Popen[str]:
        """Start ranks that run words."""
        python, source = more.pop("python", sys.executable), more.pop("source", [STARTER])
        return subprocess.Popen(
            [python, "-I", "-S", "-B", *source, f"--ranks={ranks}", *options, "--", *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            **{"env": self.env, "cwd": self.folder, **more},
        )  # fmt: skip

    def run(self, *options: str, words: tuple[str, ...], **more: Any) -> tuple[int, str]:
        """Start ranks, wait for their end, and return the exit code and the output."""
        with self.popen(*options, words=words, **more) as process:
            try:
                out, _ = process.communicate(timeout=DEADLINE)
            finally:
                process.kill()
        return process.returncode, out

    def shell(self, *options: str, text: str, **more: Any) -> tuple[int, str]:
        """Start ranks that run a text of bash."""
        return self.run(*options, words=("bash", "-c", HELLO + text), **more)

    def pid(self, rank: int) -> int:
        """Wait for a rank, and return its pid."""
        path = self.folder / str(rank)
        wait_for(path.exists, f"rank {rank}")
        return int(path.read_text())

    def go(self) -> None:
        """Let ranks end that wait for it."""
        (self.folder / "go").touch()

    def is_gone(self, rank: int) -> bool:
        """Whether a rank that has told its pid runs no more."""
        return state(self.pid(rank)) in ("", "Z")


def stat_fields(pid: int) -> list[str]:
    """Return the fields behind the name in /proc/PID/stat; none of a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def state(pid: int) -> str:
    return (stat_fields(pid) or [""])[0]


@pytest.fixture
def starter(tmp_path: Path) -> Starter:
    return Starter(tmp_path)


# -- what ranks get --------------------------------------------------------------------------------


def test_ranks_have_numbers_from_the_first_of_their_node(starter: Starter) -> None:
    code, out = starter.shell("--first=4", text='echo "$RANK $LOCAL_RANK $ROLE_RANK"', ranks=3)
    assert code == 0
    assert sorted(out.splitlines()) == ["4 0 4", "5 1 5", "6 2 6"]


def test_ranks_are_started_in_order(starter: Starter) -> None:
    assert starter.shell(text="exit 0", ranks=5)[0] == 0
    pids = [starter.pid(rank) for rank in range(5)]
    assert pids == sorted(pids)


def test_a_rank_may_write_its_error_where_the_attempt_is_recorded(starter: Starter) -> None:
    starter.env |= {"SAFELAUNCH_NODE_DIR": str(starter.folder), "SAFELAUNCH_ATTEMPT": "3"}
    code, out = starter.shell(text='echo failed >"$TORCHELASTIC_ERROR_FILE"')
    assert (code, out) == (0, "")
    files = sorted(starter.folder.glob("errors/attempt-3/*/error.json"))
    assert [path.parent.name for path in files] == ["0", "1"]


def test_a_start_by_hand_has_no_file_of_errors(starter: Starter) -> None:
    assert starter.shell(text='echo "<$TORCHELASTIC_ERROR_FILE>"', ranks=1) == (0, "<>\n")


def test_a_rank_has_no_descriptor_but_the_first_three(starter: Starter) -> None:
    with (starter.folder / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        code, out = starter.run(
            words=("sh", "-c", "ls /proc/$$/fd"), ranks=1, pass_fds=(file.fileno(),)
        )
    assert (code, out.split()) == (0, ["0", "1", "2"])


def test_ranks_lead_sessions_of_their_own(starter: Starter) -> None:
    code, out = starter.shell(text="cut -d' ' -f1,5,6 /proc/$$/stat", ranks=2)
    assert code == 0
    for line in out.splitlines():
        assert len(set(line.split())) == 1


def test_a_rank_takes_signals_that_the_caller_ignores(starter: Starter) -> None:
    def ignore() -> None:
        for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGUSR1):
            signal.signal(signum, signal.SIG_IGN)

    code, out = starter.run(
        words=("grep", "SigIgn", "/proc/self/status"),
        ranks=1,
        preexec_fn=ignore,
        restore_signals=False,
    )
    assert code == 0
    # torch's agent has no handler for USR1, so that stays ignored
    assert int(out.split()[1], 16) == 1 << (signal.SIGUSR1 - 1)


def test_python_of_a_rank_is_that_of_the_starter_or_of_python_exec(starter: Starter) -> None:
    words = ("python", "-u", "-c", "import sys; print(sys.executable, sys.argv)")
    assert starter.run("--python", words=words, ranks=1) == (0, f"{sys.executable} ['-c']\n")
    starter.env["PYTHON_EXEC"] = "/bin/echo"
    assert starter.run("--python", words=words, ranks=1)[1].startswith("-u -c import")


@pytest.mark.parametrize("target", [("train.py",), ("-m", "train")])
def test_local_rank_is_the_first_word_of_the_program(
    target: tuple[str, ...], starter: Starter
) -> None:
    program = "import sys; sys.stdout.write('%s\\n' % sys.argv[1:])"  # in one piece
    (starter.folder / "train.py").write_text(program)
    words = ("python", "-u", *target, "--lr", "1")
    code, out = starter.run("--python", "--local-rank", words=words)
    assert code == 0
    assert sorted(out.splitlines()) == [f"['--local-rank={n}', '--lr', '1']" for n in (0, 1)]


def test_a_new_run_id_is_one_for_all_ranks_of_a_start(starter: Starter) -> None:
    starts = [starter.shell("--new-run-id", text="echo $TORCHELASTIC_RUN_ID") for _ in range(2)]
    ids = [set(out.split()) for _, out in starts]
    assert [len(some) for some in ids] == [1, 1]
    assert ids[0] != ids[1]
    assert all(len(word) == 36 and word[14] == "4" and word[19] in "89ab" for word in ids[0])


def test_variables_are_there_in_upper_case_but_those_of_the_agent() -> None:
    environ = {"A": "1", "a": "2", "b": "3", "B": "4", "world_size": "7", "WORLD_SIZE": "2"}
    changed = start_ranks.inherited(environ, "", upper_case=True)
    assert changed == {**environ, "A": "2", "B": "4"}


def test_pythonpath_ends_with_the_own_folder_and_has_no_empty_parts() -> None:
    changed = start_ranks.inherited({"PYTHONPATH": ":a::b:"}, "/here", upper_case=False)
    assert changed == {"PYTHONPATH": "a:b:/here"}
    assert start_ranks.inherited({}, "/here", upper_case=False) == {"PYTHONPATH": "/here"}


# -- how they end ----------------------------------------------------------------------------------


def test_the_exit_code_is_that_of_the_first_rank_that_failed(starter: Starter) -> None:
    text = 'if [ $RANK = 1 ]; then exit 7; fi; trap "exit 9" TERM; ' + REST
    assert starter.shell(text=text)[0] == 7


def test_a_rank_that_a_signal_ended_gives_the_code_of_a_shell(starter: Starter) -> None:
    assert starter.shell(text="kill -KILL $$", ranks=1)[0] == 128 + signal.SIGKILL


def test_a_failed_rank_ends_the_others_by_term(starter: Starter) -> None:
    text = 'trap "echo ended; exit 0" TERM; ' + HELLO + WAIT.format(1) + WAIT.format(2)
    text += "[ $RANK = 0 ] && exit 3; " + REST
    starting = starter.run("--grace=0", words=("bash", "-c", text), ranks=3)
    assert starting == (3, "ended\nended\n")


def test_the_others_may_fail_by_themselves_in_the_time_of_grace(starter: Starter) -> None:
    text = (
        'if [ $RANK = 0 ]; then exit 3; fi; trap "echo TERM" TERM; '
        + REST
        + "; echo own end; exit 4"
    )
    with starter.popen(f"--grace={DEADLINE}", words=("bash", "-c", HELLO + text)) as process:
        wait_for(lambda: starter.is_gone(0), "end of rank 0")
        starter.go()
        out, _ = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out) == (3, "own end\n")


def test_a_rank_that_ignores_term_is_killed(starter: Starter) -> None:
    text = 'trap "" TERM; ' + HELLO + WAIT.format(1) + "[ $RANK = 0 ] && exit 3; " + REST
    code, _ = starter.run("--grace=0", words=("bash", "-c", text), source=["-c", IMPATIENT])
    assert code == 3
    assert starter.is_gone(1)


@pytest.mark.parametrize("signum", start_ranks.STOPS)
def test_a_signal_goes_on_to_all_ranks(signum: signal.Signals, starter: Starter) -> None:
    name = signum.name.removeprefix("SIG")
    text = f'trap "echo $RANK; exit 0" {name}; ' + HELLO + REST
    with starter.popen(words=("bash", "-c", text)) as process:
        for rank in range(2):
            starter.pid(rank)
        process.send_signal(signum)
        out, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == -signum
    # bash says of its own `mv` that the signal has ended it, where it was not yet done
    assert sorted(filter(str.isdigit, out.split())) == ["0", "1"]


def test_a_signal_reaches_what_a_rank_has_started(starter: Starter) -> None:
    text = 'bash -c \'echo $$ >"$TOLD/.child"; mv "$TOLD/.child" "$TOLD/7"; ' + REST + "'; exit 0"
    with starter.popen(words=("bash", "-c", HELLO + text), ranks=1) as process:
        child = starter.pid(7)
        process.terminate()
        process.communicate(timeout=DEADLINE)
    assert wait_for(lambda: state(child) in ("", "Z"), "end of the child")


def test_a_program_that_is_not_there_is_named(starter: Starter) -> None:
    code, out = starter.run(words=("./nothere", "--lr"), ranks=1)
    assert code == 127
    assert out.startswith("safelaunch: cannot start ./nothere: ")
    assert "No such file" in out


def test_a_rank_that_cannot_be_forked_ends_the_start(starter: Starter) -> None:
    def limit() -> None:
        if os.getuid() == 0:  # the limit is not for root
            os.setuid(NOBODY)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

    source = ["-c", Path(STARTER).read_text()]
    code, out = starter.run(
        words=("true",), source=source, python="/usr/bin/python3", cwd="/", preexec_fn=limit
    )
    assert (code, "rank 0 cannot be started" in out) == (1, True), out


def test_an_ended_rank_shows_its_status_until_the_end(starter: Starter) -> None:
    text = "if [ $RANK = 0 ]; then exit 7; fi; " + REST
    with starter.popen(f"--grace={DEADLINE}", words=("bash", "-c", HELLO + text)) as process:
        wait_for(lambda: state(starter.pid(0)) == "Z", "zombie of rank 0")
        assert stat_fields(starter.pid(0))[-1] == str(7 << 8)
        starter.go()
        process.communicate(timeout=DEADLINE)
    assert process.returncode == 7


def test_ends_are_seen_where_the_caller_ignores_them(starter: Starter) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    assert starter.shell(text="exit 3", ranks=1, preexec_fn=ignore)[0] == 3


def test_a_store_that_cannot_be_opened_ends_the_ranks(starter: Starter) -> None:
    starter.env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    text = 'trap "exit 0" TERM; ' + HELLO + REST
    python = interpreter("3.9")  # it has no torch
    words = ("bash", "-c", text)
    code, out = starter.run("--store", "--grace=0", words=words, python=python)
    assert (code, "the store of the ranks has ended with 1" in out) == (1, True), out


def test_nothing_is_left_after_the_end(starter: Starter) -> None:
    assert starter.shell("--grace=0", text="[ $RANK = 0 ] && exit 3; " + REST, ranks=4)[0] == 3
    for rank in range(4):
        if (starter.folder / str(rank)).exists():  # TERM may come before it says its pid
            assert starter.is_gone(rank)


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.12"])
def test_other_versions_of_python_start_ranks(version: str, starter: Starter) -> None:
    code, out = starter.shell(text="echo $RANK", python=interpreter(version))
    assert (code, sorted(out.split())) == (0, ["0", "1"])
