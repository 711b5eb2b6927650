from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from safelaunch.config.write_job import job_yaml
from safelaunch.importer.jobs import make_job
from safelaunch.importer.shell.interpreter import follow
from safelaunch.importer.state import ScriptCaller

if TYPE_CHECKING:
    from pathlib import Path

JOB = "launcher: torchrun\nscript: t.py\nprocesses: 2\n"
SOCKET = "import socket; s = socket.socket(); s.bind(('', 0)); print(s.getsockname()[1])"
LEFT = "left to safelaunch, which takes a free port"
TORCHRUN = "torchrun --nproc_per_node 2"
AT_P = f"{TORCHRUN} --master_port $P t.py"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def imported(tmp_path: Path, text: str, **answers: str) -> list[str] | str:
    """Return the jobs of a script, or what is asked for."""
    (tmp_path / "t.sh").write_text(f"#!/bin/bash\n{text}\n")
    environ = {"HOME": str(tmp_path)}
    findings = follow("t.sh", ScriptCaller(environ, str(tmp_path), (), answers))
    if findings.problems or findings.stop:
        return ", ".join(p.name or p.reason for p in findings.problems) or str(findings.stop)
    return [job_yaml(make_job(item, "t.sh", environ).keys, None) for item in findings.launches]


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --nproc_per_node $(nvidia-smi -L | wc -l) t.py",
        "N=$(nvidia-smi --list-gpus | wc -l)\ntorchrun --nproc-per-node=$N t.py",
        (
            "N=${N:-`nvidia-smi --query-gpu=name --format=csv,noheader | wc -l`}\n"
            'A="--nproc_per_node $N --nnodes 1"\ntorchrun $A t.py'
        ),
        (
            'N=$(python -c "import torch; print(torch.cuda.device_count())")\n'
            "torchrun --nproc_per_node=$N --master_port=$RANDOM t.py"
        ),
        "f() { torchrun --nproc_per_node ${N} t.py; }\nN=$(nvidia-smi -L | wc -l | tr -d ' ')\nf",
    ],
)
def test_a_process_for_each_gpu_of_the_machine_is_left_to_safelaunch(
    text: str, tmp_path: Path
) -> None:
    assert imported(tmp_path, text) == ["launcher: torchrun\nscript: t.py\ngpus: auto\n"]


@pytest.mark.parametrize(
    "text",
    [
        'for v in $(env | grep ^GONE_ | cut -d= -f1); do echo $v; unset "$v"; done',
        "for v in `printenv | awk -F= '/^GONE_/{print $1}'`; do unset -v $v; done",
        "unset $(env | grep -oE '^(GONE|LOST)_[^=]*')",
        "unset $(compgen -e | grep GONE_)",
    ],
)
def test_what_env_lists_is_unset_at_the_start(text: str, tmp_path: Path) -> None:
    jobs = imported(tmp_path, f"{text}\n{TORCHRUN} t.py")
    assert isinstance(jobs, list)
    [line] = yaml.safe_load(jobs[0])["setup"]
    assert "GONE" in line
    shown = subprocess.run(
        ["bash", "-c", f"{line}\nenv"],
        env={"GONE_A": "1", "GONE_B": "GONE", "KEPT": "GONE_", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.partition("=")[0] for line in shown.stdout.splitlines()}
    assert {name for name in names if name[:1] in "GK"} == {"KEPT"}


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --nproc_per_node 1$N t.py",
        "torchrun --nproc_per_node $((N / 2)) t.py",
        "M=$((N - 1))\ntorchrun --nproc_per_node $M t.py",
        "M=$(expr $N / 2)\ntorchrun --nproc_per_node $M t.py",
        "M=$(printf %02d $N)\ntorchrun --nproc_per_node $M t.py",
        "M=${N:0:1}\ntorchrun --nproc_per_node $M t.py",
        "M=${#N}\ntorchrun --nproc_per_node $M t.py",
        "((M = N * 2))\ntorchrun --nproc_per_node $M t.py",
        "M=$(echo $N | tr 8 4)\ntorchrun --nproc_per_node $M t.py",
        "M=8\nif [ $N -lt 8 ]; then M=4; fi\ntorchrun --nproc_per_node $M t.py",
        "torchrun --nproc_per_node $N t.py --gpus $N",
        "torchrun --nproc_per_node $N --nnodes 2 --node_rank 0 --master_addr a t.py",
        "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node $N t.py",
        "M=$(nvidia-smi -L | grep A100 | wc -l)\ntorchrun --nproc_per_node $M t.py",
    ],
)
def test_a_number_of_gpus_that_says_more_is_asked_for(text: str, tmp_path: Path) -> None:
    names = imported(tmp_path, f"N=$(nvidia-smi -L | wc -l)\n{text}")
    assert names in ("N", "M")


