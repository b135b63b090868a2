"""Drain throughput while a snapshot is held, with millions of finished jobs, and with deep queues."""

from __future__ import annotations

from contextlib import AsyncExitStack
from statistics import median

from howdah.postgres.database import Database
from howdah_lab.bench.bench_schema import held_snapshot
from howdah_lab.bench.scenario import LeftOut, Plan, Quantity, Scenario
from howdah_lab.bench.server import GivenDatabase
from howdah_lab.bench.session import connected, template

ROUNDS = 5
HELD = 20_000
MOST_TIMES = 7
"""Repetitions of the five rounds, at most, where one round is very short."""
FINISHED = 3_000_000
BY_STATEMENT = 1_000_000
"""Finished jobs of systems whose history is inserted by a statement: their indexes take minutes to fill."""
PARTS = 12
"""Drains in which a history is made, if the system has no statement for it."""
DRAINED = 50_000
DRAINS = 4
DEPTHS = (10_000, 100_000, 1_000_000)
REPEATED = 100_000
"""Jobs in all drains of a shallow queue: one drain of it is too short to measure."""
LIMIT = 30.0
"""Seconds a system may need for one depth; deeper queues are left out."""


async def held(plan: Plan) -> dict[str, float]:
    """Five rounds without, then five with a snapshot held from before the first to after the last."""
    figures: dict[str, float] = {}
    jobs = plan.jobs_of(HELD, "nothing", seconds=4.0)
    times = max(1, min(MOST_TIMES, round(plan.system.speed["nothing"] / jobs))) if plan.comparing else 1
    for name in ("free", "held"):
        several = [await _rounds(plan, jobs, hold=name == "held") for _ in range(times)]
        for number, rates in enumerate(zip(*several, strict=True), 1):
            figures[f"{name} {number}"] = median(rates)
        figures[f"{name} last/first"] = figures[f"{name} {ROUNDS}"] / figures[f"{name} 1"]
    return figures


async def _rounds(plan: Plan, jobs: int, *, hold: bool) -> list[float]:
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(plan.workbench.session(plan.system, workers=plan.processes))
        await session.drain(jobs, "nothing")  # the first drain is slower, held or not
        if hold:
            await stack.enter_async_context(held_snapshot(Database(session.dsn)))
        rates = [(await session.drain(jobs, "nothing")).rate for _ in range(ROUNDS)]
        await session.check()
    return rates


async def history(plan: Plan) -> dict[str, float]:
    """Drain without and with millions of finished jobs in the tables, on copies of databases."""
    workbench, system, server = plan.workbench, plan.system, plan.workbench.postgresql
    if isinstance(server, GivenDatabase):
        raise LeftOut("it copies databases, on a PostgreSQL of its own; leave out --dsn")
    full, figures = f"bench {system.name} full", {}
    try:
        if not await server.exists(full):
            most = BY_STATEMENT if system.history else FINISHED
            await _make_history(plan, full, max(1000, round(most * plan.scale)))
        for name, source in (("empty", None), ("full", full)):
            async with workbench.session(system, workers=1, source=source) as session:
                jobs = plan.jobs_of(DRAINED, "nothing")
                await session.drain(jobs, "nothing")  # the first drain is slower, with history or without
                drains = [await session.drain(jobs, "nothing") for _ in range(DRAINS)]
                figures[name] = jobs * DRAINS / sum(each.seconds for each in drains)
                figures[f"cpu {name}"] = sum(each.cpu for each in drains) / (jobs * DRAINS) * 10_000
    except BaseException:
        await server.drop(full)
        raise
    return figures | {"full/empty": figures["full"] / figures["empty"]}


async def _make_history(plan: Plan, database: str, jobs: int) -> None:
    """Insert them by the statement of the system, if it has one; otherwise run all of them, a part at a time."""
    workbench, system, server = plan.workbench, plan.system, plan.workbench.postgresql
    assert not isinstance(server, GivenDatabase)
    if system.history is None:
        async with workbench.session(system, workers=1, keep=database) as session:
            for _ in range(PARTS):
                await session.drain(jobs // PARTS, "nothing")
    else:
        await server.make(database, template(system))
        async with connected(server.dsn(database)) as conn:
            await conn.execute(system.history.replace("$1", str(jobs)))
    async with connected(server.dsn(database)) as conn:
        await conn.execute("vacuum analyze")


async def growth(plan: Plan) -> dict[str, float]:
    """Drain rates of queues of different depths."""
    figures: dict[str, float] = {}
    for depth in DEPTHS:
        jobs = max(100, round(depth * plan.scale))
        if depth > DEPTHS[0] and jobs / plan.system.speed.get("nothing", depth) > LIMIT:
            break
        async with plan.workbench.session(plan.system, workers=1) as session:
            times = max(1, round(REPEATED / depth))
            if plan.system.speed.get("nothing", depth) < depth:
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


HELD_SNAPSHOT = Scenario(
    name="held",
    about="five rounds without and with a snapshot held open",
    quantities={
        **{f"free {number}": _rate(f"no snapshot held, round {number}") for number in range(1, ROUNDS + 1)},
        **{f"held {number}": _rate(f"snapshot held, round {number}") for number in range(1, ROUNDS + 1)},
        "free last/first": _share("no snapshot held, round 5 / round 1"),
        "held last/first": _share("snapshot held, round 5 / round 1"),
    },
    measure=held,
    share=HELD / 50_000,
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
    default=False,
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
    default=False,
    close_only=True,
)
