"""Stopping, owning what the job starts, and what happens when others interfere."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import DEADLINE, wait_for

from safelaunch.runtime import cgroup, claim, processes, run_state
from safelaunch.runtime.backends import tmux
from safelaunch.runtime.records import Process, RunRecord
from safelaunch.runtime.supervise import journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.workspace import Place

FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(60)\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FOREVER
POLITE = (
    "import signal, sys\ndef end(*_):\n    print('saved', flush=True)\n    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, end)\n" + FOREVER
)


def up(place: Place, job: str, *words: str, **options: Any) -> str:
    """Start a job and wait until its program is up."""
    run = place.start(job, *words, **options)
    place.wait_for_text(run, "up")
    return run


def both_up(place: Place, job: str) -> str:
    """Start a job of two ranks and wait until both are up."""
    run = place.start(job)
    place.wait_for_text(run, "[0] up")
    place.wait_for_text(run, "[1] up")
    return run


def end_supervisor(place: Place, run: str) -> None:
    """Kill a run's supervisor, as an OOM killer would."""
    who = place.status(run)["supervisor"]
    assert processes.send(who["pid"], who["start"], signal.SIGKILL)
    wait_for(lambda: not processes.is_alive(Process.from_json(who)), "death of the supervisor")


def test_stop_gives_the_program_time_to_save(place: Place) -> None:
    run = up(place, place.job(POLITE))
    shown = place.json("stop", run)
    assert (shown["state"], shown["alive"]) == ("stopped", 0)
    origin = f"`safelaunch stop` ({processes.user_name(os.getuid())})"
    assert shown["stop_origin"] == origin
    log = place.wait_for_text(run, "saved")
    assert log.splitlines() == ["up", f"[safelaunch] stopped by {origin}: stopping", "saved"]


def test_a_line_of_the_job_stays_whole_when_it_is_stopped(place: Place) -> None:
    run = place.start(place.job("import time\nprint('up', end='', flush=True)\n" + FOREVER[12:]))
    place.wait_for_text(run, "up")
    who = place.status(run)["supervisor"]
    processes.send(who["pid"], who["start"], signal.SIGTERM)
    place.ended(run)
    log = place.wait_for_text(run, "stopping").splitlines()
    by = f"SIGTERM from pid {os.getpid()} "
    assert log[-1].startswith(f"[safelaunch] stopped by {by}(")
    assert place.status(run)["stop_origin"].startswith(by)


def test_stop_kills_after_the_grace(place: Place, ranks_job: Callable[..., str]) -> None:
    run = both_up(place, ranks_job(STUBBORN))
    output = " ".join(place.cli("stop", "--grace", "0.5", run).stdout.split())
    assert "no process is left" in output
    assert place.status(run)["signal"] == "SIGKILL" or place.status(run)["exit_code"] is not None
    assert processes.marked(run) == {}


def test_a_second_stop_with_less_grace_counts(place: Place, ranks_job: Callable[..., str]) -> None:
    run = both_up(place, ranks_job(STUBBORN))
    patient = place.popen("stop", "--grace", "600", run)
    wait_for(lambda: any(e["event"] == "stopping" for e in place.events(run)), "stop")
    assert place.json("stop", "--grace", "0", run)["state"] == "stopped"
    assert patient.wait(timeout=DEADLINE) == 0


def test_a_stopped_process_is_woken_to_stop(place: Place) -> None:
    run = up(place, place.job(POLITE))
    for pid, start in processes.marked(run).items():
        processes.send(pid, start, signal.SIGSTOP)
    assert place.json("stop", run)["state"] == "stopped"
    assert "saved" in place.wait_for_text(run, "saved")


def test_stopping_an_ended_run_says_so(place: Place) -> None:
    run = place.start(place.job("print('x')"))
    place.ended(run)
    result = place.cli("stop", run)
    assert "had already ended: succeeded" in result.stdout
    assert place.status(run)["state"] == "succeeded"


def test_what_outlives_the_launcher_is_owned(place: Place) -> None:
    program = (
        "import os, subprocess, time\n"
        "subprocess.Popen(['env', '-i', 'setsid', 'sleep', '12345'])\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        print('grandchild', flush=True)\n        time.sleep(12345)\n    os._exit(0)\n"
        + FOREVER
    )
    run = up(place, place.job(program))
    supervisor = place.status(run)["supervisor"]["pid"]
    place.wait_for_text(run, "grandchild")
    below = processes.descendants(supervisor)
    assert len(below) >= 3
    place.cli("stop", run)
    assert [p for p, start in below.items() if processes.start_time(p) == start] == []


