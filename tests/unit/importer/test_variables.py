"""What only the caller of a script knows, as variables of its job: as bash would start it, or not.

Each script runs in bash with values, and stubs in place of its programs; its job is planned with
the same values. They must start the same words with the same variables, or the job be refused.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.config.write_job import job_yaml
from safelaunch.errors import ConfigError
from safelaunch.importer.jobs import make_job
from safelaunch.importer.shell.interpreter import follow
from safelaunch.importer.state import ScriptCaller

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

STUB = """\
#!/bin/sh
printf '%s\\0' "$#" "$@"
exec env -0
"""
NASTY = (
    "v", "", "a b", " ", "-x", "--y=1", "*", "t.p?", "[t]", "a\\b", "$HOME", "`id`", "'", '"', "~",
    "~/x", "null", "true", "1e-3", "0", "#", "a\nb", "\t", "{a,b}", "{vars.x}", "é", "a=b", "!",
    ";", "|", "%s", "007",
)  # fmt: skip


class Start(NamedTuple):
    """What is started: the words behind the program, and variables."""

    words: list[str]
    env: dict[str, str]


def run(folder: Path, names: Sequence[str], env: Mapping[str, str], args: Sequence[str]) -> Start:
    """Return the one start of a script in bash."""
    stubs = folder / "stubs"
    stubs.mkdir(exist_ok=True)
    for name in ("python", "mkdir"):
        program = stubs / name
        program.write_text(STUB if name == "python" else "#!/bin/sh\n")
        program.chmod(0o755)
    output = subprocess.run(
        ["bash", "s.sh", *args],
        cwd=folder,
        env={"PATH": f"{stubs}:/usr/bin:/bin", "HOME": str(folder), **env},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=60,
    ).stdout.decode()
    if "\0" not in output:
        return Start(["no start"], {})
    count, *items = output.split("\0")
    words, rest = items[: int(count)], items[int(count) :]
    pairs = dict(item.split("=", 1) for item in rest if item)
    return Start(words, {name: pairs[name] for name in names if name in pairs})


def written(folder: Path) -> str:
    """Write the job of the script; return its text."""
    cwd = os.getcwd()
    os.chdir(folder)
    try:
        caller = ScriptCaller({"HOME": str(folder), "PATH": "/usr/bin:/bin"}, str(folder))
        findings = follow("s.sh", caller, has_variables=True)
        assert (findings.problems, findings.stop) == ([], None)
        (launch,) = findings.launches
        text = job_yaml(make_job(launch, "s.sh", caller.environ, findings.variables).keys, "cpu")
    finally:
        os.chdir(cwd)
    (folder / "job.yaml").write_text(text)
    return text


def planned(folder: Path, sets: Sequence[str], names: Sequence[str]) -> Start:
    job = resolve_file("job.yaml", Flags(sets=tuple(sets)), str(folder)).job
    variables = {var.name: str(var.value) for var in job.env if var.name in names}
    return Start([str(job.script), *job.args.words], variables)


EXACT = {
    "python t.py --m $1": ("arg1",),
    'python t.py --m "$1" "$2"': ("arg1", "arg2"),
    'M=$1\npython t.py "$M" --o=out/"$M"/x': ("M",),
    'M=$1; python t.py "${M}_a$M" pre$M': ("M",),
    'python t.py "$MODEL" ${DATA}': ("MODEL", "DATA"),
    'A=(--m "$MODEL" --d "$DATA/x")\npython t.py "${A[@]}"': ("MODEL", "DATA"),
    'A="--m $MODEL --d x"\nA+=" --e $1"\npython t.py $A': ("MODEL", "arg1"),
    'export OUT="$BASE/run"\npython t.py "$OUT"': ("BASE",),
    'OUT="x$BASE" python t.py': ("BASE",),
    'if [ -z "$1" ]; then echo usage; exit 1; fi\npython t.py "$1"': ("arg1",),
    '[ -n "$MODEL" ] || exit 1\npython t.py "$MODEL"': ("MODEL",),
    '[[ -z $MODEL ]] && exit 1\npython t.py "$MODEL"': ("MODEL",),
    'if [ "$MODEL" == "" ]; then exit 1; fi\npython t.py "$MODEL"': ("MODEL",),
    'python t.py "${1:?usage}" "${MODEL:?}"': ("arg1", "MODEL"),
    'set -u\npython t.py "$MODEL" "${DATA?}"': ("MODEL", "DATA"),
    'if [ $# -ne 2 ]; then exit 1; fi\npython t.py "$1" "$2"': ("arg1", "arg2"),
    'M=$1; shift\npython t.py "$M" "$1"': ("arg1", "arg2"),
    'f() { python t.py "$2" "$1" "$MODEL"; }\nf "x$1" y': ("arg1", "MODEL"),
    'f() { local a="$1"; shift; python t.py "$a" "$@"; }\nf "$MODEL" b "$DATA"': ("MODEL", "DATA"),
    'main() { python t.py "$1" "$2"; }\nmain "$@"': ("arg1", "arg2"),
    'mkdir -p "$OUT"\npython t.py --o "$OUT"': ("OUT",),
    'for s in 1; do python t.py --s $s "$MODEL"; done': ("MODEL",),
    'bash -c true\nM="$MODEL"\nexport M\npython t.py': ("MODEL",),
    'cat > /dev/null <<E\nx\nE\npython t.py "${MODEL}"': ("MODEL",),
    'python t.py "a${1}b" \\\n  "$2"': ("arg1", "arg2"),
    "T=${1}\npython t.py lr=$T ++d.e=$T": ("T",),
}


@pytest.mark.parametrize("script", EXACT, ids=lambda text: text.replace("\n", "; "))
def test_a_job_starts_what_bash_starts_for_each_value_that_it_takes(
    script: str, tmp_path: Path
) -> None:
    (tmp_path / "t.py").touch()
    (tmp_path / "s.sh").write_text(f"#!/usr/bin/env bash\n{script}\n")
    names = EXACT[script]
    assert "vars:" in written(tmp_path)
    # of the arguments that the script calls by a number; others are in its environment
    numbered = {name for name in names if name.startswith("arg")}
    numbered |= {name for name in ("M", "T") if name in names and re.search(r"=\$\{?1", script)}
    exact, refusals, first = 0, list[str](), list(EXACT).index(script)
    for at in range(6):  # all of them in the end, with each script some
        values = ["v", *(NASTY[(first * 5 + at + n * 11) % len(NASTY)] for n in range(2))]
        values = values[:: -1 if at % 2 else 1] if at else ["v", "w"]
        pairs = dict(zip(names, values[1 if at else 0 :], strict=False))
        args = [value for name, value in pairs.items() if name in numbered]
        env = {name: value for name, value in pairs.items() if name not in numbered}
        exported = [*env, "OUT", "M"]
        try:
            ours = planned(tmp_path, [f"vars.{n}={v}" for n, v in pairs.items()], exported)
        except ConfigError as e:
            refusals.append(e.message)
            continue
        assert ours == run(tmp_path, exported, env, args)
        exact += 1
    assert exact > 0
    assert [m for m in refusals if "has `type:" not in m and "is empty, and" not in m] == []


@pytest.mark.parametrize(
    ("script", "rest"),
    [
        ('python t.py a "$@"', []),
        ('python t.py a "$@"', ["-x", "b c", "", "*", "{vars.args}"]),
        ("python t.py $@ b", ["-x", "c"]),
        ('python t.py "$1" "${@:2}"', ["-x", "b c"]),
        ("M=$1\nshift\npython t.py $M $@", ["-x", "b"]),
        ('f() { python t.py "$@"; }\nf -a "$MODEL"', None),
        ('main() { python t.py "$@"; }\nmain "$@"', ["a b"]),
    ],
)
def test_arguments_behind_those_with_numbers_are_a_list(
    script: str, rest: list[str] | None, tmp_path: Path
) -> None:
    (tmp_path / "t.py").touch()
    (tmp_path / "s.sh").write_text(f"{script}\n")
    text = written(tmp_path)
    first = [name for name in ("arg1", "M") if f"  {name}:" in text]
    sets = [f"vars.{name}=v" for name in first]
    if rest is not None:
        sets.append(f"vars.args={json.dumps(rest)}")
    env = {"MODEL": "a b"} if "MODEL" in script else {}
    sets += [f"vars.{name}={value}" for name, value in env.items()]
    args = ["v"] * len(first) + (rest or [])
    assert planned(tmp_path, sets, ["MODEL"]) == run(tmp_path, ["MODEL"], env, args)


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ('if [ "$1" = a ]; then X=1; else X=2; fi\npython t.py $X $1', ["$1"]),
        ("python t.py $((N + 1))", ["N"]),
        ('python t.py "${MODEL%/}"', ["MODEL"]),
        ('python t.py "${MODEL##*/}" "$DATA"', ["MODEL"]),
        ('python t.py "$(basename "$MODEL")"', ["MODEL"]),
        ('python t.py "$(echo "$MODEL")"', ["MODEL"]),
        ('case $1 in a) X=1;; *) X=2;; esac\npython t.py $X "$2"', ["$1"]),
        ('for x in $LIST; do python t.py "$x"; done', ["LIST"]),
        ('eval "python t.py $MODEL"', ["MODEL"]),
        ("python t.py ${#MODEL}", ["MODEL"]),
        ("python t.py ${MODEL:0:3} ${MODEL^^}", ["MODEL"]),
        ("IFS=,\npython t.py $1", ["$1"]),
        ("IFS=,\nread -ra A <<< $LIST\npython t.py ${A[@]}", ["A"]),
        ('[ "$N" -gt 1 ] && X=a\npython t.py $X', ["X"]),
        ("cd $DIR\npython t.py", ["DIR"]),
        ("$PROGRAM t.py", ["PROGRAM"]),
        ('python t.py "${!NAME}"', ["NAME"]),
        ("CUDA_VISIBLE_DEVICES=$CARDS python t.py", ["CARDS"]),
        ("deepspeed --include localhost:$CARDS t.py", ["CARDS"]),
        ("python t.py $SLURM_JOB_ID", ["SLURM_JOB_ID"]),
        ("python t.py --p $HF_TOKEN", ["HF_TOKEN"]),
    ],
)
def test_what_a_value_decides_is_asked_for(script: str, names: list[str], tmp_path: Path) -> None:
    (tmp_path / "t.py").touch()
    (tmp_path / "s.sh").write_text(f"{script}\n")
    caller = ScriptCaller({"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, str(tmp_path))
    findings = follow(str(tmp_path / "s.sh"), caller, has_variables=True)
    assert findings.launches == [] or findings.problems or findings.stop
    assert {p.name for p in findings.problems} >= set(names) or findings.stop is not None
