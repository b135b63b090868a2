"""A trace goes on from the enqueue to the handler and to the jobs it enqueues."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from howdah import Howdah, Poison, telemetry
from howdah.observe import tracing
from kit.node import drain

pytestmark = pytest.mark.anyio
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


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


async def test_a_handler_runs_in_a_span_linked_to_its_enqueue(
    app: Howdah, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    @app.task(name="first", queue="mail")
    async def first() -> None:
        await second.enqueue()

    @app.task(name="second", queue="mail")
    def second() -> None: ...

    assert tracing.install(tracer_provider=provider)
    with provider.get_tracer("web").start_as_current_span("request"):
        enqueued = await first.enqueue()
        await drain(app)  # within a span of its own, which must not become the parent

    request, one, two = (_named(exporter, name) for name in ("request", "process first", "process second"))
    assert one.kind is trace.SpanKind.CONSUMER
    assert one.parent is None
    assert [link.context.span_id for link in one.links] == [request.context.span_id]
    assert [link.context.span_id for link in two.links] == [one.context.span_id]
    assert one.attributes == {
        "messaging.system": "howdah",
        "messaging.destination.name": "mail",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": str(enqueued.id),
        "howdah.kind": "first",
        "howdah.attempt": 1,
    }


async def test_a_handler_can_be_a_child_of_its_enqueue(
    app: Howdah, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    @app.task(name="child")
    def child() -> None: ...

    tracing.install(parent=True, tracer_provider=provider)
    with provider.get_tracer("web").start_as_current_span("request"):
        await child.enqueue()
    await drain(app)

    request, span = _named(exporter, "request"), _named(exporter, "process child")
    assert span.context.trace_id == request.context.trace_id
    assert span.parent is not None
    assert span.parent.span_id == request.context.span_id


async def test_an_error_is_recorded_without_secrets(
    app: Howdah, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    @app.task(name="fails")
    async def fails() -> None:
        raise Poison("refused with token=abcdef")

    tracing.install(tracer_provider=provider)
    await fails.enqueue()
    await drain(app)

    span = _named(exporter, "process fails")
    [event] = span.events
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "Poison: refused with token=***"
    assert span.attributes is not None
    assert span.attributes["error.type"] == "Poison"
    assert event.attributes is not None
    assert event.attributes["exception.message"] == "refused with token=***"
    assert "raise Poison" in str(event.attributes["exception.stacktrace"])
    assert "abcdef" not in str(event.attributes["exception.message"])


async def test_a_timeout_is_seen_in_the_span(
    app: Howdah, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    @app.task(name="sleeps", timeout=0.05, max_attempts=1)
    async def sleeps() -> None:
        await asyncio.sleep(30)

    tracing.install(tracer_provider=provider)
    await sleeps.enqueue()
    await drain(app)

    span = _named(exporter, "process sleeps")
    assert span.attributes is not None
    assert span.attributes["error.type"] == "Cancelled"


async def test_without_opentelemetry_follow_up_jobs_carry_the_trace_on(
    app: Howdah, conn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(name="first")
    async def first() -> None:
        await second.enqueue()

    @app.task(name="second")
    def second() -> None: ...

    for name in ("opentelemetry", "howdah.observe.spans"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert tracing.install() is False
    assert not telemetry.around
    try:
        job = first.job()
        job.trace = CALLER
        await app.enqueue(job)
        await drain(app)
    finally:
        tracing.uninstall()

    assert await conn.fetchval("select trace from howdah.job where kind = 'second'") == CALLER


async def test_without_a_span_of_its_own_nothing_is_made_up(app: Howdah, provider: TracerProvider) -> None:
    tracing.install(tracer_provider=provider)
    assert telemetry.trace_context() is None
    tracing.uninstall()
    assert not telemetry.around


async def test_installing_twice_makes_one_span(
    app: Howdah, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    @app.task(name="once")
    def once() -> None: ...

    tracing.install(tracer_provider=provider)
    tracing.install(tracer_provider=provider)
    job = once.job()
    job.trace = "not a trace"
    await app.enqueue(job)
    await drain(app)

    [span] = exporter.get_finished_spans()
    assert not span.links


def _named(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    [span] = [span for span in exporter.get_finished_spans() if span.name == name]
    return span
