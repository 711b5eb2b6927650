"""Jobs on several hosts: real servers in network namespaces, real torchrun and accelerate, gloo."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from support.faults import two_machines
from support.faults.two_machines import BOTH
from support.ssh import network_namespaces
from support.workspace import DEADLINE, Place, wait_for

from safelaunch.runtime.supervise import peers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.ssh.network_namespaces import Lan

WHY_NOT = network_namespaces.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
# what a rank of gloo does, without the time that torch takes to load
MEET = """
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
while True:
    try:
        if rank == 0:
            peer, _ = socket.create_server(place).accept()
        else:
            peer = socket.create_connection(place)
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
def together():
    try:
        peer.sendall(b"x")
        if peer.recv(1):
            return size
    except OSError:
        pass
    raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by"
                       " peer [%s]:%d" % place)
"""
TRAIN = MEET + "print(f'rank {rank} of {size}, sum {together()}', flush=True)\n"
FOREVER = MEET + "print('up', rank, flush=True)\nwhile True:\n    together(); time.sleep(0.05)\n"
BAD_BATCH = (
    MEET
    + """
together()
def load():
    raise ValueError("bad batch 17")
if rank == 1:
    load()
together()
"""
)


class Ended(NamedTuple):
    """A run that has ended, where it was started from, and what the command printed."""

    place: Place
    output: str


@pytest.fixture(scope="module")
def trained(net: Lan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """Yield a run that has succeeded on both hosts."""
    yield from run_to_end(net, tmp_path_factory.mktemp("trained"), TRAIN, 0)


@pytest.fixture(scope="module")
def crashed(net: Lan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """Yield a run that has failed in rank 1, on the second host."""
    yield from run_to_end(net, tmp_path_factory.mktemp("crashed"), BAD_BATCH, 1)


def run_to_end(net: Lan, root: Path, program: str, code: int) -> Iterator[Ended]:
    with contextlib.closing(Place(root)) as place:
        place.ssh_config(net.ssh_config())
        done = place.cli("remote", *BOTH, "--follow", job(place, program), code=code)
        yield Ended(place, done.stdout + done.stderr)


def job(place: Place, program: str, **keys: object) -> str:
    keys = {"nodes": 2, "profile": "cpu", **keys}
    return place.ranks(program, 1, "job", **keys)


def start(place: Place, file: str) -> str:
    return str(place.json("remote", *BOTH, file)["id"])


def second(net: Lan, run: str) -> Path:
    """Return the node directory of a run on the second host."""
    return net.hosts[1].home("root") / ".safelaunch" / "runs" / run / "node-1"


def await_both(net: Lan, run: str) -> None:
    """Wait until the job has met over both hosts."""
    log = second(net, run) / "logs" / "attempt-1" / "combined.log"
    wait_for(lambda: log.exists() and b"up 1" in log.read_bytes(), "second rank")


def nodes(place: Place, run: str) -> list[str]:
    return [node["state"] for node in place.json("show", run)["nodes"]]


def stops(place: Place, run: str) -> dict[str, Any]:
    """Wait until nothing of a run is left, and return how it ended."""
    place.cli("wait", run, code=1)
    return place.json("show", run)


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.train
@pytest.mark.parametrize("start", ["launcher", "direct"])
def test_real_ranks_meet_over_two_hosts(tmp_path: Path, start: str) -> None:
    # `scripts/bench matrix` trains over them, with each launcher
    assert two_machines.meet("accelerate", str(tmp_path), start) is None


def test_two_hosts_meet_over_the_card_between_them(trained: Ended) -> None:
    assert "gpu1 | [0] rank 0 of 2, sum 2" in trained.output
    assert "gpu2 | [1] rank 1 of 2, sum 2" in trained.output
    plans = [
        json.loads(next(trained.place.home.glob(f"runs/*/node-{node}/plan.json")).read_text())
        for node in (0, 1)
    ]
    for rank, plan in enumerate(plans):
        node = plan["nodes"][rank]
        assert node["env"]["GLOO_SOCKET_IFNAME"]["value"] == network_namespaces.CARD
        assert node["env"]["NCCL_SOCKET_IFNAME"]["value"] == f"={network_namespaces.CARD}"


def test_the_cause_is_told_with_its_host_and_the_other_is_stopped(crashed: Ended) -> None:
    text = one_line(crashed.output)
    assert "rank 1 on gpu2 failed" in text
    assert "ValueError: bad batch 17" in text
    run = crashed.place.json("show")
    assert run["state"] == "failed"
    assert "running" not in nodes(crashed.place, run["id"])
    assert run["failure"]["node"] == 1


def test_a_node_that_is_killed_stops_the_others(far: Place, net: Lan) -> None:
    run = start(far, job(far, FOREVER))
    await_both(net, run)
    net.hosts[1].stop()  # with all that runs there
    try:
        status = stops(far, run)
        shown = far.cli("show", run).stdout
    finally:
        net.hosts[1].restart()
    assert status["state"] == "failed"
    assert "failure gpu2 does not answer" in one_line(shown)
    assert "then rank 0" in one_line(shown)


def test_a_stop_ends_all_nodes(far: Place, net: Lan) -> None:
    run = start(far, job(far, FOREVER))
    await_both(net, run)
    far.cli("stop", run)
    assert nodes(far, run) == ["stopped", "stopped"]


def test_a_stop_that_does_not_reach_a_host_says_which_it_has_stopped(far: Place, net: Lan) -> None:
    run = start(far, job(far, FOREVER))
    await_both(net, run)
    net.hosts[1].stop()
    try:
        done = far.cli("stop", run, code=4)
    finally:
        net.hosts[1].restart()
    assert "gpu1: stopped; not known to be: gpu2" in one_line(done.stderr)


def test_a_node_that_is_stopped_there_stops_the_others(far: Place, net: Lan) -> None:
    run = start(far, job(far, FOREVER))
    await_both(net, run)
    status = json.loads((second(net, run) / "status.json").read_text())
    net.hosts[1].run(f"kill -TERM {status['supervisor']['pid']}")
    nodes = stops(far, run)
    assert nodes["state"] == "stopped"
    assert {node["host"]: node["state"] for node in nodes["nodes"]} == {
        "gpu1": "stopped",
        "gpu2": "stopped",
    }


def test_hosts_that_do_not_reach_each_other_start_nothing(far: Place, net: Lan) -> None:
    route = ("route", "add", "prohibit", f"{net.address(1)}/32")
    net.inside(2, "ip", *route)
    try:
        done = far.cli("remote", *BOTH, job(far, TRAIN), code=2)
    finally:
        net.inside(2, "ip", "route", "del", *route[2:])
    assert "no address of gpu1 is reached" in one_line(done.stderr)
    assert f"gpu2 -> {net.address(1)}" in one_line(done.stderr)
    assert far.json("ps", "--all")["runs"] == []


@pytest.fixture
def by_halves(far: Place, net: Lan) -> tuple[str, ...]:
    """Return the words of a start that the first host can make, and the second cannot."""
    folder = net.hosts[0].home("root") / "work"
    folder.mkdir(exist_ok=True)
    (folder / "job.py").touch()
    hosts = {"gpu1": {"workdir": str(folder)}, "gpu2": {"workdir": "/proc/none"}}
    far.write("hosts.yaml", json.dumps({"hosts": hosts}))
    return ("remote", *BOTH, "--hosts", "hosts.yaml", "--no-sync")


def test_all_or_nothing_is_started(far: Place, net: Lan, by_halves: tuple[str, ...]) -> None:
    before = recorded(net)
    done = far.cli(*by_halves, job(far, TRAIN, log="results/train.log"), code=4)
    assert "error: gpu2: the working directory does not exist" in done.stderr
    assert recorded(net) == before
    assert not (net.hosts[0].home("root") / "work" / "results").exists()
    assert far.json("ps", "--all")["runs"] == []


# as most programs: one rank says the steps, and saves
STEPS = (
    MEET
    + """
for step in range(1, 1 + int(os.environ["STEPS"])):
    together(); time.sleep(0.05)
    if rank == 0:
        print(f"step {step}/{os.environ['STEPS']} loss 0.5", flush=True)
if rank == 0:
    open("model.bin", "w").close()
"""
)


def test_success_is_asked_for_where_rank_0_is(far: Place) -> None:
    success = {"min_steps": 10, "artifacts": ["model.bin"]}
    file = job(far, STEPS, env={"STEPS": "12"}, success=success)
    far.cli("remote", *BOTH, "--follow", file)
    assert nodes(far, far.json("show")["id"]) == ["succeeded", "succeeded"]


def test_a_smoke_run_ends_all_nodes_as_asked(far: Place) -> None:
    file = job(far, STEPS, env={"STEPS": "1000"}, smoke={"success": {"min_steps": 5}})
    done = far.cli("remote", *BOTH, "--smoke", "--follow", file)
    assert "smoke run, ended after" in one_line(done.stderr)
    assert nodes(far, far.json("show")["id"]) == ["succeeded", "succeeded"]


def test_node_0_alone_runs_the_commands_at_the_end_once_all_nodes_have_ended(
    far: Place, net: Lan
) -> None:
    file = job(far, TRAIN + "time.sleep(rank)\n", on_end="date +%s.%N")
    far.cli("remote", *BOTH, "--follow", file)
    shown = far.json("show")
    (step,) = shown["ending"]["steps"]
    other = json.loads((second(net, shown["id"]) / "status.json").read_text())
    assert (step["state"], other.get("ending")) == ("succeeded", None)
    assert step["started_at"] >= other["ended_at"] - 0.5  # its end is sent a moment before


def test_a_node_whose_ranks_never_write_does_not_hang(far: Place) -> None:
    hang = {"action": "stop", "first_progress": "6s", "floor": "6s"}
    file = job(far, STEPS, env={"STEPS": "160"}, hang=hang)
    far.cli("remote", *BOTH, "--follow", file)
    assert nodes(far, far.json("show")["id"]) == ["succeeded", "succeeded"]


def supervisors(net: Lan) -> set[str]:
    """Return the command lines of all supervisors: each has its run directory in it."""
    return {line for host in net.hosts for line in host.processes() if "supervisor.py" in line}


def recorded(net: Lan) -> list[set[Path]]:
    return [set((host.home("root") / ".safelaunch" / "runs").glob("*")) for host in net.hosts]


def test_a_node_that_cannot_start_leaves_no_supervisor_on_the_others(
    far: Place, net: Lan, by_halves: tuple[str, ...]
) -> None:
    earlier = supervisors(net)  # those of nodes that were killed above wait for them for a while
    done = far.cli(*by_halves, job(far, FOREVER), code=4)
    assert "error: gpu2: the working directory does not exist" in done.stderr
    # one that is not told waits for the other node until it gives that up
    wait_for(lambda: not supervisors(net) - earlier, "end of its supervisors", peers.UNHEARD / 2)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGHUP])
def test_an_interrupted_start_leaves_nothing(far: Place, net: Lan, sent: signal.Signals) -> None:
    before, earlier = recorded(net), supervisors(net)
    starts = far.popen("remote", *BOTH, job(far, FOREVER), start_new_session=True)
    wait_for(lambda: recorded(net)[0] - before[0], "start of the first node")
    starts.send_signal(sent)
    _, stderr = starts.communicate(timeout=DEADLINE)
    assert starts.returncode == 130, stderr.decode()
    assert recorded(net) == before
    assert far.json("ps", "--all")["runs"] == []
    wait_for(lambda: not supervisors(net) - earlier, "end of its supervisors")


def test_an_interface_that_the_hosts_file_names_must_be_there(far: Place) -> None:
    far.write("hosts.yaml", json.dumps({"hosts": {"gpu1": {"interface": "ib7"}}}))
    done = far.cli("remote", *BOTH, "--hosts", "hosts.yaml", job(far, TRAIN), code=2)
    assert "gpu1 has no interface `ib7`" in one_line(done.stderr)
    assert network_namespaces.CARD in done.stderr


def test_a_restart_restarts_all_nodes(far: Place) -> None:
    program = (
        MEET
        + """
