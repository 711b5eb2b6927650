"""The bundle of `safelaunch report`: each text of it made, redacted, and written with mode 0600."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import HostError
from safelaunch.report import excerpt, timeline
from safelaunch.report import readme as report_readme
from safelaunch.report.diff.model import items, mapping
from safelaunch.report.redact.redactor import Redactor, count
from safelaunch.report.redact.secret_patterns import is_secret
from safelaunch.runtime.agent import wire
from safelaunch.runtime.records import Failure, RunRecord, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from safelaunch.report.collect import Case, Part, R
    from safelaunch.report.excerpt import Excerpt

_LOG = re.compile(
    r"logs/attempt-(?P<attempt>\d{1,6})/(?P<which>rank-(?P<rank>\d{1,6})|launcher|combined)\.log"
)
_HANG = re.compile(r"hang-\d{1,6}/[\w.-]{1,64}\.txt")
_ATTEMPTS = 3  # attempts whose logs are taken: the first and the newest ones
_LOGS = 64  # logs that are taken of a run
_ALL_LOGS = 4 << 20  # bytes of them together
_LEAST = 16 << 10  # bytes of one log, however many there are
_OTHER = 64 << 10  # bytes of each end of another file
_OTHERS = 40  # other files


class Bundle(NamedTuple):
    """A bundle that was made: {name: bytes}, what each is, and what is not in it."""

    files: dict[str, bytes]
    about: dict[str, str]
    missing: tuple[str, ...]
    left_out: tuple[str, ...]
    redacted: dict[str, int]


class Names(NamedTuple):
    """What is known here of names and secrets: users, homes, hosts, values of secret variables."""

    users: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def make(case: Case, names: Names, headline: str, block: Callable[[Failure], list[str]]) -> Bundle:
    """Return the bundle of a run; `block` renders a failure for people. No file is written."""
    redactor = Redactor()
    _know(redactor, case, names)
    maker = _Maker(case, redactor)
    maker.gather()
    # twice: what the last file tells of a name holds for the first one too
    for _ in range(2):
        maker.about = {}
        files = maker.files(headline, block)
    redacted = count(data.decode("utf-8", "replace") for data in files.values())
    left_out = tuple(redactor.text(line) for line in maker.left_out)
    missing = tuple(redactor.text(line) for line in maker.missing)
    return Bundle(files, maker.about, missing, left_out, redacted)


def _know(redactor: Redactor, case: Case, names: Names) -> None:
    secrets = [value for part in case.parts for value in _plan_secrets(part.of("plan.json"))]
    secrets += [v for side in case.tried for node in side.nodes for v in _plan_secrets(node.plan)]
    for value in (*names.secrets, *secrets):
        redactor.know("secret", value)
    for home in names.homes:
        redactor.know("home", home)
    for user in (*names.users, *(os.path.basename(home.rstrip("/\\")) for home in names.homes)):
        redactor.know("user", user)
    hosts = [*names.hosts, *(part.host for part in case.parts)]
    for part in case.parts:
        run, system = part.record(RunRecord) or RunRecord(), mapping(part.facts.get("system"))
        status = part.record(Status) or Status()
        hosts += run.hosts
        hosts += [run.hostname or "", status.hostname or "", str(system.get("hostname") or "")]
        redactor.know("user", str(system.get("user") or ""))
        redactor.know("home", str(system.get("home") or ""))
    for host in hosts:
        redactor.know("host", host)


def _plan_secrets(plan: Mapping[str, Any]) -> list[str]:
    nodes = [mapping(node) for node in items(plan.get("nodes"))]
    told = [
        (name, mapping(one).get("value"))
        for node in nodes
        for name, one in mapping(node.get("env")).items()
    ]
    return [value for name, value in told if isinstance(value, str) and is_secret(name)]


class _Maker:
    def __init__(self, case: Case, redactor: Redactor) -> None:
        self.case = case
        self.redactor = redactor
        self.missing = list(case.missing)
        self.left_out: list[str] = []
        self.about: dict[str, str] = {}
        self._logs: list[tuple[str, str, list[str], Excerpt, int]] = []

    def _folder(self, part: Part) -> str:
        return f"node-{part.number}/" if len(self.case.parts) > 1 else ""

    # -- reading

    def gather(self) -> None:
        """Read the logs and other texts, each once."""
        chosen = [(part, name) for part in self.case.parts for name in self._chosen(part)]
        if len(chosen) > _LOGS:
            self.left_out.append(f"{len(chosen) - _LOGS} of {len(chosen)} logs")
            chosen = sorted(chosen, key=self._blame)[:_LOGS]
        each = min(excerpt.HEAD + excerpt.TAIL, max(_LEAST, _ALL_LOGS // max(1, len(chosen))))
        for part, name in chosen:
            self._take(part, name, each, "log")
        for part in self.case.parts:
            others = [name for name in part.sizes if _HANG.fullmatch(name)]
            others += [n for n in ("supervisor.log", "samples.csv") if part.sizes.get(n)]
            others += [
                n for n in part.sizes if re.fullmatch(r"launch\.\d{1,4}\.sh|accelerate\.yaml", n)
            ]
            if len(others) > _OTHERS:
                self.left_out.append(f"{len(others) - _OTHERS} files of {part.host}")
            for name in others[:_OTHERS]:
                self._take(part, name, 2 * _OTHER, "as the run left it")

    def _chosen(self, part: Part) -> list[str]:
        logs = {name: match for name in part.sizes if (match := _LOG.fullmatch(name))}
        attempts = sorted({int(match["attempt"]) for match in logs.values()})
        wanted = (
            attempts if len(attempts) <= _ATTEMPTS else [attempts[0], *attempts[1 - _ATTEMPTS :]]
        )
        if len(wanted) < len(attempts):
            self.left_out.append(
                f"the logs of {len(attempts) - len(wanted)} attempts of {len(attempts)}"
            )
        chosen = []
        for attempt in wanted:
            mine = [n for n, m in logs.items() if int(m["attempt"]) == attempt and part.sizes[n]]
            own = [name for name in mine if logs[name]["which"] != "combined"]
            chosen += own or mine  # the combined one repeats the others
        if not chosen:
            self.missing.append(f"{part.host}: no log has anything in it")
        return sorted(chosen, key=lambda n: (int(logs[n]["attempt"]), int(logs[n]["rank"] or -1)))

    def _blame(self, one: tuple[Part, str]) -> tuple[int, int, int]:
        """Sort the logs of whom the failure names before others, and newer attempts first."""
        failure, match = self.case.failure or Failure(), _LOG.fullmatch(one[1])
        rank = int(match["rank"] or -1) if match else -1
        named = [failure.rank, *(other.rank for other in failure.others[:8])]
        first = 0 if rank == named[0] else 1 if rank in named or rank < 0 else 2
        return first, -int(match["attempt"]) if match else 0, rank

    def _take(self, part: Part, name: str, most: int, what: str) -> None:
        head = most // 4
        try:
            texts, told = excerpt.take(
                lambda begin, length: part.files.read(name, begin, length),
                part.sizes[name],
                head,
                most - head,
            )
        except (HostError, wire.Broken, ValueError) as e:
            self.missing.append(f"{name} of {part.host} could not be fetched: {e}")
            return
        self._logs.append((self._folder(part) + name, what, texts, told, most))

    # -- making

    def files(self, headline: str, block: Callable[[Failure], list[str]]) -> dict[str, bytes]:
        """Return {name: bytes} of the bundle."""
        found: dict[str, str] = {}
        case, redact = self.case, self.redactor
        for part in case.parts:
            self._of_node(part, found)
        failure = _redacted(redact, case.failure) if case.failure else None
        if failure:
            self._add(found, "failure.json", _json(failure.to_json()), "why it failed, as data")
            lines = block(failure)
            trace = failure.exception.traceback if failure.exception else ""
            text = "\n".join([*lines, "", trace] if trace else lines) + "\n"
            self._add(found, "failure.txt", text, "why it failed, to read")
        for name, what, texts, told, most in self._logs:
            self._add_log(
                found,
                name,
                what,
                excerpt.join([redact.text(t) for t in texts], told, most // 4, most - most // 4),
            )
        # value by value before they are lines: a line has no tabs and breaks of its own
        events = timeline.lines(
            {part.number: redact.data(part.events.events) for part in case.parts},
            {part.number: part.ahead for part in case.parts},
        )
        events = [redact.text(line) for line in events]
        if events:
            self._add(found, "timeline.txt", "\n".join(events) + "\n", "all events")
        environment = [
            redact.text(line) for line in report_readme.environment(self._redacted_case())
        ]
        self._add(found, "environment.txt", "\n".join(environment), "variables, with their origins")
        shown = report_readme.page(
            self._redacted_case(), redact.text(headline), block(failure) if failure else [], events
        )
        readme = self._readme(shown, found)
        return {
            "README.md": readme,
            **{name: text.encode("utf-8", "replace") for name, text in found.items()},
        }

    def _redacted_case(self) -> Case:
        """Return the case with its data redacted value by value: keys tell what a value is."""
        redact, case = self.redactor, self.case
        parts = [
            part._replace(
                host=redact.pair("host", part.host),
                data={
                    name: redact.data(_without_unbound(data)) for name, data in part.data.items()
                },
                facts=redact.data({k: part.facts.get(k) for k in _FACTS if part.facts.get(k)}),
            )
            for part in case.parts
        ]
        tried = [
            side._replace(
                id=redact.text(side.id),
                failure=_redacted(redact, side.failure) if side.failure else None,
                status=_redacted(redact, side.status),
                nodes=tuple(
                    node._replace(
                        plan=redact.data(dict(node.plan)),
                        run=_redacted(redact, node.run) if node.run else None,
                        record=_redacted(redact, node.record) if node.record else None,
                    )
                    for node in side.nodes
                ),
            )
            for side in case.tried
        ]
        return case._replace(
            id=redact.text(case.id),
            name=redact.text(case.name),
            status=_redacted(redact, case.status),
            failure=_redacted(redact, case.failure) if case.failure else None,
            parts=tuple(parts),
            tried=tuple(tried),
        )

    def _of_node(self, part: Part, found: dict[str, str]) -> None:
        redact, folder = self.redactor, self._folder(part)
        if part.script:
            script = redact.text(part.script)
            self._add(found, folder + "launch.sh", script, "what was started: the reproduction")
        for name, about in (("plan.json", "the plan, each variable with its origin"),
                            ("record.json", "commit, changed files, versions"),
                            ("status.json", "state, attempts, progress")):  # fmt: skip
            data = _without_unbound(part.of(name))
            if data:
                kept = {key: value for key, value in data.items() if key not in _DROPPED}
                self._add(found, folder + name, _json(redact.data(kept)), about)
        facts = {key: part.facts.get(key) for key in _FACTS if part.facts.get(key)}
        if facts:
            about = "the host: cards, driver, torch, NCCL, memory"
            self._add(found, folder + "host.json", _json(redact.data(facts)), about)

    def _add_log(self, found: dict[str, str], name: str, what: str, told: Excerpt) -> None:
        about = f"{what}, {told.size:,} bytes"
        if told.left_out:
            about += f", without {told.left_out:,} in the middle"
        if told.note:
            about += f"; {told.note}"
        self._add(found, name, told.text, about)

    def _add(self, found: dict[str, str], name: str, text: str, about: str) -> None:
        found[name], self.about[name] = text, about

    def _readme(self, shown: list[str], found: Mapping[str, str]) -> bytes:
        redact = self.redactor
        files = {name: (len(text), self.about[name]) for name, text in found.items()}
        lines = [*shown, *report_readme.contents(files, [], "## What is in here")]
        for head, notes in (("## Missing", self.missing), ("## Left out", self.left_out)):
            if notes:
                lines += report_readme.contents({}, [redact.text(note) for note in notes], head)
        told = count([*lines, *found.values()])
        counted = ", ".join(f"{number} {kind}" for kind, number in told.items()) or "nothing"
        lines += [f"Replaced by placeholders: {counted}. The same value has the same placeholder."]
        self.about = {
            "README.md": "what happened, versions, reproduction, already tried",
            **self.about,
        }
        return ("\n".join(lines) + "\n").encode("utf-8", "replace")


_FACTS = (
    "system",
    "cores",
    "memory",
    "gpus",
    "torch",
    "python",
    "nccl_conf",
    "tools",
    "deep",
    "kept_at",
)
_DROPPED = ("supervisor", "launcher", "starter", "socket", "terminal")  # of this machine alone


def _redacted(redactor: Redactor, record: R) -> R:
    """Return a record with its values redacted."""
    return record.from_json(redactor.data(record.to_json()))


def _without_unbound(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "unbound"}


def _json(data: object) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"
