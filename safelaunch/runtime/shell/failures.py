"""Whether a shell script handles the failure of a program that it runs, as its text shows it.

Handled is a failure after which the script itself decides what follows: `a || b`, `if a`, `! a`,
`while a`. Lost is one that nothing looks at: `a; b`, `a & wait`, `a | tee log`. A pipe counts as
with `pipefail`: what the script would do if it saw the failure. Nothing is run or expanded; what
the text does not show (eval, iterations, a file that cannot be read) is unknown.
"""

from __future__ import annotations

import itertools
import os
import re

from safelaunch.runtime.shell import lexer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Union

    from safelaunch.runtime.shell.lexer import Token, Word

    # returns the text of a file by the word that names it, None where it cannot be read
    ReadFile = Callable[[str], Union[str, None]]

DEPTH = 8  # scripts within scripts
STDIN, CODE = "-", "-c"  # in place of a name, for Python code that has none
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_SOURCES = (".", "source")
_VALUED = ("-O", "+O", "--rcfile", "--init-file")  # options of shells
_SINGLE = ("torchrun", "accelerate", "deepspeed")
_LAUNCHERS = (*_SINGLE, "srun", "mpirun")
# commands that start another one once
_WRAPPERS = ("env", "exec", "nohup", "nice", "timeout", "command", "stdbuf", "setsid", "numactl")
_OWN_WORD = re.compile(r"-|\d+[smhd]?\Z|[A-Za-z_]\w*=")  # `-k`, `5`, `X=1` behind such a command
_PYTHON = re.compile(r"python[\d.]*\Z")
_STATUS = ("$?", "${PIPESTATUS[0]}")  # of the command before; a pipe counts as with `pipefail`
_SEPARATORS = (";", "\n", "&")
_CLOSERS = ("then", "elif", "else", "fi", "do", "done", "esac", "}", ")", ";;")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=")
_SHEBANG = re.compile(r"#!.*\b(?:ba|da|z|k)?sh\b")
FIRST_WORDS = 6  # of a command, in which `nohup`, `env X=1`, `timeout 5` may stand before a script


class _UnreadableError(Exception):
    """The text is not what this reader takes for shell."""


