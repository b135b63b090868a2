"""Whether a node lives and is ready, over HTTP."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.registry import Collector

from howdah import ConfigError, Howdah
from howdah.observe import health as health_module
from howdah.observe.health import Checks, Health
from howdah.observe.node import observe_node
from howdah.observe.prometheus import Metrics
from howdah.postgres.database import Database
from kit.node import eventually
from observe.scraping import get, observed_node, status

pytestmark = pytest.mark.anyio


async def test_a_node_is_ready_while_it_takes_work_and_beats(app: Howdah, database: Database) -> None:
    go_on = asyncio.Event()

    @app.task(name="waits")
    async def waits() -> None:
        await go_on.wait()

    async with observed_node(app, database) as (running_node, observed):

        async def ready() -> Any:
            return await asyncio.to_thread(get, observed.port, "/readyz") == (200, "ok\n")

        await eventually(ready)
        await waits.enqueue()

        async def runs() -> Any:
            return running_node.running

        await eventually(runs)
        running_node.stop()
        draining = await asyncio.to_thread(get, observed.port, "/readyz")
        alive = await asyncio.to_thread(get, observed.port, "/livez")
        go_on.set()

    assert draining[0] == 503
    assert "draining" in draining[1]
    assert alive == (200, "ok\n")


async def test_a_node_whose_database_is_gone_lives_and_is_not_ready() -> None:
    nowhere = Database("postgresql://nobody@127.0.0.1:1/nothing")
    async with observe_node(nowhere, status()) as observed:
        alive = await asyncio.to_thread(get, observed.port, "/livez")
        ready = await asyncio.to_thread(get, observed.port, "/readyz")
        scraped = await asyncio.to_thread(get, observed.port, "/metrics")

    assert alive[0] == 200
    assert ready == (503, "no heartbeat has succeeded yet\n")
    assert scraped[0] == 200


async def test_a_blocked_event_loop_still_gets_an_answer(app: Howdah, database: Database) -> None:
    @app.task(name="nothing")
    async def nothing() -> None: ...

    answers: list[tuple[int, str]] = []
    async with observed_node(app, database) as (_, observed):
        thread = threading.Thread(target=lambda: answers.append(get(observed.port, "/livez")))
        thread.start()
        thread.join(5)  # on the event loop's own thread: it is blocked

    assert answers == [(200, "ok\n")]


def test_a_node_that_has_not_beaten_within_its_lease_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = Checks(status(lease=30.0))
    checks.on_event("node.beat", {"node": 8, "lag": 0.0})
    assert checks.ready() == "no heartbeat has succeeded yet"
    checks.on_event("node.beat", {"node": 7, "lag": 0.0})
    assert checks.ready() is None

    later = time.monotonic() + 31
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert checks.ready() == "no heartbeat has succeeded for 31.0 s, and the lease is 30 s"


def test_only_a_loop_blocked_for_long_calls_for_a_restart() -> None:
    assert Checks(status(loop_lag=lambda: 59.0)).alive() is None
    assert Checks(status(loop_lag=lambda: 75.0)).alive() == "the event loop has been blocked for 75 s"


@pytest.fixture
def health() -> Iterator[Health]:
    health = Health(Metrics(), alive=lambda: None, ready=lambda: "not yet")
    health.start()
    yield health
    health.stop()


def test_anything_else_is_not_found(health: Health) -> None:
    assert get(health.port, "/")[0] == 404
    assert get(health.port, "/livez?verbose=1") == (200, "ok\n")
    assert get(health.port, "/readyz") == (503, "not yet\n")
    assert get(health.port, "/metrics", method="HEAD") == (200, "")
    assert get(health.port, "/livez", method="POST")[0] == 501
    assert "# EOF" in get(health.port, "/metrics", accept="application/openmetrics-text; version=1.0.0")[1]


def test_a_port_in_use_is_named(health: Health) -> None:
    second = Health(Metrics(), alive=lambda: None, ready=lambda: None, port=health.port)
    with pytest.raises(ConfigError, match=f"port {health.port}: it is in use"):
        second.start()


def test_a_port_is_free_again_after_the_stop(health: Health) -> None:
    port = health.port
    health.stop()
    health.stop()
    again = Health(Metrics(), alive=lambda: None, ready=lambda: None, port=port)
    again.start()
    assert get(port, "/livez")[0] == 200
    again.stop()


def test_those_who_say_nothing_cannot_keep_others_out(health: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "LONGEST_REQUEST", 0.5)
    silent = [socket.create_connection(("127.0.0.1", health.port)) for _ in range(health_module.MOST_CONNECTIONS + 5)]
    until = time.monotonic() + 10
    while not _answers(health):
        assert time.monotonic() < until
        time.sleep(0.1)
    for each in silent:
        each.close()


def test_a_scrape_that_fails_says_so_and_the_server_goes_on() -> None:
    class Broken(Collector):
        def collect(self) -> Any:
            raise RuntimeError("broken")

    health = Health(Broken(), alive=lambda: None, ready=lambda: None)
    health.start()
    try:
        assert get(health.port, "/metrics") == (500, "failed; the log says why\n")
        assert get(health.port, "/livez")[0] == 200
    finally:
        health.stop()


def _answers(health: Health) -> bool:
    try:
        return get(health.port, "/livez")[0] == 200
    except OSError:
        return False
