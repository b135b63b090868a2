"""The ground of the state machine: what is chosen, and how the tables are held against the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from howdah.job import NewJob
from howdah.outcome import Outcome
from kit.broken_connections import When
from kit.job_invariants import wrongs
from kit.model import Model
from kit.model_world import KIND, LOST, Errors, ModelNode, World

Fault = tuple[int, When] | None


def faults(*statements: int) -> st.SearchStrategy[Fault]:
    """Every third time the wire breaks, at one of these statements, on this side of it or on that."""
    return st.one_of(st.none(), st.none(), st.tuples(st.sampled_from(statements), st.sampled_from(["after", "before"])))


QUEUES = ["default", "mail"]
sides = st.integers(0, 1)
some = st.lists(st.integers(0, 40), min_size=1, max_size=4)
new_jobs = st.builds(
    NewJob,
    kind=st.just(KIND),
    queue=st.sampled_from(QUEUES),
    priority=st.sampled_from([0, 0, 5]),
    delay=st.sampled_from([None, None, 1000.0]),
    max_attempts=st.sampled_from([1, 2, 3]),
    key=st.sampled_from([None, None, "a", "b"]),
)
outcomes = st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.LOST])


class Wrong(AssertionError):
    """The tables, or an answer, are not what they must be."""


class Moves(RuleBasedStateMachine):
    """A model, and a world that must agree with it after every move."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.model = Model()
        self.ever: list[int] = []
        self.moves_until_act = 0
        """People come after nodes have done so many things."""

    def _busy(self) -> list[ModelNode]:
        """Nodes that have something to say."""
        return [side for side in self.world.sides if side.jobs or side.unsaid]

    def _attempt(self, doing: Callable[[], Awaitable[Any]], fault: Fault, lost: Errors = LOST) -> tuple[bool, Any]:
        try:
            return self.world.attempt(doing, fault, lost)
        except Exception as error:
            raise Wrong(f"this must not be raised: {error!r}") from error

    def _agree(self, expected: Any, result: Any) -> None:
        if expected != result:
            raise Wrong(f"was told {result}, should be {expected}")

    def _either(self, answered: bool, after: Model) -> None:
        """It happened; when no answer came, it may also not have happened."""
        self._compare(*([after] if answered else [self.model, after]))

    def _compare(self, *models: Model) -> None:
        """One of these is what the tables say; from here on it is the model."""
        self.moves_until_act -= 1
        if repaired := self.world.repair():
            raise Wrong(f"self-repair changed jobs that were fine: {repaired}")
        seen = self.world.read_tables()
        for model in models:
            if model.portrait() == seen:
                self.model = model
                break
        else:
            raise Wrong("\n".join(_difference(model.portrait(), seen) for model in models))
        if found := self.world.wrongs(wrongs):
            raise Wrong(found)


def _difference(model: dict[str, Any], seen: dict[str, Any]) -> str:
    return "; ".join(f"{name}: {seen[name]}, should be {model[name]}" for name in model if model[name] != seen[name])
