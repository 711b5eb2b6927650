"""A real docker and a real podman for tests, with an image that needs no registry."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.sweeper import sweep

if TYPE_CHECKING:
    from typing_extensions import Self

SCRIPTS = Path(__file__).parent
SEARCH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
LIMIT = 120.0  # seconds for a command of an engine
IMAGE = "localhost/host:latest"
PROCESSES = 30000  # podman's own default may be more than this machine allows
_PODMAN = """
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
"""
_STORE = '[storage]\ndriver = "vfs"\ngraphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'


def missing(engine: str) -> str | None:
    """Return why an engine cannot be used here, if so."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return f"{engine} for tests needs root"
    programs = {"docker": ["docker", "dockerd", "runc"], "podman": ["podman", "runc"]}[engine]
    if any(shutil.which(program, path=SEARCH) is None for program in programs):
        return f"no {engine} here: apt-get install {engine.replace('docker', 'docker.io')} runc"
    return None


class Engine:
    """An engine with a store of its own; `environ` is how its client finds it."""

    def __init__(self, name: str) -> None:
        self.name = name
        # not TMPDIR: /dev/shm may hold no file system of an image
        self.folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir="/tmp"))
        self.environ: dict[str, str] = {"PATH": SEARCH}
        self._ended = [sweep("folder", str(self.folder))]
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        if self.name == "docker":
            self.environ["DOCKER_HOST"] = f"unix://{self.folder}/sock"
            self._ended.append(sweep("command", str(SCRIPTS / "stop.sh"), str(self.folder)))
            self.start_daemon()
        else:
            self._configure_podman()
        tar = subprocess.run([SCRIPTS / "rootfs.sh"], check=True, capture_output=True).stdout
        self._run("import", "-", IMAGE, input=tar)

    def start_daemon(self) -> None:
        """Start the daemon of docker, for the first time or again."""
        subprocess.run(
            [SCRIPTS / "start.sh", self.folder],
            check=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self.environ},
            timeout=LIMIT,
        )

    def _configure_podman(self) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        for name, text in (
            ("containers.conf", _PODMAN.format(files=files, processes=PROCESSES)),
            ("storage.conf", _STORE.format(folder=self.folder)),
        ):
            (self.folder / name).write_text(text)
        self.environ["CONTAINERS_CONF"] = f"{self.folder}/containers.conf"
        self.environ["CONTAINERS_STORAGE_CONF"] = f"{self.folder}/storage.conf"
        variables = [f"{name}={value}" for name, value in self.environ.items()]
        self._ended.append(sweep("command", "env", *variables, "podman", "rm", "-fa"))

    def _run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self.name, *words],
            check=False,
            capture_output=True,
            env={**os.environ, **self.environ},
            timeout=LIMIT,
            **options,
        )

    def run(self, *words: str) -> str:
        """Run a command of the engine, and return what it prints."""
        done = self._run(*words, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def names(self) -> list[str]:
        """Return the names of all containers, also of those that have ended."""
        return self.run("ps", "-a", "--format", "{{.Names}}").split()

    def close(self) -> None:
        """End all containers and the daemon, and remove all files."""
        if self.name == "docker":
            subprocess.run([SCRIPTS / "stop.sh", self.folder], check=False, timeout=LIMIT)
        else:
            self._run("rm", "-fa", stdin=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)
        for ended in self._ended:
            ended()


def block(engine: str, **keys: object) -> dict[str, object]:
    """Return a `container:` block whose interpreter is the one of the tests."""
    mounts = ["/usr:/usr:ro", "/etc/alternatives:/etc/alternatives:ro"]
    prefixes = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent.parent)}
    mounts += [f"{path}:{path}:ro" for path in sorted(prefixes) if not path.startswith("/usr")]
    return {"engine": engine, "image": IMAGE, "mounts": mounts, "python": sys.executable, **keys}
