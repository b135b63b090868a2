"""Fault: one way to hurt a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from howdah.torture.checker import Finding
from howdah.torture.evidence import Evidence
from howdah.torture.site import Site

Hurt = Callable[[Site], Awaitable[None]]
Judge = Callable[[Evidence], Awaitable[list[Finding]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``hurt`` does it once and returns when it is undone, or need not be."""

    name: str
    about: str
    """What it is, in words: it continues "while …"."""
    hurt: Hurt
    controls: tuple[str, ...]
    """Guards; with any of them switched off this fault must break the run."""
    pause: tuple[float, float] = (0.5, 2.0)
    """Least and most seconds between one time and the next."""
    place: str = "single"
    """The server it needs, by name; see ``servers``."""
    hurts_server: bool = False
    """Then it is not for a server of somebody else's."""
    environment: dict[str, str] = field(default_factory=dict)
    """What processes are told besides in a run with this fault."""
    judge: Judge | None = None
    """Finds what only a run with this fault can get wrong."""
