"""Prints the parts of a plan: the line below is that of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from safelaunch.runtime.parts import expand
from safelaunch.start.fan_out import spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.model import FanOut

SHOWN = 8  # parts


def print_fan_out(fan_out: FanOut, hosts: Sequence[str]) -> None:
    """Print how many parts there are, what each has, and how they end."""
    rows = expand.part_words(spec_of(fan_out, ""))
    of_cards = "one for each card"
    if fan_out.cards_each > 1:
        of_cards = f"one for every {fan_out.cards_each} cards"
    default = of_cards if fan_out.cards else "as many at once as cores"
    at_once = default if fan_out.at_once is None else f"{fan_out.at_once} at once"
    if len(hosts) > 1:
        at_once += f" on each of {', '.join(hosts)}, to which they are dealt out in turn"
    over = f", over {fan_out.over} by {fan_out.by}" if fan_out.over else ""
    click.echo(f"# {len(rows)} parts{over}, {at_once}; each runs this line")
    for row in rows[:SHOWN] if fan_out.matrix else ():
        click.echo("#   " + ", ".join(f"<{k}> = {v}" for k, v in row.items() if k != "shard.count"))
    if fan_out.matrix and len(rows) > SHOWN:
        click.echo(f"#   and {len(rows) - SHOWN} more")
    if fan_out.merge is not None:
        by = " ".join(fan_out.merge.command) or fan_out.merge.by
        place = "on the client, " if len(hosts) > 1 else ""
        click.echo(f"# then their outputs are merged {place}in {fan_out.merge.output} by {by}")
    click.echo()
