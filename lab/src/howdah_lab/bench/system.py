"""System: one library of those that are measured, ours among them; what its folder says of it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

SYSTEMS = Path(__file__).with_name("systems")
OURS = "howdah"
KIT = "kit"


class System(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue under measurement, as its system.toml describes it."""

    name: str
    """That of the folder."""
    title: str
    language: str
    """python or node."""
    server: str = "postgresql"
    """Or redis."""
    python: str = "3.11"
    """The oldest it runs on."""
    close: bool = False
    """True for Howdah's closest rivals, which are also measured for decay and growth."""
    settings: str
    """Settings that differ from its defaults, with the reasons."""
    kinds: frozenset[str]
    """Kinds of handlers it has: nothing, pause, plain, insert, transact, batch, value, failing, probe; `later` if jobs
    can be scheduled, `history` if finished jobs are kept; shapes of load it is measured in: singles, queues, keys,
    large."""
    left: str
    """SQL, or commands of Redis separated by semicolons: how many jobs are not finished. Zero stops the clock."""
    done: str | None = None
    """Query for the number of finished jobs; ``None`` if the system deletes them."""
    history: str | None = None
    """SQL that inserts $1 finished jobs. Without it, a system that keeps finished jobs runs as many."""
    speed: dict[str, int]
    """Jobs a second, roughly: so many are given that a run takes one or two seconds."""

    @property
    def folder(self) -> Path:
        """Where its driver is."""
        return SYSTEMS / self.name

    def jobs(self, most: int, what: str, seconds: float = 1.5) -> int:
        """Return the jobs of one run: fewer than ``most`` where the system would need much longer than ``seconds``."""
        return min(most, round(self.speed.get(what, most) * seconds))


def load_all() -> dict[str, System]:
    """Return all systems, Howdah first."""
    names = sorted(file.parent.name for file in SYSTEMS.glob("*/system.toml"))
    return {name: load(name) for name in sorted(names, key=lambda name: (name != OURS, name))}


def load(name: str) -> System:
    """Read one."""
    fields = tomllib.loads((SYSTEMS / name / "system.toml").read_text(encoding="utf-8"))
    return msgspec.convert({"name": name, **fields}, System)
