"""ServeOptions: how a control plane behaves."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Literal

from howdah.errors import ConfigError

SHORTEST_PASSWORD = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How a control plane behaves. Every time is in seconds."""

    host: str = "127.0.0.1"
    port: int = 8080

    certificate: str | None = None
    """The file of the TLS certificate; without, a proxy in front must speak TLS."""

    key: str | None = None
    """The file of its key."""

    auth: Literal["token", "none"] = "token"
    """``none`` lets everybody in, and is refused beyond this machine."""

    heartbeat: float = 30.0
    """What workers are told to beat at."""

    offline_after: float = 90.0
    """A worker that was silent for so long is offline, and its work is free."""

    poll: float = 5.0
    """Longest wait between claims for those in line when no wake-up arrives."""

    notify: bool = True
    """Listen for wake-ups; without, only poll."""

    largest_body: int = 8 * 1024 * 1024
    """Bytes of one request."""

    rate: float = 100.0
    """Requests a second of one token or worker, with a burst of twice as many."""

    refusals: float = 60.0
    """Requests without a good token a minute of one address; more hear 429."""

    connections: int = 5000
    """Open at once; more are refused with 503."""

    pool: int = 4
    """Connections to PostgreSQL for what jobs say and for tables, besides up to 15 for claims, reports and upkeep."""

    dashboard: bool = True
    """Show the dashboard at ``/dashboard``."""

    password: str | None = field(default=None, repr=False)
    """Lets people into the dashboard, to look and to act; tokens with the scope admin do as well."""

    read_password: str | None = field(default=None, repr=False)
    """Lets people look; tokens with the scope read do as well."""

    trace_url: str | None = None
    """Where the dashboard sends people for a trace: an address with ``{trace}`` in it."""

    def __post_init__(self) -> None:
        for name in ("heartbeat", "offline_after", "poll", "largest_body", "rate", "refusals", "connections", "pool"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above zero, got {getattr(self, name)!r}")
        if self.offline_after < 2 * self.heartbeat:
            raise ConfigError(
                f"offline_after must be at least two heartbeats, got {self.offline_after:g} s and {self.heartbeat:g} s"
            )
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("TLS needs both a certificate and its key; only one of them is given")
        if self.auth not in ("token", "none"):
            raise ConfigError(f"auth must be 'token' or 'none', got {self.auth!r}")
        for name in ("password", "read_password"):
            if (value := getattr(self, name)) is not None and len(value) < SHORTEST_PASSWORD:
                raise ConfigError(
                    f"{name} must have at least {SHORTEST_PASSWORD} characters, got {len(value)}; make a longer one"
                )
        if self.password is not None and self.password == self.read_password:
            raise ConfigError("password and read_password are the same; make two, or leave one out")
        if self.trace_url is not None and not (
            self.trace_url.startswith(("http://", "https://")) and "{trace}" in self.trace_url
        ):
            raise ConfigError(f"trace_url must be an http address with {{trace}} in it, got {self.trace_url!r}")
        if self.auth == "none" and not is_loopback(self.host):
            raise ConfigError(
                f"refusing to listen on {self.host} without auth; use 127.0.0.1, or tokens (`howdah token create`)"
            )


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("::1")
    (True, True, False, True)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
