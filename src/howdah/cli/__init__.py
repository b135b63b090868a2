"""The command line. A command's module is imported when the command is used, so that `--help` is quick."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from howdah.cli.startup import prepare
from howdah.version import __version__

LAZY = {
    "audit": ("howdah.cli.listings:audit", "List audit entries: who did what."),
    "bench": ("howdah_lab.bench.command:bench", "Benchmark Howdah on this machine."),
    "cancel": ("howdah.cli.actions:cancel", "Cancel queued or running jobs."),
    "completion": ("howdah.cli:completion", "Print the shell completion script."),
    "consumers": ("howdah.cli.consumers:consumers", "List the consumers of the event log; pause, replay, skip."),
    "delete": ("howdah.cli.actions:delete", "Delete queued or finished jobs."),
    "demo": ("howdah_lab.demo.command:demo", "Run a demo workload on a private PostgreSQL."),
    "dev": ("howdah.cli.dev:dev", "Run your app on a private PostgreSQL, with reload."),
    "doctor": ("howdah.cli.diagnose:doctor", "Check the database and the nodes for problems."),
    "drain": ("howdah.cli.listings:drain", "Drain nodes: they finish their jobs and exit."),
    "enqueue": ("howdah.cli.jobs:enqueue", "Enqueue one job."),
    "failures": ("howdah.cli.jobs:failures", "Group failed jobs by error."),
    "job": ("howdah.cli.jobs:job", "Show everything about one job."),
    "jobs": ("howdah.cli.jobs:jobs", "List jobs, newest first."),
    "log": ("howdah.cli.log:log", "Show, read and append to the event log."),
    "migrate": ("howdah.cli.maintenance:migrate", "Migrate the schema to the version of this release."),
    "move": ("howdah.cli.actions:move", "Move queued jobs to another queue."),
    "nodes": ("howdah.cli.listings:nodes", "List the nodes."),
    "pause": ("howdah.cli.listings:pause", "Stop claiming from queues."),
    "prune": ("howdah.cli.maintenance:prune", "Delete finished jobs past their retention."),
    "queues": ("howdah.cli.listings:queues", "List the queues with their counts."),
    "reprioritize": ("howdah.cli.actions:reprioritize", "Change the priority of queued jobs."),
    "resume": ("howdah.cli.listings:resume", "Resume paused queues."),
    "retry": ("howdah.cli.actions:retry", "Put failed or cancelled jobs back into their queue."),
    "schedules": ("howdah.cli.listings:schedules", "List, pause and resume schedules."),
    "sidecar": ("howdah_agent.sidecar.command:sidecar", "Run a sidecar: clones, runs an agent, commits and pushes."),
    "serve": ("howdah.cli.control_plane:serve", "Run a control plane for workers without a database."),
    "table": (
        "howdah.cli.table:table",
        "Check and manage tables used as work queues.",
    ),
    "token": ("howdah.cli.control_plane:token", "Create, list and revoke API tokens."),
    "top": ("howdah.cli.top:top", "Show queues, nodes, running jobs and consumers, live."),
    "torture": (
        "howdah_lab.torture.command:torture",
        "Inject faults and check that nothing is lost or doubled.",
    ),
    "why": ("howdah.cli.diagnose:why", "Explain why a job, a consumer or a table row is not running."),
    "webhooks": ("howdah.cli.webhooks:webhooks", "List and test webhooks."),
    "worker": ("howdah.cli.worker:worker", "Run a worker node."),
}
"""Module and short help of each command."""


EXTRAS = {"howdah_lab": "lab", "howdah_agent": "agent"}
"""Packages outside of this one that provide commands, and the extra that installs each."""


class Commands(click.Group):
    """The command group: loads commands lazily, and prints errors as one line with an exit code."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **named: Any) -> Any:
        """Run the command line; ``args`` are given by tests only."""
        if args is None:
            prepare(sys.argv[1:])
        return super().main(args, *more, **named)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all command names without importing the commands."""
        return sorted(LAZY)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in LAZY:
            return None
        module, _, name = LAZY[cmd_name][0].partition(":")
        try:
            found: click.Command = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            extra = EXTRAS.get(error.name or "")
            if extra is None:
                raise
            raise click.ClickException(f"`howdah {cmd_name}` is not installed; pip install 'howdah[{extra}]'") from None
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown one, suggest the nearest."""
        if args and args[0] not in LAZY and not args[0].startswith("-"):
            import difflib

            if close := difflib.get_close_matches(args[0], LAZY, n=1):
                ctx.fail(f"No such command {args[0]!r}; did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview from the table above: importing every command would be slow."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, LAZY[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names from the table above."""
        found = [CompletionItem(name, help=LAZY[name][1]) for name in sorted(LAZY) if name.startswith(incomplete)]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a known error is printed as one line on stderr, with an exit code."""
        from howdah.cli.output import explain

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


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    eval "$(howdah completion bash)"
    howdah completion zsh > ~/.zfunc/_howdah
    howdah completion fish > ~/.config/fish/completions/howdah.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "howdah", "_HOWDAH_COMPLETE").source())
