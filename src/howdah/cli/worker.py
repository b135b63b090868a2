"""`howdah worker`: one node, with a database or for a control plane, or several under one parent."""

from __future__ import annotations

import asyncio
import difflib
import functools
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import click

from howdah import config
from howdah.app import Howdah
from howdah.child_process import PARENT
from howdah.cli.node import Address, NodeProcess, run_fast
from howdah.cli.output import finish
from howdah.cli.parameters import flags_of
from howdah.cli.target import Target, app_name, configure_logs, targeted
from howdah.control_plane.options import is_loopback
from howdah.control_plane.tokens import is_token
from howdah.errors import ConfigError
from howdah.observe import tracing
from howdah.remote.client import ControlPlaneClient, check_server
from howdah.remote.node import RemoteNode
from howdah.settings import ProcessOptions, StartOptions
from howdah.supervisor import SourceFiles, Supervisor
from howdah.worker.options import WorkerOptions

log = logging.getLogger("howdah")

REQUEST_LOGGERS = ("httpx2", "httpcore2")
"""Loggers of the HTTP client, which log every request, at level debug with its content."""
LONGEST_TOKEN = 4096


@click.command()
@targeted
@flags_of(WorkerOptions, ProcessOptions, StartOptions)
def worker(target: Target) -> None:
    """Run a worker node until it is stopped.

    The first TERM, INT or HUP lets running jobs finish within the grace and ends with exit code 0; the
    second releases them at once. USR1 and TTIN write the running jobs and their stacks to stderr.

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
        commands = [command_of(number, process.metrics) for number in range(process.processes)]
        supervisor = Supervisor(commands, drain=options.drain, sources=_sources(process.reload))
        finish(asyncio.run(supervise(supervisor)))
        return
    run_fast(_process(target, settings).run())


def _process(target: Target, settings: config.Settings) -> NodeProcess:
    options, process, wait = settings.of(WorkerOptions), settings.of(ProcessOptions), settings.of(StartOptions).wait
    if process.server is None:
        app = target.app()
        _warn_of_unused(options.queues or {}, app)
        tracing.install()  # after the app, which may have set up OpenTelemetry
        return NodeProcess(
            app.node(options), options, database=app.database, start_timeout=wait, metrics=process.metrics
        )
    app = config.load_app(app_name(settings))
    tracing.install()
    return NodeProcess(remote_node(app, options, process, wait), options, metrics=process.metrics)


def _warn_of_unused(queues: Iterable[str], app: Howdah) -> None:
    """Warn of a queue that no task enqueues to: its name may be misspelled."""
    used = {task.job_queue for task in app.tasks.values()}
    for queue in queues:
        if queue not in used:
            close = difflib.get_close_matches(queue, used, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ", unless jobs are enqueued there by name"
            log.warning("no task of this app uses the queue %r%s", queue, hint)


async def supervise(supervisor: Supervisor) -> int:
    """Run the children until they have ended; signals reach all of them."""
    undo = supervisor.take_signals()
    try:
        return await supervisor.run()
    finally:
        undo()


def command_of(number: int, metrics: Address | None) -> list[str]:
    """Return the command line of one child: that of this process, for one node."""
    command = [sys.executable, *sys.orig_argv[1:], "--processes", "1", "--no-reload"]
    if metrics:
        host, port = metrics
        command += ["--metrics", f"[{host}]:{port + number if port else 0}"]
    return command


def _sources(reload: bool) -> SourceFiles | None:
    return SourceFiles(Path.cwd()) if reload else None


def remote_node(app: Howdah, options: WorkerOptions, process: ProcessOptions, start_timeout: float) -> RemoteNode:
    """Return a node that works for the control plane of the settings."""
    server, token, ca = check_server(process.server or ""), token_of(process), process.ca
    os.environ.pop("HOWDAH_TOKEN", None)  # programs that jobs start must not read it
    _warn_of_plain_http(server, token)
    for name in REQUEST_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    client = functools.partial(ControlPlaneClient, server, token, ca=ca)
    return RemoteNode(app, options, client, start_timeout=start_timeout)


def token_of(process: ProcessOptions) -> str | None:
    """Return the token for the control plane, from its file if one is given."""
    if process.token_file is not None:
        return read_token(Path(process.token_file))
    if process.token is not None and not is_token(process.token, "api"):
        raise ConfigError("the token is no token of ours; was it cut or mistyped?")
    return process.token


def read_token(file: Path) -> str:
    """Return the token in a file."""
    try:
        with file.open("rb") as opened:
            text = opened.read(LONGEST_TOKEN).decode("ascii", "replace").strip()
    except OSError as error:
        raise ConfigError(f"the token cannot be read: {error}") from None
    if not is_token(text, "api"):
        raise ConfigError(f"{file} holds no token of ours; `howdah token create` prints one")
    return text


def _warn_of_plain_http(server: str, token: str | None) -> None:
    parts = urlsplit(server)
    if token and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        log.warning("the token travels to %s in the clear; use https", parts.hostname)
