"""Prints the container that a node runs in: its engine's command, and where each key comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from safelaunch.plan.container import CHOICE, origins, printed_words
from safelaunch.script import engine_line

if TYPE_CHECKING:
    from safelaunch.model import NodePlan


def print_container(node: NodePlan) -> None:
    """Print the command that runs a node's container; the command in it follows."""
    if node.container is None:
        return
    engine = node.container.engine or CHOICE
    click.echo(f"# in a container ({engine}); the machine fills in `<slots>`, leaves out --ulimit")
    click.echo(
        "# where its engine may not raise it, and adds --device /dev/infiniband if it has it"
    )
    click.echo(engine_line(printed_words(node)))
    click.echo("# what runs in it")


def print_container_origins(node: NodePlan) -> None:
    """Print each key of a node's container with its origin."""
    if node.container is None:
        return
    click.echo(f"container of {node.host}")
    for key, value, origin in origins(node.container):
        click.echo(f"  {key}: {value}    {origin}")
