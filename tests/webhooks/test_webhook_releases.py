"""Two releases that declare one webhook differently: the newest declaration counts, and they do not take turns."""

from __future__ import annotations

import pytest

from howdah import Howdah
from webhooks.conftest import LOCAL

pytestmark = pytest.mark.anyio

NARROW, WIDE = {"queues": ["mail"]}, {"queues": ["mail", "billing"]}


@pytest.fixture
async def start(database, receiver):
    """Starts a process that has the webhook with these settings; it has declared once."""
    started = []

    async def start(settings):
        app = Howdah(database.dsn)
        app.webhook(receiver.url, **{**LOCAL, **settings})
        relay = app.webhooks.relay(app.database)
        started.append((app, relay))
        await relay.declare()
        return relay

    yield start
    for app, relay in started:
        await relay.close()
        await app.close()


async def wants(conn):
    return await conn.fetchval("select queues from howdah.webhook")


async def unseen(conn, queues, by="5 minutes"):
    await conn.execute(
        "update howdah.webhook_declaration set seen_at = seen_at - $1::text::interval where queues = $2", by, queues
    )


async def delivered(conn, queue):
    """Whether a failure in this queue is written down."""
    await conn.execute("delete from howdah.notice")
    await conn.execute("select howdah.note('job.failed', '{}', $1, 'k')", queue)
    return await conn.fetchval("select count(*) = 1 from howdah.notice")


@pytest.mark.parametrize(("first", "second"), [(NARROW, WIDE), (WIDE, NARROW)], ids=["wider", "narrower"])
async def test_the_newest_declaration_counts_and_older_nodes_do_not_overwrite_it(conn, start, caplog, first, second):
    old = await start(first)
    new = await start(second)
    for _ in range(2):
        await old.declare()
        assert await wants(conn) == second["queues"]
        await new.declare()
        assert await wants(conn) == second["queues"]
    await start(first)
    assert await wants(conn) == second["queues"], "also when a node of the old release is started again"
    assert await delivered(conn, "mail")
    assert await delivered(conn, "billing") == ("billing" in second["queues"])
    warnings = [each.getMessage() for each in caplog.records if "webhook 'ops' is declared" in each.getMessage()]
    assert len(warnings) == 2, "one of each old node"


async def test_the_same_declaration_on_many_nodes_alarms_nobody(conn, start, caplog):
    """The control. The order of a list does not matter."""
    for settings in (WIDE, WIDE, {"queues": ["billing", "mail"]}):
        await start(settings)
    assert "is declared" not in caplog.text
    assert await conn.fetchval("select count(*) from howdah.webhook_declaration") == 1


async def test_a_release_that_is_rolled_back_gives_way(conn, start):
    old = await start(NARROW)
    await start(WIDE)
    await unseen(conn, WIDE["queues"])
    await old.declare()
    assert await wants(conn) == NARROW["queues"]


async def test_an_old_node_that_starts_right_after_an_outage_overwrites_nothing(conn, start):
    await start(NARROW)
    await start(WIDE)
    await unseen(conn, WIDE["queues"])
    old = await start(NARROW)
    assert await wants(conn) == WIDE["queues"]
    await old.declare()
    assert await wants(conn) == NARROW["queues"], "the control: the nodes of the new release did not return"


async def test_a_process_that_was_frozen_for_hours_is_no_new_release(conn, start):
    old, new = await start(NARROW), await start(WIDE)
    await unseen(conn, NARROW["queues"], "2 hours")
    await new.declare()
    await old.declare()
    assert await wants(conn) == WIDE["queues"]

    await unseen(conn, NARROW["queues"], "2 hours")
    await start(NARROW)
    assert await wants(conn) == NARROW["queues"], "the control: a process that starts is one"


async def test_a_new_declaration_is_the_newest_although_the_clock_of_the_server_went_back(conn, start):
    old = await start(NARROW)
    await conn.execute(
        "update howdah.webhook_declaration set declared_at = declared_at + interval '1 hour',"
        " seen_at = seen_at + interval '1 hour'"
    )
    await start(WIDE)
    await old.declare()
    assert await wants(conn) == WIDE["queues"]
