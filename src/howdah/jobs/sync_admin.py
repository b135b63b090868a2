"""Administration of jobs from synchronous code."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from howdah.jobs.admin import Admin

Call = Callable[[Callable[[Admin], Coroutine[Any, Any, Any]]], Any]
"""Calls the function with the admin of the sync bridge's event loop, and waits for the result."""


class SyncAdmin:
    """The methods of :class:`Admin` without ``await``."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(Admin, name, None)
        if name.startswith("_") or not inspect.iscoroutinefunction(method):
            raise AttributeError(f"the admin has no method {name!r}")

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(lambda admin: method(admin, *args, **kwargs))

        return call

    def __dir__(self) -> list[str]:
        return [name for name in dir(Admin) if not name.startswith("_")]
