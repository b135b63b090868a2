"""Spans: one per handler, through OpenTelemetry. The only module that imports it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context

from howdah.job import Job, JobBatch
from howdah.outcome import FailureReport
from howdah.redact import describe
from howdah.version import __version__

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


def parse(traceparent: str | None) -> tuple[int, int, int] | None:
    """Trace id, span id and flags of a W3C ``traceparent``; ``None`` when it is none.

    >>> parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    (14576827793038113322513871894673895836, 13235353014750950193, 1)
    >>> parse("00-00000000000000000000000000000000-b7ad6b7169203331-01")
    """
    match = _TRACEPARENT.fullmatch(traceparent or "")
    return (int(match[1], 16), int(match[2], 16), int(match[3], 16)) if match else None


class Spans:
    """Makes a consumer span around every handler."""

    def __init__(self, *, parent: bool = False, tracer_provider: trace.TracerProvider | None = None) -> None:
        self._parent = parent
        self._tracer = trace.get_tracer("howdah", __version__, tracer_provider)

    @staticmethod
    def wanted() -> bool:
        """Return whether OpenTelemetry is set up to record anything."""
        return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    def traceparent(self) -> str | None:
        """The current span in W3C words, if there is one."""
        span = trace.get_current_span().get_span_context()
        if not span.is_valid:
            return None
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"

    @contextmanager
    def around(self, job: Job) -> Iterator[None]:
        """The span of one attempt; an error is recorded in it, scrubbed, and passes on."""
        origins = _origins(job)
        # never a child of whatever span the node was started in
        context = Context()
        child = self._parent and len(origins) == 1
        if child:
            context = trace.set_span_in_context(trace.NonRecordingSpan(origins[0]), context)
        with self._tracer.start_as_current_span(
            f"process {job.kind}",
            context,
            kind=trace.SpanKind.CONSUMER,
            attributes=_attributes(job),
            links=None if child else [trace.Link(origin) for origin in origins],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                if span.is_recording():
                    _record(span, error)
                raise


def _origins(job: Job) -> list[trace.SpanContext]:
    """Where a job comes from; a batch of events may come from several places."""
    parsed = [parse(each) for each in getattr(job, "traces", ()) or (job.trace,)]
    return [
        trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
        for trace_id, span_id, flags in filter(None, parsed)
    ]


def _attributes(job: Job) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": "howdah",
        "messaging.destination.name": job.queue,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": str(job.id),
        "howdah.kind": job.kind,
        "howdah.attempt": job.attempt,
    }
    if isinstance(job, JobBatch):
        attributes["messaging.batch.message_count"] = len(job.jobs)
    return attributes


def _record(span: Any, error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        kind, message, traceback = "Cancelled", "stopped by a timeout, a cancel, a shutdown or a lost lease", ""
    else:
        # a handler that failed in a process of its own brings the words along
        report = getattr(error, "report", None)
        kind, message, traceback = (
            (report.error, report.message, report.traceback) if isinstance(report, FailureReport) else describe(error)
        )
    span.set_attribute("error.type", kind)
    span.set_status(trace.StatusCode.ERROR, f"{kind}: {message}")
    facts = {"exception.type": kind, "exception.message": message, "exception.stacktrace": traceback}
    span.add_event("exception", facts)
