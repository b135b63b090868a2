"""`howdah serve`: a control plane for workers without a database."""

from __future__ import annotations

import asyncio
import logging
import os

import click

from howdah.app import Howdah
from howdah.cli.common import Target, configure_logs, targeted
from howdah.cli.errors import INCOMPLETE
from howdah.cli.flags import flags_of
from howdah.cli.node import reach, run_fast
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from howdah.loops import on_signals
from howdah.maintenance.pruner import DEFAULT_RETENTION, Retention
from howdah.observe import logs
from howdah.settings import StartOptions

log = logging.getLogger("howdah")


@click.command()
@targeted
@flags_of(ServeOptions, StartOptions)
def serve(target: Target) -> None:
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
    options = settings.of(ServeOptions)
    configure_logs(settings)
    logs.subscribe_logs()
    run_fast(_serve(_app(target), options, settings.of(StartOptions).wait))


def _app(target: Target) -> Howdah:
    settings = target.settings()
    if settings.app is not None:
        return target.app()
    database = settings.database()
    app = Howdah(database.dsn, schema=database.schema, retention=settings.of(Retention, DEFAULT_RETENTION))
    app.redact = settings.redaction()
    return app


async def _serve(app: Howdah, options: ServeOptions, patience: float) -> None:
    server, stop = ControlPlaneServer(app, options), asyncio.Event()

    def end() -> None:
        log.info("stopping: long polls end now; signal again to exit at once")
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
