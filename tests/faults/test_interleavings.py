"""Every two acts on the same jobs, the second while the first is neither committed nor undone.

What the two leave behind must be what they would have left one after the other, in one order or the other. Who passes
by what others hold may also have done nothing yet, and then does it the next time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from howdah.outcome import Outcome
from howdah.postgres.database import Database
from kit.interleave import Form, Interleavings, ThreeConnections, fresh_database, meet, switch_off, three_connections
from kit.interleave_jobs import ACTS, FORMS, PreparedJobs, acking, lay
from kit.job_invariants import wrongs

pytestmark = pytest.mark.anyio

LEASE_LOST = "UnknownPostgresError"
"""How the driver calls our own code HW001."""
NEVER = {("ack one to retry", "ack all done")}
"""A worker says one thing of an attempt, and says that again; it never says another thing afterwards."""


@pytest.fixture(scope="module")
def shared_database(server: Any, template: str) -> Iterator[Database]:
    yield from fresh_database(server, template)


@pytest.fixture(scope="module")
async def three(shared_database: Database) -> AsyncIterator[ThreeConnections]:
    async with three_connections(shared_database) as conns:
        yield conns


@pytest.fixture(scope="module")
async def interleavings(three: ThreeConnections) -> Interleavings:
    return Interleavings(three, lay)


def is_true(form: Form, result: Any, after: dict[str, Any], prepared: PreparedJobs, *, passed_by: bool) -> bool:
    """Whether what the last one was told is what the tables say."""
    held = any(lease[0] == "the lease" for lease in after["leases"])
    over = {row[0]: row[1] for row in after["done"]}
    ready = {row[0] for row in after["ready"]}
    by_number = {id - prepared.ids[0]: what for id, what in result.items()} if isinstance(result, dict) else {}
    match form.act:
        case "heartbeat":
            # a lease that the first act holds is passed by; the next heartbeat hears what became of it
            return result == [] if held or passed_by else bool(result == [prepared.token])
        case "cancel":
            ended = [at for at, what in by_number.items() if what == "cancelled"]
            asked = [at for at, what in by_number.items() if what == "asked"]
            return all(over.get(at) == "c" for at in ended) and all(
                at in after["requests"] or at in over for at in asked
            )
        case "retry":
            return all(at in ready for at, what in by_number.items() if what == "queued")
        case "delete":
            return all(at not in after["jobs"] for at, what in by_number.items() if what == "deleted")
        case "ack" if form.name.startswith("in a transaction"):
            return over.get(4) == "d" or result in (LEASE_LOST, "UniqueViolationError")
        case "ack" if form.name == "in a batch":
            return all(over.get(at) == "d" for at in (4, 5, 6)) or result in (LEASE_LOST, "UniqueViolationError")
        case "ack":
            # what was to be retried may since have been cancelled: that was requested before
            states = {"ok": "d", "failed": "f", "cancelled": "c"}
            return all(over.get(at) in (states.get(what), "c") for at, what in by_number.items())
        case _:
            return True


async def zombie(conn: Any, prepared: PreparedJobs) -> None:
    """Say once more what became of the jobs; under a lease that is over it changes nothing."""
    before = await prepared.portrait(conn)
    if all(lease[0] != "the lease" for lease in before["leases"]):
        for outcome in (Outcome.OK, Outcome.RETRY, Outcome.RELEASED):
            await acking(dict.fromkeys((4, 5, 6, 7), outcome), last=True)(prepared, conn)
            assert await prepared.portrait(conn) == before, outcome


@pytest.mark.parametrize("second", ACTS)
@pytest.mark.parametrize("first", ACTS)
async def test_two_acts_meet(three: ThreeConnections, interleavings: Interleavings, first: str, second: str):
    for one in [form for form in FORMS if form.act == first]:
        for other in [form for form in FORMS if form.act == second]:
            for commit in (True, False):
                if (str(one), str(other)) in NEVER:
                    continue
                prepared, met, after = await interleavings.hold(one, other, commit=commit)
                passed_by = other.passes_by(one)
                assert is_true(other, met.second, after, prepared, passed_by=passed_by), (
                    f"{one}, {other}: {met}, left {after}"
                )
                await zombie(three.watch, prepared)


# -------------------------------------------------------------------- with a guard switched off


TAKEN = "{schema}.lease where token = any(requeue_leased.tokens)"
CANCELS = "perform {schema}.cancel(missed)"
CONTROLS = {
    "reset, claim": (
        "requeue_leased",
        f"delete from {TAKEN}",
        f"select from {TAKEN}",
        "reset",
        "claim many",
    ),
    "ack, reset": ("reset", "for update of l skip locked", "", "ack one done", "reset"),
    "reset, ack": ("ack", "where a.token = any(held)", "where true", "reset", "ack one to retry"),
    "cancel, ack": ("apply_cancel_requests", CANCELS, "null", "cancel a running one", "ack one to retry"),
    "reset, cancel": ("apply_cancel_requests", CANCELS, "null", "reset", "cancel a running one"),
    "retry, prune": ("prune_rows", "for update of d skip locked", "", "retry many", "prune"),
}
"""Function, guard, what stands there instead, and who meets whom."""


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
@pytest.mark.parametrize("control", CONTROLS)
async def test_what_a_guard_is_good_for(direct: Database, control: str, guarded: bool):
    function, guard, instead, *names = CONTROLS[control]
    first, second = (next(form for form in FORMS if str(form) == name) for name in names)
    async with three_connections(direct) as three:
        if not guarded:
            await switch_off(three.watch, function, *(text.format(schema='"howdah"') for text in (guard, instead)))
        prepared = await lay(three.watch)
        await meet(three, lambda conn: first.do(prepared, conn), lambda conn: second.do(prepared, conn), commit=True)
        await prepared.portrait(three.watch)
        assert (await wrongs(three.watch) == []) == guarded
