"""ServeOptions: how a control plane behaves."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import ClassVar, Literal

from howdah.errors import ConfigError
from howdah.option_types import Bytes, Choice, Duration, Integer, Number, Switch, Text
from howdah.options import OptionError, check, option

SHORTEST_PASSWORD = 12
OTHER_CONNECTIONS = 15
"""PostgreSQL connections of a control plane for claims, reports, heartbeats, wake-ups, workers and maintenance."""
TABLE_CONNECTIONS = 4
"""PostgreSQL connections of a control plane for each table of the app."""


def check_password(password: str) -> None:
    """Reject a short password, without showing it."""
    if len(password) < SHORTEST_PASSWORD:
        raise ConfigError(f"must have at least {SHORTEST_PASSWORD} characters, got {len(password)}; make a longer one")


def check_trace_url(url: str) -> None:
    """Reject a URL without the placeholder of the trace id."""
    if not (url.startswith(("http://", "https://")) and "{trace}" in url):
        raise ConfigError(f"must be an http address with {{trace}} in it, got {url!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Options of a control plane. Every time is in seconds."""

    SECTION: ClassVar[str] = "serve"

    host: str = option(
        "127.0.0.1",
        Text(metavar="ADDRESS"),
        "Address to listen on; addresses that other machines can reach need tokens.",
        "--host",
    )
    port: int = option(8080, Integer(least=0, most=65535), "Port to listen on; 0 takes a free one.", "--port")
    auth: Literal["token", "none"] = option(
        "token",
        Choice("token", "none"),
        "Who may call: callers with a token, or every process of this machine.",
        "--auth",
    )
    certificate: str | None = option(
        None,
        Text(metavar="FILE"),
        "TLS certificate, followed by its intermediate certificates; without it a proxy in front must provide TLS.",
        "--cert",
    )
    key: str | None = option(None, Text(metavar="FILE"), "Private key of the certificate.", "--key")
    behind_tls: bool = option(
        False,
        Switch(),
        "A proxy in front provides TLS: cookies are for TLS only, and browsers are told to use nothing else (HSTS).",
        "--behind-tls",
    )
    heartbeat: float = option(
        30.0,
        Duration(above=0),
        "Time between two heartbeats of a worker; workers of tables send them as often as the tables need.",
        "--heartbeat",
    )
    offline_after: float = option(
        90.0,
        Duration(above=0),
        "Time without a heartbeat after which a worker is offline and its jobs run elsewhere; at least two heartbeats.",
        "--offline-after",
    )
    poll: float = option(
        5.0, Duration(above=0), "Longest wait between two claims for waiting workers when no wake-up arrives."
    )
    notify: bool = option(True, Switch(), "Listen for wake-ups instead of polling only.")
    rate: float = option(
        100.0, Number(above=0), "Requests per second of one token or worker, with bursts of twice as many.", "--rate"
    )
    refusals: float = option(
        60.0,
        Number(above=0),
        "Requests per minute without a valid token from one address; more are answered with 429.",
        "--refusals",
    )
    connections: int = option(
        5000, Integer(above=0), "Open HTTP connections; more are answered with 503.", "--connections"
    )
    connections_per_address: int | None = option(
        None,
        Integer(above=0),
        "Open HTTP connections from one address (IPv6: one /64 network); more are answered with 503. Set it to the"
        " number of all connections if a proxy is in front.",
        "--connections-per-address",
        shown="half of all",
    )
    largest_body: int = option(8 * 1024 * 1024, Bytes(), "Largest body of a request.", "--max-body")
    pool: int = option(
        4,
        Integer(above=0),
        f"PostgreSQL connections for job logs and tables; up to {OTHER_CONNECTIONS} more are for claims, reports,"
        f" heartbeats, wake-ups and maintenance, 10 for enqueueing, {TABLE_CONNECTIONS} for each table, and 1 for"
        " schedules.",
    )
    dashboard: bool = option(
        True,
        Switch(),
        "Serve the dashboard at /dashboard; it opens up to 4 more PostgreSQL connections.",
        "--dashboard/--no-dashboard",
    )
    password: str | None = option(
        None,
        Text(metavar="PASSWORD", good=check_password),
        "Password for the dashboard with all rights, at least 12 characters; the variable is safer than the file.",
        secret=True,
    )
    read_password: str | None = option(
        None,
        Text(metavar="PASSWORD", good=check_password),
        "Password for the dashboard with the right to read.",
        secret=True,
    )
    trace_url: str | None = option(
        None,
        Text(metavar="URL", good=check_trace_url),
        "Address of a trace, with {trace} for its id; the dashboard links to it.",
    )

    def __post_init__(self) -> None:
        check(self)
        if self.offline_after < 2 * self.heartbeat:
            raise OptionError(
                f"offline_after must be at least two heartbeats, got {self.offline_after:g} s and {self.heartbeat:g} s",
                "offline_after",
                "heartbeat",
            )
        if (self.certificate is None) != (self.key is None):
            raise OptionError(
                "TLS needs both a certificate and its key; only one of them is given", "certificate", "key"
            )
        if self.password is not None and self.password == self.read_password:
            raise OptionError(
                "password and read_password are the same; make two, or leave one out", "password", "read_password"
            )
        if self.auth == "none" and not is_loopback(self.host):
            raise OptionError(
                f"refusing to listen on {self.host} without auth; use 127.0.0.1, or tokens (`howdah token create`)",
                "host",
                "auth",
            )


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("::1")
    (True, True, False, True)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
