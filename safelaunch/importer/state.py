"""The state of a shell: variables, options, folder. What the script alone cannot say is Unresolved.

An unresolved value is carried along: it is an error only where a launch depends on it.
"""

from __future__ import annotations

import copy
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.importer.budget import LONGEST_VALUE, MOST_ITEMS, Budget
from safelaunch.importer.findings import DIFFERENT, Redirection, Stop, Unresolved, UnsetName
from safelaunch.importer.variables.job_keys import marked, unresolved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from safelaunch.importer.syntax import SyntaxNode
    from safelaunch.importer.variables.marks import JobVariables

# Stands for the caller's value of a variable in a new value of the same variable: a character
# that Unicode reserves for private use, which is refused in scripts.
CALLER_VALUE = "\U0010fffd"
# lists of folders that scripts extend; what they hold differs from machine to machine
SEARCH_PATHS = frozenset(
    ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "LD_PRELOAD")
)
# the same for all scripts of a user on a machine
_OWN = frozenset(("HOME", "USER", "LOGNAME"))
_INITIAL = MappingProxyType({"IFS": " \t\n", "OPTIND": "1", "OPTERR": "1"})
# those that no caller lacks; a container or cron may have no USER, LANG or TERM
_ALWAYS_EXPORTED = frozenset(("PATH", "HOME", "PWD"))
CHANGING = MappingProxyType({
    "RANDOM": "a random number", "SRANDOM": "a random number", "SECONDS": "a time",
    "EPOCHSECONDS": "a time", "EPOCHREALTIME": "a time", "BASHPID": "a process id",
    "PPID": "a process id", "HOSTNAME": "the machine's name", "LINENO": "a line number",
    "BASH_VERSION": "bash's version", "SHLVL": "the depth of shells", "COLUMNS": "the terminal's",
    "LINES": "the terminal's", "DIRSTACK": "a list of folders", "PIPESTATUS": "exit codes",
    "BASH_ARGV": "bash's own", "FUNCNAME": "a function", "GROUPS": "the user's groups",
    "BASH_COMMAND": "a command", "HOSTTYPE": "the machine's", "OSTYPE": "the machine's",
    "MACHTYPE": "the machine's", "REPLY": "an input",
    **dict.fromkeys((
        "BASH", "BASHOPTS", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV0", "BASH_CMDS",
        "BASH_EXECUTION_STRING", "BASH_LINENO", "BASH_LOADABLES_PATH", "BASH_SUBSHELL",
        "BASH_VERSINFO", "COMP_WORDBREAKS", "HISTCMD", "OPTERR", "OPTIND", "PS4", "SHELLOPTS", "_",
    ), "bash's own"),
})  # fmt: skip
# another value at each start, or on each machine
DIFFERING = frozenset((
    "RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME", "BASHPID", "PPID", "HOSTNAME",
))  # fmt: skip
# an assignment gives them no value of their own; that of `RANDOM` makes the next ones repeatable
_DYNAMIC = frozenset((
    "RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME", "BASHPID", "LINENO",
))  # fmt: skip
# set by a scheduler for one job: Slurm, PBS, LSF, Grid Engine
_JOB_IDS = frozenset(("SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"))
# bash sets them where its caller has not
_SET_BY_BASH = frozenset(("PATH", "SHELL", "TERM"))


@dataclass(frozen=True, slots=True)
class ScriptCaller:
    """What a script gets from whoever starts it."""

    environ: Mapping[str, str]
    folder: str
    arguments: tuple[str, ...] = ()
    answers: Mapping[str, str] = field(default_factory=dict)  # `--set`


