"""Heartbeats: renew what a worker holds, store by store. A store that cannot be asked now does not fail the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from howdah.fleet import messages as m
from howdah.fleet.desk import JobDesk
from howdah.fleet.door import RemoteNode
from howdah.fleet.table_desk import TableDesk
from howdah.service import Outage

log = logging.getLogger("howdah")

LOCKED = "the table did not answer in time; it is locked, or the database is slow"
BROKEN = "the rows could not be renewed; the log of the control plane says why"


class Heartbeats:
    """Renews leases on jobs first, then the rows of all tables at once, each table within a few seconds."""

    def __init__(self, jobs: JobDesk, tables: Mapping[str, TableDesk]) -> None:
        self._jobs = jobs
        self._tables = tables
        self._outages = {name: Outage(f"heartbeat of {name} for the fleet") for name in tables}

    async def renew(self, node: RemoteNode, held: Mapping[str, Sequence[m.Held]]) -> dict[str, m.Fate]:
        """Return what became of everything the worker named. Raises only if its jobs could not be renewed."""
        fates = {}
        if jobs := held.get(m.JOBS):
            fates[m.JOBS] = await self._renew_jobs(node, jobs)
        tables = [name for name in held if name != m.JOBS]
        rows = await asyncio.gather(*(self._renew_rows(node, name, held[name]) for name in tables))
        return fates | dict(zip(tables, rows, strict=True))

    async def _renew_jobs(self, node: RemoteNode, held: Sequence[m.Held]) -> m.Fate:
        tokens, cancel = await self._jobs.heartbeat(node.id, list({each.token for each in held}))
        named = {each.id for each in held}
        return m.Fate(
            kept=[each for each in held if each.token in tokens],
            lost=[each for each in held if each.token not in tokens],
            cancel=[id for id in cancel if id in named],
        )

    async def _renew_rows(self, node: RemoteNode, name: str, held: Sequence[m.Held]) -> m.Fate:
        table = self._tables.get(name)
        if table is None or name not in node.tables:
            who = "this control plane does not serve" if table is None else f"worker {node.id} did not register for"
            return m.Fate(problem=f"{who} a table {name!r}")
        outage = self._outages[name]
        try:
            async with asyncio.timeout(table.patience):
                said = await table.heartbeat(node.id, [(each.token, each.id) for each in held])
        except TimeoutError as error:
            outage.fail(error)
            return m.Fate(problem=LOCKED)
        except Exception as error:
            outage.fail(error)
            return m.Fate(problem=BROKEN)
        outage.heal()
        kept, refused = said.kept, said.refused
        return m.Fate(
            kept=[each for each in held if (each.token, each.id) in kept],
            lost=[each for each in held if (each.token, each.id) not in kept and each.id not in refused],
            cancel=said.cancel,
            problem=next((f"row {id!r} could not be renewed: {why}"[:500] for id, why in refused.items()), None),
        )