@pytest.mark.parametrize(
    "text",
    [
        f"{TORCHRUN} --master_port $RANDOM t.py",
        f"{TORCHRUN} --master_port=$((RANDOM % 1000 + 20000)) t.py",
        f"{TORCHRUN} --master-port 29$((RANDOM % 10))$((RANDOM % 10)) t.py",
        f"export MASTER_PORT=$RANDOM\n{TORCHRUN} t.py",
        f"MASTER_PORT=$RANDOM {TORCHRUN} t.py",
        f"export MASTER_PORT=$RANDOM\n{TORCHRUN} --master_port $MASTER_PORT t.py",
        f"P=${{MASTER_PORT:-$((RANDOM + 1024))}}\n{TORCHRUN} --master_port ${{P}} t.py",
        f": ${{P:=$RANDOM}}\n{AT_P}",
        f"P=$(shuf -i 20000-30000 -n 1)\n{AT_P}",
        f"P=$(seq 20000 30000 | shuf | head -n 1)\n{AT_P}",
        f"P=$(expr 10000 + $(echo -n $SLURM_JOBID | tail -c 4))\n{AT_P}",
        f'P=$(python3 -c "{SOCKET}")\n{TORCHRUN} --master_port $P t.py',
        f"P=$(python find_free_port.py)\n{AT_P}",
        f"free() {{ echo $((RANDOM + 1024)); }}\n{TORCHRUN} --master_port $(free) t.py",
        f"P=29500\nwhile lsof -i:$P; do P=$((P + 1)); done\n{AT_P}",
        f"P=2\nwhile ss -tln | grep -q :$P; do ((P++)); done\n{AT_P}",
        f"for p in 1; do if ! nc a $p; then P=$p; break; fi; done\n{AT_P}",
        f"f() {{ while :; do ss | grep x || break; done; echo 2; }}\nP=$(f)\n{AT_P}",
        f"{TORCHRUN} --rdzv_backend c10d --rdzv_endpoint localhost:$RANDOM --rdzv_id $$ t.py",
        f"export MASTER_ADDR=$(hostname) MASTER_PORT=$RANDOM\n{TORCHRUN} t.py",
        'A="--nproc_per_node 2 --master_port $RANDOM"\ntorchrun $A t.py',
        'A=(--nproc_per_node 2)\nA+=(--master_port $RANDOM)\ntorchrun "${A[@]}" t.py',
        f'C="{TORCHRUN} --master_port $RANDOM t.py"\n$C',
        f'C="{TORCHRUN} --master_port $RANDOM t.py"\neval "$C"',
        "torchrun --master_port ${P:-$RANDOM --nproc_per_node 2} t.py",
        "P=1\ntorchrun --master_port ${P:+$RANDOM --nproc_per_node 2} t.py",
        "torchrun --master_port $(echo $RANDOM --nproc_per_node 2) t.py",
        'P="$RANDOM --nproc_per_node 2"\ntorchrun --master_port ${P:-1} t.py',
        f"P=1\nfor x in 1; do for y in 1; do lsof -i:$y && break 2; P=2; done; done\n{AT_P}",
    ],
)
def test_a_port_that_differs_at_each_start_is_left_to_safelaunch(text: str, tmp_path: Path) -> None:
    assert imported(tmp_path, text) == [JOB]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"P=$RANDOM\n{TORCHRUN} --master_port $P t.py --port $P", "P"),
        (f"P=$RANDOM\n{TORCHRUN} --master_port $P t.py out-$P", "P"),
        (f"D=$(date +%s)\nP=$RANDOM\n{TORCHRUN} --master_port $P t.py --out $D", "D"),
        (f"export P=$RANDOM\n{TORCHRUN} t.py --port $P", "P"),
        (f"N=3\nexport P=$((RANDOM + N))\n{TORCHRUN} t.py", "P"),
        (f"export P=$RANDOM\nP+=0\n{TORCHRUN} t.py", "P"),
        (f"export P=$(shuf -i 1-9 < x)\n{TORCHRUN} t.py", "P"),
        (f"f() {{ date; }}\nexport P=$(f)\n{TORCHRUN} t.py", "P"),
        (
            "export MASTER_PORT=$RANDOM\ntorchrun --nnodes 2 --node_rank 0 --master_addr h t.py",
            "MASTER_PORT",
        ),
        (f"P=$RANDOM\n{TORCHRUN} --nnodes 2 --node_rank 0 --master_port $P t.py", "P"),
        ("P=$RANDOM\nN=$((P % 4 + 1))\ntorchrun --nproc_per_node $N t.py", "P"),
        (f"P=$RANDOM\nif [ $P -gt 9 ]; then X=1; fi\n{TORCHRUN} t.py $X", "P"),
        (f"P=$(cat port)\n{AT_P}", "P"),
        (f"P=1\nif [ -f x ]; then P=2; fi\n{AT_P}", "P"),
        (f"for x in 1 2; do [ -f $x ] && break; P=$x; done\n{AT_P}", "P"),
        (f"{TORCHRUN} --master_port $PORT t.py", "PORT"),
        (f"P=$((PORT + RANDOM))\n{AT_P}", "PORT"),
        (f"P=1\nif lsof -i:1; then P='2 --no_python'; fi\n{AT_P}", "P"),
        (f"RANDOM=42\n{TORCHRUN} --master_port $RANDOM t.py", "RANDOM"),
        ("SECONDS=0\npython t.py $SECONDS", "SECONDS"),
        (f"f() {{ P=$2; }}\nf $RANDOM 29500\n{AT_P}", "P"),
        (f"P=$(cat port-$RANDOM)\n{AT_P}", "P"),
        (f"P=$(echo 1 $RANDOM | cut -d' ' -f1)\n{AT_P}", "P"),
        (f"P=$(while :; do lsof -i:1 && break 2; done)\n{AT_P}", "P"),
        ("X=$([ -f t.py ] && echo a)\npython t.py $X", "X"),
        (f"P=$RANDOM\n{TORCHRUN} --master_port $P t.py\nMASTER_PORT=$P python t.py", "P"),
    ],
)
def test_another_value_that_differs_is_asked_for(text: str, names: str, tmp_path: Path) -> None:
    assert imported(tmp_path, text) == names


