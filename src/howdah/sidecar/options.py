"""SidecarOptions: what a sidecar runs, and what it lets be cloned."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from howdah.errors import ConfigError
from howdah.sidecar.origin import check_allowed

SHORTEST_TOKEN = 16
ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarOptions:
    """What a sidecar runs, and what it lets be cloned. Every time is in seconds."""

    token: str = field(repr=False)
    """What callers must show, as their bearer token."""

    folder: str
    """Where workspaces are made; it must belong to this sidecar alone."""

    agent: Sequence[str] = ()
    """The command that is given the prompt on its standard input."""

    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Commands that may be run by name; arguments are added to their words."""

    dashes: bool = False
    """Whether arguments of commands may begin with a dash, so be options."""

    allow: Sequence[str] = ()
    """What may be cloned: URLs and local paths, each with all below it."""

    environment: Sequence[str] = ENVIRONMENT
    """Variables the agent and the commands are given of ours."""

    git_config: str | None = None
    """A git configuration with credentials, used to clone, fetch and push; nothing else is shown it."""

    author: str = "howdah <howdah@localhost>"
    """Who commits."""

    host: str = "127.0.0.1"
    port: int = 8079

    slots: int = 1
    """Attempts at once."""

    timeout: float = 900.0
    """The longest any one request may run."""

    idle: float = 60.0
    """A workspace nobody asked about for so long is removed: its worker is gone."""

    grace: float = 25.0
    """How long attempts may go on after a stop was asked for."""

    kill_after: float = 3.0
    """Between TERM and KILL."""

    largest_body: int = 1024 * 1024
    """Bytes of one request."""

    keep: int = 64 * 1024
    """Characters of the end of the output that are in an answer."""

    def __post_init__(self) -> None:
        for name in ("slots", "timeout", "idle", "largest_body", "keep"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above zero, got {getattr(self, name)!r}")
        for name in ("grace", "kill_after"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)!r}")
        if not _is_loopback(self.host):
            raise ConfigError(
                f"refusing to listen on {self.host}: a sidecar runs programs, so it serves this machine only; "
                "use 127.0.0.1"
            )
        if len(self.token) < SHORTEST_TOKEN or not self.token.isascii() or not self.token.isprintable():
            raise ConfigError(f"the token must be {SHORTEST_TOKEN} or more ASCII characters; `openssl rand -hex 32`")
        if not self.agent and not self.commands:
            raise ConfigError("there is neither an agent nor a command to run; name one of them")
        if "<" not in self.author or not self.author.endswith(">") or "\n" in self.author:
            raise ConfigError(f"author must be a name and an address, got {self.author!r}; write 'ci <ci@example.com>'")
        for origin in self.allow:
            check_allowed(origin)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
