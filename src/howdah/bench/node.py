"""The application of a measured node: the tasks of the benchmark, with a meter. Only nodes import this."""

from __future__ import annotations

from howdah.bench.app import app
from howdah.bench.meter import install

__all__ = ["app"]

install()
