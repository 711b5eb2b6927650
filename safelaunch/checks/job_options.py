"""The options of a job's program, and the environment variables that it will see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.analysis import option_roles
from safelaunch.checks.answers import NotKnown
from safelaunch.environ import BASICS, is_removed, matches
from safelaunch.model import Args
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.checks.context import HostContext
    from safelaunch.model import Job

Options = dict[str, tuple[str, ...]]

_TRUE = ("true", "True", "1", "yes")
_OFF = ("false", "no", "0", "none", "off")
HIDDEN = "***"  # a value that the facts of a host leave out


def options(job: Job) -> Options:
    """Return the options of the job's program; dashes in names are underscores."""
    return {**parse(Args(words=job.command)), **parse(script_args(job))}


def with_launcher(job: Job) -> Options:
    """Return the options of the job's launcher and of its program, which come first."""
    return {**parse(job.launcher_args), **options(job)}


def parse(args: Args) -> Options:
    """Return {option: its values}, without options that are only `false`."""
    values: Options = {}
    for option, value, _ in option_roles.named_arguments(args):
        name = option.replace("-", "_")
        values[name] = (*values.get(name, ()), value)
    return {name: words for name, words in values.items() if name and words != ("false",)}


def program_args(job: Job) -> list[Args]:
    """Return the arguments of the job's program, for the functions of option_roles."""
    return [Args(words=job.command), script_args(job)]


def script_args(job: Job) -> Args:
    """Return the arguments of the job's program up to a `--`.

    Behind it a script has no options: they are those of a program that it starts, often on another
    machine (`submit.py --cluster a -- accelerate launch train.py --model_name_or_path /share/m`).
    """
    words = job.args.words
    if job.command or job.args.is_mapping or "--" not in words:
        return job.args
    return Args(words=words[: words.index("--")])


def first_value(options: Options, *names: str) -> str | None:
    """Return the first value of the first of these options that is set, or None."""
    return next((options[name][0].strip("'\"") for name in names if options.get(name)), None)


def is_on(options: Options, name: str) -> bool:
    """Whether a switch is set, alone or with a value that means yes."""
    return name in options and options[name][0] in _TRUE


def is_not_off(options: Options, name: str) -> bool:
    """Whether an option is set and not switched off."""
    return name in options and not any(value.lower() in _OFF for value in options[name])


def variable(host: HostContext, name: str) -> str | None:
    """Return a variable as the job will see it; None where it is not set or not known."""
    node = host.plan
    var = node.env.get(name)
    if var is not None and not (var.soft or var.computed):
        return var.value if isinstance(var.value, str) else None
    if is_removed(name, node.unset, node.requested):
        return None
    if var is not None and var.value is None and not var.computed:
        return None
    if node.keep is not None and not matches(name, (*node.keep, *BASICS)):
        return None
    value = inherited_environ(host).get(name)
    return None if value == HIDDEN else value


def has_variable(host: HostContext, name: str) -> bool:
    """Whether the job will have a variable, also one whose value is not known before the start."""
    return name in host.plan.secrets or bool(variable(host, name))


def inherited_environ(host: HostContext) -> Mapping[str, str]:
    """Return the environment that the job starts from, as far as it is known."""
    if host.is_local:
        return host.context.environ
    environ = host.get("environ")
    return environ if isinstance(environ, dict) else {}


def command_line(host: HostContext) -> str:
    """Return the job as a `safelaunch` command names it: its own interpreter is then checked."""
    resolved = host.context.resolved
    if resolved is None:
        raise NotKnown("there is no job")
    line = " ".join(map(quote, resolved.line))
    return f"-- {line}" if line else quote(resolved.job_file)
