"""What each shell of a recording runs first: a trap that sees its commands before they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The folder of a file that a command writes, which bash needs to start it.
_OUTPUTS = """__safelaunch_word=$__safelaunch_command
  while [[ $__safelaunch_word == *'>'* ]]; do
    __safelaunch_word=${__safelaunch_word#*'>'}
    __safelaunch_word=${__safelaunch_word#'>'}
    __safelaunch_word=${__safelaunch_word# }
    case ${__safelaunch_word%%[[:space:]]*} in *'('*|*'`'*|*'?'*|*'&'*|*'<'*|'') continue ;; esac
    eval "__safelaunch_f=(${__safelaunch_word%%[[:space:]]*})"
    [[ ${__safelaunch_f[0]-} == */* ]] && __safelaunch_enter "${__safelaunch_f[0]%/*}/"
  done"""
# A failure that would end the script under `set -e` is written down instead.
_NO_ERRORS = """case $- in *e*) set +e; __safelaunch_errors=e ;; esac
  case $__safelaunch_command in 'set +'*e*) __safelaunch_errors= ;; esac"""
_ERR = """set -E
trap '{ __safelaunch_failed $? "$BASH_COMMAND"; } 2>/dev/null' ERR"""
# `kill` is a builtin, which only this takes away: `kill -9 -1` would end the recording. The trap
# keeps the stubs in front of PATH, tells them the line, and makes files that are sourced and not
# there: behind one, a variable without a value ends the script, since that file might have set it.
# Under `set -e` it makes folders too, to which the script changes, and absent programs succeed.
# It reads words of the script with the script's own arguments, and has no name that a script has.
_BASH_ENV = r"""enable -n kill 2>/dev/null
{aliases}
set -T
__safelaunch_unset= __safelaunch_level=0 __safelaunch_pending= __safelaunch_errors=
declare -A __safelaunch_answers=({answers})
command_not_found_handle() {{
  {{ local __safelaunch_to={place}/calls/$BASHPID.$RANDOM
  if [[ ${{SAFELAUNCH_ANSWER+x}} ]]; then
    : >{place}/unanswered
    printf '%s\n' "$SAFELAUNCH_ANSWER"
    return 0
  fi
  printf '%s\0' missing "$PWD" $# "$@" "SAFELAUNCH_AT=$SAFELAUNCH_AT" \
    "SAFELAUNCH_INTO=$SAFELAUNCH_INTO" >"$__safelaunch_to.call"
  }} 2>/dev/null
  echo "$1: command not found" >&2
  [[ $-$__safelaunch_errors == *e* ]] || return 127
}}
__safelaunch() {{
  [[ $2 == __safelaunch* || $4 == __safelaunch* || $4 == command_not_found_handle ]] && return
  local IFS=$' \t\n' __safelaunch_command=$2 __safelaunch_f=() __safelaunch_in=$3:$4
  local __safelaunch_word=$2 __safelaunch_was=${{-//[^u]/}}$__safelaunch_unset
  __safelaunch_unset=
  export SAFELAUNCH_AT=$1:$3
  case $PATH in {place}/stubs|{place}/stubs:*) ;; *) PATH={place}/stubs:$PATH ;; esac
  set +u
  __safelaunch_assign
  {errors}
  set -- "${{@:5:$#-5}}"
  [[ $__safelaunch_in == *: ]] && case $__safelaunch_command in *'$'[1-9]*|*'${{'[1-9]*)
    __safelaunch_argument $# ;;
  esac
  case $__safelaunch_command in
    'source '*|'. '*)
      case $__safelaunch_command in *'$('*|*'`'*|*'<('*|*'?'*) ;; *)
        eval "__safelaunch_f=(${{__safelaunch_command#* }})" ;;
      esac
      if [[ -f ${{__safelaunch_f[0]-}} ]]; then
        printf '%s\0' sourced "$PWD" 1 "${{__safelaunch_f[0]}}" \
          >"{place}/calls/$BASHPID.$RANDOM.call"
      elif __safelaunch_make "${{__safelaunch_f[0]}}"; then
        case ${{__safelaunch_f[0]}} in
          activate|*/activate|*/conda.sh|*/mamba.sh|*bashrc|*profile|*/zshrc) ;;
          *) __safelaunch_unset=u ;;
        esac
      fi ;;
    'bash '*.sh*|'sh '*.sh*)
      case $__safelaunch_command in *'$('*|*'`'*|*'<('*|*'?'*) ;; *)
        eval "__safelaunch_f=(${{__safelaunch_command#* }})" ;;
      esac
      __safelaunch_script "${{__safelaunch_f[0]}}" ;;
    'cd '*|'pushd '*)
      case $__safelaunch_command in *'$('*|*'`'*|*'<('*|*'?'*) ;; *)
        eval "__safelaunch_f=(${{__safelaunch_command#* }})" ;;
      esac
      __safelaunch_enter "${{__safelaunch_f[@]}}" ;;
    *)
      while :; do
        case ${{__safelaunch_word%%[[:space:]]*}} in
          *[\'\"\`\(]*) break ;;
          [A-Za-z_]*=*|nohup|exec|time|setsid|env|command) ;;
          *) break ;;
        esac
        [[ $__safelaunch_word == *[[:space:]]* ]] || break
        __safelaunch_word=${{__safelaunch_word#*[[:space:]]}}
      done
      __safelaunch_word=${{__safelaunch_word%%[[:space:]]*}}
      case $__safelaunch_word in
        *'('*|*'`'*|*'?'*|*=*) ;;
        */*|'$'*|'"$'*)
          eval "__safelaunch_f=($__safelaunch_word)"
          __safelaunch_script "${{__safelaunch_f[0]}}"
          __safelaunch_check "${{__safelaunch_f[0]}}" ;;
      esac ;;
  esac
  {outputs}
  [[ $__safelaunch_was ]] && set -u
  return 0
}}
# where `set -e` would end the script
__safelaunch_failed() {{
  [[ $__safelaunch_errors && BASH_SUBSHELL -eq 0 ]] || return
  [[ $__safelaunch_pending ]] && : >{place}/unanswered
  printf '%s\0' failed "$PWD" 2 "$1" "$2" "SAFELAUNCH_AT=$SAFELAUNCH_AT" \
    "SAFELAUNCH_INTO=$SAFELAUNCH_INTO" >"{place}/calls/$BASHPID.$RANDOM.call"
}}
__safelaunch_assign() {{
  local __safelaunch_name=${{__safelaunch_command%%=*}}
  local __safelaunch_value=${{__safelaunch_command#*=}}
  if [[ $__safelaunch_pending && BASH_SUBSHELL -le __safelaunch_level ]]; then
    [[ -e {place}/unanswered ]] && /bin/rm -f {place}/unanswered &&
      printf -v "$__safelaunch_pending" %s "${{__safelaunch_answers[$__safelaunch_pending]}}"
    __safelaunch_pending=
  fi
  if [[ BASH_SUBSHELL -le __safelaunch_level ]]; then
    export SAFELAUNCH_INTO=
    unset SAFELAUNCH_ANSWER
  fi
  __safelaunch_name=${{__safelaunch_name##* }}
  case $__safelaunch_value in *'$('*|*'`'*) ;; *) return ;; esac
  __safelaunch_value=${{__safelaunch_value%%'$('*}}
  [[ ${{__safelaunch_value%%'`'*}} == *[[:space:]]* ]] && return
  [[ $__safelaunch_name && $__safelaunch_name != *[!A-Za-z0-9_]* ]] || return
  SAFELAUNCH_INTO=$__safelaunch_name __safelaunch_level=$BASH_SUBSHELL
  if [[ ${{__safelaunch_answers[$__safelaunch_name]+x}} ]]; then
    __safelaunch_pending=$__safelaunch_name
    export SAFELAUNCH_ANSWER=${{__safelaunch_answers[$__safelaunch_name]}}
  fi
}}
__safelaunch_argument() {{
  local __safelaunch_to={place}/calls/$BASHPID.${{SAFELAUNCH_AT%%:*}}.read.call
  [[ -e $__safelaunch_to ]] || printf '%s\0' argument "$PWD" 2 "$1" "$__safelaunch_command" \
    "SAFELAUNCH_AT=$SAFELAUNCH_AT" >"$__safelaunch_to"
}}
__safelaunch_make() {{
  [[ $1 && ! -e $1 ]] || return
  [[ $1 == */* ]] || ! type -P "$1" >/dev/null || return
  /bin/mkdir -p "${{1%"${{1##*/}}"}}./" && : >"$1" || return
  printf '%s\0' source "$PWD" 2 source "$1" "SAFELAUNCH_AT=$SAFELAUNCH_AT" \
    >"{place}/calls/$BASHPID.$RANDOM.call"
}}
__safelaunch_enter() {{
  [[ ${{-//[^e]/}}{is_lenient} && $# == 1 && $1 && $1 != -* && ! -e $1 ]] || return
  /bin/mkdir -p -- "$1" || return
  printf '%s\0' folder "$PWD" 2 cd "${{1%/}}" "SAFELAUNCH_AT=$SAFELAUNCH_AT" \
    >"{place}/calls/$BASHPID.$RANDOM.call"
}}
__safelaunch_script() {{
  [[ $1 == *.sh && $1 != [-/]* && ! -e $1 ]] || return
  printf '%s\0' absent "$PWD" 1 "$1" "SAFELAUNCH_AT=$SAFELAUNCH_AT" \
    >"{place}/calls/$BASHPID.$RANDOM.call"
}}
__safelaunch_check() {{
  local __safelaunch_line
  case ${{1##*/}} in {launchers}) ;; *) return ;; esac
  if [[ $1 == */* && ! -e $1 && -e {place}/stubs/${{1##*/}} ]]; then
    /bin/mkdir -p -- "${{1%/*}}/" && /bin/ln -s "{place}/stubs/${{1##*/}}" "$1" &&
      printf '%s\0' program "$PWD" 1 "$1" "SAFELAUNCH_AT=$SAFELAUNCH_AT" \
        >"{place}/calls/$BASHPID.$RANDOM.call"
    return
  fi
  [[ $1 == */* && -f $1 && -x $1 ]] || return
  read -r __safelaunch_line <"$1"
  [[ $__safelaunch_line == '#!{bash} -p' ]] ||
    printf '%s\0' escaped "$PWD" 1 "$1" "SAFELAUNCH_AT=$SAFELAUNCH_AT" \
      >"{place}/calls/$BASHPID.$RANDOM.call"
}}
{folders}
{err}
trap '{{ __safelaunch $LINENO "$BASH_COMMAND" "$BASH_SOURCE" "${{FUNCNAME-}}" "$@" "$_" || :; }} \
2>/dev/null' DEBUG
"""


class Trap(NamedTuple):
    """What the trap does beside telling lines: answers of the user, and what it makes to succeed.

    `folders`, with lines, are made at first; then aliases are expanded, too, and what fails ends
    nothing, unless the script has a trap of its own for that.
    """

    answers: Mapping[str, str]
    folders: Sequence[tuple[str, str]] | None
    has_own: bool

    def text(self, place: str, bash: str, launchers: str) -> str:
        """Return the file that BASH_ENV names."""
        is_lenient = self.folders is not None
        ends_nothing = is_lenient and not self.has_own
        folders = [
            f"SAFELAUNCH_AT={quote(at)} __safelaunch_enter {quote(path)}"
            for at, path in self.folders or ()
        ]
        return _BASH_ENV.format(
            place=place,
            bash=bash,
            launchers=launchers,
            answers=" ".join(f"[{name}]={quote(value)}" for name, value in self.answers.items()),
            is_lenient="yes" if is_lenient else "",
            outputs=_OUTPUTS if is_lenient else "",
            errors=_NO_ERRORS if ends_nothing else "",
            err=_ERR if ends_nothing else "",
            aliases="shopt -s expand_aliases" if is_lenient else "",
            folders="\n".join(folders),
        )
