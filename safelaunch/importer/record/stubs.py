"""The stubs of a recording: shell programs that write down how they were called."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.importer.activities import NO_OPS, WRAPPERS, launcher_names
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from safelaunch.importer.record.trap import Trap

PYTHONS = (
    "python", "python2", "python2.7", "python3", *(f"python3.{minor}" for minor in range(21)),
)  # fmt: skip
PYTHON = re.compile(r"python([23](\.\d+)?)?")
# start their words elsewhere or in another environment, which a recording has not
_ELSEWHERE = frozenset((
    "sudo", "docker", "podman", "singularity", "apptainer", "ssh", "tmux", "screen", "sbatch",
    "ray", "uv", "poetry", "pixi", "micromamba", "conda", "mamba",
))  # fmt: skip
# of these, what reads a script from its input
_READS_SCRIPT = "ssh|docker|podman|sudo|sbatch"
# run as they are, but for what git does with other machines
MACHINE_PROGRAMS = ("git", "hostname", "nproc")

# A call is one file of parts that end in NUL: kind, folder, number of words, words, environment, as
# the program got it. The file has its name only when it is complete.
#
# Whether the script reads what a program prints: the reader of its output is a shell that holds the
# pipe as another file than its input (`$(...)`), or goes on as one that reads it (`| while read`).
# Programs such as `tee` and `tail` hand it on. A reader that is just being started is not seen yet:
# each pipe has one. A shell that waits reads; one that runs may start or become another program,
# and has the pipe as another file until it does.
#
# SAFELAUNCH_INTO is the variable that takes the output, SAFELAUNCH_ANSWER what the user says that
# it is: it is printed, and the trap sets the variable to it, whatever is made of it on the way.
_HEAD = r"""#!{bash} -p
given=$PATH
PATH=/usr/bin:/bin:/usr/sbin:/sbin
name=${{0##*/}}
shown=$0 called=$0
case $0 in {place}/stubs/*) shown={named} called=$name ;; esac
record() {{
  local f={place}/calls/$$.$RANDOM
  {{ printf '%s\0' "$1" "$PWD" $(($# - 1)) "${{@:2}}"; cat /proc/$$/environ; }} >"$f.part"
  mv "$f.part" "$f.call"
}}
is_asked() {{
  local out at flags exe main state shells most tries=0 waits=0
  out=$(readlink /proc/$$/fd/1)
  read -r main <{place}/stdout
  while [[ $out == pipe:* && $out != "$main" && tries -lt 200 ]]; do
    tries=$((tries + 1)) shells= most=9
    for at in $(find /proc/[0-9]*/fd -lname "pipe:?${{out//[^0-9]/}}?" 2>/dev/null); do
      flags=$(sed -n 's/^flags:.*\(.\)$/\1/p' "${{at/fd/fdinfo}}" 2>/dev/null)
      [[ $flags == 0 ]] || continue
      if [[ ${{at##*/}} != 0 ]]; then
        shells+=" ${{at%/fd/*}}" most=3
        continue
      fi
      exe=$(readlink "${{at%/fd/*}}/exe")
      case ${{exe##*/}} in
        xargs|parallel) return 0 ;;
        bash|dash|sh|busybox|zsh) shells+=" ${{at%/fd/*}}" ;;
        *)
          out=$(readlink "${{at%/fd/*}}/fd/1") waits=0
          continue 2 ;;
      esac
    done
    for at in $shells; do
      read -r state <"$at/stat"
      case ${{state##*) }} in S*) ;; *) waits=0 ;; esac
    done
    [[ $shells ]] && waits=$((waits + 1))
    [[ waits -gt most ]] && return 0
    [[ ! $shells && tries -gt 20 ]] && return 1
    sleep 0.02
  done
  return 1
}}
"""
_ANSWERED = r"""
answer() {{
  [[ ${{SAFELAUNCH_ANSWER+x}} ]] || return 1
  : >{place}/unanswered
  printf '%s\n' "$SAFELAUNCH_ANSWER"
  record answered "$name" "$@"
}}
"""
_LAUNCHER = (
    _ANSWERED
    + r"""
kind=call
if is_asked; then
  answer "$@" && exit 0
  kind=asked
fi
record "$kind" "$called" "$@"
"""
)
_NO_OP = (
    _ANSWERED
    + r"""
kind=no-op
if is_asked; then
  answer "$@" && exit 0
  kind='no answer'
fi
f="{place}/calls/$kind.$name.$SAFELAUNCH_INTO"
[[ -e $f.call ]] || printf '%s\0' "$kind" "$PWD" 1 "$name" "SAFELAUNCH_AT=$SAFELAUNCH_AT" \
  "SAFELAUNCH_INTO=$SAFELAUNCH_INTO" >"$f.call"
"""
)
_ELSEWHERE_STUB = r"""
case $name in {reads_script})
  case "$(readlink /proc/$$/fd/0)" in pipe:*|*'(deleted)')
    text=$(timeout 2 head -c 65536 | tr '\0' ' ')
    [[ $text ]] && record input "$name" "$text" ;;
  esac ;;
esac
record elsewhere "$name" "$@"
"""
# Reaches no other machine; a copy of a repository is an empty folder, to which the script changes.
_GIT = (
    _ANSWERED
    + r"""
at=1
while [[ ${{!at-}} == -* ]]; do
  case ${{!at}} in -C|-c|--git-dir|--work-tree) at=$((at + 1)) ;; esac
  at=$((at + 1))
done
case ${{!at-}} in clone|fetch|pull|push|ls-remote|submodule|lfs)
  if is_asked; then
    answer "$@" && exit 0
    record 'no answer' "$name" "${{!at}}"
    exit 0
  fi
  record no-op "$name" "${{!at}}"
  if [[ ${{!at}} == clone ]]; then
    source= folder=
    for word in "${{@:at + 1}}"; do
      case $word in -*) ;; *[:/]*) if [[ $source ]]; then folder=$word; else source=$word; fi ;;
        *) [[ $source ]] && folder=$word ;;
      esac
    done
    source=${{source%/}}
    folder=${{folder:-${{source##*/}}}}
    [[ $folder ]] && mkdir -p -- "${{folder%.git}}"
  fi
  exit 0 ;;
esac
PATH=$given
exec {real} "$@"
"""
)
# Prints what is so on this machine.
_LOCAL = r"""
is_asked && record answer 0 "$name" "$@"
PATH=$given
exec {real} "$@"
"""
# options of Python, up to code, a module or a script
_IS_CODE = r"""
is_code() {{
  while [[ $# -gt 0 ]]; do
    case $1 in
      -c*|-|-V|-VV|--version|-h|--help|--help-*) return 0 ;;
      -m*) return 1 ;;
      -W|-X|--check-hash-based-pycs) shift ;;
      --*) ;;
      -*c*) [[ $1 != -[WX]* ]] && return 0 ;;
      -*m) return 1 ;;
      -*) ;;
      /usr/*|/bin/*|/sbin/*|/lib/*) return 0 ;;
      */bin/*) [[ $1 != *.py ]]; return ;;
      *) return 1 ;;
    esac
    shift
  done
}}
"""
_WRAPPER = (
    _IS_CODE
    + r"""
at=0
for word; do
  at=$((at + 1))
  case ${{word##*/}} in {launchers})
    [[ ${{word##*/}} == python* ]] && is_code "${{@:at + 1}}" && break
    is_asked && break
    record call "$called" "$@"
    exit 0 ;;
  esac
done
PATH=$given
exec {real} "$@"
"""
)
_PYTHON = (
    _IS_CODE
    + _ANSWERED
    + r"""
is_code "$@"
code=$?
if is_asked; then
  (PATH=$given; exec -a "$shown" {real} "$@")
  status=$?
  [[ $status != 0 ]] && answer "$@" && exit 0
  record answer "$status" "$name" "$@"
  exit "$status"
elif [[ $code == 0 ]]; then
  PATH=$given
  exec -a "$shown" {real} "$@"
fi
record call "$called" "$@"
"""
)


def is_script(program: str) -> bool:
    """Whether a program begins with `#!`."""
    try:
        with open(program, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def is_python(name: str) -> bool:
    """Whether a program is called as Python is."""
    return PYTHON.fullmatch(name) is not None


def stub_files(
    place: str, bash: str, programs: Mapping[str, str], covered: Iterable[str], trap: Trap
) -> dict[str, str]:
    """Return the files of the stubs, those for covered programs by their number.

    `programs` are the real ones by name. A covered one, a real path, is to be had at `real/NUMBER`.
    """
    launchers = "|".join(sorted((*launcher_names(), "python*")))
    values = {
        "place": place, "bash": bash, "launchers": launchers, "reads_script": _READS_SCRIPT
    }  # fmt: skip
    numbers = {program: f"{place}/real/{at}" for at, program in enumerate(covered)}
    files = {"bash_env": trap.text(place, bash, launchers), "empty": ""}

    def stub(name: str, program: str) -> str:
        if is_python(name):
            text = _PYTHON
        elif name in _ELSEWHERE:
            text = _ELSEWHERE_STUB
        elif name in MACHINE_PROGRAMS:
            text = _GIT if name == "git" else _LOCAL
        else:
            text = _WRAPPER if name in WRAPPERS else _LAUNCHER
        real = numbers.get(os.path.realpath(program), program)
        return (_HEAD + text).format(**values, named=quote(program), real=quote(real))

    for name in NO_OPS:
        files[f"stubs/{name}"] = (_HEAD + _NO_OP).format(**values, named=name)
    for name in filter(programs.get, MACHINE_PROGRAMS):
        files[f"stubs/{name}"] = stub(name, programs[name])
    for name in (*WRAPPERS, *_ELSEWHERE, *launcher_names(), *PYTHONS):
        program = programs.get("python3" if is_python(name) else name, "/bin/false")
        files[f"stubs/{name}"] = stub(name, program)
    for program, real in numbers.items():
        name = program.rpartition("/")[2]
        is_shim = is_python(name) and is_script(program)
        files[f"covers/{real.rpartition('/')[2]}"] = stub(
            name, programs["python3"] if is_shim else program
        )
    return files
