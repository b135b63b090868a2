"""`howdah doctor`: check the database and the nodes."""

from __future__ import annotations

from collections.abc import Sequence

import click

from howdah.cli.common import Target, as_json, finish, run, targeted
from howdah.cli.errors import INCOMPLETE, SCHEMA, UNREACHABLE, one_line
from howdah.cli.output import printable, show
from howdah.diagnose.doctor import Doctor
from howdah.diagnose.finding import Finding, Verdict

COLUMNS = {
    "check": lambda finding: finding.name,
    "verdict": lambda finding: finding.verdict.value,
    "finding": lambda finding: finding.fact,
}


@click.command()
@as_json
@targeted
def doctor(target: Target, as_json: bool) -> None:
    """Check the database and the nodes, and print what to do. Changes nothing.

    With an app (`-a`) its tables are examined too: what they lack, and rows that no node claims.

    Exits 0 when nothing is bad (warnings do not count), 1 otherwise, 3 when the database does not answer, 4 when
    the schema is not the one this code needs.

    \b
    howdah doctor
    howdah doctor -a shop.jobs:app --json
    """
    findings = [
        Finding(each.name, each.verdict, one_line(each.fact), each.fix)
        for each in run(Doctor(target.database(), target.tables()).examine())
    ]
    show(findings, COLUMNS, as_json=as_json)
    if not as_json:
        for finding in findings:
            if finding.fix is not None:
                click.echo(printable(f"{finding.name}: {finding.fact}\n  → {finding.fix}"))
    finish(code(findings))


def code(findings: Sequence[Finding]) -> int:
    """Return the exit code for the findings."""
    bad = {finding.name for finding in findings if finding.verdict is Verdict.BAD}
    if len(findings) == 1:
        return UNREACHABLE
    return SCHEMA if "schema" in bad else INCOMPLETE if bad else 0
