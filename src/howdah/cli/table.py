"""`howdah table`: check and manage tables used as work queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import click

from howdah.audit import acting_as
from howdah.cli.output import INCOMPLETE, age, cell, dump, finish, printable, show
from howdah.cli.parameters import DURATION, as_json, read_ids
from howdah.cli.target import Target, person, run, targeted
from howdah.errors import ConfigError
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.table import ddl
from howdah.table.admin import RowActionResult, RowCount, TableAdmin, TableRow, TableStatus
from howdah.table.check import TableReport, examine
from howdah.table.contract import STATES
from howdah.table.options import TableOptions
from howdah.table.statement import RelationName

MAX_LINES = 20
COLUMNS = {
    "id": lambda row: row.id,
    "state": lambda row: row.state,
    "failures": lambda row: row.failures,
    "resets": lambda row: row.resets,
    "at": lambda row: row.finished_at or row.started_at or row.process_after or row.queued_at,
    "worker": lambda row: row.worker,
    "message": lambda row: row.message,
}


@click.group()
def table() -> None:
    """Check and manage tables used as work queues.

    NAME is a table with its schema, as SQL writes it, or the name it has in the app. With an app (`-a`) the options of
    its `app.table(…)` count; without, the columns have the names of the contract.

    \b
    howdah table check app.uploads --sql | psql
    howdah table status app.uploads
    """


@table.command()
@click.argument("name")
@click.option("--sql", "as_sql", is_flag=True, help="Print the statements that add what is missing.")
@click.option("--concurrently", is_flag=True, help="With --sql: create indexes without locking writes.")
@click.option("--trigger", is_flag=True, help="Also print the trigger that notifies nodes of new rows.")
@as_json
@targeted
def check(target: Target, name: str, as_sql: bool, concurrently: bool, trigger: bool, as_json: bool) -> None:
    """Check a table: print what it lacks as a work queue and how to add it. Changes nothing.

    Exits 1 when something is missing or wrong; with --sql only when statements alone cannot put it right. An index
    that is created plainly locks writes to the table; with --concurrently it does not, but takes longer, and the
    script must not run in a transaction.

    \b
    howdah table check app.uploads
    howdah table check app.uploads -a shop.jobs:app --sql --trigger > upgrade.sql
    """
    database, options = database_and_options(target, name)
    report = run(examine(database, options))
    if as_json:
        dump(report)
    elif as_sql or trigger:
        text = script(report, findings=as_sql, trigger=trigger)
        click.echo(ddl.concurrently(text) if concurrently else text, nl=False)
        finish(INCOMPLETE if as_sql and any(not finding.sql for finding in report.findings) else 0)
        return
    else:
        for finding in report.findings:
            click.echo(printable(f"{finding.what}\n  → {finding.fix}"))
        if not report.findings:
            click.echo(
                printable(f"table {report.table} is ready; a claim reads {', '.join(report.reads) or 'nothing'}")
            )
        elif any(finding.sql for finding in report.findings):
            click.echo("add --sql to see the statements", err=True)
    finish(INCOMPLETE if report.findings else 0)


@table.command()
@click.argument("name")
@targeted
def create(target: Target, name: str) -> None:
    """Print a complete table, with its indexes, for you to add columns to.

    \b
    howdah table create app.uploads | psql
    """
    click.echo(ddl.script(ddl.create(named(target, name))), nl=False)


@table.command()
@click.argument("name")
@as_json
@targeted
def status(target: Target, name: str, as_json: bool) -> None:
    """Count the rows by state, with the age of the oldest.

    What waits and is worked on is counted; what is over is estimated in a big table, and marked with ~.

    \b
    howdah table status app.uploads
    """
    found: TableStatus = with_admin(target, name, TableAdmin.status)
    if as_json:
        dump(found)
        return
    columns: dict[str, Callable[[tuple[str, RowCount]], Any]] = {
        "state": lambda each: each[0],
        "rows": lambda each: each[1],
    }
    show(list(found.states.items()), columns)
    click.echo(f"due now: {found.due}, the oldest waits {age(found.oldest)}" if found.due else "nothing is due now")


@table.command("list")
@click.argument("name")
@click.option("-s", "--state", type=click.Choice(STATES), help="Only rows in this state.")
@click.option("--before", metavar="ID", help="Only rows with a smaller id: the next page.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@as_json
@targeted
def list_(target: Target, name: str, state: str | None, before: str | None, limit: int, as_json: bool) -> None:
    """List rows, newest first: those with the largest id.

    \b
    howdah table list app.uploads --state failed
    howdah table list app.uploads --before 1200 --json
    """

    async def read(admin: TableAdmin) -> Sequence[TableRow]:
        start = None if before is None else read_rows(admin, [before])[0]
        return await admin.list(state, before=start, limit=limit)

    show(with_admin(target, name, read), COLUMNS, as_json=as_json, empty="no rows")


@table.command()
@click.argument("name")
@click.argument("ids", nargs=-1, required=True)
@as_json
@targeted
def retry(target: Target, name: str, ids: Sequence[str], as_json: bool) -> None:
    """Requeue failed and errored rows at once, with their failure counts reset.

    Exits 1 when some were left alone: in another state, or unknown.

    \b
    howdah table retry app.uploads 5 7 10-20
    """
    results = with_admin(target, name, lambda admin: admin.retry(read_rows(admin, ids)))
    report_results(results, "put back", as_json=as_json)


@table.command()
@click.argument("name")
@click.argument("ids", nargs=-1, required=True)
@click.option("--after", type=DURATION, default="0s", help="Not before this has passed: 90s, 10m, 24h.")
@as_json
@targeted
def requeue(target: Target, name: str, ids: Sequence[str], after: float, as_json: bool) -> None:
    """Requeue rows in any state, now or later; finished ones start anew.

    Exits 1 when some were left alone: worked on now, or unknown.

    \b
    howdah table requeue app.uploads 5 7 --after 10m
    """
    results = with_admin(target, name, lambda admin: admin.requeue(read_rows(admin, ids), after))
    report_results(results, "requeued", as_json=as_json)


@table.command()
@click.argument("name")
@click.argument("ids", nargs=-1, required=True)
@as_json
@targeted
def cancel(target: Target, name: str, ids: Sequence[str], as_json: bool) -> None:
    """Cancel rows: queued ones at once, running ones at the next heartbeat.

    Exits 1 when some were left alone: already over, or unknown.

    \b
    howdah table cancel app.uploads 5 7 10-20
    """
    results = with_admin(target, name, lambda admin: admin.cancel(read_rows(admin, ids)))
    report_results(results, "canceled", as_json=as_json)


def named(target: Target, name: str) -> TableOptions:
    """Return the options of the app's table of this name, or the default ones."""
    tables = target.app().tables if target.settings().app is not None else {}
    if name in tables:
        return tables[name].options
    relation = RelationName.parse(name)
    same = [each.options for each in tables.values() if each.options.relation.parts == relation.parts]
    if len(same) > 1:
        raise ConfigError(f"table {name} is several in the app; name one of {[options.name for options in same]}")
    if tables and not same:
        click.echo(f"the app has no table {name!r}; taken for one with the columns of the contract", err=True)
    return same[0] if same else TableOptions(table=name, name=cell(relation))


