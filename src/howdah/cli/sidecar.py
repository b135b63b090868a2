"""`howdah sidecar`: the companion of a worker on the same machine."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from howdah.cli.common import DURATION, run
from howdah.errors import ConfigError
from howdah.observe import logs
from howdah.sidecar.options import ENVIRONMENT, SidecarOptions
from howdah.sidecar.serve import serve

TOKEN = "HOWDAH_SIDECAR_TOKEN"  # noqa: S105 - the name of a variable


@click.command()
@click.option("--agent", metavar="COMMAND", help="What to run with the prompt on its standard input.")
@click.option("--command", "commands", metavar="NAME=COMMAND", multiple=True, help="For /sdlc; repeat it.")
@click.option("--dashes", is_flag=True, help="Arguments of commands may begin with a dash.")
@click.option("--allow", metavar="URL|PATH", multiple=True, help="What may be cloned, with all below it; repeat it.")
@click.option("--env", "environment", metavar="NAME", multiple=True, help="A variable programs are given; repeat it.")
@click.option("--git-config", type=click.Path(exists=True, dir_okay=False), help="A git configuration to push with.")
@click.option("--author", metavar="NAME <ADDRESS>", help="Who commits.")
@click.option("--token-file", type=click.Path(), help="Where the token is read from.  [env: HOWDAH_SIDECAR_TOKEN]")
@click.option("--folder", metavar="FOLDER", help="Where workspaces are made.  [default: in the temporary folder]")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="An address of this machine.")
@click.option("--port", type=click.IntRange(0, 65535), default=8079, show_default=True, help="0: any free one.")
@click.option("-c", "--concurrency", "slots", type=int, metavar="N", help="Attempts at once.  [default: 1]")
@click.option("--timeout", type=DURATION, help="The longest a request may run.  [default: 15m]")
@click.option("--idle", type=DURATION, help="For a workspace nobody asks about.  [default: 60s]")
@click.option("--grace", type=DURATION, help="For attempts after the first signal.  [default: 25s]")
@click.option("--kill-after", type=DURATION, help="Between TERM and KILL.  [default: 3s]")
def sidecar(
    agent: str | None, commands: Sequence[str], environment: Sequence[str], token_file: str | None, **more: Any
) -> None:
    """Run the companion of a worker: clone, run an agent, commit, push.

    It serves this machine only, and only who shows the token. Every attempt has a fresh workspace, which is removed
    however the attempt ends; what runs in it is ended with its whole process group.

    \b
    howdah sidecar --agent "claude -p" --allow https://git.example.com/team
    """
    logs.configure("info", None)
    given = {name: value for name, value in more.items() if value not in (None, ())}
    given.setdefault("folder", str(Path(tempfile.gettempdir(), f"howdah-sidecar-{os.getuid()}")))
    if environment:
        given["environment"] = (*ENVIRONMENT, *environment)
    options = SidecarOptions(
        token=read_token(token_file),
        agent=words_of(agent) if agent else (),
        commands=dict(read_command(each) for each in commands),
        **given,
    )
    run(serve(options))


def read_token(file: str | None) -> str:
    """The token, from a file or the environment; never from the command line, which everybody on the machine sees."""
    if file is None:
        token = os.environ.pop(TOKEN, "")
    else:
        try:
            token = Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the token cannot be read from {file}: {error}") from None
    if not token:
        raise ConfigError(f"no token is given; set {TOKEN}, or name a file with --token-file")
    return token


def read_command(text: str) -> tuple[str, list[str]]:
    """Read ``name=command``.

    >>> read_command("feature=sdlc 'new feature'")
    ('feature', ['sdlc', 'new feature'])
    """
    name, separator, command = text.partition("=")
    if not separator or not name:
        raise ConfigError(f"a command is NAME=COMMAND, got {text!r}; write feature='sdlc feature'")
    return name, words_of(command)


def words_of(command: str) -> list[str]:
    """The words of a command; quotes count, nothing else of a shell does."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"{command!r} is no command: {error}") from None
    if not words:
        raise ConfigError("a command needs at least the name of a program")
    return words
