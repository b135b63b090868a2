"""Graceful stops at random moments, by the hundred: HOWDAH_STOPS=200 is the long form."""

from __future__ import annotations

import http.client
import itertools
import os
import random
import re
import signal
import socket
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from kit.command import Command, Jobs
from kit.serve_process import QUICK, ControlPlaneProcess, make_token

pytestmark = pytest.mark.stories

STOPS = int(os.environ.get("HOWDAH_STOPS", "8"))
SEED = int(os.environ.get("HOWDAH_TORTURE_SEED", "1"))
TOGETHER = 4
GRACE = 0.5
LATE = 2.0
"""Seconds after the grace in which a node has ended."""
WORKER = ("worker", "-a", "kit.shutdown_app:app", "-c", "8", "--grace", f"{GRACE}s")
ENDLESS = 6
KINDS = {"database": ("quickly", "in_thread", "effect"), "http": ("quickly", "in_thread")}


@pytest.fixture
def jobs(direct):
    jobs = Jobs(direct.dsn)
    jobs.run("create table mark (n int not null)")
    yield jobs
    jobs.close()


class Crew:
    """Starts nodes that work on the database, or without one."""

    def __init__(self, way, database, stack):
        self._words, self._environment = (), {"dsn": database.dsn}
        self._ready = "starts: "
        if way == "http":
            plane = stack.enter_context(ControlPlaneProcess(*QUICK, "--rate", "10000", dsn=database.dsn))
            self._words, self._environment = ("--server", plane.url), {"HOWDAH_TOKEN": make_token(database, "work")}
            self._ready = "works for "

    def node(self, stack, *words):
        return stack.enter_context(Command(*WORKER, *self._words, *words, **self._environment))

    def nodes(self, stack, count):
        """So many of them, at work."""
        nodes = [self.node(stack) for _ in range(count)]
        for node in nodes:
            node.says(self._ready)
        return nodes


def stop_each(nodes, moments):
    """Send each a signal at its moment; returns how long each took to end."""
    began = time.monotonic()
    sent, took = {}, {}
    while len(took) < len(nodes):
        now = time.monotonic() - began
        for node, moment in zip(nodes, moments, strict=True):
            if node not in sent and now >= moment:
                node.send(signal.SIGTERM)
                sent[node] = time.monotonic()
            elif node in sent and node not in took and node.process.poll() is not None:
                took[node] = time.monotonic() - sent[node]
        assert now < 60, "\n".join(node.output for node in nodes if node not in took)
        time.sleep(0.005)
    return [took[node] for node in nodes]


def allowed(calm):
    """Seconds for one stop; a machine on which an idle node takes long to end is given more."""
    return GRACE + LATE + 10 * max(0.0, calm - 0.5)


@pytest.mark.timeout(60 + 6 * STOPS)
@pytest.mark.parametrize("way", list(KINDS))
def test_stops_at_any_moment_lose_nothing_charge_nothing_and_are_prompt(database, jobs, way):
    chance = random.Random(SEED)
    numbers = itertools.count()
    with ExitStack() as stack:
        crew = Crew(way, database, stack)
        idle = crew.nodes(stack, 1)
        [calm] = stop_each(idle, [0.3])  # over HTTP it waits for work by a long poll
        for _ in range(ENDLESS):
            jobs.run("select howdah.enqueue('never', queue => 'endless', max_attempts => 1)")
        codes, took = [idle[0].process.returncode], []
        for left in range(STOPS, 0, -TOGETHER):
            for kind, _ in itertools.product(KINDS[way], range(100)):
                jobs.enqueue_number(kind, next(numbers), queue="quick")
            with ExitStack() as batch:
                nodes = crew.nodes(batch, min(left, TOGETHER))
                took += stop_each(nodes, [chance.uniform(0.0, 1.0) for _ in nodes])
                codes += [node.process.returncode for node in nodes]
        rest = crew.node(stack, "-q", "quick", "--drain")
        assert rest.ends() == 0, rest.output

    print(f"{STOPS} stops by {way}: longest {max(took):.2f} s with a grace of {GRACE} s, an idle one {calm:.2f} s")
    assert set(codes) == {0}
    assert max(took) < allowed(calm)
    assert jobs.query("select state, attempt, resets, count(*) from howdah.jobs group by 1, 2, 3 order by 1") == [
        ("done", 1, 0, next(numbers)),
        ("queued", 0, 0, ENDLESS),
    ]
    assert jobs.query("select count(*) from howdah.attempt") == [(0,)]
    assert jobs.query("select count(*), count(distinct n) from mark") == [
        jobs.query("select count(*), count(*) from howdah.job where kind = 'effect'")[0]
    ]


def test_a_node_that_is_killed_would_be_seen(database, jobs):
    """The control: what it ran is charged, or still held."""
    with ExitStack() as stack:
        [node] = Crew("database", database, stack).nodes(stack, 1)
        jobs.run("select howdah.enqueue('never', queue => 'endless', max_attempts => 1)")
        jobs.become("running")
        node.send(signal.SIGKILL)
        assert node.ends() == -signal.SIGKILL
        assert jobs.all("state, attempt") != [("queued", 0)]


def test_a_control_plane_ends_as_promptly_with_streams_that_are_open(database):
    with ControlPlaneProcess("--auth", "none", dsn=database.dsn) as control:
        assert control.port
        [calm] = stop_each([control], [0.0])
    with ControlPlaneProcess("--auth", "none", dsn=database.dsn) as control, ExitStack() as stack:
        control.says("?key=")
        streams = [Stream(stack, control.port, cookie_of(control.output)) for _ in range(3)]
        [took] = stop_each([control], [0.2])
        assert control.process.returncode == 0, control.output
        assert "Traceback" not in control.output
        assert [b"event: over" in stream.rest() for stream in streams] == [True] * 3, "they were told, not cut"

    print(f"with streams {took:.2f} s, without {calm:.2f} s")
    assert took < 3.0 + 10 * max(0.0, calm - 0.5), "it promises three seconds"


def cookie_of(output):
    """Follow the printed link; return the cookie it is exchanged for."""
    link = urlsplit(re.search(r"http://\S+\?key=\S+", output)[0])
    conn = http.client.HTTPConnection("127.0.0.1", link.port, timeout=60)
    conn.request("GET", f"{link.path}?{link.query}")
    return conn.getresponse().headers["Set-Cookie"].partition(";")[0]


class Stream:
    """Somebody who looks at the dashboard."""

    def __init__(self, stack, port, cookie):
        self._socket = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        self._socket.settimeout(60)
        self._socket.sendall(
            f"GET /dashboard/live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n".encode()
        )
        assert b"text/event-stream" in self._socket.recv(4096)

    def rest(self):
        """All that is still said."""
        return b"".join(iter(lambda: self._socket.recv(65536), b""))
