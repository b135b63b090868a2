"""Logging of the command line, and log lines made from telemetry."""

from __future__ import annotations

import json as jsonlib
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

from rich.console import Console
from rich.logging import RichHandler

from howdah import telemetry
from howdah.errors import ConfigError
from howdah.job import current
from howdah.outcome import Ack, Outcome
from howdah.redact import LONGEST_TRACEBACK, describe, scrub, shorten

log = logging.getLogger("howdah")

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
    text = "consumer %s failed at position %d, failure %d in a row: %s%s"
    again = "" if delay is None else f"; next try in {delay:.1f} s"
    log.warning(text, _name(facts), facts["position"], facts["failures"], error, again, extra=extra)


def _halt(facts: dict[str, Any]) -> None:
    error, extra = _error(facts)
    consumer = facts["consumer"]
    log.error(
        "consumer %s is HALTED at position %d after %d failures: %s; mend it and `howdah consumers resume %s`,"
        " or leave this event out with `howdah consumers skip %s`",
        _name(facts),
        facts["position"],
        facts["failures"],
        error,
        consumer,
        consumer,
        extra=extra,
        exc_info=facts["error"],
    )


def _park(facts: dict[str, Any]) -> None:
    error, extra = _error(facts)
    text = "consumer %s PARKED the event at position %d: %s; it continues; `howdah consumers parked list %s` shows them"
    log.error(text, _name(facts), facts["position"], error, facts["consumer"], extra=extra)


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
    kind, message, _ = describe(facts["error"])
    return f"{kind}: {message}" if message else kind, {**facts, "error": kind}


def _name(facts: dict[str, Any]) -> str:
    return f"{facts['consumer']}#{facts['part']}" if facts["part"] else str(facts["consumer"])


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LONGEST_LINE = 16_000
MOST_LINES = 20
"""Failures logged one by one in a second; more are only counted."""
WORTH_A_LINE = frozenset({Outcome.RETRY, Outcome.FAILED, Outcome.POISON})

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OURS = frozenset({"at", "level", "logger", "message", "exception"})


def configure(level: str = "INFO", json: bool | None = None, stream: TextIO | None = None) -> None:
    """Show logs on ``stream`` (standard error): JSON lines, or lines for people when it is a terminal.

    For command lines only: a library leaves logging to the application. Calling it again replaces the first.
    """
    if level.upper() not in LEVELS:
        raise ConfigError(f"log level {level!r} is not known; use one of {', '.join(LEVELS).lower()}")
    stream = stream or sys.stderr
    terminal = stream.isatty()
    handler: logging.Handler
    if terminal and not json:
        console = Console(file=stream)
        handler = RichHandler(console=console, show_path=False, omit_repeated_times=False, log_time_format="%X")
        handler.setFormatter(TextLines())
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(TextLines("%(asctime)s %(levelname)-7s %(message)s") if json is False else JsonLines())
    handler.set_name("howdah")
    root = logging.getLogger()
    for old in [old for old in root.handlers if old.get_name() == "howdah"]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


class JsonLines(logging.Formatter):
    """One JSON object per record: at, level, logger, message, the job at hand, what ``extra`` gave, the exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": shorten(scrub(record.getMessage()), LONGEST_LINE),
            **job_facts(),
        }
        for key, value in vars(record).items():
            if key not in _STANDARD and key not in _OURS:
                line[key] = _plain(value)
        if exception := _exception(self, record):
            line["exception"] = exception
        # ASCII: a stream that cannot encode a character would break the line.
        return jsonlib.dumps(line)


class TextLines(logging.Formatter):
    """Records for people, with the job at hand."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line, and its exception below."""
        facts = {} if hasattr(record, "job") else job_facts()
        about = f"[job {facts['job']} {facts['kind']} {facts['attempt']}] " if facts else ""
        record.message = about + shorten(scrub(record.getMessage()), LONGEST_LINE)
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        line = self.formatMessage(record)
        exception = _exception(self, record)
        return f"{line}\n{exception}" if exception else line


def job_facts() -> dict[str, Any]:
    """The job whose handler is running here, in the words of a log line; empty outside a handler."""
    job = current.get(None)
    return {} if job is None else {"job": job.id, "kind": job.kind, "attempt": job.attempt, "queue": job.queue}


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    text = formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else record.exc_text
    return shorten(scrub(text), LONGEST_TRACEBACK) if text else ""


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case _:
            return shorten(scrub(str(value)), LONGEST_LINE)


def subscribe_logs() -> Callable[[], None]:
    """Log failures, resets, prunes and changes of consumers from now on; return the function that stops it."""
    failures = FailureLog()
    unsubscribe = telemetry.subscribe(failures.on_event)

    def stop() -> None:
        unsubscribe()
        failures.sum_up()

    return stop


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
    error = ": ".join(part for part in (ack.error, ack.message) if part)
    if ack.outcome is Outcome.RETRY:
        facts["delay"] = ack.delay
        text = "job %s (%s) failed, attempt %d of %d: %s; next try in %.1f s"
        log.warning(text, job.id, job.kind, job.attempt, job.max_attempts, error, ack.delay, extra=facts)
    else:
        why = "is poison" if ack.outcome is Outcome.POISON else "failed for good"
        text = "job %s (%s) %s, attempt %d of %d: %s"
        log.error(text, job.id, job.kind, why, job.attempt, job.max_attempts, error, extra=facts)
