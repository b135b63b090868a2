"""`howdah why` and `howdah doctor`: explain why something does not run, and check the database and the nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import click

from howdah.cli.output import INCOMPLETE, SCHEMA, UNREACHABLE, dump, finish, one_line, printable, show
from howdah.cli.parameters import as_json
from howdah.cli.table import database_and_options
from howdah.cli.target import Target, run, targeted
from howdah.diagnose.doctor import Doctor
from howdah.diagnose.finding import Finding, Gate, Verdict
from howdah.diagnose.why import Why
from howdah.postgres.database import Database

SIGNS = {True: "✓ open  ", False: "✗ closed"}
"""With words: symbols alone are lost on some terminals and in screen readers."""


@click.command()
@click.argument("id", required=False)
@click.option("--consumer", metavar="NAME", help="Explain this consumer of the event log instead.")
@click.option("--table", metavar="NAME", help="The id is of a row of this table.")
@as_json
@targeted
def why(target: Target, id: str | None, consumer: str | None, table: str | None, as_json: bool) -> None:
    """Explain why a job is not running: every condition of a claim, the blocking ones first. Changes nothing.

    Exits 1 when there is no such job, 4 when the schema is not the one this code needs.

    \b
    howdah why 42
    howdah why --consumer order_view
    howdah why --table app.uploads 7 -a shop.jobs:app
    """
    if (id is None) == (consumer is None) or (table and consumer):
        raise click.UsageError("name one thing: a job by its id, --consumer NAME, or --table NAME and the id of a row")
    if consumer is not None:
        what, gates = f"consumer {consumer}", ask(target.database(), lambda why: why.consumer(consumer))
    elif table is not None:
        database, options = database_and_options(target, table)
        what, gates = f"row {id} of {table}", ask(database, lambda why: why.row(options, id))
    else:
        number = read_id(id or "")
        what, gates = f"job {number}", ask(target.database(), lambda why: why.job(number))
    if as_json:
        dump(gates)
    else:
        print_gates(what, gates)
    finish(SCHEMA if any(gate.name == "schema" and not gate.open for gate in gates) else 0)


def ask(database: Database, question: Callable[[Why], Awaitable[list[Gate]]]) -> list[Gate]:
    """Explain once and return."""

    async def main() -> list[Gate]:
        async with opened(database) as why:
            return await question(why)

    return run(main())


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[Why]:
    """Open what explains jobs, consumers and rows."""
    pool = await database.pool(1)

    async def open() -> Any:
        return pool

    try:
        yield Why(database, open)
    finally:
        pool.terminate()


def print_gates(what: str, gates: Sequence[Gate]) -> None:
    """Print one line per condition, and below it what to do."""
    closed = sum(not gate.open for gate in gates)
    click.echo(printable(f"{what}: {closed} of {len(gates)} gates closed" if closed else f"{what}: every gate is open"))
    width = max(len(gate.name) for gate in gates)
    for gate in gates:
        click.echo(printable(f"{SIGNS[gate.open]}  {gate.name:{width}}  {one_line(gate.fact)}"))
        if gate.fix is not None:
            click.echo(printable(f"{' ' * (len(SIGNS[True]) + width + 4)}→ {gate.fix}"))


def read_id(word: str) -> int:
    """Return the id of a job."""
    if not word.isdecimal() or len(word) > 18:
        raise click.UsageError(f"{word!r} is not a job id; write a number, or --consumer NAME")
    return int(word)


FINDING_COLUMNS = {
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
    show(findings, FINDING_COLUMNS, as_json=as_json)
    if not as_json:
        for finding in findings:
            if finding.fix is not None:
                click.echo(printable(f"{finding.name}: {finding.fact}\n  → {finding.fix}"))
    finish(exit_code(findings))


def exit_code(findings: Sequence[Finding]) -> int:
    """Return the exit code for the findings."""
    bad = {finding.name for finding in findings if finding.verdict is Verdict.BAD}
    if len(findings) == 1:
        return UNREACHABLE
    return SCHEMA if "schema" in bad else INCOMPLETE if bad else 0
