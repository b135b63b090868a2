"""What the control plane, or a proxy in front of it, refuses: only the answer that a lease is lost means that."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from control_plane.conftest import ControlPlane, serving
from howdah import Howdah, LeaseLost
from howdah.outcome import Ack, Outcome
from howdah.remote import messages as m
from howdah.remote.client import ControlPlaneClient, ControlPlaneUnreachable, RejectedByServer, UnknownWorker
from howdah.remote.reports import MAX_FAILURES, MAX_REJECTIONS, ReportSender
from howdah.remote.store import RemoteStore
from howdah.store import JobLogEntry, RunRecord
from kit.node import eventually
from kit.remote_node import registered, remote
from table.ddl import ddl

pytestmark = pytest.mark.anyio

PAGE = b"<html>no such host</html>"


class Member:
    """A worker that registered, and nothing more."""

    def __init__(self, client: ControlPlaneClient) -> None:
        self.client = client
        self.joined: list[int] = []

    async def register_again(self, stale: int) -> None:
        self.joined.append(stale)

    def asked_to_drain(self) -> None: ...


async def member_of(plane: ControlPlane, kind: type[ControlPlaneClient] = ControlPlaneClient) -> Member:
    client = kind(plane.url, plane.tokens["work"])
    await client.register(m.RegisterRequest(hostname="w", kinds=["noop"]))
    return Member(client)


class Between(ControlPlaneClient):
    """A client that speaks through a proxy with its own mind about some requests."""

    status = 0
    """What it answers instead of the control plane; 0: nothing."""

    async def _as_worker(self, *args: Any, **more: Any) -> Any:
        if not self.status:
            return await super()._as_worker(*args, **more)
        real, self._http = self._http, _Page(self.status)  # type: ignore[assignment]
        try:
            return await super()._as_worker(*args, **more)
        finally:
            self._http = real


class _Page:
    """An HTTP client that always gets the same page."""

    def __init__(self, status: int) -> None:
        self.status_code, self.content, self.headers, self.is_success = status, PAGE, {}, False

    async def request(self, *_: Any, **__: Any) -> Any:
        return self


async def test_a_refusal_of_a_proxy_loses_nothing(plane: ControlPlane) -> None:
    await plane.enqueue()
    member = await member_of(plane, Between)
    store = RemoteStore(member)
    [job] = await store.claim(1, {})
    for status in (401, 403, 404, 409, 410, 413, 502):
        member.client.status = status  # type: ignore[attr-defined]
        for call in (
            lambda: store.record_run(job, RunRecord(state="running", spec=b"{}")),
            lambda: store.ack([Ack(job, Outcome.OK, 1)], [job.token]),
            lambda: store.claim(1, {}),
        ):
            with pytest.raises((RejectedByServer, ControlPlaneUnreachable), match=f"HTTP {status}"):
                await call()
        assert store.holds(job.token, job.id)
        assert member.joined == [], "nobody said that the worker is unknown"
    member.client.status = 0  # type: ignore[attr-defined]
    assert len(await store.ack([Ack(job, Outcome.OK, 1)], [job.token])) == 1
    await member.client.close()


async def test_only_a_lost_lease_is_one(plane: ControlPlane, conn: Any) -> None:
    await plane.enqueue()
    member = await member_of(plane)
    store = RemoteStore(member)
    [job] = await store.claim(1, {})
    await store.record_run(job, RunRecord(state="running", spec=b"{}"))
    await store.release([job.token])

    with pytest.raises(LeaseLost):
        await store.record_run(job, RunRecord(state="done"))
    with pytest.raises(LeaseLost):
        await store.write_log(job, JobLogEntry(lines=["still here"]))
    await conn.execute("update howdah.node set stopped_at = now(), credential = null where id = $1", member.client.node)

    async def gone() -> bool:
        try:
            await store.record_run(job, RunRecord(state="done"))
        except LeaseLost:
            return False
        except UnknownWorker:
            return True
        return False

    await eventually(gone)
    assert set(member.joined) == {member.client.node}
    await member.client.close()


async def test_a_record_that_is_too_large_is_an_ordinary_error_and_the_job_goes_on(
    app: Howdah, conn: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def noop() -> None: ...

    async with serving(app, largest_body=5000) as plane:
        await plane.enqueue()
        member = await member_of(plane)
        store = RemoteStore(member)
        [job] = await store.claim(1, {})

        with pytest.raises(
            RejectedByServer, match=r"the run of job \d+ is rejected: TOO_LARGE: a request may have 5,000 bytes"
        ):
            await store.record_run(job, RunRecord(state="running", spec=b'"%s"' % (b"x" * 6000)))
        with caplog.at_level(logging.WARNING):
            await store.write_log(job, JobLogEntry(lines=["a", "b" * 3000, "c" * 6000, "d" * 3000, "e"], progress=0.5))
        lines = (await plane.get(f"/jobs/{job.id}/log")).body["lines"]
        assert [each["line"][0] for each in lines] == ["a", "b", "d", "e"], "what fits is kept, in its order"
        assert "is left out: the log of job" in caplog.text
        assert (await plane.job(int(job.id)))["progress"] == 0.5
        assert len(await store.ack([Ack(job, Outcome.OK, 1)], [job.token])) == 1
        await member.client.close()


# ---------------------------------------------------------------- batches


def reports(count: int) -> list[m.AttemptReport]:
    return [m.AttemptReport(id=id, token=1 + id % 3, attempt=1, outcome="ok") for id in range(1, count + 1)]


class Control:
    """Records reports, but for those that ``bad`` says; says how it was asked."""

    def __init__(self, bad: Callable[[m.AttemptReport], bool], status: int = 500) -> None:
        self.bad, self.status = bad, status
        self.asked: list[m.AckRequest] = []
        self.recorded: dict[int | str, int] = {}
        self.finished: set[int] = set()

    async def __call__(self, message: m.AckRequest) -> m.AckResponse:
        self.asked.append(message)
        if any(map(self.bad, message.acks)):
            if self.status == 500:
                raise ControlPlaneUnreachable("INTERNAL: something is wrong", 500)
            raise RejectedByServer("INVALID: this cannot be stored", self.status, "INVALID")
        for each in message.acks:
            self.recorded[each.id] = self.recorded.get(each.id, 0) + 1
        self.finished |= set(message.finished)
        return m.AckResponse(
            accepted=[m.RecordedOutcome(id=each.id, token=each.token, outcome=each.outcome) for each in message.acks]
        )


@pytest.mark.parametrize("status", [400, 413, 500])
@pytest.mark.parametrize("culprit", [1, 500, 1000])
async def test_a_refused_batch_is_halved_until_the_culprit_is_alone(status: int, culprit: int) -> None:
    control = Control(lambda each: each.id == culprit, status)
    sender = ReportSender("jobs", control)
    with pytest.raises((RejectedByServer, ControlPlaneUnreachable)):
        await sender.send(reports(1000), [1, 2, 3])

    assert control.recorded.keys() == {*range(1, 1001)} - {culprit}
    assert 1 + culprit % 3 not in control.finished, "its lease is not over"
    assert len(control.asked) < 40
    for _ in range(MAX_REJECTIONS - 2):
        with pytest.raises((RejectedByServer, ControlPlaneUnreachable)):
            await sender.send(reports(1000)[culprit - 1 : culprit], [])
    outcomes = await sender.send([*reports(1000)[culprit - 1 : culprit], *reports(7)[2:5]], [1, 2, 3])
    assert (1 + culprit % 3, culprit) not in outcomes, "it is given up, and its lease expires"
    assert len(outcomes) == 3
    assert 1 + culprit % 3 not in control.asked[-1].finished


async def test_a_result_is_not_given_up_for_a_defect_that_passes() -> None:
    control = Control(lambda each: each.id == 2)
    sender, batch = ReportSender("jobs", control), reports(3)
    batch[1].result = b'"precious"'  # type: ignore[assignment]
    with pytest.raises(ControlPlaneUnreachable):
        await sender.send(batch, [])
    control.bad = lambda _: False

    assert len(await sender.send(batch, [])) == 3
    assert all(each.error is None for message in control.asked for each in message.acks)


async def test_where_nothing_is_recorded_nothing_is_halved_for_long_nor_given_up() -> None:
    control = Control(lambda _: True)
    sender = ReportSender("jobs", control)
    for _ in range(3):
        before = len(control.asked)
        with pytest.raises(ControlPlaneUnreachable):
            await sender.send(reports(1000), [1, 2, 3])
        assert len(control.asked) - before <= MAX_FAILURES + 1


async def test_an_outage_halves_nothing() -> None:
    class Away(Control):
        async def __call__(self, message: m.AckRequest) -> m.AckResponse:
            self.asked.append(message)
            raise ControlPlaneUnreachable("no route", self.status or None)

    for status in (0, 429, 503):
        control = Away(lambda _: True, status)
        with pytest.raises(ControlPlaneUnreachable):
            await ReportSender("jobs", control).send(reports(100), [])
        assert len(control.asked) == 1


async def test_what_only_lacks_its_result_is_recorded_without_it() -> None:
    control = Control(lambda each: bytes(each.result) != b"null", 413)
    batch = reports(10)
    batch[3].result = b'"large"'  # type: ignore[assignment]
    outcomes = await ReportSender("jobs", control).send(batch, [1, 2, 3])

    assert len(outcomes) == 10
    assert control.finished == {1, 2, 3}


async def test_a_delay_that_cannot_be_is_made_one_that_can(plane: ControlPlane, conn: Any) -> None:
    delays = [1e300, float("inf"), float("nan"), -1.0]
    for _ in delays:
        await plane.enqueue()
    member = await member_of(plane)
    store = RemoteStore(member)
    jobs = await store.claim(4, {})
    acks = [Ack(job, Outcome.SNOOZED, 1, delay=delay) for job, delay in zip(jobs, delays, strict=True)]

    assert len(await store.ack(acks, [jobs[0].token])) == 4
    assert await conn.fetchval("select count(*) from howdah.later") == 4
    await member.client.close()


async def test_a_row_the_control_plane_cannot_record_holds_up_no_other(app: Howdah, conn: Any) -> None:
    """A trigger raises for one row: the others are recorded though they were reported together."""
    workers = Howdah()

    @workers.table("uploads").handler
    async def upload(record: Any) -> None: ...

    await conn.execute(ddl())
    await conn.execute("insert into uploads (num_resets) select 0 from generate_series(1, 20)")
    await conn.execute("""
        create function no() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
        create trigger no before update on uploads for each row
            when (new.id = 7 and new.state = 'completed') execute function no()""")
    app.table("uploads")
    async with serving(app) as plane, remote(plane, workers, slots=20, grace=0.0) as remote_node:
        await registered(remote_node)

        async def others() -> bool:
            return await conn.fetchval("select count(*) from uploads where state = 'completed'") == 19

        await eventually(others)
