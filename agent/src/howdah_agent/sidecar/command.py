"""`howdah sidecar`: runs programs for a worker on the same machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from howdah import config
from howdah.cli.parameters import flags_of, given_flags
from howdah.cli.target import configure_logs, configured, run
from howdah.errors import ConfigError
from howdah.options import Given
from howdah_agent.sidecar.options import SidecarOptions
from howdah_agent.sidecar.serve import serve

TOKEN = "HOWDAH_SIDECAR_TOKEN"  # noqa: S105 - the name of a variable


@click.command()
@flags_of(SidecarOptions)
@configured
@click.pass_context
def sidecar(ctx: click.Context, config_file: str | None) -> None:
    """Run the sidecar of a worker, which clones, runs an agent or a command, commits and pushes.

    It serves only requests from this machine that carry the token. Every attempt has a new workspace, which is always
    removed at the end; programs are killed with their whole process group.

    \b
    howdah sidecar --agent "claude -p" --allow https://git.example.com/team
    """
    settings = config.load(config_file, SidecarOptions).over(given_flags(ctx))
    os.environ.pop(TOKEN, None)  # programs must not inherit the token
    configure_logs(settings)
    run(serve(options_from(settings)))


def options_from(settings: config.Settings) -> SidecarOptions:
    """Return the options; the token is read from its file if one is given."""
    folder = Path(tempfile.gettempdir(), f"howdah-sidecar-{os.getuid()}")
    given = {"sidecar.folder": Given(str(folder), "default")} | dict(settings.given)
    if file := given.get("sidecar.token_file"):
        given["sidecar.token"] = Given(read_token(file.value), file.source)
    if "sidecar.token" not in given:
        raise ConfigError(f"no token is given; set {TOKEN}, or name a file with --token-file")
    return config.Settings(given).of(SidecarOptions)


def read_token(file: str) -> str:
    """Return the token in a file."""
    try:
        token = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token cannot be read from {file}: {error}") from None
    if not token:
        raise ConfigError(f"{file} holds no token; `openssl rand -hex 32` makes one")
    return token
