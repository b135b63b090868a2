"""WorkerOptions: how a worker behaves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from howdah.errors import ConfigError
from howdah.handler import check_name


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker behaves. Every time is in seconds."""

    slots: int = 50
    """Jobs running at once."""

    queues: Mapping[str, int | None] | None = None
    """Queues to serve, each with the most jobs of it at once or ``None``; no mapping means every queue."""

    limits: Mapping[str, int] = field(default_factory=dict)
    """The most jobs at once of some queues, also where every queue is served."""

    labels: Sequence[str] = ()
    """What this node has that jobs may require, as ``gpu`` or ``linux/arm64``."""

    poll: float = 5.0
    """Longest wait between claims when no wake-up arrives."""

    heartbeat: float = 5.0
    """Between two heartbeats."""

    lease: float = 30.0
    """How long work stays ours without a heartbeat."""

    grace: float = 25.0
    """How long running jobs may go on after a stop was asked for."""

    notify: bool = True
    """Listen for wake-ups; without, only poll."""

    drain: bool = False
    """Stop by itself as soon as nothing is left to do now."""

    rebalance: float = 5.0
    """Between two looks of the leader at which node consumes what; it also looks when a node comes or goes."""

    dispatch: float = 0.2
    """Between two looks for new events when no wake-up arrives."""

    leader: Literal["lease", "advisory"] = "lease"
    """How the leader of the consumers is chosen: by a row, or by a lock of a session of its own."""

    largest_result: int = 1024 * 1024
    """Bytes of JSON a handler may return."""

    def __post_init__(self) -> None:
        for name in ("slots", "poll", "heartbeat", "lease", "rebalance", "dispatch", "largest_result"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above zero, got {getattr(self, name)!r}")
        if not self.grace >= 0:
            raise ConfigError(f"grace must not be negative, got {self.grace!r}")
        if self.lease < 2 * self.heartbeat:
            raise ConfigError(
                f"lease must be at least two heartbeats, got lease {self.lease:g} s and heartbeat {self.heartbeat:g} s"
            )
        if self.leader not in ("lease", "advisory"):
            raise ConfigError(f"leader must be 'lease' or 'advisory', got {self.leader!r}")
        for queue, limit in (*(self.queues or {}).items(), *self.limits.items()):
            check_name("queue", queue)
            if limit is not None and not limit > 0:
                raise ConfigError(f"the limit of queue {queue!r} must be above zero, got {limit!r}")
        if self.queues is not None and not self.queues:
            raise ConfigError("queues is empty; name a queue, or leave it out to serve all of them")

    @property
    def limited(self) -> dict[str, int]:
        """The most jobs at once of each queue that has a limit."""
        return {**self.limits, **{queue: limit for queue, limit in (self.queues or {}).items() if limit}}


def parse_queues(text: str) -> dict[str, int | None]:
    """Read ``mail:10,default``.

    >>> parse_queues("mail:10, default")
    {'mail': 10, 'default': None}
    """
    queues: dict[str, int | None] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"(.+):(\d+)", part)
        name, limit = (match[1], int(match[2])) if match else (part, None)
        if limit == 0:
            raise ConfigError(f"the limit of queue {name!r} must be above zero, got 0")
        queues[check_name("queue", name)] = limit
    if not queues:
        raise ConfigError(f"no queue named in {text!r}; write name or name:limit, separated by commas")
    return queues
