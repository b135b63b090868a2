"""Environment of a run: everything a fault can act on."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from howdah_lab.torture.crew import Beats, Hand, Workers
from howdah_lab.torture.ledger import Pen
from howdah_lab.torture.line import Proxy
from howdah_lab.torture.load import Load
from howdah_lab.torture.release import RELEASE
from howdah_lab.torture.wound import Healing, Wound


@dataclass(slots=True)
class TortureRun:
    """A server, the wires to it, the crew that works on it, and the load it is under."""

    place: Any
    """The PostgreSQL; see ``servers``."""
    line: Proxy
    """Proxy between all processes and PostgreSQL."""
    web: Proxy
    """Between workers without a database and their control plane."""
    port: int
    """Of the control plane itself."""
    crew: Workers
    load: Load
    beats: Beats
    chance: random.Random
    say: Callable[[str], None]
    pen: Pen
    sql: Mapping[str, str]
    """The statements of ``howdah_lab.torture``."""
    wounds: list[Wound] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Faults in progress, by name."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def dsn(self) -> str:
        """Of the database, through the line."""
        return through(self.place.dsn, self.line)

    @property
    def plane_dsn(self) -> str:
        """Of the database, through the entrance of the line that only the control plane takes."""
        return through(self.place.dsn, self.line, "plane")

    @property
    def url(self) -> str:
        """Of the control plane, through its line."""
        host, port = self.web.address
        return f"http://{host}:{port}"

    def hurt(
        self,
        did: str,
        *hands: Hand,
        shows: Healing = "none",
        sign: str = "start",
        within: float = 0.0,
    ) -> Wound:
        """Note that something was done, now."""
        wound = Wound(
            self.faults[-1] if self.faults else "",
            did,
            time.monotonic(),
            pids=[hand.pid for hand in hands],
            shows=shows,
            sign=sign,
            within=within,
        )
        self.wounds.append(wound)
        self.say(did)
        return wound

    def heal(self, wound: Wound) -> None:
        """Note that it was undone, now."""
        wound.healed = time.monotonic()
        self.say(f"{wound.did}: over")

    def man(self, hand: Hand) -> Hand:
        """Start another in the place of one that is gone."""
        if hand.role == "worker":
            return self.worker(hand.release)
        if hand.role == "plane":
            return self.crew.plane(self.plane_dsn, self.port)
        return self.crew.agent(self.url)

    def worker(self, release: str = "") -> Hand:
        """Start a node with a database, of this release if there are releases."""
        return self.crew.worker(self.dsn, **({RELEASE: release} if release else {}))

    async def replace(self, hand: Hand) -> None:
        """Start another in the place of one that is gone, and wait until it works, so that its jobs are taken over."""
        await self.at_work(self.man(hand))

    async def at_work(self, other: Hand) -> None:
        """Wait until one that was started works, ends, or the run is over."""
        while not self.crew.is_at_work(other) and other.alive and not self.over.is_set():
            await asyncio.sleep(0.05)

    def anyone(self, *roles: Any) -> Hand | None:
        """One at work in these roles, at random; None if there is none."""
        hands = self.crew.of(*roles)
        return self.chance.choice(hands) if hands else None

    async def rest(self, least: float, most: float) -> None:
        """Let some time pass, or the run be over."""
        try:
            async with asyncio.timeout(self.chance.uniform(least, most)):
                await self.over.wait()
        except TimeoutError:
            pass

    def thaw(self) -> None:
        """Thaw all frozen processes."""
        for hand in self.crew.hands:
            if hand.frozen:
                self.crew.signal(hand, signal.SIGCONT)


def through(dsn: str, line: Proxy, by: str = "") -> str:
    """The DSN by way of a line, or of one entrance of it."""
    parts = urlsplit(dsn)
    host, port = line.entrance(by)
    credentials, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{credentials}{at}{host}:{port}"))
