"""The process that runs handlers for a worker, one job at a time, and its guard."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import select
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import msgspec

from howdah.child_process import exit_as, signal_at_parents_death
from howdah.handler import Handler, finished, is_unfinished
from howdah.job import Job, current
from howdah.outcome import Cancel, FailureReport, Snooze, clean, result_of
from howdah.redact import handler_secrets, scrub
from howdah.store import JobLogEntry
from howdah.worker import isolation
from howdah.worker.job_log import sink
from howdah.worker.processes.wire import ProcessReply, ProcessRequest, find

CHECK_INTERVAL = 0.5
"""Seconds between two looks whether the worker lives: a fork of the worker may hold the lifeline open."""


def guard_child(lifeline: int, worker: int, *others: int) -> None:
    """Fork. Return in the new process, which leads a process group of its own; the old one guards it and never returns.

    ``lifeline``: the socket whose other end the worker holds. ``others``: descriptors that only the new process keeps.
    """
    guard = os.getpid()
    runner = os.fork()
    if runner == 0:
        os.close(lifeline)
        os.setpgid(0, 0)
        signal_at_parents_death(signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        return
    for descriptor in others:
        os.close(descriptor)
    with suppress(OSError):
        os.setpgid(runner, runner)  # here too: whichever of the two comes first
    _guard(runner, lifeline, worker)


def _guard(runner: int, lifeline: int, worker: int) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wakeup, signalled = os.pipe()
    os.set_blocking(signalled, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    while not _has_ended(runner):
        ready, _, _ = select.select([lifeline, wakeup], [], [], CHECK_INTERVAL)
        if wakeup in ready:
            os.read(wakeup, 4096)
        if lifeline in ready or os.getppid() != worker:
            break
    # not reaped yet, the runner keeps its number, so the group is surely the one it led
    _kill(runner)
    exit_as(os.waitstatus_to_exitcode(os.waitpid(runner, 0)[1]))


def _has_ended(runner: int) -> bool:
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, runner, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    ended, status = os.waitpid(runner, os.WNOHANG)  # macOS before Python 3.13 can only reap it
    if ended:
        _kill(runner)
        exit_as(os.waitstatus_to_exitcode(status))
    return False


def _kill(runner: int) -> None:
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(runner, signal.SIGKILL)


_LENGTH = 4


def main() -> None:
    """ProcessReply the questions that come on a socket until it closes.

    Arguments: the file descriptors of the socket and of the guard's lifeline, and the process id of the worker.
    """
    socket_number, lifeline, worker = map(int, sys.argv[1:4])
    guard_child(lifeline, worker, socket_number)
    connection = socket.socket(fileno=socket_number)
    connection.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = _Link(connection)
    sink.set(link)
    if logging.lastResort is not None:  # where the application has set up no logging here
        logging.lastResort.setFormatter(_Discreet())
    while (data := link.read()) is not None:
        question = msgspec.msgpack.decode(data, type=ProcessRequest)
        link.begin(question)
        link.finish(_answer(question))


class _Discreet(logging.Formatter):
    """A log formatter that removes secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record))


class _Link:
    """The socket to the worker. Threads and forks of this process write one complete message at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - locked by one process at a time, freed by its death
        os.register_at_fork(after_in_child=self._after_fork)
        self._job: Job | None = None
        self._number = 0

    def begin(self, question: ProcessRequest) -> None:
        """Report to the worker that the job starts now."""
        with self._alone():
            self._job, self._number = question.job, question.number
            self._write(msgspec.msgpack.encode(ProcessReply(number=self._number, started=os.getpid())))

    def write(self, job: Job, entry: JobLogEntry) -> None:
        """Send a log entry of a job; entries after its end are dropped."""
        with self._alone():
            if job is self._job:
                self._write(msgspec.msgpack.encode(ProcessReply(number=self._number, log_entry=entry)))

    def finish(self, answer: ProcessReply) -> None:
        """Send the outcome of the job to the worker."""
        with self._alone():
            self._job, answer.number = None, self._number
            self._write(_encoded(answer))

    def read(self) -> bytes | None:
        """Return the next message; ``None`` when the worker closed the socket."""
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
        self._lock = threading.Lock()  # a thread that does not exist in this process may hold the old lock

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


def _answer(question: ProcessRequest) -> ProcessReply:
    try:
        found = find(question.place)
        handler = found.handler if hasattr(found, "handler") else Handler(question.kind, found)
        current.set(question.job)
        handler_secrets.set(())
        value = handler.call(question.job)
        if is_unfinished(value):
            value = asyncio.run(finished(value))
        answer = _outcome(value, question.largest_result)
    except BaseException as error:
        isolation.end_if_forked(error)
        return ProcessReply(report=FailureReport.of(error))
    isolation.end_if_forked()
    return answer


def _outcome(value: Any, largest: int) -> ProcessReply:
    value = clean(value)
    kind = type(value)
    if value is None:
        return ProcessReply()
    if kind is Snooze:
        return ProcessReply(snooze=value.seconds)
    if kind is Cancel:
        return ProcessReply(cancel=value.reason)
    result, why_not = result_of(value, largest)
    return ProcessReply(result=result, not_stored=why_not)


def _encoded(answer: ProcessReply) -> bytes:
    """Encode a reply; invalid text is replaced, and numbers that do not fit become a failure."""
    try:
        return msgspec.msgpack.encode(answer)
    except UnicodeEncodeError:
        answer.cancel = answer.cancel and _text(answer.cancel)
        answer.not_stored = answer.not_stored and _text(answer.not_stored)
        if answer.report is not None:
            answer.report = _as_text(answer.report)
    except Exception as error:
        answer = ProcessReply(number=answer.number, report=_as_text(FailureReport.of(error)))
    return msgspec.msgpack.encode(answer)


def _as_text(report: FailureReport) -> FailureReport:
    return FailureReport(
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
