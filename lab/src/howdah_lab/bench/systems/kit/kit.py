"""Shared by the drivers in Python: the protocol on stdin and stdout, the arguments of jobs, the counters of handlers.

A driver is a process that does one line after the other and answers each with a line of JSON. The same program is the
client that enqueues and, told to work, a worker. It runs in the environment of its library, so this file needs nothing
but the standard library, and uvloop where that is installed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from importlib.metadata import version

DSN = os.environ.get("BENCH_DSN", "")
SCHEMA = os.environ.get("BENCH_SCHEMA", "")
"""Of Howdah."""
REDIS = os.environ.get("BENCH_REDIS", "")
PAUSE = 0.001
"""Seconds the handler of kind ``pause`` awaits."""

started = []
"""One entry for each handler that started: appending is atomic, also from threads."""
failed = set()
"""Arguments of the jobs of kind ``failing`` that ran."""
delays = []
"""Seconds from the moment a probe could have started to the moment it did."""


def arguments(number):
    """Return the arguments of the job with this number, about 90 bytes of JSON."""
    return {
        "user_id": 100_000 + number,
        "email": f"user{number}@example.com",
        "template": "welcome",
        "number": number % 17,
        "tags": ["a", "b"],
    }


QUEUES, PRIORITIES = 50, 20
"""Number of queues and of priorities in the ways ``queues`` and ``queue_singles``."""
LARGE = 4_000
"""Bytes of the arguments of way ``large``."""


def options(number):
    """Return the queue and the priority of a job."""
    return {"queue": f"q{number % QUEUES}", "priority": number // QUEUES % PRIORITIES}


def fails(user_id):
    """Return whether a handler of kind ``failing`` fails: one job in ten, the first time."""
    first = user_id % 10 == 0 and user_id not in failed
    failed.add(user_id)
    return first


def start():
    """A handler starts."""
    started.append(None)


def probe(began):
    """A probe starts; the monotonic clock is one for all processes of a machine."""
    delays.append(time.monotonic() - began)
    started.append(None)


class Driver:
    """The calls of a library; a driver implements the methods that raise."""

    packages = ()
    """Packages whose versions are reported, the library first."""
    made = ()
    """Arguments that were made before the clock starts."""

    async def setup(self):
        """Make the tables, in an empty database."""
        raise NotImplementedError

    async def open(self):
        """Connect, as an application does that enqueues."""
        raise NotImplementedError

    async def one(self, kind, args):
        """Enqueue one job."""
        raise NotImplementedError

    async def bulk(self, kind, jobs):
        """Enqueue a list of arguments, in the library's fastest way."""
        raise NotImplementedError

    async def shaped(self, kind, jobs):
        """Enqueue pairs of arguments and options (queue and priority, or key) in the library's fastest way."""
        raise NotImplementedError

    async def later(self, jobs, seconds):
        """Enqueue a list of arguments of probes, all due in so many seconds."""
        raise NotImplementedError

    async def work(self):
        """Work on all kinds from now on; returns when it is ready for jobs."""
        raise NotImplementedError

    # ---------------------------------------------------------------- what is the same for all

    async def hello(self):
        return {"versions": {name: version(name) for name in self.packages}, "python": sys.version.split()[0]}

    async def enqueue_one(self, jobs, kind):
        for number in range(int(jobs)):
            await self.one(kind, arguments(number))

    async def enqueue_callers(self, callers, jobs, kind):
        each = int(jobs) // int(callers)

        async def call(first):
            for number in range(first, first + each):
                await self.one(kind, arguments(number))

        await asyncio.gather(*(call(caller * each) for caller in range(int(callers))))

    async def make(self, jobs):
        self.made = [arguments(number) for number in range(int(jobs))]

    async def enqueue_bulk(self, kind):
        await self.bulk(kind, self.made)

    async def enqueue_singles(self, kind):
        for args in self.made:
            await self.one(kind, args)

    async def enqueue_queues(self, kind):
        await self.shaped(kind, [(args, options(number)) for number, args in enumerate(self.made)])

    async def enqueue_queue_singles(self, kind):
        for number, args in enumerate(self.made):
            await self.shaped(kind, [(args, options(number))])

    async def enqueue_keys(self, kind):
        await self.shaped(kind, [(args, {"key": f"user {args['user_id']}"}) for args in self.made])

    async def enqueue_large(self, kind):
        await self.bulk(kind, [{**args, "template": "x" * LARGE} for args in self.made])

    async def enqueue_later(self, jobs, seconds):
        due = time.monotonic() + float(seconds)
        await self.later([{"began": due}] * int(jobs), due - time.monotonic())

    async def probe(self, jobs, low, high):
        calls = []
        for _ in range(int(jobs)):
            await asyncio.sleep(random.uniform(float(low), float(high)))  # noqa: S311
            began = time.monotonic()
            await self.one("probe", {"began": began})
            calls.append(time.monotonic() - began)
        return {"calls": calls}

    async def offer(self, rate, jobs):
        """Enqueue at a fixed rate, whether or not the calls before have returned: late is late."""
        begin, calls = time.monotonic() + 0.05, []
        for number in range(int(jobs)):
            due = begin + number / float(rate)
            if (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            calls.append(asyncio.ensure_future(self.one("probe", {"began": due})))
        await asyncio.gather(*calls)

    async def count(self):
        return {"started": len(started)}

    async def read_delays(self):
        read = list(delays)
        delays.clear()
        return {"delays": read}


def chunks(jobs, size):
    """Lists of at most so many.

    >>> list(chunks([1, 2, 3], 2))
    [[1, 2], [3]]
    """
    return (jobs[first : first + size] for first in range(0, len(jobs), size))


def serve(driver):
    """Answer until stdin ends."""
    # what a library prints must not get between the answers
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve(driver, answers))


async def _serve(driver, answers):
    lines = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := (await lines.readline()).decode().split():
        try:
            answer = await _obey(driver, *line) or {}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
    os._exit(0)


async def _obey(driver, verb, *words):
    if verb == "enqueue":
        way, *words = words
        return await getattr(driver, f"enqueue_{way}")(*words)
    return await {
        "hello": driver.hello,
        "setup": driver.setup,
        "open": driver.open,
        "make": driver.make,
        "probe": driver.probe,
        "offer": driver.offer,
        "work": driver.work,
        "count": driver.count,
        "delays": driver.read_delays,
    }[verb](*words)
