"""Follows a script statement by statement, and collects its launches. Nothing is run.

What is not followed, and could change a launch, ends in a Stop or in Unresolved values.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

from safelaunch.errors import SafelaunchError
from safelaunch.importer import activities
from safelaunch.importer.activities import ASSUMED, NOTHING, SETUP, USER
from safelaunch.importer.findings import (
    Findings,
    Redirection,
    ScriptLaunch,
    Stop,
    Unresolved,
    UnresolvedFile,
)
from safelaunch.importer.shell import (
    assignments,
    builtins,
    conditions,
    effects,
    environments,
    programs,
    redirections,
)
from safelaunch.importer.shell.builtins import Break, Exit, Return
from safelaunch.importer.state import CALLER_VALUE
from safelaunch.importer.syntax import parse, read_script
from safelaunch.importer.words import expansion, patterns
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from safelaunch.importer.state import ScriptCaller, State
    from safelaunch.importer.syntax import SyntaxNode

    Item = str | Unresolved

_MOST_STEPS = 50_000
_MOST_LAUNCHES = 200
_DEEPEST = 40
_MOST_ROUNDS = 1000
_PLACEHOLDER = re.compile(
    r"<(your|my|path|insert|enter|replace|put|fill|the|model|dataset)[^<>|]*>", re.IGNORECASE
)
_DECLARATIONS = frozenset(("export", "declare", "local", "readonly", "typeset", "let", "nameref"))
# start the rest of their words, which is followed in their place
_PREFIXES = frozenset(("command", "builtin", "exec", "nohup", "setsid", "time"))


def follow(path: str, caller: ScriptCaller) -> Findings:
    """Return what a script starts. Raises ConfigError where it is no script of bash."""
    text = read_script(path)
    if CALLER_VALUE in text:
        return Findings(stop=Stop("a character that Unicode has reserved", 1))
    tree = parse(text, path)
    interpreter = _Interpreter()
    interpreter.whole(tree, path, caller)
    return interpreter.findings


class _Interpreter:
    def __init__(self) -> None:
        self.findings = Findings()
        self._steps = 0
        self._depth = 0
        self._substitutions = 0
        self._is_exempt = False  # the last status is that of a part of `a && b`
        self._guards = 0  # > 0: a failure does not end the script under `set -e`
        self._doubt: Unresolved | None = None  # why the last status is unresolved
        self._evaluated: set[tuple[int, int]] = set()
        self._files: list[str] = []  # scripts that are being followed
        self._commands: dict[str, Callable[[SyntaxNode, State], None]] = {
            "CallExpr": self._call, "BinaryCmd": self._binary, "IfClause": self._if,
            "ForClause": self._for, "WhileClause": self._while, "CaseClause": self._case,
            "Block": self._block, "Subshell": self._subshell, "FuncDecl": self._function,
            "DeclClause": assignments.declare, "ArithmCmd": self._arithmetic,
            "TestClause": self._test, "LetClause": self._let, "TimeClause": self._time,
        }  # fmt: skip

    def whole(self, tree: SyntaxNode, path: str, caller: ScriptCaller) -> None:
        """Follow a script to its end, or to where it cannot be followed."""
        preset = effects.names_to_preset(tree, caller.answers)
        state = builtins.initial_state(caller, path, self.substitute, preset)
        self._files.append(os.path.realpath(os.path.join(caller.folder, path)))
        try:
            self._check_placeholders(tree)
            self._to_exit(tree.children("Stmts"), state)
            self._check_end(path, state)
            self._note_unreached(tree)
        except Stop as e:
            self.findings.stop = Stop(e.reason, e.line or state.line, e.hint)
        except Unresolved as e:
            self.findings.problem(e)
        except RecursionError:
            self.findings.stop = Stop("it is nested too deeply", state.line)
        for name, line in state.assumptions.items():
            self.findings.note(
                line, f"`{name}` is not set", f"{ASSUMED}; else `--set {name}=VALUE`"
            )

    def _check_end(self, path: str, state: State) -> None:
        """Say at which line a script ends that fails before its launch, as without arguments."""
        if self.findings.launches or self.findings.problems or not state.status:
            return
        hint = None if state.caller.arguments else f"safelaunch import {quote(path)} -- ARG..."
        raise Stop(f"it ends here with exit code {state.status}", state.line, hint)

    def _to_exit(self, statements: Sequence[SyntaxNode], state: State) -> None:
        try:
            self._statements(statements, state)
        except Exit:
            return
        except (Return, Break):
            raise Stop("`return` or `break` outside of a function or loop", state.line) from None

    # -- statements --------------------------------------------------------------------------------

    def _statements(self, statements: Sequence[SyntaxNode], state: State) -> None:
        for statement in statements:
            self._statement(statement, state)

    def _statement(self, statement: SyntaxNode, state: State) -> None:
        self._steps += 1
        state.line = line = statement.line
        if self._steps > _MOST_STEPS:
            raise Stop("it takes too many steps to follow", line)
        if statement.has("Coprocess"):
            raise Stop("a coprocess", line)
        command = statement.child("Cmd")
        in_background = statement.has("Background")
        target = state.fork() if in_background else state
        self._is_exempt = False
        target.in_background = state.in_background or in_background
        try:
            with self._redirected(statement, command, target):
                if command is not None:
                    self._command(command, target)
        except Exit:
            if not in_background:
                raise
        if in_background:
            state.status = 0
        if statement.has("Negated") and state.status is not None:
            state.status = int(not state.status)
        elif state.status and "errexit" in state.options and not (self._guards or self._is_exempt):
            raise Stop(f"`set -e` ends it here with exit code {state.status}", line)

    def _command(self, command: SyntaxNode, state: State) -> None:
        runner = self._commands.get(command.kind)
        if runner is None:
            raise Stop(f"a form of bash that is not followed ({command.kind})", command.line)
        try:
            runner(command, state)
        except Unresolved as e:
            if command.kind in ("TestClause", "ArithmCmd", "LetClause"):
                state.status, self._doubt = None, e
                for name in effects.of_nodes([command], state).names:
                    state.assign(name, e)
                return
            if command.kind == "DeclClause":
                self._unresolved_declaration(command, state, e)
                return
            raise

    def _unresolved_declaration(self, command: SyntaxNode, state: State, e: Unresolved) -> None:
        state.forget(e.reason)
        state.unresolved_exports = e
        self.findings.note(command.line, "exports what only a start knows", USER)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        self._guards += 1
        try:
            yield
        finally:
            self._guards -= 1

    @contextmanager
    def _redirected(
        self, statement: SyntaxNode, command: SyntaxNode | None, state: State
    ) -> Iterator[None]:
        """Apply the redirections of a statement; those of a bare `exec` stay."""
        before = state.output, state.input, state.redirection
        for redirect in statement.children("Redirs"):
            redirections.apply(redirect, statement, state)
        stays = command is not None and effects.literal_words(command) == ["exec"]
        try:
            yield
        finally:
            if not stays:
                state.output, state.input, state.redirection = before

    # -- commands ----------------------------------------------------------------------------------

    def _items(self, command: SyntaxNode, state: State) -> list[Item]:
        items: list[Item] = []
        for word in command.children("Args"):
            try:
                items += expansion.fields(word, state)
            except Unresolved as e:  # noqa: PERF203 - each word on its own
                items.append(e)
            except Stop as e:
                items.append(Unresolved(e.reason, e.line or state.line))
        return items

    def _call(self, command: SyntaxNode, state: State) -> None:
        self._evaluated.add(command.span)
        assigns, arguments = command.children("Assigns"), command.children("Args")
        if not arguments:
            state.status = 0
            for item in assigns:
                assignments.assign(item, state)
            return
        literal = effects.literal_words(command)
        state.is_condition = literal[:1] in (["["], ["test"])
        try:
            items = self._items(command, state)
        finally:
            state.is_condition = False
        if not items:
            state.status = 0
            return
        if assigns:
            inner = state.fork()
            for item in assigns:
                inner.forget_array(item.text("Name"))
                assignments.assign(item, inner)
                inner.export(item.text("Name"))
            if items[0] in builtins.BUILTINS and items[0] not in ("read", "cd"):
                inner = state
        else:
            inner = state
        self._run(items, command, inner)
        if inner is not state:
            self._take_over(inner, state, {item.text("Name") for item in assigns}, items[0])

    @staticmethod
    def _take_over(inner: State, state: State, names: set[str], name: Item) -> None:
        """Take what a builtin or function with `X=1` before it has changed."""
        state.status, state.input = inner.status, inner.input
        if isinstance(name, str) and (name in builtins.BUILTINS or name in state.functions):
            for other, variable in inner.variables.items():
                if other not in names:
                    state.variables[other] = variable
            state.folder = inner.folder

    def _run(self, items: list[Item], command: SyntaxNode, state: State) -> None:
        name = items[0]
        if isinstance(name, Unresolved):
            self._unresolved_program(name, state)
        elif name in state.functions:
            self._call_function(name, items[1:], state)
        elif name in _PREFIXES and len(items) > 1 and not str(items[1]).startswith("-"):
            self._run(items[1:], command, state)
            if name == "exec":
                raise Exit
        elif name in ("eval", "source", ".", "trap"):
            getattr(self, f"_{'source' if name in ('.', 'source') else name}")(
                items, command, state
            )
        elif name in _DECLARATIONS:  # behind `command`, or quoted: its words are split then
            raise Stop(f"`{name}` in a form that is not followed", command.line)
        elif name.startswith("-"):
            hint = "the line before needs a `\\` at its end: safelaunch lint finds it"
            raise Stop(f"`{name}` is run as a command", command.line, hint)
        elif name in builtins.BUILTINS:
            self._builtin(items, command, state)
        else:
            self._external(items, command, state)

    def _unresolved_program(self, why: Unresolved, state: State) -> None:
        state.status, self._doubt = None, why
        self.findings.problem(why)
        self._output(state.fail("the output of a program"), state)

    def _builtin(self, items: list[Item], command: SyntaxNode, state: State) -> None:
        try:
            builtins.run(items, state)
        except Unresolved as e:
            state.status, self._doubt = None, e
        if state.status is None:
            self._doubt = self._doubt or state.fail(f"the result of `{items[0]}`")
        if items[0] == "wait":
            self.findings.note(command.line, "`wait`", "left out: each job is a run of its own")

    def _output(self, text: Item, state: State) -> None:
        if state.output is not None:
            state.output.append(text)

    # -- programs ----------------------------------------------------------------------------------

    def _external(self, items: list[Item], command: SyntaxNode, state: State) -> None:
        line = command.line
        shown = [item if isinstance(item, str) else "VALUE" for item in items]
        if shown[0] in environments.CONDAS and shown[1:2] == ["activate"]:
            state.status = 0
            self._activates(lambda: environments.activate(items[2:] or ["base"], state), line)
        elif activities.is_launch(shown):
            self._launch(items, line, state)
        elif activities.starts_by_input(shown):
            raise Stop(f"`{shown[0]}` starts programs by its input", line)
        elif self._script_argument(shown, state):
            self._follow_script(items, line, state)
        elif not all(isinstance(item, str) for item in items):
            self._other_program(shown, line, state)
            self._output(next(i for i in items if isinstance(i, Unresolved)), state)
        else:
            self._other_program(shown, line, state)
            if state.output is not None:
                self._output(programs.output(shown, state), state)

    def _other_program(self, shown: list[str], line: int, state: State) -> None:
        """Note a program that is no launch; its success is presumed where it does something."""
        action = activities.find_action(shown)
        text = activities.describe(shown)
        state.status = 0 if shown[0] in programs.PROGRAMS and state.output is not None else None
        if action is None:
            if shown[0] not in programs.PROGRAMS:
                self.findings.note(line, f"runs `{text}`", USER)
            self._doubt = state.fail(f"the result of `{text}`")
            return
        if action.text == activities.SHOWS:
            state.status = 0 if shown[0] in ("echo", "printf", "sleep", "clear", "date") else None
            self._doubt = state.fail(f"the result of `{text}`")
            return
        state.status = 0
        self.findings.note(line, f"{action.text}: `{text}`", action.outcome)
        if action.outcome == SETUP:
            self._set_up(shown, state)

    def _set_up(self, shown: list[str], state: State) -> None:
        if shown[0] == "mkdir" and isinstance(state.folder, str):
            names = [os.path.join(state.folder, n) for n in shown[1:] if not n.startswith("-")]
            state.folders = state.folders | {os.path.normpath(name) for name in names}
            parents = {os.path.dirname(os.path.normpath(name)) for name in names}
            if any(option.startswith("-") and "p" in option for option in shown[1:]):
                state.folders |= parents
            elif not all(os.path.isdir(path) or path in state.folders for path in parents):
                raise Stop("`mkdir` below a folder that is not there", state.line)
        if "VALUE" in shown or any(CALLER_VALUE in word for word in shown):
            return
        line = " ".join(map(quote, shown))
        if line not in state.setup:
            state.setup = (*state.setup, line)

    def _launch(self, items: list[Item], line: int, state: State) -> None:
        failures = [item for item in items if isinstance(item, Unresolved)]
        argv = tuple(item for item in items if isinstance(item, str))
        state.status = 0
        if self._substitutions:
            self._helper(argv, line, state)
            return
        self._output(state.fail("the output of a launch"), state)
        env: Mapping[str, str | None] = {}
        folder = ""
        try:
            env, folder = state.environment(), state.where()
        except Unresolved as e:
            failures.append(e)
        failures += [
            Unresolved(f"`{word}` is a placeholder", line)
            for word in argv
            if _PLACEHOLDER.search(word)
        ]
        failures += [
            Unresolved("the caller's value in an argument", line)
            for word in argv
            if CALLER_VALUE in word
        ]
        if state.input not in (None, ""):
            raise Stop("a launch that reads an input from the script", line)
        if failures:
            for failure in failures:
                self.findings.problem(failure)
            return
        if len(self.findings.launches) >= _MOST_LAUNCHES:
            raise Stop(f"more than {_MOST_LAUNCHES} launches", line)
        launch = ScriptLaunch(
            line, argv, env, folder, state.redirection, state.in_background, state.loop,
            state.setup, state.interpreter,
        )  # fmt: skip
        self.findings.launches.append(launch)

    def _helper(self, argv: tuple[str, ...], line: int, state: State) -> None:
        """Treat a program whose output is used: Python is a helper, a launcher is not followed."""
        if not os.path.basename(argv[0]).startswith("python"):
            raise Stop(f"the output of `{argv[0]}` is used by the script", line)
        self._output(state.fail(f"the output of `{activities.describe(argv)}`"), state)

    # -- other scripts -----------------------------------------------------------------------------

    @staticmethod
    def _script_argument(shown: list[str], state: State) -> str | None:
        """Return the shell script that a command runs, or None."""
        del state
        name = os.path.basename(shown[0])
        if name in ("bash", "sh"):
            rest = [word for word in shown[1:] if not re.fullmatch(r"-[exuv]+", word)]
            return rest[0] if rest and not rest[0].startswith("-") else None
        if "/" in shown[0] and name.endswith((".sh", ".bash")):
            return shown[0]
        starters = ("srun", "sbatch", "ssh", "docker", "env", "timeout", "numactl", "sudo", "xargs")
        if name in starters:
            return next((word for word in shown[1:] if word.endswith(".sh")), None)
        return None

    def _follow_script(self, items: list[Item], line: int, state: State) -> None:
        shown = [item if isinstance(item, str) else "VALUE" for item in items]
        path = self._script_argument(shown, state) or ""
        name = os.path.basename(shown[0])
        failure = next((item for item in items if isinstance(item, Unresolved)), None)
        if failure is not None:
            raise failure
        direct = name in ("bash", "sh") or shown[0] == path
        whole = os.path.join(state.where(), path)
        if not direct or not os.path.isfile(whole):
            why = "which is not there" if direct else f"through `{name}`"
            raise Stop(f"it starts the script `{path}`, {why}", line, "import that script itself")
        if os.path.realpath(whole) in self._files or self._depth > _DEEPEST:
            raise Stop(f"it starts itself again: `{path}`", line)
        if os.path.normpath(whole) in state.files:
            raise Stop(f"it writes the script `{path}`, and starts it", line)
        tree = self._parse_file(whole, line, posix=name == "sh")
        inner = state.fork()
        inner.script, inner.arguments = path, shown[shown.index(path) + 1 :]
        exported = {n: v for n, v in state.variables.items() if v.is_exported}
        inner.variables, inner.functions, inner.options = exported, {}, set()
        with self._file(whole):
            self._to_exit(tree.children("Stmts"), inner)
        state.status = 0
        self.findings.note(line, f"starts the script `{path}`", "followed")

    @contextmanager
    def _file(self, path: str) -> Iterator[None]:
        self._files.append(os.path.realpath(path))
        self._depth += 1
        try:
            yield
        finally:
            self._files.pop()
            self._depth -= 1

    def _parse_file(self, path: str, line: int, *, posix: bool = False) -> SyntaxNode:
        try:
            tree = parse(read_script(path), path, posix=posix)
        except SafelaunchError as e:
            raise Stop(f"`{path}` cannot be followed: {e.message}", line) from None
        self._check_placeholders(tree)
        return tree

    def _source(self, items: list[Item], command: SyntaxNode, state: State) -> None:
        line, state.status = command.line, 0
        if len(items) == 1:
            raise Stop(f"`{items[0]}` without a file", line)
        path = items[1]
        if isinstance(path, Unresolved):
            state.forget(f"a file is sourced, and {path.reason}")
            state.unresolved_exports = path
            return
        if self._activates(lambda: environments.source(items[1:], state), line):
            return
        whole = os.path.join(state.where(), path)
        if os.path.isfile(whole) and os.path.realpath(whole) not in self._files:
            tree = self._parse_file(whole, line)
            before = state.arguments
            state.arguments = [str(item) for item in items[2:]] or before
            with self._file(whole):
                try:
                    self._statements(tree.children("Stmts"), state)
                except Return:
                    pass
                finally:
                    state.arguments = before
            self.findings.note(line, f"sources `{path}`", "followed")
            return
        text = f"source {quote(path)}"
        state.forget(f"`{path}`, which is sourced, is not there")
        state.setup = (*state.setup, text)
        self.findings.note(line, f"sources `{path}`, which is not there", SETUP)

    def _activates(self, activate: Callable[[], bool | None], line: int) -> bool:
        """Whether an environment is activated: as keys of the job, or before the start."""
        try:
            done = activate()
        except Unresolved as e:
            outcome = f"{USER}: activate it before the start, or add `conda:` and `conda_root:`"
            self.findings.note(line, f"activates {e.reason}", outcome)
            return True
        if done is not False:
            self.findings.note(line, "prepares an environment", "`venv:`, `conda:` or `python:`")
        return done is not False

    def _eval(self, items: list[Item], command: SyntaxNode, state: State) -> None:
        failure = next((item for item in items if isinstance(item, Unresolved)), None)
        if failure is None:
            text = " ".join(str(item) for item in items[1:])
            try:
                tree = parse(text + "\n", f"line {command.line}", line=command.line)
            except SafelaunchError as e:
                raise Stop(f"`eval` of what bash cannot read: {e.message}", command.line) from None
            self._check_placeholders(tree)
            self._statements(tree.children("Stmts"), state)
            return
        calls = [effects.literal_words(n)[:1] for n in command.walk() if n.kind == "CallExpr"]
        if any(call and environments.is_hook(call[0]) for call in calls):
            state.status = 0
            self.findings.note(command.line, "prepares an environment", NOTHING)
            return
        raise failure

    def _trap(self, items: list[Item], command: SyntaxNode, state: State) -> None:
        state.status = 0
        if any(isinstance(item, str) and activities.is_mentioned(item) for item in items):
            raise Stop("a launch in a `trap`", command.line)
        self.findings.note(
            command.line, "cleans up with `trap`", "left out: the job's processes end with it"
        )

    # -- functions ---------------------------------------------------------------------------------

    def _function(self, command: SyntaxNode, state: State) -> None:
        body = command.child("Body")
        state.status = 0
        if body is not None:
            state.functions[command.text("Name")] = body

    def _call_function(self, name: str, items: Sequence[Item], state: State) -> None:
        if self._depth > _DEEPEST:
            raise Stop(f"`{name}` calls itself without an end", state.line)
        before = state.arguments, state.arguments_unresolved
        state.arguments = [item if isinstance(item, str) else "" for item in items]
        state.arguments_unresolved = next((i for i in items if isinstance(i, Unresolved)), None)
        state.scopes.append({})
        self._depth += 1
        try:
            self._statement(state.functions[name], state)
        except Return:
            pass
        finally:
            self._depth -= 1
            state.arguments, state.arguments_unresolved = before
            for local, variable in state.scopes.pop().items():
                if variable is None:
                    state.variables.pop(local, None)
                else:
                    state.variables[local] = variable

    # -- branches and loops ------------------------------------------------------------------------

    def _block(self, command: SyntaxNode, state: State) -> None:
        self._statements(command.children("Stmts"), state)

    def _subshell(self, command: SyntaxNode, state: State) -> None:
        inner = state.fork()
        self._to_exit(command.children("Stmts"), inner)
        state.status = inner.status

    def _time(self, command: SyntaxNode, state: State) -> None:
        statement = command.child("Stmt")
        if statement is not None:
            self._statement(statement, state)

    def _binary(self, command: SyntaxNode, state: State) -> None:
        left, right, operator = command.child("X"), command.child("Y"), command.text("Op")
        if left is None or right is None:
            raise Stop("an operator without commands", command.line)
        if operator in ("|", "|&"):
            self._pipe(left, right, state)
            return
        with self._guarded():
            self._statement(left, state)
        if state.status is None:
            self._uncertain([[right]], state, self._doubt)
        elif (state.status == 0) == (operator == "&&"):
            self._statement(right, state)
        else:
            self._is_exempt = True

    def _pipe(self, left: SyntaxNode, right: SyntaxNode, state: State) -> None:
        inner = state.fork()
        inner.output, inner.redirection = [], redirections.of_pipe(right, state)
        with self._guarded():
            self._to_exit([left], inner)
        last = right.child("Cmd")
        if last is not None and effects.literal_words(last)[:1] == ["tee"]:
            state.status = 0
            return
        outer = state.fork()
        failure = next((t for t in inner.output or [] if isinstance(t, Unresolved)), None)
        text = "".join(t for t in inner.output or [] if isinstance(t, str))
        outer.input = failure if failure is not None else text
        self._to_exit([right], outer)
        state.status = outer.status
        if "pipefail" in state.options and state.status == 0:
            state.status = inner.status

    def _if(self, command: SyntaxNode, state: State) -> None:
        with self._guarded():
            self._statements(command.children("Cond"), state)
        then, otherwise = command.children("Then"), command.child("Else")
        rest = _else_statements(otherwise)
        if state.status is None:
            self._uncertain([then, rest], state, self._doubt)
        elif state.status == 0:
            self._statements(then, state)
        elif otherwise is not None and otherwise.children("Cond"):
            self._if(otherwise, state)
        elif otherwise is not None:
            self._statements(rest, state)
        else:
            state.status = 0

    def _uncertain(
        self, branches: list[list[SyntaxNode]], state: State, why: Unresolved | None
    ) -> None:
        """Treat branches of which the script alone does not say which is taken."""
        why = why or state.fail("the result of a command")
        line = state.line
        ends = [b for b in branches if effects.ends_script(b, state)]
        if ends and not effects.of_nodes([n for b in ends for n in b], state).launch:
            self.findings.note(
                line, f"ends here, depending on {why.reason}", f"{ASSUMED} that it goes on"
            )
            rest = [b for b in branches if b not in ends]
            for branch in rest[:1]:
                self._statements(branch, state)
            state.status = None if not rest else state.status
            return
        effect = effects.of_nodes([n for branch in branches for n in branch], state)
        if isinstance(why, UnresolvedFile) and not why.exists and effect.only_sources:
            self.findings.note(
                line, f"sources a file, depending on {why.reason}", f"{ASSUMED} absent"
            )
            return
        if effect.launch or effect.stop:
            reason = effect.stop or f"whether `{effect.launch}` runs"
            if why.name is not None:
                raise Unresolved(f"{reason} depends on {why.reason}", line, why.name)
            raise Stop(f"{reason} depends on {why.reason}", line)
        _apply_effects(effect, why, state)
        state.status, self._doubt = None, why
        if branches != [[]]:
            self.findings.note(line, f"depends on {why.reason}", f"{USER}: not followed")

    def _for(self, command: SyntaxNode, state: State) -> None:
        loop = command.child("Loop")
        if loop is None or command.has("Select"):
            raise Stop("`select` needs a terminal", command.line)
        body = command.children("Do")
        outer, state.loop = state.loop, state.loop or command.line
        state.status = 0
        try:
            if loop.kind == "WordIter":
                self._for_words(loop, body, state)
            else:
                self._for_numbers(loop, body, state)
        except Unresolved as e:
            self._uncertain([body], state, e)
        finally:
            state.loop = outer

    def _for_words(self, loop: SyntaxNode, body: list[SyntaxNode], state: State) -> None:
        name, items = loop.text("Name"), list[str]()
        if not loop.has("Items"):
            if state.arguments_unresolved is not None:
                raise state.arguments_unresolved
            items = list(state.arguments)
        for word in loop.children("Items"):
            items += expansion.fields(word, state)
        for number, item in enumerate(items):
            if number > _MOST_ROUNDS:
                raise Stop("a loop of too many rounds", state.line)
            state.assign(name, item)
            if not self._round(body, state):
                return

    def _for_numbers(self, loop: SyntaxNode, body: list[SyntaxNode], state: State) -> None:
        first, condition, step = (loop.child(name) for name in ("Init", "Cond", "Post"))
        if first is not None:
            expansion.calculate(first, state)
        for _ in range(_MOST_ROUNDS):
            if condition is not None and not expansion.calculate(condition, state):
                state.status = 0
                return
            if not self._round(body, state):
                return
            if step is not None:
                expansion.calculate(step, state)
        raise Stop("a loop of too many rounds", state.line)

    def _round(self, body: list[SyntaxNode], state: State) -> bool:
        """Run the body of a loop once; return whether the loop goes on."""
        try:
            self._statements(body, state)
        except Break as e:
            if e.loops > 1:
                raise Break(e.loops - 1, goes_on=e.goes_on) from None
            return e.goes_on
        return True

    def _while(self, command: SyntaxNode, state: State) -> None:
        body, condition = command.children("Do"), command.children("Cond")
        outer, state.loop = state.loop, state.loop or command.line
        try:
            for _ in range(_MOST_ROUNDS):
                with self._guarded():
                    self._statements(condition, state)
                if state.status is None:
                    self._uncertain([[*body, *condition]], state, self._doubt)
                    return
                if (state.status == 0) == command.has("Until"):
                    state.status = 0
                    return
                if not self._round(body, state):
                    return
        finally:
            state.loop = outer
        raise Stop("a loop without an end", command.line)

    def _case(self, command: SyntaxNode, state: State) -> None:
        items = command.children("Items")
        state.status = 0
        state.is_condition = True
        try:
            value = expansion.text(command.child("Word"), state)
            for item in items:
                if item.text("Op") != ";;":
                    raise Stop("`case` with `;&`", command.line)
                if any(self._matches(value, word, state) for word in item.children("Patterns")):
                    state.is_condition = False
                    self._statements(item.children("Stmts"), state)
                    return
        except Unresolved as e:
            if not state.is_condition:
                raise
            state.is_condition = False
            self._uncertain([[*item.children("Stmts")] for item in items], state, e)
        finally:
            state.is_condition = False

    @staticmethod
    def _matches(value: str, word: SyntaxNode, state: State) -> bool:
        return re.fullmatch(patterns.regex(expansion.pattern(word, state)), value) is not None

    def _test(self, command: SyntaxNode, state: State) -> None:
        inner = command.child("X")
        state.is_condition = True
        try:
            state.status = 0 if inner and conditions.double_brackets(inner, state) else 1
        finally:
            state.is_condition = False

    def _arithmetic(self, command: SyntaxNode, state: State) -> None:
        expression = command.child("X")
        state.status = 0 if expression and expansion.calculate(expression, state) else 1

    def _let(self, command: SyntaxNode, state: State) -> None:
        for expression in command.children("Exprs"):
            state.status = 0 if expansion.calculate(expression, state) else 1

    # -- output of commands ------------------------------------------------------------------------

    def substitute(self, state: State, node: SyntaxNode) -> str:
        """Return what `$(...)` gives. Raises Unresolved."""
        inner = state.fork()
        inner.output, inner.is_condition = [], False
        inner.redirection = Redirection()
        statements = node.children("Stmts")
        if not all(s.has("Cmd") for s in statements):
            raise state.fail("the content of a file")
        inner_marks = [n for s in statements for n in s.walk() if n.has("Backquotes")]
        if node.has("Backquotes") and inner_marks:
            raise state.fail("backquotes inside of backquotes")
        self._substitutions += 1
        try:
            with self._guarded():
                self._to_exit(statements, inner)
        finally:
            self._substitutions -= 1
        state.status = inner.status
        failure = next((t for t in inner.output or [] if isinstance(t, Unresolved)), None)
        if failure is not None:
            state.status = None
            raise failure
        return "".join(t for t in inner.output or [] if isinstance(t, str)).rstrip("\n")

    # -- the whole tree ----------------------------------------------------------------------------

    @staticmethod
    def _check_placeholders(tree: SyntaxNode) -> None:
        """Refuse `<name>`, which bash reads as two redirections. Raises Stop."""
        for statement in tree.walk():
            for first, second in pairwise(statement.children("Redirs")):
                word = first.child("Word")
                is_pair = first.text("Op") == "<" and second.text("Op").startswith(">")
                if is_pair and word is not None and word.span[1] == second.position("OpPos"):
                    reason = f"`<{word.literal or '...'}>` is a placeholder"
                    raise Stop(reason, word.line, "put the value in its place")

    def _note_unreached(self, tree: SyntaxNode) -> None:
        for node in tree.walk():
            literal = effects.literal_words(node)
            if not literal or node.span in self._evaluated or not activities.is_launch(literal):
                continue
            self.findings.note(
                node.line, f"`{literal[0]}` is not reached with these values", NOTHING
            )


def _apply_effects(effect: effects.Effects, why: Unresolved, state: State) -> None:
    """Make unresolved what statements may have changed that are not followed."""
    if effect.forgets:
        state.forget(why.reason)
        state.unresolved_exports = why
    for name in effect.names:
        reason = f"`{name}` depends on {why.reason}"
        state.assign(name, Unresolved(reason, state.line, why.name))
    if effect.folder:
        state.folder = why
    if effect.arguments:
        state.arguments_unresolved = why
    if effect.options:
        state.options |= {"shopt"}


def _else_statements(node: SyntaxNode | None) -> list[SyntaxNode]:
    """Return the statements of an `else`, with those of further `elif`."""
    if node is None:
        return []
    condition = node.children("Cond")
    if not condition:
        return node.children("Then")
    return [*condition, *node.children("Then"), *_else_statements(node.child("Else"))]