print("attempt", os.environ["SAFELAUNCH_ATTEMPT"], "sum", together(), flush=True)
if os.environ["SAFELAUNCH_ATTEMPT"] == "1":
    for step in (20, 40) if rank == 0 else (20,):  # the second node has not come to its last save
        os.makedirs(f"checkpoint-{step}")
        open(f"checkpoint-{step}/model.pt", "wb").write(b"x")
    together()
    if rank == 1:
        os.kill(os.getpid(), 9)
print("args", *sys.argv[1:], flush=True)
together()
"""
    )
    recovery = {
        "max_restarts": 1,
        "backoff": "1s",
        "no_progress": 3,
        "checkpoint": "checkpoint-*",
        "resume_args": ["--resume={checkpoint}"],
    }
    file = job(far, program, recovery=recovery)
    done = far.cli("remote", *BOTH, "--follow", file)
    assert "gpu1 | [0] attempt 2 sum 2" in done.stdout
    assert "gpu2 | [1] attempt 2 sum 2" in done.stdout
    # the newest that both have
    resumed = re.findall(r"gpu([12]) \| \[[01]\] args --resume=/\S+/checkpoint-20\n", done.stdout)
    assert sorted(resumed) == ["1", "2"]
    assert "succeeded, attempt 2" in one_line(done.stderr)


def test_a_node_that_is_stopped_before_a_restart_stops_the_others(far: Place, net: Lan) -> None:
    recovery = {"max_restarts": 1, "backoff": "60s", "no_progress": 3}
    kill = MEET + "together()\nif rank == 1:\n    os.kill(os.getpid(), 9)\ntogether()\n"
    run = start(far, job(far, kill, recovery=recovery))
    waits = "attempt 2 in 60 s"
    wait_for(lambda: far.cli("logs", run, code=None).stdout.count(waits) == 2, "waiting")
    status = json.loads((second(net, run) / "status.json").read_text())
    net.hosts[1].run(f"kill -TERM {status['supervisor']['pid']}")
    assert stops(far, run)["state"] == "stopped"
    assert nodes(far, run) == ["stopped", "stopped"]


# as accelerate where the job's own config says NO: one process, which is told of no others
ALONE = "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, sys.argv[-1]]))\n"


@pytest.mark.stand_in
def test_nodes_that_train_alone_have_failed(far: Place) -> None:
    file = job(far, "print('alone')")
    (far.root / "fake" / "torch" / "distributed" / "run.py").write_text(ALONE)
    done = far.cli("remote", *BOTH, "--follow", file, code=1)
    assert "each node has trained alone" in one_line(done.stderr)


WRAPPED = '["sh", "-c", \'"$@"; exit $?\', "sh", sys.executable, *words]'


@pytest.mark.stand_in
@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_a_rank_of_a_smaller_world_ends_before_it_trains(
    far: Place, capture: bool, is_wrapped: bool
) -> None:
    file = job(far, "print('trains alone')", capture=capture)
    launcher = far.root / "fake" / "torch" / "distributed" / "run.py"
    text = launcher.read_text().replace("nodes * count", "count").replace("node * count", "0")
    ranks = WRAPPED if is_wrapped else "[sys.executable, *words]"
    launcher.write_text(text.replace("[sys.executable, *words]", ranks))
    done = far.cli("remote", *BOTH, "--follow", file, code=1)
    assert "trains alone" not in done.stdout
    assert "WORLD_SIZE is 1, planned were 2 ranks" in done.stdout


def test_one_file_system_is_synced_once(far: Place, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    entry = {"workdir": str(shared)}
    far.write("hosts.yaml", json.dumps({"hosts": {"gpu1": entry, "gpu2": entry}}))
    words = ("remote", *BOTH, "--hosts", "hosts.yaml", "--follow")
    done = far.cli(*words, job(far, TRAIN))
    assert "gpu1, gpu2" in done.stderr
    assert [path.name for path in shared.glob(".safelaunch-seen*")] == []


@pytest.mark.parametrize("is_shared", [False, True])
def test_new_files_of_a_copy_are_in_the_project_s_folder_in_the_end(
    far: Place, net: Lan, tmp_path: Path, is_shared: bool
) -> None:
    entry = {"workdir": str(tmp_path / "shared") if is_shared else "~/copied"}
    far.write("hosts.yaml", json.dumps({"hosts": {"gpu1": entry, "gpu2": entry}}))
    words = (*BOTH, "--hosts", "hosts.yaml")
    first = str(far.json("remote", *words, job(far, FOREVER))["id"])
    far.write("lib.py", "made = 'made'\n")
    writes = "import lib\nopen(f'{lib.made}-{rank}', 'w').close()\n"
    done = far.cli("remote", *words, "--follow", job(far, TRAIN + writes))
    assert f"is in use by {first}: a copy is made" in one_line(done.stderr)
    if is_shared:  # one of the nodes may still write into it: the next sync moves the files
        far.cli("stop", first)
        far.cli("remote", *words, "--follow", job(far, TRAIN))
    for rank, host in enumerate(net.hosts):
        place = tmp_path / "shared" if is_shared else host.home("root") / "copied"
        assert (place / f"made-{rank}").is_file()
        assert not (place / f"made-{rank}").is_symlink()
    if not is_shared:
        far.cli("stop", first)


def test_on_one_file_system_each_node_writes_a_log_of_its_own(far: Place, tmp_path: Path) -> None:
    entry = {"workdir": str(tmp_path / "shared")}
    far.write("hosts.yaml", json.dumps({"hosts": {"gpu1": entry, "gpu2": entry}}))
    words = ("remote", *BOTH, "--hosts", "hosts.yaml", "--follow")
    far.cli(*words, job(far, TRAIN, log="train.log"))
    assert "rank 0 of 2" in (tmp_path / "shared" / "train.log").read_text()
    assert "rank 1 of 2" in (tmp_path / "shared" / "train.node-1.log").read_text()


def test_progress_bars_of_two_nodes_are_a_line_each_in_a_file(far: Place) -> None:
    bar = """
    for step in range(40):
        print(f"\\r{step}/40", end="", flush=True)
        time.sleep(0.02)
    print(f"\\nrank {rank} is done")
    """
    file = job(far, MEET + "together()\n" + textwrap.dedent(bar))
    done = far.cli("remote", *BOTH, "--follow", file)
    for lines in (done.stdout, far.cli("logs").stdout):
        assert lines.count("/40") == 2
        assert lines.count("39/40") == 2
    assert far.cli("logs", "--raw").stdout.count("/40") == 80


def test_a_rank_of_another_node_has_its_own_log(trained: Ended) -> None:
    logs = trained.place.cli("logs", "--rank", "1").stdout
    assert logs.strip().splitlines()[-1] == "rank 1 of 2, sum 2"
    assert "rank 0" not in trained.place.cli("logs", "--node", "1").stdout


def test_another_laptop_sees_both_nodes(trained: Ended, tmp_path: Path) -> None:
    laptop = trained.place
    environment = {**laptop.env, "SAFELAUNCH_HOME": str(tmp_path / "other")}
    laptop.cli("ps", "--host", "gpu2", env=environment)
    run = laptop.json("show")["id"]
    assert "1 of 2 known here" in one_line(laptop.cli("show", run, env=environment).stdout)
    assert "rank 1 of 2" in laptop.cli("logs", run, env=environment).stdout
    laptop.cli("ps", "--host", "gpu1", env=environment)
    shown = one_line(laptop.cli("show", run, env=environment).stdout)
    assert "0 gpu1: succeeded" in shown
    assert "1 gpu2: succeeded" in shown


def test_who_knows_one_host_alone_is_told_of_the_other(crashed: Ended, tmp_path: Path) -> None:
    laptop = crashed.place
    environment = {**laptop.env, "SAFELAUNCH_HOME": str(tmp_path / "other")}
    laptop.cli("ps", "--host", "gpu2", env=environment)
    run = laptop.json("show")["id"]
    shown = one_line(laptop.cli("show", run, env=environment).stdout)
    assert "ValueError: bad batch 17" in shown
    assert "1 of 2 known here; for more: safelaunch ps --host gpu1" in shown
    assert laptop.json("show", run, env=environment)["host"] == "gpu2"
    assert "bad batch 17" in laptop.cli("logs", run, env=environment).stdout
    laptop.cli("ps", "--host", "gpu1", env=environment)
    assert "then rank 0" in one_line(laptop.cli("show", run, env=environment).stdout)


def test_who_knows_the_second_host_alone_is_told_how_to_attach(
    far: Place, net: Lan, tmp_path: Path
) -> None:
    run = start(far, job(far, FOREVER))
    await_both(net, run)
    environment = {**far.env, "SAFELAUNCH_HOME": str(tmp_path / "other")}
    far.cli("ps", "--host", "gpu2", env=environment)
    shown = one_line(far.cli("show", run, env=environment).stdout)
    far.cli("stop", run)
    assert f"attach safelaunch attach {run}" in shown
