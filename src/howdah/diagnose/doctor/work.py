"""Checks of the work: jobs, nodes, leases, queues and schedules, and the application's tables."""

from __future__ import annotations

from howdah.diagnose.finding import LONG, SILENT, Fetch, Finding, bad, ok, some, span, warn
from howdah.errors import ConfigError
from howdah.maintenance.scheduler import SEEN
from howdah.postgres.database import Database
from howdah.table import check
from howdah.table.admin import counting, sticking
from howdah.table.options import TableOptions
from howdah.table.plan import TablePlan
from howdah.table.statement import read
from howdah.version import __version__

SAMPLE = (10_000, 20, 500)
"""Sample size: the newest jobs, the number of samples in history, and the jobs in each."""
RECENT = 7 * 86400.0
"""Seconds for which a repair is reported as a warning."""
INDEX = ("create index ", "create unique index ")
MINOR = ("index", "plan", "trigger", "conflict")
"""Problems with which a table still works, only slowly or late."""
RECORDED = ("row ", "conflict")
"""Problems recorded by nodes while they worked; the table itself is as required."""


class WorkDoctor:
    """Examines jobs, nodes and queues."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def places(self) -> list[Finding]:
        """Check that each job is in exactly one place."""
        [row] = await self._fetch("misplaced", *SAMPLE)
        if row["wrong"] or row["overlapping"]:
            fact = f"jobs in two places or in none: {some(row['wrong'])}; overlapping runs: {row['overlapping']}"
            fix = (
                "report this with the version and `howdah job ID --json`: it is a bug; workers requeue jobs in no place"
            )
            return [bad("places", fact, fix)]
        return [ok("places", f"each of {row['looked']:,} checked jobs is in exactly one place")]

    async def repair(self) -> list[Finding]:
        """Report misplaced jobs and empty leases that self-repair has found."""
        [row] = await self._fetch("repair")
        if row["age"] is None:
            return [ok("repair", "no job in no place and no lease without jobs was ever found")]
        fact = f"{row['jobs']:,} jobs in no place and {row['leases']:,} leases without jobs were repaired"
        fact = f"{fact}, the last {span(row['age'])} ago"
        if row["age"] > RECENT:
            return [ok("repair", fact)]
        return [
            warn("repair", fact, "report this with the version and the log of the workers of that time: it is a bug")
        ]

    async def nodes(self) -> list[Finding]:
        """Check for nodes that are silent, get no wake-ups, or run another version."""
        [row] = await self._fetch("nodes", SILENT)
        findings = [ok("nodes", f"{row['live']} live")]
        if row["silent"]:
            fact = f"no heartbeat for more than {span(SILENT)}: {some(row['silent'])}"
            findings = [warn("nodes", fact, "check whether these processes run; a live node marks them offline")]
        if row["deaf"]:
            findings.append(warn("nodes", f"no wake-ups arrive at {some(row['deaf'])}, so they poll", "see notify"))
        versions = sorted({*row["versions"], __version__})
        if len(versions) > 1:
            fact = f"{', '.join(versions)} (this is {__version__})"
            findings.append(warn("versions", fact, "finish the deployment"))
        return findings

    async def leases(self) -> list[Finding]:
        """Check for expired leases that no node has reset."""
        [row] = await self._fetch("expired", LONG)
        if row["leases"]:
            fact = f"{row['leases']} expired and not reset for up to {span(row['longest'])}"
            return [bad("leases", fact, "start a worker: its maintenance loop returns the jobs to their queues")]
        return [ok("leases", "every expired lease was reset")]

    async def paused(self) -> list[Finding]:
        """Check for paused queues with waiting jobs."""
        return [
            warn(
                "paused",
                f"queue {row['name']!r} was paused {span(row['age'] or 0)} ago"
                f"{' by ' + row['paused_by'] if row['paused_by'] else ''}; jobs waiting: {row['jobs']:,}",
                f"howdah resume {row['name']}",
            )
            for row in await self._fetch("paused")
        ] or [ok("paused", "no paused queue has jobs")]

    async def unserved(self) -> list[Finding]:
        """Check for waiting jobs that no live node would claim."""
        rows = await self._fetch("unserved", SILENT)
        if not rows:
            return [ok("unserved", "a live node serves every queued job")]
        said = ", ".join(f"{row['jobs']:,} of {row['kind']} in {row['queue']}" for row in rows[:5])
        return [warn("unserved", f"no live node serves {said}", "start a worker with these tasks and queues")]

    async def schedules(self) -> list[Finding]:
        """Check for schedules that cannot be fired, are overdue, or have conflicting declarations."""
        findings = []
        for row in await self._fetch("schedules", SEEN.total_seconds(), LONG):
            name = repr(row["name"])
            if row["error"]:
                fact = f"{name} could not enqueue its job for {span(row['failing'])}: {row['error']}"
                findings.append(bad("schedules", fact, "correct its declaration, and see the log of the nodes"))
            elif row["overdue"] is not None:
                fact = f"{name} is overdue for {span(row['overdue'])} although a live node declares it"
                findings.append(bad("schedules", fact, "see the log of the nodes that declare it"))
            if len(row["declared"]) > 1:
                ways = some(row["declared"])
                fact = f"{name} is declared in {len(row['declared'])} ways: {ways}; only the first is fired"
                findings.append(warn("schedules", fact, "finish the deployment, or rename one of them"))
        return findings or [ok("schedules", "every schedule is on time, and declared in one way")]


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
            if not each.where.startswith(RECORDED)
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
            fact = f"{options.name}: no node resets {stuck['rows']:,} rows whose worker has sent no heartbeat{silent}"
            findings.append(bad("tables", fact, "start a worker with this table: its maintenance loop resets them"))
        _, statement, values = counting(plan)
        [live] = await self._run(statement, *values)
        [served] = await self._fetch("serves", SILENT, options.name)
        if live["due"] and not served["nodes"]:
            waited = f"the oldest has waited for {span(live['oldest'])}"
            fact = f"{options.name}: no live node processes {live['due']:,} due rows; {waited}"
            findings.append(warn("tables", fact, "start a worker with this table"))
        return findings


def _finding(found: check.TableFinding, options: TableOptions, *, busy: bool) -> Finding:
    """Convert a table finding; ``busy``: create the index concurrently with writes."""
    judge = warn if found.where.startswith(MINOR) else bad
    match list(found.sql):
        case []:
            fix = found.fix
        case [statement] if statement.startswith(INDEX):
            fix = statement.replace("index ", "index concurrently ", 1) if busy else statement
        case _:
            fix = f"{found.fix}: `howdah table check {options.name} --sql` prints the statements"
    return judge("tables", found.what if options.name in found.what else f"{options.name}: {found.what}", fix)
