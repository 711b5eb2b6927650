"""What `safelaunch import` prints, writes and refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.cli_process import safelaunch

from safelaunch.errors import StartError
from safelaunch.importer.syntax import MAX_BYTES, find_shfmt

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = (
    "export A=1\nmkdir -p logs\ntorchrun --nproc_per_node 2 train.py --lr 1e-3 | tee logs/a.log\n"
)
JOB = """\
launcher: torchrun
script: train.py
args:
  lr: 1e-3
processes: 2
setup: ['mkdir -p logs']
log: 'logs/a-{time}.log'
env:
  A: 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").touch()
    (tmp_path / "train.sh").write_text(TRAIN)
    return tmp_path


def write(folder: Path, text: str | bytes, name: str = "x.sh") -> None:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def printed(folder: Path, *words: str) -> Any:
    return json.loads(safelaunch(folder, "import", *words, "--json").out)


def test_a_script_becomes_a_job_file(folder: Path) -> None:
    result = safelaunch(folder, "import", "train.sh", "-o", "train.yaml")
    assert (result.code, result.out) == (0, "")
    assert (folder / "train.yaml").read_text() == JOB


def test_without_a_file_the_job_is_printed(folder: Path) -> None:
    assert safelaunch(folder, "import", "train.sh").out == JOB


def test_the_job_file_has_the_plan_of_the_pasted_line(folder: Path) -> None:
    write(folder, "A=1 torchrun --nproc_per_node 2 train.py --lr 1e-3 'a b'\n")
    safelaunch(folder, "import", "x.sh", "-o", "x.yaml")
    line = ("A=1", "torchrun", "--nproc_per_node", "2", "train.py", "--lr", "1e-3", "a b")
    plans = [
        json.loads(safelaunch(folder, "run", "--dry-run", "--json", *words).out)["nodes"][0]
        for words in (["x.yaml"], ["--", *line])
    ]
    assert plans[0]["argv"] == plans[1]["argv"]
    assert plans[0]["env"].keys() == plans[1]["env"].keys()


def test_each_note_says_its_line_and_what_becomes_of_it(folder: Path) -> None:
    log = "writes the log `logs/a.log`: `log: logs/a-{time}.log`, a file of each run"
    assert safelaunch(folder, "import", "train.sh").err.splitlines() == [
        "note: train.sh:2: makes folders: `mkdir -p logs`: `setup:` of the job",
        f"note: train.sh:3: {log}",
    ]


def test_a_launch_in_another_folder_gets_its_workdir(folder: Path) -> None:
    (folder / "sub").mkdir()
    write(folder, "cd sub\npython ../train.py\n")
    safelaunch(folder, "import", "x.sh", "-o", "jobs/x.yaml")
    assert "workdir: ../sub\n" in (folder / "jobs" / "x.yaml").read_text()


@pytest.mark.parametrize(
    ("output", "files"),
    [("jobs/", ["jobs/a.yaml", "jobs/b.yaml"]), ("x.yaml", ["x-1.yaml", "x-2.yaml"])],
)
def test_several_launches_become_several_files(output: str, files: list[str], folder: Path) -> None:
    write(folder, "python a.py\npython b.py\n")
    safelaunch(folder, "import", "x.sh", "-o", output)
    written = [path.relative_to(folder).as_posix() for path in folder.rglob("*.yaml")]
    assert sorted(written) == files


def test_no_file_is_overwritten_and_none_is_written_then(folder: Path) -> None:
    write(folder, "python a.py\npython b.py\n")
    (folder / "x-2.yaml").touch()
    result = safelaunch(folder, "import", "x.sh", "-o", "x.yaml")
    assert (result.code, (folder / "x-1.yaml").exists()) == (2, False)
    assert "x-2.yaml: the file exists" in result.err


def test_what_only_the_caller_knows_is_asked_for_with_the_command(folder: Path) -> None:
    write(folder, "N=$(date)\npython train.py ${DATA%/} $N\n")
    assert safelaunch(folder, "import", "x.sh").err == (
        "error: x.sh: it needs values that only its caller has: line 2: `DATA` is not set in the "
        "script; line 1: the output of `date`\n"
        "hint: safelaunch import x.sh --set DATA=VALUE --set N=VALUE\n"
    )


