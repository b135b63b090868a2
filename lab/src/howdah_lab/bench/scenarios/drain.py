"""Drain: jobs wait, one or two warm workers are let loose on them; what it costs."""

from __future__ import annotations

from howdah_lab.bench.scenario import Quantity, Scenario, Setting
from howdah_lab.bench.session import SystemSession

JOBS = {"nothing": 50_000, "pause": 20_000, "plain": 20_000, "insert": 5_000, "transact": 5_000}
KINDS = {
    "nothing": Quantity(title="async handlers that do nothing", unit="jobs/s"),
    "pause": Quantity(title="handlers that await 1 ms", unit="jobs/s"),
    "plain": Quantity(title="plain functions, in threads", unit="jobs/s"),
    "insert": Quantity(title="handlers with one insert", unit="jobs/s"),
    "transact": Quantity(title="one insert, in one commit with the outcome", unit="jobs/s"),
}
COSTS = {
    "memory": Quantity(title="memory of the worker, at its peak", unit="MB", less_is_better=True),
    "worker cpu": Quantity(title="CPU of the worker per 10,000 jobs", unit="s", less_is_better=True),
    "server cpu": Quantity(title="CPU of the server per 10,000 jobs", unit="s", less_is_better=True),
    "wal": Quantity(title="WAL per job, enqueued and drained", unit="bytes", less_is_better=True),
    "disk": Quantity(title="disk per job, afterwards", unit="bytes", less_is_better=True),
}


async def one(setting: Setting) -> dict[str, float]:
    """One worker, every kind of handler; costs are those of the first kind."""
    figures: dict[str, float] = {}
    async with setting.testbed.session(setting.rival, workers=1) as session:
        for kind in _kinds(setting, KINDS):
            before = await session.size() if session.conn and not figures else 0
            drained = await session.drain(setting.jobs(JOBS[kind], kind), kind)
            if not figures:
                share = drained.jobs / 10_000
                figures["worker cpu"] = drained.worker_cpu / share
                figures["server cpu"] = drained.server_cpu / share
                figures["memory"] = session.workers[0].peak_memory
                if session.conn:
                    figures["wal"] = drained.wal / drained.jobs
                    figures["disk"] = (await session.size() - before) / drained.jobs
            figures[kind] = drained.rate
        await session.check()
    return figures


async def two(setting: Setting) -> dict[str, float]:
    """Two workers on one queue."""
    async with setting.testbed.session(setting.rival, workers=2) as session:
        return await _rates(setting, session, ["nothing", "pause", "plain"])


async def nodes(setting: Setting) -> dict[str, float]:
    """1, 2, 4 and 8 workers."""
    figures: dict[str, float] = {}
    for count in NODES:
        async with setting.testbed.session(setting.rival, workers=count) as session:
            figures[f"{count}"] = (await session.drain(setting.jobs(JOBS["nothing"], "nothing"), "nothing")).rate
            await session.check()
    return figures


async def _rates(setting: Setting, session: SystemSession, kinds: list[str]) -> dict[str, float]:
    rates = {}
    for kind in _kinds(setting, kinds):
        rates[kind] = (await session.drain(setting.jobs(JOBS[kind], kind), kind)).rate
    await session.check()
    return rates


def _kinds(setting: Setting, kinds: object) -> list[str]:
    return [kind for kind in kinds if kind in setting.rival.kinds]  # type: ignore[attr-defined]


NODES = (1, 2, 4, 8)
SCENARIO = Scenario(name="drain", about="jobs drained by one worker process", quantities=KINDS | COSTS, measure=one)
TWO = Scenario(
    name="drain2",
    about="jobs drained by two worker processes",
    quantities={kind: KINDS[kind] for kind in ("nothing", "pause", "plain")},
    measure=two,
)
GROWING = Scenario(
    name="nodes",
    about="jobs drained by 1, 2, 4 and 8 worker processes",
    quantities={
        f"{count}": Quantity(title="1 worker process" if count == 1 else f"{count} worker processes", unit="jobs/s")
        for count in NODES
    },
    measure=nodes,
    close_only=True,
)
