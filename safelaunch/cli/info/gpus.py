"""`safelaunch gpus`: the cards of machines, who has them, and who waits for some."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.connections import host_pool
from safelaunch.cli.info.facts import error_json, warn_error
from safelaunch.cli.output import print_json, table
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import HostError
from safelaunch.remote.parallel import together
from safelaunch.runtime.cards.report import MachineCards, look
from safelaunch.runtime.units import brief_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runtime.cards.report import CardView, QueueView


@click.command("gpus")
@click.option("--host", "names", multiple=True, metavar="NAME", help="Host or group; repeatable.")
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(names: tuple[str, ...], hosts_path: str | None, as_json: bool) -> int:
    """Show the cards (GPUs, NPUs) of this machine or of hosts, who has them, and who waits.

    A card is reserved by a run of safelaunch, of any user of the machine; it is busy where
    something else computes on it, uses more than 1 GiB and a twentieth of its memory, or loads it
    by a tenth.
    Exit code 1: the cards are not known; 4: a host does not answer.
    """
    hosts, answers = _ask(names, hosts_path)
    if as_json:
        shown = [_json(host, answer) for host, answer in zip(hosts, answers, strict=True)]
        print_json({"version": 1, "hosts": shown})
    else:
        for place, (host, answer) in enumerate(zip(hosts, answers, strict=True)):
            _show(host, answer, is_first=place == 0, has_title=bool(names))
    if any(isinstance(answer, HostError) for answer in answers):
        return HostError.exit_code
    return int(any(answer.error for answer in answers if isinstance(answer, MachineCards)))


def _ask(
    names: Sequence[str], hosts_path: str | None
) -> tuple[Sequence[str], list[MachineCards | HostError]]:
    """Return hosts, and the cards of each or an error; without names those of this machine."""
    if not names:
        return (hosts_file.LOCAL,), [look(os.environ)]
    pool = host_pool(hosts_path)
    hosts = pool.expand(names)

    def ask(host: str) -> MachineCards | HostError:
        try:
            return MachineCards.from_json(pool.call(host, "cards.look"))
        except HostError as e:
            return e

    return hosts, together(ask, hosts)


def _json(host: str, answer: MachineCards | HostError) -> dict[str, Any]:
    if isinstance(answer, HostError):
        return error_json(host, answer)
    return {"host": host, **answer.to_json()}


def _show(host: str, answer: MachineCards | HostError, *, is_first: bool, has_title: bool) -> None:
    if isinstance(answer, HostError):
        warn_error(host, answer)
        return
    if not is_first:
        click.echo()
    if has_title:
        click.echo(host)
    if answer.error:
        click.echo(answer.error)
    rows: list[tuple[str, ...]] = [("CARD", "STATE", "MEMORY", "LOAD", "WHO", "MODEL")]
    rows += [_card(card) for card in answer.cards]
    for line in table(rows) if answer.cards else ():
        click.echo(line)
    if answer.queue:
        click.echo()
        head = ("QUEUE", "CARDS", "PRIORITY", "SINCE", "RUN")
        for line in table([head, *map(_waiter, answer.queue)]):
            click.echo(line)


def _card(card: CardView) -> tuple[str, ...]:
    memory = ""
    if card.memory is not None and card.memory_used is not None:
        memory = f"{card.memory_used / 1024:.1f}/{card.memory / 1024:.0f} GiB"
    load = "" if card.load is None else f"{card.load:.0f} %"
    runs = [run.run if run.is_own else f"{run.run} of {run.user}" for run in card.runs]
    return card.card, card.state, memory, load, " and ".join(runs) or card.use, card.name


def _waiter(run: QueueView) -> tuple[str, ...]:
    since = "" if run.since is None else brief_duration(time.time() - run.since)
    who = run.run if run.is_own else f"{run.run} of {run.user}"
    return str(run.place), str(run.cards), str(run.priority), since, who
