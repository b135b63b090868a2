"""Telemetry events: packages emit them, exporters in ``observe`` subscribe, and neither imports the other.

An event has a name, ``noun.verb``, and facts. Frequent events carry a whole batch, so that the cost per job is small.

    job.claim      jobs (list of Job), seconds (how long the claim took)
    job.ack        acks (list of Ack): outcomes that were accepted
    job.lost       jobs (list of Job): their lease was lost; reason
    job.reset      leases, requeued, ended: expired leases were released
    job.repair     requeued, ended, leases: lost jobs were queued again or failed, empty leases ended
    remote.ack     store, outcomes (names): a worker reported them over HTTP to this control plane
    job.release    jobs (int): released unstarted or unfinished, without using an attempt
    job.enqueue    jobs (int)
    table.reset    table, reset, failed: rows of workers without a heartbeat were released
    table.oversized  table, ids: rows bigger than the whole budget
    table.refused  table, act, ids, message: the table rejects updates of these rows
    table.conflict  table, stalled_after: nodes declare different timeouts for the same rows
    log.append     events (int)
    consumer.start    consumer, part, position: this node took it over
    consumer.stop     consumer, part, reason: this node released it
    consumer.batch    consumer, part, events (int), position, seconds: a batch was committed
    consumer.fail     consumer, part, position, failures, error: an event raised; delay (seconds; None: no retry)
    consumer.halt     consumer, part, position, failures, error: it waits until it is resumed or reset
    consumer.park     consumer, part, position, failures, error: an event was parked
    leader.gain    this node now assigns consumers
    leader.lose    it no longer does
    consumer.assign   moves (int), unassigned (list of names that no node can consume)
    schedule.fire  name, slots (int), job: a recurring job was enqueued for this many slots
    notice.relay   notices (int): delivery jobs were enqueued for them
    notice.drop    notices (int): too old, or too many for their webhook
    node.start     node, name, queues, slots
    node.stop      node, seconds
    node.beat      node, lag (seconds the heartbeat came late)
    listen.deaf    reason: wake-ups do not arrive, polling instead
    listen.heard   wake-ups arrive again
    hook.fail      kind, hook, error: a user's hook raised
    loop.fail      loop, error: a background loop failed and is retried (first failure of an outage)
    loop.heal      loop, seconds, failures: it works again
    pg.connect     role, again (bool): a connection was opened, or reopened after it broke
    prune.done     partitions, jobs
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from howdah.job import current

Listener = Callable[[str, dict[str, Any]], None]

log = logging.getLogger("howdah")
_listeners: list[Listener] = []


def subscribe(listener: Listener) -> Callable[[], None]:
    """Call ``listener(name, facts)`` for every event from now on; returns the function that stops it."""
    _listeners.append(listener)

    def unsubscribe() -> None:
        if listener in _listeners:
            _listeners.remove(listener)

    return unsubscribe


def emit(name: str, /, **facts: Any) -> None:
    """Call every listener; an error of a listener is logged and has no other effect."""
    for listener in tuple(_listeners):
        try:
            listener(name, facts)
        except Exception:
            log.exception("a telemetry listener failed on %s", name)


around: list[Callable[[Any], AbstractContextManager[object]]] = []
"""Functions that take a job and return a context manager to enter around its handler, as tracing does."""


@contextmanager
def surround(job: Any) -> Iterator[None]:
    """Enter all context managers of ``around``."""
    with ExitStack() as stack:
        for enter in around:
            stack.enter_context(enter(job))
        yield


_trace_context: Callable[[], str | None] | None = None


carried: ContextVar[str | None] = ContextVar("howdah_trace", default=None)
"""Trace context of the event being consumed."""


def trace_context() -> str | None:
    """Return the W3C trace context (``traceparent``) of the caller; inside a handler, that of its job or event."""
    return _trace_context() if _trace_context else inherited()


def inherited() -> str | None:
    """Return the trace context of the running job or of the event being consumed."""
    job = current.get(None)
    return job.trace if job is not None else carried.get()


def set_trace_context(source: Callable[[], str | None] | None) -> None:
    """Set the function that returns the trace context."""
    global _trace_context
    _trace_context = source
