"""Options of a sidecar."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from howdah.errors import ConfigError
from howdah.option_types import Bytes, Duration, Integer, List, OptionType, Switch, Text
from howdah.options import OptionError, check, option
from howdah_agent.sidecar.origin import check_allowed

SHORTEST_TOKEN = 16
ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE")
"""Variables that programs always receive."""


class CommandLine(OptionType):
    """A command: text that is split as a shell splits words, in TOML also a list of words."""

    name: ClassVar[str] = "command"
    metavar = "COMMAND"

    def read(self, value: Any) -> Any:
        """Take text or words."""
        return value if isinstance(value, list) else super().read(value)

    def parse(self, text: str) -> Any:
        """Split it."""
        return words_of(text)

    def check(self, value: Any) -> None:
        """Accept a list of words only."""
        if isinstance(value, str) or not all(isinstance(each, str) for each in value):
            raise ConfigError(f"must be the words of a command, got {value!r}")

    def show(self, value: Any) -> str:
        """Quote the words."""
        return shlex.join(value)


class CommandLines(OptionType):
    """Commands by name: a table in TOML, one ``name=command`` in each line of a variable. A flag is repeated."""

    name: ClassVar[str] = "commands"
    metavar = "NAME=COMMAND"
    several: ClassVar[bool] = True

    def read(self, value: Any) -> Any:
        """Take a table."""
        if not isinstance(value, Mapping):
            raise ConfigError(f"must be a table of commands by name, got {value!r}")
        return {name: CommandLine().read(command) for name, command in value.items()}

    def parse(self, text: str) -> Any:
        """Read the lines."""
        return self.gather([line.strip() for line in text.splitlines() if line.strip()])

    def gather(self, texts: Sequence[str]) -> Any:
        """Read each."""
        return dict(map(read_command, texts))

    def check(self, value: Any) -> None:
        """Check each."""
        for command in value.values():
            CommandLine().check(command)

    def show(self, value: Any) -> str:
        """Write the lines."""
        return "\n".join(f"{name}={shlex.join(command)}" for name, command in value.items())


class Variables(List):
    """Names of variables, besides :data:`ENVIRONMENT`."""

    def read(self, value: Any) -> Any:
        """Add them."""
        return value if not isinstance(value, list) else self.gather(value)

    def parse(self, text: str) -> Any:
        """Add them."""
        return self.gather(super().parse(text))

    def gather(self, texts: Sequence[str]) -> Any:
        """Add them."""
        return [*ENVIRONMENT, *texts]

    def show(self, value: Any) -> str:
        """Write those besides."""
        return super().show([each for each in value if each not in ENVIRONMENT])


def check_token(token: str) -> None:
    """Reject a token that is too short or cannot be in a header, without showing it."""
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ConfigError(f"must be {SHORTEST_TOKEN} or more ASCII characters; `openssl rand -hex 32`")


def check_host(host: str) -> None:
    """Reject an address that other machines can reach."""
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigError(
            f"refusing to listen on {host}: a sidecar runs programs, so it serves this machine only; use 127.0.0.1"
        )


def check_author(author: str) -> None:
    """Reject an author that git does not accept."""
    if "<" not in author or not author.endswith(">") or "\n" in author:
        raise ConfigError(f"must be a name and an address, got {author!r}; write 'ci <ci@example.com>'")


def check_file(name: str) -> None:
    """Reject a path that is not a file."""
    if not Path(name).is_file():
        raise ConfigError(f"must be an existing file, got {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarOptions:
    """Options of a sidecar: the programs it runs and the repositories it may clone. Times are in seconds."""

    SECTION: ClassVar[str] = "sidecar"

    agent: Sequence[str] = option(
        (),
        CommandLine(),
        "Command for /execute, which receives the prompt on its standard input.",
        "--agent",
        shown="none",
    )
    commands: Mapping[str, Sequence[str]] = option(
        {},
        CommandLines(),
        "Commands for /sdlc by name; the arguments of a request are appended.",
        "--command",
        shown="none",
    )
    dashes: bool = option(
        False, Switch(), "Allow arguments of commands that begin with a dash, and so could be options.", "--dashes"
    )
    allow: Sequence[str] = option(
        (),
        List(metavar="URL|PATH", good=check_allowed),
        "Repositories that may be cloned: these and all below them.",
        "--allow",
        shown="none",
    )
    environment: Sequence[str] = option(
        ENVIRONMENT,
        Variables(),
        f"Environment variables to pass to programs, besides {', '.join(ENVIRONMENT)}; HOME is a new, empty directory"
        " unless it is named here.",
        "--env",
        shown="none",
    )
    git_config: str | None = option(
        None,
        Text(metavar="FILE", good=check_file),
        "Git configuration with credentials, used only to clone, fetch and push.",
        "--git-config",
        shown="none",
    )
    author: str = option(
        "howdah <howdah@localhost>",
        Text(metavar="NAME <ADDRESS>", good=check_author),
        "Author of commits.",
        "--author",
    )
    token_file: str | None = option(
        None, Text(metavar="FILE"), "File of the token that callers must send.", "--token-file", shown="none"
    )
    token: str = option(
        ...,
        Text(metavar="TOKEN", good=check_token),
        f"Token that callers must send, at least {SHORTEST_TOKEN} characters; it has no flag, because every user of the"
        " machine could see it.",
        secret=True,
    )
    folder: str = option(
        ...,
        Text(metavar="FOLDER"),
        "Directory for workspaces; each sidecar needs one of its own.",
        "--folder",
        shown="in the temporary directory",
    )
    host: str = option(
        "127.0.0.1", Text(metavar="ADDRESS", good=check_host), "Loopback address to listen on.", "--host"
    )
    port: int = option(8079, Integer(least=0, most=65535), "Port to listen on; 0 takes a free one.", "--port")
    slots: int = option(1, Integer(above=0), "Number of attempts that run at the same time.", "-c --concurrency")
    timeout: float = option(900.0, Duration(above=0), "Longest duration of a request.", "--timeout")
    idle: float = option(
        60.0, Duration(above=0), "Time without a request after which a workspace is removed.", "--idle"
    )
    grace: float = option(
        25.0, Duration(least=0), "How long running attempts may continue after the first stop signal.", "--grace"
    )
    kill_after: float = option(3.0, Duration(least=0), "Time between TERM and KILL for programs.", "--kill-after")
    largest_body: int = option(1024 * 1024, Bytes(), "Largest body of a request.")
    keep: int = option(64 * 1024, Integer(above=0), "Characters of the end of an output that a reply contains.")

    def __post_init__(self) -> None:
        check(self)
        if not self.agent and not self.commands:
            raise OptionError("there is neither an agent nor a command to run; name one of them", "agent", "commands")


def read_command(text: str) -> tuple[str, list[str]]:
    """Read ``name=command``.

    >>> read_command("feature=sdlc 'new feature'")
    ('feature', ['sdlc', 'new feature'])
    """
    name, separator, command = text.partition("=")
    if not separator or not name:
        raise ConfigError(f"must be NAME=COMMAND, got {text!r}; write feature='sdlc feature'")
    return name, words_of(command)


def words_of(command: str) -> list[str]:
    """Split a command into words; quotes are the only shell syntax."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"{command!r} is no command: {error}") from None
    if not words:
        raise ConfigError("a command needs at least the name of a program")
    return words
