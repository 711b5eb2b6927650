"""Builds the bundle of `safelaunch report`: collects its texts and redacts each."""

from __future__ import annotations

import json
import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import HostError
from safelaunch.report import excerpt, timeline
from safelaunch.report import readme as report_readme
from safelaunch.report.diff.model import as_mapping
from safelaunch.report.redact.redactor import Redactor, count_placeholders
from safelaunch.report.redact.secret_patterns import is_secret
from safelaunch.runtime.agent import wire
from safelaunch.runtime.records import CodeRecord, Failure, PlanRecord, RunRecord, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from safelaunch.report.collect import CollectedNode, CollectedRun, R
    from safelaunch.report.excerpt import LogExcerpt

_LOG = re.compile(
    r"logs/attempt-(?P<attempt>\d{1,6})/(?P<which>rank-(?P<rank>\d{1,6})|launcher|combined)\.log"
)
_NCCL = re.compile(r"nccl/attempt-\d{1,6}/rank-\d{1,6}\.\d{1,10}")
_DUMP = re.compile(r"nccl/attempt-\d{1,6}/flight-\d{1,6}|hang-\d{1,6}/nccl-rank-\d{1,6}")
_HANG = re.compile(r"hang-\d{1,6}/[\w.-]{1,64}\.txt")
_START_FILE = re.compile(r"launch\.\d{1,4}\.sh|accelerate\.yaml")
_MAX_ATTEMPTS = 3  # with logs: the first and the newest ones
_MAX_LOGS = 64  # of a run
_MAX_LOGS_BYTES = 4 << 20  # of all logs together
_MIN_LOG_BYTES = 16 << 10  # of one log, however many there are
_MAX_FILE_BYTES = 64 << 10  # of each end of another file
_MAX_FILES = 40  # other files


class Bundle(NamedTuple):
    """A bundle: {name: bytes}, a description of each file, and what is not in it."""

    files: dict[str, bytes]
    about: dict[str, str]
    missing: tuple[str, ...]
    left_out: tuple[str, ...]
    redacted: dict[str, int]


class KnownNames(NamedTuple):
    """Names and secrets to redact: users, homes, hosts, values of secret variables."""

    users: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def make_bundle(
    collected: CollectedRun, names: KnownNames, headline: str, block: Callable[[Failure], list[str]]
) -> Bundle:
    """Return the bundle of a run; `block` renders a failure for people. No file is written."""
    redactor = Redactor()
    _add_known_values(redactor, collected, names)
    builder = _BundleBuilder(collected, redactor)
    builder.read_logs()
    # twice: a name first recognised in the last file is then redacted in the first one too
    for _ in range(2):
        builder.about = {}
        files = builder.files(headline, block)
    redacted = count_placeholders(data.decode("utf-8", "replace") for data in files.values())
    left_out = tuple(redactor.text(line) for line in builder.left_out)
    missing = tuple(redactor.text(line) for line in builder.missing)
    return Bundle(files, builder.about, missing, left_out, redacted)


def _add_known_values(redactor: Redactor, collected: CollectedRun, names: KnownNames) -> None:
    plans = [node.record(PlanRecord) for node in collected.nodes]
    plans += [node.plan for snapshot in collected.earlier_runs for node in snapshot.nodes]
    for value in (*names.secrets, *(secret for plan in plans for secret in _plan_secrets(plan))):
        redactor.add_value("secret", value)
    for home in names.homes:
        redactor.add_value("home", home)
    for user in (*names.users, *(os.path.basename(home.rstrip("/\\")) for home in names.homes)):
        redactor.add_value("user", user)
    hosts = [*names.hosts, *(node.host for node in collected.nodes)]
    for node in collected.nodes:
        run, system = node.record(RunRecord) or RunRecord(), as_mapping(node.facts.get("system"))
        status = node.record(Status) or Status()
        hosts += run.hosts
        hosts += [run.hostname or "", status.hostname or "", str(system.get("hostname") or "")]
        redactor.add_value("user", str(system.get("user") or ""))
        redactor.add_value("home", str(system.get("home") or ""))
    for host in hosts:
        redactor.add_value("host", host)


def _plan_secrets(plan: PlanRecord | None) -> list[str]:
    variables = [item for node in (plan.nodes if plan else ()) for item in node.env.items()]
    return [v.value for name, v in variables if v.value is not None and is_secret(name)]


