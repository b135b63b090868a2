"""Two servers with synchronous replication: Patroni decides which one is the primary, HAProxy knows the way to it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import httpx2 as httpx

from howdah.errors import DatabaseUnreachable
from howdah.postgres.embedded.binaries import DISTRIBUTION
from howdah_lab.torture.servers.child_programs import Folder, Program, in_thread, look_for
from howdah_lab.torture.servers.cluster_member import Member
from howdah_lab.torture.servers.ports import HOST, free_ports
from howdah_lab.torture.servers.writable import until_steady

PACKAGES = {
    "patroni": "patroni",
    "etcd": "etcd-server",
    "haproxy": "haproxy",
}
"""The programs it takes, and the packages of Debian they are in."""
ETCD_CLIENT = Path("/usr/lib/python3/dist-packages/etcd")
STATE_TIMEOUT = 120.0
"""Seconds for the members to find each other, at first and after each accident."""
LOOK_EVERY = 0.2
SWITCH_WITHIN = 30.0

HAPROXY = """
global
  maxconn 2000
defaults
  mode tcp
  timeout connect 2s
  timeout client 30m
  timeout server 30m
  timeout check 1s
listen primary
  bind {host}:{port}
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
{servers}
"""
SERVER = "  server {name} {host}:{port} check port {rest}"


class Cluster:
    """Two members, an etcd and a HAProxy on ports of their own. ``address`` leads to the current primary."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self._secret = secrets.token_hex(16)
        self._port = 0
        self._thaws: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()
        self._client: httpx.AsyncClient

    @property
    def dsn(self) -> str:
        """Of the superuser, on the current primary."""
        return f"postgresql://postgres:{self._secret}@{HOST}:{self._port}/postgres"

    @property
    def direct(self) -> str:
        """The same: HAProxy changes nothing on its way."""
        return self.dsn

    @property
    def address(self) -> tuple[str, int]:
        """Where HAProxy listens."""
        return HOST, self._port

    @staticmethod
    def missing() -> str | None:
        """Return what this machine lacks to run it, and how to install it."""
        packages = [package for program, package in PACKAGES.items() if not look_for(program)]
        if not ETCD_CLIENT.exists():
            packages.append("python3-etcd")
        if _postgresql() is None:
            packages.append("postgresql")
        if not packages:
            return None
        return (
            f"a cluster needs {', '.join(packages)} of Debian or Ubuntu;"
            f" apt-get install -y --no-install-recommends {' '.join(packages)}"
        )

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
            folder = Folder()
            stack.push_async_callback(in_thread, folder.remove)
            await self._start(folder, stack)
            stack.push_async_callback(self._forget_thaws)
            await self.whole(STATE_TIMEOUT)
            await self.writable(STATE_TIMEOUT)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def writable(self, timeout: float) -> float:
        """Wait until a primary accepts writes for good, at most ``timeout`` seconds; returns the monotonic moment."""
        return await until_steady(self.dsn, timeout)

    async def leader(self) -> str:
        """The name of the primary, as soon as there is one."""
        return str(await self._until(self._find_leader, STATE_TIMEOUT, "the members agree on no leader"))

    async def whole(self, timeout: float = STATE_TIMEOUT) -> None:
        """Wait until there is a primary and the other member follows it synchronously."""
        await self._until(self._is_whole, timeout, "the members did not become a primary and a synchronous standby")

    async def kill_leader(self) -> str:
        """Kill the primary with its Patroni, as when a machine loses its power; returns its name."""
        name = await self.leader()
        await in_thread(self.members[name].program.kill)
        return name

    async def revive(self, timeout: float = STATE_TIMEOUT) -> None:
        """Start again who was killed, and wait until it follows the other."""
        for member in self.members.values():
            if not member.program.is_alive:
                await in_thread(member.program.start)
        await self.whole(timeout)

    async def switchover(self) -> str:
        """Let the standby take over, as before maintenance; returns the name of the new primary."""
        await self.whole()
        old = await self.leader()
        [new] = self.members.keys() - {old}
        url = f"http://{HOST}:{self.members[old].rest}/switchover"
        answer = await self._client.post(url, json={"leader": old, "candidate": new}, timeout=SWITCH_WITHIN)
        if answer.status_code >= 300:
            raise DatabaseUnreachable(f"{old} did not hand over to {new}: {answer.text}")
        return new

    async def freeze_leader(self, seconds: float) -> str:
        """Stop the primary and its Patroni where they are; they go on by themselves ``seconds`` later."""
        name = await self.leader()
        program = self.members[name].program
        await in_thread(program.freeze)

        async def thaw() -> None:
            await asyncio.sleep(seconds)
            program.thaw()

        thawing = asyncio.create_task(thaw())
        self._thaws.add(thawing)
        thawing.add_done_callback(self._thaws.discard)
        return name

    async def _start(self, folder: Folder, stack: AsyncExitStack) -> None:
        self._port, etcd, peer, *ports = free_ports(7)
        bin = _postgresql()
        assert bin is not None, self.missing()
        programs = [_etcd(folder, etcd, peer)]
        for name in ("n1", "n2"):
            port, rest = ports.pop(), ports.pop()
            member = Member(name, folder, port=port, rest=rest, etcd=etcd, bin=bin, secret=self._secret)
            self.members[name] = member
            programs.append(member.program)
        programs.append(_haproxy(folder, self._port, self.members.values()))
        # The last is ended first: a Patroni without its etcd would not stop its server.
        for program in programs:
            stack.push_async_callback(in_thread, program.kill)
            await in_thread(program.start)
        for member in self.members.values():
            stack.push_async_callback(in_thread, member.stop)

    async def _forget_thaws(self) -> None:
        for thawing in self._thaws:
            thawing.cancel()

    async def _find_leader(self) -> str | None:
        return next((str(one["name"]) for one in await self._view() if one["role"] == "leader"), None)

    async def _is_whole(self) -> bool:
        roles = {one["role"] for one in await self._view() if one["state"] in ("running", "streaming")}
        return roles == {"leader", "sync_standby"}

    async def _view(self) -> list[dict[str, Any]]:
        views = await asyncio.gather(*(member.view(self._client) for member in self.members.values()))
        return next((view for view in views if view), [])

    async def _until(self, condition: Callable[[], Awaitable[Any]], timeout: float, otherwise: str) -> Any:
        until = time.monotonic() + timeout
        while not (found := await condition()):
            if time.monotonic() > until:
                text = "; ".join(f"{name} said {member.program.say()}" for name, member in self.members.items())
                raise DatabaseUnreachable(f"{otherwise} in {timeout:g} s: {text}")
            await asyncio.sleep(LOOK_EVERY)
        return found


def _postgresql() -> Path | None:
    # Only the distribution's own is sure to be one its Patroni knows how to handle.
    found = [bin for bin in DISTRIBUTION.glob("*/bin") if (bin / "pg_rewind").exists()]
    return max(found, key=lambda folder: float(folder.parent.name), default=None)


def _etcd(folder: Folder, port: int, peer: int) -> Program:
    clients, peers = f"http://{HOST}:{port}", f"http://{HOST}:{peer}"
    options = {
        "name": "e1",
        "data-dir": str(folder.make("etcd")),
        "listen-client-urls": clients,
        "advertise-client-urls": clients,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"e1={peers}",
        "enable-v2": "true",
        "logger": "zap",
    }
    return Program("etcd", ["etcd", *(f"--{name}={value}" for name, value in options.items())], folder)


def _haproxy(folder: Folder, port: int, members: Any) -> Program:
    servers = "\n".join(SERVER.format(name=one.name, host=HOST, port=one.port, rest=one.rest) for one in members)
    config = folder.write("haproxy.cfg", HAPROXY.format(host=HOST, port=port, servers=servers))
    return Program("haproxy", ["haproxy", "-db", "-f", str(config)], folder)
