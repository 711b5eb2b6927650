"""What a node needs to bring up its Ray: the words of start_cluster.py, and its surroundings."""

from __future__ import annotations

import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"
NO_GPUS = ("", "-1", "NoDevFiles")  # values of it that hide all; the last one is Slurm's
RAY = ("-m", "ray.scripts.scripts")  # the program `ray` as a module
# variables of the hooks in ranks
HOOKS = ("SAFELAUNCH_NODE_DIR", "SAFELAUNCH_CAPTURE", "SAFELAUNCH_SINGLE", "SAFELAUNCH_MAIN")


class ClusterOptions:
    """The options of one node: `node` of `nodes`, node 0's `address` and `port`, and `cpus`."""

    def __init__(self, values: Mapping[str, str], words: Sequence[str]) -> None:
        self.node = int(values["node"])
        self.nodes = int(values["nodes"])
        self.address = values["address"]
        self.port = int(values["port"])
        self.cpus = int(values["cpus"])
        self.words = list(words)

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> ClusterOptions:
        """Return the options in `--node=0 ... -- WORD...`."""
        at = arguments.index("--") if "--" in arguments else len(arguments)
        pairs = (word[2:].partition("=") for word in arguments[:at])
        return cls({name: value for name, _, value in pairs}, arguments[at + 1 :])

    @property
    def place(self) -> str:
        """Where the head is, as RAY_ADDRESS has it."""
        return f"{self.address}:{self.port}"


def start_words(options: ClusterOptions, python: str, folder: str, gpus: int | None) -> list[str]:
    """Return the command that brings up Ray on a node, and stays with it.

    `folder` is Ray's own on all nodes, `gpus` None where Ray itself shall count them. The workers
    take free ports: those of 10002 and up may be another run's.
    """
    words = [python, *RAY, "start", "--block"]
    if options.node == 0:
        words += ["--head", f"--port={options.port}", f"--temp-dir={folder}"]
        words += ["--include-dashboard=false", "--disable-usage-stats"]
    else:
        words += [f"--address={options.place}"]
    own = own_address(options)
    words += [f"--node-ip-address={own}"] if own else []
    words += [f"--num-cpus={options.cpus}"]
    words += [] if gpus is None else [f"--num-gpus={gpus}"]
    return [*words, "--min-worker-port=0", "--max-worker-port=0"]


def own_address(options: ClusterOptions) -> str:
    """Return the address by which other nodes reach this one; "" where there is none.

    Of several addresses it is the one on the way to node 0. Raises OSError.
    """
    if options.nodes == 1:
        return ""
    ways = socket.getaddrinfo(options.address, options.port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, place = ways[0]
    if options.node == 0:
        return str(place[0])
    with socket.socket(family, kind, protocol) as way:
        way.connect(place)  # sends nothing
        return str(way.getsockname()[0])


def visible_gpus(environ: Mapping[str, str]) -> int | None:
    """Return how many GPUs the environment shows; None where it names none, and Ray counts."""
    value = environ.get(VISIBLE)
    if value is None:
        return None
    return 0 if value in NO_GPUS else len(value.split(","))


def evidence_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of the node for what Ray leaves of an attempt; "" for a start by hand."""
    node = environ.get("SAFELAUNCH_NODE_DIR")
    attempt = environ.get("SAFELAUNCH_ATTEMPT", "1")
    return os.path.join(node, "ray", f"attempt-{attempt}") if node else ""


def ray_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Ray's own processes: without the hooks for ranks.

    A worker that has RANK, as verl sets it, is no rank that the supervisor awaits.
    """
    environment = {name: value for name, value in environ.items() if name not in HOOKS}
    site = environ.get("SAFELAUNCH_SITE")
    if site and environment.get("PYTHONPATH"):
        parts = [part for part in environment["PYTHONPATH"].split(":") if part != site]
        environment["PYTHONPATH"] = ":".join(parts)
    environment.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return environment