def test_leftovers_are_ended_and_told(place: Place) -> None:
    is_up = "until grep -qx sleep /proc/$!/comm; do sleep 0.01; done"
    run = place.start(place.shell(f"env -i setsid sleep 12345 & {is_up}; exit 0"))
    status = place.ended(run)
    assert (status["state"], status["leftovers"]) == ("succeeded", 1)
    (process,) = status["leftover_processes"]
    event = next(e for e in place.events(run) if e["event"] == "leftovers")
    assert event["names"] == [f"{process['pid']} sleep"]
    shown = " ".join(place.cli("show", run).stdout.split())
    assert re.search(r"1 process outlived .* after .* s: sleep \(pid \d+\), ran", shown)
    assert "succeeded, 1 leftover" in place.cli("ps").stdout
    assert run_state.remaining(str(place.node(run)), run) == {}


WAITS = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"


def outlived(place: Place, job: str) -> str:
    """Start a job and wait until its launcher has ended, and the run goes on."""
    run = place.start(job)
    wait_for(lambda: place.events(run, "launcher-ended"), "end of the launcher")
    return run


def test_a_run_goes_on_as_long_as_a_program_in_the_background(place: Place) -> None:
    place.write("train.py", WAITS + "raise KeyError('late')\n")
    python = shlex.quote(sys.executable)
    run = outlived(place, place.shell(f"nohup {python} train.py --token s3cr3t > t.log 2>&1 &"))
    left = wait_for(lambda: place.status(run).get("leftover_processes"), "what goes on")
    (process,) = left
    assert process["command"].endswith(" train.py")
    running = f"still running: {process['command']} (pid {process['pid']})"
    place.wait_for_text(run, f"[safelaunch] the launcher has ended with 0; {running}")
    shown = " ".join(place.cli("show", run).stdout.split())
    assert f"running, the launcher has ended with 0, {running}" in shown
    assert "running, launcher ended" in place.cli("ps").stdout
    place.write("go", "")
    status = place.ended(run)
    assert (status["state"], status["exit_code"], status.get("leftovers")) == ("failed", 0, None)
    failure = place.json("show", run)["failure"]
    assert (failure["what"], failure["rank"]) == ("KeyError: 'late'", 0)


def test_a_run_waits_for_what_a_rank_has_left_without_environment(place: Place) -> None:
    place.write("writer.py", WAITS + "open('checkpoint', 'w').close()\n")
    left = f"['env', '-i', 'setsid', {sys.executable!r}, '-S', 'writer.py']"
    run = outlived(place, place.job(f"import subprocess\nsubprocess.Popen({left})\n"))
    place.write("go", "")
    status = place.ended(run)
    assert (status["state"], status.get("leftovers")) == ("succeeded", None)
    assert (place.project / "checkpoint").exists()


def test_what_works_after_a_failed_script_can_be_stopped(place: Place) -> None:
    place.write("train.py", WAITS)
    job = place.shell(f"{shlex.quote(sys.executable)} train.py & exit 3")
    run = outlived(place, job)
    shown = place.json("stop", run)
    assert (shown["state"], shown["exit_code"], shown["alive"]) == ("stopped", 3, 0)
    assert run_state.remaining(str(place.node(run)), run) == {}


def test_a_lost_run_is_told_and_can_be_stopped(place: Place) -> None:
    program = "import subprocess\nsubprocess.Popen(['env', '-i', 'setsid', 'sleep', '12345'])\n"
    run = up(place, place.job(program + FOREVER))
    wait_for(lambda: len(run_state.recorded(str(place.node(run)))) == 2, "record")
    end_supervisor(place, run)
    shown = place.json("show", run)
    assert (shown["state"], shown["alive"]) == ("lost", 2)
    assert "lost, 2 alive" in place.cli("ps").stdout
    stopped = place.json("stop", run)
    assert (stopped["state"], stopped["alive"]) == ("stopped", 0)
    assert run_state.remaining(str(place.node(run)), run) == {}
    assert place.json("show", run)["state"] == "stopped"


