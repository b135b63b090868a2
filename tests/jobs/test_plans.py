"""Every hot statement with a million finished and a hundred thousand waiting jobs behind it.

What is asserted is work, not time: how many pages a statement touches, how many rows it reads, and that it never walks
a long table. Each with the generic plan our own connections make, and with the plan the server's defaults make for the
arguments at hand, as behind a pooler; each with true statistics and with those of empty tables.
"""

from __future__ import annotations

import json

import pytest

from howdah.jobs.ack import array
from kit.job_history import ALONE, FINISHED, LEASED, NODE, PUT_OFF, TOKEN, StatementMeter, pages

pytestmark = pytest.mark.anyio

DUE = f"update howdah.later set due_at = now() where id <= {PUT_OFF + 100}"
EXPIRED = f"{LEASED}; update howdah.lease set expires_at = now() - interval '1 s' where token = {TOKEN}"
IDS = list(range(FINISHED + 1, FINISHED + 101))
QUIET = [f"quiet {i}" for i in range(1, 21)]


def claim(queues=("default",), runs=8, kinds=("work",), marks="{}"):
    room = [100] * len(queues)
    return ("claim", list(queues), room, 100, NODE, 30.0, list(kinds), runs, marks, 0)


@pytest.mark.parametrize(
    ("arguments", "most"),
    [
        (claim(), 150),
        (claim(runs=100), 500),
        (claim(marks='{"default": {"-1": 1, "0": 1, "1": 1}}'), 150),
        (claim(queues=["default", *QUIET]), 300),
    ],
    ids=["of runs", "of singles", "above watermarks", "from many queues"],
)
async def test_claim(measure, arguments, most):
    seen = await measure(*arguments)
    assert seen.walked == {}
    assert seen.rows < 1000
    assert seen.pages < most


async def test_claim_of_nothing(measure):
    seen = await measure(*claim(queues=QUIET))
    assert seen.walked == {}
    assert seen.pages < 150


TENANTS = 300
CROWDED = f"""
insert into howdah.lane select 'tenant ' || i, p from generate_series(1, {TENANTS}) i, generate_series(1, 5) p;
delete from howdah.ready where lo > {ALONE};
insert into howdah.ready (lo, hi, priority, attempt, queue, kind)
    select i, i + 1, 1 + i % 5, 0, 'tenant ' || 1 + i % {TENANTS}, 'work'
    from generate_series({ALONE + 1}, {PUT_OFF}) i
"""
"""Five thousand single jobs in 300 queues with five priorities each."""


async def test_a_claim_reads_only_the_queues_and_priorities_that_it_takes_from(measure):
    queues = [f"tenant {i}" for i in range(1, TENANTS + 1)]
    marks = json.dumps({queue: dict.fromkeys(range(1, 6), 1) for queue in queues})
    seen = await measure(*claim(queues=queues, runs=100, marks=marks), before=CROWDED)
    assert seen.walked == {}
    assert seen.rows < 1000
    assert seen.pages < 3000


EMPTIED = """
create temp table kept as select * from howdah.ready;
delete from howdah.ready;
analyze howdah.ready;
insert into howdah.ready select * from kept
"""
"""Statistics taken at the worst moment: an empty ready table, then a hundred thousand jobs."""


@pytest.mark.parametrize("history", ["analyzed"], indirect=True)
async def test_a_claim_does_not_depend_on_what_analyze_saw(measure):
    seen = await measure(*claim(), before=EMPTIED)
    await measure.conn.execute("vacuum analyze howdah.ready")  # its size, and what is known of it, are not rolled back
    assert seen.walked == {}
    assert seen.rows < 15_000  # behind a pooler the lane itself may be read and sorted; history never


@pytest.mark.parametrize("history", ["analyzed"], indirect=True)
async def test_the_connection_for_claims_reads_no_lane_whole(history):
    conn = await history.connect("claim")
    seen = await StatementMeter(conn)(*claim(runs=100), before=EMPTIED)
    await conn.execute("vacuum analyze howdah.ready")
    await conn.close()
    assert seen.walked == {}
    assert seen.rows < 1000
    assert seen.pages < 6000


async def test_ack_of_successes(measure):
    columns = map(array, (IDS, [1] * 100, [5] * 100))
    seen = await measure("ack_done", NODE, [TOKEN], [100], *columns, [], [], [], before=LEASED)
    assert seen.walked == {}
    assert seen.rows < 20
    assert 100 < seen.pages < 1000


