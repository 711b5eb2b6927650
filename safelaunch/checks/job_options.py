"""What a job says: the options of its program, and the variables that it will see. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.analysis import option_roles
from safelaunch.checks.answers import NotKnown
from safelaunch.environ import BASICS, matches
from safelaunch.model import Args
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.checks.context import Site
    from safelaunch.model import Job

Options = dict[str, tuple[str, ...]]

_TRUE = ("true", "True", "1", "yes")
HIDDEN = "***"  # a value that the facts of a host leave out


def options(job: Job) -> Options:
    """Return the options that the job's program is given; dashes in names are underscores."""
    return {**of_words(job.command), **of_args(job.args)}


def of_words(given: Sequence[str]) -> Options:
    """Return the options among words."""
    return of_args(Args(words=tuple(given)))


def of_args(args: Args) -> Options:
    """Return {option: its values} of arguments in either form; one that is off is none."""
    found: Options = {}
    for option, value, _ in option_roles.named_arguments(args):
        name = option.replace("-", "_")
        found[name] = (*found.get(name, ()), value)
    return {name: values for name, values in found.items() if name and values != ("false",)}


def all_words(job: Job) -> list[Args]:
    """Return what the job's program is given, as the functions of source.words take it."""
    return [Args(words=job.command), job.args]


def first_value(options: Mapping[str, tuple[str, ...]], *names: str) -> str | None:
    """Return the first value of the first of these options that is given; None without one."""
    for name in names:
        values = options.get(name)
        if values:
            return values[0].strip("'\"")
    return None


def is_on(options: Mapping[str, tuple[str, ...]], name: str) -> bool:
    """Whether a switch is given, alone or with a value that means yes."""
    values = options.get(name)
    return values is not None and values[0] in _TRUE


def variable(site: Site, name: str) -> str | None:
    """Return a variable as the job will see it; None where it has none, or it is not known."""
    node = site.plan
    var = node.env.get(name)
    if var is not None and not (var.soft or var.computed):
        return var.value if isinstance(var.value, str) else None
    if matches(name, node.unset) or (var is not None and var.value is None and not var.computed):
        return None
    if node.keep is not None and not matches(name, (*node.keep, *BASICS)):
        return None
    found = outside(site).get(name)
    return None if found == HIDDEN else found


def outside(site: Site) -> Mapping[str, str]:
    """Return the environment that the job starts from, as far as it is known."""
    if site.case.is_here:
        return site.case.environ
    environ = site.known("environ")
    return environ if isinstance(environ, dict) else {}


def job_words(site: Site) -> str:
    """Return the job as a command line names it: without it another interpreter is asked."""
    resolved = site.case.resolved
    if resolved is None:
        raise NotKnown("there is no job")
    line = " ".join(map(quote, resolved.line))
    return f"-- {line}" if line else quote(resolved.job_file)
