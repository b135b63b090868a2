"""A job whose due date Python cannot read hides neither itself nor its neighbours."""

from __future__ import annotations

import pytest

from howdah.cli.output import cell

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("moment", "year"), [("12000-01-01Z", 9999), ("0050-01-01Z BC", 1)], ids=["far", "before Christ"]
)
async def test_a_job_with_an_unreadable_date_is_shown(app, conn, moment, year):
    @app.task
    async def note() -> None: ...

    plain, put_off = await note.enqueue(), await note.using(delay=1000).enqueue()
    await conn.execute("update howdah.job set run_at = $1::text::timestamptz where id = $2", moment, plain.id)
    await conn.execute("update howdah.later set due_at = $1::text::timestamptz", moment)

    rows = await app.admin.list()
    one = await app.admin.get(put_off.id)
    gates = [await app.why.job(each.id) for each in (plain, put_off)]

    assert [(row.id, row.run_at.year) for row in rows] == [(put_off.id, year), (plain.id, year)]
    assert one.run_at.year == year
    assert cell(one.run_at).endswith("Z")
    assert all(gates)
    await app.close()
