"""`howdah demo`: runs the demo."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Sequence

import click

from howdah.cli.output import finish
from howdah.cli.parameters import DURATION
from howdah.control_plane.dashboard import take_port
from howdah.observe import logs
from howdah.postgres.database import Database
from howdah.postgres.dsn import hide_password
from howdah.postgres.embedded import server as embedded


@click.command()
@click.option("--seconds", type=DURATION, help="Stop after this time.  [default: at Ctrl-C]")
@click.option(
    "--dsn",
    envvar="HOWDAH_DSN",
    metavar="DSN",
    help="Use this database, in a schema of its own that is dropped at the end.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="N", help="Port of the dashboard.  [default: 8080, or a free port]"
)
@click.option("--dashboard/--no-dashboard", default=True, help="Serve the dashboard on this machine.  [default: with]")
@click.option("--open", "browse", is_flag=True, help="Open the dashboard in a browser.")
def demo(seconds: float | None, dsn: str | None, port: int | None, dashboard: bool, browse: bool) -> None:
    """Run a demo: a small shop on a PostgreSQL of its own.

    Starts a PostgreSQL in a temporary folder, migrates it, runs two nodes and the dashboard, and enqueues a bit of
    everything: mails, images, reports, a flaky API, lines that cannot be read, reminders, photos in a table of its
    own, orders charged and shipped in one commit. At the end it checks in the tables that nothing was lost or
    done twice, and fails otherwise.
    """
    logs.configure("warning", json=False)
    sockets = take_port(port) if dashboard else []
    if dsn is not None:
        mark = secrets.token_hex(4)
        database = Database(dsn, schema=f"howdah_demo_{mark}")
        run = _run(database, f"demo_{mark}", hide_password(dsn), seconds, sockets, browse, clear=True)
        finish(asyncio.run(run))
        return
    click.echo("starting PostgreSQL in a temporary folder", err=True)
    with embedded.start() as server:
        title = f"PostgreSQL {server.major} in {server.folder}, gone at the end"
        finish(asyncio.run(_run(Database(server.dsn), "demo", title, seconds, sockets, browse, clear=False)))


async def _run(
    database: Database,
    name: str,
    title: str,
    seconds: float | None,
    sockets: Sequence[socket.socket],
    browse: bool,
    *,
    clear: bool,
) -> int:
    from howdah_lab.demo.run import DemoRun

    run = DemoRun(database, name, title=title, sockets=sockets, browse=browse)
    try:
        return await run.run(seconds)
    finally:
        if clear:
            await run.clear()
