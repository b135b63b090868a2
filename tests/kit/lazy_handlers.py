"""Handlers whose body does not run when they are called, unless somebody makes it run."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any


def yields(file: str) -> Iterator[None]:
    """A generator function."""
    Path(file).write_text("ran")
    yield


async def yields_later(file: str) -> AsyncIterator[None]:
    """An asynchronous generator function."""
    Path(file).write_text("ran")
    yield


async def writes(file: str) -> str:
    """A plain coroutine function."""
    await asyncio.sleep(0)
    Path(file).write_text("ran")
    return "written"


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a decorator makes of a function if it knows nothing of coroutines."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def returns_coroutine(file: str) -> Any:
    """Forgets that a coroutine must be awaited."""
    return writes(file)


def returns_generator(file: str) -> Any:
    """Returns what nobody will iterate over."""
    return yields(file)


def returns_async_generator(file: str) -> Any:
    """Returns what nobody will iterate over."""
    return yields_later(file)


async def forgets_to_await(file: str) -> Any:
    """The same in a coroutine function."""
    return writes(file)


async def returns_coroutine_of_generator(file: str) -> Any:
    """One inside the other."""

    async def inner() -> Any:
        return yields(file)

    return inner()
