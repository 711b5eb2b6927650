"""Builtins of bash that change the state of the shell, or print."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.importer.findings import MissingFolder, Stop, Unresolved, combined, joined
from safelaunch.importer.shell import conditions
from safelaunch.importer.state import CHANGING, NAME, State, Variable
from safelaunch.importer.words import expansion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.importer.state import ScriptCaller
    from safelaunch.importer.syntax import SyntaxNode

    Builtin = Callable[[list[str], State], None]

_LETTERS = {
    "e": "errexit", "u": "nounset", "f": "noglob", "a": "allexport", "n": "noexec",
    "k": "keyword", "t": "onecmd", "B": "braceexpand", "P": "physical", "C": "noclobber",
}  # fmt: skip
OPTIONS = frozenset((
    *_LETTERS.values(), "pipefail", "xtrace", "verbose", "errtrace", "functrace", "braceexpand",
    "hashall", "histexpand", "history", "monitor", "noclobber", "notify", "physical", "posix",
    "privileged", "emacs", "vi", "interactive-comments", "keyword", "onecmd", "nolog", "ignoreeof",
))  # fmt: skip
_REFUSED = frozenset(("noexec", "posix", "keyword", "onecmd", "noclobber"))
_WIDEST = len("%0999s")  # of a width that `printf` pads to
_READERS = frozenset(("read", "mapfile", "readarray", "getopts"))


class Exit(Exception):  # noqa: N818 - an end, no error
    """`exit`: the end of the script or of a subshell."""


class Return(Exception):  # noqa: N818 - an end, no error
    """`return`: the end of a function or of a sourced file."""


class Break(Exception):  # noqa: N818 - an end, no error
    """`break` or `continue` of so many loops."""

    def __init__(self, loops: int, *, goes_on: bool) -> None:
        super().__init__()
        self.loops = loops
        self.goes_on = goes_on


def initial_state(
    caller: ScriptCaller,
    script: str,
    substitute: Callable[[State, SyntaxNode], str],
    ask: Callable[[Unresolved], None],
    preset: set[str],
) -> State:
    """Return the state of a shell that begins a script; `preset` are answers it reads."""
    return State(
        caller=caller,
        script=script,
        substitute=substitute,
        ask=ask,
        sources=(script,),
        variables={
            name: Variable(value, is_exported=name not in CHANGING)
            for name, value in caller.answers.items()
            if name in preset
        },
        arguments=list(caller.arguments),
        folder=caller.folder,
    )


def run(items: Sequence[str | Unresolved], state: State) -> None:
    """Run a builtin by name."""
    name, *arguments = items
    failures = [item for item in arguments if isinstance(item, Unresolved)]
    if failures:
        _unresolved(str(name), arguments, failures[0], state)
        return
    if name not in ("exit", "return"):  # they end with the last one
        state.status = 0
    try:
        BUILTINS[str(name)]([item for item in arguments if isinstance(item, str)], state)
    except ValueError:  # `break x`, `exit` with thousands of digits
        raise Stop(f"`{name}` with a number that is not followed", state.line) from None


def _unresolved(
    name: str, arguments: Sequence[str | Unresolved], why: Unresolved, state: State
) -> None:
    """Do what a builtin does with arguments that the script alone does not say."""
    state.status = None if name in ("[", "test", "read", "cd") else 0
    if name in ("echo", "printf"):
        _write(state, _with_marks(name, arguments, why, state))
        if arguments[:1] == ["-v"]:
            _forget(name, [item for item in arguments[1:2] if isinstance(item, str)], state)
    elif name in ("[", "test"):
        result = conditions.of_caller(arguments, state)
        if result is None:
            raise why
        state.status = 0 if result else 1
    elif name in ("cd", "pushd", "popd"):
        state.folder = why
        state.status = 0
    elif name in ("set", "shift"):
        state.arguments_unresolved = why
    elif name == "unset":
        state.forget("`unset` of a variable whose name is unresolved")
        state.unresolved_exports = why  # it may be one that the caller has exported
    elif name in ("exit", "return", "break", "continue"):
        state.status = None
        BUILTINS[name]([], state)
    elif name in _READERS:
        _forget(name, [item for item in arguments if isinstance(item, str)], state)


def _with_marks(
    name: str, arguments: Sequence[str | Unresolved], why: Unresolved, state: State
) -> Unresolved:
    """Return what `echo` and `printf` write, with marks for what differs at each start."""
    reasons = [item for item in arguments if isinstance(item, Unresolved)]
    texts = [item if isinstance(item, str) else item.content for item in arguments]
    words = [text for text in texts if isinstance(text, str)]
    if len(words) < len(texts) or not all(reason.differs for reason in reasons):
        return why.as_unmarked()
    inner = state.fork()
    inner.output = []
    BUILTINS[name](words, inner)
    output = joined(inner.output)
    if isinstance(output, str):
        return combined(reasons, output)
    is_word = name == "printf" and len(words[0].replace("\\n", " ").split()) == 1  # `%d`
    return combined(reasons, None) if is_word else why.as_unmarked()


def _forget(name: str, names: Sequence[str], state: State) -> None:
    for item in names:
        if NAME.fullmatch(item):
            state.assign(item, state.fail(f"`{item}` is set by `{name}`"))
    state.status = None


def _write(state: State, text: str | Unresolved) -> None:
    if state.output is not None:
        if isinstance(text, str):
            state.budget.spend(len(text))
        state.output.append(text)


# -- folders ---------------------------------------------------------------------------------------


def _cd(arguments: list[str], state: State) -> None:
    targets = [word for word in arguments if word not in ("-P", "-L", "--", "-e")]
    if len(targets) > 1 or "CDPATH" in state.variables:
        raise Stop("`cd` with several folders", state.line)
    target = targets[0] if targets else state.text("HOME")
    if target == "-":
        target = state.last_folder
    if target is None:
        raise Stop("`cd` to no folder", state.line)
    if isinstance(state.folder, Unresolved) and not os.path.isabs(target):
        return
    is_physical = "-P" in arguments or "physical" in state.options
    before = "" if isinstance(state.folder, Unresolved) else state.folder
    path = os.path.normpath(os.path.join(before, target))
    state.last_folder = before or None
    is_there = os.path.isdir(os.path.join(before, target)) or path in state.folders
    if is_there or (before in state.folders and os.path.isdir(path)):
        state.folder = os.path.realpath(path) if is_physical else path
    else:
        state.folder = MissingFolder(f"no folder `{target}` to change to", state.line)
        state.folder.path, state.folder.target = path, target


def _pushd(arguments: list[str], state: State) -> None:
    if len(arguments) != 1 or arguments[0].startswith(("+", "-")):
        state.folder = state.fail("`pushd` without a folder")
        return
    state.stack = (*state.stack, state.folder)
    _cd(arguments, state)


def _popd(_arguments: list[str], state: State) -> None:
    if not state.stack:
        raise Stop("`popd` without `pushd`", state.line)
    *rest, state.folder = state.stack
    state.stack = tuple(rest)


def _pwd(arguments: list[str], state: State) -> None:
    path: str | Unresolved = state.folder
    if "-P" in arguments and isinstance(path, str):
        path = os.path.realpath(path)
    _write(state, path + "\n" if isinstance(path, str) else path)


# -- variables -------------------------------------------------------------------------------------


def _set(arguments: list[str], state: State) -> None:
    rest = list(arguments)
    while rest and rest[0][:1] in ("-", "+") and rest[0] not in ("--", "-", "+"):
        word = rest.pop(0)
        if not re.fullmatch(r"[-+][abefhkmnptuvxBCEHPTo]+", word):
            raise Stop(f"`set {word}`", state.line)
        names = {_LETTERS[letter] for letter in word[1:] if letter in _LETTERS}
        if "o" in word[1:] and rest:
            names.add(rest.pop(0))
            if not names <= OPTIONS:
                raise Stop(f"`set {word}` of an unknown option", state.line)
        if names & _REFUSED or (word[0] == "+" and names & {"braceexpand"}):
            raise Stop(f"`set {' '.join(arguments)}`", state.line)
        state.options = state.options | names if word[0] == "-" else state.options - names
    if rest and rest[0] in ("--", "-"):
        rest.pop(0)
    elif not rest:
        return
    state.arguments, state.arguments_unresolved, state.has_all_arguments = rest, None, True
    state.bound_arguments()


def _unset(arguments: list[str], state: State) -> None:
    functions = "-f" in arguments
    for word in arguments:
        if word.startswith("-"):
            continue
        if not NAME.fullmatch(word):
            _unset_element(word, state)
        elif functions or (word in state.functions and word not in state.variables):
            state.functions.pop(word, None)
        else:
            state.unset(word)


def _unset_element(word: str, state: State) -> None:
    match = re.fullmatch(rf"({NAME.pattern})\[(\d+)\]", word)
    content = state.content(match[1]) if match is not None else None
    if match is None or match[1] in state.maps or not isinstance(content, dict):
        raise Stop("`unset` of an element", state.line)
    state.assign(match[1], {key: text for key, text in content.items() if key != int(match[2])})


def _shift(arguments: list[str], state: State) -> None:
    count = int(arguments[0]) if arguments and arguments[0].isdigit() else 1
    own = state.job_variables
    if own is not None and not state.has_all_arguments and count > len(state.arguments):
        count -= len(state.arguments)
        state.shift -= len(state.arguments)
        state.arguments = []
        if count - state.shift > own.count:
            raise Stop("`shift` behind the arguments that it reads", state.line)
        state.shift -= count
    elif state.arguments_unresolved is None and count <= len(state.arguments):
        del state.arguments[:count]
        state.shift -= count
    else:
        state.shift -= 0 if state.has_all_arguments else count  # as where they are given
        state.status = 1


def _read(arguments: list[str], state: State) -> None:
    """Read fields of a here-string or of a program's output; what a user types is unresolved."""
    match = re.fullmatch(r"((?:-(?:[ra]+|r?d\0)\0)*)((?:[A-Za-z_]\w*\0)+)", _joined(arguments))
    source = state.input
    names = [word for word in arguments if NAME.fullmatch(word)]
    options = "" if match is None else match[1]
    if match is None or not isinstance(source, str) or ("\\" in source and "r" not in options):
        for name in names:
            state.assign(name, state.fail(f"`{name}` is read from an input"))
        state.status = None
        return
    names = match[2].split("\0")[:-1]
    reads_all = "d" in options
    line, end, state.input = (source, "", "") if reads_all else source.partition("\n")
    state.status = 0 if end else 1
    separators = state.text("IFS")
    separators = " \t\n" if separators is None else separators
    fields = expansion.split_text(line, separators)
    if "a" in options:
        state.assign(names[0], dict(enumerate(fields)))
    elif len(names) == 1:
        rest_of_line = expansion.rest_of_line(line, separators)
        unread = state.fail(f"`{names[0]}` is read from an input")
        state.assign(names[0], unread if rest_of_line is None else rest_of_line)
    else:
        for number, name in enumerate(names):
            rest = state.fail(f"`{name}` is the rest of a line")
            value = fields[number] if number < len(fields) else ""
            state.assign(name, rest if len(fields) > len(names) else value)


