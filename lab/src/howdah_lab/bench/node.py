"""The applications of nodes with a measured consumer, each with a meter.

Only nodes import this.
"""

from __future__ import annotations

from howdah import Howdah
from howdah_lab.bench.consumers import APPS
from howdah_lab.bench.meter import install

install()


def __getattr__(name: str) -> Howdah:
    try:
        return APPS[name]
    except KeyError:
        raise AttributeError(name) from None
