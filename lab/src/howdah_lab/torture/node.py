"""Application of the nodes under test: with poison, a telemetry listener, and guards switched off.

Only nodes import this.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from howdah import telemetry
from howdah.child_process import signal_at_parents_death
from howdah_lab.torture import guards, poison, release, rows
from howdah_lab.torture.app import SCHEMA_VARIABLE, app, ledger_writer, open_to
from howdah_lab.torture.processes import STARTED_BY

__all__ = ["app", "poison"]


def _hear(name: str, facts: dict[str, Any]) -> None:
    match name:
        case "job.lost":
            ledger_writer().write("lost", "", *(job.id for job in facts["jobs"]), kind=facts["reason"])
        case "job.ack" if not all(ack.recorded for ack in facts["acks"]):
            ledger_writer().write("record")
        case "node.beat":
            ledger_writer().write("beat")
        case "listen.heard":
            ledger_writer().write("heard")


if SCHEMA_VARIABLE in os.environ:
    if now := release.of_this_process():
        release.declare(now)
        open_to(os.environ[SCHEMA_VARIABLE], stalled_after=release.STALLED_AFTER[now])
    else:
        open_to(os.environ[SCHEMA_VARIABLE])
    rows.open_to(os.environ[SCHEMA_VARIABLE])
    telemetry.subscribe(_hear)
    guards.apply()
    signal_at_parents_death(signal.SIGKILL)  # this process ends with the run, also while it is frozen
    # The run may have ended while this process was importing. Processes of handlers have another parent, and so must
    # not inherit the variable.
    if os.environ.pop(STARTED_BY, parent := str(os.getppid())) != parent:
        os._exit(1)
