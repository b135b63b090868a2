"""`python -m howdah.cli.local_dashboard`: the dashboard of an app alone. `howdah dev` keeps one beside its node."""

from __future__ import annotations

import asyncio
import sys

import click

from howdah.app import Howdah
from howdah.cli.common import Target, configure_logs, targeted
from howdah.cli.errors import explain
from howdah.control_plane.dashboard import serve_dashboard, take_port
from howdah.control_plane.options import ServeOptions
from howdah.loops import on_signals
from howdah.supervised import LISTENS, READY, follow_parent, tell_parent


@click.command()
@targeted
@click.option("--port", type=int, required=True)
def main(target: Target, port: int) -> None:
    """Serve it to this machine until a signal."""
    settings = target.settings()
    configure_logs(settings)
    try:
        asyncio.run(_serve(target.app(), port, settings.of(ServeOptions).trace_url))
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
    async with serve_dashboard(app, take_port(port), trace_url):
        tell_parent(READY)
        await over.wait()
    await app.close()


if __name__ == "__main__":
    main()
