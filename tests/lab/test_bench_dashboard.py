"""The benchmark of the dashboard asks for every page and says which are slow. Never how fast they are."""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from howdah.cli import main
from howdah.dashboard.pages import PAGES
from howdah.dashboard.request import DashboardPage
from howdah.postgres.database import Database
from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.job_history import JobHistory
from howdah_lab.bench.scenarios import dashboard
from howdah_lab.bench.scenarios.dashboard import PageAddress

TINY = ("--scenario", "dashboard", "--jobs", "100", "--rounds", "1", "--json")


def bench(database: Database) -> dict[str, dict[str, Any]]:
    outcome = CliRunner().invoke(main, ["bench", *TINY, "--dsn", database.dsn])
    assert outcome.exit_code == 0, outcome.output
    [result] = json.loads(outcome.stdout)["scenarios"]
    return {figure["name"]: figure for figure in result["figures"]}


def test_every_page_is_measured_and_nothing_is_left_behind(database: Database) -> None:
    figures = bench(database)

    paths = {re.split(r", p|\?", name)[0] for name in figures}
    for page in PAGES:
        if page.method == "GET" and page.path != "/live":
            like = re.sub(r"\{.*\}", r"\\d+", page.path)
            assert any(re.fullmatch(like, path) for path in paths), page.path
    ranks = [figure["median"] for figure in figures.values()][:-1]
    assert all(0 < p50 <= p95 for p50, p95 in zip(ranks[::2], ranks[1::2], strict=True))
    assert figures["p95 above 200 ms"]["unit"] == "pages"
    with psycopg.connect(database.dsn) as conn:
        assert conn.execute("select count(*) from pg_namespace where nspname = 'howdah_bench'").fetchone() == (0,)


def test_a_page_that_takes_too_long_is_named(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        dashboard,
        "addresses",
        lambda _history: [PageAddress("/schedules", limit=1e9), PageAddress("/audit", limit=1e-9)],
    )

    figures = bench(database)

    assert {"/schedules, p95", "/audit, p95, above 0 ms"} <= figures.keys()
    assert figures["p95 above 200 ms"]["median"] == 1


def test_a_page_nobody_knows_how_to_ask_for_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(_visit: object) -> None: ...

    monkeypatch.setattr(dashboard, "PAGES", [*PAGES, DashboardPage("GET", "/new/{id:int}", "read", answer)])  # type: ignore[arg-type]

    with pytest.raises(CheckFailed, match=r"no parameters are known for /new/\{id:int\}"):
        list(dashboard.addresses(JobHistory(finished=100, waiting=10)))
