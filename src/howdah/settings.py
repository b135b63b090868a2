"""Options of commands: application, database, processes, logs and the development server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from howdah.errors import ConfigError
from howdah.option_types import Choice, Duration, Integer, OptionType, Switch, Text
from howdah.options import check, option
from howdah.redact import KEYS, Redact
from howdah.remote.client import check_server


@dataclass(frozen=True, kw_only=True)
class Address(OptionType):
    """A host and a port; the host is that of this machine if it is left out."""

    metavar: str = "HOST:PORT"
    name: ClassVar[str] = "host:port"

    def parse(self, text: str) -> Any:
        """Split it.

        >>> Address().parse("[::1]:9100"), Address().parse(":9100"), Address().parse("9100")
        (('::1', 9100), ('127.0.0.1', 9100), ('127.0.0.1', 9100))
        """
        host, _, port = text.rpartition(":")
        if not port.isdecimal() or int(port) > 65535:
            raise ConfigError(f"must be HOST:PORT, got {text!r}; write 127.0.0.1:9100, or 0.0.0.0:9100 for all")
        return host.strip("[]") or "127.0.0.1", int(port)

    def show(self, value: Any) -> str:
        """Join it."""
        host, port = value
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    """Which application and which database a command uses, and what it shows of jobs."""

    app: str | None = option(
        None, Text(metavar="MODULE:ATTRIBUTE"), "Application object, as module:attribute.", "-a --app"
    )
    dsn: str | None = option(
        None, Text(metavar="DSN"), "PostgreSQL database to use.", "--dsn", also="DATABASE_URL, PG*", secret=True
    )
    schema: str | None = option(
        None, Text(metavar="NAME"), "Schema of Howdah's tables.", "--schema", shown="that of the app, or howdah"
    )
    redact: str = option(
        KEYS,
        Text(metavar="REGEX", good=Redact),
        "Regular expression of keys whose values are masked in output; an empty text in the file masks none.",
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """Settings of `howdah worker`: its nodes, and their control plane, if any."""

    processes: int = option(1, Integer(least=1, most=1000), "Number of nodes to run, each in a process.", "--processes")
    metrics: tuple[str, int] | None = option(
        None,
        Address(),
        "Address of /metrics, /livez and /readyz; the n-th of several nodes uses the n-th port from this one on.",
        "--metrics",
        shown="off",
    )
    server: str | None = option(
        None, Text(metavar="URL", good=check_server), "Control plane to work for, without a database.", "--server"
    )
    token_file: str | None = option(
        None, Text(metavar="FILE"), "File of the token for the control plane.", "--token-file"
    )
    token: str | None = option(
        None,
        Text(metavar="TOKEN"),
        "Token for the control plane; on the command line every user of the machine can see it, so prefer a file or"
        " the variable.",
        "--token",
        secret=True,
    )
    ca: str | None = option(
        None,
        Text(metavar="FILE"),
        "File of the authority that signed the certificate of the control plane.",
        "--ca",
        shown="those of the machine",
    )
    reload: bool = option(
        False,
        Switch(),
        "Restart when a Python file under this folder changes.",
        "--reload/--no-reload",
        one_run=True,
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """Settings of the start of a process."""

    wait: float = option(
        30.0,
        Duration(least=0),
        "How long to wait at start for the database, or for the control plane.",
        "--wait",
        one_run=True,
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Settings of the log."""

    log_level: Literal["debug", "info", "warning", "error", "critical"] = option(
        "info", Choice("debug", "info", "warning", "error", "critical"), "Least severe level that is logged."
    )
    log_json: bool | None = option(
        None, Switch(), "Log JSON lines instead of plain text.", shown="true unless stderr is a terminal"
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """Settings of `howdah dev`."""

    SECTION: ClassVar[str] = "dev"

    grace: float = option(
        5.0, Duration(least=0), "How long running jobs may continue when a file changes or on stop.", "--grace"
    )
    port: int | None = option(
        None, Integer(least=1, most=65535), "Port of the dashboard.", "--port", shown="8080, or a free one"
    )
    dashboard: bool = option(True, Switch(), "Serve the dashboard to this machine.", "--dashboard/--no-dashboard")
    open: bool = option(False, Switch(), "Show the dashboard in a browser.", "--open", one_run=True)
    show_dsn: bool = option(False, Switch(), "Print the DSN with its password.", "--show-dsn", one_run=True)

    def __post_init__(self) -> None:
        check(self)
