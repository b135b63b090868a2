"""Access control of the dashboard: who may read, and who may act."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from starlette.requests import Request

Level = Literal["read", "all"]
LEVELS: tuple[Level, ...] = ("read", "all")


class Visitor(NamedTuple):
    """A user who may read, and with level ``all`` also act."""

    name: str
    """For the audit."""
    level: Level
    token: int | None = None
    """The id of the API token they came with; the session ends with it."""

    @property
    def may_act(self) -> bool:
        """True if they may change anything."""
        return self.level == "all"


Access = Callable[[Request], Awaitable[Visitor | None]]
"""Returns the visitor of a request; ``None``: unknown."""
SignIn = Callable[[str], Awaitable[Visitor | None]]
"""Returns the visitor with this password or token; ``None``: unknown."""


def everybody(level: Level = "read") -> Access:
    """Allow every request: for a dashboard that only this machine can reach, or that a proxy protects."""

    async def access(_request: Request) -> Visitor:
        return Visitor("everybody", level)

    return access
