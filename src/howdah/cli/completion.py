"""`howdah completion`: the shell completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    eval "$(howdah completion bash)"
    howdah completion zsh > ~/.zfunc/_howdah
    howdah completion fish > ~/.config/fish/completions/howdah.fish
    """
    from howdah.cli import main

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "howdah", "_HOWDAH_COMPLETE").source())
