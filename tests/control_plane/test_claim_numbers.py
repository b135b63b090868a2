"""Claims are numbered: one that comes late, after a newer one, takes nothing and takes nothing back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from control_plane.conftest import ControlPlane, Worker, serving
from howdah import Howdah
from howdah.outcome import Ack, Outcome
from howdah.remote import messages as m
from howdah.remote.client import ControlPlaneClient, ControlPlaneUnreachable, RejectedByServer
from howdah.remote.store import RemoteStore
from table.ddl import ddl

pytestmark = pytest.mark.anyio

STORES = ("jobs", "uploads")
TAKEN = {
    "jobs": "select count(*) from howdah.jobs where state = 'running'",
    "uploads": "select count(*) from uploads where state = 'processing'",
}


@asynccontextmanager
async def filled(app: Howdah, conn: Any, count: int) -> AsyncIterator[ControlPlane]:
    """A control plane with so many jobs and so many rows."""

    @app.task
    async def noop() -> None: ...

    await conn.execute(ddl())
    await conn.execute("insert into uploads (num_resets) select 0 from generate_series(1, $1::int)", count)
    await conn.execute("select howdah.enqueue('noop', '{}') from generate_series(1, $1::int)", count)
    app.table("uploads", stalled_after=3600.0)
    async with serving(app, offline_after=60.0) as plane:
        yield plane


async def worker_of(plane: ControlPlane) -> Worker:
    return await plane.worker(tables=["uploads"])


@pytest.mark.parametrize("store", STORES)
async def test_a_late_claim_takes_nothing_and_takes_nothing_back(app: Howdah, conn: Any, store: str) -> None:
    async with filled(app, conn, 9) as plane, serving(app, offline_after=60.0) as other:
        worker = await worker_of(plane)
        elsewhere = Worker(other, worker.id, worker.credential)
        jobs = await elsewhere.claim(6, store=store, number=2, tokens=[])
        assert len(jobs) == 6

        late = await worker.tell("claim", {"max": 6, "store": store, "number": 1, "tokens": []})
        assert (late.status, late.error["code"]) == (409, "STALE")
        twice = await worker.tell("claim", {"max": 6, "store": store, "number": 2, "tokens": []})
        assert (twice.status, twice.error["code"]) == (409, "STALE"), "a proxy may repeat a request"
        assert await conn.fetchval(TAKEN[store]) == 6
        assert len((await worker.beat(*jobs, store=store)).body["fates"][store]["kept"]) == 6
        assert len(await worker.claim(6, store=store, number=3)) == 3, "there was something to take"


@pytest.mark.parametrize("store", STORES)
async def test_what_a_newer_claim_does_not_name_goes_back_uncharged(app: Howdah, conn: Any, store: str) -> None:
    async with filled(app, conn, 6) as plane:
        worker, other = await worker_of(plane), await worker_of(plane)
        heard = await worker.claim(2, store=store, number=1)
        theirs = await other.claim(2, store=store, number=1)
        unheard = await worker.claim(2, store=store, number=2)

        again = await worker.claim(6, store=store, number=3, tokens=[heard[0]["token"]], wait=30)
        assert [(each["id"], each["attempt"]) for each in again] == [(each["id"], 1) for each in unheard]
        assert await conn.fetchval(TAKEN[store]) == 6
        kept = (await worker.beat(*heard, *again, store=store)).body["fates"][store]["kept"]
        assert len(kept) == 4
        assert len((await other.beat(*theirs, store=store)).body["fates"][store]["kept"]) == 2
        assert (await worker.beat(*unheard, store=store)).body["fates"][store].get("kept", []) == []


@pytest.mark.parametrize("store", STORES)
async def test_an_old_worker_that_says_after_loses_nothing(app: Howdah, conn: Any, store: str) -> None:
    async with filled(app, conn, 8) as plane:
        worker = await worker_of(plane)
        jobs = await worker.claim(2, store=store)

        for after in (0, 1, 2**53):
            jobs += await worker.claim(2, store=store, after=after)
        assert len({each["id"] for each in jobs}) == await conn.fetchval(TAKEN[store]) == 8
        assert len((await worker.beat(*jobs, store=store)).body["fates"][store]["kept"]) == 8


async def test_each_store_has_numbers_of_its_own(app: Howdah, conn: Any) -> None:
    async with filled(app, conn, 2) as plane:
        worker = await worker_of(plane)
        jobs = await worker.claim(1, store="jobs", number=9, tokens=[])
        rows = await worker.claim(1, store="uploads", number=1, tokens=[])

        assert (len(jobs), len(rows)) == (1, 1)
        assert (await worker.beat(*jobs)).body["fates"]["jobs"]["kept"] != []


async def test_a_number_alone_takes_nothing_back(app: Howdah, conn: Any) -> None:
    async with filled(app, conn, 4) as plane:
        worker = await worker_of(plane)
        jobs = await worker.claim(2, number=1)

        assert len(await worker.claim(2, number=2)) == 2
        assert len((await worker.beat(*jobs)).body["fates"]["jobs"]["kept"]) == 2
        response = await worker.tell("claim", {"tokens": []})
        assert (response.status, response.error["field"]) == (400, "number"), "what is older is not known without one"


async def test_claims_at_once_lose_nothing(app: Howdah, conn: Any) -> None:
    """Whatever the order in which they arrive: what an accepted claim was given is kept by all older ones."""
    async with filled(app, conn, 20) as plane, serving(app, offline_after=60.0) as other:
        worker = await worker_of(plane)
        planes = [worker, Worker(other, worker.id, worker.credential)]
        asked = [planes[n % 2].tell("claim", {"number": n, "tokens": []}) for n in range(20, 0, -1)]
        newest, *_ = answers = await asyncio.gather(*asked)

        assert newest.status == 200
        assert {each.status for each in answers} <= {200, 409}
        assert (await worker.beat(*newest.body["jobs"])).body["fates"]["jobs"].get("lost") is None


# ---------------------------------------------------------------- our own worker


class Member:
    """A worker that registered, and nothing more."""

    def __init__(self, client: ControlPlaneClient) -> None:
        self.client = client

    async def register_again(self, stale: int) -> None:
        raise AssertionError(f"the control plane does not know worker {stale}")

    def asked_to_drain(self) -> None: ...


class Flaky(ControlPlaneClient):
    """A client some of whose claims stay in the socket of a frozen control plane."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.frozen = 0
        """So many claims get stuck from now on."""
        self.stuck: list[m.ClaimRequest] = []
        self.claims: list[m.ClaimRequest] = []

    async def send(self, verb: str, message: Any, gives: Any, *, wait: float = 0.0) -> Any:
        if verb == "claim":
            self.claims.append(message)
            if self.frozen:
                self.frozen -= 1
                self.stuck.append(message)
                raise ControlPlaneUnreachable("it did not answer")
        return await super().send(verb, message, gives, wait=wait)


