"""The applications of measured nodes: the tasks of the benchmark, or one of its consumers, with a meter.

Only nodes import this.
"""

from __future__ import annotations

from howdah import Howdah
from howdah_lab.bench.app import app
from howdah_lab.bench.consumers import APPS
from howdah_lab.bench.meter import install

__all__ = ["app"]

install()


def __getattr__(name: str) -> Howdah:
    try:
        return APPS[name]
    except KeyError:
        raise AttributeError(name) from None