def test_what_starts_after_the_supervisors_death_is_found_and_ended(place: Place) -> None:
    program = (
        "import os, sys, time\nprint('up', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        open('pid', 'w').write(str(os.getpid()))\n"
        "        os.execve('/bin/sleep', ['kworker/0:1', '12345'], {})\n    os._exit(0)\n"
    )
    run = up(place, place.job(program + FOREVER))
    if place.status(run).get("cgroup") is None:
        pytest.skip("no cgroup of its own here")
    end_supervisor(place, run)
    place.write("go", "")
    pid = place.project / "pid"
    number = int(wait_for(lambda: pid.exists() and pid.read_text(), "detached process"))
    wait_for(lambda: processes.marked(run).keys() ^ {number}, "end of its mark")
    assert "no process is left" in " ".join(place.cli("stop", run).stdout.split())
    assert processes.start_time(number) is None
    assert not os.path.exists(place.status(run)["cgroup"])


def test_of_a_lost_run_all_commands_tell_the_same(place: Place) -> None:
    steps = "for n in range(1, 4): print(f'step {n}/9 loss 0.5', flush=True)\n"
    run = both_up(place, place.ranks(steps + FOREVER))
    wait_for(lambda: (place.status(run).get("progress") or {}).get("step") == 3, "progress")
    end_supervisor(place, run)
    at = place.status(run)["as_of"]
    show = " ".join(place.cli("show", run).stdout.split())
    assert time.strftime("as of %Y-%m-%d %H:%M:%S", time.localtime(at)) in show
    assert f"next safelaunch stop {run} ends the remaining processes" in show
    assert (
        f"3/9, loss 0.5 at {time.strftime('%H:%M', time.localtime(at))}" in place.cli("ps").stdout
    )
    cut = "the combined log ends where the supervisor died; the ranks' own logs continue"
    own = f"safelaunch logs --rank 0 {run}"
    shown = place.cli("logs", run)
    assert "step 3/9" in shown.stdout
    assert f"{cut}: {own}" in " ".join(shown.stderr.split())
    assert place.cli("logs", "--rank", "0", run).stderr == ""
    refused = place.cli("attach", run, code=1).stderr
    assert "is gone, and its tmux pane; 3 processes alive" in refused
    assert own in refused
    waited = " ".join(place.cli("wait", "--timeout", "0.1", run, code=1).stderr.split())
    assert "the supervisor is gone; waiting for 3 processes still alive" in waited
    assert "still running" not in waited


def test_who_follows_a_run_that_loses_its_supervisor_is_told_once(place: Place) -> None:
    run = up(place, place.ranks(FOREVER))
    out, err = place.root / "out", place.root / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        client = place.popen("logs", "-f", run, stdout=stdout, stderr=stderr)
    wait_for(lambda: b"[1] up" in out.read_bytes(), "line")
    end_supervisor(place, run)
    wait_for(lambda: b"the combined log ends" in err.read_bytes(), "word of it")
    assert place.json("stop", run)["state"] == "stopped"
    assert client.wait(timeout=DEADLINE) == 0
    assert err.read_bytes().count(b"the combined log ends") == 1


def test_a_run_that_was_found_dead_is_not_said_to_have_run_until_then(place: Place) -> None:
    run = up(place, place.job(FOREVER))
    end_supervisor(place, run)
    processes.end_all(lambda: processes.marked(run), lambda: True)
    hour_ago = time.time() - 3600
    status = json.loads((place.node(run) / "status.json").read_text())
    group = status.pop("cgroup", "")  # as on most machines
    (place.node(run) / "status.json").write_text(json.dumps({**status, "started_at": hour_ago}))
    for log in place.logs(run).iterdir():
        os.utime(log, (hour_ago + 60, hour_ago + 60))
    os.utime(place.node(run) / "status.json", (hour_ago + 30, hour_ago + 30))
    output = " ".join(place.cli("stop", run).stdout.split())
    assert "last sign of life after 1 min 0 s" in output
    assert "no process that can be recognised is left" in output
    cgroup.remove(group)
    assert "ran" not in output
    assert "ran 1 min 0 s+" in place.cli("ps").stdout
    assert "the combined log ends" in " ".join(place.cli("logs", run).stderr.split())


