"""Drain throughput: warm workers are let loose on queued jobs; and the costs of it."""

from __future__ import annotations

from collections.abc import Iterable

from howdah_lab.bench.scenario import Plan, Quantity, Scenario
from howdah_lab.bench.session import DrainTiming

JOBS = {"nothing": 50_000, "pause": 20_000, "plain": 20_000, "insert": 5_000, "transact": 5_000, "batch": 50_000}
KINDS = {
    "nothing": Quantity(title="async handlers that do nothing", unit="jobs/s"),
    "pause": Quantity(title="handlers that await 1 ms", unit="jobs/s"),
    "plain": Quantity(title="plain functions, in threads", unit="jobs/s"),
    "insert": Quantity(title="handlers with one insert", unit="jobs/s"),
    "transact": Quantity(title="one insert, in one commit with the outcome", unit="jobs/s"),
}
BATCH = Quantity(title="one insert per job, in one commit for 500 jobs and their outcomes", unit="jobs/s")
COSTS = {
    "memory": Quantity(title="memory of the worker, at its peak", unit="MB", less_is_better=True),
    "worker cpu": Quantity(title="CPU of the worker per 10,000 jobs", unit="s", less_is_better=True),
    "server cpu": Quantity(title="CPU of the server per 10,000 jobs", unit="s", less_is_better=True),
    "wal": Quantity(title="WAL per job, enqueued and drained", unit="bytes", less_is_better=True),
    "disk": Quantity(title="disk per job, afterwards", unit="bytes", less_is_better=True),
}
NODES = (1, 2, 4, 8)


async def drain(plan: Plan) -> dict[str, float]:
    """Every kind of handler; the costs are those of the first kind."""
    figures: dict[str, float] = {}
    async with plan.workbench.session(plan.system, workers=plan.processes) as session:
        for kind in _kinds(plan, KINDS):
            before = await session.size() if session.conn and not figures else 0
            drained = await session.drain(plan.jobs_of(JOBS[kind], kind), kind)
            if not figures:
                figures |= _costs(drained)
                figures["memory"] = session.workers[0].peak_memory
                if session.conn:
                    figures["wal"] = drained.wal / drained.jobs
                    figures["disk"] = (await session.size() - before) / drained.jobs
            figures[kind] = drained.rate
        await session.check()
    return figures


async def several(plan: Plan) -> dict[str, float]:
    """Two worker processes on one queue, or more if they are asked for."""
    return await _rates(plan, ("nothing", "pause", "plain"), workers=max(2, plan.processes))


async def sync(plan: Plan) -> dict[str, float]:
    """Plain functions only."""
    return await _rates(plan, ("plain",), workers=plan.processes)


async def transactional(plan: Plan) -> dict[str, float]:
    """One insert per job, in one commit with the outcome, only; a commit for each job, and one for 500 jobs."""
    return await _rates(plan, ("transact", "batch"), workers=plan.processes)


async def nodes(plan: Plan) -> dict[str, float]:
    """1, 2, 4 and 8 worker processes."""
    figures: dict[str, float] = {}
    for count in NODES:
        figures[f"{count}"] = (await _rates(plan, ("nothing",), workers=count))["nothing"]
    return figures


async def _rates(plan: Plan, kinds: Iterable[str], *, workers: int) -> dict[str, float]:
    async with plan.workbench.session(plan.system, workers=workers) as session:
        rates = {kind: (await session.drain(plan.jobs_of(JOBS[kind], kind), kind)).rate for kind in _kinds(plan, kinds)}
        await session.check()
    return rates


def _costs(drained: DrainTiming) -> dict[str, float]:
    share = drained.jobs / 10_000
    costs = {"worker cpu": drained.worker_cpu / share}
    return costs if drained.server_cpu is None else costs | {"server cpu": drained.server_cpu / share}


def _kinds(plan: Plan, kinds: Iterable[str]) -> list[str]:
    return [kind for kind in kinds if kind in plan.system.kinds]


DRAIN = Scenario(name="drain", about="jobs drained by one worker process", quantities=KINDS | COSTS, measure=drain)
SEVERAL = Scenario(
    name="drain2",
    about="jobs drained by two worker processes",
    quantities={kind: KINDS[kind] for kind in ("nothing", "pause", "plain")},
    measure=several,
)
SYNC = Scenario(
    name="sync",
    about="of drain only plain functions, in threads",
    quantities={"plain": KINDS["plain"]},
    measure=sync,
    share=JOBS["plain"] / JOBS["nothing"],
    default=False,
    compared=False,
    needs="plain",
)
TRANSACTIONAL = Scenario(
    name="transactional",
    about="of drain only one insert in each job's commit, and the same with 500 jobs in a commit",
    quantities={"transact": KINDS["transact"], "batch": BATCH},
    measure=transactional,
    share=(JOBS["transact"] + JOBS["batch"]) / JOBS["nothing"],
    default=False,
    compared=False,
    needs="transact",
)
GROWING = Scenario(
    name="nodes",
    about="jobs drained by 1, 2, 4 and 8 worker processes",
    quantities={
        f"{count}": Quantity(title="1 worker process" if count == 1 else f"{count} worker processes", unit="jobs/s")
        for count in NODES
    },
    measure=nodes,
    default=False,
    close_only=True,
)
