"""The jobs of a dead node go back in the order they had, whatever the planner knows of the tables."""

from __future__ import annotations

import pytest

from kit.interleave_jobs import lay

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("analyzed", ["never", "empty", "full"])
async def test_jobs_of_a_dead_node_go_back_in_their_order(conn, analyzed):
    if analyzed == "empty":
        await conn.execute("analyze")
    for _ in range(3):
        prepared = await lay(conn)  # 4 to 7 run under a lease that has run out, 5 for the last time
        if analyzed == "full":
            await conn.execute("analyze")

        await conn.fetch("select * from howdah.reset(100)")
        back = await conn.fetch("select lo from howdah.ready where attempt = 1 order by priority desc, rid")
        assert [row["lo"] for row in back] == prepared.at(4, 6)
