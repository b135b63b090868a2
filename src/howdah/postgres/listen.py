"""LISTEN connection that reconnects and tests itself with notifications of its own."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any

from howdah import telemetry
from howdah.loops import Outage, wait, wait_any
from howdah.postgres.database import Database, Session

log = logging.getLogger("howdah")

PROBE_INTERVAL = 10.0
"""Seconds between two self-tests."""
PROBE_TIMEOUT = 2.0
"""Seconds for the notification of a self-test to arrive."""


class Listener:
    """Calls ``on_notify(payload)`` for every notification, and ``on_notify(None)`` when some may have been missed.

    Notifications are only a hint: callers also poll. ``deaf`` is true while none can arrive, as behind a
    transaction pooler, which accepts LISTEN and delivers nothing.
    """

    def __init__(self, database: Database, channel: str, on_notify: Callable[[str | None], None]) -> None:
        self._database = database
        self._channel = channel
        self._on_notify = on_notify
        self._probe = ""
        self._answered = asyncio.Event()
        self._broken = asyncio.Event()
        self._sender = Session(database, "probe")
        self._opened = False
        self.deaf = True
        self.reported = False
        """True if the loss of notifications was logged; not set while the first self-test is pending."""

    async def run(self, stop: asyncio.Event) -> None:
        """Listen until ``stop``, reconnecting after every failure."""
        outage = Outage("listen")
        while not stop.is_set():
            try:
                await self._listen(stop, outage)
            except Exception as error:
                self._set_deaf(str(error) or type(error).__name__)
                await wait(stop, outage.fail(error))
        await self._sender.close()

    async def _listen(self, stop: asyncio.Event, outage: Outage) -> None:
        conn = await self._database.connect("listen", again=self._opened)
        self._opened = True
        try:
            self._broken.clear()
            conn.add_termination_listener(lambda _conn: self._broken.set())
            await conn.add_listener(self._channel, self._receive)
            while not stop.is_set():
                if await self._self_test(stop):
                    outage.heal()
                    self._set_working()
                elif stop.is_set():
                    return
                elif self.deaf:  # never worked: a pooler; retry later on a new connection
                    self._set_deaf(
                        "a notification sent to ourselves did not arrive; is a transaction pooler in between?"
                    )
                    await wait(stop, PROBE_INTERVAL)
                    return
                else:
                    raise ConnectionError("a notification sent to ourselves did not arrive")
                await wait_any(PROBE_INTERVAL, stop, self._broken)
                if self._broken.is_set():
                    raise ConnectionError("the LISTEN connection was closed")
        finally:
            conn.terminate()

    async def _self_test(self, stop: asyncio.Event) -> bool:
        """Send a notification from a second connection: a pooler may by chance deliver one sent on the same."""
        self._probe = f"?{secrets.token_hex(8)}"
        self._answered.clear()
        await self._sender.fetchval("select pg_notify($1, $2)", self._channel, self._probe)
        await wait_any(PROBE_TIMEOUT, self._answered, stop)
        return self._answered.is_set()

    def _receive(self, _conn: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload == self._probe:
            self._answered.set()
        elif not payload.startswith("?"):
            self._on_notify(payload)

    def _set_working(self) -> None:
        if self.deaf:
            self.deaf = False
            if self.reported:
                log.info("wake-ups arrive again")
                self.reported = False
            telemetry.emit("listen.heard")
            self._on_notify(None)  # poll after LISTEN, so that nothing is missed in between

    def _set_deaf(self, reason: str) -> None:
        self.deaf = True
        if not self.reported:
            log.warning("wake-ups do not arrive (%s); polling instead", reason)
            self.reported = True
            telemetry.emit("listen.deaf", reason=reason)
        self._on_notify(None)
