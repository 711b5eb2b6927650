"""Follows a script statement by statement, and collects its launches. Nothing is run.

What is not followed, and could change a launch, ends in a Stop or in Unresolved values.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError, SafelaunchError
from safelaunch.importer import activities, environment_names, posix, questions
from safelaunch.importer.activities import ASSUMED, NOTHING, SETUP, USER
from safelaunch.importer.findings import (
    DIFFERENT,
    Findings,
    MissingFolder,
    Redirection,
    Stop,
    Unresolved,
    UnsetName,
    combined,
    joined,
)
from safelaunch.importer.jobs import ask_for_differing, unfit_variables
from safelaunch.importer.record.arguments import arguments_read, example
from safelaunch.importer.shell import (
    assignments,
    branches,
    builtins,
    calls,
    conditions,
    effects,
    environments,
    launches,
    redirections,
)
from safelaunch.importer.shell.branches import Branch
from safelaunch.importer.shell.builtins import Break, Exit, Return
from safelaunch.importer.start_folders import starts_above
from safelaunch.importer.state import CALLER_VALUE, NAME, Function, Variable
from safelaunch.importer.syntax import literal_words, parse, read_script
from safelaunch.importer.variables import job_keys, marks
from safelaunch.importer.words import expansion
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.importer.shell.follower import Follower, Item
    from safelaunch.importer.state import ScriptCaller, State
    from safelaunch.importer.syntax import SyntaxNode
    from safelaunch.importer.variables.marks import JobVariables

_MOST_STEPS = 50_000
_MOST_ROUNDS = 20  # to find out what may be a variable
_DECLARATIONS = frozenset(("export", "declare", "local", "readonly", "typeset", "let", "nameref"))
# start the rest of their words, which is followed in their place: their options
_PREFIXES = {
    "command": r"(?!)", "builtin": r"(?!)", "exec": r"-l|-a", "nohup": r"(?!)", "time": r"-p",
    "setsid": r"-[fwc]+|--(fork|wait|ctty)",
}  # fmt: skip
# after these `set -e` looks at the exit code; in other commands it has looked at each part
_CHECKED = frozenset((
    "CallExpr", "DeclClause", "TestClause", "ArithmCmd", "LetClause", "Subshell",
))  # fmt: skip


def follow(path: str, caller: ScriptCaller, *, has_variables: bool = False) -> Findings:
    """Return what a script starts. Raises ConfigError where it is no script of bash.

    `has_variables`: what only its caller knows may become a variable of its jobs; else it is asked
    for.
    """
    text = read_script(path)
    if CALLER_VALUE in text or DIFFERENT in text or marks.RESERVED.search(text):
        return Findings(stop=Stop("a character that Unicode has reserved", 1))
    tree = parse(text, path)
    findings = _from(tree, text, path, caller, has_variables=has_variables)
    if not findings.absent:
        return findings
    is_clear = bool(findings.launches) and not findings.problems and findings.stop is None
    for start in starts_above(path, caller, f"`{findings.absent[0]}` is not there"):
        other = _from(tree, text, start.script, start.caller, has_variables=has_variables)
        asks = bool(other.problems)
        starts = bool(other.launches) and not asks
        if not other.absent and other.stop is None and (starts or (asks and not is_clear)):
            other.notes.insert(0, start.note)
            return other
    return findings


def _from(
    tree: SyntaxNode, text: str, path: str, caller: ScriptCaller, *, has_variables: bool
) -> Findings:
    """Return what a script starts from the folder of its caller."""
    read = _with_variables if has_variables else _followed
    findings = read(tree, text, path, caller)
    numbers = [_number_of_argument(problem) for problem in findings.problems]
    if any(numbers):
        words = example(text, path)
        findings.has_example = len(words) >= max(numbers) > len(caller.arguments)
        names = tuple(argument.placeholder for argument in arguments_read(text))
        findings.placeholders = words if findings.has_example else names
    return findings


def _followed(
    tree: SyntaxNode, text: str, path: str, caller: ScriptCaller, own: JobVariables | None = None
) -> Findings:
    """Return what a script starts, with variables of the job for what only its caller knows."""
    preset = questions.names_to_preset(tree, caller.answers)
    while True:
        interpreter = _Interpreter()
        interpreter.findings.variables = own
        reads = interpreter.whole(tree, path, caller, text, preset)
        if reads <= preset:
            break
        preset |= reads  # they are in its environment from the beginning
    findings = interpreter.findings
    ask_for_differing(findings, caller.environ)
    return findings


def _with_variables(tree: SyntaxNode, text: str, path: str, caller: ScriptCaller) -> Findings:
    """Return what a script starts, with variables where its launches are exact for every value.

    What decides what it does is asked for, as where nothing could be a variable.
    """
    findings = _followed(tree, text, path, caller)
    asks = bool(findings.problems)
    if any(problem.name is None for problem in findings.problems):
        return findings
    if not asks and (findings.stop is not None or not findings.launches):
        return findings
    has_all = any(n.kind == "ParamExp" and n.text("Param") in ("@", "*") for n in tree.walk())
    shifts = any(literal_words(node)[:1] == ["shift"] for node in tree.walk())
    names = [] if shifts else [argument.placeholder for argument in arguments_read(text)]
    questions_so_far, unfit = [*findings.problems], set[str]()
    for _ in range(_MOST_ROUNDS):
        own = job_keys.variables_for(questions_so_far, names, unfit, has_all=has_all)
        if own is None:
            break
        other = _followed(tree, text, path, caller, own)
        more = {p.name for p in other.problems if p.name in own.names}
        if own.is_count_read and own.are_all_read:
            more.add(marks.ALL)
        if not more and not other.problems:
            more |= unfit_variables(other, path, caller.environ)
        names_before = {p.name for p in questions_so_far}
        new = [p for p in other.problems if p.name not in names_before and job_keys.may_be(p)]
        if more or new:
            unfit |= {name for name in more if name is not None}
            questions_so_far += new
            continue
        has_marks = any(
            why.is_caller_value for item in other.launches for why in item.different.values()
        )
        is_asking = bool(other.problems) and all(p.name is not None for p in other.problems)
        is_clear = not other.problems and other.stop is None and bool(other.launches)
        if (asks and (is_asking or is_clear)) or (is_clear and has_marks):
            return other
        break
    return findings


class _FailureExit(Exit):
    """The end of a script or subshell under `set -e`."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


