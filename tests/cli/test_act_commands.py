"""`howdah delete`, `reprioritize`, `move`, `failures`, `drain`, `audit`: what they print, and how they exit."""

from __future__ import annotations

import asyncio
import getpass
import json
import socket

import psycopg
import pytest

from howdah import Poison
from kit.node import drain

ME = f"{getpass.getuser()}@{socket.gethostname()}"


@pytest.fixture
def failed(app):
    """Three failed jobs in queue mail, one done."""

    @app.task(queue="mail")
    async def fail(n: int) -> None:
        raise Poison(f"letter {n} is lost")

    @app.task(queue="mail")
    async def work(n: int = 0) -> int:
        return n

    async def make():
        ids = [each.id for each in await app.enqueue_many([fail.job(n) for n in range(3)])]
        ids.append((await work.enqueue(5)).id)
        await drain(app)
        await app.close()
        return ids

    return asyncio.run(make())


def listed(howdah, *words: str) -> list[dict]:
    return json.loads(howdah(*words, "--json").stdout)


def test_delete_by_id_and_by_filter(howdah, failed):
    some = howdah("delete", str(failed[0]), "999")
    refused = howdah("delete", "--all")
    rest = howdah("delete", "--queue", "mail", "--text", "letter", "--yes")
    done = howdah("delete", "--state", "done", "--kind", "work", "--yes", "--json")

    assert (some.exit_code, some.stdout.splitlines()[0]) == (1, "deleted 1 of 2 jobs")
    assert "there is no such job" in some.stdout
    assert refused.exit_code == 2
    assert "to delete every failed job, up to 1000, add --yes" in refused.stderr
    assert (rest.exit_code, rest.stdout, rest.stderr) == (0, "deleted 2 of 2 jobs\n", "")
    assert json.loads(done.stdout) == [{"id": failed[3], "result": "deleted"}]
    assert howdah("jobs").stdout == "no such jobs\n"


def test_reprioritize_and_move(howdah, failed):
    for n in range(5):
        howdah("enqueue", "work", f'{{"n": {n}}}', "-q", "mail")
    first = failed[-1] + 1
    raised = howdah("reprioritize", "--to", "10", f"{first}-{first + 1}")
    again = howdah("reprioritize", "--to", "10", str(first))
    moved = howdah("move", "--to", "bulk", "--kind", "work", "--enqueued-after", "1h", "--limit", "3", "--yes")
    over = howdah("move", "--to", "bulk", str(failed[0]))

    assert (raised.exit_code, raised.stdout) == (0, "reprioritized 2 of 2 jobs\n")
    assert (again.exit_code, "it is so already" in again.stdout) == (1, True)
    assert (moved.exit_code, moved.stdout) == (0, "moved 3 of 3 jobs\n")
    assert "there may be more; run it again" in moved.stderr
    assert (over.exit_code, "it is already over" in over.stdout) == (1, True)
    jobs = {job["id"]: (job["priority"], job["queue"]) for job in listed(howdah, "jobs", "-s", "queued")}
    assert jobs == {
        first: (10, "mail"),
        first + 1: (10, "mail"),
        first + 2: (0, "bulk"),
        first + 3: (0, "bulk"),
        first + 4: (0, "bulk"),
    }


@pytest.mark.parametrize(
    "words",
    [
        ("move", "5"),
        ("move", "--to", "", "5"),
        ("reprioritize", "--to", "1000", "5"),
        ("reprioritize", "--to", "1"),
        ("delete", "5", "--all"),
        ("delete", "--state", "running", "--all", "--yes"),
        ("jobs", "--enqueued-after", "yesterday"),
        ("jobs", "--enqueued-after", "2030-01-01T00:00:00"),
        ("jobs", "--state", "queued", "--finished-after", "1h"),
        ("drain",),
        ("drain", "999"),
        ("audit", "--via", "pigeon"),
        ("audit", "--limit", "0"),
        ("failures", "--newest", "0"),
    ],
    ids=" ".join,
)
def test_what_is_not_understood_exits_2_and_changes_nothing(howdah, words):
    result = howdah(*words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr
    assert listed(howdah, "audit") == []


def test_jobs_are_searched(howdah, failed):
    assert [job["id"] for job in listed(howdah, "jobs", "--text", "letter 1")] == [failed[1]]
    assert [job["id"] for job in listed(howdah, "jobs", "--text", '"n":2')] == [failed[2]]
    assert listed(howdah, "jobs", "--enqueued-before", "1h") == []
    assert len(listed(howdah, "jobs", "--finished-after", "2020-01-31T00:00:00Z")) == 4


def test_failures_by_error(howdah, failed):
    result = howdah("failures")
    [group] = listed(howdah, "failures", "--kind", "fail")["groups"]
    few = howdah("failures", "--newest", "2")

    assert result.stdout.splitlines()[1].split()[:3] == ["3", "fail", "mail"]
    assert "Poison: letter # is lost" in result.stdout
    assert (group["count"], group["error"], group["example"]) == (3, "Poison", failed[2])
    assert few.stderr == "looked at the newest 2 failed jobs only: --newest\n"
    assert howdah("failures", "--queue", "none").stdout == "nothing failed\n"


def test_drain_asks_a_node(howdah, direct):
    with psycopg.connect(direct.dsn) as conn:
        conn.execute("insert into howdah.node (name) values ('web-1:7')")

    result = howdah("drain", "1")

    assert (result.exit_code, result.stdout) == (0, "node 1 (web-1:7) drains\n")
    assert [node["state"] for node in listed(howdah, "nodes")] == ["draining"]


def test_audit_tells_who_did_what(howdah, failed):
    assert howdah("audit").stdout == "no entries\n"
    howdah("retry", str(failed[0]))
    howdah("pause", "mail")
    howdah("token", "create", "box", "--scope", "work")
    howdah("cancel", "--queue", "mail", "--yes")
    result = howdah("audit", "--limit", "3")
    entries = listed(howdah, "audit")
    of_job = listed(howdah, "audit", "--thing", "job", "--id", str(failed[0]))
    older = howdah("audit", "--before", str(entries[2]["id"]))

    assert [(entry["verb"], entry["thing"], entry["who"], entry["via"]) for entry in entries] == [
        ("cancel", "job", ME, "cli"),
        ("create", "token", ME, "cli"),
        ("pause", "queue", ME, "cli"),
        ("retry", "job", ME, "cli"),
    ]
    assert entries[0]["filter"] == {"state": "queued", "queue": "mail"}
    assert entries[2]["address"] == socket.gethostname()
    assert [entry["verb"] for entry in of_job] == ["cancel", "retry"]
    lines = result.stdout.splitlines()
    assert len(lines) == 4
    assert lines[3].split()[-4:] == ["paused", "false", "→", "true"]
    assert "state queued → cancelled" in lines[1]
    assert result.stderr == f"older ones: --before {entries[2]['id']}\n"
    assert "state failed → queued" in older.stdout
    assert len(listed(howdah, "audit", "--since", "1h", "--verb", "pause", "--who", ME)) == 1
    assert listed(howdah, "audit", "--until", "1h") == []
