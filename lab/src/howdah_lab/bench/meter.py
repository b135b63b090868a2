"""Meter in a node with a measured consumer: reports start, end and CPU time of the work over stdin and stdout.

It listens to telemetry, which comes in batches, so it costs next to nothing per event.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import msgspec

from howdah import telemetry
from howdah_lab.bench.app import delays, unsettled

RESET, READ = b"0", b"?"
"""Commands of the meter: reset, and read."""


class MeterReading(msgspec.Struct):
    """Measurements of one node since the last reset of its meter. Moments are those of the monotonic clock."""

    started: bool = False
    """True if the node is registered and at work."""
    claimed: float | None = None
    """When the consumer started."""
    acked: float | None = None
    """When the last batch was committed."""
    done: int = 0
    other: int = 0
    """Failed batches."""
    cpu: float = 0.0
    """Seconds of CPU of the whole process up to the last commit."""
    delays: list[float] = []
    settled: list[float] = []
    """Seconds from the append call to the commit of the batch, of every event that was probed."""


class Meter:
    """Listens to the telemetry of this process."""

    def __init__(self) -> None:
        self._reading = MeterReading()
        self._cpu = 0.0

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        """Note one telemetry event."""
        reading = self._reading
        match name:
            case "consumer.start" if reading.claimed is None:
                reading.claimed = time.monotonic()
            case "consumer.batch":
                reading.acked = now = time.monotonic()
                reading.cpu = time.process_time() - self._cpu
                reading.done += facts["events"]
                if unsettled:
                    reading.settled += [now - began for began in unsettled]
                    unsettled.clear()
            case "consumer.fail":
                reading.other += 1
            case "node.start":
                reading.started = True

    def reset(self) -> None:
        """Start over."""
        self._reading = MeterReading(started=self._reading.started)
        self._cpu = time.process_time()
        delays.clear()

    def read(self) -> bytes:
        """The reading so far, as one line of JSON."""
        self._reading.delays = list(delays)
        return msgspec.json.encode(self._reading) + b"\n"

    def serve(self) -> None:
        """Answer until stdin is closed."""
        # not through sys.stdin: a thread blocked in it would keep the process from exiting
        while command := os.read(0, 1):
            if command == RESET:
                self.reset()
            _write(self.read())


def install() -> None:
    """Measure this process from now on."""
    meter = Meter()
    telemetry.subscribe(meter.hear)
    threading.Thread(target=meter.serve, name="howdah-meter", daemon=True).start()


def _write(line: bytes) -> None:
    while line:
        line = line[os.write(1, line) :]
