from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from ways import WAYS, AsyncWay, Way

from howdah import ConfigError, Howdah, Task
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier

Note = Task[[str], None]

HOSTILE = [
    'we"ird; drop--',
    "a:b",
    ":kind",
    "x::y :kind:",
    "a\\:kind",
    "50%",
    "%(other)s",
    "it's :kind",
    "{schema}",
    "$1 ünïcode",
]

TEXTS = [
    "ünïcode ✓ 🐘",
    'it\'s "quoted" \\ $1 $$',
    "100% %s %(kind)s %%",
    ":kind ::text \\:kind",
    "tab\tline\nend",
    "",
]


class Undo(Exception):
    """Raised inside a transaction to roll it back."""


def jobs(look: Any) -> list[Any]:
    return list(look.execute("select * from howdah.jobs order by id"))


def test_a_commit_enqueues_one_job(way: Way | AsyncWay, task: Note, look: Any) -> None:
    with way.transaction():
        made = way.enqueue(task, "hello")
        assert jobs(look) == []

    [job] = jobs(look)
    assert (made.id, made.fresh) == (job.id, True)
    assert (job.kind, job.queue, job.state, job.args) == ("note", "notes", "queued", {"text": "hello"})


def test_a_rollback_leaves_no_job(way: Way | AsyncWay, task: Note, look: Any) -> None:
    with suppress(Undo), way.transaction():
        way.enqueue(task, "hello")
        raise Undo

    assert jobs(look) == []
    assert look.execute("select count(*) from howdah.ready").fetchone() == (0,)


def test_only_a_commit_wakes_the_sleepers(way: Way | AsyncWay, task: Note, look: Any) -> None:
    look.execute("select howdah.announce_sleep(null, 60000)")
    look.execute(f"listen {look.execute('select howdah.channel()').fetchone()[0]}")

    with suppress(Undo), way.transaction():
        way.enqueue(task, "never")
        raise Undo
    with way.transaction():
        way.enqueue(task.using(queue="committed"), "hello")

    # notifications arrive in the order of commits, so the first one speaks for both
    assert next(look.notifies(timeout=10, stop_after=1)).payload == "committed"


def test_a_key_that_is_taken_gives_the_job_that_has_it(way: Way | AsyncWay, task: Note, look: Any) -> None:
    with way.transaction():
        first = way.enqueue(task.using(key="one: 100%"), "first")
        second = way.enqueue(task.using(key="one: 100%"), "second")

    assert first.fresh
    assert (second.id, second.fresh) == (first.id, False)
    assert [job.args for job in jobs(look)] == [{"text": "first"}]


@pytest.mark.parametrize("schema", HOSTILE)
def test_any_name_of_a_schema_works(schema: str, direct: Database, look: Any) -> None:
    app = Howdah(direct.dsn, schema=schema)
    asyncio.run(app.migrate())
    note = app.task(name="note")(lambda text: None)

    for name, open_way in WAYS.items():
        with open_way(direct.dsn) as way, way.transaction():
            way.enqueue(note, name)

    rows = look.execute(f"select args ->> 'text' as text from {identifier(schema)}.jobs order by id")
    assert [row.text for row in rows] == list(WAYS)
    assert jobs(look) == []


def test_arguments_arrive_byte_for_byte(way: Way | AsyncWay, task: Note, look: Any) -> None:
    sent = []

    with way.transaction():
        for text in TEXTS:
            said = task.using(meta={"said": text})
            way.enqueue(said, text)
            sent.append((said.job(text).payload, said.job(text).meta))

    rows = look.execute("select args::text, meta::text from howdah.job order by id")
    assert [(row.args.encode(), row.meta.encode()) for row in rows] == sent


def test_run_at_keeps_its_instant(way: Way | AsyncWay, task: Note, look: Any) -> None:
    at = datetime(2099, 3, 28, 23, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))

    with way.transaction():
        way.enqueue(task.using(run_at=at), "later")

    [job] = jobs(look)
    assert job.run_at == at
    assert look.execute("select due_at from howdah.later").fetchone().due_at == at


def test_a_delay_counts_from_the_clock_of_the_server(way: Way | AsyncWay, task: Note, look: Any) -> None:
    clock = "select clock_timestamp() as now"

    with way.transaction():
        before = look.execute(clock).fetchone().now
        way.enqueue(task.using(delay=90.5), "later")
        after = look.execute(clock).fetchone().now

    [job] = jobs(look)
    assert before <= job.run_at - timedelta(seconds=90.5) <= after


def test_every_setting_arrives(way: Way | AsyncWay, task: Note, look: Any) -> None:
    said = task.using(queue="q", priority=-7, max_attempts=3, timeout=2.5, key="k", meta={"by": "me"})

    with way.transaction():
        way.enqueue(said, "hello")

    [job] = jobs(look)
    assert (job.queue, job.priority, job.max_attempts, job.timeout) == ("q", -7, 3, 2.5)
    assert (job.key, job.meta, job.trace) == ("k", {"by": "me"}, None)
    assert job.enqueued_at <= datetime.now(UTC) + timedelta(minutes=1)


def test_the_wrong_call_says_which_is_right(way: Way | AsyncWay, task: Note, look: Any) -> None:
    name = type(way.conn).__name__

    if isinstance(way, AsyncWay):
        with pytest.raises(ConfigError, match=f"^{name} is asynchronous; await enqueue"):
            task.using(conn=way.conn).enqueue_sync("hello")
    else:
        with pytest.raises(ConfigError, match=f"^{name} is synchronous; call enqueue_sync"):
            asyncio.run(task.using(conn=way.conn).enqueue("hello"))

    assert jobs(look) == []
