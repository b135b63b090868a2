"""The benchmarks are a package at the root of the project, which is not on the path of the other tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
