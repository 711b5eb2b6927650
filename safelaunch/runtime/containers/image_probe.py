"""Asks docker or podman, before a start, for an image and for what a container of it shows.

The container of the question has the same options as that of the run, so that what the engine, the
image or the machine refuses is said before anything of the run exists.
"""

from __future__ import annotations

import json
import os
import platform

from safelaunch.runtime import commands, processes, read_data
from safelaunch.runtime.containers import errors
from safelaunch.runtime.containers.command_line import VARIABLES, run_words, this_machine
from safelaunch.runtime.packages import RECORDED
from safelaunch.runtime.records import ContainerMachine, ContainerSpec, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.runtime.agent.wire import Link, Message
    from safelaunch.runtime.commands import CommandResult

ENGINES = ("docker", "podman")  # in this order, where none is named
PULL_LIMIT = 3600.0  # seconds for an image of tens of GB
RUN_LIMIT = 300.0  # seconds for the first container of an image: a slow disk reads its layers
REMOVE_LIMIT = 30.0
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # Go's names of processors
# what the container itself is asked, behind the text of start_probe.py
_EXTRA = """
print("boot_id " + read("/proc/sys/kernel/random/boot_id").strip())
print("pidns " + os.readlink("/proc/self/ns/pid"))
"""


class ContainerReport(Record):
    """What a machine's engine says of a container before a start."""

    machine: ContainerMachine = ContainerMachine()  # of which the command is made
    image_id: str = ""  # the image
    environ: Mapping[str, str] = {}  # where the engine is
    probe: Sequence[object] = ()  # code, output and errors of the interpreter in the container
    packages: Mapping[str, str] = {}  # versions of packages in the image
    notes: Sequence[str] = ()  # what the engine cannot do, and others can
    error: str = ""  # why no container can be started
    hint: str = ""  # what to do about that


