"""Gate: one thing that must hold before something runs, with the fact that decides it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Gate(msgspec.Struct, frozen=True):
    """One condition of the claim: whether it lets the job pass, by which fact, and what to do about it."""

    name: str
    open: bool
    fact: str
    fix: str | None = None


def ordered(gates: Iterable[Gate]) -> list[Gate]:
    """What is in the way first; otherwise the order they are passed in.

    >>> [gate.name for gate in ordered([Gate("node", True, ""), Gate("due", False, ""), Gate("pause", False, "")])]
    ['due', 'pause', 'node']
    """
    return sorted(gates, key=lambda gate: gate.open)
