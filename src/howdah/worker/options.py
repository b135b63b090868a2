"""The options of a worker."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from howdah.errors import ConfigError
from howdah.handler import check_label, check_name
from howdah.option_types import Bytes, Choice, Duration, Integer, List, OptionType, Switch
from howdah.options import OptionError, check, option


class Queues(OptionType):
    """Queues with an optional limit each: ``mail:10,default``, in TOML also as a list of these or as a table."""

    name: ClassVar[str] = "queues"
    metavar = "NAME[:LIMIT],…"

    def read(self, value: Any) -> Any:
        """Take text, a list of texts, or names with limits."""
        if isinstance(value, list):
            value = ",".join(map(str, value))
        return value if isinstance(value, Mapping) else super().read(value)

    def parse(self, text: str) -> Any:
        """Split it."""
        return parse_queues(text)

    def check(self, value: Any) -> None:
        """Check every name and every limit."""
        if not isinstance(value, Mapping):
            raise ConfigError(f"must be queues with their limits, got {value!r}")
        if not value:
            raise ConfigError("queues is empty; name a queue, or leave it out to serve all of them")
        check_limits(value)

    def show(self, value: Any) -> str:
        """Write them as they are parsed."""
        return ",".join(name if limit is None else f"{name}:{limit}" for name, limit in value.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of a worker. All times are in seconds."""

    slots: int = option(
        50,
        Integer(above=0),
        "Number of jobs that run at the same time in one node.",
        "-c --concurrency",
        alias="concurrency",
    )
    queues: Mapping[str, int | None] | None = option(
        None,
        Queues(),
        "Queues to serve, each with an optional limit of jobs that run at the same time: mail:10,default.",
        "-q --queues",
        shown="all",
    )
    limits: Mapping[str, int] = field(default_factory=dict)
    """Limits of jobs that run at the same time, by queue, also where every queue is served."""
    labels: Sequence[str] = option(
        (),
        List(metavar="LABEL", good=check_label),
        "Labels of this node, such as gpu or linux/arm64; jobs that require labels run on nodes that have them.",
        "--label",
        shown="none",
    )
    poll: float = option(5.0, Duration(above=0), "Longest wait between two claims when no wake-up arrives.", "--poll")
    heartbeat: float = option(5.0, Duration(above=0), "Time between two heartbeats.", "--heartbeat")
    lease: float = option(
        30.0,
        Duration(above=0),
        "How long a node keeps its jobs without a heartbeat; at least two heartbeats.",
        "--lease",
    )
    grace: float = option(
        25.0, Duration(least=0), "How long running jobs may continue after the first stop signal.", "--grace"
    )
    notify: bool = option(
        True,
        Switch(),
        "Whether to listen for wake-ups; with --poll-only the node only polls.",
        "--poll-only",
        off=True,
    )
    drain: bool = option(
        False,
        Switch(),
        "Exit when the queues are empty and all running jobs have finished.",
        "--drain",
        one_run=True,
    )
    rebalance: float = option(
        5.0,
        Duration(above=0),
        "How often the leader assigns consumers to nodes; it also does so when a node starts or stops.",
        "--rebalance",
    )
    dispatch: float = option(
        0.2, Duration(above=0), "Time between two reads of new events when no wake-up arrives.", "--dispatch"
    )
    leader: Literal["lease", "advisory"] = option(
        "lease",
        Choice("lease", "advisory"),
        "How the leader of the consumers is elected: lease by a row in a table, advisory by a lock, which needs a"
        " direct connection to PostgreSQL.",
        "--leader",
    )
    largest_result: int = option(1024 * 1024, Bytes(), "Largest result of a handler, as JSON.")

    def __post_init__(self) -> None:
        check(self)
        check_limits(self.limits)
        if self.lease < 2 * self.heartbeat:
            raise OptionError(
                f"lease must be at least two heartbeats, got lease {self.lease:g} s and heartbeat {self.heartbeat:g} s",
                "lease",
                "heartbeat",
            )

    @property
    def limited(self) -> dict[str, int]:
        """The limit of each queue that has one."""
        return {**self.limits, **{queue: limit for queue, limit in (self.queues or {}).items() if limit}}


def check_limits(queues: Mapping[str, int | None]) -> None:
    """Check the names of queues, and their limits of jobs that run at the same time."""
    for queue, limit in queues.items():
        check_name("queue", queue)
        if limit is not None and not limit > 0:
            raise ConfigError(f"the limit of queue {queue!r} must be above zero, got {limit!r}")


def parse_queues(text: str) -> dict[str, int | None]:
    """Read ``mail:10,default``.

    >>> parse_queues("mail:10, default")
    {'mail': 10, 'default': None}
    >>> parse_queues("with:colon:")  # a colon at the end: no limit
    {'with:colon': None}
    """
    queues: dict[str, int | None] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, colon, limit_text = part.rpartition(":")
        if limit_text and colon and not re.fullmatch(r"[0-9]+", limit_text):
            raise ConfigError(
                f"the limit of queue {name!r} must be a number, got {limit_text!r}; for a queue of the name {part!r}"
                f" write '{part}:'"
            )
        name, limit = (name, int(limit_text) if limit_text else None) if colon else (part, None)
        if limit == 0:
            raise ConfigError(f"the limit of queue {name!r} must be above zero, got 0")
        queues[check_name("queue", name)] = limit
    if not queues:
        raise ConfigError(f"no queue named in {text!r}; write name or name:limit, separated by commas")
    return queues
