"""ScenarioRun: every scenario with every rival, in turn, round by round; one that fails does not hide the others."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from howdah.postgres.database import Database
from howdah_lab.bench import environment
from howdah_lab.bench.figure import look_around
from howdah_lab.bench.results import Results, ScenarioRun
from howdah_lab.bench.scenario import Scenario, Setting
from howdah_lab.bench.scenarios import ceiling, decay, drain, enqueue, latency
from howdah_lab.bench.server import PostgreSQL, Redis
from howdah_lab.bench.session import Testbed
from howdah_lab.bench.system import System

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        enqueue.SCENARIO,
        drain.SCENARIO,
        drain.TWO,
        latency.SCENARIO,
        latency.COMING_DUE,
        decay.SCENARIO,
        decay.HISTORY,
        decay.GROWTH,
        drain.GROWING,
    )
}
LONGEST = 300.0
"""Seconds one run may take."""

Step = tuple[str, str, int]
"""Scenario, rival and round."""


def plan(rivals: Sequence[System], scenarios: Sequence[Scenario], rounds: int) -> list[Step]:
    """The order: round by round, so that we and all rivals are measured within minutes of each other."""
    steps: list[Step] = []
    for scenario in scenarios:
        for number in range(1, rounds + 1):
            if scenario.name == "enqueue":
                steps.append((ceiling.NAME, ceiling.NAME, number))
            steps += [(scenario.name, rival.name, number) for rival in rivals if scenario.takes(rival)]
    return steps


class Benchmark:
    """From the first environment to the last run; what is measured goes into the results as it comes."""

    def __init__(self, results: Results, save: Callable[[], None], say: Callable[[str], None]) -> None:
        self._record = results
        self._save = save
        self._say = say

    async def run(self, rivals: Sequence[System], scenarios: Sequence[Scenario], tick: Callable[[Step], None]) -> None:
        """Measure what the results does not have yet."""
        load = os.getloadavg()[0]  # before the environments are made, which is work too
        commands = self._environments(rivals)
        redis = Redis()
        try:
            async with PostgreSQL() as postgresql:
                self._arena = Testbed(postgresql, redis, commands)
                await self._look_around(postgresql, load)
                able = [rival for rival in rivals if rival.name in commands and await self._set_up(rival)]
                for step in plan(able, scenarios, self._record.rounds):
                    tick(step)
                    if not self._record.has(*step):
                        self._record.add(await self._step(step, {rival.name: rival for rival in able}))
                        self._save()
        finally:
            redis.stop()

    def _environments(self, rivals: Sequence[System]) -> dict[str, list[str]]:
        commands = {}
        for rival in rivals:
            if not environment.is_prepared(rival):
                self._say(f"making the environment of {rival.title}")
            try:
                commands[rival.name] = environment.prepare(rival)
                self._record.missing.pop(rival.name, None)
            except environment.Missing as missing:
                self._miss(rival, str(missing))
        return commands

    async def _set_up(self, rival: System) -> bool:
        try:
            self._record.rivals[rival.name] = await self._arena.prepare(rival)
        except Exception as error:
            self._miss(rival, f"{type(error).__name__}: {error}")
            return False
        return True

    def _miss(self, rival: System, reason: str) -> None:
        self._record.missing[rival.name] = reason
        self._say(f"{rival.title} cannot run: {reason}")
        self._save()

    async def _look_around(self, postgresql: PostgreSQL, load: float) -> None:
        place = replace(await look_around(Database(postgresql.dsn("postgres")), postgresql.conn), load=load)
        said: dict[str, Any] = msgspec.to_builtins(place)
        said.pop("server")  # a folder of this machine
        self._record.place = said | {"busy": place.busy}
        self._save()

    async def _step(self, step: Step, rivals: dict[str, System]) -> ScenarioRun:
        scenario, rival, number = step
        began, figures, error = time.monotonic(), {}, None
        try:
            async with asyncio.timeout(LONGEST):
                figures = await self._measure(scenario, rivals.get(rival))
        except TimeoutError:
            error = f"it took longer than {LONGEST:g} s"
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        if error:
            self._say(f"{scenario} of {rival} failed: {error}")
        seconds = round(time.monotonic() - began, 2)
        return ScenarioRun(scenario=scenario, rival=rival, round=number, seconds=seconds, figures=figures, error=error)

    async def _measure(self, scenario: str, rival: System | None) -> dict[str, float]:
        if rival is None:
            return await ceiling.measure(self._arena.postgresql, self._record.scale)
        return await SCENARIOS[scenario].measure(Setting(testbed=self._arena, rival=rival, scale=self._record.scale))


def begin(scale: float, rounds: int) -> Results:
    """A results with nothing in it."""
    return Results(scale=scale, rounds=rounds, began=now())


def now() -> str:
    """For people."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
