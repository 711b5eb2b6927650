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
_VALUED = ("-O", "+O", "--rcfile", "--init-file")  # options of shells
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "srun", "mpirun")
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

    def __init__(self, failing: Iterable[_Leaf] = (), *, is_bad: bool = False) -> None:
        self.failing = list(failing)
        self.well: list[_Leaf] = []
        self.is_bad = is_bad

    def then(self, operator: str, other: _Part) -> None:
        """Go on with another part behind `&&` or `||`."""
        failing, well = self.failing, self.well
        if operator == "&&":
            self.failing = failing + (well if other.is_bad else [])
            self.well = [] if other.is_bad else well
            self.is_bad = self.is_bad or other.is_bad
        else:
            self.failing = failing if other.is_bad else []
            self.well = well + ([] if other.is_bad else failing)
            self.is_bad = self.is_bad and other.is_bad
        self.failing = self.failing + other.failing
        self.well = self.well + other.well

    def end(self, is_handled: bool | None = False) -> None:
        """Nothing looks at its status any more: `is_handled` holds for the leaves that fail it."""
        for leaf in self.failing:
            leaf.is_handled = is_handled
        for leaf in self.well:
            leaf.is_handled = True


def handles(setup: str, argv: Sequence[str], program: str, read: ReadFile) -> bool | None:
    """Return whether the failures of a program are handled; None where that is not known.

    `setup` are lines of shell, and `argv` the words of the command behind them.
    """
    reader = _Reader(read)
    try:
        reader.script(setup, 0).end()
        reader.simple([lexer.Word(word, word, False, 0, 0) for word in argv], 0).end()
    except (_UnreadableError, RecursionError):
        return None
    chances = [leaf.may_run(program) for leaf in reader.leaves]
    best = max(max(chances, default=0), 1)
    results = [leaf.is_handled for leaf, n in zip(reader.leaves, chances) if n == best]  # noqa: B905 - 3.8
    return results[0] if len(set(results)) == 1 else None


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


class _Reader:
    """Reads a script, with the scripts that it runs by a literal name."""

    def __init__(self, read: ReadFile) -> None:
        self.read = read
        self.leaves: list[_Leaf] = []
        self.functions: dict[str, Sequence[Token]] = {}

    def script(self, text: str, depth: int) -> _Part:
        """Return the part that a whole script is. Raises _UnreadableError."""
        if depth > DEPTH:
            raise _UnreadableError
        tokens = _Tokens(lexer.split(text).tokens)
        part = self._list(tokens, depth)
        if tokens.first is not None:
            raise _UnreadableError
        return part

    def _list(self, tokens: _Tokens, depth: int) -> _Part:
        """Read commands up to what closes them; the last one's status is that of the list."""
        part = _Part()
        while True:
            tokens.skip(*_SEPARATORS)
            if tokens.first is None or tokens.first in _CLOSERS:
                return part
            part.end()
            part = self._and_or(tokens, depth)
            if tokens.first == "&":
                part.end()
                part = _Part()
            elif tokens.first not in (None, *_SEPARATORS, ")", ";;"):
                raise _UnreadableError

    def _and_or(self, tokens: _Tokens, depth: int) -> _Part:
        part = self._pipeline(tokens, depth)
        while tokens.first in ("&&", "||"):
            operator = tokens.expect("&&", "||")
            tokens.skip("\n")
            part.then(operator, self._pipeline(tokens, depth))
        return part

    def _pipeline(self, tokens: _Tokens, depth: int) -> _Part:
        is_negated = False
        while tokens.first in ("!", "time"):
            is_negated ^= tokens.expect("!", "time") == "!"
            tokens.skip("-p")
        parts = [self._command(tokens, depth)]
        while tokens.first in ("|", "|&"):
            tokens.expect("|", "|&")
            tokens.skip("\n")
            parts.append(self._command(tokens, depth))
        part = _Part(is_bad=any(piece.is_bad for piece in parts))
        for piece in parts:
            part.failing += piece.failing
            part.well += piece.well
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
            return part
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
        condition = self._list(tokens, depth)
        tokens.expect("then")
        then = self._list(tokens, depth)
        otherwise = _Part()
        closer = tokens.expect("elif", "else", "fi")
        if closer == "elif":
            otherwise = self._if(tokens, depth)
        elif closer == "else":
            otherwise = self._list(tokens, depth)
            tokens.expect("fi")
        part = _Part(then.failing + otherwise.failing, is_bad=then.is_bad and otherwise.is_bad)
        part.well = then.well + otherwise.well
        for leaves, branch in ((condition.failing, otherwise), (condition.well, then)):
            (part.failing if branch.is_bad else part.well).extend(leaves)
        return part

    def _loop(self, tokens: _Tokens, depth: int) -> _Part:
        part = self._list(tokens, depth)
        part.end(is_handled=True)
        return self._iteration(tokens, depth)

    def _for(self, tokens: _Tokens, depth: int) -> _Part:
        while tokens.first not in ("do", None):
            tokens.at += 1
        return self._iteration(tokens, depth)

    def _iteration(self, tokens: _Tokens, depth: int) -> _Part:
        tokens.expect("do")
        self._list(tokens, depth).end(is_handled=None)
        tokens.expect("done")
        return _Part()

    def _case(self, tokens: _Tokens, depth: int) -> _Part:
        tokens.word()
        tokens.skip("\n")
        tokens.expect("in")
        part = _Part()
        while True:
            tokens.skip("\n")
            if tokens.first == "esac":
                tokens.expect("esac")
                return part
            tokens.skip_to(")")
            branch = self._list(tokens, depth)
            part.failing += branch.failing
            part.well += branch.well
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
        return self._command(_Tokens(self.functions[name]), depth)

    # -- simple commands ---------------------------------------------------------------------------

    def simple(self, words: Sequence[Word], depth: int) -> _Part:
        """Return the part that a simple command is, or the script that it runs."""
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
        if inner is not None:
            return self.script(inner, depth + 1)
        leaf = _Leaf(own)
        self.leaves.append(leaf)
        name, *arguments = [word.value for word in own]
        is_exit = name in ("exit", "return") and arguments[:1] != ["0"]
        return _Part([leaf], is_bad=is_exit or name == "false")

    def _script_text(self, words: Sequence[Word]) -> str | None:
        """Return the script that a command runs; None where it is none, or cannot be read."""
        names = [os.path.basename(word.value) for word in words[:FIRST_WORDS]]
        shell = next((index for index, name in enumerate(names) if name in SHELLS), None)
        if names[0] in (".", "source"):
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
