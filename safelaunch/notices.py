"""What a plan tells its user: warnings, and the notes that each start repeats."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.model import PlanWarning
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.config.resolve import Resolved
    from safelaunch.gates import Selection
    from safelaunch.model import EnvVar, Host, Job, Profile

_LOOKS_EXPANDED = re.compile(r"(?<!\\)\$(\w|\{|\()|^~(/|$)|/~/|`[^`]+`")
_SHOWN = 60  # characters of a value in a message


def unexpanded(job: Job) -> Iterator[PlanWarning]:
    """Warn about values that look as if a shell should expand them: nothing ever does."""
    places = [("args", word) for word in job.args.words]
    places += [("launcher_args", word) for word in job.launcher_args.words]
    places += [("command", word) for word in job.command]
    places += [("workdir", job.workdir), ("script", job.script or ""), ("log", job.log or "")]
    places += [("python", job.interpreter.path or "")]
    found = [(key, word, str(job.origin(key))) for key, word in places]
    found += [(v.name, str(v.value), str(v.origin)) for v in job.env if isinstance(v.value, str)]
    for key, word, where in found:
        if _LOOKS_EXPANDED.search(word):
            shown = word if len(word) <= _SHOWN else word[: _SHOWN - 3] + "..."
            message = f"`{shown}` in `{key}` is taken literally: `$` and `~` are never expanded"
            yield PlanWarning("not-expanded", message, where)


def of_profile(
    profile: Profile, chosen: Selection, env: Mapping[str, EnvVar], host: Host
) -> Iterator[PlanWarning]:
    """Warn about variables that are on for want of a fact, and about those only a site knows."""
    where = f"profile {profile.name}"
    for fact, names in _standing(chosen, env).items():
        message = f"{', '.join(names)} set because `{fact}` of {host.name} is not declared"
        yield PlanWarning("undeclared-fact", message, where)
    missing = [entry for entry in chosen.missing if entry.var.name not in env]
    if missing:
        wanted = ", ".join(
            f"{entry.var.name} (such as {entry.example})" if entry.example else entry.var.name
            for entry in missing
        )
        message = f"{host.name}: only your site knows {wanted}; put it into the hosts file or `env`"
        yield PlanWarning("site-variable", message, where)


def workarounds(
    resolved: Resolved, profile: Profile, chosen: Selection, env: Mapping[str, EnvVar]
) -> Iterator[str]:
    """Say which workarounds are on for want of a fact, and the command that lifts them."""
    for fact, names in _standing(chosen, env).items():
        on = [name for name in names if name in chosen.workarounds]
        if not on:
            continue
        what = "NCCL version" if fact == "nccl" else f"`{fact}`"
        cost = ": slower, GPU traffic goes over TCP" if "NCCL_SHM_DISABLE" in on else ""
        yield (
            f"workarounds of {profile.name} are on ({', '.join(on)}{cost}) because the {what} is "
            f"not declared; to lift them: {_again(resolved)}"
        )


def _standing(chosen: Selection, env: Mapping[str, EnvVar]) -> dict[str, list[str]]:
    """Return {undeclared fact: variables that it keeps on}, without those that the job replaced."""
    profile_vars = {var.name: var.origin for var in chosen.env}
    standing = {
        fact: [name for name in names if env[name].origin == profile_vars[name]]
        for fact, names in chosen.undeclared.items()
    }
    return {fact: names for fact, names in standing.items() if names}


def _again(resolved: Resolved) -> str:
    flags = resolved.flags
    words = ["safelaunch", "run", "--no-workarounds"]
    words += ["--smoke"] if flags.smoke else []
    words += ["--profile", flags.profile] if flags.profile else []
    words += ["--hosts", flags.hosts_file] if flags.hosts_file else []
    words += [word for setting in flags.sets for word in ("--set", setting)]
    words += [resolved.job_file] if resolved.job_file else ["--", *resolved.line]
    return " ".join(quote(word) for word in words)
