"""Why a test may be skipped in CI, each by a pattern of the reason that it shows.

With `CI` set any other skip fails the run: what it leaves out would be missing without a word.
"""

from __future__ import annotations

import re

ALLOWED = {
    r"no python[23]\.\d+ here": "other versions of Python are used where there are any",
    r"root may read everything": "CI runs as root, for all the tests that change users or mounts",
    r"this machine forbids it": "py-spy needs ptrace, which many containers forbid",
    r"this machine has a driver": "without a driver it runs",
    r"this Paramiko does not know it": "each version of Paramiko drops ciphers",
    r"google-re2 has no wheel": "nor has it a use but to compare two engines",
    r"came with (Python )?3\.11|3\.11 brought": "the oldest Python of the client has nothing there",
    r"no memory cgroup|no memory limit|no such memory groups": "of a container's kernel",
    r"no cgroup of its own here": "of a container's kernel, or without root",
    r"no IPv6 here": "many containers have none",
    r"no user namespaces here": "containers and hardened kernels forbid them; the command refuses",
    r"slurmd needs root": "CI without root runs no daemons of Slurm",
    r"no (rclone|charliecloud) here": "of a CI that may install no packages",
    r"no Slurm here": "of a CI that may install no packages",
    r"no devices can be made here": "containers may forbid them; they stand for GPUs",
    r"(docker|podman) for tests needs root": "CI without root runs no containers",
    r"no (docker|podman) here": "of a CI that may install no packages",
    r"no Ray here": "of a CI that may not install 400 MB, or without a wheel for its Python",
    r"no TRL here": "of a CI that may not install 300 MB, or without a wheel for its Python",
    r"no accounting of Slurm here": "of a CI that may not install a database",
    r"cannot cut holes|second file system": "depends on the file systems of the machine",
}


def unexpected(reasons: list[str]) -> list[str]:
    """Return the reasons that CI does not allow."""
    return [
        reason for reason in reasons if not any(re.search(pattern, reason) for pattern in ALLOWED)
    ]