def _joined(arguments: Sequence[str]) -> str:
    return "".join(f"{word}\0" for word in arguments)


def _mapfile(arguments: list[str], state: State) -> None:
    names = [word for word in arguments if not word.startswith("-")]
    _forget("mapfile", names or ["MAPFILE"], state)


def _getopts(arguments: list[str], state: State) -> None:
    own = state.job_variables
    is_marked = own is not None and (
        (own.has_arguments and not state.has_all_arguments) or state.marked_argument() is not None
    )
    is_known = state.arguments_unresolved is None and not is_marked
    if len(arguments) == 2 and not state.arguments and is_known:  # noqa: PLR2004 - options and a name
        state.assign(arguments[1], "?")
        state.status = 1
        return
    words = arguments[2:] or state.arguments
    if len(arguments) < 2 or not is_known:  # noqa: PLR2004
        raise Stop("`getopts` with arguments", state.line, "safelaunch import --record")
    _next_option(arguments[0], arguments[1], words, state)


def _next_option(options: str, name: str, words: Sequence[str], state: State) -> None:
    """Take the next option of words, as `getopts` does; letters may share a word."""
    at, place = int(state.text("OPTIND") or 1), state.option_place
    if place[0] != at:
        place = (at, 0)
    word = words[at - 1] if at <= len(words) else ""
    state.unset("OPTARG")
    if not place[1] and (len(word) < 2 or word[0] != "-" or word == "--"):  # noqa: PLR2004 - `-x`
        _end_option(name, "?", at + (word == "--"), state)
        state.status = 1
        return
    letter, rest = word[place[1] or 1], word[(place[1] or 1) + 1 :]
    is_silent, following = options.startswith(":"), options.partition(letter)[2][:1]
    if letter == ":" or letter not in options:
        if is_silent:
            state.assign("OPTARG", letter)
        letter = "?"
    elif following == ":":
        if rest:
            state.assign("OPTARG", rest)
        elif at < len(words):
            state.assign("OPTARG", words[at])
            at += 1
        else:
            if is_silent:
                state.assign("OPTARG", letter)
            letter = ":" if is_silent else "?"
        rest = ""
    if rest:
        state.option_place = (at, len(word) - len(rest))
        state.assign(name, letter)
    else:
        _end_option(name, letter, at + 1, state)


