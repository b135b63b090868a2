"""One LISTEN connection: reconnects, proves to itself that it hears, and says so when it does not."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any

from howdah import telemetry
from howdah.pg.database import Database, Session
from howdah.service import Outage, wait, wait_any

log = logging.getLogger("howdah")

PROBE_EVERY = 10.0
PROBE_PATIENCE = 2.0


class Listener:
    """Calls ``heard(payload)`` for every notification, and ``heard(None)`` whenever some may have been missed.

    Notifications are only a hint: whoever uses this polls behind it. ``deaf`` is true while none can arrive,
    as behind a transaction pooler, which accepts LISTEN and never delivers.
    """

    def __init__(self, database: Database, channel: str, heard: Callable[[str | None], None]) -> None:
        self._database = database
        self._channel = channel
        self._heard = heard
        self._probe = ""
        self._answered = asyncio.Event()
        self._broken = asyncio.Event()
        self._teller = Session(database, "probe")
        self._opened = False
        self.deaf = True
        self.told = False
        """Whether it was reported deaf; at the start it is deaf for a moment without being so."""

    async def run(self, stop: asyncio.Event) -> None:
        """Listen until ``stop``; outlives every outage."""
        outage = Outage("listen")
        while not stop.is_set():
            try:
                await self._listen(stop, outage)
            except Exception as error:
                self._set_deaf(str(error) or type(error).__name__)
                await wait(stop, outage.fail(error))
        await self._teller.close()

    async def _listen(self, stop: asyncio.Event, outage: Outage) -> None:
        conn = await self._database.connect("listen", again=self._opened)
        self._opened = True
        try:
            self._broken.clear()
            conn.add_termination_listener(lambda _conn: self._broken.set())
            await conn.add_listener(self._channel, self._receive)
            while not stop.is_set():
                if await self._hears(stop):
                    outage.heal()
                    self._set_hearing()
                elif stop.is_set():
                    return
                elif self.deaf:  # deaf from the start: a pooler; try again later on a new connection
                    self._set_deaf(
                        "a notification sent to ourselves did not arrive; is a transaction pooler in between?"
                    )
                    await wait(stop, PROBE_EVERY)
                    return
                else:
                    raise ConnectionError("a notification sent to ourselves did not arrive")
                await wait_any(PROBE_EVERY, stop, self._broken)
                if self._broken.is_set():
                    raise ConnectionError("the LISTEN connection was closed")
        finally:
            conn.terminate()

    async def _hears(self, stop: asyncio.Event) -> bool:
        """Send a notification from another connection; behind a pooler our own would come back by luck."""
        self._probe = f"?{secrets.token_hex(8)}"
        self._answered.clear()
        await self._teller.fetchval("select pg_notify($1, $2)", self._channel, self._probe)
        await wait_any(PROBE_PATIENCE, self._answered, stop)
        return self._answered.is_set()

    def _receive(self, _conn: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload == self._probe:
            self._answered.set()
        elif not payload.startswith("?"):
            self._heard(payload)

    def _set_hearing(self) -> None:
        if self.deaf:
            self.deaf = False
            if self.told:
                log.info("wake-ups arrive again")
                self.told = False
            telemetry.emit("listen.heard")
            self._heard(None)  # LISTEN first, then look: nothing can fall in between

    def _set_deaf(self, reason: str) -> None:
        self.deaf = True
        if not self.told:
            log.warning("wake-ups do not arrive (%s); polling instead", reason)
            self.told = True
            telemetry.emit("listen.deaf", reason=reason)
        self._heard(None)