def test_answers_and_arguments_are_taken(folder: Path) -> None:
    write(folder, 'python train.py $DATA "$1"\n')
    result = safelaunch(folder, "import", "x.sh", "--set", "DATA=/d", "--", "a b")
    assert "args: [" in result.out or "- 'a b'" in result.out
    assert "DATA: /d\n" in result.out


def test_a_secret_is_taken_from_the_environment(folder: Path) -> None:
    write(folder, "export WANDB_API_KEY=0123456789abcdef\npython train.py\n")
    result = safelaunch(folder, "import", "x.sh")
    assert (
        "0123456789abcdef" in result.out + result.err,
        "env_from: [WANDB_API_KEY]" in result.out,
    ) == (
        False,
        True,
    )


def test_no_secret_is_in_a_note(folder: Path) -> None:
    key = "0123456789abcdef"
    write(
        folder,
        f"wandb login {key}\ncurl --token {key} u\nX=$(get API_KEY={key})\npython train.py $X\n",
    )
    result = safelaunch(folder, "import", "x.sh", "--set", f"HF_TOKEN={key}")
    assert (result.code, key in result.out + result.err) == (2, False)


def test_a_search_path_is_put_before_that_of_the_machine(folder: Path) -> None:
    write(folder, "export PATH=/x/bin:$PATH\npython train.py\n")
    assert "  PATH: {prepend: /x/bin}\n" in safelaunch(folder, "import", "x.sh").out


def test_a_search_path_behind_that_of_the_machine_is_set_up(folder: Path) -> None:
    write(folder, "export PATH=$PATH:'/x y'\npython train.py\n")
    out = safelaunch(folder, "import", "x.sh").out
    assert """setup: ["export PATH=\\"${PATH-}\\"':/x y'"]""" in out


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("source /v/bin/activate\npython train.py\n", "venv: /v\n"),
        (
            "source /opt/conda/etc/profile.d/conda.sh\nconda activate rl\npython train.py\n",
            "conda: rl\nconda_root: /opt/conda\n",
        ),
        ("ulimit -n 65536\npython train.py\n", "setup: ['ulimit -n 65536']\n"),
        ("module load cuda/12\npython train.py\n", "setup: ['module load cuda/12']\n"),
    ],
)
def test_what_a_launch_needs_before_becomes_a_key(text: str, key: str, folder: Path) -> None:
    write(folder, text)
    assert key in safelaunch(folder, "import", "x.sh").out


def test_json_has_a_version_and_the_promised_keys(folder: Path) -> None:
    data = printed(folder, "train.sh")
    assert data["version"] == 1
    assert data.keys() == {
        "version", "script", "recorded", "jobs", "notes", "questions", "error",
    }  # fmt: skip
    assert data["jobs"][0].keys() == {"line", "name", "file", "cwd", "yaml"}
    assert data["jobs"][0]["yaml"] == JOB


def test_what_only_the_caller_knows_becomes_a_variable_with_a_note(folder: Path) -> None:
    write(folder, 'python train.py --m "$1" $DATA "${@:2}"\n')
    result = safelaunch(folder, "import", "x.sh", "-o", "x.yaml")
    assert (result.code, result.err.count("is what only its caller knows")) == (0, 3)
    assert "`{vars.args}`: --set 'vars.args=[WORD, ..]'" in result.err
    assert "note: x.sh:1: `DATA` is what only its caller knows: `{vars.DATA}`: --set" in result.err
    sets = ("--set", "vars.arg1=a b", "--set", "vars.DATA=d", "--set", "vars.args=[-x, '']")
    plan = json.loads(safelaunch(folder, "run", "--dry-run", "--json", "x.yaml", *sets).out)
    assert plan["nodes"][0]["argv"][-6:] == ["train.py", "--m", "a b", "d", "-x", ""]
    assert plan["nodes"][0]["env"]["DATA"]["value"] == "d"


def test_json_of_a_refusal_says_what_is_asked(folder: Path) -> None:
    write(folder, "python train.py ${DATA%/}\n")
    result = safelaunch(folder, "import", "x.sh", "--json")
    data = json.loads(result.out)
    assert (result.code, data["jobs"]) == (2, [])
    assert data["questions"] == [
        {"name": "DATA", "line": 1, "reason": "`DATA` is not set in the script"}
    ]


