"""One round of the library `eventsourcing`, in a process of its own: the task on stdin, its rates on stdout.

As its documentation has it: aggregates saved by an application; a projection run by a ``ProjectionRunner``, its
tracking record written in PostgreSQL with every event. A clock starts when the first event is processed, so neither
the threads it starts nor its first read count. Only :mod:`howdah_lab.bench.scenarios.eventsourcing` starts this.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresTrackingRecorder
from eventsourcing.projection import ApplicationSubscription, Projection, ProjectionRunner
from psycopg.conninfo import conninfo_to_dict

PER_AGGREGATE = 4
"""Events of one aggregate: one save in four is that of a new one, as with our streams."""
FILL = 1000
PROJECTION_TIMEOUT = 120.0
"""Seconds."""


class RoundTask(msgspec.Struct):
    """Parameters of the measurement."""

    dsn: str
    schema: str
    round: int
    single: int
    """Events appended one by one."""
    read: int
    """Events read without tracking."""
    tracked: int
    """Events projected, each with its tracking record."""
    writers: int
    payload: list[Any]
    """The data of an event."""


class Order(Aggregate):  # type: ignore[misc]
    """With the same data as our events."""

    @event("Placed")  # type: ignore[untyped-decorator]
    def __init__(self, user_id: int, email: str, template: str, number: int, tags: list[str]) -> None: ...

    @event("Changed")  # type: ignore[untyped-decorator]
    def change(self, user_id: int, email: str, template: str, number: int, tags: list[str]) -> None:
        """Say it again."""


class Tracking(Projection[PostgresTrackingRecorder]):  # type: ignore[misc]
    """Does nothing but track."""

    def __init__(self, view: Any) -> None:
        super().__init__(view)
        self.began = self.ended = 0.0
        self.seen, self.wanted = 0, -1
        self.done = threading.Event()

    def process_event(self, domain_event: Any, tracking: Any) -> None:
        """One event, one commit."""
        self.began = self.began or time.perf_counter()
        self.view.insert_tracking(tracking)
        self.ended = time.perf_counter()
        self.seen += 1
        if self.seen == self.wanted:
            self.done.set()


def measure(task: RoundTask) -> dict[str, float]:
    """Every rate, in events a second."""
    rates: dict[str, float] = {}
    for functions in (False, True):
        kind = ", functions" if functions else ""
        env = _environment(task, functions)
        app = _application(f"append{task.round}{functions}", env)
        _save(app, task, PER_AGGREGATE)
        rates[f"application{kind}"] = _timed(1, task.single, partial(_save, app, task))
        for writers in (1, task.writers):
            rates[f"recorder x {writers}{kind}"] = _timed(writers, task.single, partial(_record, app, task))
        app.close()
    rates["subscription, nothing tracked"] = _read(task)
    rates["projection"] = _project(task)
    return rates


def _environment(task: RoundTask, functions: bool) -> dict[str, str]:
    server = conninfo_to_dict(task.dsn)
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(server.get("dbname", "")),
        "POSTGRES_HOST": str(server.get("host", "")),
        "POSTGRES_PORT": str(server.get("port", "5432")),
        "POSTGRES_USER": str(server.get("user", "")),
        "POSTGRES_PASSWORD": str(server.get("password", "")),
        "POSTGRES_SCHEMA": task.schema,
        "POSTGRES_POOL_SIZE": str(task.writers + 2),
        "POSTGRES_ENABLE_DB_FUNCTIONS": "y" if functions else "n",
    }


def _application(name: str, env: dict[str, str]) -> Any:
    return type(name, (Application,), {"name": name})(env)


def _save(app: Any, task: RoundTask, count: int) -> None:
    for number in range(count):
        if number % PER_AGGREGATE == 0:
            order = Order(*task.payload)
        else:
            order.change(*task.payload)
        app.save(order)


def _record(app: Any, task: RoundTask, count: int) -> None:
    """Record the same bytes without the application and the mapper."""
    state = msgspec.json.encode(task.payload)
    for number in range(count):
        if number % PER_AGGREGATE == 0:
            id = uuid4()
        app.recorder.insert_events([StoredEvent(id, number % PER_AGGREGATE + 1, "Placed", state)])


def _timed(writers: int, count: int, write: Callable[[int], None]) -> float:
    each = count // writers
    with ThreadPoolExecutor(writers) as threads:
        list(threads.map(write, [1] * writers))  # opens the connections
        began = time.perf_counter()
        list(threads.map(write, [each] * writers))
        return writers * each / (time.perf_counter() - began)


def _fill(app: Any, task: RoundTask, count: int) -> None:
    """So many events, many in one transaction."""
    made: list[Any] = []
    for _ in range(0, count, PER_AGGREGATE):
        order = Order(*task.payload)
        for _ in range(PER_AGGREGATE - 1):
            order.change(*task.payload)
        made.append(order)
        if len(made) * PER_AGGREGATE >= FILL:
            app.save(*made)
            made = []
    app.save(*made)


def _read(task: RoundTask) -> float:
    """A subscription that is only iterated over: what its projections could reach at best."""
    app = _application(f"read{task.round}", _environment(task, functions=False))
    _fill(app, task, task.read)
    seen, began = 0, 0.0
    with ApplicationSubscription(app) as subscription:
        for _ in subscription:
            began = began or time.perf_counter()
            seen += 1
            if seen >= task.read:
                break
        seconds = time.perf_counter() - began
    app.close()
    return seen / seconds


def _project(task: RoundTask) -> float:
    env, name = _environment(task, functions=False), f"track{task.round}"
    made = type(name, (Application,), {"name": name})
    app = made(env)
    _fill(app, task, task.tracked)
    projection = type(f"tracking{task.round}", (Tracking,), {"name": f"tracking{task.round}"})
    with ProjectionRunner(
        application_class=made, projection_class=projection, view_class=PostgresTrackingRecorder, env=env
    ) as runner:
        tracked = runner.projection
        tracked.wanted = app.recorder.max_notification_id()
        if tracked.seen < tracked.wanted and not tracked.done.wait(PROJECTION_TIMEOUT):
            raise TimeoutError(f"only {tracked.seen:,} of {tracked.wanted:,} events were projected")
        rate = tracked.seen / (tracked.ended - tracked.began)
    app.close()
    return float(rate)


def main(lines: Sequence[str]) -> None:
    """Do what the line says."""
    task = msgspec.json.decode("".join(lines), type=RoundTask)
    sys.stdout.write(json.dumps(measure(task)))


if __name__ == "__main__":
    main(sys.stdin.readlines())