class _BundleBuilder:
    def __init__(self, collected: CollectedRun, redactor: Redactor) -> None:
        self.collected = collected
        self.redactor = redactor
        self.missing = list(collected.missing)
        self.left_out: list[str] = []
        self.about: dict[str, str] = {}
        self._logs: list[tuple[str, str, list[str], LogExcerpt, int]] = []

    def _folder(self, node: CollectedNode) -> str:
        return f"node-{node.number}/" if len(self.collected.nodes) > 1 else ""

    # -- reading

    def read_logs(self) -> None:
        """Read the logs and other texts, each once."""
        nodes = self.collected.nodes
        logs_to_read = [(node, name) for node in nodes for name in self._select_logs(node)]
        if len(logs_to_read) > _MAX_LOGS:
            self.left_out.append(f"{len(logs_to_read) - _MAX_LOGS} of {len(logs_to_read)} logs")
            logs_to_read = sorted(logs_to_read, key=self._log_priority)[:_MAX_LOGS]
        share = max(_MIN_LOG_BYTES, _MAX_LOGS_BYTES // max(1, len(logs_to_read)))
        bytes_per_log = min(excerpt.HEAD_BYTES + excerpt.TAIL_BYTES, share)
        for node, name in logs_to_read:
            self._read_log(node, name, bytes_per_log, "log")
        for node in nodes:
            if CodeRecord.PATCH in node.sizes:  # code may be nobody else's business
                self.left_out.append(f"{CodeRecord.PATCH} of {node.host}: the changes of your code")
            others = [name for name in node.sizes if _HANG.fullmatch(name)]
            others += [n for n in ("supervisor.log", "samples.csv") if node.sizes.get(n)]
            others += [name for name in node.sizes if _START_FILE.fullmatch(name)]
            others += [name for name, size in node.sizes.items() if size and _NCCL.fullmatch(name)]
            if any(_DUMP.fullmatch(name) for name in node.sizes):  # pickles: nobody should load one
                self.left_out.append(
                    f"dumps of the flight recorder on {node.host}: failure.json has what they show"
                )
            if len(others) > _MAX_FILES:
                self.left_out.append(f"{len(others) - _MAX_FILES} files of {node.host}")
            for name in others[:_MAX_FILES]:
                self._read_log(node, name, 2 * _MAX_FILE_BYTES, "as the run left it")

    def _select_logs(self, node: CollectedNode) -> list[str]:
        logs = {name: match for name in node.sizes if (match := _LOG.fullmatch(name))}
        attempts = sorted({int(match["attempt"]) for match in logs.values()})
        selected = attempts
        if len(attempts) > _MAX_ATTEMPTS:
            selected = [attempts[0], *attempts[1 - _MAX_ATTEMPTS :]]
            dropped = len(attempts) - len(selected)
            self.left_out.append(f"the logs of {dropped} attempts of {len(attempts)}")
        filled = [name for name in logs if node.sizes[name]]
        logs_to_read = []
        for attempt in selected:
            attempt_logs = [name for name in filled if int(logs[name]["attempt"]) == attempt]
            separate_logs = [name for name in attempt_logs if logs[name]["which"] != "combined"]
            logs_to_read += separate_logs or attempt_logs  # the combined log repeats the others
        if not logs_to_read:
            self.missing.append(f"{node.host}: all logs are empty")
        return sorted(
            logs_to_read, key=lambda n: (int(logs[n]["attempt"]), int(logs[n]["rank"] or -1))
        )

    def _log_priority(self, entry: tuple[CollectedNode, str]) -> tuple[int, int, int]:
        """Return a sort key: logs of ranks in the failure first, then newer attempts."""
        failure, match = self.collected.failure or Failure(), _LOG.fullmatch(entry[1])
        rank = int(match["rank"] or -1) if match else -1
        named = [failure.rank, *(other.rank for other in failure.others[:8])]
        first = 0 if rank == named[0] else 1 if rank in named or rank < 0 else 2
        return first, -int(match["attempt"]) if match else 0, rank

    def _read_log(self, node: CollectedNode, name: str, max_bytes: int, description: str) -> None:
        head = max_bytes // 4
        read = partial(node.files.read, name)
        try:
            texts, log = excerpt.head_and_tail(read, node.sizes[name], head, max_bytes - head)
        except (HostError, wire.Broken, ValueError) as e:
            self.missing.append(f"{name} of {node.host} could not be fetched: {e}")
            return
        self._logs.append((self._folder(node) + name, description, texts, log, max_bytes))

    # -- making

    def files(self, headline: str, block: Callable[[Failure], list[str]]) -> dict[str, bytes]:
        """Return {name: bytes} of the bundle."""
        texts: dict[str, str] = {}
        collected, redactor = self.collected, self.redactor
        for node in collected.nodes:
            self._add_node(node, texts)
        failure = _redact(redactor, collected.failure) if collected.failure else None
        if failure:
            self._add(texts, "failure.json", _json(failure.to_json()), "why it failed, as data")
            lines = block(failure)
            trace = failure.exception.traceback if failure.exception else ""
            text = "\n".join([*lines, "", trace] if trace else lines) + "\n"
            self._add(texts, "failure.txt", text, "why it failed, to read")
        for name, description, log_texts, log, max_bytes in self._logs:
            redacted, head = [redactor.text(text) for text in log_texts], max_bytes // 4
            shown_log = excerpt.concat(redacted, log, head, max_bytes - head)
            about = f"{description}, {log.size:,} bytes"
            if log.left_out:
                about += f", without {log.left_out:,} in the middle"
            if log.note:
                about += f"; {log.note}"
            self._add(texts, name, shown_log.text, about)
        # redacted value by value before they become lines, which have no tabs or line breaks
        events = timeline.lines(
            {node.number: redactor.data(node.events.events) for node in collected.nodes},
            {node.number: node.clock_offset for node in collected.nodes},
        )
        events = [redactor.text(line) for line in events]
        if events:
            self._add(texts, "timeline.txt", "\n".join(events) + "\n", "all events")
        run = self._redacted_run()
        environment = [redactor.text(line) for line in report_readme.environment(run)]
        self._add(texts, "environment.txt", "\n".join(environment), "variables, with their origins")
        failure_lines = block(failure) if failure else []
        shown = report_readme.readme_lines(run, redactor.text(headline), failure_lines, events)
        readme = {"README.md": self._readme(shown, texts)}
        return readme | {name: text.encode("utf-8", "replace") for name, text in texts.items()}

    def _redacted_run(self) -> CollectedRun:
        """Return the collected run with its data redacted value by value, as keys name the kind."""
        redactor, collected = self.redactor, self.collected
        nodes = [
            node._replace(
                host=redactor.pair("host", node.host),
                data={
                    name: redactor.data(_without_unbound(data)) for name, data in node.data.items()
                },
                facts=redactor.data({k: node.facts.get(k) for k in _FACTS if node.facts.get(k)}),
            )
            for node in collected.nodes
        ]
        earlier_runs = [
            snapshot._replace(
                id=redactor.text(snapshot.id),
                failure=_redact(redactor, snapshot.failure) if snapshot.failure else None,
                status=_redact(redactor, snapshot.status),
                nodes=tuple(
                    node._replace(
                        plan=_redact(redactor, node.plan) if node.plan else None,
                        run=_redact(redactor, node.run) if node.run else None,
                        record=_redact(redactor, node.record) if node.record else None,
                    )
                    for node in snapshot.nodes
                ),
            )
            for snapshot in collected.earlier_runs
        ]
        return collected._replace(
            id=redactor.text(collected.id),
            name=redactor.text(collected.name),
            status=_redact(redactor, collected.status),
            failure=_redact(redactor, collected.failure) if collected.failure else None,
            nodes=tuple(nodes),
            earlier_runs=tuple(earlier_runs),
        )

    def _add_node(self, node: CollectedNode, texts: dict[str, str]) -> None:
        redactor, folder = self.redactor, self._folder(node)
        if node.script:
            script = redactor.text(node.script)
            self._add(texts, folder + "launch.sh", script, "what was started: the reproduction")
        for name, about in ((PlanRecord.FILE, "the plan, each variable with its origin"),
                            ("record.json", "commit, changed files, versions"),
                            (CodeRecord.FILE, "commit, branch, and the hash of all files"),
                            ("status.json", "state, attempts, progress")):  # fmt: skip
            data = _without_unbound(node.file_data(name))
            if data:
                shown_data = {key: value for key, value in data.items() if key not in _LOCAL_KEYS}
                self._add(texts, folder + name, _json(redactor.data(shown_data)), about)
        facts = {key: node.facts.get(key) for key in _FACTS if node.facts.get(key)}
        if facts:
            about = "the host: GPUs, driver, torch, NCCL, memory"
            self._add(texts, folder + "host.json", _json(redactor.data(facts)), about)

    def _add(self, texts: dict[str, str], name: str, text: str, about: str) -> None:
        texts[name], self.about[name] = text, about

    def _readme(self, shown: list[str], texts: Mapping[str, str]) -> bytes:
        redactor = self.redactor
        files = [f"`{name}`: {self.about[name]}" for name in texts]
        lines = [*shown, *report_readme.section("## Files", files)]
        for heading, notes in (("## Missing", self.missing), ("## Left out", self.left_out)):
            if notes:
                lines += report_readme.section(heading, [redactor.text(note) for note in notes])
        counts = count_placeholders([*lines, *texts.values()])
        summary = ", ".join(f"{number} {kind}" for kind, number in counts.items()) or "nothing"
        lines += [f"Replaced by placeholders: {summary}. The same value has the same placeholder."]
        readme = {"README.md": "what happened, versions, reproduction, already tried"}
        self.about = readme | self.about
        return ("\n".join(lines) + "\n").encode("utf-8", "replace")


_FACTS = (
    "system", "cores", "memory", "gpus", "torch", "python", "nccl_conf", "tools", "deep", "kept_at",
)  # fmt: skip
_LOCAL_KEYS = ("supervisor", "launcher", "starter", "socket", "terminal")  # of this machine alone


def _redact(redactor: Redactor, record: R) -> R:
    """Return a record with its values redacted."""
    return record.from_json(redactor.data(record.to_json()))


def _without_unbound(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "unbound"}


def _json(data: object) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"
