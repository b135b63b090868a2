"""Arguments of a task as JSON: checked against the signature before they are sent, and again when they arrive."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import inspect as types
from msgspec.structs import astuple

from howdah.errors import ArgumentError, ConfigError, Poison
from howdah.secrets import Secret, masked, pointers

LARGEST = 1024 * 1024
DEEPEST = 100
NEVER_NULL = (types.BoolType, types.IntType, types.FloatType, types.StrType, types.DateTimeType, types.UUIDType)
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_DECOY = uuid4().hex


def encode_other(value: Any) -> Any:
    """Encode hook for msgspec: encodes pydantic models and rejects a :class:`Secret`."""
    if isinstance(value, Secret):
        raise TypeError("a Secret is sent only as an argument annotated Secret[…]; reveal() it where others may see it")
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def reveal(value: Any) -> Any:
    """Encode hook for msgspec that also encodes the value of a :class:`Secret`."""
    return value.reveal() if isinstance(value, Secret) else encode_other(value)


_ONE_VALUE = msgspec.json.Decoder(msgspec.Raw)


@cache
def _encoder(hook: Callable[[Any], Any]) -> msgspec.json.Encoder:
    return msgspec.json.Encoder(enc_hook=hook)


def encode(value: Any, *, what: str, largest: int = LARGEST, hook: Callable[[Any], Any] = encode_other) -> bytes:
    """Encode ``value`` as JSON that PostgreSQL stores unchanged, or raise :class:`ArgumentError`."""
    try:
        data = _encoder(hook).encode(value)
        _ONE_VALUE.decode(data)  # msgspec.Raw is copied unchecked, so it could close the value and inject JSON after it
        data.decode()
    except Exception as error:
        raise _unsendable(error, what) from None
    _check(data, value, what=what, largest=largest, hook=hook)
    return data


def _unsendable(error: Exception, what: str) -> Exception:
    match error:
        case RecursionError():
            return ArgumentError(f"{what} is nested too deeply; {DEEPEST} levels are allowed")
        case UnicodeEncodeError():
            return ArgumentError(f"{what} holds a lone surrogate, which is not text: {error.reason}")
        case TypeError() | ValueError() | OverflowError() | msgspec.MsgspecError():
            return ArgumentError(f"{what} cannot be sent as JSON: {error}")
    return error


def _check(data: bytes, value: Any, *, what: str, largest: int, hook: Callable[[Any], Any]) -> None:
    if len(data) > largest:
        raise ArgumentError(
            f"{what} is {len(data):,} bytes of JSON, {largest:,} are allowed; store it and send its key"
        )
    if b"\\u0000" in data and _NUL.search(data):
        raise ArgumentError(f"{what} holds a NUL character, which PostgreSQL cannot store")
    if b"null" in data and _not_a_number(value, hook):
        raise ArgumentError(f"{what} holds NaN or infinity, which is not JSON")
    if len(data) > 2 * DEEPEST and data.count(b"[") + data.count(b"{") > DEEPEST and _depth(data) > DEEPEST:
        raise ArgumentError(f"{what} is nested {_depth(data)} levels deep, {DEEPEST} are allowed")


class Arguments:
    """The parameters of one handler: encodes calls, decodes payloads, and calls the handler."""

    def __init__(self, kind: str, function: Callable[..., Any], injected: Mapping[type, str]) -> None:
        self.kind = kind
        self._what = f"the call of task {kind!r}"
        self._function = function
        self.injected: dict[str, str] = {}
        """Parameter name by the kind of object that is injected there when the handler runs (``tx``)."""
        fields: list[tuple[str, Any, Any]] = []
        self._positional: list[str] = []
        hints = _hints(kind, function)
        by_keyword = False
        for name, parameter in inspect.signature(function).parameters.items():
            hint = hints.get(name, Any)
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ConfigError(f"task {kind!r} takes {parameter}; name every parameter, they are stored by name")
            if hint in injected:
                self.injected[injected[hint]] = name
                by_keyword = True
                continue
            if parameter.kind is not parameter.KEYWORD_ONLY:
                self._positional.append(name)
            fields.append((name, self.argument(name, hint, parameter.default), _field(parameter.default)))
        self._names = [name for name, _, _ in fields]
        self._spread = 0 if by_keyword else len(self._positional)
        # kw_only: a required parameter may follow an optional one, because arguments are stored by name
        self._struct = msgspec.defstruct(
            "Arguments", fields, forbid_unknown_fields=True, kw_only=True, namespace={"__module__": __name__}
        )
        try:
            self._decoder = msgspec.json.Decoder(self._struct, dec_hook=decode_other)
        except TypeError as error:
            raise ConfigError(f"task {kind!r} has a parameter of a type that cannot travel as JSON: {error}") from None
        self.secrets = pointers(self._struct)
        """JSON pointers to the secrets in the payload."""
        self._takes_null = any(_takes_null(types.type_info(hint)) for _, hint, _ in fields)
        self._hook = reveal if self.secrets else encode_other
        self._write = _encoder(self._hook).encode
        self._read: Callable[[bytes], Any] = self._decoder.decode

    def argument(self, name: str, hint: Any, default: Any) -> Any:
        """Return the type of the argument for a parameter with this annotation and default."""
        return hint

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any], largest: int = LARGEST) -> bytes:
        """Encode the payload of a call, or raise :class:`ArgumentError` before anything is sent."""
        values = self._named(args, kwargs) if args else kwargs
        try:
            payload = self._write(values)
        except Exception as error:
            raise _unsendable(error, self._what) from None
        # for most types the decoding below finds every error, so the slower checks are skipped
        if len(payload) > largest or b"\\" in payload or self._takes_null:
            _check(payload, values, what=self._what, largest=largest, hook=self._hook)
        if self.secrets:
            self._refuse_elsewhere(values)
        try:
            self._read(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            _check(payload, values, what=self._what, largest=largest, hook=self._hook)
            raise self._misfit(error) from None
        return payload

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        if len(args) > len(self._positional):
            raise ArgumentError(
                f"task {self.kind!r} takes at most {len(self._positional)} positional arguments, got {len(args)}"
            )
        values = dict(zip(self._positional, args, strict=False))
        for name, value in kwargs.items():
            if name in values:
                raise ArgumentError(f"task {self.kind!r} got {name!r} twice")
            values[name] = value
        return values

    def _refuse_elsewhere(self, values: Mapping[str, Any]) -> None:
        """Reject a secret in an argument that is not annotated as one, because it would be displayed."""
        sent = msgspec.json.decode(msgspec.json.encode(values, enc_hook=_disguise))
        if _DECOY.encode() in msgspec.json.encode(masked(sent, self.secrets)):
            raise ArgumentError(
                f"task {self.kind!r} got a Secret where none is expected; annotate the parameter Secret[…]"
            )

    def decode(self, payload: bytes) -> Any:
        """Decode a payload to typed arguments, or raise :class:`ArgumentError`."""
        try:
            return self._read(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self._misfit(error) from None

    def _misfit(self, error: Exception) -> ArgumentError:
        return ArgumentError(f"task {self.kind!r} cannot be called with these arguments: {_reword(str(error))}")

    def call(self, payload: bytes, extra: Mapping[str, Any] | None = None) -> Any:
        """Call the handler with this payload and the injected objects; raises :class:`Poison` if it does not fit."""
        try:
            values = astuple(self._decoder.decode(payload))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Poison(str(self._misfit(error))) from None
        k = self._spread
        if extra:
            named = dict(zip(self._names[k:], values[k:], strict=True))
            for what, value in extra.items():
                named[self.injected[what]] = value
            return self._function(*values[:k], **named)
        if k == len(values):
            return self._function(*values)
        return self._function(*values[:k], **dict(zip(self._names[k:], values[k:], strict=True)))


def _hints(kind: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"task {kind!r} has an annotation that cannot be resolved ({error}); import it at run time"
        ) from None
    except TypeError:
        raise ConfigError(f"task {kind!r} is {function!r}; write a function with `def` or `async def`") from None


def _field(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return msgspec.field()
    return msgspec.field(default_factory=lambda: default)


def _takes_null(info: types.Type) -> bool:
    """Return whether this type might accept or ignore ``null``, which is the encoding of NaN."""
    match info:
        case types.CollectionType(item_type=item):
            return _takes_null(item)
        case types.DictType(key_type=key, value_type=value):
            return _takes_null(key) or _takes_null(value)
    return not isinstance(info, NEVER_NULL)


def _disguise(value: Any) -> Any:
    return _DECOY if isinstance(value, Secret) else encode_other(value)


def decode_other(kind: Any, value: Any) -> Any:
    """Decode hook for msgspec: makes a :class:`Secret` or a pydantic model."""
    if kind is Secret or typing.get_origin(kind) is Secret:
        return Secret(_confide(value, *typing.get_args(kind)))
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise TypeError(f"a {kind.__name__} cannot be made from JSON")


def _confide(value: Any, kind: Any = Any) -> Any:
    try:
        return msgspec.convert(value, kind, dec_hook=decode_other, str_keys=True)
    except Exception:
        # the original message is dropped, because some messages quote the value
        raise ValueError(f"Expected a secret `{getattr(kind, '__name__', kind)}`, got something else") from None


def _reword(text: str) -> str:
    """Replace the words object and field in a message of msgspec by argument."""
    text = text.replace("Object missing required field", "missing argument").replace(
        "Object contains unknown field", "unknown argument"
    )
    text = re.sub(r" \| null`", "` or null", text)
    return text[:1].lower() + text[1:]


def _not_a_number(value: Any, hook: Callable[[Any], Any]) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                return True
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            waiting.extend(item)
        elif isinstance(item, msgspec.Struct) or dataclasses.is_dataclass(item) or hasattr(item, "model_dump"):
            waiting.append(msgspec.to_builtins(item, enc_hook=hook))
        elif isinstance(item, Secret):
            waiting.append(item.reveal())
    return False


def _depth(data: bytes) -> int:
    depth = deepest = 0
    inside = escaped = False
    for byte in data:
        if inside:
            inside = escaped or byte != 0x22
            escaped = byte == 0x5C and not escaped
        elif byte == 0x22:
            inside = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest
