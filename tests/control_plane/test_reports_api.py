"""How workers say what became of their jobs: once or twice, in time or too late, one by one or many at once."""

from __future__ import annotations

from importlib import resources

import pytest

pytestmark = pytest.mark.anyio


def report(job, outcome="ok", **more):
    return {"id": job["id"], "token": job["token"], "attempt": job["attempt"], "outcome": outcome, **more}


async def test_complete_ends_a_job_and_keeps_its_result(plane, worker):
    id = await plane.enqueue()
    job = await worker.one()
    response = await worker.complete(job, result={"sha": "abc"}, took=1500)
    assert (response.status, response.body) == (200, {"id": id, "state": "done"})
    shown = await plane.job(id)
    assert (shown["state"], shown["result"], shown["worker"], shown["attempt"]) == (
        "done",
        {"sha": "abc"},
        worker.id,
        1,
    )


async def test_complete_said_again_is_answered_the_same_and_changes_nothing(plane, worker, conn):
    id = await plane.enqueue()
    job = await worker.one()
    first = await worker.complete(job, result=1)
    before = await conn.fetch("select * from howdah.done")
    again = await worker.complete(job, result=2)
    assert (again.status, again.body) == (200, first.body)
    late = await worker.fail(job, message="too late")
    assert (late.status, late.body) == (200, first.body)
    assert await conn.fetch("select * from howdah.done") == before
    assert (await plane.job(id))["result"] == 1


async def test_fail_puts_a_job_off_and_said_again_does_not_do_so_twice(plane, worker, conn):
    id = await plane.enqueue()
    job = await worker.one()
    response = await worker.fail(job, error="OSError", message="no route", traceback="…", retry_after=3600)
    assert response.status == 200
    assert (response.body["state"], response.body["retry_in"]) == ("queued", 3600)
    rows = await conn.fetch("select id, attempt, due_at from howdah.later")
    assert [(row["id"], row["attempt"]) for row in rows] == [(id, 1)]

    again = await worker.fail(job, error="OSError", message="no route", retry_after=1)
    assert (again.status, again.body["state"]) == (200, "queued")
    assert await conn.fetch("select id, attempt, due_at from howdah.later") == rows
    assert await conn.fetchval("select count(*) from howdah.attempt") == 1


async def test_a_repeated_fail_after_the_job_ran_elsewhere_still_changes_nothing(plane, worker, conn):
    id = await plane.enqueue()
    job = await worker.one()
    assert (await worker.fail(job, retry_after=0)).body["state"] == "queued"
    other = await plane.worker()
    again = await other.one()
    assert (again["id"], again["attempt"]) == (id, 2)
    assert (await worker.fail(job, retry_after=0)).body == {"id": id, "state": "queued"}
    assert (await other.complete(again)).body["state"] == "done"
    assert (await worker.fail(job)).body == {"id": id, "state": "queued"}
    assert await conn.fetchval("select count(*) from howdah.attempt") == 1


FAILURES = [
    ({"code": "AUTH_FAILED"}, 5, "failed"),
    ({"code": "INVALID_SPEC"}, 5, "failed"),
    ({"code": "RATE_LIMITED"}, 5, "queued"),
    ({"code": "TIMEOUT"}, 5, "queued"),
    ({"code": "AGENT_ERROR"}, 5, "queued"),
    ({"code": "AUTH_FAILED", "retry": True}, 5, "queued"),
    ({"code": "TIMEOUT", "retry": False}, 5, "failed"),
    ({}, 5, "queued"),
    ({}, 1, "failed"),
    ({"retry": True}, 1, "failed"),
]


async def test_the_code_of_an_error_decides_whether_it_is_tried_again(plane, worker):
    for more, attempts, state in FAILURES:
        id = await plane.enqueue(max_attempts=attempts)
        response = await worker.fail(await worker.one(), retry_after=3600, **more)
        assert (response.status, response.body["state"]) == (200, state), more
        assert (await plane.job(id))["state"] == state


async def test_a_code_nobody_knows_is_refused(plane, worker):
    await plane.enqueue()
    response = await worker.fail(await worker.one(), code="WEATHER")
    assert (response.status, response.error["field"]) == (400, "code")


