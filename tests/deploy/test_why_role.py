"""Who may only look can ask why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from howdah import Howdah

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("role", ["howdah_read", "howdah_worker", "howdah_fleet"])
async def test_who_may_not_see_what_others_run_is_told_who_they_are(
    roles: Callable[[str], str], conn: Any, role: str
) -> None:
    await conn.execute("select howdah.declare_scope('Mail', 1, null, null, 0)")
    await conn.execute("begin; set local application_name = 'shop'; select howdah.append('A-1', '[{\"type\": \"x\"}]')")
    app = Howdah(roles(role))

    [frontier] = [gate for gate in await app.why.consumer("Mail") if gate.name == "frontier"]
    assert frontier.fact.endswith(f"pid {conn.get_server_pid()} (shop)")
    await app.close()
    await conn.execute("rollback")


@pytest.mark.parametrize("role", ["howdah_read", "howdah_worker", "howdah_fleet"])
async def test_why_needs_no_more_than_a_look(roles: Callable[[str], str], conn: Any, role: str) -> None:
    waits = await conn.fetchval("select id from howdah.enqueue('send', queue => 'mail')")
    await conn.execute("select howdah.pause('mail', 'ada')")
    await conn.execute("select howdah.declare_scope('Mail', 1, null, null, 0)")
    app = Howdah(roles(role))

    assert [gate.name for gate in await app.why.job(waits) if not gate.open] == ["node", "pause"]
    assert [gate.name for gate in await app.why.consumer("Mail") if not gate.open] == ["node", "assigned"]
    await app.close()
