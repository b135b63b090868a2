"""`howdah worker`: one node, or several under one parent."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import click

from howdah import config
from howdah.cli.common import Target, app_name, configure_logs, finish, targeted
from howdah.cli.flags import flags_of
from howdah.cli.node import Address, NodeProcess, Process, run_fast
from howdah.observe import logs, tracing
from howdah.settings import ProcessOptions, StartOptions
from howdah.supervised import PARENT
from howdah.supervisor import SourceFiles, Supervisor
from howdah.worker.options import WorkerOptions

log = logging.getLogger("howdah")


@click.command()
@targeted
@flags_of(WorkerOptions, ProcessOptions, StartOptions)
def worker(target: Target) -> None:
    """Run a worker node until it is stopped.

    The first TERM, INT or HUP lets running jobs finish within the grace and ends with exit code 0; the
    second hands them back at once. USR1 and TTIN write to stderr what runs, and where it stands.

    \b
    howdah worker -a shop.jobs:app
    howdah worker -a shop.jobs:app --server https://howdah.example.com --token-file token
    """
    settings = target.settings()
    options, process = settings.of(WorkerOptions), settings.of(ProcessOptions)
    configure_logs(settings)
    if "token" in target.flags and PARENT not in os.environ:
        log.warning("a token on the command line can be seen by every user of this machine; use --token-file")
    if (process.processes > 1 or process.reload) and PARENT not in os.environ:
        commands = [command_of(place, process.metrics) for place in range(process.processes)]
        supervisor = Supervisor(commands, drain=options.drain, sources=_sources(process.reload))
        finish(asyncio.run(supervise(supervisor)))
        return
    logs.subscribe_logs()
    run_fast(_process(target, settings).run())


def _process(target: Target, settings: config.Settings) -> Process:
    options, process, wait = settings.of(WorkerOptions), settings.of(ProcessOptions), settings.of(StartOptions).wait
    if process.server is None:
        app = target.app()
        tracing.install()  # after the app, which may have set up OpenTelemetry
        return NodeProcess(app, options, wait, process.metrics)
    from howdah.cli.remote import RemoteNodeProcess

    app = config.load_app(app_name(settings))
    tracing.install()
    return RemoteNodeProcess(app, options, process, wait)


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


def _sources(reload: bool) -> SourceFiles | None:
    return SourceFiles(Path.cwd()) if reload else None
