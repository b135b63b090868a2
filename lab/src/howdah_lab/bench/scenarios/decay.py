"""Decay and growth: what happens to the drain when a snapshot is held, when much is finished, and when much waits."""

from __future__ import annotations

from contextlib import AsyncExitStack
from statistics import median

from howdah.postgres.database import Database
from howdah_lab.bench.bench_schema import BenchSchema
from howdah_lab.bench.scenario import Quantity, Scenario, Setting
from howdah_lab.bench.session import connected, template

ROUNDS = 5
HELD = 20_000
MOST_TIMES = 7
"""Repetitions of the five rounds, at most, where one round is very short."""
FINISHED = 3_000_000
BY_STATEMENT = 1_000_000
"""Finished jobs of systems whose history is inserted by a statement: their indexes take minutes to fill."""
PARTS = 12
"""In which history is made where it is made by working."""
DRAINED = 50_000
DRAINS = 4
DEPTHS = (10_000, 100_000, 1_000_000)
REPEATED = 100_000
"""A shallow queue is drained again and again until so many jobs have gone: one drain of it is over in a blink."""
LIMIT = 30.0
"""Seconds a rival may need for one depth; deeper ones are left out."""


async def held(setting: Setting) -> dict[str, float]:
    """Five rounds without, then five with a snapshot held from before the first to after the last; again if quick."""
    figures: dict[str, float] = {}
    jobs = setting.jobs(HELD, "nothing", seconds=4.0)
    times = max(1, min(MOST_TIMES, round(setting.rival.speed["nothing"] / jobs)))
    for name in ("free", "held"):
        several = [await _rounds(setting, jobs, hold=name == "held") for _ in range(times)]
        for number, rates in enumerate(zip(*several, strict=True), 1):
            figures[f"{name} {number}"] = median(rates)
        figures[f"{name} last/first"] = figures[f"{name} {ROUNDS}"] / figures[f"{name} 1"]
    return figures


async def _rounds(setting: Setting, jobs: int, *, hold: bool) -> list[float]:
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(setting.testbed.session(setting.rival, workers=1))
        await session.drain(jobs, "nothing")  # the first of all is slower, held or not
        if hold:
            await stack.enter_async_context(BenchSchema(Database(session.dsn)).held_snapshot())
        rates = [(await session.drain(jobs, "nothing")).rate for _ in range(ROUNDS)]
        await session.check()
    return rates


async def history(setting: Setting) -> dict[str, float]:
    """Drain with nothing behind it, and with millions of finished jobs of long ago; in turn, on copies."""
    testbed, rival = setting.testbed, setting.rival
    full, figures = f"bench {rival.name} full", {}
    try:
        if not await testbed.postgresql.exists(full):
            most = BY_STATEMENT if rival.history else FINISHED
            await _make_history(setting, full, max(1000, round(most * setting.scale)))
        for name, source in (("empty", None), ("full", full)):
            async with testbed.session(rival, workers=1, source=source) as session:
                jobs = setting.jobs(DRAINED, "nothing")
                await session.drain(jobs, "nothing")  # the first of all is slower, whatever is behind it
                drains = [await session.drain(jobs, "nothing") for _ in range(DRAINS)]
                figures[name] = jobs * DRAINS / sum(each.seconds for each in drains)
                figures[f"cpu {name}"] = sum(each.cpu for each in drains) / (jobs * DRAINS) * 10_000
    except BaseException:
        await testbed.postgresql.drop(full)
        raise
    return figures | {"full/empty": figures["full"] / figures["empty"]}


async def _make_history(setting: Setting, database: str, jobs: int) -> None:
    """By the rival's own statement where it has one; else by doing them all, a part at a time."""
    testbed, rival = setting.testbed, setting.rival
    if rival.history is None:
        async with testbed.session(rival, workers=1, keep=database) as session:
            for _ in range(PARTS):
                await session.drain(jobs // PARTS, "nothing")
    else:
        await testbed.postgresql.make(database, template(rival))
        async with connected(testbed.postgresql.dsn(database)) as conn:
            await conn.execute(rival.history.replace("$1", str(jobs)))
    async with connected(testbed.postgresql.dsn(database)) as conn:
        await conn.execute("vacuum analyze")


async def growth(setting: Setting) -> dict[str, float]:
    """Drain rates of queues of different depths."""
    figures: dict[str, float] = {}
    for depth in DEPTHS:
        jobs = max(100, round(depth * setting.scale))
        if depth > DEPTHS[0] and jobs / setting.rival.speed.get("nothing", depth) > LIMIT:
            break
        async with setting.testbed.session(setting.rival, workers=1) as session:
            times = max(1, round(REPEATED / depth))
            if setting.rival.speed.get("nothing", depth) < depth:
                times = min(times, 3)
            drains = [await session.drain(jobs, "nothing") for _ in range(times)]
            await session.check()
        figures[f"{depth}"] = jobs * times / sum(each.seconds for each in drains)
        figures[f"cpu {depth}"] = sum(each.cpu for each in drains) / (jobs * times) * 10_000
    if f"{DEPTHS[-1]}" in figures:
        figures["deep/shallow"] = figures[f"{DEPTHS[-1]}"] / figures[f"{DEPTHS[0]}"]
    return figures


def _rate(title: str) -> Quantity:
    return Quantity(title=title, unit="jobs/s")


def _cost(title: str) -> Quantity:
    return Quantity(title=title, unit="s", less_is_better=True)


def _share(title: str) -> Quantity:
    return Quantity(title=title, unit="ratio")


SCENARIO = Scenario(
    name="held",
    about="five rounds without and with a snapshot held open",
    quantities={
        **{f"free {number}": _rate(f"no snapshot held, round {number}") for number in range(1, ROUNDS + 1)},
        **{f"held {number}": _rate(f"snapshot held, round {number}") for number in range(1, ROUNDS + 1)},
        "free last/first": _share("no snapshot held, round 5 / round 1"),
        "held last/first": _share("snapshot held, round 5 / round 1"),
    },
    measure=held,
    close_only=True,
)
HISTORY = Scenario(
    name="history",
    about="3 million finished jobs behind it (rivals: 1 million)",
    quantities={
        "empty": _rate("nothing behind it"),
        "full": _rate("millions of finished jobs behind it"),
        "full/empty": _share("with / without"),
        "cpu empty": _cost("CPU per 10,000 jobs, nothing behind it"),
        "cpu full": _cost("CPU per 10,000 jobs, millions behind it"),
    },
    measure=history,
    close_only=True,
    needs="history",
)
GROWTH = Scenario(
    name="growth",
    about="queues of 10^4, 10^5 and 10^6 jobs",
    quantities={
        **{f"{depth}": _rate(f"{depth:,} jobs queued") for depth in DEPTHS},
        "deep/shallow": _share("1,000,000 / 10,000"),
        **{f"cpu {depth}": _cost(f"CPU per 10,000 of {depth:,} jobs") for depth in DEPTHS},
    },
    measure=growth,
    close_only=True,
)