def _end_option(name: str, value: str, at: int, state: State) -> None:
    state.assign(name, value)
    state.assign("OPTIND", str(at))
    state.option_place = (at, 0)


# -- output and conditions -------------------------------------------------------------------------


def _echo(arguments: list[str], state: State) -> None:
    rest, end, escapes = list(arguments), "\n", False
    while rest and re.fullmatch(r"-[neE]+", rest[0]):
        option = rest.pop(0)
        end = "" if "n" in option else end
        escapes = "e" in option or (escapes and "E" not in option)
    text = " ".join(rest)
    if "sh" in state.options and ("\\" in text or rest != arguments):
        _write(state, state.fail("escapes of `echo`, which differ between shells"))
        return
    if escapes and "\\" in text:
        text = text.replace("\\n", "\n").replace("\\t", "\t")
        if "\\" in text:
            _write(state, state.fail("escapes of `echo -e`"))
            return
    _write(state, text + end)


def _printf(arguments: list[str], state: State) -> None:
    target = None
    if arguments[:1] == ["-v"] and len(arguments) > 2:  # noqa: PLR2004 - name and format
        target, arguments = arguments[1], arguments[2:]
    text = _formatted(arguments)
    content = state.fail("a format of `printf`") if text is None else text
    if target is None:
        _write(state, content)
    else:
        state.assign(target, content)


