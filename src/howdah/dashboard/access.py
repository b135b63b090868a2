"""Access: who looks at the dashboard, and whether they may act."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from starlette.requests import Request

Level = Literal["read", "all"]
LEVELS: tuple[Level, ...] = ("read", "all")


class Visitor(NamedTuple):
    """Somebody who may look, and with level ``all`` also act."""

    name: str
    """For the audit."""
    level: Level
    token: int | None = None
    """The id of the API token they came with; the session ends with it."""

    @property
    def may_act(self) -> bool:
        """Whether they may change anything."""
        return self.level == "all"


Access = Callable[[Request], Awaitable[Visitor | None]]
"""Says who asks; ``None``: nobody we know."""
SignIn = Callable[[str], Awaitable[Visitor | None]]
"""Says who has this password or token; ``None``: nobody."""


def everybody(level: Level = "read") -> Access:
    """Lets everybody in: for a dashboard that only this machine can reach, or that something else protects."""

    async def access(_request: Request) -> Visitor:
        return Visitor("everybody", level)

    return access
