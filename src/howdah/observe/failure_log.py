"""Log lines made from telemetry: failures of jobs and consumers, resets, prunes, the leader."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from howdah import telemetry
from howdah.outcome import Ack, Outcome
from howdah.redact import traceback_of, user_frames
from howdah.retry import decision

log = logging.getLogger("howdah")

MOST_LINES = 20
"""Failures logged one by one in a second; more are only counted."""
WORTH_A_LINE = frozenset({Outcome.RETRY, Outcome.FAILED, Outcome.POISON})
ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]

_subscribing = threading.Lock()
_subscribers = 0
_subscription: tuple[FailureLog, Callable[[], None]] | None = None


def subscribe_logs() -> Callable[[], None]:
    """Log failures, resets, prunes and changes of consumers from now on; return the function that stops it.

    However often it is called, everything is logged once, until each caller has stopped it.
    """
    global _subscribers, _subscription
    with _subscribing:
        _subscribers += 1
        if _subscription is None:
            failures = FailureLog()
            _subscription = failures, telemetry.subscribe(failures.on_event)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        global _subscribers, _subscription
        last = None
        with _subscribing:
            _subscribers -= not stopped
            stopped = True
            if _subscribers == 0:
                last, _subscription = _subscription, None
        if last is not None:
            failures, unsubscribe = last
            unsubscribe()
            failures.sum_up()

    return stop


@contextmanager
def logged() -> Iterator[None]:
    """Log failures while the block lasts."""
    stop = subscribe_logs()
    try:
        yield
    finally:
        stop()


class FailureLog:
    """Turns events into lines. A flood becomes some lines a second and a count of the rest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # events come from several threads
        self._second = 0.0
        self._lines = 0
        self._more = 0

    def on_event(self, name: str, facts: dict[str, Any]) -> None:
        """Log one telemetry event, if it is relevant."""
        if self._more and time.monotonic() - self._second >= 1.0:
            self.sum_up()
        match name:
            case "job.ack":
                for ack in facts["acks"]:
                    if ack.outcome in WORTH_A_LINE and self._wants_more():
                        _log_failure(ack)
            case "job.reset":
                text = "took back %d expired leases: %d jobs requeued, %d ended"
                log.info(text, facts["leases"], facts["requeued"], facts["ended"], extra=facts)
            case "table.reset":
                text = "took back rows of silent workers in table %s: %d requeued, %d failed"
                log.info(text, facts["table"], facts["reset"], facts["failed"], extra=facts)
            case "prune.done":
                log.info("pruned %d partitions, %d jobs", facts["partitions"], facts["jobs"], extra=facts)
            case _:
                say(name, facts, self._wants_more)

    def sum_up(self) -> None:
        """Log the number of failures that were not logged one by one, if any."""
        with self._lock:
            more, self._more, self._lines = self._more, 0, 0
        if more:
            log.warning("%d more failures were not logged one by one", more, extra={"suppressed": more})

    def _wants_more(self) -> bool:
        with self._lock:
            now = time.monotonic()
            if now - self._second >= 1.0:
                self._second, self._lines = now, 0
            if self._lines >= MOST_LINES:
                self._more += 1
                return False
            self._lines += 1
            return True


def _log_failure(ack: Ack) -> None:
    job = ack.job
    facts: dict[str, Any] = {
        "job": job.id,
        "kind": job.kind,
        "attempt": job.attempt,
        "queue": job.queue,
        "outcome": ack.outcome.value,
        "error": ack.error,
    }
    kind, level, rest = _template(job.kind), logging.ERROR, "%s"
    values: tuple[Any, ...] = (job.id, job.attempt, job.max_attempts, ack.message or "")
    if ack.outcome is Outcome.RETRY:
        facts["delay"] = ack.delay
        level, rest, values = logging.WARNING, "%s; next try in %.1f s", (*values, ack.delay)
    how = {Outcome.RETRY: "failed", Outcome.POISON: "is poison"}.get(ack.outcome, "failed for good")
    error = _template(ack.error or "") + (": " if ack.error and ack.message else "")
    text = f"job %s ({kind}) {how}, attempt %d of %d: {error}{rest}"
    _log(level, text, values, facts, ack.exception, lambda: ack.traceback)


