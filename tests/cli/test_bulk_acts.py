"""Acts on many jobs from the command line: how far they came, also after Ctrl-C; what prune asks and records."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable

import psycopg
import pytest

from howdah import Poison
from kit.command import Command, eventually
from kit.node import drain


@pytest.fixture
def queued(app) -> Callable[[int], list[int]]:
    """Enqueues so many jobs."""

    @app.task
    async def note(n: int = 0) -> None: ...

    def make(count: int) -> list[int]:
        async def enqueue() -> list[int]:
            made = [each.id for each in await app.enqueue_many(note.job(n) for n in range(count))]
            await app.close()
            return made

        return asyncio.run(enqueue())

    return make


@pytest.fixture
def failed(app) -> list[int]:
    @app.task
    async def fail(n: int) -> None:
        raise Poison("on purpose")

    async def make() -> list[int]:
        made = [each.id for each in await app.enqueue_many(fail.job(n) for n in range(3))]
        await drain(app)
        await app.close()
        return made

    return asyncio.run(make())


def listed(howdah, *words: str) -> list[dict]:
    return json.loads(howdah(*words, "--json").stdout)


def test_an_act_that_the_default_limit_cut_short_says_so_and_exits_1(howdah, queued):
    queued(1200)

    some = howdah("cancel", "--all", "--yes", "--json")
    rest = howdah("cancel", "--all", "--yes", "--json", "--limit", "200")

    assert (some.exit_code, len(json.loads(some.stdout))) == (1, 1000)
    assert "cancelled 1000 of 1000 jobs; there may be more; run it again, or give a --limit" in some.stderr
    assert (rest.exit_code, len(json.loads(rest.stdout)), rest.stderr) == (0, 200, ""), "exactly as many as there are"


def test_a_limit_that_was_given_is_no_failure(howdah, queued):
    queued(5)

    result = howdah("delete", "--state", "queued", "--all", "--limit", "3", "--yes", "--json")

    assert (result.exit_code, len(json.loads(result.stdout))) == (0, 3)
    assert "deleted 3 of 3 jobs; there may be more" in result.stderr


def test_ids_with_a_state_are_acted_on_in_that_state_only(howdah, failed, queued):
    [waits] = queued(1)

    result = howdah("delete", str(failed[0]), str(waits), "--state", "failed")

    assert (result.exit_code, result.stdout.splitlines()[0]) == (1, "deleted 1 of 2 jobs")
    assert "it is no longer in that state or queue" in result.stdout
    assert {job["id"] for job in listed(howdah, "jobs")} == {waits, *failed[1:]}


@pytest.mark.parametrize(
    ("words", "did"),
    [
        (("move", "--to", "other"), "moved"),
        (("reprioritize", "--to", "7"), "reprioritized"),
        (("cancel",), "cancelled"),
        (("delete",), "deleted"),
    ],
    ids=lambda each: each if isinstance(each, str) else each[0],
)
def test_every_act_on_waiting_jobs_takes_ids_with_a_state(howdah, failed, queued, words, did):
    [waits] = queued(1)

    result = howdah(*words, str(failed[0]), str(waits), "--state", "queued", "--json")

    assert result.exit_code == 1
    found = {each["id"]: each["result"] for each in json.loads(result.stdout)}
    assert found.pop(waits) == did
    assert found[failed[0]] in ("changed", "over")


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("by", ["filter", "ids"])
def test_ctrl_c_ends_an_act_after_the_transaction_at_hand(direct, queued, by, as_json):
    ids = queued(3000)
    words = ("--all", "--state", "queued", "--limit", "9000", "--yes") if by == "filter" else (f"{ids[0]}-{ids[-1]}",)
    held = ids[-1500] if by == "filter" else ids[1500]  # in the second transaction

    with psycopg.connect(direct.dsn) as blocking, psycopg.connect(direct.dsn, autocommit=True) as watch:
        blocking.execute("select from howdah.job where id = %s for update", (held,))
        with Command("delete", *words, *(["--json"] if as_json else []), dsn=direct.dsn) as command:
            waits = "select count(*) from pg_stat_activity where %s = any(pg_blocking_pids(pid))"
            eventually(lambda: watch.execute(waits, (blocking.info.backend_pid,)).fetchone()[0])
            command.send(signal.SIGINT)
            blocking.rollback()
            code = command.ends()
            output = command.output

        left = watch.execute("select count(*) from howdah.job").fetchone()[0]

    assert code == 1, output
    assert "stopped before all were met; run it again for the rest" in output
    assert "deleted 2000 of 2000 jobs" in output
    assert left == 1000
    if as_json:
        results, _ = json.JSONDecoder().raw_decode(output[output.index("[") :])
        assert [each["result"] for each in results] == ["deleted"] * 2000, "what is on stdout is still whole"


# -------------------------------------------------------------------- prune


def test_prune_asks_before_it_deletes_what_the_settings_keep(howdah, failed):
    refused = howdah("prune", "--failed-after", "0s")
    longer = howdah("prune", "--failed-after", "90d", "--done-after", "90d")

    assert refused.exit_code == 2
    assert "every failed and cancelled job, add --yes" in refused.stderr
    assert (longer.exit_code, longer.stdout) == (0, "pruned 0 jobs, 0 whole partitions among them\n")
    assert len(listed(howdah, "jobs")) == 3


def test_what_a_person_prunes_is_in_the_audit(howdah, failed):
    none = howdah("prune", "--yes")
    result = howdah("prune", "--failed-after", "0s", "--yes", "--json")
    [entry] = listed(howdah, "audit")

    assert none.exit_code == 0
    assert json.loads(result.stdout) == {"partitions": 0, "jobs": 3}
    assert (entry["verb"], entry["thing"], entry["via"], entry["count"]) == ("prune", "job", "cli", 3)
    assert entry["after"] == {"kept": {"done": 14 * 86400.0, "failed": 0.0}}
