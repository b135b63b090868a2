"""Handlers in processes with a guard switched off: what ``test_processes.py`` checks can go wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from contextlib import nullcontext

import msgspec
import pytest

from howdah.job import Job
from howdah.outcome import Snooze
from howdah.store import JobLogEntry
from howdah.worker.processes import process
from howdah.worker.processes.child import _Link
from howdah.worker.processes.process import HandlerProcess, ProcessDied
from howdah.worker.processes.wire import ProcessReply, ProcessRequest, place_of
from kit import leaking_handlers
from kit.command import alive
from kit.node import eventually
from kit.process_executor import processes, run_in

pytestmark = pytest.mark.anyio


async def ask_the_socket(child, handler, job, largest_result, begun):
    """Wait for the end of the socket only."""
    number = next(child._numbers)
    question = ProcessRequest(number, place_of(handler.function), handler.kind, job, largest_result)
    started = asyncio.get_running_loop().create_future()
    answer = await child._talk(number, msgspec.msgpack.encode(question), started)
    if answer is None:
        raise ProcessDied("its socket was closed")
    return answer


async def test_control_by_its_socket_alone_a_killed_handler_is_not_noticed_while_a_fork_of_it_lives(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(HandlerProcess, "ask", ask_the_socket)
    file = tmp_path / "pids"

    async with processes() as made:
        running = asyncio.create_task(
            run_in(made, leaking_handlers.forks_and_is_killed, file=str(file), leaves_group=True)
        )
        fork = int(await eventually(lambda: asyncio.sleep(0, file.exists() and file.read_text())))
        [child] = made._all
        await eventually(lambda: asyncio.sleep(0, not alive(child._runner)))
        await asyncio.sleep(0.5)  # what is shown is that nothing happens
        assert not running.done()
        os.kill(fork, signal.SIGKILL)
        with pytest.raises(ProcessDied):
            await asyncio.wait_for(running, 30)


async def test_control_a_job_that_is_handed_to_a_dead_process_does_not_run(monkeypatch):
    monkeypatch.setattr(HandlerProcess, "lives", True)
    monkeypatch.setattr(process, "STARTS", 1)
    async with processes() as made:
        first = await run_in(made, leaking_handlers.where)
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: asyncio.sleep(0, not alive(first)))
        assert isinstance(await run_in(made, leaking_handlers.where), Snooze)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
def test_threads_that_log_tear_no_message(monkeypatch, guarded):
    """Unguarded, one of them writes into the middle of another's message."""
    if not guarded:
        monkeypatch.setattr(_Link, "_alone", lambda _: nullcontext())
    ours, theirs = socket.socketpair()
    link = _Link(theirs)
    job = link._job = Job(1, "default", "talks", 1, 1, 1, b"{}")
    entry = JobLogEntry(lines=["x" * leaking_handlers.BIG])
    threads = [threading.Thread(target=link.write, args=(job, entry)) for _ in range(4)]

    def talk() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        theirs.close()

    talking = threading.Thread(target=talk)
    talking.start()
    time.sleep(0.2)  # all of them have begun, and the socket is full
    data = b"".join(iter(lambda: ours.recv(65536), b""))
    talking.join()
    ours.close()
    assert len(data) > 4 * leaking_handlers.BIG
    assert whole(data) == guarded


def whole(data: bytes) -> bool:
    """Whether these bytes are complete messages."""
    while data:
        length = int.from_bytes(data[:4], "big")
        try:
            msgspec.msgpack.decode(data[4 : 4 + length], type=ProcessReply)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        data = data[4 + length :]
    return True
