"""The dashboard as the role it works as: every page is shown, and what the role may not do is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from howdah import Howdah
from kit.control_plane import serving
from security.user_interfaces import API, follow, pages, sign_in

pytestmark = pytest.mark.anyio


async def test_a_control_plane_shows_everything_and_moves_no_consumers(roles: Callable[[str], str], conn: Any) -> None:
    await conn.execute("select howdah.enqueue('note')")
    await conn.execute("select howdah.declare_scope('Mail', 1, null, null, 0)")
    await conn.execute("select howdah.append('Order-1', '[{\"type\": \"Placed\"}]')")
    await conn.execute("insert into howdah.node (name, version) values ('there', '1')")
    async with serving(Howdah(roles("howdah_fleet"))) as plane, plane.client() as browser:
        await sign_in(browser, plane.token)
        answers = await follow(browser, [*pages(consumer="Mail"), *API])
        assert {each: response.status_code for each, response in answers.items() if response.status_code != 200} == {}

        async def press(path: str, **fields: str) -> Any:
            headers = {"Origin": plane.url, "Sec-Fetch-Site": "same-origin"}
            return await browser.post(f"/dashboard{path}", data={**fields, "sure": "yes"}, headers=headers)

        assert (await press("/queues/pause", queue="mail")).status_code == 303
        assert (await press("/jobs/act", verb="cancel", id="1")).status_code == 303
        refused = await press("/consumer/pause", name="Mail")
        assert refused.status_code == 403
        assert "The role of this server may not do that: permission denied for table consumer." in refused.text
        assert "Grant howdah_worker to the role of this server" in refused.text

        await conn.execute("grant howdah_worker to howdah_fleet")
        try:
            assert (await press("/consumer/pause", name="Mail")).status_code == 303
        finally:
            await conn.execute("revoke howdah_worker from howdah_fleet")
