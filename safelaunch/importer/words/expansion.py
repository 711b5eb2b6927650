"""Words of bash: expansion, splitting at blanks, removal of quotes. Raises Unresolved.

A word is expanded to pieces, the pieces are split to fields.
"""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.importer.budget import LONGEST_VALUE
from safelaunch.importer.findings import DIFFERENT, Unresolved, UnsetName
from safelaunch.importer.state import NAME, SEARCH_PATHS, Variable
from safelaunch.importer.variables import job_keys
from safelaunch.importer.variables.marks import ALL
from safelaunch.importer.words import arithmetic, braces, parameters, patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from safelaunch.importer.state import Array, State
    from safelaunch.importer.syntax import SyntaxNode
    from safelaunch.importer.variables.marks import JobVariables

_WHITE = " \t\n"
_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_ANSI = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|([0-7]{1,3}))"
)


class Piece(NamedTuple):
    """A part of an expanded word. `splits`: bash splits it at the characters of IFS."""

    text: str
    quoted: bool
    splits: bool = False
    ends_field: bool = False  # `"$@"`: the next piece begins another field
    joint: str = " "  # what stands in place of such an end in an assignment


def fields(word: SyntaxNode, state: State) -> list[str]:
    """Return the fields of a word of a command."""
    expanded: list[str] = []
    for item in braces.expand(word, state):
        assigns = re.match(r"[A-Za-z_]\w*\+?=", _leading(item)) is not None
        pieces = list(_bounded(_pieces(item, state, tilde=True, assigns=assigns), state))
        _need_words(pieces, state)
        expanded += [_pathname(field, state) for field in _split(pieces, state)]
    return expanded


def _need_words(pieces: Sequence[Piece], state: State) -> None:
    """Require a single word of each value of the caller that is split. Raises Unresolved."""
    own = state.job_variables
    for piece in pieces:
        if own is None or not piece.splits or DIFFERENT not in piece.text:
            continue
        if "shopt" in state.options or state.text("IFS") not in (None, _WHITE):
            raise state.fail("a value of the caller that is split in an unusual way")
        own.need(piece.text, "word")


def text(word: SyntaxNode | None, state: State) -> str:
    """Return a word as one text, as in an assignment: neither split nor matched with files."""
    if word is None:
        return ""
    pieces = _bounded(_pieces(word, state, tilde=True, assigns=True), state)
    return "".join(piece.text for piece in _joined(pieces))


def key(word: SyntaxNode | None, state: State) -> str:
    """Return the key of an element of a map."""
    with state.marking(None):
        return text(word, state)


def pattern(word: SyntaxNode | None, state: State) -> list[patterns.Character]:
    """Return a word as a pattern."""
    pieces = [] if word is None else _joined(_bounded(_pieces(word, state, tilde=True), state))
    return [(char, piece.quoted) for piece in pieces for char in piece.text]


def document(word: SyntaxNode | None, state: State, *, quoted: bool) -> str:
    """Return the text of a here-document."""
    if word is None:
        return ""
    if quoted:
        return "".join(part.text("Value") for part in word.children("Parts"))
    parts = word.children("Parts")
    if any(p.text("Param") == "*" for p in parts) and state.text("IFS") not in (None, _WHITE):
        raise state.fail("`$*` in a here-document at another `IFS`")
    pieces = (p for part in parts for p in _quoted_part(part, state, "$`\\"))
    return "".join(piece.text for piece in _joined(_bounded(pieces, state)))


