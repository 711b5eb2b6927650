"""The stubs of a recording: shell programs that write down how they were called."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.importer.activities import NO_OPS, WRAPPERS, launcher_names
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
_READS_SCRIPT = "ssh|docker|podman|sudo"

# A call is one file of parts that end in NUL: kind, folder, number of words, words, environment, as
# the program got it. The file has its name only when it is complete.
#
# Whether the script reads what a program prints: the reader of its output is a shell that holds the
# pipe as another file than its input (`$(...)`), or goes on as one that reads it (`| while read`).
# Programs such as `tee` and `tail` hand it on. A reader that is just being started is not seen yet:
# each pipe has one.
_HEAD = r"""#!{bash} -p
given=$PATH
PATH=/usr/bin:/bin:/usr/sbin:/sbin
name=${{0##*/}}
shown=$0
case $0 in {place}/stubs/*) shown={named} ;; esac
record() {{
  local f={place}/calls/$$.$RANDOM
  {{ printf '%s\0' "$1" "$PWD" $(($# - 1)) "${{@:2}}"; cat /proc/$$/environ; }} >"$f.part"
  mv "$f.part" "$f.call"
}}
is_asked() {{
  local out at flags exe main tries=0
  out=$(readlink /proc/$$/fd/1)
  read -r main <{place}/stdout
  while [[ $out == pipe:* && $out != "$main" && tries -lt 20 ]]; do
    tries=$((tries + 1))
    for at in $(find /proc/[0-9]*/fd -lname "pipe:?${{out//[^0-9]/}}?" 2>/dev/null); do
      flags=$(sed -n 's/^flags:.*\(.\)$/\1/p' "${{at/fd/fdinfo}}" 2>/dev/null)
      [[ $flags == 0 ]] || continue
      [[ ${{at##*/}} == 0 ]] || return 0
      exe=$(readlink "${{at%/fd/*}}/exe")
      case ${{exe##*/}} in
        xargs|parallel) return 0 ;;
        bash|dash|sh|busybox|zsh)
          [[ $tries -gt 9 ]] && return 0
          sleep 0.02 ;;
        *) out=$(readlink "${{at%/fd/*}}/fd/1") ;;
      esac
      continue 2
    done
    sleep 0.02
  done
  return 1
}}
"""
_LAUNCHER = r"""
kind=call
is_asked && kind=asked
record "$kind" "$name" "$@"
"""
_NO_OP = r"""
kind=no-op
is_asked && kind='no answer'
f="{place}/calls/$kind.$name"
[[ -e $f.call ]] || printf '%s\0' "$kind" "$PWD" 1 "$name" "SAFELAUNCH_AT=$SAFELAUNCH_AT" >"$f.call"
"""
_ELSEWHERE_STUB = r"""
case $name in {reads_script})
  case "$(readlink /proc/$$/fd/0)" in pipe:*|*'(deleted)')
    text=$(timeout 2 head -c 65536 | tr '\0' ' ')
    [[ $text ]] && record input "$name" "$text" ;;
  esac ;;
esac
record elsewhere "$name" "$@"
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
    record call "$name" "$@"
    exit 0 ;;
  esac
done
PATH=$given
exec {real} "$@"
"""
)
_PYTHON = (
    _IS_CODE
    + r"""
is_code "$@"
code=$?
if is_asked; then
  (PATH=$given; exec -a "$shown" {real} "$@")
  status=$?
  record answer "$status" "$name" "$@"
  exit "$status"
elif [[ $code == 0 ]]; then
  PATH=$given
  exec -a "$shown" {real} "$@"
