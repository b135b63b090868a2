"""For the tests of your own application: run what is queued, and say what should have been enqueued.

The fixtures are in ``plugin``, which pytest finds by itself. Names are imported when first used, so that a run
of pytest that needs none of this does not pay for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from howdah.testing.assertions import (
        assert_enqueued,
        assert_enqueued_sync,
        refute_enqueued,
        refute_enqueued_sync,
    )
    from howdah.testing.drained import Drained, Failure, JobsFailed, drain, drain_sync

__all__ = [
    "Drained",
    "Failure",
    "JobsFailed",
    "assert_enqueued",
    "assert_enqueued_sync",
    "drain",
    "drain_sync",
    "refute_enqueued",
    "refute_enqueued_sync",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = "assertions" if name.partition("_")[0] in ("assert", "refute") else "drained"
    return getattr(import_module(f"{__name__}.{room}"), name)
