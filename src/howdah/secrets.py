"""Secret: an argument that is passed to its handler and hidden everywhere else.

It is stored as the plain JSON value, so that handlers in any language can use it. The metadata of the job lists the
secret arguments as JSON pointers, so that a program that displays jobs can hide them without importing the application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

import msgspec
from msgspec import inspect

T_co = TypeVar("T_co", covariant=True)
MASK = "***"
MARK = "howdah.secrets"
"""Key in the metadata of a job that holds the JSON pointers to its secrets."""
EVERY = "*"
"""Part of a pointer that stands for every item of a list or every value of an object."""
MAX_POINTERS = 1000
"""Maximum number of pointers that are followed; with more than that everything is hidden."""


class Secret(Generic[T_co]):
    """A value that is displayed as ``***``; :meth:`reveal` returns it.

    >>> card = Secret("4111 1111")
    >>> card, f"{card}", card.reveal(), card == Secret("4111 1111")
    (***, '***', '4111 1111', True)
    """

    __slots__ = ("_value",)

    def __init__(self, value: T_co) -> None:
        self._value = value

    def reveal(self) -> T_co:
        """Return the value."""
        return self._value

    def __repr__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> Secret[T_co]:
        return self

    def __deepcopy__(self, _memo: object) -> Secret[T_co]:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled; reveal() it where it may be read")


def pointers(kind: Any) -> tuple[str, ...]:
    """Return JSON pointers to the secrets in the JSON form of a type.

    >>> pointers(dict[str, list[Secret[str]]]), pointers(Secret[int]), pointers(list[int])
    (('/*/*',), ('',), ())
    """
    return tuple(dict.fromkeys(_secrets(inspect.type_info(kind), "", ())))


def marks(meta: Any) -> tuple[str, ...]:
    """Return the pointers in the metadata of a job (JSON or decoded); invalid metadata hides everything."""
    if isinstance(meta, bytes):
        meta = _read(meta) if MARK.encode() in meta else None
    found = meta.get(MARK) if isinstance(meta, Mapping) else None
    if found is None:
        return ()
    if not isinstance(found, list | tuple) or len(found) > MAX_POINTERS:
        return ("",)
    if not all(isinstance(each, str) for each in found):
        return ("",)
    return tuple(each if each.startswith("/") or not each else f"/{each}" for each in found)


def marked(meta: Mapping[str, Any] | None, secrets: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of a job with these pointers to secrets added to those it already has."""
    return {**(meta or {}), MARK: list(dict.fromkeys((*secrets, *marks(meta))))}


def masked(value: Any, secrets: Iterable[str]) -> Any:
    """Return a copy of JSON values with ``***`` in place of the values the pointers name.

    >>> masked({"user": 7, "cards": [{"number": "4111", "name": "A"}]}, ["/cards/*/number"])
    {'user': 7, 'cards': [{'number': '***', 'name': 'A'}]}
    """
    for pointer in secrets:
        value = _change(value, _parts(pointer), lambda found: None if found is None else MASK)
    return value


def leaves(value: Any, secrets: Iterable[str]) -> list[str]:
    """Yield the texts and numbers in JSON values that the pointers name."""
    found: list[Any] = []
    for pointer in secrets:
        _change(value, _parts(pointer), found.append)
    texts = []
    while found:
        match found.pop():
            case dict() as each:
                found += each.values()
            case list() as each:
                found += each
            case str() as each:
                texts.append(each)
            case bool() | None:
                pass
            case each:
                texts.append(str(each))
    return texts


def _read(meta: bytes) -> Any:
    try:
        return msgspec.json.decode(meta)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {MARK: [""]}


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _change(value: Any, parts: Sequence[str], change: Callable[[Any], Any]) -> Any:
    if not parts or not isinstance(value, dict | list):  # no such value: hide too much rather than too little
        return change(value)
    part, rest = parts[0], parts[1:]
    if isinstance(value, dict):
        return {k: _change(v, rest, change) if part in (k, EVERY) else v for k, v in value.items()}
    if part == EVERY or not part.isdecimal():  # a name where the value is a list applies to each of its items
        return [_change(v, rest if part == EVERY else parts, change) for v in value]
    return [_change(v, rest, change) if part == str(i) else v for i, v in enumerate(value)]


def _secrets(info: inspect.Type, at: str, above: tuple[inspect.Type, ...]) -> Iterator[str]:
    if _is_secret(info):
        yield at
    elif any(info is each for each in above):  # a recursive type would never end: hide the whole value at this point
        if _holds(info, []):
            yield at
    else:
        for part, child in _children(info):
            yield from _secrets(child, at if part is None else f"{at}/{_escaped(part)}", (*above, info))


def _holds(info: inspect.Type, seen: list[inspect.Type]) -> bool:
    if any(info is each for each in seen):
        return False
    seen.append(info)
    return _is_secret(info) or any(_holds(child, seen) for _, child in _children(info))


def _is_secret(info: inspect.Type) -> bool:
    return isinstance(info, inspect.CustomType) and info.cls is Secret


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def _children(info: inspect.Type) -> Iterator[tuple[str | None, inspect.Type]]:
    """Yield the types within a type, each with its part of a pointer (None if both have the same pointer)."""
    match info:
        case inspect.StructType(fields=fields, array_like=True, tag=tag):
            yield from ((str(i), field.type) for i, field in enumerate(fields, start=int(tag is not None)))
        case inspect.NamedTupleType(fields=fields):
            yield from ((str(i), field.type) for i, field in enumerate(fields))
        case inspect.StructType(fields=fields) | inspect.DataclassType(fields=fields):
            yield from ((field.encode_name, field.type) for field in fields)
        case inspect.TypedDictType(fields=fields):
            yield from ((field.encode_name, field.type) for field in fields)
        case inspect.TupleType(item_types=types):
            yield from ((str(i), each) for i, each in enumerate(types))
        case inspect.DictType(key_type=key, value_type=value):
            yield None, key  # a secret in a key: hide the whole object
            yield EVERY, value
        case inspect.UnionType(types=types):
            yield from ((None, each) for each in types)
        case inspect.Metadata(type=inner):
            yield None, inner
        case inspect.CollectionType(item_type=item):
            yield EVERY, item
