"""One trace runs from an append through a consumer to the jobs and events it makes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from howdah import Backoff, Howdah, current_event, telemetry
from howdah.errors import HowdahError
from howdah.observe import tracing
from kit.node import drain

pytestmark = pytest.mark.anyio
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-b7ad6b7169203331-01"
PLACED = {"type": "Placed", "data": {}}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    """Finished spans end up in ``exporter``."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    tracing.uninstall()


@pytest.fixture
def without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("opentelemetry", "howdah.observe.spans"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert tracing.install() is False
    assert not telemetry.around
    yield
    tracing.uninstall()


async def append_in(app: Howdah, conn: Any, trace: str, stream: str = "Order-1") -> None:
    """As any language does it."""
    await conn.execute('select howdah.append($1, \'[{"type": "Placed", "data": {}}]\', trace => $2)', stream, trace)


@pytest.mark.parametrize("parent", [False, True])
async def test_from_the_append_through_the_consumer_to_its_job(
    app: Howdah, provider: TracerProvider, exporter: InMemorySpanExporter, parent: bool
) -> None:
    @app.task(name="send")
    async def send() -> None: ...

    @app.consumer("Mail")
    async def mail(event: Any, tx: Any) -> None:
        await app.enqueue(send.job(), tx)

    assert tracing.install(parent=parent, tracer_provider=provider)
    with provider.get_tracer("web").start_as_current_span("request"):
        appended = await app.log.append("Order-1", PLACED)
        await drain(app)  # within a span of its own, which must not become the parent
        await drain(app)

    request, consumed, job = (_named(exporter, name) for name in ("request", "process Mail", "process send"))
    if parent:
        assert consumed.context.trace_id == job.context.trace_id == request.context.trace_id
        assert [consumed.parent.span_id, job.parent.span_id] == [request.context.span_id, consumed.context.span_id]
    else:
        assert consumed.parent is None
        assert _links(consumed) == [request.context.span_id]
        assert _links(job) == [consumed.context.span_id]
    assert consumed.attributes["messaging.destination.name"] == "log"
    assert consumed.attributes["messaging.message.id"] == str(appended.position)


async def test_a_batch_is_one_span_linked_to_all_it_comes_from(
    app: Howdah, conn: Any, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    @app.task(name="send")
    async def send() -> None: ...

    @app.consumer("Mail")
    async def mail(events: Any, tx: Any) -> None:
        await app.enqueue(send.job(), tx)

    for trace, stream in ((CALLER, "Order-1"), (CALLER, "Order-2"), (OTHER, "Order-3")):
        await append_in(app, conn, trace, stream)
    tracing.install(parent=True, tracer_provider=provider)
    with provider.get_tracer("cron").start_as_current_span("node"):
        await drain(app)
        await drain(app)

    consumed, job = _named(exporter, "process Mail"), _named(exporter, "process send")
    assert consumed.parent is None
    assert [f"{link.context.trace_id:032x}" for link in consumed.links] == [CALLER[3:35], OTHER[3:35]]
    assert job.parent.span_id == consumed.context.span_id


async def test_an_error_of_a_consumer_is_in_its_span(
    app: Howdah, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    @app.consumer("Mail", max_failures=1)
    async def mail(event: Any) -> None:
        raise ValueError("refused with token=abcdef")

    tracing.install(tracer_provider=provider)
    await app.log.append("Order-1", PLACED)
    await drain(app)

    span = _named(exporter, "process Mail")
    assert span.status.description == "ValueError: refused with token=***"


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.usefixtures("without_opentelemetry")
async def test_without_opentelemetry_the_trace_is_carried_on(app: Howdah, conn: Any, batched: bool) -> None:
    @app.task(name="send")
    async def send() -> None: ...

    if batched:

        @app.consumer("Mail", only=["Order"])
        async def mail_all(events: Any, tx: Any) -> None:
            await app.enqueue(send.job(), tx)
            await app.log.append("Mail-1", PLACED, conn=tx)
    else:

        @app.consumer("Mail", only=["Order"])
        async def mail(event: Any, tx: Any) -> None:
            await app.enqueue(send.job(), tx)
            await app.log.append("Mail-1", PLACED, conn=tx)

    await append_in(app, conn, CALLER)
    await drain(app)

    assert await conn.fetchval("select trace from howdah.job where kind = 'send'") == CALLER
    assert await conn.fetchval("select trace from howdah.event where stream_type = 'Mail'") == CALLER


@pytest.mark.usefixtures("without_opentelemetry")
async def test_a_batch_of_several_traces_takes_none_for_its_own(app: Howdah, conn: Any) -> None:
    """Nor the one of an event it failed on before, whose name is no longer there either."""
    carried: list[tuple[int, str | None]] = []
    failed: list[int] = []

    @app.consumer("Mail", batch=2, retry=Backoff(first=0.0, jitter=0))
    async def mail(events: Any) -> None:
        if len(failed) < 2:
            failed.append(events[0].position)
            raise ValueError("not yet")
        try:
            current_event()
        except HowdahError:
            carried.append((len(events), telemetry.trace_context()))

    for trace, stream in ((CALLER, "Order-1"), (OTHER, "Order-2"), (CALLER, "Order-3"), (OTHER, "Order-4")):
        await append_in(app, conn, trace, stream)
    for _ in range(5):
        await drain(app)
        if carried:
            break  # a consumer that waits to try again does not keep a drain from ending

    assert len(failed) == 2
    assert carried[-1] == (2, None) or carried[-2:] == [(2, None), (1, OTHER)]


def _links(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def _named(exporter: InMemorySpanExporter, name: str) -> Any:
    [span] = [span for span in exporter.get_finished_spans() if span.name == name]
    return span
