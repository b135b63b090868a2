"""A server behind a line that can be hurt."""

from __future__ import annotations

import pytest

from howdah_lab.torture.proxy import Proxy
from howdah_lab.torture.servers.single import Single


@pytest.fixture(scope="module")
async def own_server():
    async with Single({"fsync": "off"}) as own_server:
        yield own_server


@pytest.fixture
async def proxy(own_server):
    async with Proxy(own_server.address) as proxy:
        yield proxy
