"""Facts about one job and the nodes that could claim it, from the tables a claim reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from howdah.diagnose.finding import statement
from howdah.jobs.labels import had, labels_of, takes

SILENT = 30.0
"""Seconds without a heartbeat after which a node counts as dead; its leases end then."""
SILENT_REMOTE = 90.0
"""The same for a worker over HTTP, whose heartbeats are less frequent."""


def is_live(silent: float, *, remote: bool) -> bool:
    """Return whether a node with a last heartbeat this long ago counts as alive."""
    return silent <= (SILENT_REMOTE if remote else SILENT)


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One job at one point in time."""

    id: int
    queue: str
    kind: str
    state: str | None
    priority: int
    attempt: int | None
    max_attempts: int
    enqueued_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    error: str | None
    now: datetime
    """By the server's clock, which alone decides."""
    node: int | None
    node_name: str | None
    node_state: str | None
    remote: bool | None
    silent: float | None
    """Seconds since the last heartbeat of its node."""
    due_at: datetime | None
    """When it may be moved to its queue; ``None``: it is there."""
    rid: int | None
    lo: int | None
    """The place of its run in the queue, and the first job of it."""
    paused: bool
    paused_at: datetime | None
    paused_by: str | None
    held_until: datetime | None
    held_for: str | None
    asked_at: datetime | None
    """Time since which its cancel is requested."""
    key: str | None
    key_holder: int | None
    """Another live job with its key."""
    last_outcome: str | None
    last_error: str | None

    @property
    def due(self) -> bool:
        """True if a claim would find it."""
        return self.due_at is None or self.due_at <= self.now

    @property
    def where(self) -> str:
        """The node it runs or ran on."""
        return "" if self.node is None else f" on node {self.node} ({self.node_name or 'forgotten'})"


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One node that has not signed off."""

    id: int
    name: str
    draining: bool
    version: str
    queues: Sequence[str] | None
    kinds: Sequence[str] | None
    labels: Sequence[str]
    slots: int
    beside: int
    limits: Mapping[str, int]
    poll: float | None
    deaf: bool
    remote: bool
    tables: Sequence[str]
    silent: float

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> NodeFacts:
        """Make it from a row."""
        limits = msgspec.json.decode(row["limits"], type=dict[str, int]) if row["limits"] else {}
        return cls(**{**row, "limits": limits})

    @property
    def live(self) -> bool:
        """True if its heartbeats are recent."""
        return is_live(self.silent, remote=self.remote)

    def __str__(self) -> str:
        return f"node {self.id} ({self.name})"

    def lacks(self, queue: str, kind: str) -> list[str]:
        """Return what the node lacks for jobs of this queue and kind; empty if it takes them."""
        lacks = ["is draining"] if self.draining else []
        if not takes(queue, self.queues, self.labels):
            lacks.append(self._misses(queue))
        if kind not in (self.kinds or ()):
            lacks.append(f"has no task {kind!r}")
        return lacks

    def _misses(self, queue: str) -> str:
        missing = [label for label in labels_of(queue) if label not in had(self.queues, self.labels)]
        if missing and (self.queues is None or queue.split("+")[0] in self.queues):
            return f"lacks label {', '.join(map(repr, missing))}"
        return f"does not serve queue {queue!r}"


class HeldKind(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one queue that a node holds."""

    node: int
    queue: str
    jobs: int
    since: datetime
    ids: Sequence[int]


class JobsAhead(msgspec.Struct, frozen=True, kw_only=True):
    """Number of jobs of one kind ahead."""

    kind: str
    higher: int
    earlier: int
    runs: int


class Locker(msgspec.Struct, frozen=True, kw_only=True):
    """The session or prepared transaction that has locked a job's place in the queue."""

    pid: int | None
    application: str | None
    role: str | None
    state: str | None
    age: float
    query: str | None
    prepared: str | None

    def __str__(self) -> str:
        if self.prepared is not None:
            return f"prepared transaction {self.prepared}"
        doing = f"; {self.state}: {statement(self.query)}" if self.state and self.query else ""
        return f"pid {self.pid} ({self.application or self.role or '?'}{doing})"


class ClaimFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job, and the nodes that could claim it."""

    job: JobFacts
    nodes: Sequence[NodeFacts]
    held: Sequence[HeldKind] = ()
    ahead: Sequence[JobsAhead] = ()
    locker: Locker | None = None

    @property
    def able(self) -> list[NodeFacts]:
        """The live nodes that take jobs of its queue and kind."""
        return [node for node in self.nodes if node.live and not node.lacks(self.job.queue, self.job.kind)]

    def holds(self, node: NodeFacts, queue: str | None = None) -> list[HeldKind]:
        """Return the number of jobs a node holds, of one queue or of all."""
        return [each for each in self.held if each.node == node.id and queue in (None, each.queue)]

    def free(self, node: NodeFacts) -> int:
        """Return the free slots of a node."""
        # the heartbeat that brought `beside`, which is below 0 for batches, may be older than the leases
        return min(node.slots, node.slots - node.beside - total(self.holds(node)))

    def room(self, node: NodeFacts) -> int | None:
        """Return how many more jobs of the queue a node takes; ``None``: no limit."""
        limit = node.limits.get(self.job.queue)
        return None if limit is None else limit - total(self.holds(node, self.job.queue))

    def before(self, kinds: Collection[str] | None = None) -> tuple[int, int]:
        """Return the numbers of higher-priority and of earlier jobs that a claim of these kinds gets first."""
        seen = [each for each in self.ahead if kinds is None or each.kind in kinds]
        own = self.job.id - self.job.lo if self.job.lo is not None else 0
        return sum(each.higher for each in seen), sum(each.earlier for each in seen) + own


def total(held: Sequence[HeldKind]) -> int:
    """Return the number of jobs."""
    return sum(each.jobs for each in held)
