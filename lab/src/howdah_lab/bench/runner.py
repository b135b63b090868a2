"""Runs every scenario with every system, in turn, round by round. A failure does not stop the other runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import msgspec

from howdah_lab.bench import environment
from howdah_lab.bench.figure import Figure, look_around
from howdah_lab.bench.results import Results, ScenarioRun
from howdah_lab.bench.scenario import LeftOut, Plan, Scenario
from howdah_lab.bench.scenarios import ceiling
from howdah_lab.bench.session import Workbench
from howdah_lab.bench.system import OURS, System

LONGEST_RUN = 300.0
"""Seconds that one run in a comparison may take."""

Step = tuple[str, str, int]
"""Scenario, system and round."""


def plan(systems: Sequence[System], scenarios: Sequence[Scenario], rounds: int) -> list[Step]:
    """Return the order: round by round, so that all systems are measured within minutes of each other."""
    steps: list[Step] = []
    for scenario in scenarios:
        for number in range(1, scenario.rounds(rounds) + 1):
            if scenario.name == "enqueue":
                steps.append((ceiling.NAME, ceiling.NAME, number))
            steps += [(scenario.name, system.name, number) for system in systems if scenario.takes(system)]
    return steps


class Runner:
    """Prepares the systems and measures all that the results lack."""

    def __init__(
        self,
        results: Results,
        *,
        comparing: bool = False,
        save: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
        begin: Callable[[Step], None] = lambda step: None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        """``begin`` is called before every run, ``tick`` after every round, ``say`` with messages for the user."""
        self._results = results
        self._comparing = comparing
        self._save = save
        self._say = say
        self._begin = begin
        self._tick = tick

    async def run(self, workbench: Workbench, systems: Sequence[System], scenarios: Sequence[Scenario]) -> None:
        """Measure."""
        place = await look_around(workbench.postgresql.conn, workbench.postgresql.server)
        self._results.place = msgspec.to_builtins(place) | {"busy": place.busy, "durable": place.durable}
        self._save()
        ready = [
            system for system in systems if self._install(workbench, system) and await self._set_up(workbench, system)
        ]
        by_name = {system.name: system for system in ready}
        chosen = {scenario.name: scenario for scenario in scenarios} | {ceiling.NAME: ceiling.SCENARIO}
        for step in plan(ready, scenarios, self._results.rounds):
            self._begin(step)
            if not self._results.has(*step):
                self._results.add(await self._step(workbench, chosen[step[0]], step, by_name))
                self._save()

    def _install(self, workbench: Workbench, system: System) -> bool:
        if not environment.is_prepared(system):
            self._say(f"installing {system.title}")
        try:
            workbench.commands[system.name] = environment.prepare(system)
        except environment.NotInstalled as missing:
            self._miss(system, str(missing))
            return False
        return True

    async def _set_up(self, workbench: Workbench, system: System) -> bool:
        try:
            self._results.systems[system.name] = await workbench.prepare(system)
        except Exception as error:
            self._miss(system, f"{type(error).__name__}: {error}")
            return False
        self._results.missing.pop(system.name, None)
        return True

    def _miss(self, system: System, reason: str) -> None:
        self._results.missing[system.name] = reason
        self._say(f"{system.title} cannot run: {reason}")
        self._save()

    async def _step(
        self, workbench: Workbench, scenario: Scenario, step: Step, systems: Mapping[str, System]
    ) -> ScenarioRun:
        name, system, number = step
        run = ScenarioRun(scenario=name, system=system, round=number, seconds=0.0)
        began = time.monotonic()
        try:
            async with asyncio.timeout(LONGEST_RUN if self._comparing else None):
                figures = await self._measure(workbench, scenario, systems.get(system, systems[OURS]))
        except LeftOut as missing:
            run.left_out = str(missing)
        except Exception as raised:
            run.error = f"{type(raised).__name__}: {raised}".removesuffix(": ")
        else:
            run.figures, run.units = figures
        if run.error:
            self._say(f"{name} of {system} failed: {run.error}")
        run.seconds = round(time.monotonic() - began, 2)
        return run

    async def _measure(
        self, workbench: Workbench, scenario: Scenario, system: System
    ) -> tuple[dict[str, float | list[float]], dict[str, str]]:
        plan = Plan(
            workbench=workbench,
            system=system,
            scale=self._results.scale,
            jobs=scenario.jobs(self._results.scale),
            rounds=self._results.rounds if scenario.name != ceiling.NAME else 1,
            processes=self._results.processes,
            comparing=self._comparing,
            tick=self._tick,
        )
        async with AsyncExitStack() as stack:
            if scenario.ours_only:
                plan = replace(plan, own_schema=await stack.enter_async_context(workbench.own_schema()))
            return _split(await scenario.measure(plan))


def _split(
    measured: Mapping[str, float] | Sequence[Figure],
) -> tuple[dict[str, float | list[float]], dict[str, str]]:
    """Return the values by name, and the units of figures that have one."""
    if isinstance(measured, Mapping):
        return dict(measured), {}
    return {each.name: list(each.rounds) for each in measured}, {each.name: each.unit for each in measured}
