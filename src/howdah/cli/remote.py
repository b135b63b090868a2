"""A node that works for a control plane, without a database."""

from __future__ import annotations

import logging
import os
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from howdah.app import Howdah
from howdah.cli.node import Process
from howdah.control_plane.options import is_loopback
from howdah.control_plane.tokens import is_token
from howdah.errors import ConfigError
from howdah.observe.health import NodeStatus
from howdah.observe.node import observe_node
from howdah.remote.client import ControlPlaneClient, check_server
from howdah.remote.node import RemoteNode
from howdah.settings import ProcessOptions
from howdah.worker.options import WorkerOptions

log = logging.getLogger("howdah")

CHATTY = ("httpx2", "httpcore2")
"""They log every request; at their level of detail, also what is in it."""
LONGEST_TOKEN = 4096


class RemoteNodeProcess(Process):
    """A node that reaches its work over HTTP."""

    _node: RemoteNode

    def __init__(self, app: Howdah, options: WorkerOptions, process: ProcessOptions, patience: float) -> None:
        server, token, ca = check_server(process.server or ""), token_of(process), process.ca
        os.environ.pop("HOWDAH_TOKEN", None)  # what jobs start need not know it
        _warn(server, token)
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        node = RemoteNode(app, options, lambda: ControlPlaneClient(server, token, ca=ca), start_timeout=patience)
        super().__init__(node, options)
        self._metrics = process.metrics

    def _observed(self) -> AbstractAsyncContextManager[object]:
        if self._metrics is None:
            return nullcontext()
        node, (host, port) = self._node, self._metrics
        vitals = NodeStatus(
            node=lambda: node.node,
            ready=lambda: node.ready,
            running=lambda: [attempt.job.kind for attempt in self._running()],
            loop_lag=self._loop_lag,
            slots=self._options.slots,
            lease=self._options.lease,
            unready_after=lambda: node.lease,
        )
        return observe_node(None, vitals, host=host, port=port)


def token_of(process: ProcessOptions) -> str | None:
    """Return the token for the control plane, from its file if one is given."""
    if process.token_file is not None:
        return read_token(Path(process.token_file))
    if process.token is not None and not is_token(process.token, "api"):
        raise ConfigError("the token is no token of ours; was it cut or mistyped?")
    return process.token


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
