"""`howdah demo`: see it at work."""

from __future__ import annotations

import asyncio
import secrets

import click

from howdah.cli.common import DURATION, finish
from howdah.observe import logs
from howdah.pg import embedded
from howdah.pg.database import Database, hide_password


@click.command()
@click.option("--seconds", type=DURATION, help="End by itself after so long.  [default: at Ctrl-C]")
@click.option(
    "--dsn",
    envvar="HOWDAH_DSN",
    metavar="DSN",
    help="Use this database, in a schema of its own that is dropped at the end.",
)
def demo(seconds: float | None, dsn: str | None) -> None:
    """Show it at work: a small shop on a PostgreSQL of its own.

    Starts a PostgreSQL in a temporary folder, migrates it, runs two nodes and enqueues a bit of everything:
    mails, images, reports, a flaky API, lines that cannot be read, reminders, orders charged and shipped in one
    commit. At the end it counts in the tables whether anything was lost or done twice, and fails if so.
    """
    logs.configure("warning", json=False)
    if dsn is not None:
        mark = secrets.token_hex(4)
        database = Database(dsn, schema=f"howdah_demo_{mark}")
        finish(asyncio.run(_show(database, f"demo_{mark}", hide_password(dsn), seconds, clear=True)))
        return
    click.echo("starting PostgreSQL in a temporary folder", err=True)
    with embedded.start() as server:
        title = f"PostgreSQL {server.major} in {server.folder}, gone at the end"
        finish(asyncio.run(_show(Database(server.dsn), "demo", title, seconds, clear=False)))


async def _show(database: Database, name: str, title: str, seconds: float | None, *, clear: bool) -> int:
    from howdah.demo.show import Show

    show = Show(database, name, title=title)
    try:
        return await show.run(seconds)
    finally:
        if clear:
            await show.clear()
