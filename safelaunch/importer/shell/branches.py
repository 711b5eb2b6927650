"""`if`, `case` and loops, also where the script alone does not say which branch is taken."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.importer import environment_names
from safelaunch.importer.activities import ASSUMED, SETUP, USER
from safelaunch.importer.findings import Stop, Unresolved, UnresolvedFile
from safelaunch.importer.shell import conditions, effects, environments, launches
from safelaunch.importer.shell.builtins import Break, Exit
from safelaunch.importer.shell.follower import MOST_ROUNDS
from safelaunch.importer.syntax import literal_words
from safelaunch.importer.variables.marks import ALL
from safelaunch.importer.words import expansion, patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.importer.shell.follower import Follower
    from safelaunch.importer.state import State
    from safelaunch.importer.syntax import SyntaxNode


class Branch(NamedTuple):
    """Statements of which one or the other are run, and how they are followed."""

    nodes: Sequence[SyntaxNode]
    follow: Callable[[], None]
    result: bool | None = None  # of the condition, where it is taken


_LEAVING = ("`break`", "`continue`")
_ONLY_WITHOUT_FILE = "starts something only while a file is absent"


def undecided(
    follower: Follower,
    branches: Sequence[Branch],
    state: State,
    why: Unresolved | None,
    condition: SyntaxNode | None = None,
) -> None:
    """Treat branches of which the script alone does not say which is taken.

    One that ends the script is assumed not to be taken; where others are left, what they change
    is unresolved.
    """
    why = why or state.fail("the result of a command")
    line = state.line
    rest = [branch for branch in branches if not effects.is_end(branch.nodes, state)]
    effect = _effect(follower, rest, state)
    _assume_no_end(
        follower,
        [line] if len(rest) < len(branches) else effect.ends if len(rest) > 1 else [],
        state,
        why,
    )
    if not rest:
        raise Exit
    if len(rest) == 1:
        rest[0].follow()
        return
    state.status, follower.doubt = None, why
    is_absent = isinstance(why, UnresolvedFile) and not why.exists
    if (
        effect.only_sources and _activates(follower, rest, state, condition, is_absent=is_absent)
    ) or (is_absent and _stays_without_file(follower, rest, state, condition)):
        return
    if is_absent and effect.only_sources:
        follower.findings.note(
            line, f"sources a file, depending on {why.reason}", f"{ASSUMED} absent"
        )
        return
    if effect.stop in _LEAVING and state.loop and not effect.launch:
        raise _UnresolvedRounds(why)
    if effect.stop == "`return`" and state.scopes and not effect.launch:
        raise UnresolvedRest(why)
    if effect.launch and _follow_without_file(follower, rest, state, condition):
        effect.launch, effect.writes = None, False  # its programs are noted by now
    _check(effect, why, line)
    if state.output is not None and effect.prints:
        state.output.append(Unresolved(why.reason, line, why.name, differs=why.differs))
    _apply(effect, why, state)
    if any(branch.nodes for branch in rest):
        follower.findings.note(line, f"depends on {why.reason}", f"{USER}: not followed")


def _activates(
    follower: Follower,
    branches: Sequence[Branch],
    state: State,
    condition: SyntaxNode | None,
    *,
    is_absent: bool,
) -> bool:
    """Activate the environment that all branches activate, or the one taken while it is absent."""
    line, result = state.line, None
    files = [_sourced(branch.nodes, state) for branch in branches]
    if is_absent and condition is not None:
        test = conditions.test_without_files(condition, state)
        result = None if test is None else test.result
    for branch, own in zip(branches, files, strict=True):
        if result is not None and branch.result == result:
            files = [own]
    own = files[0]
    if len(own) != 1 or any(other != own for other in files):
        return False
    if not environments.is_venv(own[0]) or not environments.source(own, state):
        return False
    outcome = f"{ASSUMED} that it is there at the start"
    follower.findings.note(line, f"makes or activates the environment of `{own[0]}`", outcome)
    state.status = 0
    return True


def _sourced(nodes: Sequence[SyntaxNode], state: State) -> list[str]:
    """Return the files that statements source; an empty name where that is not known."""
    calls = [node for top in nodes for node in top.walk() if node.kind == "CallExpr"]
    sources = [node for node in calls if literal_words(node)[:1] in (["source"], ["."])]
    names = list[str]()
    for call in sources:
        words = call.children("Args")[1:]
        try:
            names.append(expansion.text(words[0], state) if len(words) == 1 else "")
        except (Unresolved, Stop):
            names.append("")
    return names


def _assume_no_end(follower: Follower, lines: Sequence[int], state: State, why: Unresolved) -> None:
    """Note where a script may end, and that it is taken to go on."""
    for line in lines:
        state.writers.add("a condition")  # a file may be there, as it goes on
        assumption = f"ends here, depending on {why.reason}"
        follower.findings.note(line, assumption, f"{ASSUMED} that it goes on")


def _check(effect: effects.Effects, why: Unresolved, line: int) -> None:
    """Refuse branches that nobody can leave out. Raises Stop, or Unresolved for a variable."""
    if effect.launch or effect.stop or effect.exports_all:
        reason = effect.stop or effect.exports_all or f"whether `{effect.launch}` runs"
        if why.name is not None:
            raise Unresolved(f"{reason} depends on {why.reason}", line, why.name)
        raise Stop(f"{reason} depends on {why.reason}", line)


def _follow_without_file(
    follower: Follower,
    branches: Sequence[Branch],
    state: State,
    condition: SyntaxNode | None,
) -> bool:
    """Follow what a script starts while a file is absent, as `[ -f out ] || python make.py` does.

    It is absent here, nothing before may have made it, and where it is there nothing is started in
    place of this. What the branch changes is undone: it is not known behind it.
    """
    command = None if condition is None else condition.child("Cmd")
    if command is None or command.kind == "BinaryCmd":  # perhaps of an input beside an output
        return False
    taken = _taken_without_file(follower, branches, state, condition)
    others = [branch for branch in branches if branch is not taken]
    if taken is None or any(effects.of_nodes(b.nodes, state).launch for b in others):
        return False
    follower.findings.note(state.line, _ONLY_WITHOUT_FILE, f"{ASSUMED}, as it is here")
    before = state.fork()
    try:
        taken.follow()
    finally:
        state.become(before)
    state.status = None
    return True


def _stays_without_file(
    follower: Follower,
    branches: Sequence[Branch],
    state: State,
    condition: SyntaxNode | None,
) -> bool:
    """Go on in a round of a loop, or a function, that starts nothing where a file is there.

    The file is absent here, and no launch since it was asked for before may have made it.
    """
    if not effects.of_nodes(state.body, state).launch:
        return False
    leaving = [*(_LEAVING if state.loop else ()), *(("`return`",) if state.scopes else ())]
    taken = _taken_without_file(follower, branches, state, condition)
    if taken is None or effects.of_nodes(taken.nodes, state).stop:
        return False
    others = [effects.of_nodes(b.nodes, state) for b in branches if b is not taken]
    if any(effect.launch or effect.stop not in leaving for effect in others):
        return False
    count = len(follower.findings.launches)
    test = None if condition is None else conditions.test_without_files(condition, state)
    paths = () if test is None else test.paths
    counts = [state.absent_files.setdefault(path, count) for path in paths]
    if any(before != count for before in counts):
        return False
    follower.findings.note(state.line, _ONLY_WITHOUT_FILE, f"{ASSUMED}, as it is here")
    state.status = 0
    taken.follow()
    return True


def _taken_without_file(
    follower: Follower, branches: Sequence[Branch], state: State, condition: SyntaxNode | None
) -> Branch | None:
    """Return the branch that is taken while a file is absent, as it is here.

    None where something before may have made it.
    """
    launches_before = [item for item in follower.findings.launches if item.line < state.line]
    programs = {item.words[0] for item in follower.findings.launches}
    if condition is None or launches_before or state.writers - programs - {"a condition"}:
        return None
    test = conditions.test_without_files(condition, state)
    if test is None:
        return None
    return next((branch for branch in branches if branch.result == test.result), None)


def _effect(follower: Follower, branches: Sequence[Branch], state: State) -> effects.Effects:
    """Return what branches may change; scripts that they start are followed for launches."""
    nodes = [node for branch in branches for node in branch.nodes]
    effect = effects.of_nodes(nodes, state)
    if len(branches) > 1 and effect.launch and effect.only_scripts:
        lists = [branch.nodes for branch in branches]
        are_statements = all(node.has("Cmd") for node in nodes)
        if are_statements and all(follower.starts_none(list_, state.fork()) for list_ in lists):
            effect.launch = None
    return effect


def _apply(effect: effects.Effects, why: Unresolved, state: State) -> None:
    """Make unresolved what statements may have changed that are not followed."""
    if effect.forgets or effect.sources:
        state.forget(why.reason)
        state.unresolved_exports = why
    for name in sorted(effect.names):
        reason = f"`{name}` depends on {why.reason}"
        differs = why.differs and name not in effect.texts
        state.assign(name, Unresolved(reason, state.line, why.name, differs=differs))
        if name in effect.exports:
            state.export(name)
    _apply_to_folders(effect, why, state)
    if effect.interpreter:
        state.interpreter = ()
    if effect.arguments:
        state.arguments_unresolved = why
    if effect.patterns:
        state.options |= {"shopt"}


def _apply_to_folders(effect: effects.Effects, why: Unresolved, state: State) -> None:
    if effect.folder:
        state.folder = why
    if effect.returns:  # where it was before is another folder then
        state.last_folder = None
    if effect.writes or effect.sources:
        state.writers.add("a branch")
    for call in effect.folders:
        with contextlib.suppress(Unresolved, Stop):  # else they are taken as not there
            arguments = call.children("Args")
            words = [item for word in arguments for item in expansion.fields(word, state)]
            if words[0] in ("command", "builtin"):
                del words[0]
            if words[:1] == ["mkdir"]:
                launches.make_folders(words[1:], state)
            else:
                launches.clone_folder(words, state)


def if_clause(follower: Follower, command: SyntaxNode, state: State) -> None:
    """Follow `if`, or an `elif` of it."""
    follower.conditions(command.children("Cond"), state)
    otherwise = command.child("Else")

    def follow_then() -> None:
        follower.statements(command.children("Then"), state)

    def follow_else() -> None:
        if otherwise is None:
            state.status = 0
        elif otherwise.has("Cond"):
            if_clause(follower, otherwise, state)
        else:
            follower.statements(otherwise.children("Then"), state)

    if state.status is None:
        is_last = otherwise is not None and not otherwise.has("Cond")
        rest = otherwise.children("Then") if otherwise is not None and is_last else []
        nodes = [otherwise] if otherwise is not None and not is_last else rest
        branches = [
            Branch(command.children("Then"), follow_then, result=True),
            Branch(nodes, follow_else, result=False),
        ]
        condition = command.children("Cond")
        alone = condition[0] if len(condition) == 1 else None
        undecided(follower, branches, state, follower.doubt, alone)
    elif state.status == 0:
        follow_then()
    else:
        follow_else()


def case_clause(follower: Follower, command: SyntaxNode, state: State) -> None:
    """Follow `case`."""
    items = command.children("Items")
    state.is_condition = True
    try:
        chosen = _chosen(command, items, state)
    except Unresolved as e:
        state.is_condition = False
        branches = [_arm(follower, item, state) for item in items]
        if not any(w.literal == "*" for item in items for w in item.children("Patterns")):
            branches.append(Branch([], lambda: None))
        state.status = 0
        undecided(follower, branches, state, e)
        return
    finally:
        state.is_condition = False
    if chosen is None or not chosen.children("Stmts"):
        state.status = 0
    else:
        follower.statements(chosen.children("Stmts"), state)


def _arm(follower: Follower, item: SyntaxNode, state: State) -> Branch:
    statements = item.children("Stmts")
    return Branch(statements, lambda: follower.statements(statements, state))


def _chosen(command: SyntaxNode, items: Sequence[SyntaxNode], state: State) -> SyntaxNode | None:
    """Return the item of a `case` whose pattern fits. Raises Unresolved."""
    value = expansion.text(command.child("Word"), state)
    for item in items:
        if item.text("Op") != ";;":
            raise Stop("`case` with `;&`", command.line)
        if any(_matches(value, word, state) for word in item.children("Patterns")):
            return item
    return None


def _matches(value: str, word: SyntaxNode, state: State) -> bool:
    return patterns.ShellPattern(expansion.pattern(word, state), state.budget).matches(value)


# -- loops -----------------------------------------------------------------------------------------


def for_clause(follower: Follower, command: SyntaxNode, state: State) -> None:
    """Follow `for`."""
    loop = command.child("Loop")
    if loop is None or command.has("Select"):
        raise Stop("`select` needs a terminal", command.line)
    body = command.children("Do")
    outer, state.loop = state.loop, state.loop or command.line
    try:
        if loop.kind == "WordIter":
            names = environment_names.loop(loop, body, loop.text("Name"))
            if names is not None:
                _unset_names(follower, names, state)
                return
            items = _items(loop, state)
            _for_words(follower, loop.text("Name"), items, body, state)
        else:
            _for_numbers(follower, loop, body, state)
    except _UnresolvedRounds as e:
        state.loop = outer
        _undecided_loop(follower, command, state, e.why)
    finally:
        state.loop = outer


def _unset_names(follower: Follower, names: environment_names.UnsetNames, state: State) -> None:
    """Unset variables of the caller, which only a start knows, at the start."""
    environment_names.apply(names, state)
    state.status = 0
    follower.findings.note(state.line, "unsets variables of the caller", SETUP)


class _UnresolvedRounds(Exception):  # noqa: N818 - a value: why the rounds of a loop are unresolved
    def __init__(self, why: Unresolved) -> None:
        super().__init__()
        self.why = why


class UnresolvedRest(Exception):  # noqa: N818 - a value: why the rest of a function is unresolved
    """The function may have been left: nobody knows whether the rest of it is run."""

    def __init__(self, why: Unresolved) -> None:
        super().__init__()
        self.why = why


def undecided_function(follower: Follower, body: SyntaxNode, state: State, why: Unresolved) -> None:
    """Treat a function that may have been left before its end: nobody knows what it has run."""
    effect = effects.of_nodes([body], state, is_body=True)
    _assume_no_end(follower, effect.ends, state, why)
    state.status, follower.doubt = None, why
    _check(effect, why, state.line)
    if state.output is not None and effect.prints:
        state.output.append(Unresolved(why.reason, state.line, why.name, differs=why.differs))
    _apply(effect, why, state)
    follower.findings.note(state.line, f"depends on {why.reason}", f"{USER}: not followed")


def _undecided_loop(
    follower: Follower, command: SyntaxNode, state: State, why: Unresolved | None
) -> None:
    """Treat a loop as one that may run, or may not, as often as nobody can say."""
    branches = [Branch([command], lambda: None), Branch([], lambda: None)]
    undecided(follower, branches, state, why)


def _items(loop: SyntaxNode, state: State) -> list[str]:
    try:
        if loop.has("Items"):
            return [item for w in loop.children("Items") for item in expansion.fields(w, state)]
        if state.arguments_unresolved is not None:
            raise state.arguments_unresolved
        own = state.job_variables
        if own is not None and own.has_arguments and not state.has_all_arguments:
            raise state.fail("all arguments of the script", ALL if ALL in own.names else None)
        marked = state.marked_argument()
        if marked is not None:
            raise marked.as_unmarked()
        return list(state.arguments)
    except Unresolved as e:
        raise _UnresolvedRounds(e) from None
    finally:
        state.status = 0


def _for_words(
    follower: Follower, name: str, items: Sequence[str], body: list[SyntaxNode], state: State
) -> None:
    for number, item in enumerate(items):
        if number > MOST_ROUNDS:
            raise Stop("a loop of too many rounds", state.line)
        state.assign(name, item)
        if not _round(follower, body, state):
            return


def _for_numbers(
    follower: Follower, loop: SyntaxNode, body: list[SyntaxNode], state: State
) -> None:
    state.status = 0
    _calculate(loop.child("Init"), state)
    for _ in range(MOST_ROUNDS):
        if not _calculate(loop.child("Cond"), state):
            return
        if not _round(follower, body, state):
            return
        _calculate(loop.child("Post"), state)
    raise Stop("a loop of too many rounds", state.line)


def _calculate(expression: SyntaxNode | None, state: State) -> int:
    try:
        return 1 if expression is None else expansion.calculate(expression, state)
    except Unresolved as e:
        raise _UnresolvedRounds(e) from None


def _round(follower: Follower, body: list[SyntaxNode], state: State) -> bool:
    """Run the body of a loop once; return whether the loop goes on."""
    outer, state.body = state.body, body
    try:
        follower.statements(body, state)
    except Break as e:
        if e.loops > 1:
            raise Break(e.loops - 1, goes_on=e.goes_on) from None
        return e.goes_on
    finally:
        state.body = outer
    return True


def while_clause(follower: Follower, command: SyntaxNode, state: State) -> None:
    """Follow `while` or `until`."""
    body, condition = command.children("Do"), command.children("Cond")
    outer, state.loop = state.loop, state.loop or command.line
    status: int | None = 0
    try:
        for _ in range(MOST_ROUNDS):
            follower.conditions(condition, state)
            if state.status is None:
                state.loop = outer
                _undecided_loop(follower, command, state, follower.doubt)
                return
            if (state.status == 0) == command.has("Until"):
                state.status = status
                return
            if not _round(follower, body, state):
                return
            status = state.status
    except _UnresolvedRounds as e:
        state.loop = outer
        _undecided_loop(follower, command, state, e.why)
        return
    finally:
        state.loop = outer
    raise Stop("a loop without an end", command.line)