class ContainerError(RuntimeError):
    """No container can be started; `hint` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def probe_image(
    spec: ContainerSpec, arguments: Sequence[str], name: str, environ: Mapping[str, str]
) -> ContainerReport:
    """Return what the container of a run would be.

    `arguments` are those of start_probe.py with folder and search path; `name` is that of the run.
    """
    for folder in (spec.home, os.path.join(os.path.dirname(spec.home), "runs")):
        os.makedirs(folder, 0o700, exist_ok=True)
    environ = {**environ, **spec.environ}
    report = ContainerReport(environ={n: environ[n] for n in VARIABLES if environ.get(n)})
    try:
        engine, image = _image(spec, environ)
        report.machine, report.image_id = this_machine(engine), str(image.get("Id") or "")
        _check_image(spec, engine, image)
        if engine == "docker" and report.machine.uid:
            report.machine.is_rootless = _is_rootless(environ)
        _check_user(spec, report.machine)
        _ask(spec, report, [*arguments], f"{name}-probe", environ)
    except ContainerError as e:
        report.error, report.hint = str(e), e.hint
    return report


def _image(spec: ContainerSpec, environ: Mapping[str, str]) -> tuple[str, Mapping[str, object]]:
    """Return the engine, and what it says of the image. Raises ContainerError."""
    failures: list[tuple[str, CommandResult]] = []
    for engine in (spec.engine,) if spec.engine else ENGINES:
        result = commands.run([engine, "image", "inspect", spec.image], environ=environ)
        if errors.is_away(result):
            failures.append((engine, result))
            continue
        if spec.pull == "always" or (result.code != 0 and spec.pull == "missing"):
            _pull(engine, spec, environ)
            result = commands.run([engine, "image", "inspect", spec.image], environ=environ)
        if result.code != 0:
            error = _refusal(engine, spec, result, "")
            other = [f"{name}: {errors.words_of(r)}" for name, r in failures if r.code >= 0]
            raise ContainerError("; ".join([str(error), *other]), error.hint)
        try:
            return engine, json.loads(result.out)[0]
        except (ValueError, LookupError, TypeError) as e:
            raise ContainerError(f"`{engine} image inspect` printed no image: {e}") from e
    # an engine that is installed and does not answer says more than one that is not
    engine, result = next(((e, r) for e, r in failures if r.code >= 0), failures[0])
    if result.code < 0 and not spec.engine:
        raise ContainerError("neither docker nor podman is installed", "install one of them")
    raise _refusal(engine, spec, result, "")


def _pull(engine: str, spec: ContainerSpec, environ: Mapping[str, str]) -> None:
    """Fetch the image. Raises ContainerError."""
    result = commands.run([engine, "pull", spec.image], environ=environ, limit=PULL_LIMIT)
    if result.code != 0:
        raise _refusal(engine, spec, result, f"cannot pull {spec.image}: ")


def _refusal(engine: str, spec: ContainerSpec, result: CommandResult, what: str) -> ContainerError:
    words = result.err if result.code < 0 else errors.words_of(result)
    user = processes.user_name(os.getuid())
    return ContainerError(
        f"{engine}: {what}{words}", errors.remedy(result.err or words, engine, spec.image, user)
    )


def _check_user(spec: ContainerSpec, machine: ContainerMachine) -> None:
    """Refuse root, where what it writes could not be read by who starts the run."""
    if spec.user == "root" and machine.uid and not machine.is_rootless:
        raise ContainerError(
            f"`user: root`: the run's files would be root's, not {machine.name}'s",
            "`user: me`; or let the image have what the job installs as root",
        )


def _check_image(spec: ContainerSpec, engine: str, image: Mapping[str, object]) -> None:
    """Refuse an image for another processor. Raises ContainerError."""
    kind, own = str(image.get("Architecture") or ""), platform.machine()
    if kind and _MACHINES.get(kind, kind) != own:
        raise ContainerError(
            f"{engine}: the image {spec.image} is for {kind}, this machine is {own}",
            f"{engine} pull --platform linux/{_go_name(own)} {spec.image}",
        )


def _go_name(machine: str) -> str:
    return next((go for go, name in _MACHINES.items() if name == machine), machine)


def _is_rootless(environ: Mapping[str, str]) -> bool:
    result = commands.run(
        ["docker", "info", "--format", "{{json .SecurityOptions}}"], environ=environ
    )
    return "name=rootless" in result.out


def _ask(
    spec: ContainerSpec,
    report: ContainerReport,
    arguments: Sequence[str],
    name: str,
    environ: Mapping[str, str],
) -> None:
    """Run the probe in a container of the image, and complete the report. Raises ContainerError."""
    source = read_data("start/start_probe.py").decode() + _EXTRA
    names = [package.replace("-", "_") for package in RECORDED]
    words = ["bash", "-c", 'exec "$0" "$@"', spec.python, "-I", "-S", "-c", source, *arguments]
    words += [name for name in names if name not in arguments[3:]]
    result = _run(spec, report, words, name, environ)
    if errors.is_rlimit(result):
        report.machine.raises_limits = False
        report.notes = [
            f"{report.machine.engine} may not raise the limit of locked memory here: RDMA needs it"
        ]
        result = _run(spec, report, words, name, environ)
    if result.code != 0:
        raise _of_probe(spec, report.machine.engine, result)
    values = dict(line.split(" ", 1) for line in result.out.splitlines() if " " in line)
    _check_place(report.machine.engine, values)
    report.packages = {
        package: values[module]
        for package, module in zip(RECORDED, names)  # noqa: B905 - 3.10
        if module in values
    }
    report.probe = result.to_json()


def _run(
    spec: ContainerSpec,
    report: ContainerReport,
    words: Sequence[str],
    name: str,
    environ: Mapping[str, str],
) -> CommandResult:
    """Run a command in a container that is removed afterwards."""
    argv = run_words(spec, report.machine, name, words, "/")
    # unlike that of a run: what it prints is read, and nothing of it stays
    argv[2:2] = ["--rm"]
    try:
        result = commands.run(argv, environ=environ, limit=RUN_LIMIT)
    except BaseException:
        _remove(report.machine.engine, name, environ)
        raise
    if result.code < 0 or result.code >= errors.ENGINE_ERROR:
        _remove(report.machine.engine, name, environ)
    return result


def _remove(engine: str, name: str, environ: Mapping[str, str]) -> None:
    commands.run([engine, "rm", "-f", name], environ=environ, limit=REMOVE_LIMIT)


def _of_probe(spec: ContainerSpec, engine: str, result: CommandResult) -> ContainerError:
    """Return the error of a container that could not answer."""
    error = _refusal(engine, spec, result, "")
    if result.code == errors.NOT_FOUND and "exec: " in result.err and '"bash"' not in result.err:
        return ContainerError(f"the image {spec.image} has no `{spec.python}`", error.hint)
    if result.code < errors.ENGINE_ERROR:
        words = result.last_line or result.code
        return ContainerError(f"`{spec.python}` of the image {spec.image} does not work: {words}")
    return error


def _check_place(engine: str, values: Mapping[str, str]) -> None:
    """Refuse a container that runs elsewhere, or sees other processes. Raises ContainerError."""
    own = processes.machine()
    if values.get("boot_id") != own["boot_id"]:
        raise ContainerError(
            f"the containers of {engine} run on another machine or in a virtual one",
            "DOCKER_HOST and `docker context ls` say where; `remote --host` starts jobs elsewhere",
        )
    if values.get("pidns") != own["pidns"]:
        raise ContainerError(
            f"the containers of {engine} do not see the processes of this machine",
            "start safelaunch on the machine itself, not inside of a container",
        )


def answer(request: Message, link: Link) -> Message:
    """Return what the engine of this machine says of a container, to a client of the agent."""
    del link
    spec = ContainerSpec.from_json(request["spec"])
    environ = {k: v for k, v in os.environ.items() if not k.startswith("SAFELAUNCH_")}
    return probe_image(spec, request["arguments"], str(request["name"]), environ).to_json()


VERBS = {"probe": answer}
