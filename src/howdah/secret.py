"""Secret: an argument that reaches its handler and is shown to nobody.

It travels as the plain JSON value, so that handlers in any language can use it. Which arguments are secret is said in
the metadata of the job, as JSON pointers: whoever shows jobs can hide them without knowing the application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

import msgspec
from msgspec import inspect

T_co = TypeVar("T_co", covariant=True)
MASK = "***"
MARK = "howdah.secrets"
"""The key in the metadata of a job under which the places of its secrets are."""
EVERY = "*"
"""In a pointer: every item, or every value."""
MOST = 1000
"""Pointers that are followed; with more of them all is hidden."""


class Secret(Generic[T_co]):
    """A value that shows itself as ``***``; :meth:`reveal` gives it away.

    >>> card = Secret("4111 1111")
    >>> card, f"{card}", card.reveal(), card == Secret("4111 1111")
    (***, '***', '4111 1111', True)
    """

    __slots__ = ("_value",)

    def __init__(self, value: T_co) -> None:
        self._value = value

    def reveal(self) -> T_co:
        """The value itself."""
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
    """Where the JSON form of a type holds secrets.

    >>> pointers(dict[str, list[Secret[str]]]), pointers(Secret[int]), pointers(list[int])
    (('/*/*',), ('',), ())
    """
    return tuple(dict.fromkeys(_secrets(inspect.type_info(kind), "", ())))


def marks(meta: Any) -> tuple[str, ...]:
    """The pointers in the metadata of a job, as JSON or read; what cannot be understood hides everything."""
    if isinstance(meta, bytes):
        meta = _read(meta) if MARK.encode() in meta else None
    said = meta.get(MARK) if isinstance(meta, Mapping) else None
    if said is None:
        return ()
    if not isinstance(said, list | tuple) or len(said) > MOST or not all(isinstance(each, str) for each in said):
        return ("",)
    return tuple(each if each.startswith("/") or not each else f"/{each}" for each in said)


def marked(meta: Mapping[str, Any] | None, secrets: Sequence[str]) -> dict[str, Any]:
    """The metadata of a job whose arguments have these secrets, besides those it says itself."""
    return {**(meta or {}), MARK: list(dict.fromkeys((*secrets, *marks(meta))))}


def masked(value: Any, secrets: Iterable[str]) -> Any:
    """A copy of JSON values with ``***`` where the pointers lead.

    >>> masked({"user": 7, "cards": [{"number": "4111", "name": "A"}]}, ["/cards/*/number"])
    {'user': 7, 'cards': [{'number': '***', 'name': 'A'}]}
    """
    for pointer in secrets:
        value = _change(value, _parts(pointer), lambda found: None if found is None else MASK)
    return value


def leaves(value: Any, secrets: Iterable[str]) -> list[str]:
    """The texts and numbers in JSON values to which the pointers lead."""
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
    if not parts or not isinstance(value, dict | list):  # a pointer that leads nowhere: rather too much than too little
        return change(value)
    part, rest = parts[0], parts[1:]
    if isinstance(value, dict):
        return {k: _change(v, rest, change) if part in (k, EVERY) else v for k, v in value.items()}
    if part == EVERY or not part.isdecimal():  # a name where a list is: the same in each of its items
        return [_change(v, rest if part == EVERY else parts, change) for v in value]
    return [_change(v, rest, change) if part == str(i) else v for i, v in enumerate(value)]


def _secrets(info: inspect.Type, at: str, above: tuple[inspect.Type, ...]) -> Iterator[str]:
    if _is_secret(info):
        yield at
    elif any(info is each for each in above):  # a type within itself has no end: all of it is hidden there
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
    """The types within a type, each with its part of a pointer; none where it takes the same place."""
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
            yield None, key  # a secret in a key: the whole of it is hidden
            yield EVERY, value
        case inspect.UnionType(types=types):
            yield from ((None, each) for each in types)
        case inspect.Metadata(type=inner):
            yield None, inner
        case inspect.CollectionType(item_type=item):
            yield EVERY, item