def test_all_output_is_in_the_logs_when_the_supervisor_is_gone(place: Place) -> None:
    program = (
        "import os, subprocess, time\nprint('up', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(.01)\n"
        "for n in range(5000): print(n)\nprint('last', flush=True)\n"
        "subprocess.run('echo x | tee /dev/stderr', shell=True)\n" + FOREVER
    )
    run = both_up(place, place.ranks(program))
    copier = place.status(run)["log_copier"]
    end_supervisor(place, run)
    place.write("go", "")
    whole = "up\n" + "".join(f"{n}\n" for n in range(5000)) + "last\nx\nx\n"
    for rank in (0, 1):
        place.wait_for_text(run, "x\nx\n", f"rank-{rank}.log")
        assert (place.logs(run) / f"rank-{rank}.log").read_text().startswith(whole)
    assert place.status(run)["state"] == "lost"
    place.cli("stop", run)
    assert not processes.is_alive(Process.from_json(copier))
    assert list((place.node(run) / "pipes").iterdir()) == []


@pytest.mark.tmux
def test_the_job_outlives_its_tmux_server(place: Place) -> None:
    run = up(place, place.job(FOREVER))
    socket = place.status(run)["socket"]
    pid = subprocess.run(
        ["tmux", "-S", socket, "display-message", "-p", "#{pid}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    os.kill(int(pid), signal.SIGKILL)
    wait_for(lambda: not tmux.serves(socket), "death of tmux")
    assert place.json("show", run)["state"] == "running"
    refused = place.cli("attach", run, code=1)
    assert "tmux server" in refused.stderr
    assert "job keeps running" in refused.stderr
    output = place.cli("show", run).stdout
    assert "its tmux server is gone" in output
    assert "tmux -S" not in output
    assert place.json("stop", run)["state"] == "stopped"


def test_a_hangup_is_ignored(place: Place) -> None:
    run = up(place, place.job(POLITE))
    who = place.status(run)["supervisor"]
    for signum in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        processes.send(who["pid"], who["start"], signum)
    shown = place.json("stop", run)
    assert (shown["state"], shown["stopped_by"]) == ("stopped", "SIGTERM")


def test_two_jobs_do_not_disturb_each_other(place: Place) -> None:
    first = both_up(place, place.ranks(FOREVER, name="one"))
    second = both_up(place, place.ranks(FOREVER, name="two"))
    place.cli("stop", first)
    assert processes.marked(first) == {}
    assert place.json("show", second)["state"] == "running"
    assert len(processes.marked(second)) == 3
    ports = [
        (place.node(run) / "launch.sh").read_text().split("--master_port ")[1].split()[0]
        for run in (first, second)
    ]
    assert ports[0] != ports[1]


def test_a_run_started_by_a_run_is_its_own(place: Place) -> None:
    """The inner supervisor must not carry the outer run's mark."""
    inner = place.job(FOREVER, name="inner")
    outer = place.shell(f"{shutil.which('python3')} --version; exec sleep 600", name="outer")
    outer_run = place.start(outer)
    place.env["SAFELAUNCH_RUN_ID"] = outer_run
    inner_run = up(place, inner)
    del place.env["SAFELAUNCH_RUN_ID"]
    place.cli("stop", outer_run)
    assert place.json("show", inner_run)["state"] == "running"


def test_a_removed_run_directory_comes_back(place: Place) -> None:
    run = up(place, place.job(FOREVER))
    place.remove(run)
    wait_for((place.node(run) / "status.json").exists, "directory")
    assert place.json("ps")["runs"][0]["state"] == "running"
    assert "earlier logs are lost" in " ".join(place.cli("show", run).stdout.split())
    assert place.json("stop", run)["state"] == "stopped"
    assert place.json("show", run)["state"] == "stopped"


def test_while_its_directory_is_gone_a_run_is_not_called_lost(no_tmux: Place) -> None:
    place = no_tmux  # a tmux wakes what stops in its panes
    run = up(place, place.job(FOREVER))
    who = place.status(run)["supervisor"]
    processes.send(who["pid"], who["start"], signal.SIGSTOP)  # it cannot make it again
    try:
        wait_for(lambda: (processes.stat_of(who["pid"]) or "?")[0] == "T", "stop of the supervisor")
        place.remove(run)
        status = run_state.current_status(str(place.node(run)))
        assert (status.state, status.supervisor) == ("running", Process.from_json(who))
        assert "the run directory was removed" in str(status.reason)
    finally:
        processes.send(who["pid"], who["start"], signal.SIGCONT)
    wait_for((place.node(run) / "status.json").exists, "directory")
    assert place.json("stop", run)["state"] == "stopped"


def test_of_a_lost_run_without_a_directory_what_is_left_is_counted_and_ended(place: Place) -> None:
    run = both_up(place, place.ranks(FOREVER))
    group = place.status(run).get("cgroup", "")
    end_supervisor(place, run)
    place.remove(run)
    status = run_state.current_status(str(place.node(run)))
    assert (status.state, status.alive) == ("lost", 3)
    assert run_state.stop(str(place.node(run)), 5.0).alive == 0
    assert run_state.current_status(str(place.node(run))).alive == 0
    cgroup.remove(group)


def test_the_record_of_processes_stays_short(place: Place) -> None:
    """Each short subprocess is recorded; of thousands only those that live are kept."""
    run = up(place, place.shell("echo up; sleep 12345 & sleep 12345; wait"))
    recorded = place.node(run) / "processes.jsonl"
    wait_for(
        lambda: recorded.exists() and len(run_state.recorded(str(place.node(run)))) == 3, "record"
    )
    living = run_state.recorded(str(place.node(run)))
    line = recorded.read_bytes().splitlines(keepends=True)[0]
    stale = line.replace(b'"start": ', b'"start": 9')
    recorded.write_bytes(stale * 10000 + recorded.read_bytes())
    long = recorded.stat().st_size
    assert run_state.recorded(str(place.node(run))) == living
    ours = journal.Journal(str(place.node(run)), RunRecord(id=run, name="job"))
    ours.processes({})
    assert recorded.stat().st_size < long / 1000
    assert run_state.recorded(str(place.node(run))) == living


def unfinished_start(place: Place, starter: Process) -> str:
    """Make a run directory as a start leaves it that has got no further for two minutes."""
    run = "job-20260101-000000-abcd"
    node = place.node(run)
    node.mkdir(parents=True)
    RunRecord(id=run, starter=starter).write(str(node))
    os.utime(node, (time.time() - 120, time.time() - 120))
    return run


def test_a_slow_start_is_pending_and_stop_calls_it_off(place: Place) -> None:
    run = unfinished_start(place, processes.identity(os.getpid()))
    assert place.json("show", run)["state"] == "pending"
    shown = place.json("stop", run)
    assert shown["state"] == "stopped"
    assert "cancelled" in shown["reason"]
    assert not claim.acquire(str(place.node(run)))


def test_a_start_whose_client_was_killed_is_lost(place: Place) -> None:
    run = unfinished_start(place, processes.identity(os.getpid(), start=1))
    shown = place.json("show", run)
    assert (shown["state"], shown["reason"]) == ("lost", "it never started")
    assert place.json("stop", run)["state"] == "stopped"


def test_stop_without_a_name_takes_the_run_that_lives(place: Place) -> None:
    live = place.start(place.job(FOREVER, name="live"))
    place.ended(place.start(place.job("print('x')", name="ended")))
    assert place.json("stop")["id"] == live


@pytest.mark.parametrize("name", [(), ("job",)], ids=["without a name", "by the job's name"])
def test_stop_of_two_that_live_asks_which(place: Place, name: tuple[str, ...]) -> None:
    runs = [place.start(place.job(FOREVER)) for _ in range(2)]
    refused = place.cli("stop", *name, code=2).stderr
    assert "2 runs" in refused
    assert all(run in refused for run in runs)
    assert {place.json("show", run)["state"] for run in runs} == {"running"}
    place.cli("stop", runs[0])
    assert place.json("stop", *name)["id"] == runs[1]


@pytest.mark.stand_in
def test_a_launcher_that_fails_before_its_ranks_says_nothing_of_ranks(place: Place) -> None:
    job = place.ranks("print('x')")
    (place.root / "fake" / "torch" / "distributed" / "run.py").write_text("raise SystemExit(3)")
    status = place.ended(place.start(job))
    assert (status["state"], status["exit_code"], status.get("warning")) == ("failed", 3, None)
