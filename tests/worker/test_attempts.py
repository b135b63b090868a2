"""Handlers share a task as long as they never wait for anything. Nobody must be able to tell."""

from __future__ import annotations

import asyncio
import sys
import time
from contextvars import ContextVar

import pytest

from howdah.handler import Handler
from howdah.job import Job
from howdah.outcome import Outcome
from howdah.worker.attempt import CancelReason
from howdah.worker.attempts import Attempts
from howdah.worker.capacity import Prefetched, Slots

pytestmark = pytest.mark.anyio

word: ContextVar[object] = ContextVar("word", default=None)


class Incomparable:
    """As an array of numbers: asked whether two are equal, it has no answer."""

    def __eq__(self, _other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = None


class Bench:
    """Attempts without a store: what their handlers do is all that matters here."""

    def __init__(self, *functions, slots: int = 10) -> None:
        self.acks = []
        self.slots = Slots(slots)
        self.prefetched = Prefetched({})
        self._ids = iter(range(1, 1000))
        self.attempts = Attempts(
            None,
            {function.__name__: Handler(function.__name__, function) for function in functions},
            self.prefetched,
            self.slots,
            threads=1,
            largest_result=1000,
            finished=self.acks.extend,
            slots_freed=lambda: None,
        )

    def put(self, *kinds: str, timeout: float | None = None) -> None:
        self.prefetched.put([Job(next(self._ids), "default", kind, 1, 5, 1, b"{}", timeout=timeout) for kind in kinds])
        self.attempts.fill()

    async def finish(self, count: int) -> list[tuple[str, Outcome]]:
        async with asyncio.timeout(30):
            while len(self.acks) < count:
                await asyncio.sleep(0.001)
        assert len(self.attempts) == self.slots.taken == 0
        return [(ack.job.kind, ack.outcome) for ack in self.acks]


@pytest.mark.parametrize("left", ["said", Incomparable()], ids=["a word", "what cannot be compared"])
@pytest.mark.parametrize("waits", [False, True], ids=["never waits", "waits"])
async def test_what_a_handler_leaves_in_its_context_does_not_reach_the_next(left, waits):
    found = []
    outside = Incomparable()
    word.set(outside)

    async def say() -> None:
        found.append(word.get() is outside)
        word.set(left)
        if waits:
            await asyncio.sleep(0)
        assert word.get() is left

    bench = Bench(say, slots=1)
    bench.put(*["say"] * 5)
    assert await bench.finish(5) == [("say", Outcome.OK)] * 5
    assert found == [True] * 5


async def test_what_was_set_where_the_node_started_is_seen_by_every_handler():
    found = []

    async def check() -> None:
        found.append(word.get())

    word.set("from outside")
    bench = Bench(check)
    bench.put(*["check"] * 3)
    await bench.finish(3)
    assert found == ["from outside"] * 3


async def test_a_handler_that_cancels_its_own_task_cancels_nobody_else():
    async def cancel_me() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def wait() -> None:
        await asyncio.sleep(0.01)

    bench = Bench(cancel_me, wait, slots=1)
    bench.put("cancel_me", "wait", "cancel_me", "cancel_me", "wait")
    assert {outcome for _, outcome in await bench.finish(5)} == {Outcome.OK}


async def test_handlers_that_never_wait_leave_the_event_loop_its_turns():
    turns, seen = 0, []

    async def compute() -> None:
        seen.append(turns)
        until = time.perf_counter() + 0.003
        while time.perf_counter() < until:
            pass

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    bench = Bench(compute)
    bench.put(*["compute"] * 20)
    await bench.finish(20)
    ticking.cancel()
    assert seen == sorted(set(seen))  # a turn between any two


async def test_the_first_handler_that_waits_holds_up_nobody():
    order = []
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()
        order.append("wait")

    async def go() -> None:
        order.append("go")

    bench = Bench(wait, go)
    bench.put("wait", "go", "go")
    async with asyncio.timeout(30):
        while len(order) < 2:
            await asyncio.sleep(0.001)
    gate.set()
    await bench.finish(3)
    assert order == ["go", "go", "wait"]


@pytest.mark.parametrize("first", [True, False], ids=["the first of its kind", "a later one"])
async def test_a_handler_that_waits_can_be_cancelled_and_may_clean_up(first):
    cleaned = []

    async def wait() -> None:
        try:
            await asyncio.sleep(1000 if cleaned or first else 0)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    bench = Bench(wait)
    if not first:
        bench.put("wait")
        await bench.finish(1)
    bench.put("wait")
    async with asyncio.timeout(30):
        while not any(attempt.task for attempt in bench.attempts.all()):
            await asyncio.sleep(0)
    [attempt] = bench.attempts.all()
    bench.attempts.cancel(attempt, CancelReason.CANCELLED)
    assert (await bench.finish(1 if first else 2))[-1] == ("wait", Outcome.CANCELLED)
    assert cleaned[-1:] == [True]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="handlers start at once")
@pytest.mark.parametrize("known", [False, True], ids=["the first of its kind", "a later one"])
async def test_one_that_is_cancelled_before_it_began_does_not_begin_and_leaves_its_slot(known):
    begun = []

    async def wait() -> None:
        begun.append(True)
        await asyncio.sleep(0)

    bench = Bench(wait)
    if known:
        bench.put("wait")
        await bench.finish(1)
    bench.put("wait")
    [attempt] = bench.attempts.all()
    bench.attempts.cancel(attempt, CancelReason.CANCELLED)
    assert (await bench.finish(2 if known else 1))[-1] == ("wait", Outcome.CANCELLED)
    assert len(begun) == known


@pytest.mark.parametrize("first", [True, False], ids=["the first of its kind", "a later one"])
async def test_a_timeout_ends_a_handler_that_waits(first):
    async def wait() -> None:
        await asyncio.sleep(1000 if first or bench.acks else 0)

    bench = Bench(wait)
    if not first:
        bench.put("wait")
        await bench.finish(1)
    bench.put("wait", timeout=0.01)
    assert (await bench.finish(1 if first else 2))[-1] == ("wait", Outcome.RETRY)
    assert bench.acks[-1].error == "TimeoutError"
