"""What every store promises a worker."""

from __future__ import annotations

import asyncio

import pytest

from conformance.conftest import OUTCOMES
from howdah.errors import ConfigError, LeaseLost
from howdah.outcome import Ack, Outcome

pytestmark = pytest.mark.anyio


def ack(job, outcome=Outcome.OK, **facts):
    return Ack(job, outcome, 5, **facts)


async def test_a_claim_takes_what_is_there_and_no_more_than_asked(store_setup):
    await store_setup.put(5)
    store = await store_setup.store(1)

    first, rest = await store.claim(2, {}), await store.claim(10, {})
    assert (len(first), len(rest)) == (2, 3)
    assert len({job.id for job in first + rest}) == 5
    assert len({job.token for job in first}) == 1
    assert rest[0].token > first[0].token
    assert {job.attempt for job in first + rest} == {1}
    assert await store.claim(10, {}) == []
    assert await store_setup.states() == ["running"] * 5


async def test_claims_exclude_each_other(store_setup):
    await store_setup.put(60)
    stores = [await store_setup.store(node) for node in range(1, 9)]

    ids = []
    for _ in range(5):
        claims = await asyncio.gather(*(store.claim(3, {}) for store in stores))
        ids += [job.id for jobs in claims for job in jobs]
    assert len(ids) == len(set(ids)) == 60


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_an_outcome_is_recorded(store_setup, outcome):
    await store_setup.put(1)
    store = await store_setup.store(1)
    [job] = await store.claim(1, {})

    accepted = await store.ack([ack(job, outcome, delay=60.0, error="E", message="m")], [job.token])
    assert [each.outcome for each in accepted] == [outcome] or outcome is Outcome.POISON
    assert await store_setup.states() == [OUTCOMES[outcome]]


async def test_a_replayed_ack_is_accepted_and_changes_nothing(store_setup):
    await store_setup.put(3)
    store = await store_setup.store(1)
    jobs = await store.claim(3, {})
    acks = [ack(job) for job in jobs]

    assert len(await store.ack(acks, [])) == 3
    assert len(await store.ack(acks, [jobs[0].token])) == 3, "the reply was lost, the outcome was not"
    assert await store_setup.states() == ["done"] * 3


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_a_zombie_is_refused(store_setup, outcome):
    await store_setup.put(1)
    slow, fast = await store_setup.store(1), await store_setup.store(2)
    [late] = await slow.claim(1, {})
    await store_setup.expire()
    assert await store_setup.reset(fast) == 1

    assert await slow.ack([ack(late, outcome, error="E")], [late.token]) == [], "while it is queued"
    [fresh] = await fast.claim(1, {})
    assert fresh.token > late.token
    assert await slow.ack([ack(late, outcome, error="E")], [late.token]) == [], "while another holds it"
    assert await slow.release([late.token]) == 0
    assert await store_setup.states() == ["running"]
    assert len(await fast.ack([ack(fresh)], [fresh.token])) == 1
    assert await slow.ack([ack(late, outcome, error="E")], [late.token]) == [], "when it is done"
    assert await store_setup.states() == ["done"]
    assert await store_setup.resets() == 1


async def test_a_zombie_cannot_commit(store_setup):
    await store_setup.conn.execute("create table mark (n int)")
    await store_setup.put(1)
    slow, fast = await store_setup.store(1), await store_setup.store(2)
    [late] = await slow.claim(1, {})
    await store_setup.expire()
    await store_setup.reset(fast)
    await fast.claim(1, {})

    async def body(tx):
        await tx.execute("insert into mark values (1)")

    with pytest.raises(LeaseLost if store_setup.transactions else ConfigError):
        await slow.transact(late, body)
    assert await store_setup.conn.fetchval("select count(*) from mark") == 0
    assert await store_setup.states() == ["running"]


async def test_a_transaction_commits_with_the_outcome_or_does_not_begin(store_setup):
    """Without a database it is refused in words, before anything ran, and the job is still the worker's to report."""
    await store_setup.conn.execute("create table mark (n int)")
    await store_setup.put(1)
    store = await store_setup.store(1)
    [job] = await store.claim(1, {})

    begun = []

    async def body(tx):
        begun.append(tx)
        await tx.execute("insert into mark values (1)")
        assert await store_setup.states() == ["running"]

    if store_setup.transactions:
        await store.transact(job, body)
    else:
        with pytest.raises(ConfigError, match="transactional, and this worker has no database; "):
            await store.transact(job, body)
        assert await store_setup.states() == ["running"]
        assert len(await store.ack([ack(job)], [job.token])) == 1
    marks = 1 if store_setup.transactions else 0
    assert len(begun) == await store_setup.conn.fetchval("select count(*) from mark") == marks
    assert await store_setup.states() == ["done"]


