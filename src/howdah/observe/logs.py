"""Logs: how the command line shows them, and which telemetry becomes a line."""

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
from howdah.observe import consumer_lines
from howdah.outcome import Ack, Outcome
from howdah.scrub import LONGEST_TRACEBACK, scrub, shorten

log = logging.getLogger("howdah")

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
        handler.setFormatter(Lines())
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(Lines("%(asctime)s %(levelname)-7s %(message)s") if json is False else JsonLines())
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
        # ASCII: a stream that cannot say a letter would break the line
        return jsonlib.dumps(line)


class Lines(logging.Formatter):
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
    """Log failures, resets, prunes and what becomes of consumers from now on; returns the function that stops it."""
    failures = Failures()
    unsubscribe = telemetry.subscribe(failures.hear)

    def stop() -> None:
        unsubscribe()
        failures.sum_up()

    return stop


class Failures:
    """Turns events into lines. A flood becomes some lines a second and a count of the rest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # events come from several threads
        self._second = 0.0
        self._lines = 0
        self._more = 0

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        """Log one telemetry event, if it is worth a line."""
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
                consumer_lines.say(name, facts, self._wants_more)

    def sum_up(self) -> None:
        """Say how many failures were not logged, if any."""
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