@asynccontextmanager
async def store_of(plane: ControlPlane, name: str, kind: type[Flaky] = Flaky) -> AsyncIterator[tuple[RemoteStore, Any]]:
    client = kind(plane.url, plane.tokens["work"])
    await client.register(m.RegisterRequest(hostname="w", kinds=["noop"], tables=["uploads"]))
    store = RemoteStore(Member(client), name)
    try:
        yield store, client
    finally:
        await store.close()
        await client.close()


@pytest.mark.parametrize("name", STORES)
async def test_a_claim_that_thaws_late_takes_no_running_work(app: Howdah, conn: Any, name: str) -> None:
    async with filled(app, conn, 6) as plane, store_of(plane, name) as (store, client):
        client.frozen = 3
        for _ in range(3):
            with pytest.raises(ControlPlaneUnreachable):
                await store.claim(6, {})
        jobs = await store.claim(6, {})
        assert len(jobs) == 6

        for message in client.stuck:  # they are carried out now
            with pytest.raises(RejectedByServer, match="STALE"):
                await client.send("claim", message, m.ClaimResponse)
        assert await conn.fetchval(TAKEN[name]) == 6
        accepted = await store.ack([Ack(job, Outcome.OK, 1) for job in jobs], [jobs[0].token])
        assert len(accepted) == 6


@pytest.mark.parametrize("name", STORES)
async def test_what_a_lost_answer_gave_goes_back_with_the_next_claim(app: Howdah, conn: Any, name: str) -> None:
    class Deaf(Flaky):
        async def send(self, verb: str, message: Any, gives: Any, *, wait: float = 0.0) -> Any:
            result = await super().send(verb, message, gives, wait=wait)
            if verb == "claim" and len(self.claims) == 2:
                raise ControlPlaneUnreachable("the answer was lost")
            return result

    async with filled(app, conn, 5) as plane, store_of(plane, name, Deaf) as (store, client):
        kept = await store.claim(2, {})
        with pytest.raises(ControlPlaneUnreachable):
            await store.claim(3, {})
        while not (again := await store.claim(5, {})):
            assert len(client.claims) < 20

        assert [(job.attempt, job.id in {each.id for each in kept}) for job in again] == [(1, False)] * 3
        assert [each.number for each in client.claims] == list(range(1, len(client.claims) + 1))
        assert [each.tokens for each in client.claims[:3]] == [None, None, [kept[0].token]]
        assert len(await store.ack([Ack(job, Outcome.OK, 1) for job in kept + again], [])) == 5


async def test_a_claim_that_came_too_late_is_made_again(app: Howdah, conn: Any) -> None:
    """As when a proxy said it twice: the first answer is lost, and the second is 409."""
    async with filled(app, conn, 2) as plane, store_of(plane, "jobs") as (store, client):
        first = await client.send("claim", m.ClaimRequest(max=1, number=1), m.ClaimResponse)
        assert first is not None

        assert await store.claim(2, {}) == []
        jobs = await store.claim(2, {})
        while len(jobs) < 2:  # also what the lost answer gave
            assert len(client.claims) < 20
            jobs += await store.claim(2, {})


async def test_a_control_plane_that_knows_no_numbers_is_asked_without(app: Howdah, conn: Any) -> None:
    """As one of the release before."""

    class Old(Flaky):
        async def send(self, verb: str, message: Any, gives: Any, *, wait: float = 0.0) -> Any:
            if verb == "claim" and msgspec.to_builtins(message).keys() & {"number", "tokens"}:
                raise RejectedByServer("INVALID: Object contains unknown field `number` (field number)", 400)
            return await super().send(verb, message, gives, wait=wait)

    async with filled(app, conn, 2) as plane, store_of(plane, "jobs", Old) as (store, _):
        assert len(await store.claim(1, {})) == 1
        assert len(await store.claim(1, {})) == 1
