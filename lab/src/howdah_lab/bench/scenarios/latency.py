"""Latency from enqueue to start: on an idle queue, at a fixed rate, and of jobs that are due at one moment."""

from __future__ import annotations

import time

from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.figure import percentile
from howdah_lab.bench.scenario import Plan, Quantity, Scenario
from howdah_lab.bench.session import SystemSession

PROBES = 150
PAUSE = (0.005, 0.025)
"""Seconds between two probes: the worker is idle again, and not in step with the client."""
RATES = {500: 3.0, 3000: 2.0}
"""Jobs enqueued per second, and for how many seconds; the second rate only for systems that drain that fast."""
STORM = 10_000
AHEAD = 4.0
"""Seconds from the scheduling of jobs to the moment when all of them are due."""
EARLY = 0.02
"""Seconds: the client's clock and the server's may differ by the time a call takes."""


async def latency(plan: Plan) -> dict[str, float]:
    """From the start of the enqueue call, or from the time at which it was due, to the start of the handler."""
    figures: dict[str, float] = {}
    async with plan.workbench.session(plan.system, workers=plan.processes) as session:
        probes = max(5, round(PROBES * plan.scale))
        await session.client.ask("probe", 10, *PAUSE)
        await session.finish(10)
        await session.delays()
        answer = await session.client.ask("probe", probes, *PAUSE)
        await session.finish(probes)
        delays = await _delays(session, probes)
        figures |= {f"idle p{rank}": percentile(delays, rank) for rank in (50, 95, 99)}
        figures["call p50"] = percentile(answer["calls"], 50)
        for rate, seconds in RATES.items():
            if plan.system.speed.get("one", rate) >= rate / 2 and (rate == min(RATES) or plan.system.close):
                jobs = max(20, round(rate * seconds * plan.scale))
                await session.client.ask("offer", rate, jobs)
                await session.finish(jobs)
                delays = await _delays(session, jobs)
                figures |= {f"{rate} p{rank}": percentile(delays, rank) for rank in (50, 99)}
        await session.check()
    return figures


async def storm(plan: Plan) -> dict[str, float]:
    """Delay of jobs that are due at the same moment, and the time until all are done."""
    async with plan.workbench.session(plan.system, workers=1) as session:
        jobs = plan.jobs_of(STORM, "later")
        ahead = max(1.0, AHEAD * min(1.0, plan.scale * 2))
        took = await session.enqueue(jobs, "later", jobs, ahead)
        while took > ahead:  # some were due before all were enqueued: repeat it with more time
            await session.finish(jobs)
            await _delays(session, jobs)
            ahead *= 2
            took = await session.enqueue(jobs, "later", jobs, ahead)
        began = time.monotonic()
        await session.finish(jobs)
        seconds = time.monotonic() - began - (ahead - took)
        delays = await _delays(session, jobs)
        if (early := min(delays)) < -EARLY:
            raise CheckFailed(f"a job started {-early:.3f} s before it was due")
        await session.check()
    figures = {f"late p{rank}": percentile(delays, rank) for rank in (50, 99)}
    return figures | {"all": max(0.001, seconds) / jobs * 10_000}


async def _delays(session: SystemSession, jobs: int) -> list[float]:
    delays = await session.delays()
    if len(delays) != jobs:
        raise CheckFailed(f"{len(delays):,} handlers started for {jobs:,} jobs")
    return delays


def _ms(title: str) -> Quantity:
    return Quantity(title=title, unit="ms", less_is_better=True)


LATENCY = Scenario(
    name="latency",
    about="how soon a job starts, idle and under load",
    quantities={
        **{f"idle p{rank}": _ms(f"idle queue, enqueue to start, p{rank}") for rank in (50, 95, 99)},
        "call p50": _ms("of it the enqueue call, p50"),
        **{f"{rate} p{rank}": _ms(f"{rate:,} jobs/s offered, p{rank}") for rate in RATES for rank in (50, 99)},
    },
    measure=latency,
    share=PROBES / 50_000,
    needs="probe",
)
STORM_OF_JOBS = Scenario(
    name="storm",
    about="scheduled jobs that come due at one moment",
    quantities={
        "late p50": _ms("start after the due time, p50"),
        "late p99": _ms("start after the due time, p99"),
        "all": Quantity(title="until all are done, per 10,000 jobs", unit="s", less_is_better=True),
    },
    measure=storm,
    share=STORM / 50_000,
    default=False,
    needs="later",
)
