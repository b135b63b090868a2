"""Checks of jobs, nodes, leases, queues and schedules."""

from __future__ import annotations

from howdah.diagnose.doctor.finding import LONG, SILENT, Fetch, Finding, bad, ok, some, span, warn
from howdah.maintenance.scheduler import SEEN
from howdah.version import __version__

SAMPLE = (10_000, 20, 500)
"""Sample size: the newest jobs, the number of samples in history, and the jobs in each."""
RECENT = 7 * 86400.0
"""Seconds for which a repair is reported as a warning."""


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
        return [ok("places", f"each of {row['looked']:,} jobs looked at is in exactly one place")]

    async def repair(self) -> list[Finding]:
        """Report misplaced jobs and empty leases that self-repair has found."""
        [row] = await self._fetch("repair")
        if row["age"] is None:
            return [ok("repair", "no job was ever found in no place, and no lease without jobs")]
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
            fact = f"silent for more than {span(SILENT)}: {some(row['silent'])}"
            findings = [warn("nodes", fact, "see whether they still run; a live node declares them offline")]
        if row["deaf"]:
            findings.append(warn("nodes", f"no wake-ups arrive at {some(row['deaf'])}, they poll", "see notify"))
        versions = sorted({*row["versions"], __version__})
        if len(versions) > 1:
            fact = f"{', '.join(versions)} (this is {__version__})"
            findings.append(warn("versions", fact, "finish the roll-out"))
        return findings

    async def leases(self) -> list[Finding]:
        """Check for expired leases that no node has reset."""
        [row] = await self._fetch("expired", LONG)
        if row["leases"]:
            fact = f"{row['leases']} expired and not taken back for up to {span(row['longest'])}"
            return [bad("leases", fact, "start a worker: its upkeep returns the jobs to their queues")]
        return [ok("leases", "none is overdue")]

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
            return [ok("unserved", "every waiting job has a live node for it")]
        said = ", ".join(f"{row['jobs']:,} of {row['kind']} in {row['queue']}" for row in rows[:5])
        return [warn("unserved", f"no live node takes {said}", "start a worker with these tasks and queues")]

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
                findings.append(warn("schedules", fact, "finish the roll-out, or rename one of them"))
        return findings or [ok("schedules", "every schedule is declared in one way and on time")]
