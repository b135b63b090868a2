"""The audit: every change is there with whoever made it, and stays as it is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from howdah import ConfigError, Event, NewEvent, Poison
from howdah.audit import Actor, AuditTrail, acting_as
from howdah.control_plane.tokens import Tokens
from howdah.jobs.search import Filter
from howdah.maintenance.pruner import Pruner, Retention
from howdah.postgres.database import Session
from howdah.table.admin import TableAdmin
from howdah.table.options import TableOptions
from kit.node import drain, eventually, node
from table.ddl import ddl

pytestmark = pytest.mark.anyio

ADA = Actor("ada", "dashboard", "192.0.2.7")


@pytest.fixture
async def shop(app):
    @app.task(queue="mail")
    async def send(n: int = 0) -> None: ...

    @app.task(queue="mail")
    async def poison() -> None:
        raise Poison("never")

    app.schedule("nightly", send.job(1), cron="0 3 * * *")

    @app.consumer("totals", start="beginning", on_failure="halt")
    async def total(event: Event) -> None:
        raise ValueError("no")

    yield app
    await app.close()


async def trail(app, **scope) -> list[tuple]:
    """What was recorded, oldest first, as (verb, thing, ids, before, after, count)."""
    entries = await app.admin.audit(limit=1000, **scope)
    return [(each.verb, each.thing, list(each.ids), each.before, each.after, each.count) for each in reversed(entries)]


async def test_every_act_on_jobs_is_recorded_with_what_they_were(shop, conn):
    made = [(await shop.tasks["poison"].enqueue()).id for _ in range(3)]
    waiting = [(await shop.tasks["send"].using(delay=999).enqueue(n)).id for n in range(2)]
    await drain(shop)
    await shop.admin.cancel([waiting[1]])

    with acting_as(ADA):
        await shop.admin.retry([*made[:2], waiting[1], 999])
        await shop.admin.reprioritize(waiting, 10)
        await shop.admin.move([waiting[0]], "bulk")
        await shop.admin.cancel([waiting[0]])
        await shop.admin.delete([waiting[0], made[2]])

    entries = await trail(shop, who="ada")
    assert entries[0] == (
        "retry",
        "job",
        [str(id) for id in [*made[:2], waiting[1]]],
        {"state": {"failed": 2, "cancelled": 1}},
        {"state": "queued"},
        3,
    )
    assert entries[1:] == [
        ("reprioritize", "job", [str(id) for id in waiting], {"priority": 0}, {"priority": 10}, 2),
        ("move", "job", [str(waiting[0])], {"queue": "mail"}, {"queue": "bulk"}, 1),
        ("cancel", "job", [str(waiting[0])], {"state": "queued"}, {"state": "cancelled"}, 1),
        ("delete", "job", [str(made[2]), str(waiting[0])], {"state": {"failed": 1, "cancelled": 1}}, None, 2),
    ]
    [first] = await shop.admin.audit(limit=1, verb="retry")
    assert (first.who, first.via, first.address) == ("ada", "dashboard", "192.0.2.7")
    assert abs(first.at - await conn.fetchval("select now()")) < timedelta(minutes=5)
    assert [each.who for each in await shop.admin.audit(verb="cancel", limit=10)] == ["ada", "code"]


async def test_acts_by_filter_are_recorded_with_the_filter(shop):
    await shop.enqueue_many(shop.tasks["poison"].job() for _ in range(3))
    await drain(shop)
    since = datetime.now(UTC) - timedelta(days=1)

    await shop.admin.act("retry", Filter(kind="poison", finished_after=since), to=None)
    await shop.admin.cancel_where(queue="mail")

    retried, cancelled = reversed(await shop.admin.audit())
    assert retried.filter == {
        "state": "failed",
        "kind": "poison",
        "finished_after": since.isoformat().replace("+00:00", "Z"),
    }
    assert cancelled.filter == {"state": "queued", "queue": "mail"}
    assert (retried.count, cancelled.count) == (3, 3)


async def test_queues_schedules_and_nodes(shop, conn):
    async with node(shop):
        await eventually(shop.admin.schedules)
        [alive] = await shop.admin.nodes()
        with acting_as(ADA):
            await shop.admin.pause("mail")
            await shop.admin.pause("mail")
            await shop.admin.resume("mail")
            await shop.admin.resume("mail")
            await shop.admin.pause_schedule("nightly")
            await shop.admin.pause_schedule("nightly", False)
            await shop.admin.drain(alive.id)

    entries = await trail(shop)
    assert entries[:-1] == [
        ("pause", "queue", ["mail"], {"paused": False}, {"paused": True}, 1),
        ("pause", "queue", ["mail"], {"paused": True}, {"paused": True}, 1),
        ("resume", "queue", ["mail"], {"paused": True}, {"paused": False}, 1),
        ("pause", "schedule", ["nightly"], {"paused": False}, {"paused": True}, 1),
        ("resume", "schedule", ["nightly"], {"paused": True}, {"paused": False}, 1),
    ]
    verb, thing, ids, before, after, _ = entries[-1]
    assert (verb, thing, ids, after) == ("drain", "node", [str(alive.id)], {"state": "draining"})
    assert before["state"] in ("idle", "busy")


async def test_a_pause_names_whoever_acts(shop):
    with acting_as(ADA):
        await shop.admin.pause("mail")
    await shop.admin.pause("bulk")

    assert {queue.name: queue.paused_by for queue in await shop.admin.queues()} == {"mail": "ada", "bulk": None}


async def test_consumers_and_parked_events(shop, conn):
    admin = shop.log.admin
    for _ in range(3):
        await shop.log.append("Order-1", NewEvent(type="Placed", data={}))
    async with node(shop, rebalance=0.2):
        await eventually(lambda: conn.fetchval("select bool_or(halted) from howdah.checkpoint"), 30)
    first = await conn.fetchval("select min(position) from howdah.event")
    await conn.execute(
        "insert into howdah.parked (consumer, part, position, error, message, traceback, failures)"
        " select 'totals', 0, position, 'E', 'm', '', 1 from howdah.event"
    )

    with acting_as(ADA):
        await admin.pause("totals")
        await admin.resume("totals")
        [skipped] = await admin.skip("totals")
        await admin.reset("totals", "beginning")
        await admin.retry_parked("totals", [first])
        await admin.drop_parked("totals")
        await conn.execute("update howdah.node set state = 'offline'")
        await admin.set_exclusive(False)
        await admin.forget("totals")
    with pytest.raises(ConfigError):
        await admin.pause("nobody")

    entries = await trail(shop, who="ada")
    assert [(verb, thing, ids) for verb, thing, ids, *_ in entries] == [
        *(
            (verb, "consumer", ["totals"])
            for verb in ("pause", "resume", "skip", "reset", "retry_parked", "drop_parked")
        ),
        ("set_exclusive", "log", []),
        ("forget", "consumer", ["totals"]),
    ]
    facts = {verb: (before, after, count) for verb, _, _, before, after, count in entries}
    assert facts["pause"] == ({"paused": False}, {"paused": True}, 1)
    assert facts["resume"] == ({"paused": True, "halted": True}, {"paused": False, "halted": False}, 1)
    assert facts["skip"][1] == {"skipped": [skipped], "part": None}
    assert facts["reset"] == ({"position": skipped}, {"position": 0, "part": None}, 1)
    assert facts["retry_parked"] == (None, {"positions": [first]}, 1)
    assert facts["drop_parked"][2] == 3


async def test_rows_of_tables_and_tokens(shop, conn, direct):
    await conn.execute(ddl())
    await conn.execute("insert into uploads (state) values ('failed'), ('failed'), ('queued')")
    session = Session(direct, "token")
    tokens = Tokens(direct, session)

    with acting_as(ADA):
        admin = await TableAdmin.open(conn, TableOptions(table="uploads"), "howdah")
        await admin.retry([1, 2, 3, 99])
        await admin.cancel([1])
        token, row = await tokens.create("box", ["work"], queues=["mail"])
        await tokens.revoke(row.id)
        await tokens.revoke(row.id)
    await session.close()

    entries = await trail(shop)
    table = entries[0][3]["table"]
    assert table.endswith("uploads")
    assert entries[:2] == [
        ("retry", "row", ["1", "2"], {"table": table, "state": "failed"}, {"table": table, "state": "queued"}, 2),
        ("cancel", "row", ["1"], {"table": table, "state": "queued"}, {"table": table, "state": "canceled"}, 1),
    ]
    create, revoke = entries[2:]
    assert create[:3] == ("create", "token", [str(row.id)])
    assert create[4] == {"name": "box", "scopes": ["work"], "queues": ["mail"], "expires_at": None}
    assert revoke[3:] == ({"name": "box", "revoked": False}, {"name": "box", "revoked": True}, 1)
    assert token not in str(entries)


async def test_an_act_that_fails_leaves_no_record_and_a_record_that_fails_no_act(shop, conn):
    made = await shop.tasks["send"].enqueue()
    with pytest.raises(ConfigError):
        await shop.admin.pause_schedule("none")
    await conn.execute("alter table howdah.audit add constraint nobody check (who <> 'eve')")

    with acting_as(Actor("eve")), pytest.raises(asyncpg.CheckViolationError):
        await shop.admin.cancel([made.id])

    assert await trail(shop) == []
    assert (await shop.admin.get(made.id)).state == "queued"


async def test_what_changed_nothing_is_not_recorded(shop):
    await shop.admin.retry([999])
    await shop.admin.resume("mail")

    assert await trail(shop) == []


async def test_whoever_acts_is_known_in_tasks_and_never_elsewhere(shop):
    async def pause(who: str) -> None:
        with acting_as(Actor(who, "api")):
            await asyncio.sleep(0)
            await asyncio.create_task(shop.admin.pause(who))

    await asyncio.gather(*(pause(f"p{n}") for n in range(10)), shop.admin.pause("mine"))

    entries = await shop.admin.audit()
    assert {entry.ids[0]: (entry.who, entry.via) for entry in entries} == {
        **{f"p{n}": (f"p{n}", "api") for n in range(10)},
        "mine": ("code", "code"),
    }


async def test_a_list_is_filtered_and_paged(shop):
    for n in range(7):
        with acting_as(Actor(f"user{n % 2}", "cli" if n < 5 else "api")):
            await shop.admin.pause(f"q{n}")
    everything = await shop.admin.audit()

    async def ids(**scope) -> list[str]:
        return [entry.ids[0] for entry in await shop.admin.audit(**scope)]

    assert await ids(limit=3) == ["q6", "q5", "q4"]
    assert await ids(limit=3, before=everything[2].id) == ["q3", "q2", "q1"]
    assert await ids(who="user1") == ["q5", "q3", "q1"]
    assert await ids(via="api") == ["q6", "q5"]
    assert await ids(thing="queue", id="q3") == ["q3"]
    assert await ids(thing="job", id="q3") == []
    assert await ids(verb="resume") == []
    assert await ids(since=everything[1].at) == ["q6", "q5"]
    assert await ids(until=everything[5].at) == ["q0"]
    assert await ids(id="q3", who="user0") == []
    with pytest.raises(ConfigError, match="limit must be from 1 to 1000, got 0"):
        await shop.admin.audit(limit=0)
    with pytest.raises(ConfigError, match="has no time zone"):
        await shop.admin.audit(since=datetime(2030, 1, 1))


async def test_strange_words_and_too_much_of_them_are_cut_to_size(shop, conn):
    trail = AuditTrail("howdah")
    with acting_as(Actor("a\0" + "x" * 500, "cli", "\ud800" + "y" * 500)):
        await trail.record(conn, "pause", "queue", list(range(5000)), before={"x": "y" * 100_000}, after={"é": 1})
    with acting_as(Actor("")):
        await trail.record(conn, "pause", "queue", ["a\0b"])

    second, first = await shop.admin.audit()
    assert (len(first.who), len(first.address), len(first.ids), first.count) == (200, 200, 1000, 5000)
    assert (first.before, first.after) == ({"bytes": 100_008}, {"é": 1})
    assert (second.who, second.ids) == ("unknown", ["ab"])


# -------------------------------------------------------------------- kept as it is


@pytest.mark.parametrize(
    "statement",
    ["update howdah.audit set who = 'eve'", "delete from howdah.audit", "truncate howdah.audit"],
    ids=["update", "delete", "truncate"],
)
async def test_nobody_changes_what_is_written(shop, conn, statement):
    await shop.admin.pause("mail")

    with pytest.raises(asyncpg.RestrictViolationError, match="the audit is append-only; prune_audit deletes"):
        await conn.execute(statement)


async def test_the_time_is_the_servers_whatever_is_said(shop, conn):
    await conn.execute(
        "insert into howdah.audit (at, who, via, verb, thing, count) values ('2001-01-01', 'eve', 'code', 'x', 'y', 1)"
    )

    assert await conn.fetchval("select at > now() - interval '1 hour' from howdah.audit")


AGED = """
alter table howdah.audit disable trigger guard;
update howdah.audit set at = now() - interval '8 days' where ids = '{a}';
update howdah.audit set at = now() - interval '6 days' where ids = '{b}';
update howdah.audit set at = now() - interval '400 days' where ids = '{c}';
alter table howdah.audit enable trigger guard
"""


async def test_old_entries_go_by_retention_and_young_ones_never(shop, conn, direct):
    for queue in "cabd":
        await shop.admin.pause(queue)
    await conn.execute(AGED)

    await Pruner(direct, Retention()).prune()
    usual = [entry.ids[0] for entry in await shop.admin.audit()]
    await conn.fetchval("select howdah.prune_audit(0)")
    floor = [entry.ids[0] for entry in await shop.admin.audit()]

    assert usual == ["d", "b", "a"]
    assert floor == ["d", "b"], "a week is kept, whatever is asked for"
    with pytest.raises(ConfigError, match=r"retention\.audit must be at least 7d, got 1m"):
        Retention(audit=60)