async def test_a_report_of_another_worker_is_409(plane, worker, conn):
    await plane.enqueue()
    job = await worker.one()
    other = await plane.worker()
    for response in (
        await other.complete(job),
        await other.fail(job),
        await other.tell(f"log/{job['id']}", {"token": job["token"], "lines": ["x"]}),
        await other.tell(f"run/{job['id']}", {"token": job["token"], "state": "running"}),
    ):
        assert (response.status, response.error["code"]) == (409, "STALE")
    assert (await other.ack(report(job), finished=[job["token"]])).body == {"accepted": []}
    assert (await other.beat(job)).body["fates"]["jobs"]["lost"]
    assert (await other.tell("release", {"tokens": [job["token"]]})).body == {"jobs": 0}
    assert await conn.fetchval("select count(*) from howdah.done") == 0

    assert (await worker.complete(job)).status == 200
    assert (await other.complete(job)).status == 409


async def test_an_old_token_is_409_also_when_the_same_worker_has_the_job_again(plane, worker, conn):
    id = await plane.enqueue()
    old = await worker.one()
    assert (await worker.tell("release", {"tokens": [old["token"]]})).body == {"jobs": 1}
    new = await worker.one()
    assert (new["id"], new["attempt"]) == (id, 1)
    assert (await worker.complete(old)).status == 409
    assert (await worker.fail(old)).status == 409
    assert (await worker.tell(f"log/{id}", {"token": old["token"], "lines": ["x"]})).status == 409
    assert (await worker.complete(new)).status == 200
    assert (await worker.complete(old)).status == 409
    assert (await worker.complete(new)).status == 200
    assert await conn.fetchval("select count(*) from howdah.job_log") == 0


async def test_many_reports_at_once_and_again(plane, worker, conn):
    for _ in range(6):
        await plane.enqueue(max_attempts=3)
    jobs = await worker.claim(10)
    outcomes = ["ok", "retry", "failed", "poison", "cancelled", "snoozed"]
    reports = [report(job, outcome, delay=3600, error="E") for job, outcome in zip(jobs, outcomes, strict=True)]
    first = await worker.ack(*reports, finished=[jobs[0]["token"]])
    assert [each["outcome"] for each in sorted(first.body["accepted"], key=lambda each: each["id"])] == [
        "ok",
        "retry",
        "failed",
        "poison",
        "cancelled",
        "snoozed",
    ]
    states = [(await plane.job(job["id"]))["state"] for job in jobs]
    assert states == ["done", "queued", "failed", "failed", "cancelled", "queued"]

    before = await conn.fetch("select * from howdah.done order by id"), await conn.fetch("select * from howdah.later")
    mine = [each for each in first.body["accepted"] if each["id"] != jobs[5]["id"]]
    again = await worker.ack(*reports[:5], finished=[jobs[0]["token"]])
    assert sorted(map(str, again.body["accepted"])) == sorted(map(str, mine))
    assert before == (
        await conn.fetch("select * from howdah.done order by id"),
        await conn.fetch("select * from howdah.later"),
    )
    assert await conn.fetchval("select count(*) from howdah.attempt") == 4


async def test_released_jobs_are_free_at_once_and_cost_no_attempt(plane, worker):
    id = await plane.enqueue()
    job = await worker.one()
    assert (await worker.tell("release", {"held": [{"id": id, "token": job["token"]}]})).body == {"jobs": 1}
    other = await plane.worker()
    again = await other.one()
    assert (again["id"], again["attempt"]) == (id, 1)


async def test_the_last_report_ends_the_lease(plane, worker, conn):
    for _ in range(2):
        await plane.enqueue()
    one, two = await worker.claim(2)
    await worker.complete(one)
    assert await conn.fetchval("select count(*) from howdah.lease") == 1
    await worker.complete(two)
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


# ---------------------------------------------------------------- heartbeat


async def test_a_heartbeat_renews_what_it_names_and_nothing_else(plane, worker, conn):
    for _ in range(2):
        await plane.enqueue()
    named, forgotten = await worker.one(), await worker.one()
    until = "select expires_at from howdah.lease where token = $1"
    before = [await conn.fetchval(until, job["token"]) for job in (named, forgotten)]
    response = await worker.beat(named)
    assert response.body["fates"]["jobs"]["kept"] == [{"id": named["id"], "token": named["token"]}]
    after = [await conn.fetchval(until, job["token"]) for job in (named, forgotten)]
    assert after[0] > before[0]
    assert after[1] == before[1]


