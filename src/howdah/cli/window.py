"""`python -m howdah.cli.window`: the dashboard of an app alone. `howdah dev` keeps one beside its node."""

from __future__ import annotations

import asyncio
import sys

import click

from howdah.app import Howdah
from howdah.cli.common import Target, targeted
from howdah.cli.failure import explain
from howdah.fleet.window import take_port, window
from howdah.observe import logs
from howdah.orphan import LISTENS, READY, follow_parent, tell_parent
from howdah.service import on_signals


@click.command()
@targeted
@click.option("--port", type=int, required=True)
def main(target: Target, port: int) -> None:
    """Serve it to this machine until a signal."""
    settings = target.settings()
    logs.configure(settings.log_level or "info", settings.log_json)
    try:
        asyncio.run(_serve(target.app(), port, settings.serve_options().trace_url))
    except Exception as error:
        known = explain(error)
        if known is None:
            raise
        click.echo(f"howdah: the dashboard: {known[0]}", err=True)
        sys.exit(known[1])


async def _serve(app: Howdah, port: int, trace_url: str | None) -> None:
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    on_signals(over.set, over.set)
    tell_parent(LISTENS)
    follow_parent(lambda: loop.call_soon_threadsafe(over.set))
    async with window(app, take_port(port), trace_url):
        tell_parent(READY)
        await over.wait()
    await app.close()


if __name__ == "__main__":
    main()