@pytest.mark.parametrize(
    ("value", "setup"),
    [
        ("$RANDOM", "'export MASTER_PORT=$RANDOM'"),
        ("$((12000 + $RANDOM % 20000))", "'export MASTER_PORT=$((12000 + $RANDOM % 20000))'"),
        ("$(shuf -i 1024-9999 -n 1)", "'export MASTER_PORT=$(shuf -i 1024-9999 -n 1)'"),
        ('"29$((RANDOM % 100))"', "'export MASTER_PORT=\"29$((RANDOM % 100))\"'"),
    ],
)
def test_an_exported_port_of_a_program_without_launcher_is_made_anew_by_setup(
    value: str, setup: str, tmp_path: Path
) -> None:
    text = f"export MASTER_PORT={value}\npython t.py"
    assert imported(tmp_path, text) == [f"launcher: python\nscript: t.py\nsetup: [{setup}]\n"]


@pytest.mark.parametrize(
    ("text", "setup"),
    [
        ("export X=$(which python)", "export X=$(which python)"),
        (
            "export X=$(git rev-parse HEAD 2>/dev/null)",
            "export X=$(git rev-parse HEAD 2>/dev/null)",
        ),
        ("export N=$(nvidia-smi -L | wc -l)", "export N=$(nvidia-smi -L | wc -l)"),
        ("P=$(which python)\nexport X=a:$P:b", "export X=a:$(which python):b"),
        ("P=/opt\nexport X=$(ls $P)", "export X=$(ls /opt)"),
        ("export PYTHONPATH=$PYTHONPATH:$(which x)", "export PYTHONPATH=$PYTHONPATH:$(which x)"),
        (
            "export PYTHONPATH=${PYTHONPATH}:$(which x)\nexport PYTHONPATH=$PYTHONPATH:.",
            "export PYTHONPATH=${PYTHONPATH}:$(which x):.",
        ),
        ("P=0\nexport X=$RANDOM$P", "export X=${RANDOM}0"),
        ("P=$RANDOM\nexport X=${P}_0", "export X=${RANDOM}_0"),
        ("P=\nexport X=$(ls a$P)", "export X=$(ls a)"),
        ("HOSTNAME=a\nexport X=$HOSTNAME-$(date)", "export X=a-$(date)"),
        ("export master_port=$RANDOM", "export master_port=$RANDOM"),
    ],
)
def test_an_export_that_a_program_makes_is_made_by_setup(
    text: str, setup: str, tmp_path: Path
) -> None:
    (tmp_path / "t.py").touch()
    expected = f"launcher: python\nscript: t.py\nsetup: ['{setup}']\n"
    assert imported(tmp_path, f"{text}\npython t.py") == [expected]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("export X=$(which python)\npython t.py $X", "X"),
        ("export X=$(echo $DATA)\npython t.py", "DATA"),
        ("cd sub\nexport X=$(ls)\ncd ..\npython t.py", "X"),
        ("P=\"$(which 'a b')\"\nexport X=$P\npython t.py", "P"),
        ("P='a b'\nexport X=$(ls $P)\npython t.py", "X"),
        ("export X=$(ls <(cat y))\npython t.py", "X"),
        ("F=%s\nexport X=$(eval 'date +$F')\npython t.py", "X"),
        ("IFS=,\nP=a,b\nexport X=$(ls $P)\npython t.py", "X"),
        ("A=x\nexport X=$(for A in 1; do date +$A; done)\npython t.py", "X"),
        ("A=9\nexport X=$( ((RANDOM > A)) && hostname)\npython t.py", "X"),
        ("X={a,b}$(date)\nexport X\npython t.py", "X"),
        ("P=2\nexport X=$(echo $P>/dev/null; date)\npython t.py", "X"),
        ("H=`hostname`\nexport X=`echo $H`\npython t.py", "H"),
        ("f() { date; }\nexport X=$(xargs f)\npython t.py", "X"),
        ("set -f\nexport X=$(echo *)$(date)\npython t.py", "X"),
        ("export X=$(scontrol show hostnames)\npython t.py", "X"),
    ],
)
def test_an_export_that_needs_the_script_is_asked_for(
    text: str, names: str, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    assert names in imported(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("export A=$RANDOM\nexport B=$A\npython t.py", "A"),
        ("X=$RANDOM\nX=$X-$X\nexport X\npython t.py", "X"),
        (f"export MASTER_PORT=$RANDOM\nexport PORT=$MASTER_PORT\n{TORCHRUN} t.py", "MASTER_PORT"),
        (f"H=$(hostname)\nexport P=$RANDOM\n{TORCHRUN} --rdzv_endpoint $H:$P t.py", "P"),
        ("export RUN=$(date)\npython t.py\npython t.py", "RUN"),
        ("S=$RANDOM\nfor i in 1 2; do export X=$S; python t.py; done", "S"),
    ],
)
def test_one_value_in_two_places_is_not_drawn_twice(text: str, names: str, tmp_path: Path) -> None:
    assert imported(tmp_path, text) == names


def test_a_value_of_each_round_is_drawn_in_each_job(tmp_path: Path) -> None:
    job = "launcher: python\nscript: t.py\nsetup: ['export X=$RANDOM']\n"
    assert imported(tmp_path, "for i in 1 2; do export X=$RANDOM; python t.py; done") == [job, job]


def test_what_a_machine_says_may_stand_in_two_places(tmp_path: Path) -> None:
    lines = "['export A=$(hostname)', 'export B=$(hostname)']"
    expected = f"launcher: python\nscript: t.py\nsetup: {lines}\n"
    assert imported(tmp_path, "export A=$(hostname)\nexport B=$A\npython t.py") == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "export PATH=/x:$PATH\nexport X=$(which a)\npython t.py",
        "source v/bin/activate\nexport X=$(which a)\npython t.py",
        "export TZ=UTC\nexport X=$(date)\npython t.py",
        "export A=1\nexport X=$(python random.py)\npython t.py",
        "mkdir a\ncd sub\nexport X=$(ls)\npython t.py",
    ],
)
def test_a_program_that_needs_the_environment_of_the_script_is_not_run_by_setup(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    assert imported(tmp_path, text) == "X"


def test_setup_keeps_the_order_of_the_script(tmp_path: Path) -> None:
    text = "export X=$(which a)\nmodule load b\nexport Y=$(which b)\npython t.py"
    lines = "['export X=$(which a)', 'module load b', 'export Y=$(which b)']"
    assert imported(tmp_path, text) == [f"launcher: python\nscript: t.py\nsetup: {lines}\n"]


def test_setup_changes_the_path_behind_the_programs_of_the_same_line(tmp_path: Path) -> None:
    job = str(imported(tmp_path, "export PATH=$(hostname):$PATH X=$(which a)\npython t.py"))
    assert job.index("X=") < job.index("PATH=")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("export NPROC_PER_NODE=$(nproc)\nswift sft --model x", "NPROC_PER_NODE"),
        (f"export CUDA_VISIBLE_DEVICES=$(date)\n{TORCHRUN} t.py", "CUDA_VISIBLE_DEVICES"),
        ("export PYTHONUNBUFFERED=$(date)\npython t.py", "PYTHONUNBUFFERED"),
    ],
)
def test_a_variable_that_safelaunch_reads_or_sets_itself_is_not_made_by_setup(
    text: str, names: str, tmp_path: Path
) -> None:
    assert imported(tmp_path, text) == names


@pytest.mark.parametrize(
    "text",
    [
        "deepspeed --hostfile hosts --master_port $P t.py",
        "deepspeed --include h1:0@h2:0 --master_port $P t.py",
        "accelerate launch --num_processes 2 --deepspeed_hostfile h --main_process_port $P t.py",
        f"{TORCHRUN} --rdzv_backend etcd --rdzv_endpoint localhost:$P t.py",
    ],
)
def test_a_port_that_other_machines_need_is_asked_for(text: str, tmp_path: Path) -> None:
    assert imported(tmp_path, f"P=$RANDOM\n{text}") == "P"


def test_only_the_setting_that_differs_is_left_out(tmp_path: Path) -> None:
    text = f"{TORCHRUN} --master_port $RANDOM -t 3 t.py"
    assert imported(tmp_path, text) == [f"{JOB}launcher_args:\n  tee: 3\n"]


@pytest.mark.parametrize("text", [r"\\$P", r"\$\$$P", "'$P'"])
def test_a_text_of_eval_that_is_read_otherwise_than_its_value_is_asked_for(
    text: str, tmp_path: Path
) -> None:
    assert imported(tmp_path, f'P=$RANDOM\neval "python t.py {text}"') == "P"


def test_a_break_of_more_loops_than_there_are_is_refused(tmp_path: Path) -> None:
    text = "for i in 1; do if lsof -i:1; then break 2; fi; done\npython t.py"
    assert "`break` depends" in imported(tmp_path, text)


def test_an_answer_is_the_port(tmp_path: Path) -> None:
    text = f"P=$RANDOM\n{AT_P}"
    assert imported(tmp_path, text, P="4001") == [f"{JOB}launcher_args:\n  master_port: 4001\n"]


@pytest.mark.parametrize("setting", ["main_process_port", "main_process_ip"])
def test_a_setting_that_is_left_to_safelaunch_is_noted(setting: str, tmp_path: Path) -> None:
    (tmp_path / "t.sh").write_text(f"accelerate launch --num_processes 2 --{setting} $RANDOM t.py")
    (launch,) = follow("t.sh", ScriptCaller({}, str(tmp_path))).launches
    notes = make_job(launch, "t.sh", {}).notes
    assert (1, f"`{setting}` differs at each start", LEFT) in notes
