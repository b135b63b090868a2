"""Everything that answers people: the pages of the dashboard, the API, the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from howdah.dashboard.pages import PAGES as KNOWN

API = ("/jobs/1", "/jobs/1/log", "/workers", "/stats", "/metrics", "/openapi.json", "/health", "/ready")
READING_COMMANDS = (
    ("jobs",),
    ("job", "1"),
    ("why", "1"),
    ("queues",),
    ("nodes",),
    ("schedules",),
    ("failures",),
    ("audit",),
    ("consumers",),
    ("log", "status"),
    ("log", "read"),
    ("webhooks", "list"),
    ("top", "--once"),
    ("doctor",),
)
"""Commands that only look; each has --json."""


def pages(*, consumer: str = "none", table: str | None = None, node: int = 1) -> list[str]:
    """The address of every page of the dashboard, about the first of everything, but for the live stream."""
    named = {"/consumer": {"name": consumer}, "/table": {"name": table}, "/table/row": {"name": table, "id": "1"}}
    found = []
    for page in KNOWN:
        path = re.sub(r"{\w+:int}", str(node) if page.path.startswith("/nodes") else "1", page.path)
        query = named.get(page.path, {})
        if page.method == "GET" and page.path != "/live" and None not in query.values():
            found.append(f"/dashboard{path}" + (f"?{urlencode(query)}" if query else ""))
    return found


async def sign_in(http: Any, secret: str) -> None:
    """Come into the dashboard, as a browser does."""
    response = await http.post(
        "/dashboard/login",
        data={"secret": secret, "to": "/"},
        headers={"Origin": str(http.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"},
    )
    assert response.status_code == 303, response.text


async def follow(http: Any, addresses: Iterable[str]) -> dict[str, Any]:
    """What is answered at every address."""
    return {address: await http.get(address) for address in addresses}