def _log(
    level: int,
    template: str,
    values: tuple[Any, ...],
    facts: dict[str, Any],
    error: BaseException | None,
    traceback: Callable[[], str | None],
) -> None:
    """Log a failure; ``traceback`` returns the text of it, scrubbed and storable."""
    if log.isEnabledFor(level):
        exception = exc_info(error) if error is not None else None
        record = log.makeRecord(log.name, level, __file__, 0, template, values, exception, "_log", facts)
        record.exc_text = traceback()  # formatters do not format the error again
        log.handle(record)


# ---------------------------------------------------------------- consumers

MOST_NAMED = 10
STOPPED = {"stopped": logging.DEBUG, "halted": logging.DEBUG, "no longer ours": logging.INFO}
"""Log level of the end of a consumer here; a halt has a line of its own."""


def say(name: str, facts: dict[str, Any], wants_more: Callable[[], bool]) -> None:
    """Log one telemetry event about consumers or their leader; failures only while there is room for more."""
    match name:
        case "consumer.start":
            log.info("consumer %s starts here after position %d", _name(facts), facts["position"], extra=facts)
        case "consumer.stop":
            level = STOPPED.get(facts["reason"], logging.WARNING)
            log.log(level, "consumer %s ends here: %s", _name(facts), facts["reason"], extra=facts)
        case "consumer.fail":
            if wants_more():
                _fail(facts)
        case "consumer.halt":
            _halt(facts)  # At most once per consumer until it is resumed or skipped.
        case "consumer.park":
            if wants_more():
                _park(facts)
        case "consumer.assign":
            _assign(facts["moves"], facts["unassigned"])
        case "leader.gain":
            log.info("this node leads: it says which node consumes what")
        case "leader.lose":
            log.info("this node leads no more")


def _fail(facts: dict[str, Any]) -> None:
    error, extra = _error(facts)
    delay = facts.get("delay")
    text = f"consumer {_template(_name(facts))} failed at position %d, failure %d in a row: %s%s"
    again = "" if delay is None else f"; next try in {delay:.1f} s"
    _log_error(logging.WARNING, text, (facts["position"], facts["failures"], error, again), extra, facts["error"])


def _halt(facts: dict[str, Any]) -> None:
    error, extra = _error(facts)
    consumer = facts["consumer"]
    text = (
        f"consumer {_template(_name(facts))} is HALTED at position %d after %d failures: %s; mend it and"
        " `howdah consumers resume %s`, or leave this event out with `howdah consumers skip %s`"
    )
    values = facts["position"], facts["failures"], error, consumer, consumer
    _log_error(logging.ERROR, text, values, extra, facts["error"])


def _park(facts: dict[str, Any]) -> None:
    error, extra = _error(facts)
    name = _template(_name(facts))
    text = f"consumer {name} PARKED the event at position %d: %s; it continues;"
    text += " `howdah consumers parked list %s` shows them"
    _log_error(logging.ERROR, text, (facts["position"], error, facts["consumer"]), extra, facts["error"])


def _log_error(level: int, text: str, values: tuple[Any, ...], extra: dict[str, Any], error: BaseException) -> None:
    _log(level, text, values, extra, error, lambda: traceback_of(error))


def _assign(moves: int, unassigned: list[str]) -> None:
    if moves:
        log.info("consumers were assigned: %d moves", moves, extra={"moves": moves})
    if unassigned:
        named = ", ".join(unassigned[:MOST_NAMED]) + (", …" if len(unassigned) > MOST_NAMED else "")
        log.warning(
            "no live node has the consumers %s; start a worker that does, or `howdah consumers forget` them",
            named,
            extra={"unassigned": named},
        )
    elif not moves:
        log.info("every consumer has a node again")


def _error(facts: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    _, _, kind, message = decision(facts["error"])
    return f"{kind}: {message}" if message else kind, {**facts, "error": kind}


def _name(facts: dict[str, Any]) -> str:
    return f"{facts['consumer']}#{facts['part']}" if facts["part"] else str(facts["consumer"])


def exc_info(error: BaseException) -> ExceptionInfo:
    """The error as logging takes it, with the frames of the user's own code."""
    return type(error), error, user_frames(error.__traceback__)


def _template(text: str) -> str:
    """Part of the template of a message. Error trackers group by template, so it names what failed."""
    return text.replace("%", "%%")
