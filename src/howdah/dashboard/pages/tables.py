"""Tables of the application's own as work queues: how they stand, their rows, and acts on these."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.responses import Response

from howdah.dashboard.protection import RequestError
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.errors import ConfigError, HowdahError
from howdah.table.admin import RowActionResult, TableAdmin, TableStatus
from howdah.table.contract import STATES
from howdah.table.table import Table

ON_A_PAGE = 50
VERBS = {"retry": "Retry", "requeue": "Requeue", "cancel": "Cancel"}
DETAILS = {
    "retry": "Failed and errored ones start anew at once.",
    "requeue": "They are worked on again, unless they are worked on now.",
    "cancel": "Waiting ones are cancelled at once, others by the next heartbeat of their worker.",
}


async def tables(visit: DashboardRequest) -> Response:
    """Every table, or what is wrong with it."""
    found: list[tuple[str, TableStatus | str]] = []
    for name, table in visit.context.app.tables.items():
        try:
            async with _admin(visit, table) as admin:
                found.append((name, await admin.status()))
        except HowdahError as error:
            found.append((name, str(error)))
    return visit.page("tables.html", tables=found, states=STATES)


async def rows(visit: DashboardRequest) -> Response:
    """The rows of one table, newest first."""
    table = _table(visit, visit.param("name"))
    state = visit.param("state") or None
    async with _admin(visit, table) as admin:
        before = _id(admin, visit.param("before")) if visit.param("before") else None
        found = await admin.list(state, before=before, limit=ON_A_PAGE)
        status = await admin.status()
    return visit.page(
        "rows.html",
        name=table.name,
        rows=found,
        redact=visit.context.redact,
        status=status,
        state=state,
        states=STATES,
        first=before is None,
        next=found[-1].id if len(found) == ON_A_PAGE else None,
    )


async def row(visit: DashboardRequest) -> Response:
    """Why a row is, or is not, worked on."""
    table = _table(visit, visit.param("name"))
    async with _admin(visit, table) as admin:
        id = _id(admin, visit.param("id"))
    gates = await visit.context.why.row(table.options, id)
    trail = await visit.context.admin.audit(thing="row", id=id, limit=20)
    return visit.page("row.html", name=table.name, id=id, gates=gates, trail=trail)


async def act(visit: DashboardRequest) -> Response:
    """Retry, requeue or cancel chosen rows."""
    table, verb, words = _table(visit, visit.field("name")), visit.field("verb"), visit.fields("id")
    if verb not in VERBS:
        raise RequestError(400, f"There is no act {verb[:40]!r}.", f"Use {', '.join(VERBS)}.")
    if not words:
        raise RequestError(400, "No row is chosen.", "Tick some.")
    if not visit.confirmed():
        what = f"row {words[0]}" if len(words) == 1 else f"{len(words)} rows"
        return visit.confirm(
            f"{VERBS[verb]} {what} of {table.name}?", verb=VERBS[verb], detail=DETAILS[verb], danger=verb == "cancel"
        )
    async with _admin(visit, table) as admin:
        results = await getattr(admin, verb)([_id(admin, word) for word in words])
    return visit.redirect("/table", _summary(results), name=table.name)


def _summary(results: Sequence[RowActionResult]) -> str:
    counted = Counter(each.result for each in results)
    return ", ".join(f"{count} {word}" for word, count in counted.most_common()) + "."


def _table(visit: DashboardRequest, name: str) -> Table:
    table = visit.context.app.tables.get(name)
    if table is None:
        raise RequestError(
            404, f"There is no table {name[:100]!r} here.", "Serve with -a module:app to see its tables."
        )
    return table


def _id(admin: TableAdmin, word: str) -> Any:
    if admin.numbered:
        if not word.lstrip("-").isdecimal() or len(word) > 20:
            raise RequestError(400, f"{word[:40]!r} is no id of this table.", "Its ids are numbers.")
        return int(word)
    try:
        return admin.read_id(word)
    except ConfigError as error:
        raise RequestError(400, f"{error}.") from None


@asynccontextmanager
async def _admin(visit: DashboardRequest, table: Table) -> AsyncIterator[TableAdmin]:
    async with (await visit.context.pool()).acquire() as conn:
        yield await TableAdmin.open(conn, table.options, visit.context.database.schema)


PAGES = [
    DashboardPage("GET", "/tables", "read", tables),
    DashboardPage("GET", "/table", "read", rows),
    DashboardPage("GET", "/table/row", "read", row),
    DashboardPage("POST", "/table/act", "all", act),
]