def _formatted(arguments: list[str]) -> str | None:
    """Return what `printf` prints; None for a format that is not followed."""
    form = arguments[0].replace("\\n", "\n").replace("\\t", "\t") if arguments else "\\"
    pieces = re.findall(r"%%|%0?\d*[sd]|[^%]+|%", form)
    values = list(arguments[1:])
    takes_values = any(piece[0] == "%" and piece not in ("%%", "%") for piece in pieces)
    if "\\" in form or form[:1] == "-" or "%" in pieces or (values and not takes_values):
        return None
    if any(len(piece) > _WIDEST and piece[0] == "%" for piece in pieces):
        return None
    text = ""
    while True:
        for piece in pieces:
            is_value = piece[0] == "%" and piece != "%%"
            item = _formatted_value(piece, values.pop(0) if values else "") if is_value else piece
            if item is None:
                return None
            text += item if is_value else item.replace("%%", "%")
        if not values:
            return text


def _formatted_value(piece: str, value: str) -> str | None:
    if piece[-1] == "d":
        return piece % int(value or 0) if re.fullmatch(r"(-?(0|[1-9]\d{,17}))?", value) else None
    plain = piece == "%s" or (piece[1] != "0" and value.isascii())
    return piece % value if plain else None


def _test(arguments: list[str], state: State) -> None:
    state.status = 0 if conditions.test(arguments, state) else 1


def _bracket(arguments: list[str], state: State) -> None:
    if arguments[-1:] != ["]"]:
        raise Stop("`[` without `]`", state.line)
    _test(arguments[:-1], state)


# -- ends ------------------------------------------------------------------------------------------


def _exit(arguments: list[str], state: State) -> None:
    if arguments and not arguments[0].isdigit():
        raise Stop(f"`exit {arguments[0]}`", state.line)
    state.status = int(arguments[0]) % 256 if arguments and arguments[0].isdigit() else state.status
    raise Exit


def _return(arguments: list[str], state: State) -> None:
    if not state.may_return:  # as in `return 1 2>/dev/null || exit 1`
        state.status = 2
        return
    state.status = int(arguments[0]) % 256 if arguments and arguments[0].isdigit() else state.status
    raise Return


def _break(arguments: list[str], _state: State) -> None:
    raise Break(int(arguments[0]) if arguments else 1, goes_on=False)


def _continue(arguments: list[str], _state: State) -> None:
    raise Break(int(arguments[0]) if arguments else 1, goes_on=True)


def _false(_arguments: list[str], state: State) -> None:
    state.status = 1


def _nothing(_arguments: list[str], _state: State) -> None:
    """Do nothing: it has no effect on a launch."""


_PATTERN_OPTIONS = {"nullglob", "failglob", "extglob", "globstar", "dotglob", "nocaseglob"}
_HARMLESS_OPTIONS = {"checkwinsize", "histappend", "cmdhist", "lithist", "huponexit", "login_shell"}


def _shopt(arguments: list[str], state: State) -> None:
    names = {word for word in arguments if not word.startswith("-")}
    if "-q" in arguments or not names:
        state.status = None
    elif names & _PATTERN_OPTIONS:
        state.options = {*state.options, "shopt"}
    if not names <= _PATTERN_OPTIONS | _HARMLESS_OPTIONS and "-s" in arguments:
        raise Stop(f"`shopt {' '.join(arguments)}`", state.line)


def _type(_arguments: list[str], state: State) -> None:
    state.status = None
    _write(state, state.fail("where a program is"))


BUILTINS: dict[str, Builtin] = {
    "cd": _cd, "pushd": _pushd, "popd": _popd, "pwd": _pwd,
    "set": _set, "unset": _unset, "shift": _shift, "shopt": _shopt,
    "read": _read, "mapfile": _mapfile, "readarray": _mapfile, "getopts": _getopts,
    "echo": _echo, "printf": _printf, "test": _test, "[": _bracket,
    "exit": _exit, "return": _return, "break": _break, "continue": _continue,
    "true": _nothing, ":": _nothing, "false": _false, "wait": _nothing, "umask": _nothing,
    "alias": _nothing, "hash": _nothing, "disown": _nothing, "jobs": _nothing, "bind": _nothing,
    "exec": _nothing,
    "type": _type, "which": _type, "command": _type,
}  # fmt: skip
