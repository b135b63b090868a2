"""`howdah serve` and `howdah token`: run a control plane, and manage its API tokens."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import click

from howdah.app import Howdah
from howdah.audit import acting_as
from howdah.cli.node import reach, run_fast
from howdah.cli.output import INCOMPLETE, dump, show
from howdah.cli.parameters import DURATION, as_json, flags_of
from howdah.cli.target import Target, configure_logs, person, run, targeted
from howdah.control_plane.dashboard import PATH
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from howdah.control_plane.tokens import SCOPES, TokenRow, Tokens
from howdah.dashboard.link_key import LinkKey
from howdah.loops import on_signals
from howdah.maintenance.pruner import DEFAULT_RETENTION, Retention
from howdah.observe.failure_log import subscribe_logs
from howdah.postgres import migrate
from howdah.postgres.database import Session
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
    subscribe_logs()
    run_fast(_serve(_app(target), options, settings.of(StartOptions).wait))


def _app(target: Target) -> Howdah:
    settings = target.settings()
    if settings.app is not None:
        return target.app()
    database = settings.database()
    app = Howdah(database.dsn, schema=database.schema, retention=settings.of(Retention, DEFAULT_RETENTION))
    app.redact = settings.redaction()
    return app


async def _serve(app: Howdah, options: ServeOptions, start_timeout: float) -> None:
    key = LinkKey() if options.auth == "none" and options.dashboard else None
    server, stop = ControlPlaneServer(app, options, key), asyncio.Event()

    def end() -> None:
        log.info("stopping: long polls end now; signal again to exit at once")
        stop.set()
        server.stop()

    undo = on_signals(end, _exit_at_once)
    try:
        if await reach(app.database, start_timeout, stop):
            printing = asyncio.create_task(_print_link(server, key)) if key is not None else None
            await server.run()
            if printing is not None:
                printing.cancel()
    finally:
        undo()


async def _print_link(server: ControlPlaneServer, key: LinkKey) -> None:
    """Print the link to the dashboard. It is not logged: logs are kept, and others may read them."""
    click.echo(f"dashboard {key.link(f'{await server.listening()}{PATH}/')}")


def _exit_at_once() -> None:
    log.warning("ending at once; requests under way are not answered")
    logging.shutdown()
    os._exit(INCOMPLETE)


TOKEN_COLUMNS = {
    "id": lambda row: row.id,
    "name": lambda row: row.name,
    "begins": lambda row: f"{row.hint}…",
    "scopes": lambda row: row.scopes,
    "queues": lambda row: "all" if row.queues is None else row.queues,
    "state": lambda row: row.state,
    "created at": lambda row: row.created_at,
    "expires at": lambda row: row.expires_at or "never",
    "last used": lambda row: row.used_at or "never",
}


@click.group()
def token() -> None:
    """Create, list and revoke API tokens."""


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(SCOPES),
    help="What it allows; may be repeated.",
)
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Only this queue; may be repeated.")
@click.option("--expires", type=DURATION, help="Lifetime, such as 30d.  [default: never expires]")
@as_json
@targeted
def create(
    target: Target,
    name: str,
    scopes: tuple[str, ...],
    queues: tuple[str, ...],
    expires: float | None,
    as_json: bool,
) -> None:
    """Create a token and print it once; only its hash is stored.

    Scopes are `work` (register workers), `enqueue`, `read` and `admin` (all of it, and cancel, drain, remove).

    \b
    TOKEN=$(howdah token create build-box --scope work --queue builds --expires 90d)
    """

    async def make() -> tuple[str, TokenRow]:
        async with _tokens(target) as tokens:
            return await tokens.create(name, scopes, queues=list(queues) or None, expires=expires)

    text, row = run(make())
    if as_json:
        dump({"token": text, **{field: getattr(row, field) for field in row.__struct_fields__}})
        return
    click.echo(text)
    until = f"until {row.expires_at:%Y-%m-%d %H:%M}Z" if row.expires_at else "until it is revoked"
    allowed = f"queues {', '.join(row.queues)}" if row.queues else "every queue"
    click.echo(f"token {row.id} ({row.name}): {', '.join(row.scopes)}; {allowed}; {until}", err=True)
    click.echo("keep it now: it cannot be shown again", err=True)


@token.command("list")
@as_json
@targeted
def list_(target: Target, as_json: bool) -> None:
    """List the tokens, newest first, without their secrets."""

    async def read() -> Sequence[TokenRow]:
        async with _tokens(target) as tokens:
            return await tokens.list()

    show(run(read()), TOKEN_COLUMNS, as_json=as_json, empty="no tokens; make one with `howdah token create`")


@token.command()
@click.argument("id", type=click.IntRange(1, 2**31 - 1))
@targeted
def revoke(target: Target, id: int) -> None:
    """Revoke a token; every control plane rejects it within seconds."""

    async def end() -> None:
        async with _tokens(target) as tokens:
            await tokens.revoke(id)

    run(end())
    click.echo(f"token {id} is revoked")


@asynccontextmanager
async def _tokens(target: Target) -> AsyncIterator[Tokens]:
    database = target.database()
    await migrate.check(database)
    session = Session(database, "token")
    try:
        with acting_as(person()):
            yield Tokens(database, session)
    finally:
        await session.close()
