from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from foreign_connections import FOREIGN_CONNECTIONS, AsyncForeignConnection, ForeignConnection

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


def jobs(observer: Any) -> list[Any]:
    return list(observer.execute("select * from howdah.jobs order by id"))


def test_a_commit_enqueues_one_job(
    foreign: ForeignConnection | AsyncForeignConnection, task: Note, observer: Any
) -> None:
    with foreign.transaction():
        made = foreign.enqueue(task, "hello")
        assert jobs(observer) == []

    [job] = jobs(observer)
    assert (made.id, made.fresh) == (job.id, True)
    assert (job.kind, job.queue, job.state, job.args) == ("note", "notes", "queued", {"text": "hello"})


def test_a_rollback_leaves_no_job(
    foreign: ForeignConnection | AsyncForeignConnection, task: Note, observer: Any
) -> None:
    with suppress(Undo), foreign.transaction():
        foreign.enqueue(task, "hello")
        raise Undo

    assert jobs(observer) == []
    assert observer.execute("select count(*) from howdah.ready").fetchone() == (0,)


def test_only_a_commit_wakes_the_sleepers(
    foreign: ForeignConnection | AsyncForeignConnection, task: Note, observer: Any
) -> None:
    observer.execute("select howdah.announce_sleep(null, 60000)")
    observer.execute(f"listen {observer.execute('select howdah.channel()').fetchone()[0]}")

    with suppress(Undo), foreign.transaction():
        foreign.enqueue(task, "never")
        raise Undo
    with foreign.transaction():
        foreign.enqueue(task.using(queue="committed"), "hello")

    # notifications arrive in the order of commits, so the first one speaks for both
    assert next(observer.notifies(timeout=10, stop_after=1)).payload == "committed"


def test_a_key_that_is_taken_gives_the_job_that_has_it(
    foreign: ForeignConnection | AsyncForeignConnection, task: Note, observer: Any
) -> None:
    with foreign.transaction():
        first = foreign.enqueue(task.using(key="one: 100%"), "first")
        second = foreign.enqueue(task.using(key="one: 100%"), "second")

    assert first.fresh
    assert (second.id, second.fresh) == (first.id, False)
    assert [job.args for job in jobs(observer)] == [{"text": "first"}]


@pytest.mark.parametrize("schema", HOSTILE)
def test_any_name_of_a_schema_works(schema: str, direct: Database, observer: Any) -> None:
    app = Howdah(direct.dsn, schema=schema)
    asyncio.run(app.migrate())
    note = app.task(name="note")(lambda text: None)

    for name, open_way in FOREIGN_CONNECTIONS.items():
        with open_way(direct.dsn) as foreign, foreign.transaction():
            foreign.enqueue(note, name)

    rows = observer.execute(f"select args ->> 'text' as text from {identifier(schema)}.jobs order by id")
    assert [row.text for row in rows] == list(FOREIGN_CONNECTIONS)
    assert jobs(observer) == []


def test_arguments_arrive_byte_for_byte(
    foreign: ForeignConnection | AsyncForeignConnection, task: Note, observer: Any
) -> None:
    sent = []

    with foreign.transaction():
        for text in TEXTS:
            configured = task.using(meta={"said": text})
            foreign.enqueue(configured, text)
            sent.append((configured.job(text).payload, configured.job(text).meta))

    rows = observer.execute("select args::text, meta::text from howdah.job order by id")
    assert [(row.args.encode(), row.meta.encode()) for row in rows] == sent


def test_run_at_keeps_its_instant(
    foreign: ForeignConnection | AsyncForeignConnection, task: Note, observer: Any
) -> None:
    at = datetime(2099, 3, 28, 23, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))

    with foreign.transaction():
        foreign.enqueue(task.using(run_at=at), "later")

    [job] = jobs(observer)
    assert job.run_at == at
    assert observer.execute("select due_at from howdah.later").fetchone().due_at == at


def test_a_delay_counts_from_the_clock_of_the_server(
    foreign: ForeignConnection | AsyncForeignConnection, task: Note, observer: Any
) -> None:
    clock = "select clock_timestamp() as now"

    with foreign.transaction():
        before = observer.execute(clock).fetchone().now
        foreign.enqueue(task.using(delay=90.5), "later")
        after = observer.execute(clock).fetchone().now

    [job] = jobs(observer)
    assert before <= job.run_at - timedelta(seconds=90.5) <= after


def test_every_setting_arrives(foreign: ForeignConnection | AsyncForeignConnection, task: Note, observer: Any) -> None:
    configured = task.using(queue="q", priority=-7, max_attempts=3, timeout=2.5, key="k", meta={"by": "me"})

    with foreign.transaction():
        foreign.enqueue(configured, "hello")

    [job] = jobs(observer)
    assert (job.queue, job.priority, job.max_attempts, job.timeout) == ("q", -7, 3, 2.5)
    assert (job.key, job.meta, job.trace) == ("k", {"by": "me"}, None)
    assert job.enqueued_at <= datetime.now(UTC) + timedelta(minutes=1)


def test_the_wrong_call_says_which_is_right(
    foreign: ForeignConnection | AsyncForeignConnection, task: Note, observer: Any
) -> None:
    name = type(foreign.conn).__name__

    if isinstance(foreign, AsyncForeignConnection):
        with pytest.raises(ConfigError, match=f"^{name} is asynchronous; await enqueue"):
            task.using(conn=foreign.conn).enqueue_sync("hello")
    else:
        with pytest.raises(ConfigError, match=f"^{name} is synchronous; call enqueue_sync"):
            asyncio.run(task.using(conn=foreign.conn).enqueue("hello"))

    assert jobs(observer) == []
