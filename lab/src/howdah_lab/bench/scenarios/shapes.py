"""Shapes of load: the same drain with many queues, single enqueues, keys, results, failures or large arguments."""

from __future__ import annotations

from dataclasses import dataclass

from howdah.postgres import sql
from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.scenario import Plan, Quantity, Scenario
from howdah_lab.bench.session import SystemSession
from howdah_lab.bench.system import OURS

JOBS = 20_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of handler and a way to enqueue."""

    title: str
    needs: str
    """The kind without which a system is not measured in this shape."""
    kind: str = "nothing"
    way: str = "bulk"


SHAPES = {
    "singles": Shape("jobs enqueued one by one", "singles", way="singles"),
    "queues": Shape("50 queues with 20 priorities", "queues", way="queues"),
    "queue singles": Shape("50 queues with 20 priorities, enqueued one by one", "queues", way="queue_singles"),
    "keys": Shape("jobs with unique keys", "keys", way="keys"),
    "large": Shape("arguments of 4 kB", "large", way="large"),
    "values": Shape("handlers that return a value", "value", kind="value"),
    "failing": Shape("one handler in ten fails once", "failing", kind="failing"),
}


async def shapes(plan: Plan) -> dict[str, float]:
    """Each shape right after a plain drain of as many jobs."""
    figures: dict[str, float] = {}
    jobs = plan.jobs_of(JOBS, "nothing")
    async with plan.workbench.session(plan.system, workers=plan.processes) as session:
        for name, shape in SHAPES.items():
            if shape.needs not in plan.system.kinds:
                continue
            plain = await session.drain(jobs, "nothing")
            if shape.kind == "failing":
                await session.check()  # the last shape: afterwards not all jobs are done with their first attempt
            shaped = await session.drain(jobs, shape.kind, shape.way)
            figures[name] = shaped.rate
            if plan.system.name == OURS:
                figures[f"{name}/plain"] = shaped.rate / plain.rate
        await (_check_retried(plan, session) if "failing" in plan.system.kinds else session.check())
    return figures


async def _check_retried(plan: Plan, session: SystemSession) -> None:
    """Raise unless every job is done, some of them with their second attempt."""
    assert session.conn is not None
    rows = await session.conn.fetch(sql.load("howdah_lab.bench", schema=plan.workbench.schema)["count_attempts"])
    attempts, ran = {row["attempt"]: row["jobs"] for row in rows}, await session.started()
    if sum(attempts.values()) != ran or not 0 < attempts.get(2, 0) <= ran // 10 or not attempts.keys() <= {1, 2}:
        raise CheckFailed(f"{ran:,} jobs ran, but the attempts of those that are done are {attempts}")


SHAPES_OF_LOAD = Scenario(
    name="shapes",
    about="drains in other shapes, each compared with a plain one",
    quantities={
        each: quantity
        for name, shape in SHAPES.items()
        for each, quantity in (
            (name, Quantity(title=shape.title, unit="jobs/s")),
            (f"{name}/plain", Quantity(title=f"{shape.title} / plain drain", unit="ratio")),
        )
    },
    measure=shapes,
    share=2 * len(SHAPES) * JOBS / 50_000,
    compared=False,
    needs="singles",
)
