"""Enqueue throughput, without a running worker."""

from __future__ import annotations

from howdah_lab.bench.scenario import Plan, Quantity, Scenario

ONE = 3_000
CALLED = 10_000
BULK = 50_000
CALLERS = (100, 1000)


async def enqueue(plan: Plan) -> dict[str, float]:
    """One at a time, by concurrent callers of one process, and in bulk; the time to build jobs is included."""
    figures = {}
    kind = "nothing" if "nothing" in plan.system.kinds else "plain"
    async with plan.workbench.session(plan.system) as session:
        await session.enqueue(20, "one", 20, kind)  # prepares statements, compiles code
        jobs = plan.jobs_of(ONE, "one", seconds=1.5)
        figures["one"] = jobs / await session.enqueue(jobs, "one", jobs, kind)
        for callers in CALLERS:
            jobs = plan.jobs_of(CALLED, "callers", of=callers, seconds=1.0)
            await session.enqueue(callers, "callers", callers, callers, kind)
            figures[f"callers {callers}"] = jobs / await session.enqueue(jobs, "callers", callers, jobs, kind)
        jobs = plan.jobs_of(BULK, "bulk")
        figures["bulk"] = jobs / await session.fill(jobs, kind)
        await session.check()
    return figures


ENQUEUE = Scenario(
    name="enqueue",
    about="jobs put in, no worker running",
    quantities={
        "one": Quantity(title="one at a time", unit="jobs/s"),
        "callers 100": Quantity(title="100 concurrent callers", unit="jobs/s"),
        "callers 1000": Quantity(title="1,000 concurrent callers", unit="jobs/s"),
        "bulk": Quantity(title="in bulk", unit="jobs/s"),
    },
    measure=enqueue,
)
