"""The life of jobs against a plain model, with a wire that breaks before or after any statement.

``HOWDAH_FAULT_EXAMPLES`` says how many lives; without it few, and always the same ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from howdah.postgres.database import Database
from kit.interleave import DEFINITION, fresh_database
from kit.model_base import Wrong
from kit.model_machine import JobStateMachine
from kit.model_world import World

EXAMPLES = os.environ.get("HOWDAH_FAULT_EXAMPLES")
FEW = 60
SETTINGS = settings(
    max_examples=int(EXAMPLES or FEW),
    derandomize=EXAMPLES is None,
    stateful_step_count=30,
    deadline=None,
    database=None,
    print_blob=True,
    phases=[Phase.generate] if EXAMPLES is None else [Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
BUGS = {
    "a late ack is believed": ("ack", "where a.token = any(held)", "where true"),
    "a reset forgets an attempt": (
        "requeue_leased",
        "case when charge then r.attempt else r.attempt - 1 end",
        "r.attempt - 1",
    ),
    "an ack said twice counts twice": (
        "ack",
        "and not exists (select from {schema}.gone g where g.token = a.token and g.id = a.id offset 0)",
        "",
    ),
    "a transaction commits without its lease": (
        "ack_in_transaction ack_keyless",
        "if not found or exists",
        "if exists",
    ),
}
"""Functions, what is taken out of them, and what stands there instead."""


@pytest.fixture
def shared_database(server: Any, template: str) -> Iterator[Database]:
    yield from fresh_database(server, template)


@pytest.fixture
def world(shared_database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for often in ("howdah.jobs.claim.PROMOTE", "howdah.jobs.claim.SWEEP", "howdah.jobs.hold.CACHE_TTL"):
        monkeypatch.setattr(often, 0.0)  # at every claim: a replay must meet the same statements
    world = World(shared_database.dsn)
    yield world
    world.close()


@pytest.mark.timeout(600 if EXAMPLES is None else 0)
def test_the_tables_are_what_the_model_says(world: World):
    run_state_machine_as_test(lambda: JobStateMachine(world), settings=SETTINGS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(world: World, bug: str):
    functions, good, bad = (text.format(schema='"howdah"') for text in BUGS[bug])
    for function in functions.split():
        [[was]] = world.fetch(DEFINITION, function)
        assert good in was
        world.fetch(was.replace(good, bad))
    only_find = settings(SETTINGS, phases=[Phase.generate], max_examples=400, derandomize=True, print_blob=False)
    with pytest.raises(Wrong):
        run_state_machine_as_test(lambda: JobStateMachine(world), settings=only_find)
