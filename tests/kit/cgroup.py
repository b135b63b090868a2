"""A memory cgroup, where the machine lets us make one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")
LIMITS = {"memory.limit_in_bytes": ROOT / "memory", "memory.max": ROOT}
"""The file with the limit, by version 1 and 2, and where groups with it are made."""


@contextmanager
def memory_group(name: str, megabytes: int) -> Iterator[Path]:
    """A group whose processes may have so much together; whoever is to be in it writes its pid to ``cgroup.procs``."""
    group = next((made for made in (_make(name, *how, megabytes) for how in LIMITS.items()) if made), None)
    if group is None:
        pytest.skip("this machine lets nobody make memory cgroups: that takes root and a writable /sys/fs/cgroup")
    try:
        yield group
    finally:
        _remove(group)


def _make(name: str, limit: str, parent: Path, megabytes: int) -> Path | None:
    group = parent / f"howdah_{os.getpid()}_{name}"
    try:
        group.mkdir()
        (group / limit).write_text(str(megabytes * 2**20))
    except OSError:
        _remove(group)
        return None
    with suppress(OSError):  # there may be no swap to be kept out of
        (group / "memory.swap.max").write_text("0")
    return group


def _remove(group: Path) -> None:
    """A group lasts as long as somebody dies in it."""
    for _ in range(500):
        if not group.exists():
            return
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.02)