def database_and_options(target: Target, name: str) -> tuple[Database, TableOptions]:
    """Return the database and the options of a table."""
    return target.database(), named(target, name)


def with_admin(target: Target, name: str, act: Callable[[TableAdmin], Awaitable[Any]]) -> Any:
    """Run an action with the admin of a table."""
    database, options = database_and_options(target, name)

    async def main() -> Any:
        async with opened(database, options) as admin:
            return await act(admin)

    return run(main())


@asynccontextmanager
async def opened(database: Database, options: TableOptions) -> AsyncIterator[TableAdmin]:
    """Return the admin of a table; raises :class:`SchemaError` for an unknown schema."""
    conn = await database.connect("admin")
    try:
        await migrate.check(database, conn)
        with acting_as(person()):
            yield await TableAdmin.open(conn, options, database.schema)
    finally:
        conn.terminate()


def read_rows(admin: TableAdmin, words: Sequence[str]) -> list[Any]:
    """Read ids: numbers and ranges, or text as given."""
    return list(read_ids(words) if admin.numbered else dict.fromkeys(map(admin.read_id, words)))


def script(report: TableReport, *, findings: bool, trigger: bool) -> str:
    """Return the statements that repair a table, each below its reason."""
    parts, done = [], set()
    for finding in report.findings if findings else ():
        parts.append(ddl.remark(f"{finding.what}: {finding.fix}") + "\n" + ddl.script(finding.sql))
        done |= set(finding.sql)
    if trigger and report.trigger is None:
        raise ConfigError(f"table {report.table} does not exist, so it cannot have a trigger; create it first")
    if trigger and report.trigger is not None and report.trigger not in done:
        parts.append(ddl.remark("wake nodes when the table gets work; app.table(…, notify=True) listens") + "\n")
        parts.append(ddl.script([report.trigger]))
    return "".join(parts) or ddl.remark(f"nothing is missing in table {report.table}") + "\n"


def report_results(results: Sequence[RowActionResult], verb: str, *, as_json: bool) -> None:
    """Print the result for each row; exit 1 unless every row was processed."""
    left = [each for each in results if not each.did]
    if as_json:
        dump(results)
    else:
        asked = sum(each.result == "asked" for each in results)
        more = f", {asked} of them by their next heartbeat" if asked else ""
        click.echo(f"{verb} {len(results) - len(left)} of {len(results)} rows{more}")
        if left:
            why: dict[str, Callable[[RowActionResult], Any]] = {
                "id": lambda each: each.id,
                "left alone": lambda each: each.error or (f"it is {each.was}" if each.was else "there is no such row"),
            }
            show(left[:MAX_LINES], why)
        if len(left) > MAX_LINES:
            click.echo(f"and {len(left) - MAX_LINES} more")
    finish(INCOMPLETE if left else 0)
