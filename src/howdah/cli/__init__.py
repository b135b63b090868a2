"""The command line. A command's module is imported when the command is used, so that `--help` is quick."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from howdah.cli.early import prepare
from howdah.version import __version__

LAZY = {
    "audit": ("howdah.cli.audit:audit", "List who did what."),
    "bench": ("howdah.cli.bench:bench", "Measure the engine on this machine."),
    "cancel": ("howdah.cli.act:cancel", "Cancel jobs, waiting or running."),
    "completion": ("howdah.cli.completion:completion", "Print the shell completion script."),
    "consumers": ("howdah.cli.consumers:consumers", "List the consumers of the event log; pause, replay, skip."),
    "delete": ("howdah.cli.act:delete", "Remove jobs that wait or are over."),
    "demo": ("howdah.cli.demo:demo", "Show it at work, with a PostgreSQL of its own."),
    "dev": ("howdah.cli.dev:dev", "Run your app with a PostgreSQL of its own."),
    "doctor": ("howdah.cli.doctor:doctor", "Examine the database and the nodes, and say what to do."),
    "drain": ("howdah.cli.nodes:drain", "Let nodes take no more, and end when what they run is over."),
    "enqueue": ("howdah.cli.enqueue:enqueue", "Enqueue one job."),
    "failures": ("howdah.cli.failures:failures", "Group failed jobs by error."),
    "job": ("howdah.cli.jobs:job", "Show everything about one job."),
    "jobs": ("howdah.cli.jobs:jobs", "List jobs, newest first."),
    "log": ("howdah.cli.log:log", "The event log: how it stands, read it, append to it."),
    "migrate": ("howdah.cli.migrate:migrate", "Bring the schema to the version this code needs."),
    "move": ("howdah.cli.act:move", "Let waiting jobs wait in another queue."),
    "nodes": ("howdah.cli.nodes:nodes", "List the nodes."),
    "pause": ("howdah.cli.queues:pause", "Stop claiming from queues."),
    "prune": ("howdah.cli.prune:prune", "Delete finished jobs past their time."),
    "queues": ("howdah.cli.queues:queues", "List the queues with their counts."),
    "reprioritize": ("howdah.cli.act:reprioritize", "Give waiting jobs another priority."),
    "resume": ("howdah.cli.queues:resume", "Claim from paused queues again."),
    "retry": ("howdah.cli.act:retry", "Put failed or cancelled jobs back into their queue."),
    "schedules": ("howdah.cli.schedules:schedules", "List the recurring jobs; pause and resume them."),
    "sidecar": ("howdah.cli.sidecar:sidecar", "Run a worker's companion: clone, run an agent, commit, push."),
    "serve": ("howdah.cli.serve:serve", "Run a control plane for workers without a database."),
    "table": (
        "howdah.cli.table:table",
        "Tables of your own as work queues: check, look, act.",
    ),
    "token": ("howdah.cli.token:token", "Tokens that open a control plane: create, list, revoke."),
    "top": ("howdah.cli.top:top", "Show queues, nodes, running jobs and consumers, live."),
    "torture": ("howdah.cli.torture:torture", "Prove on this machine that nothing is lost and nothing doubled."),
    "why": ("howdah.cli.why:why", "Say why a job, a consumer or a row of yours does not run."),
    "webhooks": ("howdah.cli.webhooks:webhooks", "Who outside is told what happens: list, test."),
    "worker": ("howdah.cli.worker:worker", "Run a node: execute jobs until told to stop."),
}
"""Where each command is, and what the overview says of it."""


class Commands(click.Group):
    """The group: finds commands by name, and turns errors into one line and an exit code."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **named: Any) -> Any:
        """Run the command line; ``args`` are given by tests only."""
        if args is None:
            prepare(sys.argv[1:])
        return super().main(args, *more, **named)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, also those not imported yet."""
        return sorted(LAZY)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in LAZY:
            return None
        module, _, name = LAZY[cmd_name][0].partition(":")
        found: click.Command = getattr(importlib.import_module(module), name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The overview, from the table above: importing every command for it would be slow."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, LAZY[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names from the table above."""
        found = [CompletionItem(name, help=LAZY[name][1]) for name in sorted(LAZY) if name.startswith(incomplete)]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of ours is one line on stderr and an exit code."""
        from howdah.cli.failure import explain

        try:
            return super().invoke(ctx)
        except Exception as error:
            known = None if os.environ.get("HOWDAH_DEBUG") else explain(error)
            if known is None:
                raise
            message, code = known
            click.echo(f"howdah: {message}", err=True)
            ctx.exit(code)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="howdah", message="%(prog)s %(version)s")
def main() -> None:
    """All the background work of an application, on the PostgreSQL it already has.

    \b
    howdah demo                              see it work
    howdah migrate --dsn postgresql:///app   prepare a database
    howdah worker -a shop.jobs:app           run a node
    """
