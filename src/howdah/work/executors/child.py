"""The other side: a process that runs one handler at a time for its node, and ends with it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

import msgspec

from howdah.arguments import encode
from howdah.errors import ArgumentError
from howdah.handler import Handler
from howdah.job import Job, current
from howdah.journal import Said, voice
from howdah.outcome import Cancel, Snooze
from howdah.scrub import scrub, told
from howdah.work.executors.wire import Answer, Question, find
from howdah.work.report import Report

_LENGTH = 4


def main() -> None:
    """Answer questions on the socket given as the first argument until it closes."""
    link = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    voice.set(_Link(link))
    if logging.lastResort is not None:  # where the application has set up no logging here
        logging.lastResort.setFormatter(_Discreet())
    while (data := _read(link)) is not None:
        answer = _answer(msgspec.msgpack.decode(data, type=Question))
        _write(link, answer)


class _Discreet(logging.Formatter):
    """Log records without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record))


class _Link:
    """What a handler here speaks through: its node."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lock = threading.Lock()

    def speak(self, _job: Job, said: Said) -> None:
        with self._lock:
            _write(self._link, Answer(said=said))


def _write(link: socket.socket, answer: Answer) -> None:
    reply = msgspec.msgpack.encode(answer)
    link.sendall(len(reply).to_bytes(_LENGTH, "big") + reply)


def _answer(question: Question) -> Answer:
    try:
        found = find(question.place)
        handler = found.handler if hasattr(found, "handler") else Handler(question.kind, found)
        current.set(question.job)
        told.set(())
        value = handler.call(question.job)
        if inspect.isawaitable(value):
            value = asyncio.run(_wait_for(value))
        return _say(value)
    except BaseException as error:
        return Answer(report=Report.of(error))


async def _wait_for(value: Any) -> Any:
    return await value


def _say(value: Any) -> Answer:
    match value:
        case Snooze(seconds=seconds):
            return Answer(snooze=seconds)
        case Cancel(reason=reason):
            return Answer(cancel=scrub(reason))
    try:
        return Answer(value=None if value is None else msgspec.json.decode(encode(value, what="the result")))
    except ArgumentError as error:
        print(f"howdah: {error}; the job is done all the same", file=sys.stderr)
        return Answer()


def _read(link: socket.socket) -> bytes | None:
    head = _exactly(link, _LENGTH)
    return None if head is None else _exactly(link, int.from_bytes(head, "big"))


def _exactly(link: socket.socket, length: int) -> bytes | None:
    data = b""
    while len(data) < length:
        more = link.recv(length - len(data))
        if not more:
            return None
        data += more
    return data


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main()