class _Interpreter:
    def __init__(self) -> None:
        self.findings = Findings()
        self.doubt: Unresolved | None = None
        self.depth = 0
        self.substitutions = 0
        self.guards = 0
        self.files: list[str] = []
        self.traps: list[SyntaxNode] = []
        self._steps = 0
        self._has_exited = False  # by `exit`, at the line of its state
        self._substituted: list[int | None] = []  # exit codes of all that `$(...)` has run
        self._evaluated: set[tuple[int, int]] = set()
        self._commands: dict[str, Callable[[SyntaxNode, State], None]] = {
            "CallExpr": self._call, "BinaryCmd": self._binary, "Block": self._block,
            "Subshell": self._subshell, "FuncDecl": self._function, "ArithmCmd": self._arithmetic,
            "DeclClause": self._declaration, "TestClause": self._test, "LetClause": self._let,
            "TimeClause": self._time,
        }  # fmt: skip
        self._clauses: dict[str, Callable[[Follower, SyntaxNode, State], None]] = {
            "IfClause": branches.if_clause, "CaseClause": branches.case_clause,
            "ForClause": branches.for_clause, "WhileClause": branches.while_clause,
        }  # fmt: skip

    def whole(
        self, tree: SyntaxNode, path: str, caller: ScriptCaller, text: str, preset: set[str]
    ) -> set[str]:
        """Follow a script to its end, or to where it cannot be followed.

        `preset` are the answers in its environment. Returns those that it reads as such.
        """
        ask = self.findings.problem
        state = builtins.initial_state(caller, path, self.substitute, ask, preset)
        self._preset_variables(state)
        state.optional_arguments = questions.optional_arguments(tree)
        state.optional_names = questions.optional_names(tree)
        self.files.append(os.path.realpath(os.path.join(caller.folder, path)))
        try:
            check_placeholders(tree)
            self._begin(tree, text, state)
            self._main(tree.children("Stmts"), state)
            calls.check_traps(self, state)
            self._check_end(tree, path, state)
            self._note_unreached(tree)
        except Stop as e:
            self.findings.stop = Stop(e.reason, e.line or state.line, e.hint)
        except Unresolved as e:
            self.findings.problem(e)
        except RecursionError:
            self.findings.stop = Stop("it is nested too deeply", state.line)
        if any((problem.name or "")[:1] == "$" for problem in self.findings.problems):
            self._ask_for_arguments(tree, caller)
        for name, line in state.assumptions.items():
            text, outcome = f"`{name}` is not set", f"{ASSUMED}; else `--set {name}=VALUE`"
            if name[0] == "$":
                text = f"argument {name[1:]} is not given"
                outcome = f"{ASSUMED} that it is empty; else `-- ARG...`"
            self.findings.note(line, text, outcome)
        for name, texts in state.overridden.items():
            if len(texts) > 1:
                shown = ", ".join(f"`{text.replace(DIFFERENT, '...')}`" for text in [*texts][:2])
                text = f"`{name}` is {len(texts)} different values, such as {shown}"
                outcome = f"all are `{caller.answers[name]}`; `--record` keeps them apart"
                self.findings.note(min(texts.values()), text, outcome)
        self.findings.replaced = state.replaced
        return state.caller_reads

    def _preset_variables(self, state: State) -> None:
        """Let variables of the job be in the environment of the script."""
        own = state.job_variables = self.findings.variables
        for name in own.names if own is not None else ():
            if own is not None and NAME.fullmatch(name):
                state.variables[name] = Variable(
                    job_keys.unresolved(own, name, 1), is_exported=True
                )

    @staticmethod
    def _begin(tree: SyntaxNode, text: str, state: State) -> None:
        """Take the options of the first line, and refuse a script of `sh` that needs bash."""
        for arguments in calls.shebang_options(text.partition("\n")[0], 1):
            builtins.run(["set", *arguments], state)
        if posix.is_posix_script(text):
            calls.check_posix(tree, "a script of `sh`", 0)
            state.options.add("sh")

    def _main(self, statements: Sequence[SyntaxNode], state: State) -> None:
        try:
            self.statements(statements, state)
        except _FailureExit as e:
            reason = f"`set -e` ends it here with exit code {state.status}"
            raise Stop(reason, e.line) from None
        except Exit:
            self._has_exited = True
        except (Return, Break):
            raise Stop("`return` or `break` outside of a function or loop", state.line) from None

    def _ask_for_arguments(self, tree: SyntaxNode, caller: ScriptCaller, ending: str = "") -> bool:
        """Ask for all arguments at once that a script reads; False where it reads no more."""
        missing = questions.arguments(tree, len(caller.arguments), ending)
        if not ending:
            optional = {f"${number}" for number in questions.optional_arguments(tree)}
            missing = [question for question in missing if question.name not in optional]
        own = self.findings.variables
        missing = [m for m in missing if own is None or m.name not in own.names]
        names = {question.name for question in missing}
        problems = [p for p in self.findings.problems if p.name not in names]
        self.findings.problems = sorted([*problems, *missing], key=_number_of_argument)
        return bool(missing)

    def _check_end(self, tree: SyntaxNode, path: str, state: State) -> None:
        """Say at which line a script ends before its launch, as without arguments."""
        if self.findings.launches or self.findings.problems:
            return
        tested = questions.names_in_condition(tree, state.line)
        if not state.status and not (self._has_exited and tested):
            return
        ending = f", which ends at line {state.line} with exit code {state.status} without it"
        name = next((name for name in state.assumptions if name in tested), None)
        if name is not None:
            why = Unresolved(f"`{name}` is not set in the script{ending}", state.line, name)
            why.is_caller_value = True
            self.findings.problem(why)
            self._ask_for_arguments(tree, state.caller)
            return
        if self._ask_for_arguments(tree, state.caller, ending) or not state.status:
            return
        hint = None if state.caller.arguments else f"safelaunch import {quote(path)} -- ARG..."
        raise Stop(f"it ends here with exit code {state.status}", state.line, hint)

    def to_exit(self, statements: Sequence[SyntaxNode], state: State) -> None:
        """Follow the statements of a shell of its own to its end."""
        try:
            self.statements(statements, state)
        except Exit:
            return
        except (Return, Break):
            raise Stop("`return` or `break` outside of a function or loop", state.line) from None

    def starts_none(self, statements: Sequence[SyntaxNode], state: State) -> bool:
        """Whether statements, followed by a shell of their own, start nothing."""
        before = self.findings, self.doubt, self.traps
        self.findings, self.traps = Findings(), []
        state.ask = self.findings.problem
        try:
            self.to_exit(statements, state)
            calls.check_traps(self, state)
        except (Unresolved, Stop, branches.UnresolvedRest):
            return False
        else:
            return not self.findings.launches and not self.findings.problems
        finally:
            self.findings, self.doubt, self.traps = before

    # -- statements --------------------------------------------------------------------------------

    def statements(self, statements: Sequence[SyntaxNode], state: State) -> None:
        """Follow statements in turn."""
        for statement in statements:
            self.statement(statement, state)

    def conditions(self, statements: Sequence[SyntaxNode], state: State) -> None:
        """Follow statements whose failure does not end the script."""
        with self._guarded():
            self.statements(statements, state)

    def statement(self, statement: SyntaxNode, state: State) -> None:
        """Follow one statement."""
        self._steps += 1
        state.line = line = statement.line
        if self._steps > _MOST_STEPS:
            raise Stop("it takes too many steps to follow", line)
        if statement.has("Coprocess"):
            raise Stop("a coprocess", line)
        command = statement.child("Cmd")
        in_background, is_negated = statement.has("Background"), statement.has("Negated")
        target = state.fork() if in_background else state
        target.in_background = state.in_background or in_background
        try:
            with self._guarded() if is_negated else nullcontext():
                self._redirected(statement, command, target)
        except Exit:
            if not in_background:
                raise
        if in_background:
            state.status = 0
        if is_negated and state.status is not None:
            state.status = int(not state.status)
        elif state.status and not is_negated and "errexit" in state.options and not self.guards:
            is_pipe = command is not None and command.text("Op") in ("|", "|&")
            if command is not None and (command.kind in _CHECKED or is_pipe):
                raise _FailureExit(line)

    def _redirected(self, statement: SyntaxNode, command: SyntaxNode | None, state: State) -> None:
        """Follow a command with its redirections; those of a bare `exec` stay."""
        output, source, redirection = state.output, state.input, state.redirection
        operators = [redirect.text("Op") for redirect in statement.children("Redirs")]
        for redirect in statement.children("Redirs"):
            redirections.apply(redirect, statement, state)
        try:
            if command is None:
                state.status = 0
            else:
                self._command(command, state)
            if state.redirection.missing is not None and state.redirection is not redirection:
                state.status, self.doubt = None, state.fail("a folder that is not there")
        finally:
            if command is None or literal_words(command) != ["exec"]:
                state.output, state.redirection = output, redirection
                if any(operator.startswith("<") for operator in operators):
                    state.input = source

    def _command(self, command: SyntaxNode, state: State) -> None:
        clause = self._clauses.get(command.kind)
        if clause is not None:
            clause(self, command, state)
            return
        runner = self._commands.get(command.kind)
        if runner is None:
            raise Stop(f"a form of bash that is not followed ({command.kind})", command.line)
        try:
            runner(command, state)
        except Unresolved as e:
            if command.kind not in ("TestClause", "ArithmCmd", "LetClause"):
                raise
            state.status, self.doubt = None, e
            for name in effects.of_nodes([command], state).names:
                state.assign(name, e.with_content(None))

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        self.guards += 1
        try:
            yield
        finally:
            self.guards -= 1

    # -- commands ----------------------------------------------------------------------------------

    def _items(self, command: SyntaxNode, state: State) -> list[Item]:
        items: list[Item] = []
        literal = literal_words(command)
        state.is_condition = literal[:1] in (["["], ["test"])
        last = command.children("Args")[-1:]
        state.passes_arguments = bool(last) and questions.is_argument_list(last[0])
        try:
            for word in command.children("Args"):
                reasons: list[Unresolved] = []
                try:
                    with state.marking(reasons), state.listing():
                        texts = expansion.fields(word, state)
                    items += [combined(reasons, t) if DIFFERENT in t else t for t in texts]
                except Unresolved as e:
                    if isinstance(e, UnsetName):
                        state.ask(e)
                    items.append(e)
                except Stop as e:
                    items.append(Unresolved(e.reason, e.line or state.line))
        finally:
            state.is_condition = False
        return items

    def _call(self, command: SyntaxNode, state: State) -> None:
        self._evaluated.add(command.span)
        assigns, before = command.children("Assigns"), len(self._substituted)
        items = self._items(command, state)
        if items:
            with self._temporary(assigns, items[0], state):
                self._run(items, command, state)
            return
        for item in assigns:
            assignments.assign(item, state)
        state.status = [0, *self._substituted[before:]][-1]

    @contextmanager
    def _temporary(self, assigns: Sequence[SyntaxNode], name: Item, state: State) -> Iterator[None]:
        """Set the variables before a command for as long as it runs."""
        before = {item.text("Name"): state.variables.get(item.text("Name")) for item in assigns}
        unresolved = state.unresolved
        for item in assigns:
            state.forget_array(item.text("Name"))
            assignments.assign(item, state)
            state.export(item.text("Name"))
        values = {other: state.variables.get(other) for other in before}
        try:
            yield
        finally:
            changed = next((n for n in before if state.variables.get(n) != values[n]), None)
            if state.unresolved is unresolved:  # else all variables may have changed
                for other, variable in before.items():
                    state.restore(other, variable)
        if changed is not None and name not in state.functions:
            raise Stop(f"`{changed}=` before a command that changes it", state.line)

    def _run(
        self, items: list[Item], command: SyntaxNode, state: State, *, is_program: bool = False
    ) -> None:
        name = items[0]
        if isinstance(name, Unresolved):
            self._unresolved_program(name, state)
        elif name in state.functions and not is_program:
            calls.function(self, name, items[1:], state)
        elif name in _PREFIXES and not (name == "command" and _is_query(items)):
            self._prefix(name, items, command, state)
        elif name == "eval":
            calls.evaluate(self, items, command, state)
        elif name in ("source", "."):
            calls.source(self, items, command.line, state)
        elif name == "trap":
            calls.trap(self, command, state)
        elif name in _DECLARATIONS:  # behind `command`, or quoted: its words are split then
            raise Stop(f"`{name}` in a form that is not followed", command.line)
        elif name.startswith("-"):
            hint = "the line before needs a `\\` at its end: safelaunch lint finds it"
            raise Stop(f"`{name}` is run as a command", command.line, hint)
        elif name in builtins.BUILTINS:
            self._builtin(items, command, state)
        else:
            self._external(items, command.line, state)

    def _prefix(self, name: str, items: list[Item], command: SyntaxNode, state: State) -> None:
        """Follow `exec`, `nohup` and their like: the rest of their words is the command."""
        rest = items[1:]
        while rest and isinstance(rest[0], str) and rest[0].startswith("-"):
            option = str(rest.pop(0))
            if option == "--":
                break
            if not re.fullmatch(_PREFIXES[name], option):
                raise Stop(f"`{name} {option}`", command.line)
            if option == "-a":
                del rest[:1]
        if not rest:
            state.status = 0
            return
        self._run(rest, command, state, is_program=True)
        if name == "exec":
            raise Exit

    def _unresolved_program(self, why: Unresolved, state: State) -> None:
        state.status, self.doubt = None, why
        self.findings.problem(why)
        if state.output is not None:
            state.output.append(state.fail("the output of a program"))

    def _builtin(self, items: list[Item], command: SyntaxNode, state: State) -> None:
        before, last = state.folder, state.last_folder
        listed = environment_names.unset(command) if items[0] == "unset" else None
        if listed is not None:
            environment_names.apply(listed, state)
            state.status = 0
            self.findings.note(command.line, "unsets variables of the caller", SETUP)
            return
        try:
            builtins.run(items, state)
        except Unresolved as e:
            state.status, self.doubt = None, e
        if state.status is None:
            self.doubt = self.doubt or state.fail(f"the result of `{items[0]}`")
        if items[0] == "cd" and state.folder is not before:
            self._missing_folder(items, before, last, state)
        if items[0] == "wait":
            self.findings.note(command.line, "`wait`", "left out: each job is a run of its own")

    def _missing_folder(
        self, items: Sequence[Item], before: str | Unresolved, last: str | None, state: State
    ) -> None:
        """Go on where bash does, behind a `cd` to a folder that is not there.

        Where its failure decides what runs, or a program may have made it, that is not known.
        """
        missing = state.folder
        if not isinstance(missing, MissingFolder):
            return
        if self.guards:
            state.status, self.doubt = None, missing
            return
        text = f"changes to `{missing.target}`, which is not there"
        if "errexit" in state.options:
            self._assume_folder(missing, state.line, state)
        elif not state.writers and os.path.isabs(str(items[-1])) and isinstance(before, str):
            state.folder, state.last_folder, state.status = before, last, 1
            self.findings.note(state.line, text, f"{ASSUMED} absent: it goes on in `{before}`")

    def _external(self, items: list[Item], line: int, state: State) -> None:
        shown = [item if isinstance(item, str) else "VALUE" for item in items]
        name, kind = os.path.basename(shown[0]), effects.script_kind(shown[0], state)
        if shown[0] == "deactivate" or shown[0] in environments.CONDAS:
            if shown[0] == "deactivate" or shown[1:2] == ["deactivate"]:
                state.status = 0
                environments.deactivate(state)
                self.findings.note(line, "leaves an environment", "`venv:` or `conda:` of its jobs")
                return
            if shown[1:2] == ["activate"]:
                state.status = 0
                calls.activates(
                    self, lambda: environments.activate(items[2:] or ["base"], state), line
                )
                return
        if activities.is_launch(shown) or kind == "python":
            launches.launch(self, items, line, state)
        elif name in activities.SHELLS or name in activities.OTHER_SHELLS:
            calls.shell(self, items, line, state)
        elif kind == "shell":
            calls.program(self, items, line, state)
        elif activities.starts_by_input(shown):
            raise Stop(f"`{shown[0]}` starts programs by its input", line)
        elif activities.starts_script(shown) or (
            name == "parallel" and set(shown) & set(state.functions)
        ):
            reason = f"it starts a script through `{name}`"
            raise Stop(reason, line, "import that script itself")
        else:
            launches.other_program(self, items, shown, line, state)

    # -- functions ---------------------------------------------------------------------------------

    def _function(self, command: SyntaxNode, state: State) -> None:
        del self
        body = command.child("Body")
        state.status = 0
        if body is not None:
            source = state.sources[0] if state.sources else state.script
            state.functions[command.text("Name")] = Function(body, source)

    # -- compound commands -------------------------------------------------------------------------

    def _block(self, command: SyntaxNode, state: State) -> None:
        self.statements(command.children("Stmts"), state)

    def _subshell(self, command: SyntaxNode, state: State) -> None:
        inner = state.fork()
        self.to_exit(command.children("Stmts"), inner)
        state.status, state.input = inner.status, inner.input

    def _time(self, command: SyntaxNode, state: State) -> None:
        statement = command.child("Stmt")
        if statement is not None:
            self.statement(statement, state)

    def _binary(self, command: SyntaxNode, state: State) -> None:
        left, right, operator = command.child("X"), command.child("Y"), command.text("Op")
        if left is None or right is None:
            raise Stop("an operator without commands", command.line)
        if operator in ("|", "|&"):
            self._pipe(left, right, state)
            return
        self._left(left, right, operator, state)
        if state.status is None:

            def go_on() -> None:
                state.status = 0 if operator == "||" else None

            is_and = operator == "&&"
            follow_right = Branch([right], lambda: self.statement(right, state), result=is_and)
            rest = Branch([], go_on, result=not is_and)
            branches.undecided(self, [follow_right, rest], state, self.doubt, left)
        elif (state.status == 0) == (operator == "&&"):
            self.statement(right, state)

    def _left(self, left: SyntaxNode, right: SyntaxNode, operator: str, state: State) -> None:
        """Follow the left side of `&&` or `||`; `cd x || exit` goes on only where `x` is there."""
        before, line = state.folder, left.line
        self.conditions([left], state)
        missing, command = state.folder, left.child("Cmd")
        words = literal_words(command) if command is not None else []
        is_change = words[:1] == ["cd"] and missing is not before
        goes_on = operator == "||" and is_change and effects.is_end([right], state)
        if goes_on and isinstance(missing, MissingFolder):
            self._assume_folder(missing, line, state)

    def _assume_folder(self, missing: MissingFolder, line: int, state: State) -> None:
        """Go on in a folder without which the script would have ended."""
        state.folder, state.status = missing.path, 0
        text = f"changes to `{missing.target}`, which is not there"
        self.findings.note(line, text, f"{ASSUMED} to be there at the start")

    def _pipe(self, left: SyntaxNode, right: SyntaxNode, state: State) -> None:
        inner = state.fork()
        inner.output, inner.redirection = [], redirections.of_pipe(right, state)
        self.to_exit([left], inner)
        state.input = inner.input
        output = joined(inner.output or [])
        last = right.child("Cmd")
        if last is not None and literal_words(last)[:1] == ["tee"]:
            state.status = 0
            if state.output is not None:
                for piece in redirections.output_of_tee(right, inner.output or [], state):
                    state.output.append(piece)
        else:
            outer = state.fork()
            outer.input = output
            self.to_exit([right], outer)
            state.status = outer.status
        if "pipefail" in state.options and state.status == 0:
            state.status = inner.status

    # -- conditions and declarations ---------------------------------------------------------------

    def _declaration(self, command: SyntaxNode, state: State) -> None:
        try:
            assignments.declare(command, state)
        except Unresolved as e:
            state.status = 0
            state.forget(e.reason)
            state.unresolved_exports = e
            self.findings.note(command.line, "exports what only a start knows", USER)

    @staticmethod
    def _test(command: SyntaxNode, state: State) -> None:
        inner = command.child("X")
        state.is_condition = True
        try:
            state.status = 0 if inner and conditions.double_brackets(inner, state) else 1
        finally:
            state.is_condition = False

    @staticmethod
    def _arithmetic(command: SyntaxNode, state: State) -> None:
        expression = command.child("X")
        state.status = 0 if expression and expansion.calculate(expression, state) else 1

    @staticmethod
    def _let(command: SyntaxNode, state: State) -> None:
        for expression in command.children("Exprs"):
            state.status = 0 if expansion.calculate(expression, state) else 1

    # -- output of commands ------------------------------------------------------------------------

    def substitute(self, state: State, node: SyntaxNode) -> str:
        """Return what `$(...)` gives. Raises Unresolved."""
        inner = state.fork()
        inner.output, inner.is_condition = [], False
        inner.redirection = Redirection()
        inner.options.discard("errexit")  # as bash does, unless `inherit_errexit` is set
        inner.status = state.status
        state.status = None
        self._substituted.append(None)
        statements = node.children("Stmts")
        if not all(s.has("Cmd") for s in statements):
            raise state.fail("the content of a file")
        inner_marks = [n for s in statements for n in s.walk() if n.has("Backquotes")]
        if node.has("Backquotes") and inner_marks:
            raise state.fail("backquotes inside of backquotes")
        self.substitutions += 1
        try:
            self.to_exit(statements, inner)
        except Unresolved as e:
            raise e if isinstance(e, UnsetName) else e.as_unmarked() from None
        finally:
            self.substitutions -= 1
        state.input = inner.input
        output = joined(inner.output or [])
        state.status = None if isinstance(output, Unresolved) else inner.status
        self._substituted.append(state.status)
        if isinstance(output, Unresolved):
            content = output.content
            raise output.with_content(content.rstrip("\n") if isinstance(content, str) else None)
        return output.rstrip("\n")

    # -- other texts -------------------------------------------------------------------------------

    @contextmanager
    def file(self, path: str) -> Iterator[None]:
        """Say of a file that it is being followed."""
        self.files.append(os.path.realpath(path))
        self.depth += 1
        try:
            yield
        finally:
            self.files.pop()
            self.depth -= 1

    @staticmethod
    def parse_file(path: str, name: str, line: int, *, posix: bool) -> SyntaxNode:
        """Return the tree of another script. Raises Stop."""
        try:
            text = read_script(path)
            tree = parse(text, path)
            if posix:  # that it can be read so; the tree of bash has declarations of their own
                parse(text, path, posix=True)
        except SafelaunchError as e:
            raise Stop(f"`{name}` cannot be followed: {e.message}", line) from None
        check_placeholders(tree)
        if posix:
            calls.check_posix(tree, f"`{name}`", line)
        return tree

    @staticmethod
    def parse_text(text: str, what: str, line: int) -> SyntaxNode:
        """Return the tree of a text that a script runs. Raises Stop."""
        try:
            tree = parse(text + "\n", f"line {line}", line=line)
        except ConfigError as e:
            raise Stop(f"{what} of what bash cannot read: {e.message}", line) from None
        check_placeholders(tree)
        return tree

    # -- the whole tree ----------------------------------------------------------------------------

    def _note_unreached(self, tree: SyntaxNode) -> None:
        for node in tree.walk():
            literal = literal_words(node)
            if not literal or node.span in self._evaluated or not activities.is_launch(literal):
                continue
            self.findings.note(
                node.line, f"`{literal[0]}` is not reached with these values", NOTHING
            )


def _number_of_argument(problem: Unresolved) -> int:
    """Return the number of an argument; 0 for other questions, which come first."""
    name = problem.name or ""
    return int(name[1:]) if name[:1] == "$" else 0


def _is_query(items: Sequence[Item]) -> bool:
    """Whether `command -v` asks for a program, rather than running one."""
    return any(isinstance(item, str) and re.fullmatch(r"-p?[vV]", item) for item in items[1:2])


def check_placeholders(tree: SyntaxNode) -> None:
    """Refuse `<name>`, which bash reads as two redirections. Raises Stop."""
    for statement in tree.walk():
        for first, second in pairwise(statement.children("Redirs")):
            word = first.child("Word")
            is_pair = first.text("Op") == "<" and second.text("Op").startswith(">")
            if is_pair and word is not None and word.span[1] == second.position("OpPos"):
                reason = f"`<{word.literal or '...'}>` is a placeholder"
                raise Stop(reason, word.line, "put the value in its place")
