"""What people look at, with a million finished and a hundred thousand waiting jobs behind it; as in test_plans."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from howdah.postgres import sql
from kit.job_history import ALONE, FINISHED, HELD, LEASED, NODES, PUT_OFF, RUNNING

pytestmark = pytest.mark.anyio

END = 2**63 - 1
MIDDLE = 500_000
NO_MORE = (None,) * 5
"""Neither times nor a text."""
MOMENT = datetime(2030, 1, 31, tzinfo=UTC)
ONE_OF_EACH = [MIDDLE + 500, FINISHED + 250, ALONE + 77, PUT_OFF + 9, HELD + 5, MIDDLE * 4]


@pytest.mark.parametrize("id", ONE_OF_EACH)
async def test_one_job_by_id(measure, id):
    seen = await measure("select * from howdah.jobs where id = $1", id, before=LEASED)
    assert seen.walked == {}
    assert seen.rows < 2 * NODES  # a job under lease looks through the leases
    assert seen.pages < 150


async def test_get(measure):
    seen = await measure("get", ONE_OF_EACH, 4096, before=LEASED)
    assert seen.walked == {}
    assert seen.rows < 4 * NODES
    assert seen.pages < 400


@pytest.mark.parametrize("before", [END, MIDDLE])
@pytest.mark.parametrize("scope", [(None, None), ("default", None), ("default", "work")], ids=str)
async def test_jobs_in_any_state(measure, before, scope):
    seen = await measure("search_all", before, 100, *scope, *NO_MORE, False, 100)
    assert seen.walked == {}
    assert seen.rows < 200
    assert seen.pages < 50


@pytest.mark.parametrize("before", [END, MIDDLE])
async def test_a_text_in_jobs(measure, before):
    """What is looked at is what was asked for, whatever fits; each once in job, and once in done or attempt."""
    seen = await measure("search_all", before, 500, None, None, *NO_MORE[:4], "nowhere", False, 100)
    assert seen.walked == {}
    assert seen.rows < 1100
    assert seen.pages < 4000


@pytest.mark.parametrize("before", [END, MIDDLE])
async def test_jobs_that_succeeded(measure, before):
    seen = await measure("list_done", before, 100)
    assert seen.walked == {}
    assert seen.pages < 50


@pytest.mark.parametrize("before", [END, MIDDLE])
@pytest.mark.parametrize("scope", [("default", None), ("default", "work")], ids=str)
async def test_jobs_of_a_queue_that_succeeded(measure, before, scope):
    """Neither those that wait nor older ones are looked at."""
    seen = await measure("search_all", before, 100, *scope, *NO_MORE, True, 100)
    assert seen.walked == {}
    assert seen.rows < 400
    assert seen.pages < 800


@pytest.mark.parametrize("before", [END, MIDDLE])
async def test_a_key(measure, before):
    seen = await measure("list_keyed", before, "key 500", 100)
    assert seen.walked == {}
    assert seen.rows < 5
    assert seen.pages < 50


async def test_which_of_some_jobs_fit(measure):
    seen = await measure("match", list(range(MIDDLE, MIDDLE + 100)), "d", "default", "work", *NO_MORE[:4], "1", None)
    assert seen.walked == {}
    assert seen.rows < 300
    assert seen.pages < 1000


@pytest.mark.parametrize(
    ("state", "before", "queue"), [("f", END, None), ("f", MIDDLE, "default"), ("c", END, None)], ids=str
)
async def test_jobs_that_failed(measure, state, before, queue):
    seen = await measure("search_bad", before, 100, queue, None, *NO_MORE, state, 100, None)
    assert seen.walked == {}
    assert seen.rows < 300
    assert seen.pages < 600


async def test_failures_by_error(measure):
    seen = await measure("failures", 500, None, "default", "work", 50)
    assert seen.walked == {}
    assert seen.rows < 4 * 500  # each in done and in job, perhaps once more to find the examples
    assert seen.pages < 8 * 500  # by an index each; all of history are tens of thousands


async def test_a_span_of_time(measure):
    """By halving: a few dozen jobs are looked at, each found by its id."""
    seen = await measure("bounds", MOMENT, MOMENT)
    assert seen.walked == {}
    assert seen.rows < 200
    assert seen.pages < 2000


@pytest.mark.parametrize(("before", "queue"), [(END, None), (FINISHED + 50_250, "default")], ids=str)
async def test_jobs_that_wait(measure, before, queue):
    seen = await measure("list_queued", before, queue, None, 100)
    assert seen.walked == {}
    assert seen.pages < 400


@pytest.mark.parametrize("queue", [None, "default"])
async def test_jobs_under_lease(measure, queue):
    seen = await measure("list_running", END, queue, None, 100, before=LEASED)
    assert seen.walked == {}
    assert seen.pages < 1500


@pytest.mark.parametrize("state", ["queued", "running"])
async def test_the_holder_of_a_key(measure, state):
    seen = await measure("list_held", f"key {FINISHED + 100}", state, END, None, None)
    assert seen.walked == {}
    assert seen.pages < 100


async def test_every_queue(measure):
    """All that waits is counted, in runs; leases cost by the run as well, not by the job."""
    seen = await measure("count_queues", before=LEASED)
    assert {name for name in seen.walked if name not in ("ready", "later")} == set()
    assert seen.pages < 1.5 * RUNNING


IDLE = "insert into howdah.lane select 'idle ' || i, p from generate_series(1, 10000) i, generate_series(1, 3) p"


@pytest.mark.parametrize("statement", ["count_queues", "depth"])
@pytest.mark.parametrize("history", ["stale"], indirect=True)
async def test_ten_thousand_queues_without_jobs_cost_the_reading_of_their_names(measure, statement):
    text = sql.load("howdah.observe", schema="howdah").get(statement, statement)
    few = await measure(text)
    many = await measure(text, before=IDLE)
    assert many.rows - few.rows < 35_000
    assert many.pages - few.pages < 12_000


@pytest.mark.parametrize("scope", [(None, None), ("default", "work")], ids=str)
async def test_how_many_wait(measure, scope):
    seen = await measure("count_queued", *scope)
    assert {name for name in seen.walked if name not in ("ready", "later")} == set()
    assert seen.pages < 1000


@pytest.mark.parametrize("scope", [(None, None), ("default", "work")], ids=str)
async def test_how_many_run(measure, scope):
    """Leases cost by the run, not by the job."""
    seen = await measure("count_running", *scope, before=LEASED)
    assert seen.walked == {}
    assert seen.pages < 1.5 * RUNNING


IDS = [*range(FINISHED - 20, FINISHED), *range(FINISHED + 240, FINISHED + 260), *range(PUT_OFF + 1, PUT_OFF + 21)]
"""Twenty each that are over, in the middle of a run, and not due yet."""


@pytest.mark.parametrize("verb", ["delete", "move", "reprioritize", "cancel", "retry"])
async def test_acts(measure, verb):
    values = {
        "delete": (None, None, None),
        "move": (None, "other"),
        "reprioritize": (None, 50),
        "cancel": (None, None),
        "retry": (None, None),
    }
    seen = await measure(verb, IDS, *values[verb], before=LEASED)
    assert seen.walked == {}
    assert seen.rows < 4 * NODES
    assert 100 < seen.pages < 6000


async def test_how_some_jobs_ended(measure):
    seen = await measure("end_times", IDS)
    assert seen.walked == {}
    assert seen.pages < 600


async def test_attempts(measure):
    seen = await measure("attempts", 1000, 10)
    assert seen.walked == {}
    assert seen.pages < 200


@pytest.mark.parametrize("gone", [False, True])
async def test_nodes(measure, gone):
    """Leases are counted once, not once for each node."""
    seen = await measure("nodes", gone, 100)
    assert seen.rows < 6 * NODES
    assert seen.pages < 1000


async def test_schedules(measure):
    columns = "name, kind, cron, zone, last_at, last_job, declaration, slot_at"
    values = f"'each', 'work', '* * * * *', 'UTC', now(), {MIDDLE}, 'x', now()"
    last = f"insert into howdah.schedule ({columns}) values ({values})"
    seen = await measure("schedules", before=last)
    assert seen.walked == {}
    assert seen.pages < 200
