"""Failures, grouped by error."""

from __future__ import annotations

from datetime import timedelta

import pytest

from howdah import ConfigError, Poison
from howdah.jobs.search import Filter
from kit.node import drain

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("KeyError: 'user 17'", "KeyError: '…'"),
        ('ValueError: bad "x" and `y`', "ValueError: bad '…' and '…'"),
        ("OSError: can't open 'a' or 'b'", "OSError: can't open '…' or '…'"),
        ("E: took 12.5 s at 10:30:01, 3 of 1,000", "E: took # s at #, # of #"),
        ("E: object at 0x7F3aB0 is gone", "E: object at # is gone"),
        ("E: 5f1c2a9b-1111-2222-3333-444455556666 not found", "E: # not found"),
        ("E: commit deadbeef01 of a decade", "E: commit # of a decade"),
        ("E: two\n  lines", "E: two lines"),
        ("E: utf8 decode of table_2", "E: utf# decode of table_#"),
    ],
    ids=["quotes", "other quotes", "apostrophe", "numbers", "address", "uuid", "hash", "lines", "within words"],
)
async def test_a_fingerprint_leaves_out_what_differs(conn, error, expected):
    assert await conn.fetchval("select howdah.fingerprint($1)", error) == expected


async def test_a_fingerprint_is_bounded(conn):
    assert await conn.fetchval("select length(howdah.fingerprint($1))", "E: " + "word " * 10_000) == 200
    assert await conn.fetchval("select howdah.fingerprint(null)") is None


@pytest.fixture
async def broken(app):
    @app.task(queue="mail")
    async def send(user: int) -> None:
        raise Poison(f"user {user} has no address '{user}@example.com'")

    @app.task(queue="bulk")
    async def ship(order: int) -> None:
        raise Poison("the lorry is gone" if order else "no such order")

    await app.enqueue_many(send.job(n) for n in range(30))
    await app.enqueue_many(send.using(queue="later").job(n) for n in range(3))
    await app.enqueue_many(ship.job(n) for n in range(10))
    await drain(app)
    yield app
    await app.close()


async def test_failures_are_grouped_by_kind_and_error(broken, conn):
    cancelled = [each.id for each in await broken.enqueue_many(broken.tasks["ship"].job(1) for _ in range(50))]
    await broken.admin.cancel(cancelled)

    found = await broken.admin.failures(newest=44)

    mail, lorry, order = found.groups
    assert (mail.kind, mail.error, mail.count, mail.queues) == ("send", "Poison", 33, ["later", "mail"])
    assert mail.fingerprint == "Poison: user # has no address '…'"
    assert mail.message.startswith("Poison: user ")
    assert (await broken.admin.get(mail.example)).error == mail.message
    assert mail.first_at <= mail.last_at
    assert [(group.kind, group.message, group.count) for group in (lorry, order)] == [
        ("ship", "Poison: the lorry is gone", 9),
        ("ship", "Poison: no such order", 1),
    ]
    assert (found.looked, found.more, found.cut) == (43, 0, False)


async def test_a_group_is_found_and_acted_on_by_its_fingerprint(broken):
    [mail, *_] = (await broken.admin.failures()).groups
    same = Filter(state="failed", kind=mail.kind, fingerprint=mail.fingerprint)

    count = await broken.admin.count(same)
    acted = await broken.admin.act("retry", same)

    assert (count.jobs, acted.did) == (33, 33)
    assert [group.count for group in (await broken.admin.failures()).groups] == [9, 1]


async def test_failures_are_bounded_and_say_so(broken, conn):
    few = await broken.admin.failures(newest=12, limit=1)
    of = await broken.admin.failures(queue="bulk", kind="ship")
    none = await broken.admin.failures(kind="unknown")
    await conn.execute("update howdah.done set finished_at = now() - interval '2 days' where id % 2 = 0")
    lately = await broken.admin.failures()
    ever = await broken.admin.failures(seconds=None)

    assert (few.looked, few.cut, len(few.groups), few.more) == (12, True, 1, 2)
    assert [group.count for group in of.groups] == [9, 1]
    assert (none.groups, none.looked, none.more) == ([], 43, 0)
    assert sum(group.count for group in lately.groups) in (21, 22)
    assert sum(group.count for group in ever.groups) == 43
    assert ever.groups[0].last_at - ever.groups[0].first_at > timedelta(days=1)
    with pytest.raises(ConfigError, match="newest must be from 1 to 100000, got 0"):
        await broken.admin.failures(newest=0)
