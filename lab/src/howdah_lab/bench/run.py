"""Runs the scenarios one after the other, each in an empty schema; a failure does not stop the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from howdah_lab.bench.bench_schema import BenchSchema
from howdah_lab.bench.drain import drain, held, processes, singles, sync, transactional
from howdah_lab.bench.enqueue import enqueue
from howdah_lab.bench.figure import Figure, Result
from howdah_lab.bench.latency import latency
from howdah_lab.bench.plan import LeftOut, OwnScenario, Plan
from howdah_lab.bench.scenarios import append, consume
from howdah_lab.bench.scenarios.dashboard import dashboard
from howdah_lab.bench.scenarios.event_latency import arrival
from howdah_lab.bench.scenarios.eventsourcing import rival
from howdah_lab.bench.scenarios.remote_workers import fleet
from howdah_lab.bench.scenarios.table import table

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        OwnScenario(name="drain", about="async handlers that do nothing", measure=drain, share=1),
        OwnScenario(name="held", about="a snapshot held open all the time", measure=held, share=0.4, parts=2),
        OwnScenario(name="enqueue", about="jobs put in, no node running", measure=enqueue, share=1, parts=5),
        OwnScenario(
            name="latency", about="idle queue, node in another process", measure=latency, share=0.006, once=True
        ),
        OwnScenario(name="sync", about="plain functions, in threads", measure=sync, share=0.2),
        OwnScenario(name="transactional", about="one insert in each job's commit", measure=transactional, share=0.1),
        OwnScenario(name="singles", about="jobs enqueued one by one", measure=singles, share=0.2),
        OwnScenario(name="table", about="rows of a table of your own", measure=table, share=0.4, parts=2),
        OwnScenario(name="append", about="events put in", measure=append.append, share=1, parts=append.PARTS),
        OwnScenario(name="consume", about="events handled", measure=consume.consume, share=4, parts=len(consume.KINDS)),
        OwnScenario(name="arrival", about="idle log, node in another process", measure=arrival, share=0.006, once=True),
        OwnScenario(name="rival", about="events beside the library eventsourcing", measure=rival, share=1),
        OwnScenario(name="fleet", about="workers over HTTP", measure=fleet, share=1, parts=2),
        OwnScenario(name="processes", about="two nodes or more", measure=processes, share=1),
        OwnScenario(name="dashboard", about="its pages", measure=dashboard, share=100, once=True, alone=True),
    )
}


async def run(
    schema: BenchSchema,
    scenarios: Sequence[OwnScenario],
    *,
    jobs: int,
    rounds: int,
    processes: int,
    begin: Callable[[OwnScenario], None],
    tick: Callable[[], None],
) -> list[Result]:
    """Measure; ``begin`` is called before every scenario and ``tick`` after every round."""
    results = []
    for scenario in scenarios:
        begin(scenario)
        plan = Plan(schema=schema, jobs=scenario.jobs(jobs), rounds=rounds, processes=processes, tick=tick)
        results.append(await _measure(scenario, plan))
    return results


async def _measure(scenario: OwnScenario, plan: Plan) -> Result:
    began = time.monotonic()
    figures: list[Figure] = []
    error = left_out = None
    try:
        await plan.schema.fresh()
        figures = list(await scenario.measure(plan))
    except LeftOut as missing:
        left_out = str(missing)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    return Result(
        scenario=scenario.name,
        about=scenario.about,
        jobs=plan.jobs,
        seconds=time.monotonic() - began,
        figures=figures,
        error=error,
        left_out=left_out,
    )
