"""A server behind a line that can be hurt."""

from __future__ import annotations

import pytest

from howdah_lab.torture.line import Proxy
from howdah_lab.torture.servers.single import Single


@pytest.fixture(scope="module")
async def place():
    async with Single({"fsync": "off"}) as place:
        yield place


@pytest.fixture
async def line(place):
    async with Proxy(place.address) as line:
        yield line
