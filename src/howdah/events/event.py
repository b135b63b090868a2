"""Events: as consumers and readers get them, as they are given to an append, and the registry of their types."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar, overload

import msgspec

from howdah.arguments import decode_other, encode
from howdah.errors import ArgumentError, ConfigError, EventError, HowdahError, NoEvents
from howdah.handler import check_name

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


C = TypeVar("C", bound=type)
Upcaster = Callable[[Any], Any]
U = TypeVar("U", bound=Upcaster)
NEWEST = 2**31 - 1


class EncodedEvent(msgspec.Struct, frozen=True):
    """An event as it is stored."""

    type: str
    version: int
    data: msgspec.Raw
    meta: msgspec.Raw | None = None


class EventTypes:
    """Registry of event classes by name, and of the upcasters between their versions."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._classes: dict[str, type] = {}
        self._names: dict[type, str] = {}
        self._newest: dict[str, int] = {}
        self._upcasters: dict[tuple[str, int], Upcaster] = {}

    @overload
    def event(self, cls: C, /) -> C: ...

    @overload
    def event(self, /, *, name: str | None = None, version: int = 1) -> Callable[[C], C]: ...

    def event(self, cls: Any = None, /, *, name: str | None = None, version: int = 1) -> Any:
        """Register a dataclass, msgspec.Struct or pydantic model as an event type: the class of ``event.data``."""
        if cls is not None:
            return self._register(cls, None, 1)
        return lambda decorated: self._register(decorated, name, version)

    def _register(self, cls: C, name: str | None, version: int) -> C:
        name = check_name("event type", name or cls.__name__)
        if not _is_record(cls):
            raise ConfigError(f"{cls!r} cannot be an event; make it a dataclass, a msgspec.Struct or a pydantic model")
        if name in self._classes:
            raise ConfigError(f"two classes are registered as event {name!r}; give one of them name=…")
        self._newest[name] = max(check_version(version), self.newest(name))
        self._classes[name], self._names[cls] = cls, name
        return cls

    def upcaster(self, type: type | str, *, version: int) -> Callable[[U], U]:
        """Register an upcaster: the function turns data of schema ``version`` into that of the next version."""
        name = self.name(type)
        check_version(version)

        def register(function: U) -> U:
            if (name, version) in self._upcasters:
                raise ConfigError(f"two upcasters read version {version} of event {name!r}")
            self._upcasters[name, version] = function
            self._newest[name] = max(version + 1, self.newest(name))
            return function

        return register

    def name(self, type_or_name: type | str) -> str:
        """Return the name of an event class; a name is returned unchanged."""
        if isinstance(type_or_name, str):
            return check_name("event type", type_or_name)
        if not isinstance(type_or_name, type):
            raise ConfigError(f"a type of events is a class or its name, got {type_or_name!r}")
        return self._names.get(type_or_name, type_or_name.__name__)

    def newest(self, name: str) -> int:
        """Return the newest known schema version of a type."""
        return self._newest.get(name, 1)

    def decode(self, type: str, schema_version: int, data: bytes) -> Any:
        """Decode data, and bring it to the newest schema version."""
        cls, newest = self._classes.get(type), self.newest(type)
        try:
            if schema_version == newest or (cls is None and newest == 1):
                return msgspec.json.decode(data, type=cls or Any, dec_hook=decode_other)
            if schema_version > newest:
                raise EventError(
                    f"event {type!r} has schema version {schema_version}, this code knows up to {newest}; deploy the"
                    " code that wrote it"
                )
            value = msgspec.json.decode(data)
            for version in range(schema_version, newest):
                value = self._up(type, version)(value)
            return msgspec.convert(value, cls, dec_hook=decode_other) if cls else value
        except msgspec.MsgspecError as error:
            raise EventError(f"event {type!r}, schema version {schema_version}, cannot be read: {error}") from error

    def ready(self, events: object) -> list[EncodedEvent]:
        """Check and encode the events to append, one or several."""
        each = [events] if _is_one(events) else list(events) if isinstance(events, Iterable) else [events]
        if not each:
            raise NoEvents("no events were given to append")
        return [self._ready(event) for event in each]

    def _up(self, type: str, version: int) -> Upcaster:
        found = self._upcasters.get((type, version))
        if found is None:
            raise EventError(
                f"event {type!r} is stored with schema version {version} and no upcaster reads that; add"
                f" @app.upcaster({type!r}, version={version})"
            )
        return found

    def _ready(self, event: object) -> EncodedEvent:
        if isinstance(event, Mapping):
            try:
                event = msgspec.convert(dict(event), NewEvent)
            except msgspec.ValidationError as error:
                raise EventError(f"a dict can be an event with type, data, version and meta: {error}") from None
        if not isinstance(event, NewEvent):
            if not _is_record(type(event)):
                raise EventError(
                    f"{type(event).__name__} cannot be an event; give a dataclass, a msgspec.Struct, a pydantic model,"
                    " a NewEvent or a dict"
                )
            event = NewEvent(type=self.name(type(event)), data=event)
        return self._encoded(event)

    def _encoded(self, event: NewEvent) -> EncodedEvent:
        name = check_name("event type", event.type)
        version = self.newest(name) if event.version is None else check_version(event.version)
        data = self._json({} if event.data is None else event.data, f"the data of event {name}")
        return EncodedEvent(
            name, version, data, self._json(dict(event.meta), f"the meta of event {name}") if event.meta else None
        )

    def _json(self, value: Any, what: str) -> msgspec.Raw:
        try:
            return msgspec.Raw(encode(value, what=what, largest=self._largest))
        except ArgumentError as error:
            raise EventError(str(error)) from None


def check_version(version: object) -> int:
    """Raise if a value cannot be a schema version."""
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= NEWEST:
        raise ConfigError(f"the schema version of an event must be an integer of at least 1, got {version!r}")
    return version


def _is_record(cls: type) -> bool:
    if dataclasses.is_dataclass(cls) or _is_pydantic(cls):
        return True
    return isinstance(cls, type) and issubclass(cls, msgspec.Struct)


def _is_pydantic(cls: type) -> bool:
    return hasattr(cls, "model_validate") and hasattr(cls, "model_dump")


def _is_one(events: object) -> bool:
    return isinstance(events, Mapping | NewEvent) or _is_record(type(events))