@pytest.mark.parametrize(
    ("comment", "command"),
    [
        ("# bash x.sh configs/a.yaml 8 --resume", "-- configs/a.yaml 8 --resume   # as a comment"),
        ("# Usage: x.sh 'my config.yaml' 8", "-- 'my config.yaml' 8   # as a comment"),
        ("# bash x.sh a.yaml", "-- CONFIG GPUS\n"),
        ("# bash x.sh <config> <gpus>", "-- CONFIG GPUS\n"),
        ("# bash y.sh a b", "-- CONFIG GPUS\n"),
    ],
)
def test_a_question_names_the_arguments_or_those_of_a_call_in_a_comment(
    comment: str, command: str, folder: Path
) -> None:
    launch = "torchrun --nproc_per_node=$((GPUS)) train.py ${CONFIG%/}"
    write(folder, f"{comment}\nCONFIG=$1\nGPUS=$2\n{launch}\n")
    result = safelaunch(folder, "import", "x.sh")
    assert f"hint: safelaunch import x.sh {command}" in result.err


DEEP = "(" * 3000 + "true" + ")" * 3000 + "\n"
BAD: dict[str, tuple[str | bytes, str]] = {
    "other shebang": ("#!/usr/bin/env fish\npython t.py\n", "x.sh: is a script of fish"),
    "fish": ("set -gx A 1\npython t.py\n", "x.sh: is a script of fish"),
    "csh": ("setenv A 1\npython t.py\n", "x.sh: is a script of csh"),
    "zsh": ("print -l a\npython t.py ${(s: :)X}\n", "x.sh: is a script of zsh"),
    "PowerShell": ("$env:A = '1'\npython t.py\n", "x.sh: is a script of PowerShell"),
    "CRLF": (b"A=1\r\npython t.py\r\n", "x.sh:1: a carriage return"),
    "binary": (b"\x7fELF\0\1", "x.sh: is a binary file"),
    "not UTF-8": (b"A=1\npython t.py \xff\n", "x.sh:2: is not UTF-8"),
    "byte order mark": ("\ufeffpython t.py\n", "x.sh: begins with a byte order mark"),
    "too large": ("python t.py " + "a" * MAX_BYTES, "bytes are too many for a launch script"),
    "long line": ("python t.py " + "a " * 10_000 + "${X%/}\n", "it needs values that only"),
    "nested": (DEEP, "x.sh"),
    "recursion": ("f() { f; }\nf\npython t.py\n", "x.sh:1: not followed: `f` calls itself"),
    "itself": ("bash x.sh\n", "x.sh:1: not followed: it starts itself again"),
    "without an end": ("while true; do A=1; done\npython t.py\n", "x.sh:1: not followed: a loop"),
    "here-document": ("sbatch <<E\ntorchrun t.py\nE\n", "x.sh:1: not followed: a launch in"),
    "placeholder": ("python t.py --data <path> -x\n", "x.sh:1: not followed: `<path>` is"),
    "terminal": ("select x in a b; do python $x.py; done\n", "x.sh:1: not followed: `select`"),
    "syntax": ("if true; then\n", "x.sh:1: bash cannot read this"),
    "empty": ("", "x.sh: it starts no training"),
    "no launch": ("echo torchrun\n", "x.sh: it starts no training"),
    "dash": ("torchrun \u2014nproc_per_node 2 t.py\n", "x.sh:1: `\u2014nproc_per_node` begins"),
    "usage": ("[ $# -ge 1 ] || exit 1\npython t.py ${1%/}\n", "it needs values that only"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_error_and_changes_nothing(
    text: str | bytes, message: str, folder: Path
) -> None:
    write(folder, text)
    before = sorted(folder.rglob("*"))
    result = safelaunch(folder, "import", "x.sh", "-o", "x.yaml")
    assert (result.code, result.err.count("error:"), result.out) == (2, 1, "")
    assert message in result.err
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.sh"], "absent.sh: no such file"),
        (["."], ".: is a folder, not a script"),
        (["/dev/null"], "/dev/null: is no regular file"),
        (["train.sh", "--set", "A"], "`--set A` is not NAME=VALUE"),
        ([], "missing argument"),
    ],
)
def test_wrong_use_exits_2(words: list[str], message: str, folder: Path) -> None:
    result = safelaunch(folder, "import", *words)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_without_shfmt_the_error_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(StartError) as caught:
        find_shfmt(str(tmp_path), str(tmp_path))
    assert str(caught.value.hint).endswith(" -m pip install shfmt-py")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "torchrun t.py \\\n  # --a 1 \\\n  --b 2\n",
        "torchrun t.py --a 1 # note \\\n  --b 2\n",
        "X=1 # note \\\nexport Y=2\ntorchrun t.py\n",
        "eval 'torchrun t.py # note \\\n --b 2'\n",
    ],
)
def test_a_comment_that_hides_the_end_of_a_command_is_refused(text: str, folder: Path) -> None:
    write(folder, text)
    result = safelaunch(folder, "import", "x.sh")
    assert result.code == 2
    assert "a comment that ends in `\\`" in result.err


