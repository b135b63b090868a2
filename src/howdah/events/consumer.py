"""A consumer of the event log, a function or an object, and its options."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from howdah.errors import ConfigError
from howdah.events.event import LONGEST_TYPE, Event, EventTypes
from howdah.handler import check_name, finished
from howdah.retry import Backoff
from howdah.store import Transaction

Start = Literal["beginning", "end"] | int
OnFailure = Literal["halt", "park", "stop_worker"]
POLICIES = ("halt", "park", "stop_worker")
MOST_PARTITIONS = 1000
LARGEST_BATCH = 10_000
MOST_FAILURES = 1_000_000
AGAIN = Backoff(first=1.0, factor=2.0, cap=30.0, jitter=0.2)


class ConsumerSettings(TypedDict, total=False):
    """Keyword arguments of a consumer; see :class:`ConsumerOptions`."""

    only: Sequence[str] | None
    types: Sequence[type | str] | None
    batch: int
    start: Start
    on_failure: OnFailure
    max_failures: int
    retry: Backoff
    partitions: int
    timeout: float
    poll: float
    max_poll: float
    pause: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Options of a consumer. Times are in seconds."""

    only: tuple[str, ...] | None = None
    """The stream types it consumes; ``None``: all."""

    types: tuple[str, ...] | None = None
    """The event types it consumes; ``None``: all."""

    batch: int = 100
    """Largest number of events in one transaction."""

    start: Start = "beginning"
    """Where a new consumer starts: ``"beginning"``, ``"end"``, or after a position."""

    on_failure: OnFailure = "halt"
    """After ``max_failures`` in a row: ``halt`` this consumer, ``park`` the event, or ``stop_worker``."""

    max_failures: int = 5
    """Failures in a row, of one event, before ``on_failure``."""

    retry: Backoff = AGAIN
    """Backoff between failures."""

    partitions: int = 1
    """Number of partitions, by stream, divided among the nodes; the order within a stream is kept."""

    timeout: float = 30.0
    """Timeout of one batch."""

    poll: float = 1.0
    """Poll interval without wake-ups."""

    max_poll: float = 30.0
    """Upper limit of the poll interval, which grows while no event arrives."""

    pause: float = 0.0
    """Wait between two full batches."""

    def __post_init__(self) -> None:
        for name in ("timeout", "poll", "max_poll"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above zero, got {getattr(self, name)!r}")
        if not self.pause >= 0:
            raise ConfigError(f"pause must not be negative, got {self.pause!r}")
        for name, most in (("batch", LARGEST_BATCH), ("partitions", MOST_PARTITIONS), ("max_failures", MOST_FAILURES)):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= most:
                raise ConfigError(f"{name} must be from 1 to {most}, got {number!r}")
        if not isinstance(self.retry, Backoff):
            raise ConfigError(f"retry must be a Backoff, got {self.retry!r}")
        if self.on_failure not in POLICIES:
            raise ConfigError(f"on_failure must be one of {', '.join(POLICIES)}, got {self.on_failure!r}")
        if self.start not in ("beginning", "end") and not (
            isinstance(self.start, int) and not isinstance(self.start, bool) and self.start >= 0
        ):
            raise ConfigError(f"start must be 'beginning', 'end' or a position, got {self.start!r}")
        for stream_type in self.only or ():
            if not isinstance(stream_type, str) or "-" in stream_type or not 1 <= len(stream_type) <= LONGEST_TYPE:
                raise ConfigError(f"only takes stream types, the part before the first '-'; got {stream_type!r}")
        if self.only == () or self.types == ():
            raise ConfigError("only and types must not be empty; leave them out for all")

    @property
    def start_position(self) -> int | None:
        """The position to start after; ``None``: the current frontier."""
        if self.start == "end":
            return None
        return 0 if self.start == "beginning" else self.start


def options_of(name: str, settings: ConsumerSettings, types: EventTypes) -> ConsumerOptions:
    """Return the validated options of a consumer, or raise :class:`ConfigError`."""
    values: dict[str, Any] = dict(settings)
    for scope in ("only", "types"):
        if values.get(scope) is not None and not (
            isinstance(values[scope], Iterable) and not isinstance(values[scope], str)
        ):
            raise ConfigError(f"consumer {name!r}: {scope} takes a list, got the single {values[scope]!r}")
    if values.get("only") is not None:
        values["only"] = tuple(values["only"])
    if values.get("types") is not None:
        values["types"] = tuple(types.name(each) for each in values["types"])
    try:
        return ConsumerOptions(**values)
    except TypeError as error:
        raise ConfigError(f"consumer {name!r} has invalid options: {error}") from None


class Consumer:
    """One consumer: its name, its handler and its options."""

    def __init__(self, name: str, target: Any, options: ConsumerOptions) -> None:
        self.name = check_name("consumer", name)
        if "#" in name:
            raise ConfigError(f"the name of a consumer must not contain '#', got {name!r}")
        self.options = options
        self.handle, self.takes_batches, self.takes_tx = _shape(name, target)

    def __repr__(self) -> str:
        return f"Consumer({self.name!r})"

    async def call(self, events: Sequence[Event] | Event, tx: Transaction | None) -> None:
        """Call the handler with one event, or with all events if it takes batches."""
        value = await (self.handle(events, tx=tx) if self.takes_tx else self.handle(events))
        if value is not None:
            await finished(value)


def _shape(name: str, target: Any) -> tuple[Callable[..., Awaitable[Any]], bool, bool]:
    """Return the coroutine function to call, whether it takes batches, and whether it takes the transaction."""
    if inspect.isclass(target):
        try:
            target = target()
        except TypeError as error:
            raise ConfigError(f"consumer {name!r} cannot be instantiated: {error}; pass an instance instead") from None
    function = target if inspect.isroutine(target) else getattr(target, "handle", None)
    if function is None:
        raise ConfigError(f"consumer {name!r} is an object without a method `handle`; add one")
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(f"consumer {name!r} must be a coroutine function; write `async def`")
    kinds = {each.name: each.kind for each in inspect.signature(function).parameters.values()}
    parameters = list(kinds)
    if not parameters or parameters[0] not in ("event", "events"):
        raise ConfigError(
            f"consumer {name!r} must take `event`, for one at a time, or `events`, for a whole batch, as its first"
            f" parameter; it takes {', '.join(parameters) or 'nothing'}"
        )
    if unknown := [each for each in parameters[1:] if each != "tx"]:
        raise ConfigError(f"consumer {name!r} takes {unknown[0]!r}; it can take only event (or events) and tx")
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    if kinds[parameters[0]] > either or kinds.get("tx", either) not in (either, inspect.Parameter.KEYWORD_ONLY):
        raise ConfigError(
            f"consumer {name!r} must take {parameters[0]} by position and tx by name; change its parameters"
        )
    return function, parameters[0] == "events", "tx" in parameters
