"""Fault: one kind of failure to inject."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from howdah_lab.torture.checker import Violation
from howdah_lab.torture.context import CheckInput, RunContext

Inject = Callable[[RunContext], Awaitable[None]]
Verify = Callable[[CheckInput], Awaitable[list[Violation]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``inject`` injects it once and returns when it is undone, or need not be."""

    name: str
    about: str
    """Description; continues "while …"."""
    inject: Inject
    controls: tuple[str, ...]
    """Guards; with any of them switched off this fault must break the run."""
    pause: tuple[float, float] = (0.5, 2.0)
    """Least and most seconds between one time and the next."""
    server: str = "single"
    """The server it needs, by name; see ``servers``."""
    harms_server: bool = False
    """True if it harms the server, so that it is not run on one given by --dsn."""
    environment: dict[str, str] = field(default_factory=dict)
    """Additional environment of the processes in a run with this fault."""
    verify: Verify | None = None
    """Additional check for runs with this fault."""