async def test_a_heartbeat_says_what_was_lost(plane, worker):
    await plane.enqueue()
    job = await worker.one()
    await worker.tell("release", {"tokens": [job["token"]]})
    fate = (await worker.beat(job)).body["fates"]["jobs"]
    assert fate == {"lost": [{"id": job["id"], "token": job["token"]}]}


async def test_cancel_reaches_a_running_job_by_heartbeat(plane, worker):
    id = await plane.enqueue()
    job = await worker.one()
    assert (await worker.beat(job)).body["fates"]["jobs"].get("cancel") is None
    response = await plane.ask("POST", f"/jobs/{id}/cancel")
    assert (response.status, response.body) == (200, {"id": id, "result": "asked"})
    assert (await worker.beat(job)).body["fates"]["jobs"]["cancel"] == [id]
    assert (await worker.fail(job, error="Cancelled")).body["state"] == "cancelled"
    assert (await plane.job(id))["state"] == "cancelled"


# ---------------------------------------------------------------- a worker that is not believed


async def test_a_lease_ends_only_the_jobs_under_it(plane, worker, conn):
    """S11: whoever holds one job cannot end, put off or release others, in whatever queue they wait."""
    secret = await plane.enqueue(queue="secret")
    await plane.enqueue()
    rogue = await plane.worker(queues=["default"])
    mine = await rogue.one()
    for outcome in ("ok", "retry", "failed", "cancelled", "snoozed", "released"):
        for more in ({}, {"result": 1}, {"keyed": True}):
            foreign = {"id": secret, "token": mine["token"], "attempt": 1, "outcome": outcome, **more}
            assert (await rogue.ack(foreign)).body == {"accepted": []}
    assert (await rogue.tell(f"complete/{secret}", {"token": mine["token"]})).status == 409
    assert (await rogue.tell(f"fail/{secret}", {"token": mine["token"]})).status == 409
    assert (await rogue.tell(f"log/{secret}", {"token": mine["token"], "lines": ["x"]})).status == 409
    assert (await rogue.tell(f"run/{secret}", {"token": mine["token"], "state": "done"})).status == 409
    assert await conn.fetchval("select count(*) from howdah.done") == 0
    assert await conn.fetchval("select count(*) from howdah.later") == 0
    assert (await worker.one())["id"] == secret


async def test_the_attempt_and_the_key_are_those_of_the_lease(plane, worker, conn):
    id = await plane.enqueue(key="only one", max_attempts=2)
    job = await worker.one()
    lie = {**report(job, "retry"), "attempt": 17}
    assert (await worker.ack(lie)).body["accepted"][0]["outcome"] == "retry"
    job = await worker.one()
    assert job["attempt"] == 2
    forgot_the_key = report(job)
    assert "keyed" not in forgot_the_key
    assert (await worker.ack(forgot_the_key)).body["accepted"]
    assert (await plane.job(id))["state"] == "done"
    assert await plane.enqueue(key="only one") != id


async def test_a_worker_cannot_hold_a_kind_it_was_given_no_job_of(plane, worker, conn):
    rogue = await plane.worker(kinds=["noop", "other"])
    await plane.enqueue()
    job = await rogue.one()
    await rogue.ack(report(job, "retry", hold=3600, kind="other"))
    assert await conn.fetch("select kind from howdah.hold where kind = 'other'") == []


async def test_a_report_that_says_the_same_job_twice_counts_once(plane, worker, conn):
    for _ in range(2):
        await plane.enqueue()
    one, two = await worker.claim(2)
    again = report(two, "retry", delay=3600)
    response = await worker.ack(report(one), report(one), again, again, finished=[one["token"]])
    assert (response.status, len(response.body["accepted"])) == (200, 2)
    assert await conn.fetchval("select count(*) from howdah.done") == 1
    assert await conn.fetchval("select count(*) from howdah.later") == 1


async def test_what_reports_came_to_is_forgotten_after_a_while(plane, worker, conn):
    await plane.enqueue()
    job = await worker.one()
    await worker.complete(job)
    assert await conn.fetchval("select count(*) from howdah.report") == 1
    await conn.execute("update howdah.report set reported_at = now() - interval '2 hours'")
    statement = resources.files("howdah.control_plane").joinpath("sql/prune_reports.sql").read_text()
    await conn.execute(statement.replace("{schema}", "howdah"), 3600.0)
    assert await conn.fetchval("select count(*) from howdah.report") == 0
    assert (await worker.complete(job)).status == 409
