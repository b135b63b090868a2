"""Tools for the tests of your application: run queued jobs, consume appended events, assert on both.

The fixtures are in ``plugin``, which pytest loads by itself. Names are imported when first used, so that a run
of pytest that uses none of them does not become slower.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from howdah.testing.appended import (
        assert_appended,
        assert_appended_sync,
        refute_appended,
        refute_appended_sync,
    )
    from howdah.testing.assertions import (
        assert_enqueued,
        assert_enqueued_sync,
        refute_enqueued,
        refute_enqueued_sync,
    )
    from howdah.testing.drained import ConsumerFailure, Drained, Failure, JobsFailed, drain, drain_sync

_MODULES = {
    "appended": ("assert_appended", "assert_appended_sync", "refute_appended", "refute_appended_sync"),
    "assertions": ("assert_enqueued", "assert_enqueued_sync", "refute_enqueued", "refute_enqueued_sync"),
    "drained": ("ConsumerFailure", "Drained", "Failure", "JobsFailed", "drain", "drain_sync"),
}

__all__ = [
    "ConsumerFailure",
    "Drained",
    "Failure",
    "JobsFailed",
    "assert_appended",
    "assert_appended_sync",
    "assert_enqueued",
    "assert_enqueued_sync",
    "drain",
    "drain_sync",
    "refute_appended",
    "refute_appended_sync",
    "refute_enqueued",
    "refute_enqueued_sync",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
