"""Appends with the gate, without it, and as a plain insert, measured side by side in every round."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import harmonic_mean

from howdah_lab.bench.events import statements
from howdah_lab.bench.figure import Figure
from howdah_lab.bench.scenario import Plan

SLICES = 6
"""Of a round: a multiple of three, so that each variant comes first equally often."""
Measure = Callable[[], Awaitable[float]]
"""Does one slice, always of the same size; returns events a second."""


@dataclass(slots=True)
class AppendVariants:
    """The rates of every variant, round by round."""

    guarded: list[float] = field(default_factory=list)
    unguarded: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)

    async def round(self, plan: Plan, append: Measure, insert: Measure) -> None:
        """Measure each in slices, in turn: a machine that is busy for a moment slows all of them."""

        async def unguarded() -> float:
            await _set_gate(plan, on=False)
            try:
                return await append()
            finally:
                await _set_gate(plan, on=True)

        kept = (self.guarded, self.unguarded, self.plain)
        slices: list[list[float]] = [[], [], []]
        for turn in range(SLICES):
            for offset in range(3):
                # the order rotates: the first variant finds another state of caches and disk than the last
                which = (offset + turn) % 3
                slices[which].append(await (append, unguarded, insert)[which]())
        for rounds, rates in zip(kept, slices, strict=True):
            rounds.append(harmonic_mean(rates))

    def figures(self, name: str) -> list[Figure]:
        """The rates, and how they compare."""
        return [
            Figure(name, "events/s", self.guarded),
            Figure(f"{name}, no gate", "events/s", self.unguarded),
            Figure(f"{name}, plain insert", "events/s", self.plain),
            Figure(f"{name}, gate / no gate", "ratio", ratios(self.guarded, self.unguarded)),
            Figure(f"{name}, gate / plain insert", "ratio", ratios(self.guarded, self.plain)),
        ]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return the ratios of two series, round by round."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


async def _set_gate(plan: Plan, on: bool) -> None:
    await plan.schema.conn.execute(statements(plan)["gate_on" if on else "gate_off"])
