"""The job of a plan for the jobs interface of a Ray, as plain data, and the line that it runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from safelaunch.engines.submission import PLACEHOLDERS, SCRIPTS
from safelaunch.runtime.engines.ray import NAME
from safelaunch.runtime.engines.ray.jobs import MARK
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.engines.submission import Submission
    from safelaunch.model import Plan, Ray

REQUEST_FILE = "ray-job.json"  # in the folder of the run


def bundle(block: Ray) -> dict[str, int]:
    """Return what each node must have, by Ray's names; a bundle must ask for something."""
    counted = {"CPU": block.cpus, "GPU": block.gpus_per_node}
    own = {name: count for name, count in counted.items() if count}
    own |= {name: int(count) for name, count in block.resources.items()}
    return own or {"CPU": 1}


def driver_line(plan: Plan, block: Ray, place: Submission = PLACEHOLDERS) -> str:
    """Return the line of the shell that Ray runs; the environment of the job is not in it."""
    words = [
        place.python,
        "-B",
        f"{place.folder}/{SCRIPTS}/ray/driver.py",
        f"--nodes={plan.topology.nodes}",
        f"--bundle={json.dumps(bundle(block), separators=(',', ':'))}",
        f"--strategy={block.placement}",
        f"--limit={block.placement_timeout:g}",
        f"--python={place.python}",
        place.folder,
    ]
    return "exec " + " ".join(map(quote, words))


def submission(plan: Plan, block: Ray, place: Submission = PLACEHOLDERS) -> dict[str, Any]:
    """Return the body of the request that submits a plan."""
    return {
        "submission_id": place.run_id,
        "entrypoint": driver_line(plan, block, place),
        "entrypoint_num_cpus": 0,  # the driver only waits: the nodes are asked for by itself
        "metadata": {MARK: place.run_id, "name": plan.name},
    }


def body(plan: Plan, block: Ray, place: Submission = PLACEHOLDERS) -> str:
    """Return that request as text."""
    return json.dumps(submission(plan, block, place), indent=2, ensure_ascii=True) + "\n"


def capacity_request(block: Ray, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the request that asks, over SSH, what the machines of a Ray have."""
    name = block.token_from
    secrets = {} if name is None else {name: environ.get(name, "")}
    address = block.address.rstrip("/")
    return {"engine": NAME, "cluster": address, "token_from": name, "env": secrets}


def request_path(place: Submission = PLACEHOLDERS) -> str:
    """Return where a start writes the request."""
    return f"{place.folder}/{REQUEST_FILE}"
