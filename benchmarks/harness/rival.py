"""Rival: one library of those that are measured, ours among them; what its folder says of it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

RIVALS = Path(__file__).parents[1] / "rivals"
OURS = "howdah"
KIT = "kit"


class Rival(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What rival.toml says."""

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
    """Whether it is among those that are also measured for decay and growth."""
    settings: str
    """Those that differ from its defaults, and why."""
    kinds: frozenset[str]
    """Kinds of handlers it has: nothing, pause, plain, insert, transact, probe; `later` if jobs can be scheduled,
    `history` if finished jobs are kept."""
    left: str
    """SQL, or commands of Redis separated by semicolons: how many jobs are not finished. Zero stops the clock."""
    done: str | None = None
    """How many are finished; none when finished jobs leave nothing."""
    history: str | None = None
    """SQL that makes $1 finished jobs; without, those who keep them do so many."""
    speed: dict[str, int]
    """Jobs a second, roughly: so many are given that a run takes one or two seconds."""

    @property
    def folder(self) -> Path:
        """Where its driver is."""
        return RIVALS / self.name

    def jobs(self, most: int, what: str, seconds: float = 1.5) -> int:
        """How many jobs it is given, at most the same as all others."""
        return min(most, round(self.speed.get(what, most) * seconds))


def load_all() -> dict[str, Rival]:
    """Every rival there is, ours first."""
    names = sorted(file.parent.name for file in RIVALS.glob("*/rival.toml"))
    return {name: load(name) for name in sorted(names, key=lambda name: (name != OURS, name))}


def load(name: str) -> Rival:
    """Read one."""
    said = tomllib.loads((RIVALS / name / "rival.toml").read_text(encoding="utf-8"))
    return msgspec.convert({"name": name, **said}, Rival)