Array = dict[int | str, str]
Content = str | Array | Unresolved


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the script: text, an array by index or key, unresolved; None: not set."""

    content: Content | None
    is_exported: bool = False


class Function(NamedTuple):
    """A function of the script, and the file that defines it."""

    body: SyntaxNode
    source: str


class SetupLine(NamedTuple):
    """A shell line that a launch may need, and the folder that it means; None: any folder."""

    text: str
    folder: str | Unresolved | None


@dataclass(slots=True)
class State:
    """A shell at one moment. `fork` gives a subshell its own."""

    caller: ScriptCaller
    script: str
    substitute: Callable[[State, SyntaxNode], str]  # the output of `$(...)`
    ask: Callable[[Unresolved], None]  # for what a launch depends on, whether it uses it or not
    line: int = 0
    variables: dict[str, Variable] = field(default_factory=dict)
    maps: frozenset[str] = frozenset()  # `declare -A`
    constants: frozenset[str] = frozenset()  # `readonly`
    exported_later: frozenset[str] = frozenset()  # exported before they are assigned
    assumptions: dict[str, int] = field(default_factory=dict)  # names taken as not set: line
    caller_reads: set[str] = field(default_factory=set)  # answers that it reads, not assigned yet
    replaced: set[str] = field(default_factory=set)  # answers in place of what it makes itself
    # of these {text with `DIFFERENT` where its value would stand: the first line}
    overridden: dict[str, dict[str, int]] = field(default_factory=dict)
    is_condition: bool = False  # where a name that nobody has set is taken as empty
    is_without_files: bool = False  # where a test takes files that are not here as absent
    functions: dict[str, Function] = field(default_factory=dict)
    exported_functions: frozenset[str] = frozenset()
    sources: tuple[str, ...] = ()  # files of what is being run, the innermost first
    arguments: list[str] = field(default_factory=list)
    arguments_unresolved: Unresolved | None = None
    has_all_arguments: bool = False  # one more is empty: in functions, other scripts, after `set`
    passes_arguments: bool = False  # the command that is run ends with `"$@"`
    shift: int = 0  # of arguments that are the caller's: the first that is missing is one earlier
    # without which it goes on as it is meant to
    optional_arguments: frozenset[int] = frozenset()
    optional_names: frozenset[str] = frozenset()
    unresolved: Unresolved | None = None  # why variables that are not assigned later are unresolved
    unresolved_exports: Unresolved | None = None  # why it may have exported more
    folder: str | Unresolved = ""
    last_folder: str | None = None
    stack: tuple[str | Unresolved, ...] = ()  # `pushd`
    status: int | None = 0
    options: set[str] = field(default_factory=set)
    output: list[str | Unresolved] | None = None  # None: it goes to the terminal or a file
    option_place: tuple[int, int] = (1, 0)  # of `getopts`: the word, and the letter in it
    input: str | Unresolved | None = None  # None: the caller's
    scopes: list[dict[str, Variable | None]] = field(default_factory=list)  # `local`
    setup: tuple[SetupLine, ...] = ()
    interpreter: tuple[tuple[str, str], ...] = ()  # job keys of an activated environment
    outer_interpreters: tuple[tuple[tuple[str, str], ...], ...] = ()  # those before it
    folders: set[str] = field(default_factory=set)  # made by the script, also by its subshells
    files: set[str] = field(default_factory=set)  # written by the script
    absent_paths: list[str] = field(default_factory=list)  # which these tests have asked for
    # files that are taken as absent, and how many launches there were before
    absent_files: dict[str, int] = field(default_factory=dict)
    writers: set[str] = field(default_factory=set)  # programs that may have made any folder
    redirection: Redirection = field(default_factory=Redirection)
    in_background: bool = False
    loop: int = 0  # line of the outermost loop
    body: Sequence[SyntaxNode] = ()  # of the innermost loop or function
    budget: Budget = field(default_factory=Budget)  # one for a shell and its subshells
    job_variables: JobVariables | None = None  # for what only the caller knows
    allows_list: bool = False  # `"$@"` may be words of the caller: in those of a command
    # why `DIFFERENT` stands in the words that are being expanded; None: it stands in no such word
    different: list[Unresolved] | None = None

    def fork(self) -> State:
        """Return a copy for a subshell."""
        other = copy.copy(self)
        other.variables = dict(self.variables)
        other.functions, other.options = dict(self.functions), set(self.options)
        other.arguments, other.scopes = list(self.arguments), [dict(s) for s in self.scopes]
        return other

    def become(self, other: State) -> None:
        """Take over all of another state, such as an earlier one."""
        for item in fields(self):
            setattr(self, item.name, getattr(other, item.name))

    def fail(self, reason: str, name: str | None = None, *, differs: bool = False) -> Unresolved:
        """Return an unresolved value at the current line."""
        return Unresolved(reason, self.line, name, differs=differs)

    @contextmanager
    def marking(self, reasons: list[Unresolved] | None) -> Iterator[None]:
        """Let `DIFFERENT` stand in words for what differs at each start; None: raise Unresolved."""
        before, self.different = self.different, reasons
        try:
            yield
        finally:
            self.different = before

    @contextmanager
    def listing(self) -> Iterator[None]:
        """Let a mark stand for several words of the caller, as in those of a command."""
        before, self.allows_list = self.allows_list, True
        try:
            yield
        finally:
            self.allows_list = before

    @property
    def may_return(self) -> bool:
        """Whether `return` ends something: a function, or a file that is sourced."""
        return bool(self.scopes) or self.sources != (self.script,)

    def where(self) -> str:
        """Return the current folder. Raises Unresolved."""
        if isinstance(self.folder, Unresolved):
            raise self.folder
        return self.folder

    def content(self, name: str) -> Content | None:
        """Return a variable's content; None where it is not set. Raises Unresolved."""
        variable = self.variables.get(name)
        if variable is not None:
            if isinstance(variable.content, Unresolved):
                raise variable.content
            return variable.content
        if name in ("PWD", "OLDPWD"):
            return self.where() if name == "PWD" else self.last_folder
        if name == "BASH_SOURCE":
            return dict(enumerate(self.sources))
        if name in _INITIAL:
            return _INITIAL[name]
        if name in ("UID", "EUID") or name in CHANGING:  # asked for by the name it is assigned to
            reason = f"`{name}` is {CHANGING.get(name, 'of the user')}"
            raise self.fail(reason, differs=name in DIFFERING)
        return self._callers(name)

    def _callers(self, name: str) -> str | None:
        """Return what the caller has set a variable to that the script has not touched."""
        if name in self.caller.answers:
            self.caller_reads.add(name)
            return self.caller.answers[name]
        if self.unresolved is not None:
            raise self.unresolved.for_variable(name)
        if name in _OWN and name in self.caller.environ:
            return self.caller.environ[name]
        is_fatal = "nounset" in self.options
        is_unset = name not in self.caller.environ and name not in _SET_BY_BASH
        is_empty = self.is_condition or name in self.optional_names
        if is_empty and is_unset and not is_fatal:
            self.assumptions.setdefault(name, self.line)
            return None
        failure = UnsetName if is_fatal else Unresolved
        reason = f"`{name}` is not set in the script"
        why = failure(reason, self.line, name, differs=name in _JOB_IDS)
        why.is_caller_value = name not in _JOB_IDS
        raise why

    def argument(self, number: int) -> Unresolved | None:
        """Return an argument that is a variable of the job; None for others."""
        own = self.job_variables
        if own is not None and 0 < number <= len(self.arguments):  # of a function
            return marked(own, self.arguments[number - 1], self.line)
        if own is None or self.has_all_arguments:
            return None
        key = f"${number - self.shift}"
        if key not in own.names and 0 < number - self.shift <= own.count:  # one behind it is given
            return Unresolved(f"argument {number - self.shift} of the script", self.line, key)
        return unresolved(own, key, self.line) if key in own.names else None

    def marked_argument(self) -> Unresolved | None:
        """Return an argument of a function that has a mark in it."""
        reasons = map(self.argument, range(1, len(self.arguments) + 1))
        return next((why for why in reasons if why is not None), None)

    def default(self, name: str) -> Content | None:
        """Return a variable's content for `${name:-text}`: None also where nobody has set it.

        Where the caller has set it, bash would take that value: raises Unresolved.
        """
        is_caller_value = name in self.caller.environ or name in CHANGING or name in _SET_BY_BASH
        is_caller_value = is_caller_value or name in self.caller.answers
        own = name in self.variables or name in ("PWD", "OLDPWD", "BASH_SOURCE", "UID", *_INITIAL)
        if own or is_caller_value or self.unresolved is not None:
            return self.content(name)
        self.assumptions.setdefault(name, self.line)
        return None

    def text(self, name: str) -> str | None:
        """Return a variable as text, an array's first element. Raises Unresolved."""
        content = self.content(name)
        if isinstance(content, dict):
            return content.get(0, content.get("0"))
        return content if isinstance(content, str) else None

    def assign(self, name: str, content: Content) -> None:
        """Set a variable; an answer of the caller replaces what is unresolved."""
        if name in self.constants:
            raise Stop(f"an assignment to `{name}`, which is readonly", self.line)
        if isinstance(content, Unresolved):
            if name in self.caller.answers:
                self.replaced.add(name)
                if isinstance(content.content, str):
                    self.overridden.setdefault(name, {}).setdefault(content.content, self.line)
                content = self.caller.answers[name]
            else:
                content = content.for_variable(name)
        if name in _DYNAMIC and name not in self.caller.answers:  # it changes, whatever it gets
            content = self.fail(f"`{name}` is {CHANGING[name]}", name, differs=name == "SECONDS")
        if _is_too_large(content):
            content = self.fail(f"more than {LONGEST_VALUE // 1024} KiB in `{name}`", name)
        old = self.variables.get(name)
        exported = old.is_exported if old is not None else self._is_inherited(name)
        exported = exported or name in self.exported_later
        self.variables[name] = Variable(content, exported or "allexport" in self.options)

    def bound_arguments(self) -> None:
        """Leave too many arguments unresolved: empty ones take long to double to a long value."""
        if len(self.arguments) > MOST_ITEMS and self.arguments_unresolved is None:
            self.arguments_unresolved = self.fail(f"more than {MOST_ITEMS:,} arguments")

    def _is_inherited(self, name: str) -> bool:
        return name in self.caller.environ or name in _ALWAYS_EXPORTED

    def begin_local(self, name: str) -> None:
        """Make a variable one of the function that is being run; it stays exported."""
        scope, old = self.scopes[-1], self.variables.get(name)
        if name in scope:
            return
        scope[name] = old
        is_exported = old.is_exported if old is not None else self._is_inherited(name)
        self.variables[name] = Variable(None, is_exported)

    def end_scope(self) -> None:
        """Give the variables of a function that ends their values before it."""
        for name, variable in self.scopes.pop().items():
            self.restore(name, variable)

    def restore(self, name: str, variable: Variable | None) -> None:
        """Make a variable what it was; None: the script had not touched it."""
        if variable is None:
            self.variables.pop(name, None)
        else:
            self.variables[name] = variable

    def forget_array(self, name: str) -> None:
        """Let the next assignment of an array be one of text, as in `A=1 command`."""
        old = self.variables.get(name)
        if old is not None and isinstance(old.content, dict):
            del self.variables[name]

    def export(self, name: str, exported: bool = True) -> None:
        """Hand a variable on to programs, or do so no longer."""
        old = self.variables.get(name)
        if old is not None:
            self.variables[name] = Variable(old.content, exported)

    def unset(self, name: str) -> None:
        """Remove a variable; one of a calling function uncovers the one before it."""
        scope = next((s for s in reversed(self.scopes) if name in s), None)
        if scope is None or scope is self.scopes[-1]:
            self.variables[name] = Variable(None)
        else:
            self.restore(name, scope.pop(name))

    def forget(self, reason: str) -> None:
        """Make all variables unresolved, as a command may have changed any of them."""
        self.unresolved = self.fail(reason)
        self.replaced |= self.variables.keys() & self.caller.answers.keys()
        for name, variable in self.variables.items():
            content = self.caller.answers.get(name, self.unresolved.for_variable(name))
            self.variables[name] = Variable(content, variable.is_exported)

    def environment(self, different: dict[int | str, Unresolved]) -> dict[str, str | None]:
        """Return what the script has exported; None for what it removes. Raises Unresolved.

        Adds to `different` why `DIFFERENT` stands in it.
        """
        if self.unresolved_exports is not None:
            raise self.unresolved_exports
        env: dict[str, str | None] = {}
        for name in self.variables:
            variable = self._handed_on(name)
            if variable is None:
                continue
            content = variable.content
            if variable.is_exported and isinstance(content, Unresolved):
                if not isinstance(content.content, str) and content.source is None:
                    raise content
                different[name] = content
                content = content.content if isinstance(content.content, str) else DIFFERENT
            if variable.is_exported and isinstance(content, str):
                env[name] = content
            elif name in self.caller.environ:
                env[name] = None
        return {n: v for n, v in env.items() if n not in ("PWD", "OLDPWD", "SHLVL", "_")}

    def _handed_on(self, name: str) -> Variable | None:
        """Return a variable as programs see it: a local one that is not exported hides no other."""
        variable: Variable | None = self.variables[name]
        for scope in reversed(self.scopes):
            is_hidden = variable is not None and (
                variable.content is None or not variable.is_exported
            )
            if is_hidden and name in scope:
                variable = scope[name]
        return variable


def _is_too_large(content: Content) -> bool:
    if isinstance(content, dict):
        return len(content) > MOST_ITEMS or sum(map(len, content.values())) > LONGEST_VALUE
    return isinstance(content, str) and len(content) > LONGEST_VALUE


NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
