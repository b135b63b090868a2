"""Latency: how soon a job starts; on an idle queue, at a fixed rate, and when many come due at once."""

from __future__ import annotations

import time

from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.latency import percentile
from howdah_lab.bench.scenario import Quantity, Scenario, Setting
from howdah_lab.bench.session import SystemSession

PROBES = 150
PAUSE = (0.005, 0.025)
"""Seconds between two probes: the worker is asleep again, and not in step with the client."""
RATES = {500: 3.0, 3000: 2.0}
"""Jobs enqueued per second, and for how many seconds; the second rate only for systems that drain that fast."""
STORM = 10_000
AHEAD = 4.0
"""Seconds from the scheduling of jobs to the moment when all of them are due."""
EARLY = 0.02
"""Seconds: the client's clock and the server's may differ by the time a call takes."""


async def measure(setting: Setting) -> dict[str, float]:
    """From the begin of the enqueue call, or from when it should have begun, to the start of the handler."""
    figures: dict[str, float] = {}
    async with setting.testbed.session(setting.rival, workers=1) as session:
        probes = max(5, round(PROBES * setting.scale))
        await session.client.ask("probe", 10, *PAUSE)
        await session.finish(10)
        await session.delays()
        said = await session.client.ask("probe", probes, *PAUSE)
        await session.finish(probes)
        delays = await _delays(session, probes)
        figures |= {f"idle p{rank}": percentile(delays, rank) for rank in (50, 95, 99)}
        figures["call p50"] = percentile(said["calls"], 50)
        for rate, seconds in RATES.items():
            if setting.rival.speed.get("one", rate) >= rate / 2 and (rate == min(RATES) or setting.rival.close):
                jobs = max(20, round(rate * seconds * setting.scale))
                await session.client.ask("offer", rate, jobs)
                await session.finish(jobs)
                delays = await _delays(session, jobs)
                figures |= {f"{rate} p{rank}": percentile(delays, rank) for rank in (50, 99)}
        await session.check()
    return figures


async def storm(setting: Setting) -> dict[str, float]:
    """Delay of jobs that are due at the same moment, and the time until all are done."""
    async with setting.testbed.session(setting.rival, workers=1) as session:
        jobs = setting.jobs(STORM, "later")
        ahead = max(1.0, AHEAD * min(1.0, setting.scale * 2))
        took = await session.enqueue(jobs, "later", jobs, ahead)
        while took > ahead:  # some were due before all were in: once more, with more time
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


SCENARIO = Scenario(
    name="latency",
    about="how soon a job starts, idle and under load",
    quantities={
        **{f"idle p{rank}": _ms(f"idle queue, enqueue to start, p{rank}") for rank in (50, 95, 99)},
        "call p50": _ms("of it the enqueue call, p50"),
        **{f"{rate} p{rank}": _ms(f"{rate:,} jobs/s offered, p{rank}") for rate in RATES for rank in (50, 99)},
    },
    measure=measure,
    needs="probe",
)
COMING_DUE = Scenario(
    name="storm",
    about="scheduled jobs that come due at one moment",
    quantities={
        "late p50": _ms("start after the due time, p50"),
        "late p99": _ms("start after the due time, p99"),
        "all": Quantity(title="until all are done, per 10,000 jobs", unit="s", less_is_better=True),
    },
    measure=storm,
    needs="later",
)
