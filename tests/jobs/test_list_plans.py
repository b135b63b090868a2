"""What people look at, with a million finished and a hundred thousand waiting jobs behind it; as in test_plans."""

from __future__ import annotations

import pytest

from kit.history import ALONE, FINISHED, HELD, LEASED, NODES, PUT_OFF, RUNNING

pytestmark = pytest.mark.anyio

END = 2**63 - 1
MIDDLE = 500_000
ONE_OF_EACH = [MIDDLE + 500, FINISHED + 250, ALONE + 77, PUT_OFF + 9, HELD + 5, MIDDLE * 4]


@pytest.mark.parametrize("id", ONE_OF_EACH)
async def test_one_job_by_id(look, id):
    seen = await look("select * from howdah.jobs where id = $1", id, before=LEASED)
    assert seen.walked == {}
    assert seen.rows < 2 * NODES  # a job under lease looks through the leases
    assert seen.pages < 150


async def test_get(look):
    seen = await look("get", ONE_OF_EACH, 4096, before=LEASED)
    assert seen.walked == {}
    assert seen.rows < 4 * NODES
    assert seen.pages < 400


@pytest.mark.parametrize("before", [END, MIDDLE])
@pytest.mark.parametrize("scope", [(None, None, None), ("default", None, None), ("default", "work", None)], ids=str)
async def test_jobs_in_any_state(look, before, scope):
    seen = await look("list_all", before, *scope, 100)
    assert seen.walked == {}
    assert seen.pages < 50


@pytest.mark.parametrize("before", [END, MIDDLE])
async def test_jobs_that_succeeded(look, before):
    seen = await look("list_done", before, 100)
    assert seen.walked == {}
    assert seen.pages < 50


@pytest.mark.parametrize("before", [END, MIDDLE])
@pytest.mark.parametrize("scope", [("default", None, None), ("default", "work", None)], ids=str)
async def test_jobs_of_a_queue_that_succeeded(look, before, scope):
    """Neither those that wait nor older ones are looked at."""
    seen = await look("list_done_of", before, *scope, 100)
    assert seen.walked == {}
    assert seen.rows < 400
    assert seen.pages < 800


async def test_a_key_of_jobs_that_succeeded(look):
    """Nothing finds finished jobs by key, so all are read; but each only once, and only those that match are probed."""
    seen = await look("list_done_of", MIDDLE, None, None, "key 500", 100)
    assert seen.rows < 1.1 * MIDDLE
    assert seen.pages < 20_000


@pytest.mark.parametrize(
    ("state", "before", "queue"), [("f", END, None), ("f", MIDDLE, "default"), ("c", END, None)], ids=str
)
async def test_jobs_that_failed(look, state, before, queue):
    """At worst it looks at all that did not succeed."""
    seen = await look("list_bad", state, before, queue, None, None, 100)
    assert seen.walked == {}
    assert seen.rows < 3000
    assert seen.pages < 4000


@pytest.mark.parametrize(("before", "queue"), [(END, None), (FINISHED + 50_250, "default")], ids=str)
async def test_jobs_that_wait(look, before, queue):
    seen = await look("list_queued", before, queue, None, 100)
    assert seen.walked == {}
    assert seen.pages < 400


@pytest.mark.parametrize("queue", [None, "default"])
async def test_jobs_under_lease(look, queue):
    seen = await look("list_running", END, queue, None, 100, before=LEASED)
    assert seen.walked == {}
    assert seen.pages < 1500


@pytest.mark.parametrize("state", ["queued", "running"])
async def test_the_holder_of_a_key(look, state):
    seen = await look("list_held", f"key {FINISHED + 100}", state, END, None, None)
    assert seen.walked == {}
    assert seen.pages < 100


async def test_every_queue(look):
    """All that waits is counted, in runs; leases cost by the run as well, not by the job."""
    seen = await look("count_queues", before=LEASED)
    assert {name for name in seen.walked if name not in ("ready", "later")} == set()
    assert seen.pages < 1.5 * RUNNING


async def test_attempts(look):
    seen = await look("attempts", 1000, 10)
    assert seen.walked == {}
    assert seen.pages < 200


@pytest.mark.parametrize("gone", [False, True])
async def test_nodes(look, gone):
    """Leases are counted once, not once for each node."""
    seen = await look("nodes", gone, 100)
    assert seen.rows < 6 * NODES
    assert seen.pages < 1000


async def test_schedules(look):
    last = f"insert into howdah.schedule values ('each', 'work', '* * * * *', 'UTC', now(), now(), {MIDDLE})"
    seen = await look("schedules", before=last)
    assert seen.walked == {}
    assert seen.pages < 200
