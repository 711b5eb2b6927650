"""`remote --group NAME --queue`: the host of a group on which a run begins first.

In the order of the group the first with so many free cards and nobody in its queue, else the one
with the shortest queue. The run then waits there alone.
"""

from __future__ import annotations

from safelaunch.cli.connections import host_pool
from safelaunch.cli.output import say, warn
from safelaunch.errors import ConfigError, HostError
from safelaunch.remote.parallel import together
from safelaunch.runtime.cards.report import MachineCards
from safelaunch.runtime.units import quantity


def choose(group: str, hosts_path: str | None, count: int) -> str:
    """Return the host on which a run that waits for so many cards begins first.

    Raises ConfigError where no host has so many, and HostError where none answers.
    """
    pool = host_pool(hosts_path)
    hosts = pool.expand([group])

    def ask(host: str) -> MachineCards | HostError:
        try:
            return MachineCards.from_json(pool.call(host, "cards.look"))
        except HostError as e:
            return e

    answers = dict(zip(hosts, together(ask, hosts), strict=True))
    errors = {host: answer for host, answer in answers.items() if isinstance(answer, HostError)}
    for host, error in errors.items():
        warn(f"{host} is passed over: {error.message}")
    machines = {host: a for host, a in answers.items() if isinstance(a, MachineCards)}
    if not machines:
        raise next(iter(errors.values()))
    able = {host: machine for host, machine in machines.items() if len(machine.cards) >= count}
    if not able:
        cards = ", ".join(f"{host} {a.error or len(a.cards)}" for host, a in machines.items())
        hint = f"cards there: {cards}"
        raise ConfigError(f"no host of `{group}` has {count} cards", where="--group", hint=hint)
    for host, machine in able.items():
        if machine.room(count):
            say(f"{host} has room: {quantity(count, 'free card')}")
            return host
    shortest = min(able, key=lambda host: len(able[host].queue))
    waiting = quantity(len(able[shortest].queue), "run")
    say(f"no host of {group} has room; the shortest queue is that of {shortest}: {waiting}")
    return shortest
