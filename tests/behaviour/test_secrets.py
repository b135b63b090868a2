"""Secrets in arguments: the handler gets them, nobody else sees them, whichever way a handler runs and fails."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from howdah import Cancel, Howdah, Poison, Secret, State, Transaction, telemetry
from howdah.jobs.rows import shown
from howdah.observe import tracing
from howdah.observe.failure_log import subscribe_logs
from howdah.observe.logs import JsonLines
from howdah.redact import Redact
from howdah.secrets import MARK
from howdah.testing import assert_enqueued, refute_enqueued
from kit.node import drain, ended, node
from kit.secret_app import leak

pytestmark = pytest.mark.anyio

CANARY = "Kanarienvogel-4711"


class Card(msgspec.Struct):
    number: Secret[str]
    holder: str


@dataclass
class Order:
    id: int
    cards: list[Card]


async def everything(conn: Any, *, but: tuple[str, ...] = ()) -> str:
    """All that our tables hold as text, but for some columns."""
    tables = await conn.fetch(
        "select relname from pg_class where relnamespace = 'howdah'::regnamespace and relkind in ('r', 'p')"
    )
    recorded = []
    for (table,) in tables:
        part = table.split("_")[0]
        rows = await conn.fetch(f'select * from howdah."{table}"')
        recorded += [str(value) for row in rows for name, value in row.items() if f"{part}.{name}" not in but]
    return "\n".join(recorded)


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    assert tracing.install(tracer_provider=provider)
    yield exporter
    tracing.uninstall()


async def test_a_handler_gets_its_secrets(app: Howdah, conn: Any) -> None:
    got = []

    @app.task
    async def charge(user: int, card: Secret[str], order: Order, more: list[Secret[int]]) -> None:
        got.extend([user, card, order, more])

    order = Order(1, [Card(Secret("n1"), "A"), Card(Secret("n2"), "B")])
    made = await charge.using(meta={"team": "a"}).enqueue(7, Secret(CANARY), order, [Secret(1), Secret(2)])
    await drain(app)

    assert got == [7, Secret(CANARY), order, [Secret(1), Secret(2)]]
    row = await app.admin.get(made.id)
    assert row.args["card"] == CANARY
    assert row.meta == {"team": "a", MARK: ["/card", "/order/cards/*/number", "/more/*"]}
    seen = shown(row, Redact())
    assert seen.meta == {"team": "a"}
    assert seen.args == {
        "user": 7,
        "card": "***",
        "order": {"id": 1, "cards": [{"number": "***", "holder": "A"}, {"number": "***", "holder": "B"}]},
        "more": ["***", "***"],
    }


@pytest.mark.parametrize("way", ["one", "many", "together", "sync", "schedule"])
async def test_every_way_to_enqueue_marks_the_secrets(app: Howdah, conn: Any, way: str) -> None:
    @app.task
    async def charge(card: Secret[str]) -> None: ...

    job = charge.job(Secret(CANARY))
    if way == "one":
        await charge.using(conn=conn).enqueue(Secret(CANARY))
    elif way == "many":
        await app.enqueue_many([job, job])
    elif way == "together":
        await asyncio.gather(*(charge.enqueue(Secret(CANARY)) for _ in range(5)))
    elif way == "sync":
        await asyncio.to_thread(charge.enqueue_sync, Secret(CANARY))
    else:
        assert app.schedule("s", job, cron="* * * * *").job.meta == job.meta
        await app.enqueue(app.schedules["s"].job)

    for row in await app.admin.list():
        assert (row.args, row.meta) == ({"card": CANARY}, {MARK: ["/card"]})
        assert CANARY not in str(shown(row, app.redact))


class Failed:
    """What is left of a job that failed with its secret in its mouth."""

    def __init__(self, app: Howdah, conn: Any, caplog: Any, spans: Any) -> None:
        self._app, self._conn, self._caplog, self._spans = app, conn, caplog, spans

    async def of(self, job: Any, state: str = "failed") -> Any:
        self._caplog.set_level(logging.DEBUG)
        lines: list[str] = []

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                lines.append(JsonLines().format(record))

        handler, stop = Handler(), subscribe_logs()
        logging.getLogger().addHandler(handler)
        facts: list[Any] = []
        hear = telemetry.subscribe(lambda name, text: facts.append((name, text)))
        try:
            made = await self._app.enqueue(job)
            async with node(self._app):
                row = await ended(self._conn, made.id, 30)
        finally:
            logging.getLogger().removeHandler(handler)
            stop()
            hear()
        assert row["state"] == state
        for text in (
            await everything(self._conn, but=("job.args",)),
            "\n".join(lines),
            str(facts),
            str([span.to_json() for span in self._spans.get_finished_spans()]),
        ):
            assert len(text) > 100
            assert CANARY not in text
        self.lines = lines
        return await self._app.admin.get(made.id)


@pytest.fixture
def failed(app, conn, caplog, spans) -> Failed:
    return Failed(app, conn, caplog, spans)


async def test_a_coroutine_that_tells(app: Howdah, failed: Failed, conn: Any) -> None:
    @app.task(max_attempts=1)
    async def charge(card: Secret[str]) -> None:
        leak(card)

    row = await failed.of(charge.job(Secret(CANARY)))

    assert row.error == "RuntimeError: {'card': '***'}"
    assert "ValueError: first ***" in row.attempts[0].traceback
    assert any('"message": "charging ***"' in line for line in failed.lines)
    lines = [each["line"] for each in await conn.fetch("select line from howdah.job_log order by seq")]
    assert lines == ["card ***", "x" * 9_995 + "***"]


async def test_a_thread_that_tells(app: Howdah, failed: Failed) -> None:
    @app.task(max_attempts=1)
    def charge(card: Secret[str]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        leak(card)

    row = await failed.of(charge.job(Secret(CANARY)))

    assert "'card': '***'" in row.error


async def test_a_process_that_tells(app: Howdah, failed: Failed) -> None:
    app.task(max_attempts=1, executor="process")(leak)

    row = await failed.of(app.tasks["leak"].job(Secret(CANARY)))

    assert "'card': '***'" in row.error


async def test_a_transaction_that_tells(app: Howdah, failed: Failed) -> None:
    @app.task(max_attempts=1, transactional=True)
    async def charge(tx: Transaction, card: Secret[str]) -> None:
        await tx.execute("select $1::text::int", card.reveal())

    row = await failed.of(charge.job(Secret(CANARY)))

    assert '"***"' in row.error


async def test_a_handler_that_cancels_and_tells_why(app: Howdah, failed: Failed) -> None:
    @app.task
    async def charge(card: Secret[str]) -> Any:
        return Cancel(f"not {card.reveal()}")

    row = await failed.of(charge.job(Secret(CANARY)), "cancelled")

    assert "not ***" in str(row)


async def test_a_handler_that_poisons(app: Howdah, failed: Failed) -> None:
    @app.task
    async def charge(card: Secret[str]) -> None:
        raise Poison(card.reveal()[::-1], card.reveal())

    await failed.of(charge.job(Secret(CANARY)))


async def test_a_result_that_is_a_secret_is_not_kept(app: Howdah, failed: Failed) -> None:
    @app.task
    async def charge(card: Secret[str]) -> Any:
        return {"card": card}

    row = await failed.of(charge.job(Secret(CANARY)), "done")

    assert row.result is None
    assert "ResultNotStored" in row.error


async def test_a_job_of_another_language_can_mark_its_own(app: Howdah, conn: Any) -> None:
    """By plain SQL, with a handler that knows nothing of secrets, and with one that does and no mark."""

    @app.task(max_attempts=1)
    async def plain(auth: dict[str, Any]) -> None:
        raise RuntimeError(auth["pin"])

    @app.task(max_attempts=1)
    async def typed(card: Secret[str]) -> None:
        raise RuntimeError(card.reveal())

    enqueue = "select id from howdah.enqueue($1, $2::json, meta => $3::json)"
    marked = await conn.fetchval(
        enqueue, "plain", json.dumps({"auth": {"pin": CANARY}}).encode(), b'{"howdah.secrets": ["/auth/pin"]}'
    )
    unmarked = await conn.fetchval(enqueue, "typed", json.dumps({"card": CANARY}).encode(), None)
    await drain(app)

    assert CANARY not in await everything(conn, but=("job.args",))
    seen = [shown(await app.admin.get(id), app.redact) for id in (marked, unmarked)]
    assert seen[0].args == {"auth": {"pin": "***"}}
    assert [each.error for each in seen] == ["RuntimeError: ***"] * 2


async def test_one_job_does_not_hide_what_another_was_told(app: Howdah, conn: Any) -> None:
    @app.task(max_attempts=1)
    async def charge(card: Secret[str]) -> None: ...

    @app.task(max_attempts=1)
    async def other(word: str) -> None:
        raise RuntimeError(word)

    ids = []
    for _ in range(5):
        await charge.enqueue(Secret(CANARY))
        ids.append((await other.enqueue(CANARY)).id)
    await drain(app, slots=1)

    assert {(await app.admin.get(id)).error for id in ids} == {f"RuntimeError: {CANARY}"}


async def test_a_list_leaves_out_arguments_whose_marks_are_too_large_to_list(app: Howdah) -> None:
    @app.task
    async def charge(card: Secret[str]) -> None: ...

    await charge.using(meta={"much": "x" * 3000}).enqueue(Secret(CANARY))

    [row] = await app.admin.list(State.QUEUED)
    assert row.meta is None
    assert row.args is None
    assert (await app.admin.get(row.id)).args == {"card": CANARY}


async def test_the_test_kit_finds_secrets_and_does_not_show_them(app: Howdah) -> None:
    @app.task
    async def charge(card: Secret[str], user: int = 1) -> None: ...

    await charge.enqueue(Secret(CANARY))

    await assert_enqueued(app, charge, Secret(CANARY))
    await assert_enqueued(app, charge, card=CANARY)
    await refute_enqueued(app, charge, Secret("another"))
    with pytest.raises(AssertionError) as caught:
        await refute_enqueued(app, charge, Secret(CANARY))
    with pytest.raises(AssertionError) as also:
        await assert_enqueued(app, charge, Secret(CANARY), 2)
    assert CANARY not in str(caught.value) + str(also.value)
    assert 'charge(card="***"' in str(also.value)
