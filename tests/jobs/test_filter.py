"""Filter: lists, counts and acts that mean the same jobs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from howdah import Backoff, ConfigError, HowdahError, Poison, Secret
from howdah.jobs import search
from howdah.jobs.search import Filter
from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC)
HISTORY = """
insert into howdah.job (id, queue, kind, key, args, enqueued_at)
    select i, 'mail', case when i % 100 = 0 then 'rare' else 'send' end, case when i % 10 = 0 then 'key ' || i % 50 end,
        json_build_object('n', i), $1::timestamptz - (20000 - i) * interval '1 minute'
    from generate_series(1, 20000) i;
insert into howdah.done (id, attempt, state, error, finished_at)
    select i, 1, case when i % 4 = 0 then 'f' when i % 4 = 1 then 'c' else 'd' end::"char",
        case when i % 4 = 0 then 'ValueError: job ' || i || ' broke' end,
        $1::timestamptz - (20000 - i) * interval '1 minute'
    from generate_series(1, 20000) i;
select setval('howdah.job_id', 20000), howdah.grow();
"""
"""Twenty thousand jobs, one a minute; a quarter each failed and cancelled."""


@pytest.fixture
async def old(app, conn):
    """An application with a long history."""
    for statement in HISTORY.split(";\n"):
        if statement.strip():
            await conn.execute(statement.replace("$1", f"'{NOW.isoformat()}'"), timeout=60)

    @app.task(queue="mail")
    async def send(n: int = 0) -> None: ...

    @app.task(queue="mail")
    async def poison() -> None:
        raise Poison("never")

    yield app
    await app.close()


def minutes(n: int) -> datetime:
    """When job 20,000 - n was enqueued."""
    return NOW - timedelta(minutes=n)


async def walk(app, filter: Filter, limit: int = 300) -> list[int]:
    """Every job that fits, page by page."""
    found, before = [], None
    while True:
        page = await app.admin.list(filter, before=before, limit=limit)
        found += [row.id for row in page]
        if page.next is None:
            return found
        before = page.next


CASES = {
    "all of a kind": (Filter(kind="rare"), lambda i: i % 100 == 0),
    "failed of a kind": (Filter(state="failed", kind="rare"), lambda i: i % 100 == 0),
    "done of a kind": (Filter(state="done", kind="rare"), lambda i: False),
    "done": (Filter(state="done", enqueued_after=minutes(500)), lambda i: i >= 19_500 and i % 4 in (2, 3)),
    "key": (Filter(key="key 20"), lambda i: i % 50 == 20),
    "key of failed": (Filter(key="key 20", state="failed"), lambda i: i % 50 == 20 and i % 4 == 0),
    "key of done in a queue": (
        Filter(key="key 10", state="done", queue="mail"),
        lambda i: i % 50 == 10 and i % 4 in (2, 3),
    ),
    "key elsewhere": (Filter(key="key 10", queue="other"), lambda i: False),
    "enqueued": (
        Filter(enqueued_after=minutes(6000), enqueued_before=minutes(5990)),
        lambda i: 14_000 <= i < 14_010,
    ),
    "finished": (
        Filter(state="failed", finished_after=minutes(6000), finished_before=minutes(5900)),
        lambda i: 14_000 <= i < 14_100 and i % 4 == 0,
    ),
    "finished in any state": (
        Filter(finished_after=minutes(10), finished_before=minutes(5)),
        lambda i: 19_990 <= i < 19_995,
    ),
    "text in args": (Filter(text=": 1234"), lambda i: str(i).startswith("1234")),
    "text in an error": (Filter(text="job 77 "), lambda i: False),
    "text in an error of failed": (Filter(state="failed", text="job 76 "), lambda i: i == 76),
    "text that is no pattern": (Filter(text="job .* %"), lambda i: False),
    "text of cancelled": (Filter(state="cancelled", text="13333"), lambda i: i == 13_333),
    "text of done": (Filter(state="done", text=": 19998"), lambda i: i == 19_998),
    "fingerprint": (Filter(state="failed", fingerprint="ValueError: job # broke", kind="rare"), lambda i: i % 100 == 0),
    "another fingerprint": (Filter(state="failed", fingerprint="ValueError: job 4 broke"), lambda i: False),
}


@pytest.mark.parametrize("case", sorted(CASES))
async def test_pages_and_counts_have_all_that_fit_and_nothing_else(old, case):
    filter, fits = CASES[case]
    expected = [i for i in range(20_000, 0, -1) if fits(i)]

    assert await walk(old, filter) == expected
    assert await walk(old, filter, limit=7 if len(expected) < 100 else 1000) == expected
    count = await old.admin.count(filter)
    assert (count.jobs, count.more) == (len(expected), False)


async def test_counts_stop_where_they_are_told(old):
    count = await old.admin.count(most=10_001)
    few = await old.admin.count("failed", most=100)
    exact = await old.admin.count("failed", most=5001)

    assert (str(count), count.jobs, count.more) == ("10,000+", 10_000, True)
    assert (str(few), str(exact)) == ("99+", "5,000")
    with pytest.raises(ConfigError, match="most must be from 1 to 100001, got 1000000"):
        await old.admin.count(most=1_000_000)


async def test_what_waits_and_runs_is_counted_from_runs(app, conn):
    gate = asyncio.Event()

    @app.task(queue="slow")
    async def wait() -> None:
        await gate.wait()

    @app.task(queue="mail", retry=Backoff(first=3600, jitter=0))
    async def stumble(n: int = 0) -> None:
        raise ValueError(f"no way {n}")

    await stumble.enqueue(17)
    await drain(app)
    await app.enqueue_many(wait.job() for _ in range(30_000))
    await stumble.using(delay=500, key="k").enqueue()
    try:
        async with node(app, slots=5):
            await eventually(lambda: conn.fetchval("select count(*) from howdah.lease"))
            queued, running = await app.admin.count("queued"), await app.admin.count("running")
            of = [str(await app.admin.count(state, queue="slow", kind="wait")) for state in ("queued", "running")]
            none = await app.admin.count("running", queue="mail")
            keyed = await app.admin.count("queued", key="k")
            listed = await app.admin.list("running", text="{")
            gate.set()
            await app.admin.pause("slow")
            app_text = await app.admin.list("queued", text="no way 17")
    finally:
        gate.set()

    assert running.jobs >= 5
    assert queued.jobs + running.jobs == 30_002
    assert of == [f"{queued.jobs - 2:,}", f"{running.jobs:,}"]
    assert (none.jobs, keyed.jobs, queued.more) == (0, 1, False)
    assert {row.state for row in listed} == {"running"}
    assert [row.kind for row in app_text] == ["stumble"], "the error of its last attempt"
    await app.close()


async def test_a_search_that_takes_too_long_says_how_far_it_came_and_goes_on_from_there(old, monkeypatch):
    monkeypatch.setattr(search, "READ_TIMEOUT", 0.0001)
    monkeypatch.setattr(search, "WITHIN", "select $1::text")
    monkeypatch.setattr(search, "LARGEST_WINDOW", 1500)

    first = await old.admin.list(text=": 1234", limit=50)
    count = await old.admin.count(text=": 1")
    pages, found, page = 1, list(first), first
    while page.next is not None:
        page = await old.admin.list(text=": 1234", limit=50, before=page.next)
        pages, found = pages + 1, found + list(page)

    assert (first.cut, list(first), first.looked) == (True, [], 1000)
    assert count.more
    assert pages > 5
    assert [row.id for row in found] == [*range(12_349, 12_339, -1), 1234]


async def test_a_window_that_is_cut_short_keeps_what_was_found_before(old, conn, monkeypatch):
    """The last window waits for a lock and is stopped; what was found until then is answered."""
    monkeypatch.setattr(search, "READ_TIMEOUT", 1.0)
    once = search.Search._window

    async def locked(self, reader, filter, before, size, most):
        if before < search.NEWEST:
            await reader.fetch("select pg_sleep(60)")
        return await once(self, reader, filter, before, size, most)

    monkeypatch.setattr(search.Search, "_window", locked)

    page = await old.admin.list(text=": 1999", limit=50)

    assert page.cut
    assert [row.id for row in page] == list(range(19_999, 19_989, -1))
    assert page.looked == 1000
    assert page.next == 19_001


async def test_nothing_found_in_time_is_an_error_not_an_empty_list(old, conn, monkeypatch):
    monkeypatch.setattr(search, "READ_TIMEOUT", 0.2)
    async with conn.transaction():
        await conn.execute("lock table howdah.job in access exclusive mode")

        with pytest.raises(HowdahError, match=r"took longer than 0\.2 s and was stopped"):
            await old.admin.count(kind="send")


# -------------------------------------------------------------------- acts


async def test_an_act_meets_every_job_that_fits_in_small_transactions(old, conn):
    heard = []

    acted = await old.admin.act("retry", Filter(state="cancelled"), progress=heard.append)

    assert (acted.did, acted.left, acted.next) == (5000, 0, None)
    assert [each.did for each in heard][:5] == [1000, 2000, 3000, 4000, 5000]
    assert await conn.fetchval("select count(*) from howdah.audit") == 5, "a record with every transaction"
    assert str(await old.admin.count("cancelled")) == "0"
    assert (await old.admin.count("queued")).jobs == 5000


async def test_jobs_that_fail_again_meanwhile_are_not_met_again(old, conn):
    """Nor are those that came later."""
    made = [each.id for each in await old.enqueue_many(old.tasks["poison"].job() for _ in range(1500))]
    await drain(old)
    met: list[int] = []

    def heard(acted) -> None:
        met.extend(each.id for each in acted.chunk)

    working = asyncio.create_task(drain(old))
    acted = await old.admin.act("retry", Filter(kind="poison"), progress=heard)
    await working
    await drain(old)
    late = await old.tasks["poison"].enqueue()
    await drain(old)
    again = await old.admin.act("retry", Filter(kind="poison"), before=late.id)

    assert sorted(met) == made
    assert acted.did == 1500
    assert again.did == 1500
    assert (await old.admin.get(late.id)).state == "failed"


async def test_an_act_leaves_alone_what_cannot_be(old):
    """Of jobs that failed with the same key only one can come back."""
    acted = await old.admin.act("retry", Filter(state="failed", key="key 20"))

    assert (acted.did, acted.left, acted.next) == (1, 199, None)
    assert {each.result for each in acted.chunk if not each.did} == {"key held by job 20"}


async def test_an_act_that_was_ended_goes_on_where_it_was(old):
    class Enough(Exception): ...

    seen = []

    def enough(acted) -> None:
        seen.append(acted)
        if len(seen) == 2:
            raise Enough

    with pytest.raises(Enough):
        await old.admin.act("delete", Filter(state="cancelled"), progress=enough)
    rest = await old.admin.act("delete", Filter(state="cancelled"), before=seen[-1].next)
    limited = await old.admin.act("delete", Filter(state="done", queue="mail"), limit=1700)

    assert (seen[-1].did, rest.did) == (2000, 3000)
    assert str(await old.admin.count("cancelled")) == "0"
    assert (limited.did, limited.next is not None) == (1700, True)
    assert str(await old.admin.count("done")) == "8,300"


async def test_waiting_jobs_are_moved_and_reprioritized_by_filter(old, conn):
    await old.enqueue_many(old.tasks["send"].job(n) for n in range(2500))
    await old.tasks["send"].using(delay=500).enqueue(7)

    moved = await old.admin.act("move", Filter(queue="mail"), to="bulk")
    raised = await old.admin.act("reprioritize", Filter(queue="bulk", text='"n":2499'), to=10)
    cancelled = await old.admin.act("cancel", Filter(queue="bulk"), limit=100)

    assert (moved.did, raised.did, cancelled.did) == (2501, 1, 100)
    assert await conn.fetchval("select array_agg(distinct queue) from howdah.ready") == ["bulk"]
    assert await conn.fetchval("select count(*) from howdah.ready where priority = 10") == 0, "it was among the newest"
    assert await conn.fetchval("select count(*) from howdah.job where priority = 10") == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("retry", Filter(state="done")), "only failed and cancelled jobs can be retried, got state 'done'"),
        (("delete", Filter(state="running")), "can be deleted, got state 'running'"),
        (("delete", Filter()), "can be deleted, got state none"),
        (("move", Filter(state="failed"), "q"), "only queued jobs can be moved"),
        (("move", Filter()), "queue must be"),
        (("retry", Filter(), "q"), "retry takes no value, got 'q'"),
        (("explode", Filter()), "there is no action 'explode'; use retry, cancel, delete, reprioritize, move"),
    ],
    ids=["done", "running", "nothing said", "not waiting", "nowhere", "too much", "unknown"],
)
async def test_acts_refuse_what_cannot_be(app, call, message):
    verb, filter, *to = call
    with pytest.raises(ConfigError, match=message):
        await app.admin.act(verb, filter, to=to[0] if to else None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"state": "lost"}, "there is no state 'lost'; use queued"),
        ({"enqueued_after": datetime(2030, 1, 1)}, "has no time zone; add one"),
        ({"state": "queued", "finished_after": NOW}, "no queued job has finished"),
        ({"fingerprint": "E"}, "only failed and cancelled jobs have a fingerprint"),
        ({"text": "a\0b"}, "text must be at most 1000 characters"),
        ({"queue": "x" * 2000}, "queue must be at most 1000 characters"),
    ],
    ids=["state", "zone", "finished", "fingerprint", "nul", "long"],
)
def test_a_filter_refuses_what_cannot_be(fields, message):
    with pytest.raises(ConfigError, match=message):
        Filter(**fields)


async def test_arguments_with_a_secret_among_them_are_not_searched(app):
    """Who may look, but not see the secret, could find it letter by letter."""

    @app.task
    async def charge(user: str, card: Secret[str]) -> None: ...

    @app.task
    async def greet(user: str) -> None: ...

    await charge.enqueue("ada", Secret("4111"))
    open_one = await greet.enqueue("ada")
    for text in ("4111", "41"):
        assert list(await app.admin.list(text=text)) == []
        assert list(await app.admin.list("queued", text=text)) == []
    assert [row.id for row in await app.admin.list(text="ada")] == [open_one.id]
    await app.admin.cancel([1])
    assert list(await app.admin.list("cancelled", text="4111")) == []
