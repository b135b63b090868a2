"""Faults that can be injected into a run, by name."""

from __future__ import annotations

import importlib
from functools import cache

from howdah_lab.torture.faults.fault import Fault

MODULES = (
    *("processes", "connections", "server", "outage", "load", "rows", "releases"),
    *("failover", "promotion", "disk", "pooler"),
)
"""Where they are."""


@cache
def faults() -> dict[str, Fault]:
    """Every fault there is, by name."""
    found: dict[str, Fault] = {}
    for name in MODULES:
        module = importlib.import_module(f"howdah_lab.torture.faults.{name}")
        found |= {fault.name: fault for fault in module.FAULTS}
    return found


__all__ = ["Fault", "faults"]
