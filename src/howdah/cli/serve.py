"""`howdah serve`: a control plane for workers without a database."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import click

from howdah.app import Howdah
from howdah.cli.common import DURATION, Target, targeted
from howdah.cli.failure import INCOMPLETE
from howdah.cli.node import reach, run_fast
from howdah.fleet.options import ServeOptions
from howdah.fleet.server import Server
from howdah.observe import logs
from howdah.service import on_signals

log = logging.getLogger("howdah")


@click.command()
@targeted
@click.option("--host", metavar="ADDRESS", help="Where to listen.  [env: HOWDAH_SERVE_HOST; default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="0 takes a free one.  [default: 8080]")
@click.option("--auth", type=click.Choice(["token", "none"]), help="Who may come in.  [default: token]")
@click.option(
    "--cert", "certificate", metavar="FILE", help="The TLS certificate, with what is between it and its root."
)
@click.option("--key", metavar="FILE", help="Its key.")
@click.option("--heartbeat", type=DURATION, help="What workers are told to beat at.  [default: 30s]")
@click.option("--offline-after", type=DURATION, help="A worker silent for so long is offline.  [default: 90s]")
@click.option("--rate", type=float, metavar="N", help="Requests a second of one worker or token.  [default: 100]")
@click.option(
    "--refusals", type=float, metavar="N", help="Requests without a good token a minute of one address.  [default: 60]"
)
@click.option("--connections", type=int, metavar="N", help="Open at once.  [default: 5000]")
@click.option("--max-body", "largest_body", type=int, metavar="BYTES", help="Of one request.  [default: 8388608]")
@click.option("--dashboard/--no-dashboard", default=None, help="At /dashboard.  [default: with]")
@click.option("--wait", "patience", type=DURATION, default="30s", show_default=True, help="For the database at start.")
def serve(target: Target, patience: float, **flags: Any) -> None:
    """Run a control plane and the dashboard: workers that cannot reach the database work through it.

    As many as wanted, behind a load balancer. With -a it knows the app's tables, schedules and the arguments of its
    tasks; without, it serves jobs of any kind. The dashboard is at /dashboard: sign in with a token of scope read (to
    look) or admin (to act), or with the password in HOWDAH_SERVE_PASSWORD. The first TERM or INT ends it within 3
    seconds, the second at once.

    \b
    howdah token create build-box --scope work
    howdah serve -a shop.jobs:app --host 0.0.0.0 --cert tls.crt --key tls.key
    """
    settings = target.settings()
    options = settings.serve_options(**flags)
    logs.configure(settings.log_level or "info", settings.log_json)
    logs.subscribe_logs()
    run_fast(_serve(_app(target), options, patience))


def _app(target: Target) -> Howdah:
    settings = target.settings()
    if settings.app is not None:
        return target.app()
    database = settings.database()
    app = Howdah(database.dsn, schema=database.schema, retention=settings.keep())
    app.redact = settings.redaction()
    return app


async def _serve(app: Howdah, options: ServeOptions, patience: float) -> None:
    server, stop = Server(app, options), asyncio.Event()

    def end() -> None:
        log.info("ending: who waits for work is let go; again to end at once")
        stop.set()
        server.stop()

    undo = on_signals(end, _leave)
    try:
        if await reach(app.database, patience, stop):
            await server.run()
    finally:
        undo()


def _leave() -> None:
    log.warning("ending at once; requests under way are not answered")
    logging.shutdown()
    os._exit(INCOMPLETE)
