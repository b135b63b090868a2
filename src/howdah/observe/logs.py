"""Logging of the command line: JSON lines, or lines for people."""

from __future__ import annotations

import json as jsonlib
import logging
import math
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from rich.console import Console
from rich.logging import RichHandler

from howdah.errors import ConfigError
from howdah.job import current
from howdah.redact import LONGEST_TRACEBACK, scrub, shorten, without_controls

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LONGEST_LINE = 16_000

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
        return without_controls(f"{line}\n{exception}" if exception else line)


def job_facts() -> dict[str, Any]:
    """The job whose handler is running here, in the words of a log line; empty outside a handler."""
    job = current.get(None)
    return {} if job is None else {"job": job.id, "kind": job.kind, "attempt": job.attempt, "queue": job.queue}


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    text = record.exc_text
    if text is None and record.exc_info and record.exc_info[0]:
        text = formatter.formatException(record.exc_info)
    return shorten(scrub(text), LONGEST_TRACEBACK) if text else ""


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case _:
            return shorten(scrub(str(value)), LONGEST_LINE)