def _bounded(pieces: Iterable[Piece], state: State) -> Iterator[Piece]:
    """Yield pieces until they are longer than a value may be. Raises Unresolved and Stop."""
    size = 0
    for piece in pieces:
        size += len(piece.text) + 1
        state.budget.spend(len(piece.text) + 1)
        if size > LONGEST_VALUE:
            raise state.fail(f"a value of more than {LONGEST_VALUE // 1024} KiB")
        yield piece


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield pieces where fields are joined, as `x="$@"` and `x=$*` join them."""
    for piece in pieces:
        yield piece
        if piece.ends_field:
            yield Piece(piece.joint, quoted=True)


def _leading(word: SyntaxNode) -> str:
    parts = word.children("Parts")
    return parts[0].text("Value") if parts and parts[0].kind == "Lit" else ""


def _pieces(
    word: SyntaxNode, state: State, *, tilde: bool = False, assigns: bool = False
) -> Iterator[Piece]:
    parts = word.children("Parts")
    for number, part in enumerate(parts):
        state.line = part.line or state.line
        if part.kind == "Lit":
            begins = tilde and number == 0
            value = part.text("Value")
            is_last = number == len(parts) - 1
            if (begins or assigns) and re.search(r"~\\|~[^/:]*$" if not is_last else r"~\\", value):
                raise state.fail("a `~` before quotes or a variable")
            yield from _literal(value, state, begins=begins, assigns=assigns)
        elif part.kind == "SglQuoted":
            value = part.text("Value")
            yield Piece(_ansi(value, state) if part.has("Dollar") else value, quoted=True)
        elif part.kind == "DblQuoted":
            yield from _or_all(_double_quoted(part, state), parts[number + 1 :], state)
        else:
            expanded = _expansion(part, state, quoted=False)
            yield from _or_all(expanded, parts[number + 1 :], state)


def _or_all(pieces: Iterator[Piece], parts: Sequence[SyntaxNode], state: State) -> Iterator[Piece]:
    """Yield pieces. Raises Unresolved, with what the parts behind them need as well."""
    try:
        yield from pieces
    except Unresolved as e:
        raise _with_others(e, parts, state) from None


def _with_others(why: Unresolved, parts: Sequence[SyntaxNode], state: State) -> Unresolved:
    """Return why a word is unresolved, with what else of it has to be asked for."""
    if isinstance(why, UnsetName) or why.differs:
        return why
    others = list[Unresolved]()
    for part in parts:
        for node in part.walk():
            # a value alone: what runs or assigns something is left to the answers
            if node.kind == "ParamExp" and not node.has("Exp") and not node.has("Index"):
                other = _failure(node, state)
                others += [other] if other is not None and other.name is not None else []
    return why.with_others(others)


def _failure(part: SyntaxNode, state: State) -> Unresolved | None:
    """Return why a value is unresolved that does not differ at each start."""
    try:
        with state.marking(None):
            parameters.expand(part, state, _reader, quoted=True)
    except Unresolved as e:
        return None if e.differs or isinstance(e, UnsetName) else e
    return None


def _literal(value: str, state: State, *, begins: bool, assigns: bool) -> Iterator[Piece]:
    value = value.replace("\\\n", "")
    at = r"^(?=~)" if begins else r"(?!)"
    if assigns:  # `data=~/x`, `PATH=~/bin:~/y`
        at += r"|(?<=[=:])(?=~)"
    for item in re.split(at, value):
        rest = item
        match = re.match(r"~([^/:\\]*)", item) if re.search(at, value) else None
        if match and item.startswith("~"):
            home = state.text("HOME") if not match[1] else None
            if home is None:
                raise state.fail(f"`{match[0]}` is a home folder")
            yield Piece(home, quoted=True)
            rest = item[match.end() :]
        if rest == "\\":  # at the end of the file
            continue
        if re.search(r"(?<!\\)(\\\\)*\\$", rest):
            raise state.fail("a backslash at the end of the script")
        for plain, escaped in re.findall(r"([^\\]+)|\\(.?)", rest, re.DOTALL):
            yield Piece(plain or escaped, quoted=not plain)


def _double_quoted(part: SyntaxNode, state: State) -> Iterator[Piece]:
    if part.has("Dollar"):
        raise state.fail('`$"..."` is translated')
    parts, pieces = part.children("Parts"), list[Piece]()
    for number, inner in enumerate(parts, 1):
        pieces += _or_all(_quoted_part(inner, state, '$`"\\'), parts[number:], state)
    lists = [inner for inner in parts if parameters.is_list(inner)]
    if not pieces and (not lists or len(lists) < len(parts)):
        pieces = [Piece("", quoted=True)]
    yield from pieces


def _quoted_part(part: SyntaxNode, state: State, escapes: str) -> Iterator[Piece]:
    if part.kind == "Lit":
        value = part.text("Value").replace("\\\n", "")
        yield Piece(re.sub(rf"\\([{re.escape(escapes)}])", r"\1", value), quoted=True)
    else:
        yield from _expansion(part, state, quoted=True)


def _ansi(value: str, state: State) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return _ESCAPES[match[1]]
        code = int(match[2] or match[3], 16) if match[2] or match[3] else int(match[4], 8)
        if not 0 < code < 128 and not match[3]:  # noqa: PLR2004 - bytes that are no ASCII
            raise state.fail("a byte in `$'...'`")
        return chr(code)

    if re.search(r"\\[cU]", value):
        raise state.fail("an escape in `$'...'`")
    return _ANSI.sub(replace, value)


def _expansion(part: SyntaxNode, state: State, *, quoted: bool) -> Iterator[Piece]:
    """Yield what becomes of `$...`; where wanted, a mark for what differs at each start."""
    reasons = state.different
    try:
        pieces = list(_value(part, state, quoted=quoted))
    except Unresolved as e:
        is_variable = e.is_caller_value and e.content is not None and not e.differs
        if reasons is None or isinstance(e, UnsetName) or not (e.differs or is_variable):
            raise
        if is_variable:
            pieces = _callers(part, e, state, quoted=quoted)
            reasons.append(e)
        else:
            reasons.append(e if _is_unchanged(part) else e.as_counted(None))
            pieces = _marked(part, e, state, quoted=quoted)
    yield from pieces


def _is_unchanged(part: SyntaxNode) -> bool:
    """Whether an expansion gives a value as it is."""
    expression = part.child("Exp")
    is_conditional = expression is None or expression.text("Op")[-1:] in "-=?"
    changes = any(map(part.has, ("Slice", "Repl", "Length", "Excl")))
    return part.kind == "CmdSubst" or (part.kind == "ParamExp" and is_conditional and not changes)


def _callers(part: SyntaxNode, why: Unresolved, state: State, *, quoted: bool) -> list[Piece]:
    """Return a value with marks for what only the caller knows, taken as it is.

    Raises Unresolved where bash would look at the value, or change it.
    """
    own, expression = state.job_variables, part.child("Exp")
    operator = expression.text("Op") if expression is not None else ""
    changes = any(map(part.has, ("Slice", "Repl", "Length", "Excl"))) or part.kind != "ParamExp"
    if own is None or changes or operator not in ("", "-", "=", "?", ":-", ":=", ":?"):
        raise why.as_unmarked()
    name, content = part.text("Param"), why.content
    variable = state.variables.get(name)
    if operator[:1] == ":" and isinstance(content, str):
        own.need(content, "nonempty")
    elif operator and not isinstance(content, str):
        raise why.as_unmarked()
    if name.isdigit() and isinstance(content, str):
        return [Piece(content, quoted, not quoted)]
    if variable is None or variable.content is not why or content is None:
        raise why.as_unmarked()
    inner = state.fork()
    inner.variables[name] = Variable(content, variable.is_exported)
    with inner.marking(None):
        return list(_value(part.without("Exp"), inner, quoted=quoted))


def _all_arguments(part: SyntaxNode, state: State) -> State | None:
    """Return a state whose arguments are marks, for `"$@"` as words; None for all else."""
    own, piece = state.job_variables, part.child("Slice")
    is_list = part.kind == "ParamExp" and part.text("Param") in ("@", "*")
    if not is_list or own is None or state.different is None:
        return None
    if any(map(part.has, ("Exp", "Repl", "Length", "Excl"))):
        return None
    if state.has_all_arguments:
        return _own_arguments(part, own, state)
    first = 1
    if piece is not None:
        offset = piece.child("Offset")
        text = offset.literal if offset is not None else None
        is_open = piece.child("Length") is None
        first = int(text) if is_open and text and re.fullmatch(r"[1-9]\d?", text) else 0
    # arguments given here, those with numbers, and what is behind them
    missing = range(len(state.arguments) + 1 - state.shift, own.count + 1)
    keys = [f"${number}" for number in missing]
    is_missing = any(key not in own.names for key in keys) or state.arguments_unresolved is not None
    is_behind = first > len(state.arguments) + len(keys) + 1 or -state.shift > own.count
    if not first or is_missing or is_behind or not state.allows_list:
        return None
    reasons = [job_keys.unresolved(own, key, state.line) for key in keys]
    if ALL in own.names:
        own.are_all_read = True
        reasons.append(job_keys.unresolved(own, ALL, state.line))
    state.different += reasons
    inner = state.fork()
    inner.arguments = [*state.arguments, *(str(why.content) for why in reasons)]
    inner.has_all_arguments, inner.job_variables = True, None
    return inner


def _own_arguments(part: SyntaxNode, own: JobVariables, state: State) -> State | None:
    """Return the state of a function whose arguments have marks in them, for its `"$@"`."""
    marked = [job_keys.marked(own, item, state.line) for item in state.arguments]
    reasons = [why for why in marked if why is not None]
    if not reasons or part.has("Slice"):
        return None
    if state.different is not None:
        state.different += reasons
    inner = state.fork()
    inner.job_variables = None
    return inner


def _marked(part: SyntaxNode, why: Unresolved, state: State, *, quoted: bool) -> list[Piece]:
    """Return a value that differs at each start with what else is in it; else the mark alone.

    Raises Unresolved where the value could be more than one word, or none.
    """
    if part.kind == "CmdSubst":
        content = why.content if isinstance(why.content, str) else DIFFERENT
        return [Piece(content, quoted, not quoted)]
    if part.kind != "ParamExp":
        return [Piece(DIFFERENT, quoted=True)]
    name, expression = part.text("Param"), part.child("Exp")
    operator = expression.text("Op")[-1:] if expression is not None else ""
    variable = state.variables.get(name)
    if operator == "+" or (variable is not None and variable.content is not why):
        raise why.as_unmarked()
    changes = any(map(part.has, ("Slice", "Repl", "Length", "Excl"))) or operator not in "-=?"
    if variable is None or why.content is None:
        return [Piece(DIFFERENT, quoted=True)]
    if not changes:
        inner = state.fork()
        inner.variables[name] = Variable(why.content, variable.is_exported)
        with inner.marking(None):
            return list(_value(part.without("Exp"), inner, quoted=quoted))
    if not isinstance(why.content, str) or len(why.content.split()) != 1:
        raise why.as_unmarked()
    return [Piece(DIFFERENT, quoted=True)]


def _value(part: SyntaxNode, state: State, *, quoted: bool) -> Iterator[Piece]:
    """Yield what becomes of `$...`. A mark in a calculation or a condition would be wrong."""
    state.line = part.line or state.line
    if part.kind == "ParamExp":
        arguments = _all_arguments(part, state) or state
        if arguments is not state and quoted and part.text("Param") == "*":
            raise state.fail("all arguments of the script in one word")
        with state.marking(None), arguments.marking(None):
            value = parameters.expand(part, arguments, _reader, quoted=quoted)
        if isinstance(value, parameters.Alternative):
            pieces = list(_alternative(value.word, state, quoted=quoted))
            yield from pieces or ([Piece("", quoted=True)] if quoted else [])
        elif isinstance(value, str):
            state.budget.spend(len(value))
            yield Piece(value, quoted, not quoted)
        else:
            joint, last = parameters.joint(part, state), len(value) - 1
            for number, item in enumerate(value):
                state.budget.spend(len(item))
                yield Piece(item, quoted, not quoted, ends_field=number < last, joint=joint)
    elif part.kind == "CmdSubst":
        with state.marking(None):
            output = state.substitute(state, part)
        yield Piece(output, quoted, not quoted)
    elif part.kind == "ArithmExp":
        expression = part.child("X")
        result = calculate(expression, state) if expression else 0
        yield Piece(str(result), quoted, not quoted)
    else:
        raise state.fail(f"a part of a word that is not followed ({part.kind})")


def _alternative(word: SyntaxNode, state: State, *, quoted: bool) -> Iterator[Piece]:
    """Yield the pieces of the word in `${x:-word}`, whose plain text is split."""
    if quoted:
        for part in word.children("Parts"):
            if part.kind == "SglQuoted":  # quotes are plain text there
                raise state.fail('single quotes inside of `"${...}"`')
            if part.kind == "DblQuoted":
                yield from _double_quoted(part, state)
            else:
                yield from _quoted_part(part, state, '$`"\\}')
        return
    for piece in _pieces(word, state, tilde=True):
        yield piece if piece.quoted else piece._replace(splits=True)


class _WordText:
    """What the expansion of a parameter needs of words."""

    def __init__(self, state: State) -> None:
        self._state = state

    def text(self, word: SyntaxNode | None) -> str:
        """Return a word as text."""
        return text(word, self._state)

    def pattern(self, word: SyntaxNode | None) -> list[patterns.Character]:
        """Return a word as a pattern."""
        return pattern(word, self._state)


def _reader(state: State) -> parameters.WordReader:
    return _WordText(state)


def calculate(expression: SyntaxNode, state: State) -> int:
    """Return the value of an arithmetic expression."""
    with state.marking(None):
        return arithmetic.evaluate(expression, state, _WordText(state).text)


# -- fields ----------------------------------------------------------------------------------------


def _split(pieces: Sequence[Piece], state: State) -> list[list[patterns.Character]]:
    separators = state.text("IFS") if any(piece.splits for piece in pieces) else _WHITE
    splitter = _FieldSplitter(_WHITE if separators is None else separators)
    if separators is not None and not separators.isascii():
        raise state.fail("an `IFS` beyond ASCII")
    for piece in pieces:
        if piece.splits:
            splitter.split(piece.text)
        elif piece.text or piece.quoted:
            splitter.add(piece.text, quoted=piece.quoted)
        if piece.ends_field:
            splitter.end(always=piece.quoted)
    splitter.end(always=False)
    return splitter.fields


class _FieldSplitter:
    def __init__(self, separators: str) -> None:
        self.fields: list[list[patterns.Character]] = []
        self._field: list[patterns.Character] | None = None
        self._white = set(separators) & set(_WHITE)
        self._others = set(separators) - self._white
        self._after_white = False

    def add(self, text: str, *, quoted: bool) -> None:
        self._field = [] if self._field is None else self._field
        self._field += [(char, quoted) for char in text]
        self._after_white = False

    def split(self, text: str) -> None:
        for char in text:
            if char in self._white:
                if self._field is not None:
                    self.end(always=False)
                    self._after_white = True
            elif char in self._others:
                if not (self._field is None and self._after_white):
                    self.end(always=True)
                self._after_white = False
            else:
                self.add(char, quoted=False)

    def end(self, *, always: bool) -> None:
        if self._field is not None or always:
            self.fields.append(self._field or [])
        self._field = None


def split_text(text: str, separators: str) -> list[str]:
    """Return the fields of a text, as `read` splits it."""
    splitter = _FieldSplitter(separators)
    splitter.split(text)
    splitter.end(always=False)
    return ["".join(char for char, _ in field) for field in splitter.fields]


def rest_of_line(line: str, separators: str) -> str | None:
    """Return what the last name of `read` gets of a line; None where that is not followed.

    A separator that is no blank goes away at the end alone, and only where it is the only one.
    """
    white = "".join(char for char in separators if char in _WHITE)
    text = line.strip(white)
    others = set(separators) - set(white)
    if not text or text[-1] not in others:
        return text
    before = text[:-1]
    if any(char in white for char in before):
        return None
    return text if any(char in others for char in before) else before


def _pathname(field: Sequence[patterns.Character], state: State) -> str:
    """Return a field; one that bash would replace with names of files is unresolved."""
    value = "".join(char for char, _ in field)
    if "noglob" in state.options or not any(c in patterns.GLOB and not q for c, q in field):
        return value
    if "shopt" in state.options or any(c == "\\" and not q for c, q in field):
        raise state.fail(f"`{value}` is a pattern of files")
    if any(c in "*?" and not q for c, q in field):
        raise state.fail(f"`{value}` is a pattern of files: which, bash finds at each start")
    escaped = "".join(c if not q else glob.escape(c) for c, q in field)
    if glob.glob(os.path.join(glob.escape(state.where()), escaped)):
        raise state.fail(f"`{value}` is a pattern that matches files here: quote it")
    return value


# -- assignments -----------------------------------------------------------------------------------


def search_path(name: str, word: SyntaxNode, state: State) -> str | None:
    """Return the value of `PATH=/x:$PATH`, the caller's as a mark; None for other assignments."""
    names = {n.text("Param") for n in word.walk() if n.kind == "ParamExp"}
    is_caller_value = name not in state.variables
    if name not in SEARCH_PATHS or name not in names or not is_caller_value or state.unresolved:
        return None
    inner = state.fork()
    value = state.caller.environ.get(name, "")
    if "nounset" in state.options and name not in state.caller.environ:
        return None
    depends = any(n.text("Param") == name and n.child("Exp") is not None for n in word.walk())
    if not value and depends:  # `/x${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}`
        inner.variables.update({name: Variable(value)} if name in state.caller.environ else {})
        inner.variables.setdefault(name, Variable(None))
        state.assumptions.setdefault(name, word.line)
    else:
        inner.variables[name] = parameters.caller_value()
    return text(word, inner)


def array(elements: Sequence[SyntaxNode], state: State) -> Array:
    """Return the content of `(a b [5]=c)`."""
    content: Array = {}
    at = 0
    for element in elements:
        index, word = element.child("Index"), element.child("Value")
        if index is not None:
            if word is not None and braces.expand(word, state) != [word]:
                raise state.fail("braces in an element with its index")
            at = calculate(index, state)
            content[at] = text(word, state)
            at += 1
            continue
        for item in fields(word, state) if word is not None else []:
            content[at] = item
            at += 1
    return content


def arguments(assignment: SyntaxNode, state: State) -> list[SyntaxNode]:
    """Return the assignments of an argument of `export`, whose braces bash expands."""
    word = assignment.child("Value")
    if word is None or assignment.child("Index") is not None or not assignment.has("Name"):
        return [assignment]
    return [assignment.with_field("Value", item) for item in braces.expand(word, state)]


def is_name(value: str) -> bool:
    """Whether a text can name a variable."""
    return NAME.fullmatch(value) is not None
