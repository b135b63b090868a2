"""Processes under test: real workers and a real control plane, to be killed, frozen, stopped and replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import msgspec

from howdah_lab.torture.app import YARD
from howdah_lab.torture.guards import WITHOUT
from howdah_lab.torture.ledger import FOLDER
from howdah_lab.torture.release import RELEASE

Role = Literal["worker", "plane", "agent"]
APP = "howdah_lab.torture.node:app"
STARTED_BY = "HOWDAH_TORTURE_STARTED_BY"
"""The process id of the run, with which its processes end."""


class Beats(msgspec.Struct, frozen=True):
    """The times of nodes, in seconds."""

    lease: float = 4.0
    heartbeat: float = 1.0
    poll: float = 1.0
    grace: float = 2.0


@dataclass(eq=False, slots=True)
class Hand:
    """One process of the crew."""

    role: Role
    process: subprocess.Popen[bytes]
    output: Path
    file: IO[bytes]
    began: float = field(default_factory=time.monotonic)
    release: str = ""
    """Release whose declarations it has; see ``release``."""
    frozen: bool = False
    ended: float | None = None
    """When it was seen to be gone."""
    wanted: bool = False
    """True if we ended it."""
    told: bool = False
    """True if it was told to end, which it has to do without an error."""
    peak: int = 0
    """Largest memory it was seen with, in bytes."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def look(self) -> None:
        """Note its memory."""
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            self.peak = max(self.peak, pages * os.sysconf("SC_PAGE_SIZE"))


class Workers:
    """All processes of a run; when the block ends none of them is left."""

    def __init__(self, folder: Path, environment: Mapping[str, str], beats: Beats) -> None:
        self._folder = folder
        self._environment = environment
        self._beats = beats
        self.ledger = environment[FOLDER]
        self._sleepy = environment.get(WITHOUT) == "poll"
        self.hands: list[Hand] = []
        self.past: list[Hand] = []
        """Processes that have exited."""

    def of(self, *roles: Role) -> list[Hand]:
        """Return the running processes in these roles, without frozen ones."""
        return [hand for hand in self.hands if hand.role in roles and hand.alive and not hand.frozen]

    def worker(self, dsn: str, *more: str, **environment: str) -> Hand:
        """Start a node with a database."""
        words = ["worker", "-a", APP, "-q", "jobs", "-c", "16", "--rebalance", "1s", *self._times(), *more]
        return self._start("worker", words, HOWDAH_DSN=dsn, **environment)

    def plane(self, dsn: str, port: int) -> Hand:
        """Start a control plane."""
        beats = self._beats
        words = ["serve", "-a", APP, "--port", str(port), "--auth", "none", "--no-dashboard", "--rate", "10000"]
        words += ["--heartbeat", f"{beats.heartbeat:g}s", "--offline-after", f"{beats.lease:g}s"]
        return self._start("plane", words, HOWDAH_DSN=dsn)

    def agent(self, url: str, **environment: str) -> Hand:
        """Start a worker without a database."""
        words = ["worker", "-a", APP, "-q", "fleet", "-c", "20", "--server", url, *self._times()]
        return self._start("agent", words, **environment)

    def is_at_work(self, hand: Hand) -> bool:
        """Return whether it has written anything into the ledger yet; a control plane never does."""
        return hand.role == "plane" or any(Path(self.ledger).glob(f"{hand.pid}.*"))

    def signal(self, hand: Hand, number: signal.Signals) -> None:
        """Send one a signal."""
        with suppress(ProcessLookupError):
            hand.process.send_signal(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            hand.frozen = number == signal.SIGSTOP

    def tell(self, hand: Hand) -> None:
        """Stop one with SIGTERM, as a deploy does."""
        hand.wanted = hand.told = True
        self.signal(hand, signal.SIGTERM)

    def kill(self, hand: Hand) -> None:
        """End one at once, frozen or not."""
        hand.wanted = True
        with suppress(ProcessLookupError):
            hand.process.kill()
        hand.process.wait()
        self._bury(hand)

    def look(self) -> list[Hand]:
        """Record the state of every process; returns those that exited by themselves."""
        deserters = []
        for hand in list(self.hands):
            if hand.alive:
                hand.look()
                continue
            self._bury(hand)
            if not hand.wanted or (hand.told and hand.process.returncode):
                deserters.append(hand)
        return deserters

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for hand in list(self.hands):
            self.kill(hand)

    def _times(self) -> list[str]:
        beats = self._beats
        return [
            *("--lease", f"{beats.lease:g}s", "--heartbeat", f"{beats.heartbeat:g}s"),
            *("--poll", "1000s" if self._sleepy else f"{beats.poll:g}s", "--grace", f"{beats.grace:g}s"),
        ]

    def _start(self, role: Role, words: list[str], **environment: str) -> Hand:
        others = {name: value for name, value in os.environ.items() if not name.startswith(("HOWDAH_", "PG"))}
        output = self._folder / f"{role}-{len(self.hands) + len(self.past)}.log"
        file = output.open("wb")
        told = {**others, **self._environment, **environment, STARTED_BY: str(os.getpid())}
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "howdah", *words],
            env=told,
            cwd="/",  # a folder without configuration, so that no howdah.toml of the current project is read
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
        hand = Hand(role, process, output, file, release=told.get(RELEASE, ""))
        self.hands.append(hand)
        return hand

    def _bury(self, hand: Hand) -> None:
        hand.ended = time.monotonic()
        hand.file.close()
        self.hands.remove(hand)
        self.past.append(hand)


def environment(
    yard: str, schema: str, ledger: Path, without: str | None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of every process of the crew."""
    said = {YARD: yard, "HOWDAH_SCHEMA": schema, FOLDER: str(ledger), **(more or {})}
    return said | ({WITHOUT: without} if without else {})