fi
record call "$name" "$@"
"""
)
# `kill` is a builtin, which only this takes away: `kill -9 -1` would end the recording. The trap
# keeps the stubs in front of PATH, tells them the line, and makes files that are sourced and not
# there: behind one, a variable without a value ends the script, since that file might have set it.
# Under `set -e` it makes folders too, to which the script changes, and absent programs succeed.
_BASH_ENV = r"""enable -n kill 2>/dev/null
set -T
__safelaunch_unset=
command_not_found_handle() {{
  local f={place}/calls/$BASHPID.$RANDOM
  {{ printf '%s\0' missing "$PWD" $# "$@" "SAFELAUNCH_AT=$SAFELAUNCH_AT"; }} >"$f.call"
  [[ $- == *e* ]] || return 127
}}
__safelaunch() {{
  local IFS=$' \t\n' f=() word=${{2%%[[:space:]]*}} unset=${{-//[^u]/}}$__safelaunch_unset
  __safelaunch_unset=
  export SAFELAUNCH_AT=$1:$3
  case $PATH in {place}/stubs|{place}/stubs:*) ;; *) PATH={place}/stubs:$PATH ;; esac
  set +u
  case $2 in
    'source '*|'. '*)
      case $2 in *'$('*|*'`'*|*'<('*|*'?'*) ;; *) eval "f=(${{2#* }})" ;; esac
      if __safelaunch_make "${{f[0]}}"; then
        case ${{f[0]}} in
          activate|*/activate|*/conda.sh|*/mamba.sh|*bashrc|*profile|*/zshrc) ;;
          *) __safelaunch_unset=u ;;
        esac
      fi ;;
    'cd '*|'pushd '*)
      case $2 in *'$('*|*'`'*|*'<('*|*'?'*) ;; *) eval "f=(${{2#* }})" ;; esac
      __safelaunch_enter "${{f[@]}}" ;;
    */*|'$'*|'"$'*)
      case $word in *'('*|*'`'*|*'?'*|*=*) ;; *) eval "f=($word)" ;; esac
      __safelaunch_check "${{f[0]}}" ;;
  esac
  [[ $unset ]] && set -u
  return 0
}}
__safelaunch_make() {{
  [[ $1 && ! -e $1 ]] || return
  [[ $1 == */* ]] || ! type -P "$1" >/dev/null || return
  /bin/mkdir -p "${{1%"${{1##*/}}"}}./" && : >"$1" || return
  printf '%s\0' source "$PWD" 2 source "$1" "SAFELAUNCH_AT=$SAFELAUNCH_AT" \
    >"{place}/calls/$BASHPID.$RANDOM.call"
}}
__safelaunch_enter() {{
  [[ $- == *e* && $# == 1 && $1 && $1 != -* && ! -e $1 ]] || return
  /bin/mkdir -p -- "$1" || return
  printf '%s\0' folder "$PWD" 2 cd "$1" "SAFELAUNCH_AT=$SAFELAUNCH_AT" \
    >"{place}/calls/$BASHPID.$RANDOM.call"
}}
__safelaunch_check() {{
  local line
  case ${{1##*/}} in {launchers}) ;; *) return ;; esac
  [[ $1 == */* && -f $1 && -x $1 ]] || return
  read -r line <"$1"
  [[ $line == '#!{bash} -p' ]] ||
    printf '%s\0' escaped "$PWD" 1 "$1" "SAFELAUNCH_AT=$SAFELAUNCH_AT" \
      >"{place}/calls/$BASHPID.$RANDOM.call"
}}
trap '{{ __safelaunch $LINENO "$BASH_COMMAND" "$BASH_SOURCE" "$_" || :; }} 2>/dev/null' DEBUG
"""


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
    place: str, bash: str, programs: Mapping[str, str], covered: Iterable[str]
) -> dict[str, str]:
    """Return the files of the stubs, those for covered programs by their number.

    `programs` are the real ones by name. A covered one, a real path, is to be had at `real/NUMBER`.
    """
    launchers = "|".join(sorted((*launcher_names(), "python*")))
    values = {
        "place": place, "bash": bash, "launchers": launchers, "reads_script": _READS_SCRIPT
    }  # fmt: skip
    numbers = {program: f"{place}/real/{at}" for at, program in enumerate(covered)}
    files = {"bash_env": _BASH_ENV.format(**values), "empty": ""}

    def stub(name: str, program: str) -> str:
        if is_python(name):
            text = _PYTHON
        elif name in _ELSEWHERE:
            text = _ELSEWHERE_STUB
        else:
            text = _WRAPPER if name in WRAPPERS else _LAUNCHER
        real = numbers.get(os.path.realpath(program), program)
        return (_HEAD + text).format(**values, named=quote(program), real=quote(real))

    for name in NO_OPS:
        files[f"stubs/{name}"] = (_HEAD + _NO_OP).format(**values, named=name)
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
