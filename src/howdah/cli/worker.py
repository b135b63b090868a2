"""`howdah worker`: one node, or several under one parent."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from howdah import config
from howdah.cli.common import DURATION, Target, finish, targeted
from howdah.cli.node import Address, Node, Process, run_fast
from howdah.errors import ConfigError
from howdah.observe import logs, tracing
from howdah.orphan import PARENT
from howdah.sources import Sources
from howdah.supervisor import Supervisor
from howdah.work.options import WorkerOptions, parse_queues

log = logging.getLogger("howdah")


@click.command()
@targeted
@click.option("-q", "--queues", metavar="NAME[:MOST],…", help="Queues to serve.  [env: HOWDAH_QUEUES; default: all]")
@click.option("-c", "--concurrency", type=int, metavar="N", help="Jobs at once.  [env: HOWDAH_SLOTS; default: 50]")
@click.option("--label", "labels", multiple=True, metavar="LABEL", help="What this node has that jobs may require.")
@click.option("--processes", type=click.IntRange(1, 1000), metavar="N", help="Nodes to run.  [env: HOWDAH_PROCESSES]")
@click.option("--drain", is_flag=True, help="End by itself when nothing is left to do now.")
@click.option("--grace", type=DURATION, help="For running jobs after the first signal.  [default: 25s]")
@click.option("--poll", type=DURATION, help="Longest wait between claims.  [default: 5s]")
@click.option("--heartbeat", type=DURATION, help="Between two heartbeats.  [default: 5s]")
@click.option("--lease", type=DURATION, help="Work stays ours without a heartbeat.  [default: 30s]")
@click.option("--poll-only", is_flag=True, help="Do not listen for wake-ups.")
@click.option("--rebalance", type=DURATION, help="Between two looks at which node consumes what.  [default: 5s]")
@click.option("--dispatch", type=DURATION, help="Between two looks for new events without wake-ups.  [default: 200ms]")
@click.option("--leader", type=click.Choice(["lease", "advisory"]), help="How a leader is chosen.  [default: lease]")
@click.option("--server", metavar="URL", help="Work for this control plane, without a database.  [env: HOWDAH_SERVER]")
@click.option("--token-file", metavar="FILE", help="Holds the token for it.  [env: HOWDAH_TOKEN_FILE, HOWDAH_TOKEN]")
@click.option("--token", metavar="TOKEN", help="The token itself; every user of this machine can see it.")
@click.option("--ca", metavar="FILE", help="The authority that signed the control plane's certificate.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /livez and /readyz; process i at PORT + i.")
@click.option(
    "--wait",
    "patience",
    type=DURATION,
    default="30s",
    show_default=True,
    help="For the database, or the control plane, at start.",
)
@click.option("--reload/--no-reload", help="Start anew when a Python file under this folder changes.")
def worker(
    target: Target,
    queues: str | None,
    concurrency: int | None,
    labels: tuple[str, ...],
    processes: int | None,
    poll_only: bool,
    drain: bool,
    patience: float,
    reload: bool,
    **more: Any,
) -> None:
    """Run a node: execute jobs until told to stop.

    The first TERM, INT or HUP lets running jobs finish within the grace and ends with exit code 0; the
    second hands them back at once. USR1 and TTIN write to stderr what runs, and where it stands.

    \b
    howdah worker -a shop.jobs:app
    howdah worker -a shop.jobs:app --server https://howdah.example.com --token-file token
    """
    settings = target.settings().over(
        queues=parse_queues(queues) if queues else None,
        slots=concurrency,
        labels=list(labels) or None,
        processes=processes,
        notify=False if poll_only else None,
        **more,
    )
    if more["token"] and not more["token_file"]:
        settings = msgspec.structs.replace(settings, token_file=None)  # a flag is on top of what was said elsewhere
    options = settings.worker_options(drain=drain)
    logs.configure(settings.log_level or "info", settings.log_json)
    if more["token"] and PARENT not in os.environ:
        log.warning("a token on the command line can be seen by every user of this machine; use --token-file")
    count = settings.processes or 1
    if (count > 1 or reload) and PARENT not in os.environ:
        commands = [command_of(place, address_of(settings.metrics)) for place in range(count)]
        finish(asyncio.run(supervise(Supervisor(commands, drain=drain, sources=_sources(reload)))))
        return
    logs.subscribe_logs()
    run_fast(_process(target, settings, options, patience).run())


def _process(target: Target, settings: config.Settings, options: WorkerOptions, patience: float) -> Process:
    metrics = address_of(settings.metrics)
    if settings.server is None:
        app = target.app()
        tracing.install()  # after the app, which may have set up OpenTelemetry
        return Node(app, options, patience, metrics)
    from howdah.cli.remote import RemoteNode, app_alone

    app = app_alone(settings.app)
    tracing.install()
    return RemoteNode(app, options, settings, patience, metrics)


async def supervise(supervisor: Supervisor) -> int:
    """Run the children until they have ended; signals reach all of them."""
    undo = supervisor.take_signals()
    try:
        return await supervisor.run()
    finally:
        undo()


def command_of(place: int, metrics: Address | None) -> list[str]:
    """This command line once more, as that of one child."""
    command = [sys.executable, *sys.orig_argv[1:], "--processes", "1", "--no-reload"]
    if metrics:
        host, port = metrics
        command += ["--metrics", f"[{host}]:{port + place if port else 0}"]
    return command


def address_of(text: str | None) -> Address | None:
    """Read ``host:port``.

    >>> address_of("[::1]:9100"), address_of(":9100"), address_of("9100"), address_of(None)
    (('::1', 9100), ('127.0.0.1', 9100), ('127.0.0.1', 9100), None)
    """
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"metrics must be HOST:PORT, got {text!r}; write 127.0.0.1:9100, or 0.0.0.0:9100 for all")
    return host.strip("[]") or "127.0.0.1", int(port)


def _sources(reload: bool) -> Sources | None:
    return Sources(Path.cwd()) if reload else None
