"""`howdah nodes` and `howdah drain`: list and drain nodes."""

from __future__ import annotations

from collections.abc import Sequence

import click

from howdah.cli.common import Target, as_json, run, targeted
from howdah.cli.output import age, printable, show
from howdah.jobs.rows import NodeRow

COLUMNS = {
    "node": lambda node: node.id,
    "name": lambda node: node.name,
    "state": lambda node: node.state,
    "running": lambda node: f"{node.running}/{node.slots}",
    "leases": lambda node: node.leases,
    "queues": lambda node: "all" if node.queues is None else node.queues,
    "kinds": lambda node: len(node.kinds or ()),
    "last beat": lambda node: age(node.beat_age),
    "started at": lambda node: node.started_at,
    "version": lambda node: node.version,
    "wake-ups": lambda node: "no, polls" if node.deaf else "yes",
}


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also stopped nodes.")
@as_json
@targeted
def nodes(target: Target, everything: bool, as_json: bool) -> None:
    """List the nodes, newest first.

    \b
    howdah nodes --all
    """

    async def look() -> Sequence[NodeRow]:
        async with target.admin() as admin:
            return await admin.nodes(all=everything)

    show(run(look()), COLUMNS, as_json=as_json, empty="no nodes; start one with `howdah worker`")


@click.command()
@click.argument("nodes", nargs=-1, required=True, type=click.IntRange(1, 2**31 - 1))
@targeted
def drain(target: Target, nodes: Sequence[int]) -> None:
    """Drain nodes: they claim no more, finish their jobs and exit. They read the request at their next heartbeat.

    It cannot be undone. Whatever keeps the process running may start it anew, as another node.

    \b
    howdah drain 7
    """

    async def act() -> None:
        async with target.admin() as admin:
            for node in nodes:
                click.echo(f"node {node} ({printable(await admin.drain(node))}) drains")

    run(act())
