"""The application of tortured nodes: with poison, an ear, and guards switched off. Only nodes import this."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

from howdah import telemetry
from howdah.torture import guards, poison, release, rows
from howdah.torture.app import YARD, app, open_to, pen

__all__ = ["app", "poison"]


def _hear(name: str, facts: dict[str, Any]) -> None:
    match name:
        case "job.lost":
            pen().write("lost", "", *(job.id for job in facts["jobs"]), kind=facts["reason"])
        case "job.ack" if not all(ack.recorded for ack in facts["acks"]):
            pen().write("record")
        case "node.beat":
            pen().write("beat")
        case "listen.heard":
            pen().write("heard")


if YARD in os.environ:
    if now := release.of_this_process():
        release.declare(now)
        open_to(os.environ[YARD], stalled_after=release.STALLED_AFTER[now])
    else:
        open_to(os.environ[YARD])
    rows.open_to(os.environ[YARD])
    telemetry.subscribe(_hear)
    guards.apply()
    if sys.platform == "linux":  # it ends with whoever tortures it, also while it is frozen
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
