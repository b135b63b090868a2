"""Nodes are killed between a failure and its delivery: nobody is told twice of one thing, and nothing is left out."""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from howdah.webhooks.signature import verify
from kit.command import Command, eventually
from kit.webhook_receiver import SECRET, Receiver

pytestmark = pytest.mark.stories

QUICK = ("--lease", "2s", "--heartbeat", "500ms", "--poll", "500ms")


class WorkersAndReceiver:
    """A database, a receiver, and workers that know it or not."""

    def __init__(self, dsn: str, direct: str, receiver: Receiver, stack: ExitStack) -> None:
        self._dsn = dsn
        self._stack = stack
        self.receiver = receiver
        self.conn = stack.enter_context(psycopg.connect(direct, autocommit=True))

    def worker(self, *, knows: bool = True) -> Command:
        settings = {
            "HOWDAH_WEBHOOK_OPS_URL": self.receiver.url,
            "HOWDAH_WEBHOOK_OPS_SECRET": SECRET,
            "HOWDAH_WEBHOOK_OPS_ALLOW_HTTP": "1",
            "HOWDAH_WEBHOOK_OPS_ALLOW_PRIVATE": "1",
        }
        command = Command("worker", "-a", "kit.command_app:app", *QUICK, dsn=self._dsn, **(settings if knows else {}))
        return self._stack.enter_context(command)

    def count(self, what: str) -> int:
        return int(self.conn.execute(f"select count(*) from {what}").fetchone()[0])  # type: ignore[arg-type,index]

    def kill(self, worker: Command) -> None:
        worker.send(signal.SIGKILL)
        worker.ends()

    def declare(self) -> None:
        """A worker was here once, and made the webhook known."""
        once = self.worker()
        eventually(lambda: self.count("howdah.webhook"), 60, lambda: once.output)
        self.kill(once)

    def fail(self, jobs: int) -> None:
        self.conn.execute(
            "select howdah.enqueue('spoiled', json_build_object('n', i)) from generate_series(1, %s) i", (jobs,)
        )


@pytest.fixture
def processes(database, direct) -> Iterator[WorkersAndReceiver]:
    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        yield WorkersAndReceiver(database.dsn, direct.dsn, receiver, stack)


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "control"])
def test_a_node_is_killed_after_the_failure_and_before_anybody_was_told(processes, recorded):
    processes.declare()
    if not recorded:  # the control: without what is written in the failure's own transaction nobody would be told
        processes.conn.execute("drop trigger note_failed on howdah.attempt")
    stranger = processes.worker(knows=False)
    processes.fail(1)
    eventually(lambda: processes.count("howdah.done where state = 'f'") == 1, 60, lambda: stranger.output)
    processes.kill(stranger)
    assert (processes.count("howdah.notice"), len(processes.receiver.heard)) == (1 if recorded else 0, 0)

    worker = processes.worker()
    if recorded:
        eventually(lambda: processes.receiver.heard, 60, lambda: worker.output)
        [letter] = processes.receiver.heard
        assert verify(letter.headers, letter.body, SECRET)
        assert letter.content["subject"]["message"] == "1 is spoiled"
    else:
        processes.fail(1)
        eventually(lambda: processes.count("howdah.done where state = 'f'") == 2, 60, lambda: worker.output)
        assert processes.receiver.heard == []


def test_a_node_is_killed_while_it_delivers(processes):
    processes.declare()
    processes.receiver.hold.clear()
    first = processes.worker()
    processes.fail(1)
    eventually(lambda: processes.receiver.heard, 60, lambda: first.output)
    processes.kill(first)
    processes.receiver.hold.set()

    second = processes.worker()
    eventually(lambda: processes.count("howdah.done d join howdah.job j using (id) where queue = 'howdah'"), 60, str)
    assert len(processes.receiver.heard) >= 2, second.output
    assert len({letter.headers["howdah-delivery"] for letter in processes.receiver.heard}) == 1


@pytest.mark.timeout(240)
def test_nodes_are_killed_all_the_time(processes):
    jobs, killed, luck = 150, 0, random.Random(7)
    processes.receiver.pace = 0.2  # so that there is time to kill
    processes.declare()
    workers = [processes.worker() for _ in range(3)]
    processes.fail(jobs)
    until = time.monotonic() + 150

    def delivered() -> int:
        return len({letter.content["subject"]["id"] for letter in processes.receiver.heard})

    while delivered() < jobs and time.monotonic() < until:
        before = delivered()
        eventually(lambda before=before: delivered() >= min(jobs, before + 10) or time.monotonic() > until, 160)
        if killed < 6 and delivered() < jobs:
            processes.kill(workers.pop(luck.randrange(len(workers))))
            workers.append(processes.worker())
            killed += 1

    marks = defaultdict(set)
    for letter in processes.receiver.heard:
        marks[letter.content["subject"]["id"]].add(letter.headers["howdah-delivery"])
    assert killed >= 2
    assert processes.count("howdah.done d join howdah.job j using (id) where kind = 'spoiled' and state = 'f'") == jobs
    assert len(marks) == jobs, "somebody was not told of a failure"
    assert {len(each) for each in marks.values()} == {1}, "one failure was written down twice"
