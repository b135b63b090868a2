"""Enqueue: how fast jobs can be put in, with no worker running."""

from __future__ import annotations

from howdah_lab.bench.scenario import Quantity, Scenario, Setting

ONE = 3_000
CALLED = 10_000
BULK = 50_000
CALLERS = (100, 1000)


async def measure(setting: Setting) -> dict[str, float]:
    """One at a time, many callers of one process at once, and in bulk; making jobs of arguments included."""
    figures = {}
    kind = "nothing" if "nothing" in setting.rival.kinds else "plain"
    async with setting.testbed.session(setting.rival) as session:
        await session.enqueue(20, "one", 20, kind)  # statements are prepared, code is compiled
        jobs = setting.jobs(ONE, "one", seconds=1.5)
        figures["one"] = jobs / await session.enqueue(jobs, "one", jobs, kind)
        for callers in CALLERS:
            jobs = setting.jobs(CALLED, "callers", of=callers, seconds=1.0)
            await session.enqueue(callers, "callers", callers, callers, kind)
            figures[f"callers {callers}"] = jobs / await session.enqueue(jobs, "callers", callers, jobs, kind)
        jobs = setting.jobs(BULK, "bulk")
        figures["bulk"] = jobs / await session.fill(jobs, kind)
    return figures


SCENARIO = Scenario(
    name="enqueue",
    about="jobs put in, no worker running",
    quantities={
        "one": Quantity(title="one at a time", unit="jobs/s"),
        "callers 100": Quantity(title="100 concurrent callers", unit="jobs/s"),
        "callers 1000": Quantity(title="1,000 concurrent callers", unit="jobs/s"),
        "bulk": Quantity(title="in bulk", unit="jobs/s"),
    },
    measure=measure,
)