async def test_ack_of_successes_with_results_and_keys(measure):
    columns = map(array, (IDS, [1] * 100, [5] * 100))
    keyed = [id for id in IDS if id % 5 == 0]
    keys = [f"key {id}" for id in keyed]
    seen = await measure("ack_done", NODE, [TOKEN], [100], *columns, ['{"n": 1}'] * 100, keys, keyed, before=LEASED)
    assert keyed
    assert seen.walked == {}
    assert 100 < seen.pages < 2000


async def test_ack_of_anything(measure):
    n = len(IDS)
    outcomes = (["d", "r", "f", "s"] * n)[:n]
    columns = ([TOKEN] * n, IDS, [1] * n, outcomes, [1.0] * n, [5] * n, [None] * n, ["E"] * n, ["m"] * n, ["t"] * n)
    seen = await measure("ack", NODE, *columns, [], before=LEASED)
    assert seen.walked == {}
    assert seen.rows < 2000
    assert 100 < seen.pages < 3000


async def test_ack_that_says_too_early_that_a_lease_is_finished(measure):
    n = len(IDS)
    columns = ([TOKEN] * n, IDS, [1] * n, ["f"] * n, [1.0] * n, [5] * n, [None] * n, ["E"] * n, ["m"] * n, ["t"] * n)
    seen = await measure("ack", NODE, *columns, [TOKEN], before=LEASED)
    assert seen.walked == {}
    assert 500 < seen.pages < 9000  # the four hundred others go back


async def test_ack_in_a_transaction(measure):
    statement = "select howdah.ack_in_transaction($1, $2, $3, $4, $5, $6)"
    seen = await measure(statement, NODE, TOKEN, FINISHED + 5, 1, 5, None, before=LEASED)
    assert seen.walked == {}
    assert seen.pages < 50


async def test_ack_of_a_batch_in_a_transaction(measure):
    n = len(IDS)
    seen = await measure(
        "ack_batch", NODE, [TOKEN], [n], *map(array, (IDS, [1] * n, [5] * n)), [], [], [], before=LEASED
    )
    assert seen.walked == {}
    assert seen.pages < 20 * n

    seen = await measure("left_jobs", [TOKEN], before=LEASED)
    assert seen.walked == {}
    assert seen.pages < 50


async def test_heartbeat(measure):
    requests = f"{LEASED}; insert into howdah.cancel_request select generate_series({FINISHED - 1000}, {FINISHED + 10})"
    seen = await measure("heartbeat", NODE, [TOKEN], 30.0, "busy", 1, False, 0, before=requests)
    assert seen.walked == {}
    assert seen.pages < 100


@pytest.mark.parametrize("queues", [["default"], None], ids=["one queue", "all queues"])
async def test_promote(measure, queues):
    seen = await measure("promote", queues, 1000, before=DUE)
    assert seen.walked == {}
    assert seen.rows < 500
    assert 100 < seen.pages < 1500


@pytest.mark.parametrize("queues", [["default", *QUIET], None], ids=["many queues", "all queues"])
async def test_promote_of_nothing(measure, queues):
    """What is not due yet is not looked at."""
    seen = await measure("promote", queues, 1000)
    assert seen.walked == {}
    assert seen.rows < 50
    assert seen.pages < 150


async def test_reset(measure):
    seen = await measure("reset", 100, True, True, None, before=EXPIRED)
    assert seen.walked == {}
    assert 500 < seen.pages < 12_000  # five hundred jobs go back, each with a line of history


async def test_reset_of_nothing(measure):
    """A hundred runs go on; finished ones are not looked at."""
    seen = await measure("reset", 100, True, True, None)
    assert seen.walked == {}
    assert seen.rows < 6000
    assert seen.pages < 1500


async def test_release(measure):
    seen = await measure("release", NODE, [TOKEN], before=LEASED)
    assert seen.walked == {}
    assert 500 < seen.pages < 6000


@pytest.mark.parametrize("queues", [["default"], None], ids=["one queue", "every queue"])
async def test_doze(measure, queues):
    seen = await measure("announce_sleep", queues, 2000)
    assert seen.walked == {}
    assert seen.pages < 200


@pytest.mark.parametrize("queues", [["default"], None], ids=["one queue", "every queue"])
async def test_when_the_next_job_is_due(measure, queues):
    seen = await measure("next_due", queues)
    assert seen.walked == {}
    assert seen.pages < 200


THOUSANDS = "insert into howdah.lane select 'idle ' || i, p from generate_series(1, 10000) i, generate_series(1, 3) p"


@pytest.mark.parametrize("history", ["stale"], indirect=True)
@pytest.mark.parametrize("queues", [["default"], None], ids=["one queue", "every queue"])
async def test_which_queues_have_jobs(measure, queues):
    """Ten thousand queues without a job cost no more than a hundred."""
    seen = await measure("queues", queues, 100, before=THOUSANDS)
    assert seen.walked == {}
    assert seen.rows < 500
    assert seen.pages < 1000


async def test_a_claim_above_a_floor_reads_nothing_below_it(measure):
    floor = '{"default": {"floor": 1000000000, "above": -101}}'
    seen = await measure(*claim(marks=floor))
    assert seen.walked == {}
    assert seen.rows < 50
    assert seen.pages < 60
    seen = await measure(*claim(marks='{"default": {"floor": 1000000000, "above": 0, "0": 1000000000}}'))
    assert seen.pages < 200, "priority -1 is below neither"


async def test_how_far_a_claim_walks(measure):
    seen = await measure("walked", ["default", *QUIET], ["work"])
    assert seen.walked == {}
    assert seen.pages < 200


async def test_in_flight(measure):
    seen = await measure("still_open", [1, 2, 3])
    assert seen.pages < 10


@pytest.mark.parametrize(
    ("delay", "key"), [(None, None), (None, "new"), (None, f"key {FINISHED + 100}"), (60.0, None)], ids=str
)
async def test_enqueue(measure, delay, key):
    seen = await measure("enqueue", "work", "{}", "default", 0, None, delay, 5, None, key, None, None)
    assert seen.walked == {}
    assert seen.rows < 20
    assert seen.pages < 100


async def test_a_bulk_of_keys(measure):
    taken = [f"key {FINISHED + 100 * i}" for i in range(1, 6)]
    wanted = [*taken, *(f"new {i}" for i in range(5))]
    seen = await measure("take_keys", wanted, list(range(10)), None)
    assert seen.walked == {}
    assert seen.pages < 200


async def test_a_bulk_of_runs(measure):
    lo = list(range(2_000_000, 2_010_000, 500))
    n = len(lo)
    now = (lo, [start + 500 for start in lo], ["default"] * n, ["work"] * n, [0] * n)
    then = ([start + 100_000 for start in lo], ["2100-01-01"] * n, ["default"] * n, ["work"] * n, [0] * n)
    seen = await measure("insert_runs", *now, *then)
    assert seen.walked == {}
    assert 40 < seen.pages < 400


async def test_what_a_running_job_says(measure):
    seen = await measure(
        "write_log", NODE, FINISHED + 5, TOKEN, "log", ["line"] * 10, 0.5, "half", 10_000, before=LEASED
    )
    assert seen.walked == {}
    assert seen.pages < 150


@pytest.mark.parametrize("state", ["running", "done"])
async def test_the_record_of_a_run(measure, state):
    seen = await measure("record_run", NODE, FINISHED + 5, TOKEN, state, "{}", None, None, before=LEASED)
    assert seen.walked == {}
    assert seen.pages < 150


async def test_cancel_and_retry(measure):
    seen = await measure("cancel", [FINISHED + 250, ALONE + 7, PUT_OFF + 9], None, None)
    assert seen.walked == {}
    assert seen.pages < 600
    seen = await measure("retry", [1000, 2000], None, None)
    assert seen.walked == {}
    assert seen.pages < 600


async def test_the_check_can_fail(measure):
    await measure.conn.execute("set max_parallel_workers_per_gather = 0")
    seen = await measure("select count(*) from howdah.done where took_us > $1", 0)
    assert seen.rows >= FINISHED
    assert sum(seen.walked.values()) > FINISHED / 2
    assert seen.pages > 5000


def test_writes_that_nobody_reads_are_counted():
    def node(blocks, **more):
        return {"Shared Hit Blocks": blocks, "Shared Read Blocks": 0, **more}

    scan = node(2, **{"CTE Name": "held"})
    held, over = node(2, **{"Subplan Name": "CTE held"}), node(300, **{"Subplan Name": "CTE over"})
    assert pages(node(4, Plans=[held, over, scan])) == 304
