"""Signature: a task's parameters that are known only at run time."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from howdah.errors import ConfigError


class App(Protocol):
    """The method of an application that registers tasks."""

    @property
    def task(self) -> Callable[..., Any]: ...


def taking(names: Mapping[str, Any], work: Callable[[dict[str, Any]], Awaitable[Any]], doc: str) -> Any:
    """A coroutine function with these parameters, each with its type, that passes them on by name."""
    for name in names:
        if not name.isidentifier():
            raise ConfigError(f"{name!r} cannot be a parameter; write a name such as 'source'")

    async def call(*values: Any, **named: Any) -> Any:
        return await work(dict(zip(names, values, strict=False)) | named)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind, annotation=hint) for name, hint in names.items()]
    )
    call.__annotations__ = dict(names)
    call.__doc__ = doc
    return call