async def test_a_batch_commits_with_the_outcomes_or_does_not_begin(store_setup):
    await store_setup.conn.execute("create table mark (n int)")
    await store_setup.put(3)
    store = await store_setup.store(1)
    jobs = await store.claim(3, {})

    async def body(tx):
        await tx.execute("insert into mark values (1)")
        return [ack(job) for job in jobs[:2]]

    if not store_setup.transactions:
        with pytest.raises(ConfigError, match="needs the database"):
            await store.transact_batch(body)
        return
    assert await store.transact_batch(body) == []
    assert await store_setup.conn.fetchval("select count(*) from mark") == 1
    assert await store_setup.states() == ["done", "done", "running"]
    assert len(await store.ack([ack(jobs[2])], [jobs[2].token])) == 1
    assert await store_setup.states() == ["done"] * 3


async def test_a_batch_with_a_lost_lease_writes_nothing_and_names_the_lost_jobs(store_setup):
    if not store_setup.transactions:
        return
    await store_setup.conn.execute("create table mark (n int)")
    await store_setup.put(2)
    slow, fast = await store_setup.store(1), await store_setup.store(2)
    [late] = await slow.claim(1, {})
    await store_setup.expire()
    await store_setup.reset(fast)
    [fresh] = await slow.claim(1, {})

    async def body(tx):
        await tx.execute("insert into mark values (1)")
        return [ack(late), ack(fresh)]

    assert [each.job for each in await slow.transact_batch(body)] == [late]
    assert await store_setup.conn.fetchval("select count(*) from mark") == 0
    assert "done" not in await store_setup.states()


async def test_a_release_charges_nothing_and_keeps_the_place(store_setup):
    await store_setup.put(2)
    store = await store_setup.store(1)
    [first] = await store.claim(1, {})

    assert await store.release([first.token]) == 1
    assert await store_setup.states() == ["queued"] * 2
    await store_setup.reset(store)
    again = await store.claim(2, {})
    assert again[0].id == first.id
    assert {job.attempt for job in again} == {1}
    assert await store_setup.resets() == 0


async def test_a_release_hands_back_only_what_is_left(store_setup):
    await store_setup.put(3)
    store = await store_setup.store(1)
    jobs = await store.claim(3, {})
    await store.ack([ack(jobs[0])], [])

    assert await store.release([jobs[0].token]) == 2
    assert await store_setup.states() == ["done", "queued", "queued"]


async def test_a_reset_keeps_what_is_done(store_setup):
    await store_setup.put(4)
    store = await store_setup.store(1)
    jobs = await store.claim(4, {})
    await store.ack([ack(jobs[0]), ack(jobs[1], Outcome.FAILED, error="E")], [])
    await store_setup.expire()

    assert await store_setup.reset(store) == 2
    assert await store_setup.states() == ["done", "failed", "queued", "queued"]


async def test_a_lease_is_reset_once_when_many_try(store_setup):
    await store_setup.put(20)
    store = await store_setup.store(1)
    for _ in range(4):
        await store.claim(5, {})
    await store_setup.expire()
    others = [await store_setup.store(node) for node in range(2, 8)]

    assert sum(await asyncio.gather(*(store_setup.reset(each) for each in others))) == 20
    assert await store_setup.resets() == 20


async def test_one_process_holds_a_job_under_a_lost_and_a_fresh_lease(store_setup):
    await store_setup.put(1)
    store = await store_setup.store(1)
    [late] = await store.claim(1, {})
    await store_setup.expire()
    await store_setup.reset(store)
    [fresh] = await store.claim(1, {})
    assert late.id == fresh.id

    accepted = await store.ack([ack(late), ack(fresh)], [late.token, fresh.token])
    assert [each.job.token for each in accepted] == [fresh.token]
    assert await store_setup.states() == ["done"]


async def test_failed_attempts_are_counted(store_setup):
    await store_setup.put(1)
    store = await store_setup.store(1)
    for attempt in (1, 2, 3):
        [job] = await store.claim(1, {})
        assert (job.attempt, job.is_last_attempt) == (attempt, attempt == 3)
        outcome = Outcome.FAILED if job.is_last_attempt else Outcome.RETRY
        await store.ack([ack(job, outcome, error="E", delay=0.0)], [job.token])
        await asyncio.sleep(0.06)
    assert await store_setup.states() == ["failed"]
    assert await store.claim(1, {}) == []


async def test_rest_ends_when_it_is_woken(store_setup):
    store = await store_setup.store(1)
    await store.claim(1, {})
    store.wake()
    for _ in range(2):
        await asyncio.wait_for(store.rest(), 30)
