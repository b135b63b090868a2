"""The process that runs handlers for a worker, one job at a time, and ends with it."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from howdah.handler import Handler, finished, is_unfinished
from howdah.job import Job, current
from howdah.journal import Said, voice
from howdah.outcome import Cancel, Snooze, clean
from howdah.scrub import scrub, told
from howdah.work.executors import fork
from howdah.work.executors.guard import stand_guard
from howdah.work.executors.wire import Answer, Question, find
from howdah.work.report import Report
from howdah.work.result import result_of

_LENGTH = 4


def main() -> None:
    """Answer the questions that come on a socket until it closes.

    Arguments: the file descriptors of the socket and of the guard's lifeline, and the process id of the worker.
    """
    socket_number, lifeline, worker = map(int, sys.argv[1:4])
    stand_guard(lifeline, worker, socket_number)
    connection = socket.socket(fileno=socket_number)
    connection.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = _Link(connection)
    voice.set(link)
    if logging.lastResort is not None:  # where the application has set up no logging here
        logging.lastResort.setFormatter(_Discreet())
    while (data := link.read()) is not None:
        question = msgspec.msgpack.decode(data, type=Question)
        link.begin(question)
        link.finish(_answer(question))


class _Discreet(logging.Formatter):
    """Log records without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record))


class _Link:
    """The socket to the worker. Every message is written whole, whichever thread or fork of this process writes it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - locked by one process at a time, freed by its death
        os.register_at_fork(after_in_child=self._after_fork)
        self._job: Job | None = None
        self._number = 0

    def begin(self, question: Question) -> None:
        """Tell the worker that the job starts now."""
        with self._alone():
            self._job, self._number = question.job, question.number
            self._write(msgspec.msgpack.encode(Answer(number=self._number, started=os.getpid())))

    def speak(self, job: Job, said: Said) -> None:
        """Pass on what a job says; what it says after its end is dropped."""
        with self._alone():
            if job is self._job:
                self._write(msgspec.msgpack.encode(Answer(number=self._number, said=said)))

    def finish(self, answer: Answer) -> None:
        """Tell the worker how the job ended."""
        with self._alone():
            self._job, answer.number = None, self._number
            self._write(_encoded(answer))

    def read(self) -> bytes | None:
        """Return the next message; nothing when the worker closed the socket."""
        head = self._exactly(_LENGTH)
        return None if head is None else self._exactly(int.from_bytes(head, "big"))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # a thread that is not here may have held the old one

    def _write(self, message: bytes) -> None:
        self._connection.sendall(len(message).to_bytes(_LENGTH, "big") + message)

    def _exactly(self, length: int) -> bytes | None:
        data = bytearray()
        while len(data) < length:
            more = self._connection.recv(length - len(data))
            if not more:
                return None
            data += more
        return bytes(data)


def _answer(question: Question) -> Answer:
    try:
        found = find(question.place)
        handler = found.handler if hasattr(found, "handler") else Handler(question.kind, found)
        current.set(question.job)
        told.set(())
        value = handler.call(question.job)
        if is_unfinished(value):
            value = asyncio.run(finished(value))
        answer = _outcome(value, question.largest_result)
    except BaseException as error:
        fork.end_if_forked(error)
        return Answer(report=Report.of(error))
    fork.end_if_forked()
    return answer


def _outcome(value: Any, largest: int) -> Answer:
    value = clean(value)
    kind = type(value)
    if value is None:
        return Answer()
    if kind is Snooze:
        return Answer(snooze=value.seconds)
    if kind is Cancel:
        return Answer(cancel=value.reason)
    result, why_not = result_of(value, largest)
    return Answer(result=result, not_stored=why_not)


def _encoded(answer: Answer) -> bytes:
    """The message for an answer; words that are no text are made text, numbers that do not fit become a failure."""
    try:
        return msgspec.msgpack.encode(answer)
    except UnicodeEncodeError:
        answer.cancel = answer.cancel and _text(answer.cancel)
        answer.not_stored = answer.not_stored and _text(answer.not_stored)
        if answer.report is not None:
            answer.report = _as_text(answer.report)
    except Exception as error:
        answer = Answer(number=answer.number, report=_as_text(Report.of(error)))
    return msgspec.msgpack.encode(answer)


def _as_text(report: Report) -> Report:
    return Report(
        error=_text(report.error),
        message=_text(report.message),
        traceback=_text(report.traceback),
        lineage=[_text(each) for each in report.lineage],
        retry_after=report.retry_after,
        code=report.code,
        hold=report.hold,
    )


def _text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


if __name__ == "__main__":
    main()
