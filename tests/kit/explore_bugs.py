"""Bugs to plant: one guard of the engine is left out or weakened, and the explorer has to find it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kit.interleave import Form, switch_off

SCHEMA = '"howdah"'


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A change of a function of the schema, or of a statement that clients send."""

    name: str
    world: str
    acts: Sequence[str]
    against: Sequence[str]
    """A round has one operation of each: one that uses what is changed, and one that it is guarded against. The names,
    or how they begin."""
    function: str = ""
    statement: str = ""
    changes: Sequence[tuple[str, str]]
    """What stands there, and what takes its place."""

    def __str__(self) -> str:
        return self.name

    def concerns(self, forms: Sequence[Form]) -> bool:
        """Whether these operations may meet the bug."""
        one, other = map(str, forms)
        acts, against = tuple(self.acts), tuple(self.against)
        return any(a.startswith(acts) and b.startswith(against) for a, b in ((one, other), (other, one)))

    @asynccontextmanager
    async def planted(self, conn: Any, world: Any) -> AsyncIterator[None]:
        """The bug is in the database, or in the statements of the world until the end."""
        changes = [(was.replace("{schema}", SCHEMA), now.replace("{schema}", SCHEMA)) for was, now in self.changes]
        statements = world.statements
        right = statements.get(self.statement, "")
        try:
            for was, now in changes:
                if self.function:
                    await switch_off(conn, self.function, was, now)
                elif was not in statements[self.statement]:
                    raise AssertionError(f"{self.statement} has no {was!r}")
                else:
                    statements[self.statement] = statements[self.statement].replace(was, now)
            yield
        finally:
            if self.statement:
                statements[self.statement] = right


BUGS = [
    Bug(
        name="ack deletes a lease because its node says that it is finished",
        world="jobs",
        acts=["ack"],
        against=[""],
        function="ack",
        changes=[("l.remaining = 0 returning", "(l.remaining = 0 or l.token = any(finished)) returning")],
    ),
    Bug(
        name="ack takes outcomes under a lease that is over",
        world="jobs",
        acts=["ack"],
        against=["reset", "release"],
        function="ack",
        changes=[("where a.token = any(held)", "where true")],
    ),
    Bug(
        name="ack of successes deletes the lease by ctid",
        world="jobs",
        acts=["heartbeat"],
        against=["ack"],
        statement="ack_done",
        changes=[
            ("select l.token, l.remaining\n", "select l.token, l.remaining, l.ctid as at\n"),
            (
                "delete from {schema}.lease\n"
                "    where token = any(array(select token from counted where complete and remaining = 0))",
                "delete from {schema}.lease where ctid = any(array("
                "select h.at from held h join counted c on c.token = h.token where c.remaining = 0))",
            ),
        ],
    ),
    Bug(
        name="ack counts an outcome twice",
        world="jobs",
        acts=["ack"],
        against=[""],
        function="ack",
        changes=[("l.remaining - n.jobs", "l.remaining - 2 * n.jobs")],
    ),
    Bug(
        name="reset locks the lease and reads its outcomes in one statement",
        world="jobs",
        acts=["reset"],
        against=["ack", "handle"],
        function="reset",
        changes=[("for update of l skip locked", "")],
    ),
    Bug(
        name="heartbeat renews leases that it does not name",
        world="jobs",
        acts=["heartbeat"],
        against=[""],
        statement="heartbeat",
        changes=[("where token = any($2::int8[]) and node = $1\n    order by", "where node = $1\n    order by")],
    ),
    Bug(
        name="prune of a partition does not look again behind its lock",
        world="jobs",
        acts=["prune a partition of"],
        against=["ack", "handle"],
        function="prune_partition",
        changes=[
            ("where d.id is null or d.finished_at >=", "where d.finished_at >="),
            ("d.finished_at >= $3 and d.finished_at >= $1 and d.state = 'd'", "false"),
        ],
    ),
    Bug(
        name="prune of rows deletes jobs that are retried at this moment",
        world="jobs",
        acts=["prune"],
        against=["retry"],
        function="prune_rows",
        changes=[("for update of d skip locked", "")],
    ),
    Bug(
        name="delete takes jobs out of their queue that were seen in another state",
        world="jobs",
        acts=["delete"],
        against=[""],
        function="delete_seen",
        changes=[("s(id, state) where s.state is null or s.state = 'queued'), p_queue)", "s(id, state)), p_queue)")],
    ),
    Bug(
        name="enqueue answers 0 for a key whose holder ends at this moment",
        world="jobs",
        acts=["enqueue many with keys"],
        against=["cancel", "delete", "ack a keyed one", "handle with a key"],
        function="take_keys",
        changes=[
            (
                "if array_position(holders, null) is not null then",
                "holders := array(select coalesce(x, 0) from unnest(holders) with ordinality u(x, n) order by n);"
                "\n            if false then",
            )
        ],
    ),
    Bug(
        name="a cancel request that missed its job is never applied",
        world="jobs",
        acts=["cancel"],
        against=["ack", "reset", "release"],
        function="apply_cancel_requests",
        changes=[("perform {schema}.cancel(missed)", "null")],
    ),
    Bug(
        name="the completion of a row in a transaction does not look at its state",
        world="rows",
        acts=["handle"],
        against=[""],
        statement="ack_in_transaction",
        changes=[("\n  and t.\"state\" = 'processing'", "")],
    ),
    Bug(
        name="upkeep cancels rows that somebody requeues at this moment",
        world="rows",
        acts=["cancel"],
        against=["requeue", "retry"],
        statement="cancel",
        changes=[("for no key update skip locked", "")],
    ),
    Bug(
        name="a checkpoint is moved from wherever it stands",
        world="consumers",
        acts=["follow"],
        against=["follow", "advance"],
        statement="move_checkpoint",
        changes=[("and k.position = $5", "and $5::int8 is not null")],
    ),
    Bug(
        name="the frontier passes events that are not committed",
        world="consumers",
        acts=["append"],
        against=["follow"],
        function="frontier",
        changes=[("safe := least(head, lowest)", "safe := head")],
    ),
    Bug(
        name="a failure is noted without a lock on the checkpoint",
        world="consumers",
        acts=["fault"],
        against=[""],
        function="fault",
        changes=[("for no key update", "")],
    ),
]
