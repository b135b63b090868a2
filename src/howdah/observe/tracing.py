"""Traces: a job remembers the trace it was enqueued in, and its handler runs in a span linked to it.

OpenTelemetry is optional. Without it nothing is recorded, but follow-up jobs still carry the trace on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from howdah import telemetry
from howdah.job import Job

_installed: Callable[[Job], AbstractContextManager[object]] | None = None


def install(*, parent: bool = False, tracer_provider: Any = None) -> bool:
    """Trace from now on; returns whether OpenTelemetry is set up to record it. Calling it again replaces the first.

    A job's span is a root of its own, linked to the enqueue: a job may run long after, and many times.
    ``parent=True`` makes it a child of the enqueue instead.
    """
    global _installed
    uninstall()
    try:
        from howdah.observe.spans import Spans
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        return False
    if tracer_provider is None and not Spans.wanted():
        return False  # Nothing is recorded, so a span per job would be wasted.
    spans = Spans(parent=parent, tracer_provider=tracer_provider)
    _installed = spans.around
    telemetry.around.append(_installed)
    telemetry.set_trace_context(lambda: spans.traceparent() or telemetry.inherited())
    return True


def uninstall() -> None:
    """Stop tracing."""
    global _installed
    if _installed in telemetry.around:
        telemetry.around.remove(_installed)
    _installed = None
    telemetry.set_trace_context(None)
