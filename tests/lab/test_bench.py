"""The benchmark runs, checks itself and says what it must. Never how fast: that is for people to read."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from howdah.cli import main
from howdah.postgres.database import Database
from howdah_lab.bench.app import app, make, nothing
from howdah_lab.bench.bench_schema import BenchSchema, CheckFailed
from howdah_lab.bench.events import check, streams
from howdah_lab.bench.events import make as make_events
from howdah_lab.bench.figure import Figure
from howdah_lab.bench.results import Results, begin
from howdah_lab.bench.runner import Runner
from howdah_lab.bench.scenario import LeftOut, Plan, Scenario
from howdah_lab.bench.scenarios import SCENARIOS
from howdah_lab.bench.scenarios.consume import KINDS
from howdah_lab.bench.scenarios.eventsourcing import INSTALL
from howdah_lab.bench.server import GivenDatabase, Redis
from howdah_lab.bench.session import Workbench
from howdah_lab.bench.system import OURS, load

TINY = ("--jobs", "100", "--rounds", "2")
UNITS = ("jobs/s", "rows/s", "events/s", "µs/job", "µs/event", "s", "ms", "ratio", "MB", "bytes", "connections")


def bench(*words: str) -> Result:
    return CliRunner().invoke(main, ["bench", *words])


def schemas(database: Database) -> set[str]:
    with psycopg.connect(database.dsn) as conn:
        return {name for (name,) in conn.execute("select nspname from pg_namespace")}


async def measure(database: Database, *scenarios: Scenario) -> Results:
    """Run scenarios in one round, with a hundred jobs."""
    results = begin(0.002, 1)
    with Redis() as redis:
        async with GivenDatabase(Database(database.dsn, schema="howdah_bench")) as server:
            await Runner(results).run(Workbench(server, redis, "howdah_bench"), [load(OURS)], scenarios)
    return results


async def fail(_plan: Plan) -> list[Figure]:
    raise CheckFailed("two and two are five")


@pytest.fixture
def schema(database: Database) -> BenchSchema:
    return BenchSchema(Database(database.dsn, schema="howdah_bench"))


@pytest.mark.stories
def test_every_scenario_gives_figures_as_json_and_leaves_nothing_behind(database: Database) -> None:
    outcome = bench(*TINY, "--json", "--dsn", database.dsn)

    report = json.loads(outcome.stdout)
    assert {result["scenario"]: result["error"] for result in report["scenarios"] if result["error"]} == {}
    assert outcome.exit_code == 0
    assert {"howdah", "python", "uvloop", "postgresql", "cores", "settings"} <= report["place"].keys()
    assert {"fsync", "synchronous_commit"} <= report["place"]["settings"].keys()
    results = {result["scenario"]: result for result in report["scenarios"] if result["system"] == OURS}
    assert list(results) == [name for name, scenario in SCENARIOS.items() if scenario.default]
    for result in results.values():
        assert result["error"] is None
        assert {"jobs", "seconds", "about"} <= result.keys()
        for figure in result["figures"]:
            # a hundred jobs fit into pages that are there
            assert 0 < figure["low"] <= figure["median"] <= figure["high"] or figure["name"].startswith("disk")
            assert figure["unit"] in UNITS
    assert len(figures(results["drain"])["async handlers that do nothing"]["rounds"]) == 2
    assert {"snapshot held, round 5 / round 1", "no snapshot held, round 5 / round 1"} <= figures(
        results["held"]
    ).keys()
    assert {"one at a time", "100 concurrent callers", "1,000 concurrent callers", "in bulk"} <= figures(
        results["enqueue"]
    ).keys()
    assert {f"idle queue, enqueue to start, p{rank}" for rank in (50, 95, 99)} <= figures(results["latency"]).keys()
    for shape in ("1 writer x 1", "8 writers x 1", "1 writer x 100", "8 writers x 100"):
        ways = {shape, f"{shape}, no gate", f"{shape}, plain insert", f"{shape}, gate / no gate"}
        assert ways <= figures(results["append"]).keys()
    assert {kind.name for kind in KINDS} <= figures(results["consume"]).keys()
    assert {"append to handler, p50", "append to checkpoint, p99"} <= figures(results["arrival"]).keys()
    assert {"batches of 100", "20 nodes idle, enqueue to claim, p99", "20 nodes, 1 at work"} <= figures(
        results["fleet"]
    ).keys()
    if find_spec("eventsourcing") is None:
        assert INSTALL in results["rival"]["left_out"]
        assert results["rival"]["figures"] == []
    assert "howdah_bench" not in schemas(database)


def test_without_a_dsn_it_brings_its_own_postgresql_and_prints_a_table() -> None:
    result = bench(*TINY, "--rounds", "1", "--scenario", "drain")

    assert result.exit_code == 0, result.output
    assert "fsync on, synchronous_commit on" in result.stdout
    assert "PostgreSQL" in result.stdout
    heading, first, *_ = result.stdout.partition("\n\n")[2].splitlines()
    assert heading.split() == ["scenario", "jobs", "figure", "median", "low", "high", "unit"]
    assert first.split()[:5] == ["drain", "100", "async", "handlers", "that"]


def test_a_schema_that_is_not_its_own_is_left_alone(database: Database) -> None:
    result = bench(*TINY, "--dsn", database.dsn, "--schema", "howdah")

    assert result.exit_code == 2
    assert "was not made by a benchmark" in result.stderr
    assert "howdah" in schemas(database)


@pytest.mark.anyio
async def test_what_a_killed_benchmark_left_is_used_again_but_not_by_two_at_once(schema: BenchSchema) -> None:
    await schema.__aenter__()
    await schema.fresh()
    with pytest.raises(Exception, match="another benchmark runs"):
        await BenchSchema(schema.database).__aenter__()
    schema._hang_up()

    async with BenchSchema(schema.database) as again:
        await again.fresh()
        await again.check(done=0)


@pytest.mark.anyio
async def test_jobs_that_are_not_done_are_a_failure_that_names_the_counts(schema: BenchSchema) -> None:
    async with schema:
        await schema.fresh()
        await app.enqueue_many(make(nothing, number) for number in range(3))

        await schema.check(done=0, waiting=3)
        with pytest.raises(CheckFailed, match="done 0 instead of 3, waiting 3 instead of 0"):
            await schema.check(done=3)


@pytest.mark.anyio
async def test_a_log_that_does_not_add_up_is_a_failure_that_names_the_counts(schema: BenchSchema) -> None:
    with Redis() as redis:
        workbench = Workbench(GivenDatabase(schema.database), redis, "howdah_bench")
    plan = Plan(workbench=workbench, system=load(OURS), jobs=10, own_schema=schema)
    async with schema:
        await schema.fresh()
        await make_events(plan)
        await app.log.append_many(streams(10))

        await check(plan, events=10)
        with pytest.raises(CheckFailed, match="events 10 instead of 11"):
            await check(plan, events=11)
        await schema.conn.execute("delete from howdah_bench.event where stream_id = '0' and version = 2")
        with pytest.raises(CheckFailed, match="torn 1 instead of 0"):
            await check(plan, events=9)


@pytest.mark.anyio
async def test_a_control_plane_with_too_many_connections_is_a_failure(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("howdah_lab.bench.scenarios.remote_workers.OTHER_CONNECTIONS", -4)
    [run] = (await measure(database, SCENARIOS["fleet"])).runs

    assert run.error is not None
    assert "connections to PostgreSQL open" in run.error


def test_what_cannot_be_measured_here_is_left_out_with_a_word_and_is_no_failure(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leave_out(_plan: Plan) -> list[Figure]:
        raise LeftOut("it needs a full moon")

    monkeypatch.setitem(SCENARIOS, "rival", replace(SCENARIOS["rival"], measure=leave_out))

    result = bench(*TINY, "--scenario", "rival", "--dsn", database.dsn)

    assert result.exit_code == 0
    assert "rival was left out: it needs a full moon" in result.stdout


@pytest.mark.anyio
async def test_a_scenario_that_fails_is_shown_and_the_next_one_runs(database: Database) -> None:
    async def succeed(plan: Plan) -> list[Figure]:
        return [Figure("rounds", "ratio", [1.0, 3.0, 2.0])]

    results = await measure(
        database, replace(SCENARIOS["drain"], measure=fail), replace(SCENARIOS["table"], measure=succeed)
    )

    [failed, succeeded] = results.runs
    assert failed.error == "CheckFailed: two and two are five"
    assert succeeded.error is None
    figure = results.figure("table", OURS, "rounds")
    assert figure is not None
    assert (figure.low, figure.median, figure.high) == (1.0, 2.0, 3.0)


def test_a_failed_scenario_is_exit_code_1(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCENARIOS, "drain", replace(SCENARIOS["drain"], measure=fail))

    result = bench(*TINY, "--scenario", "drain", "--dsn", database.dsn)

    assert result.exit_code == 1
    assert "drain failed: CheckFailed: two and two are five" in result.stdout


def figures(result: dict[str, Any]) -> dict[str, Any]:
    return {figure["name"]: figure for figure in result["figures"]}