class _Leaf:
    """A simple command; `is_handled` is None where the text does not show it."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = words
        self.is_handled: bool | None = False
        self.is_certain = True  # it runs once where the script comes to its end, in its turn
        self.pieces: list[tuple[int, int]] = []  # of pipes: their number, and that of the piece

    @property
    def starts_once(self) -> bool:
        """Whether it starts its program itself, once: not `xargs`, `srun` or a command unknown."""
        names = [os.path.basename(word.value) for word in self.words]
        if names[0] in _WRAPPERS:
            names = [name for name in names if name not in _WRAPPERS and not _OWN_WORD.match(name)]
        name = names[0] if names else ""
        return name in _SINGLE or name.endswith(".py") or bool(_PYTHON.match(name))

    def may_run(self, program: str) -> int:
        """Return how likely it has run a program of Python, a file, a module, CODE or STDIN.

        2: it starts Python, or the program itself; 1: it has its name as an argument, or words
        that only the shell knows.
        """
        names = [os.path.basename(word.value) for word in self.words]
        is_python = any(name.startswith("python") for name in names)
        is_launcher = is_python or any(name in _LAUNCHERS for name in names)
        has_file = any(name.endswith(".py") for name in names)
        if program in (CODE, STDIN):
            return 2 if is_python and (CODE in names if program == CODE else not has_file) else 0
        if os.path.basename(program) in names:
            return 2 if is_launcher or os.path.basename(program) == names[0] else 1
        # `$CMD`, `python $script`
        words = self.words if is_launcher else self.words[:1]
        is_open = not has_file and any(word.expands for word in words)
        return 2 if is_open and is_launcher else int(is_open)


class _Part:
    """A part of a script: after the failure of which leaves it fails itself, or ends well.

    `is_bad`: it ends with a failure of its own (`exit 1`, `false`) where no leaf fails.
    """

    def __init__(
        self, failing: Iterable[_Leaf] = (), *, is_bad: bool = False, exit_by: str = ""
    ) -> None:
        self.failing = list(failing)
        self.well: list[_Leaf] = []
        self.leaving: list[tuple[str, _Leaf]] = []  # `return` or `exit`, after whose failure
        self.is_bad = is_bad
        self.exit_by = exit_by  # the command by which it leaves more than itself, with a failure

    def then(self, operator: str, other: _Part) -> None:
        """Go on with another part behind `&&` or `||`."""
        failing, well = self.failing, self.well
        self.leaving += other.leaving
        if operator == "&&":
            self.failing = failing
            self.well = []
            self.follow(well, other)
            self.is_bad = self.is_bad or other.is_bad
        else:
            self.failing = []
            self.follow(failing, other)
            self.is_bad = self.is_bad and other.is_bad
        self.failing = self.failing + other.failing
        self.well = self.well + other.well

    def follow(self, leaves: Iterable[_Leaf], other: _Part) -> None:
        """Let another part decide what the failure of some leaves is."""
        if other.exit_by:
            self.leave(other.exit_by, leaves)
        elif other.is_bad:
            self.failing = [*self.failing, *leaves]
        else:
            self.well = [*self.well, *leaves]

    def leave(self, name: str, leaves: Iterable[_Leaf]) -> None:
        """Let the failure of leaves end the function by `return`, or the shell by `exit`."""
        self.leaving = [*self.leaving, *((name, leaf) for leaf in leaves)]

    def catch(self, *names: str) -> _Part:
        """Be what `return` or `exit` leaves: it fails then itself. Returns this part."""
        self.failing = self.failing + [leaf for name, leaf in self.leaving if name in names]
        self.leaving = [(name, leaf) for name, leaf in self.leaving if name not in names]
        self.exit_by = "" if self.exit_by in names else self.exit_by
        return self

    def end(self, is_handled: bool | None = False) -> None:
        """Nothing looks at its status any more: `is_handled` holds for the leaves that fail it."""
        for leaf in self.failing:
            leaf.is_handled = is_handled
        for leaf in self.well:
            leaf.is_handled = True


def handles(
    setup: str, argv: Sequence[str], program: str, read: ReadFile, turn: tuple[int, int] = (0, 0)
) -> bool | None:
    """Return whether the failures of a program are handled; None where that is not known.

    `setup` are lines of shell, and `argv` the words of the command behind them. `turn`: which
    start of the program has failed, from 0, and how many there were; (0, 0) where nobody knows.
    """
    reader = _Reader(read)
    try:
        reader.script(setup, 0).end()
        reader.simple([lexer.Word(word, word, False, 0, 0) for word in argv], 0).end()
    except (_UnreadableError, RecursionError):
        return None
    chances = [leaf.may_run(program) for leaf in reader.leaves]
    best = max(max(chances, default=0), 1)
    leaves = [leaf for leaf, n in zip(reader.leaves, chances) if n == best]  # noqa: B905 - 3.8
    if len({leaf.is_handled for leaf in leaves}) == 1:
        return leaves[0].is_handled
    number, count = turn
    return leaves[number].is_handled if leaves and _is_in_turn(leaves, count) else None


def _is_in_turn(leaves: Sequence[_Leaf], count: int) -> bool:
    """Whether so many starts of a program are those of these commands, one each, in this order."""
    is_single = all(leaf.is_certain and leaf.starts_once for leaf in leaves)
    pieces = [piece for leaf in leaves for piece in set(leaf.pieces)]
    pipes = [pipe for pipe, _ in set(pieces)]  # two pieces of a pipe start at the same time
    return is_single and count == len(leaves) and len(set(pipes)) == len(pipes)


class _Tokens:
    """The rest of a script's tokens."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def first(self) -> str | None:
        """The operator, or the raw text of the word, that comes next; None at the end."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        return token if token is None or isinstance(token, str) else token.raw

    @property
    def is_word(self) -> bool:
        """Whether a word comes next."""
        return self.at < len(self.tokens) and not isinstance(self.tokens[self.at], str)

    def word(self) -> Word:
        """Take the next token, a word. Raises _UnreadableError."""
        token = self.tokens[self.at] if self.is_word else None
        if token is None or isinstance(token, str):
            raise _UnreadableError
        self.at += 1
        return token

    def expect(self, *names: str) -> str:
        """Take the next token, one of these. Raises _UnreadableError."""
        if self.first not in names or self.first is None:
            raise _UnreadableError
        name = self.first
        self.at += 1
        return name

    def skip(self, *names: str) -> None:
        """Skip what comes next as long as it is one of these."""
        while self.first is not None and self.first in names:
            self.at += 1

    def skip_to(self, *names: str) -> None:
        """Skip all up to one of these, and that. Raises _UnreadableError."""
        while self.first is not None and self.first not in names:
            self.at += 1
        self.expect(*names)


def _simple_words(tokens: _Tokens) -> list[str]:
    """Return the words of the next command up to an operator, without quotes."""
    rest = itertools.takewhile(lambda token: not isinstance(token, str), tokens.tokens[tokens.at :])
    return [token.value for token in rest if not isinstance(token, str)]


class _Reader:
    """Reads a script, with the scripts that it runs by a literal name."""

    def __init__(self, read: ReadFile) -> None:
        self.read = read
        self.leaves: list[_Leaf] = []
        self.functions: dict[str, Sequence[Token]] = {}
        self.pipes = 0
        self.texts: list[str] = []
        # by the words that hold a status, or a process to wait for, in the list that is read
        self.named: dict[str, _Part] = {}

    def script(self, text: str, depth: int) -> _Part:
        """Return the part that a whole script is. Raises _UnreadableError."""
        return self._sourced(text, depth).catch("exit")

    def _sourced(self, text: str, depth: int) -> _Part:
        """Return the part that a script is in the shell that reads it, which it may end."""
        if depth > DEPTH:
            raise _UnreadableError
        self.texts.append(text)
        tokens = _Tokens(lexer.split(text).tokens)
        part = self._list(tokens, depth)
        if tokens.first is not None:
            raise _UnreadableError
        return part.catch("return")

    def _list(self, tokens: _Tokens, depth: int) -> _Part:
        """Read commands up to what closes them; the last one's status is that of the list."""
        part = _Part()
        leaving: list[tuple[str, _Leaf]] = []
        outside, self.named = self.named, {}
        tokens.skip(*_SEPARATORS)
        while tokens.first is not None and tokens.first not in _CLOSERS:
            words, count = _simple_words(tokens), len(self.leaves)
            leaving += part.leaving
            is_read = any(name in word for word in words for name in _STATUS)
            part.end(is_handled=None if is_read else False)
            part = self._and_or(tokens, depth)
            if tokens.first == "&":
                part.end()
                self._doubt(count)
                if not any(leaf.pieces for leaf in self.leaves[count:]):
                    self.named["$!"] = part  # of a pipe it is the last process
                part = _Part()
            elif tokens.first not in (None, *_SEPARATORS, ")", ";;"):
                raise _UnreadableError
            self.named.update(dict.fromkeys(_STATUS, part))
            tokens.skip(*_SEPARATORS)
        part.leaving = leaving + part.leaving
        self.named = outside
        return part

    def _by_status(self, words: Sequence[str]) -> _Part | None:
        """Return what a command is that has the status of an earlier one; None for any other.

        Those are `return $?` and `wait $!`, also by a variable, whose assignment is noted.
        """
        name, *arguments = words
        if name in ("local", "declare") and len(arguments) == 1:
            name, arguments = arguments[0], []
        variable, _, value = name.partition("=")
        if value in self.named and not arguments and self._is_assigned_once(variable):
            status = self.named[value]
            self.named[f"${variable}"] = self.named[f"${{{variable}}}"] = status
            return None
        if name not in ("return", "exit", "wait") or len(arguments) > 1 or words == ["wait"]:
            return None
        earlier = self.named.get(arguments[0] if arguments else "$?")
        if earlier is None:
            return None
        part = _Part()
        part.well = earlier.well
        if name == "wait":
            part.failing = earlier.failing
        else:
            part.leave(name, earlier.failing)
        return part

    def _is_assigned_once(self, variable: str) -> bool:
        """Whether a variable has one value at most: it is named without `$` once in the texts."""
        text = "\n".join(self.texts)
        bare = re.findall(rf"(?<![\w$])(?<!\$\{{){re.escape(variable)}\b", text)
        declared = re.findall(rf"\blocal {re.escape(variable)}\s*[;\n]", text)
        return len(bare) - len(declared) == 1

    def _doubt(self, count: int) -> None:
        """Note that the leaves since then need not run, or not once, or not in their turn."""
        for leaf in self.leaves[count:]:
            leaf.is_certain = False

    def _and_or(self, tokens: _Tokens, depth: int) -> _Part:
        part, count = self._pipeline(tokens, depth), len(self.leaves)
        while tokens.first in ("&&", "||"):
            operator = tokens.expect("&&", "||")
            tokens.skip("\n")
            for name in _STATUS:  # now of the command on the left, which has failed or has not
                self.named.pop(name, None)
            part.then(operator, self._pipeline(tokens, depth))
        self._doubt(count)
        return part

    def _pipeline(self, tokens: _Tokens, depth: int) -> _Part:
        is_negated = False
        while tokens.first in ("!", "time"):
            is_negated ^= tokens.expect("!", "time") == "!"
            tokens.skip("-p")
        counts = [len(self.leaves)]
        parts = [self._command(tokens, depth)]
        while tokens.first in ("|", "|&"):
            tokens.expect("|", "|&")
            tokens.skip("\n")
            counts.append(len(self.leaves))
            parts.append(self._command(tokens, depth).catch("return", "exit"))
        if len(parts) > 1:
            parts[0].catch("return", "exit")
            self.pipes += 1
            for number, count in enumerate(counts):
                for leaf in self.leaves[count : (*counts, None)[number + 1]]:
                    leaf.pieces.append((self.pipes, number))
        part = _Part(is_bad=any(piece.is_bad for piece in parts), exit_by=parts[0].exit_by)
        for piece in parts:
            part.failing += piece.failing
            part.well += piece.well
            part.leaving += piece.leaving
        if is_negated:
            part.failing, part.well = part.well, part.failing
        return part

    # -- commands ----------------------------------------------------------------------------------

    def _command(self, tokens: _Tokens, depth: int) -> _Part:
        first = tokens.first
        compound = {
            "(": self._subshell,
            "{": self._group,
            "[[": self._test,
            "if": self._if,
            "while": self._loop,
            "until": self._loop,
            "for": self._for,
            "select": self._for,
            "case": self._case,
            "function": self._function,
        }.get(first or "")
        if compound is not None:
            tokens.at += 1
            return compound(tokens, depth)
        words = [tokens.word()]
        if tokens.first == "(":  # `name () ...`
            tokens.expect("(")
            tokens.expect(")")
            return self._define(words[0].value, tokens, depth)
        while tokens.is_word:
            words.append(tokens.word())
        return self.simple(words, depth)

    def _subshell(self, tokens: _Tokens, depth: int) -> _Part:
        if tokens.first != "(":
            part = self._list(tokens, depth)
            tokens.expect(")")
            return part.catch("return", "exit")
        opened = 1  # `((`: arithmetic
        while opened:
            opened += {"(": 1, ")": -1}.get(tokens.first or "", 0)
            tokens.expect(tokens.first or "")
        return _Part()

    def _group(self, tokens: _Tokens, depth: int) -> _Part:
        part = self._list(tokens, depth)
        tokens.expect("}")
        return part

    def _test(self, tokens: _Tokens, depth: int) -> _Part:
        del depth
        tokens.skip_to("]]")
        return _Part()

    def _if(self, tokens: _Tokens, depth: int) -> _Part:
        condition, count = self._list(tokens, depth), len(self.leaves)
        tokens.expect("then")
        then = self._list(tokens, depth)
        otherwise = _Part()
        closer = tokens.expect("elif", "else", "fi")
        if closer == "elif":
            otherwise = self._if(tokens, depth)
        elif closer == "else":
            otherwise = self._list(tokens, depth)
            tokens.expect("fi")
        self._doubt(count)
        part = _Part(then.failing + otherwise.failing, is_bad=then.is_bad and otherwise.is_bad)
        part.well = then.well + otherwise.well
        part.leaving = condition.leaving + then.leaving + otherwise.leaving
        part.follow(condition.failing, otherwise)
        part.follow(condition.well, then)
        return part

    def _loop(self, tokens: _Tokens, depth: int) -> _Part:
        count = len(self.leaves)
        condition = self._list(tokens, depth)
        condition.end(is_handled=True)
        part = self._iteration(tokens, depth)
        self._doubt(count)
        part.leaving += condition.leaving
        return part

    def _for(self, tokens: _Tokens, depth: int) -> _Part:
        while tokens.first not in ("do", None):
            tokens.at += 1
        return self._iteration(tokens, depth)

    def _iteration(self, tokens: _Tokens, depth: int) -> _Part:
        tokens.expect("do")
        count = len(self.leaves)
        body = self._list(tokens, depth)
        body.end(is_handled=None)
        self._doubt(count)
        tokens.expect("done")
        part = _Part()
        part.leaving = body.leaving
        return part

    def _case(self, tokens: _Tokens, depth: int) -> _Part:
        tokens.word()
        tokens.skip("\n")
        tokens.expect("in")
        part, count = _Part(), len(self.leaves)
        while True:
            tokens.skip("\n")
            if tokens.first == "esac":
                tokens.expect("esac")
                self._doubt(count)
                return part
            tokens.skip_to(")")
            branch = self._list(tokens, depth)
            part.failing += branch.failing
            part.well += branch.well
            part.leaving += branch.leaving
            tokens.skip(";;", "&")

    def _function(self, tokens: _Tokens, depth: int) -> _Part:
        name = tokens.word().value
        tokens.skip("(", ")")
        return self._define(name, tokens, depth)

    def _define(self, name: str, tokens: _Tokens, depth: int) -> _Part:
        """Read the body of a function; each call reads it again."""
        tokens.skip("\n")
        start, count = tokens.at, len(self.leaves)
        self._command(tokens, depth)
        self.functions[name] = tokens.tokens[start : tokens.at]
        del self.leaves[count:]
        return _Part()

    def _call(self, name: str, depth: int) -> _Part:
        if depth > DEPTH:
            raise _UnreadableError
        return self._command(_Tokens(self.functions[name]), depth).catch("return")

    # -- simple commands ---------------------------------------------------------------------------

    def simple(self, words: Sequence[Word], depth: int) -> _Part:
        """Return the part that a simple command is, or the script that it runs."""
        by_status = self._by_status([word.value for word in words])
        if by_status is not None:
            return by_status
        own = list(itertools.dropwhile(lambda word: _ASSIGNMENT.match(word.raw), words))
        failing = []
        for word in words:
            for text in word.substitutions:
                part = self.script(text, depth + 1)
                if own:
                    part.end()
                else:  # `x=$(a)` has the status of `a`
                    failing += part.failing
                    part.failing = []
                    part.end()
        if not own:
            return _Part(failing)
        if own[0].value in self.functions:
            return self._call(own[0].value, depth + 1)
        inner = self._script_text(own)
        if inner is not None and own[0].value in _SOURCES:
            return self._sourced(inner, depth + 1)
        if inner is not None:
            return self.script(inner, depth + 1)
        leaf = _Leaf(own)
        self.leaves.append(leaf)
        name, *arguments = [word.value for word in own]
        exit_by = name if name in ("exit", "return") and arguments[:1] != ["0"] else ""
        return _Part([leaf], is_bad=bool(exit_by) or name == "false", exit_by=exit_by)

    def _script_text(self, words: Sequence[Word]) -> str | None:
        """Return the script that a command runs; None where it is none, or cannot be read."""
        names = [os.path.basename(word.value) for word in words[:FIRST_WORDS]]
        shell = next((index for index, name in enumerate(names) if name in SHELLS), None)
        if names[0] in _SOURCES:
            shell = 0
        if shell is None:
            file = next((w for w in words[:FIRST_WORDS] if w.value.endswith(".sh")), words[0])
            is_path = "/" in file.value or file is not words[0]
            body = self.read(file.value) if is_path else None
            return body if body is not None and _SHEBANG.match(body) else None
        is_code = is_value = False
        for word in words[shell + 1 :]:
            if is_value:
                is_value = False
                continue
            if word.value[:1] in ("-", "+"):
                is_value = word.value in _VALUED or word.value.endswith("o")  # -euo pipefail
                is_code = is_code or ("c" in word.value and not word.value.startswith("--"))
                continue
            return word.value if is_code else None if word.expands else self.read(word.value)
        return None
