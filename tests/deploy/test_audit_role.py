"""deploy/roles.sql: whoever acts is recorded, and nobody but the retention takes it away."""

from __future__ import annotations

import asyncpg
import pytest

from howdah import Howdah
from howdah.jobs.search import Filter
from howdah.maintenance.pruner import Pruner, Retention
from howdah.postgres.database import Database
from kit.roles import refuses

pytestmark = pytest.mark.anyio

OLD = """
alter table howdah.audit disable trigger guard;
update howdah.audit set at = now() - interval '2 years' where verb = 'pause';
alter table howdah.audit enable trigger guard
"""


@pytest.mark.parametrize("role", ["howdah_worker", "howdah_fleet"])
async def test_a_role_adds_to_the_audit_and_changes_nothing_in_it(roles, conn, role):
    app = Howdah(roles(role))

    @app.task
    async def note() -> None: ...

    made = [(await note.enqueue()).id for _ in range(3)]
    await app.admin.pause("mail")
    await app.admin.reprioritize(made, 5)
    await app.admin.move(made, "bulk")
    await app.admin.delete(made[:1])
    await app.admin.act("cancel", Filter(queue="bulk"))
    assert len(await app.admin.audit()) == 5

    await refuses(
        roles(role),
        "update howdah.audit set who = 'eve'",
        "delete from howdah.audit",
        "truncate howdah.audit",
        "alter table howdah.audit disable trigger guard",
        "create or replace function howdah.guard_audit() returns trigger language plpgsql as 'begin return old; end'",
    )
    other = await asyncpg.connect(roles(role))
    await other.execute("set howdah.prunes_audit = 'on'")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await other.execute("delete from howdah.audit")
    assert await other.fetchval("select howdah.prune_audit(0)") == 0, "a week is kept, whatever is asked for"
    await other.close()
    await conn.execute(OLD)
    await Pruner(Database(roles(role)), Retention()).prune()
    assert [entry.verb for entry in await app.admin.audit()] == ["cancel", "delete", "move", "reprioritize"]
    await app.close()


async def test_whoever_looks_can_search_and_read_the_audit(roles, conn):
    app = Howdah(roles("howdah_read"))
    await conn.execute("select howdah.enqueue('note', '{\"a\": 17}')")

    assert (
        len(await app.admin.list(text="17", enqueued_after=await conn.fetchval("select now() - interval '1 hour'")))
        == 1
    )
    assert (await app.admin.count("queued")).jobs == 1
    assert (await app.admin.failures()).groups == []
    assert await app.admin.audit(thing="job", id=1) == []
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await app.admin.delete([1])
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await app.admin.pause("mail")
    await app.close()
