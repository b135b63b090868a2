"""Filter: which jobs are meant; the same for lists, counts and acts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, TypedDict

from howdah.errors import ConfigError
from howdah.job import State

LONGEST_TEXT = 1000
TIMES = ("enqueued_after", "enqueued_before", "finished_after", "finished_before")
ENDED = (State.DONE, State.FAILED, State.CANCELLED)


class Fields(TypedDict, total=False):
    """The fields of a :class:`Filter`, but for its state, as keyword arguments."""

    queue: str | None
    kind: str | None
    key: str | None
    enqueued_after: datetime | None
    enqueued_before: datetime | None
    finished_after: datetime | None
    finished_before: datetime | None
    text: str | None
    fingerprint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Jobs that have all of these; what is ``None`` does not matter."""

    state: State | str | None = None
    queue: str | None = None
    kind: str | None = None
    key: str | None = None
    enqueued_after: datetime | None = None
    """At this moment or later."""
    enqueued_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None
    text: str | None = None
    """Somewhere in the arguments or in the last error, letter by letter."""
    fingerprint: str | None = None
    """What their errors have in common, as ``admin.failures`` says it; of failed and cancelled jobs only."""

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in tuple(State):
            raise ConfigError(f"there is no state {self.state!r}; use {', '.join(State)}")
        for name in TIMES:
            moment = getattr(self, name)
            if moment is not None and moment.tzinfo is None:
                raise ConfigError(f"{name} {moment.isoformat()} has no time zone; add one")
        if self.state in (State.QUEUED, State.RUNNING) and (self.finished_after or self.finished_before):
            raise ConfigError(f"no {self.state} job has finished; leave out finished_after and finished_before")
        if self.fingerprint is not None and self.state not in (State.FAILED, State.CANCELLED):
            raise ConfigError("only failed and cancelled jobs have a fingerprint; add state='failed'")
        for name in ("queue", "kind", "key", "text", "fingerprint"):
            said = getattr(self, name)
            if said is not None and (not isinstance(said, str) or "\0" in said or len(said) > LONGEST_TEXT):
                raise ConfigError(f"{name} must be at most {LONGEST_TEXT} characters of text, got {said!r:.80}")

    @classmethod
    def of(cls, state: Filter | State | str | None, fields: Fields) -> Filter:
        """A filter and more of its fields."""
        return replace(state, **fields) if isinstance(state, Filter) else cls(state=state, **fields)

    @property
    def said(self) -> dict[str, Any]:
        """What matters, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def plain(self) -> bool:
        """Whether nothing but the state matters."""
        return not self.said.keys() - {"state"}

    @property
    def inspects(self) -> bool:
        """Whether a job must be looked into, beyond its queue and kind."""
        return bool(self.said.keys() - {"state", "queue", "kind", "key"})

    def __str__(self) -> str:
        words = [f"{name} {value}" for name, value in self.said.items() if name != "state"]
        return " with ".join([f"{self.state or 'any'} jobs", *([", ".join(words)] if words else [])])
