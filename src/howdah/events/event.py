"""Events: as consumers and readers get them, and as they are given to an append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from howdah.errors import EventError, HowdahError

LONGEST_TYPE = 100
LONGEST_ID = 300


class Decoder(Protocol):
    """Decodes the data of an event."""

    def decode(self, type: str, schema_version: int, data: bytes) -> Any: ...


class Event(msgspec.Struct, gc=False, eq=False):
    """One event of the log. Its data is decoded at the first access."""

    position: int
    """Its position in the whole log; increasing, with gaps."""
    stream_type: str
    stream_id: str
    version: int
    """Its version in its stream: 1, 2, 3, …"""
    type: str
    schema_version: int
    at: datetime
    data_json: bytes
    meta_json: bytes | None
    correlation: str | None
    causation: str | None
    trace: str | None
    decoder: Decoder
    decoded: Any = msgspec.UNSET

    @property
    def stream(self) -> str:
        """The name of its stream, ``Type-id``."""
        return f"{self.stream_type}-{self.stream_id}"

    @property
    def data(self) -> Any:
        """The event's data: an instance of the class registered for its type, else plain JSON values.

        Data of an older schema version has passed through the upcasters.
        """
        if self.decoded is msgspec.UNSET:
            self.decoded = self.decoder.decode(self.type, self.schema_version, self.data_json)
        return self.decoded

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata given at append."""
        return msgspec.json.decode(self.meta_json, type=dict[str, Any]) if self.meta_json else {}

    def __repr__(self) -> str:
        return f"Event({self.position}, {self.stream!r}, version={self.version}, type={self.type!r})"


def events_of(rows: Sequence[Any], decoder: Decoder) -> list[Event]:
    """Make events from the rows of a statement."""
    return [Event(*row, decoder) for row in rows]  # type: ignore[call-arg]


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event to append that has no class of its own."""

    type: str
    data: Any = msgspec.field(default_factory=dict)
    version: int | None = None
    """The version of its schema; by default the newest known."""
    meta: Mapping[str, Any] | None = None


class Appended(NamedTuple):
    """The result of an append."""

    version: int
    """The version of the stream after the append."""
    position: int
    """The position of the last event: what :meth:`Log.wait_for` takes."""


def split_stream(stream: str) -> tuple[str, str]:
    """Return the type and the id in the name of a stream.

    >>> split_stream("Order-17-b")
    ('Order', '17-b')
    """
    kind, _, id = stream.partition("-") if isinstance(stream, str) else ("", "", "")
    if not kind or not id or len(kind) > LONGEST_TYPE or len(id) > LONGEST_ID or not stream.isprintable():
        raise EventError(
            f"a stream is named Type-id, with up to {LONGEST_TYPE} and {LONGEST_ID} printable characters,"
            f" got {stream!r}"
        )
    return kind, id


current: ContextVar[Event] = ContextVar("howdah_event")


def current_event() -> Event:
    """Return the event whose consumer is running here."""
    try:
        return current.get()
    except LookupError:
        raise HowdahError("no event is being consumed here; call current_event() inside a consumer") from None