@pytest.mark.parametrize(
    "text", ["# a \\\ntorchrun t.py\n", "X=(\n 1 \\\n # 2 \\\n 3\n)\ntorchrun t.py ${X[@]}\n"]
)
def test_a_comment_between_commands_may_end_in_a_backslash(text: str, folder: Path) -> None:
    write(folder, text)
    assert safelaunch(folder, "import", "x.sh").code == 0


def keys(folder: Path, text: str, *words: str) -> list[Any]:
    write(folder, text)
    return [yaml.safe_load(job["yaml"]) for job in printed(folder, "x.sh", *words)["jobs"]]


def test_setup_lines_run_in_the_folder_that_they_had(folder: Path) -> None:
    (folder / "sub").mkdir()
    text = "cd sub\nmkdir x\nsource env.sh\nulimit -n 9\ncd ..\nmkdir y\npython t.py\n"
    (job,) = keys(folder, text)
    inside, outside = "cd -- sub || exit 1", "cd -- .. || exit 1"
    lines = [inside, "mkdir x", "source env.sh", "ulimit -n 9", outside, "mkdir y"]
    assert job["setup"] == lines


def test_an_environment_that_is_left_is_none_of_later_jobs(folder: Path) -> None:
    text = (
        "source v/bin/activate\npython a.py\ndeactivate\npython b.py\n"
        "source /c/etc/profile.d/conda.sh\n"
        "conda activate e\npython c.py\nconda activate f\nconda deactivate\npython d.py\n"
        "conda deactivate\npython e.py\n"
    )
    jobs = [(job.get("venv"), job.get("conda")) for job in keys(folder, text)]
    venv = str(folder / "v")
    assert jobs == [(venv, None), (None, None), (None, "e"), (None, "e"), (None, None)]


def test_an_answer_is_exported_where_a_branch_would_export_it(folder: Path) -> None:
    text = "if [ -f d ]; then export ROOT=/data; fi\npython t.py\n"
    (job,) = keys(folder, text, "--set", "ROOT=/data")
    assert job["env"] == {"ROOT": "/data"}


def test_a_python_script_that_is_started_by_its_path_is_a_job(folder: Path) -> None:
    write(folder, "#!/usr/bin/env python3\n", "tool")
    assert [job["command"] for job in keys(folder, "./a.py --x\n./tool y\n")] == [
        ["./a.py", "--x"],
        ["./tool", "y"],
    ]


def test_a_log_in_a_folder_that_is_not_there_is_refused(folder: Path) -> None:
    write(folder, "torchrun t.py > nodir/log\n")
    result = safelaunch(folder, "import", "x.sh")
    assert (result.code, "hint: mkdir -p nodir" in result.err) == (2, True)


def test_a_recording_names_the_arguments_that_are_missing(folder: Path) -> None:
    write(folder, "MODEL=$1\nSTEPS=$2\npython train.py $MODEL --steps $STEPS $FLAGS\n")
    result = safelaunch(folder, "import", "--record", "x.sh", "--", "m")
    if "isolated" in result.err:
        pytest.skip("no user namespaces here")
    assert result.code == 2
    assert result.err.splitlines()[-1] == (
        "hint: safelaunch import --record x.sh --set FLAGS=VALUE -- m STEPS"
    )
