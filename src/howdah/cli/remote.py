"""A node that works for a control plane, without a database."""

from __future__ import annotations

import logging
import os
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from howdah import config
from howdah.app import Howdah
from howdah.cli.node import Address, Process
from howdah.errors import ConfigError
from howdah.fleet.client import Client, check_server
from howdah.fleet.options import is_loopback
from howdah.fleet.remote import RemoteConductor
from howdah.fleet.tokens import is_token
from howdah.observe.node import observe_node
from howdah.observe.vitals import Vitals
from howdah.work.options import WorkerOptions

log = logging.getLogger("howdah")

CHATTY = ("httpx2", "httpcore2")
"""They log every request; at their level of detail, also what is in it."""
LONGEST_TOKEN = 4096


class RemoteNode(Process):
    """A node that reaches its work over HTTP."""

    def __init__(
        self,
        app: Howdah,
        options: WorkerOptions,
        settings: config.Settings,
        patience: float,
        metrics: Address | None = None,
    ) -> None:
        server, token, ca = check_server(settings.server or ""), token_of(settings), settings.ca
        os.environ.pop("HOWDAH_TOKEN", None)  # what jobs start need not know it
        _warn(server, token)
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        self._node = RemoteConductor(app, options, lambda: Client(server, token, ca=ca), patience=patience)
        super().__init__(self._node, options)
        self._metrics = metrics

    def _observed(self) -> AbstractAsyncContextManager[object]:
        if self._metrics is None:
            return nullcontext()
        node, (host, port) = self._node, self._metrics
        vitals = Vitals(
            node=lambda: node.node,
            ready=lambda: node.ready,
            running=lambda: [attempt.job.kind for attempt in self._running()],
            loop_lag=self._loop_lag,
            slots=self._options.slots,
            lease=self._options.lease,
            patience=lambda: node.lease,
        )
        return observe_node(None, vitals, host=host, port=port)


def token_of(settings: config.Settings) -> str | None:
    """What opens the control plane: said, or in a file."""
    if settings.token_file is not None:
        return read_token(Path(settings.token_file))
    if settings.token is not None and not is_token(settings.token, "api"):
        raise ConfigError("the token is no token of ours; was it cut or mistyped?")
    return settings.token


def read_token(file: Path) -> str:
    """The token in a file."""
    try:
        with file.open("rb") as opened:
            text = opened.read(LONGEST_TOKEN).decode("ascii", "replace").strip()
    except OSError as error:
        raise ConfigError(f"the token cannot be read: {error}") from None
    if not is_token(text, "api"):
        raise ConfigError(f"{file} holds no token of ours; `howdah token create` prints one")
    return text


def _warn(server: str, token: str | None) -> None:
    parts = urlsplit(server)
    if token and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        log.warning("the token travels to %s in the clear; use https", parts.hostname)


def app_alone(spec: str | None) -> Howdah:
    """The application, which need not know a database."""
    if spec is None:
        raise ConfigError(
            f'no app is named; give -a module:attribute, set HOWDAH_APP, or write app = "…" into {config.FILE}'
        )
    return config.load_app(spec)
