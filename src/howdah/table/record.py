"""The record that a handler gets for a row. It is passed as JSON, like the arguments of a job."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from howdah.arguments import decode_other
from howdah.errors import ConfigError, Poison
from howdah.handler import keep_secret
from howdah.job import Job
from howdah.postgres.sql import identifier
from howdah.secrets import pointers
from howdah.table.contract import Columns, Relation


class Record:
    """Reads columns and expressions of a row, and makes the record.

    ``kind`` is a dataclass, :class:`msgspec.Struct`, TypedDict or pydantic model, whose fields name columns;
    a function of a dictionary; or ``None`` for the dictionary itself.
    """

    def __init__(self, table: str, kind: Any, expressions: Mapping[str, str]) -> None:
        self._table = table
        self._expressions = dict(expressions)
        self._fields = _fields(table, kind)
        self._make = _maker(table, kind)
        self.secrets = pointers(kind) if self._fields is not None else ()
        """JSON pointers to the secrets in the payload."""
        if self._fields is None:
            if self._expressions:
                raise ConfigError(f"table {table} has expressions but no record with fields; pass record=a class")
            return
        names = {name for name, _, _ in self._fields}
        if unknown := sorted(set(self._expressions) - names):
            raise ConfigError(
                f"the record of table {table} has no field {unknown[0]!r}; its fields are {sorted(names)}"
            )

    def select(self, view: Relation, columns: Columns) -> str | None:
        """Return the select list, or ``None`` for the whole row."""
        if self._fields is None:
            return None
        parts = []
        for name, key, hint in self._fields:
            source = self._expressions.get(name) or self._column(name, view, columns)
            if _is_bytes(hint):
                source = f"replace(encode(({source}), 'base64'), chr(10), '')"
            parts.append(f"(\n{source}\n) as {identifier(key)}")
        return ", ".join(parts)

    def _column(self, name: str, view: Relation, columns: Columns) -> str:
        column = name if name in view.attributes else dict(columns.items()).get(name)
        if column is None or column not in view.attributes:
            raise ConfigError(
                f"the record of table {self._table} has a field {name!r}, but {view} has no such column;"
                f" add it there, or define it with expressions={{{name!r}: …}}"
            )
        return f"{identifier(view.alias)}.{identifier(column)}"

    def read(self, job: Job) -> Any:
        """Make the record of a claimed row, or raise :class:`Poison`."""
        if not job.payload:
            raise LookupError(
                f"the record of row {job.id} cannot be read: {job.meta.get('unread', 'for an unknown reason')}"
            )
        if self.secrets:
            keep_secret(job, self.secrets)
        try:
            return self._make(job.payload)
        except Exception as error:
            raise Poison(f"the record of row {job.id} of table {self._table} does not fit: {error}") from error


def _fields(table: str, kind: Any) -> list[tuple[str, str, Any]] | None:
    """Return name, JSON key and type of each field; ``None`` for the whole row."""
    if not inspect.isclass(kind):
        return None
    if hasattr(kind, "model_fields"):
        return [(name, field.alias or name, field.annotation) for name, field in kind.model_fields.items()]
    if issubclass(kind, msgspec.Struct):
        return [(field.name, field.encode_name, field.type) for field in msgspec.structs.fields(kind)]
    if dataclasses.is_dataclass(kind):
        hints = _hints(table, kind)
        return [(field.name, field.name, hints[field.name]) for field in dataclasses.fields(kind) if field.init]
    if typing.is_typeddict(kind):
        return [(name, name, hint) for name, hint in _hints(table, kind).items()]
    if issubclass(kind, dict):
        return None
    raise ConfigError(
        f"record {kind.__name__} of table {table} is not a dataclass, msgspec.Struct, TypedDict or pydantic model;"
        " pass one of these or a function of a dictionary"
    )


def _hints(table: str, kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except NameError as error:
        raise ConfigError(
            f"record {kind.__name__} of table {table} has an annotation that cannot be resolved ({error});"
            " import it at run time"
        ) from None


def _maker(table: str, kind: Any) -> Callable[[bytes], Any]:
    if kind is None or kind is dict:
        return msgspec.json.Decoder(dict[str, Any]).decode
    if inspect.isclass(kind) and hasattr(kind, "model_validate_json"):
        return typing.cast("Callable[[bytes], Any]", kind.model_validate_json)
    if inspect.isclass(kind):
        try:
            return msgspec.json.Decoder(kind, dec_hook=decode_other).decode
        except TypeError as error:
            raise ConfigError(f"record {kind.__name__} of table {table} cannot be encoded as JSON: {error}") from None
    if not callable(kind):
        raise ConfigError(f"the record of table {table} must be a class or a function, got {kind!r}")
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    return lambda payload: kind(decode(payload))


def _is_bytes(hint: Any) -> bool:
    return hint is bytes or bytes in typing.get_args(hint)
