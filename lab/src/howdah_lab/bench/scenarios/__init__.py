"""Scenarios of the benchmark. Those with ``ours_only`` measure Howdah only, the others any system."""

from __future__ import annotations

from howdah_lab.bench.scenario import Scenario
from howdah_lab.bench.scenarios import (
    append,
    ceiling,
    consume,
    dashboard,
    decay,
    drain,
    enqueue,
    event_latency,
    eventsourcing,
    latency,
    remote_workers,
    shapes,
    table,
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        enqueue.ENQUEUE,
        drain.DRAIN,
        drain.SEVERAL,
        latency.LATENCY,
        latency.STORM_OF_JOBS,
        decay.HELD_SNAPSHOT,
        decay.HISTORY,
        decay.GROWTH,
        drain.GROWING,
        drain.SYNC,
        drain.TRANSACTIONAL,
        shapes.SHAPES_OF_LOAD,
        Scenario(
            name="table",
            about="rows of a table of your own",
            measure=table.table,
            share=0.4,
            parts=2,
            ours_only=True,
            compared=False,
        ),
        Scenario(
            name="append",
            about="events appended",
            measure=append.append,
            parts=append.PARTS,
            ours_only=True,
            compared=False,
        ),
        Scenario(
            name="consume",
            about="events handled",
            measure=consume.consume,
            share=4,
            parts=len(consume.KINDS),
            ours_only=True,
            compared=False,
        ),
        Scenario(
            name="arrival",
            about="how soon an event is handled on an idle log",
            measure=event_latency.arrival,
            share=0.006,
            once=True,
            ours_only=True,
            compared=False,
        ),
        Scenario(
            name="rival",
            about="events, compared with eventsourcing",
            measure=eventsourcing.rival,
            ours_only=True,
            compared=False,
        ),
        Scenario(
            name="fleet",
            about="workers over HTTP",
            measure=remote_workers.fleet,
            parts=2,
            ours_only=True,
            compared=False,
        ),
        Scenario(
            name="dashboard",
            about="pages of the dashboard, with millions of jobs",
            measure=dashboard.dashboard,
            share=100,
            once=True,
            ours_only=True,
            compared=False,
            default=False,
        ),
    )
}
"""All scenarios by name, in the order in which they run and are reported."""
ALIASES = {"processes": "drain2", "singles": "shapes"}
"""Former names."""
KNOWN = SCENARIOS | {ceiling.NAME: ceiling.SCENARIO}
"""All scenarios that results can contain."""
