"""A primary with a standby that can be cut off, and promoted without what it did not hear of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg

from howdah_lab.torture.proxy import Proxy
from howdah_lab.torture.servers.single import Single
from howdah_lab.torture.servers.standby import Standby
from kit.node import eventually


@dataclass
class Pair:
    """A primary and its standby."""

    primary: Single
    standby: Standby
    proxy: Proxy

    @property
    def dsn(self) -> str:
        """Of the superuser, through a line that leads to the primary, and to the standby once that is promoted."""
        host, port = self.proxy.address
        return f"postgresql://postgres:{self.primary._password}@{host}:{port}/postgres"

    async def cut_off(self) -> None:
        """Let the standby hear no more of the primary, once it has all there is."""
        primary, standby = await asyncpg.connect(self.primary.dsn), await asyncpg.connect(self.standby.dsn)
        try:
            at = await primary.fetchval("select pg_current_wal_flush_lsn()::text")
            await eventually(lambda: standby.fetchval("select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", at))
            await standby.execute("alter system set primary_conninfo = ''")
            await standby.execute("select pg_reload_conf()")
            await eventually(lambda: primary.fetchval("select not exists (select from pg_stat_replication)"))
        finally:
            await primary.close()
            await standby.close()

    async def fail_over(self, *, crash: bool = True) -> None:
        """Promote the standby, after a crash of the primary or beside it, and let new connections lead there."""
        if crash:
            await self.primary.crash()
        await self.standby.promote()
        self.proxy.to = self.standby.address


@asynccontextmanager
async def pair(settings: Mapping[str, str]) -> AsyncIterator[Pair]:
    """A primary and a standby that follows it, while the block lasts."""
    async with Single(settings) as primary, Standby(primary, settings) as standby, Proxy(primary.address) as proxy:
        yield Pair(primary, standby, proxy)
