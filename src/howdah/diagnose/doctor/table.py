"""Checks of the application's tables: missing columns and indexes, and rows that no node processes."""

from __future__ import annotations

from howdah.diagnose.doctor.finding import LONG, SILENT, Fetch, Finding, bad, ok, span, warn
from howdah.errors import ConfigError
from howdah.postgres.database import Database
from howdah.table import check
from howdah.table.admin import counting, sticking
from howdah.table.names import read
from howdah.table.options import TableOptions
from howdah.table.plan import TablePlan

INDEX = ("create index ", "create unique index ")
WORTH_A_LOOK = ("index", "plan", "trigger", "conflict")
"""Problems with which a table still works, only slowly or late."""
LIVE = ("row ", "conflict")
"""Problems recorded by nodes while they worked; the table itself is as required."""


class TableDoctor:
    """Examines one table after the other. ``run`` runs any statement, ``fetch`` one of the doctor's."""

    def __init__(self, database: Database, fetch: Fetch, run: Fetch) -> None:
        self._database = database
        self._fetch = fetch
        self._run = run

    async def examine(self, options: TableOptions) -> list[Finding]:
        """Return what a table lacks, with the fix; rows no node claims, and silent workers' rows not reset."""
        report = await check.examine(self._database, options)
        found = [each for each in report.findings if each.where != "schema"]
        partitioned = [row["kind"] == "p" for row in await self._run(read()["describe"], options.relation.quoted)]
        findings = [_finding(each, options, busy=partitioned == [False]) for each in found]
        lacks = any(
            judged.verdict == "bad"
            for judged, each in zip(findings, found, strict=True)
            if not each.where.startswith(LIVE)
        )
        plan = None if lacks else await self._plan(options)
        if plan is not None:
            findings += await self._rows(options, plan)
        if findings:
            return findings
        return [ok("tables", f"{options.name}: a claim reads {', '.join(report.reads) or 'no index yet'}")]

    async def _plan(self, options: TableOptions) -> TablePlan | None:
        conn = await self._database.connect("doctor")
        try:
            return await TablePlan.make(conn, options, self._database.schema)
        except ConfigError:
            return None  # The report gives the reason.
        finally:
            conn.terminate()

    async def _rows(self, options: TableOptions, plan: TablePlan) -> list[Finding]:
        findings = []
        [stuck] = await self._run(sticking(plan), options.stalled_after + LONG)
        if stuck["rows"]:
            silent = f" for {span(stuck['longest'])}" if stuck["longest"] is not None else ""
            fact = f"{options.name}: no node resets {stuck['rows']:,} rows whose worker has been silent{silent}"
            findings.append(bad("tables", fact, "start a worker that has this table: its upkeep takes them back"))
        _, statement, values = counting(plan)
        [live] = await self._run(statement, *values)
        [served] = await self._fetch("serves", SILENT, options.name)
        if live["due"] and not served["nodes"]:
            fact = (
                f"{options.name}: no live node takes {live['due']:,} rows, the oldest waits for {span(live['oldest'])}"
            )
            findings.append(warn("tables", fact, "start a worker that has this table"))
        return findings


def _finding(found: check.TableFinding, options: TableOptions, *, busy: bool) -> Finding:
    """Convert a table finding; ``busy``: create the index concurrently with writes."""
    judge = warn if found.where.startswith(WORTH_A_LOOK) else bad
    match list(found.sql):
        case []:
            fix = found.fix
        case [statement] if statement.startswith(INDEX):
            fix = statement.replace("index ", "index concurrently ", 1) if busy else statement
        case _:
            fix = f"{found.fix}: `howdah table check {options.name} --sql` prints the statements"
    return judge("tables", found.what if options.name in found.what else f"{options.name}: {found.what}", fix)
