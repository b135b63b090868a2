"""Workers API: registration, heartbeats, draining and listing of nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from howdah import telemetry
from howdah.audit import AuditTrail
from howdah.control_plane.auth import Authenticator, Caller, RegisteredWorker
from howdah.control_plane.errors import RequestRejected, invalid, unknown
from howdah.control_plane.job_queue import RemoteJobQueue
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.table_queue import RemoteTableQueue
from howdah.control_plane.tokens import fingerprint, make
from howdah.errors import ConfigError
from howdah.handler import check_label, check_name
from howdah.job import PLATFORM_PREFIX
from howdah.jobs.labels import expand, labels_of
from howdah.loops import Outage
from howdah.node.registry import new_node
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.remote import messages as m

MAX_WORKERS = 1000
"""Nodes in one list."""
STATUSES = ("idle", "busy", "draining", "offline")
TIMED_OUT = "the table did not answer in time; it is locked, or the database is slow"
FAILED = "the rows could not be renewed; the log of the control plane says why"


class WorkerInfo(m.Message):
    """One node, with a database or over HTTP."""

    id: int
    name: str
    status: str
    remote: bool
    version: str
    queues: Sequence[str] | None
    kinds: Sequence[str] | None
    tables: Sequence[str]
    labels: Sequence[str]
    slots: int
    running: int
    started_at: datetime
    beat_at: datetime
    silent: float
    """Seconds since the last heartbeat."""


class WorkerList(m.Message):
    """All nodes, newest first."""

    workers: list[WorkerInfo]


class WorkersApi:
    """Keeps no state that another replica of the control plane would not see."""

    def __init__(
        self,
        database: Database,
        options: ServeOptions,
        *,
        auth: Authenticator,
        session: Session,
        jobs: RemoteJobQueue,
        tables: Mapping[str, RemoteTableQueue],
        needs_database: Mapping[str, str],
    ) -> None:
        """``needs_database``: the tasks and tables that are not offered over HTTP, each with the reason."""
        self._options = options
        self._auth = auth
        self._session = session
        self._jobs = jobs
        self._tables = tables
        self._needs_database = needs_database
        self._outages = {name: Outage(f"heartbeat of {name} for the fleet") for name in tables}
        self._sql = sql.load("howdah.control_plane", schema=database.schema)
        self._trail = AuditTrail(database.schema)

    async def register(self, caller: Caller, body: m.RegisterRequest) -> m.RegisterResponse:
        """Register a worker: return an id, fresh for every start, and a credential of its own."""
        queues = _check_registration(caller, body, self._needs_database)
        if missing := [table for table in body.tables if table not in self._tables]:
            raise invalid(f"there is no table {missing[0]!r} here; it must be in the app that is served", "tables")
        credential = make("node")
        values = (
            *(body.hostname, body.version, queues, body.kinds, body.slots, body.tables, body.labels),
            *(fingerprint(credential), caller.token),
        )
        # Random ids: after a failover to a standby that lagged, a sequence would return an id a second time.
        while (id := await self._session.fetchval(self._sql["register"], *values, new_node())) is None:
            continue
        telemetry.emit("fleet.register", node=id, name=body.hostname)
        options = self._options
        return m.RegisterResponse(
            id=id, credential=credential, heartbeat=options.heartbeat, lease=options.offline_after
        )

    async def heartbeat(self, node: RegisteredWorker, body: m.HeartbeatRequest) -> m.HeartbeatResponse:
        """Renew the worker's leases; return which it lost and which jobs to cancel.

        Jobs are renewed first, then all tables at once, each within a few seconds. A table that fails is named in the
        response and does not fail the others.
        """
        running = max(body.running, sum(map(len, body.held.values())))
        state = await self._session.fetchval(self._sql["worker_heartbeat"], node.id, running)
        if state != node.state:
            self._auth.invalidate(node.id)
        if state is None:
            raise unknown(f"worker {node.id} any more; register again")
        fates = {}
        if jobs := body.held.get(m.JOBS):
            fates[m.JOBS] = await self._renew_jobs(node, jobs)
        tables = [name for name in body.held if name != m.JOBS]
        rows = await asyncio.gather(*(self._renew_rows(node, name, body.held[name]) for name in tables))
        return m.HeartbeatResponse(status=state, fates=fates | dict(zip(tables, rows, strict=True)))

    async def drain(self, caller: Caller, id: int) -> WorkerInfo:
        """Give a worker no more work; its running jobs finish.

        The audit trail does not record a worker that drains itself.
        """
        await self._check_manages(caller, id)
        async with self._session.use() as conn, conn.transaction():
            row = await conn.fetchrow(self._sql["drain"], id)
            if row is None:
                raise unknown(f"worker {id}")
            if caller.node is None and row["was"] != row["state"]:
                before, after = {"state": row["was"]}, {"state": row["state"]}
                await self._trail.record(conn, "drain", "node", [id], before=before, after=after)
        self._auth.invalidate(id)
        self._jobs.cancel_waits(id)
        return await self.worker(caller, id)

    async def leave(self, caller: Caller, id: int) -> None:
        """Deregister a worker and release everything it holds, without charging an attempt."""
        await self._check_manages(caller, id)
        tokens = await self._session.fetchval(self._sql["leases"], id)
        if tokens:
            await self._jobs.release(id, tokens)
        for table in self._tables.values():
            await table.release_all(id)
        row = await self._session.fetchrow(self._sql["leave"], id)
        self._auth.invalidate(id)
        self._jobs.cancel_waits(id)
        if not row["gone"]:
            await self._auth.node(id, fresh=True)

    async def workers(self, caller: Caller, status: str | None = None) -> WorkerList:
        """Return the nodes, newest first; for a token of some queues, those that serve one of them."""
        if status is not None and status not in STATUSES:
            raise invalid(f"status must be idle, busy, draining or offline, got {status!r}", "status")
        rows = await self._session.fetch(self._sql["workers"], None, status, MAX_WORKERS, caller.queues)
        return WorkerList(workers=[_visible(WorkerInfo(**row), caller) for row in rows])

    async def worker(self, caller: Caller, id: int) -> WorkerInfo:
        """Return one node."""
        queues = None if caller.node else caller.queues
        rows = await self._session.fetch(self._sql["workers"], id, None, 1, queues)
        if not rows:
            raise unknown(f"worker {id}")
        return _visible(WorkerInfo(**rows[0]), caller)

    async def _check_manages(self, caller: Caller, id: int) -> None:
        """Reject a token of some queues unless the worker serves nothing else."""
        if caller.node is not None or caller.queues is None:
            return
        rows = await self._session.fetch(self._sql["workers"], id, None, 1, caller.queues)
        if not rows:
            raise unknown(f"worker {id}")
        if not caller.may_manage(rows[0]["queues"], rows[0]["tables"]):
            message = f"worker {id} also serves queues or tables that the token is not valid for"
            raise RequestRejected(403, "FORBIDDEN", message)

    async def _renew_jobs(self, node: RegisteredWorker, held: Sequence[m.HeldJob]) -> m.RenewalResult:
        tokens, cancel = await self._jobs.heartbeat(node.id, list({each.token for each in held}))
        named = {each.id for each in held}
        return m.RenewalResult(
            kept=[each for each in held if each.token in tokens],
            lost=[each for each in held if each.token not in tokens],
            cancel=[id for id in cancel if id in named],
        )

    async def _renew_rows(self, node: RegisteredWorker, name: str, held: Sequence[m.HeldJob]) -> m.RenewalResult:
        table = self._tables.get(name)
        if table is None or name not in node.tables:
            who = "this control plane does not serve" if table is None else f"worker {node.id} did not register for"
            return m.RenewalResult(problem=f"{who} a table {name!r}")
        outage = self._outages[name]
        try:
            async with asyncio.timeout(table.timeout):
                renewal = await table.heartbeat(node.id, [(each.token, each.id) for each in held])
        except TimeoutError as error:
            outage.fail(error)
            return m.RenewalResult(problem=TIMED_OUT)
        except Exception as error:
            outage.fail(error)
            return m.RenewalResult(problem=FAILED)
        outage.heal()
        kept, rejected = renewal.kept, renewal.rejected
        return m.RenewalResult(
            kept=[each for each in held if (each.token, each.id) in kept],
            lost=[each for each in held if (each.token, each.id) not in kept and each.id not in rejected],
            cancel=renewal.cancel,
            problem=next((f"row {id!r} could not be renewed: {why}"[:500] for id, why in rejected.items()), None),
        )


def _visible(worker: WorkerInfo, caller: Caller) -> WorkerInfo:
    """Return a node without the queues and tables that the caller's token is not valid for."""
    if caller.node is not None or caller.queues is None:
        return worker
    queues = None if worker.queues is None else [each for each in worker.queues if caller.may_use(each)]
    return msgspec.structs.replace(
        worker, queues=queues, tables=[each for each in worker.tables if caller.may_use(each)]
    )


# ---------------------------------------------------------------- checks of a registration


def _check_registration(caller: Caller, body: m.RegisterRequest, needs_database: Mapping[str, str]) -> list[str] | None:
    """Reject invalid values, naming the field; return the queues that the worker may serve (``None``: all)."""
    _check("hostname", check_name, "hostname", body.hostname)
    _check("version", check_name, "version", body.version or "-")
    for kind in body.kinds:
        _check("kinds", check_name, "kind", kind)
        if kind.startswith(PLATFORM_PREFIX):
            raise invalid(f"kinds that start with {PLATFORM_PREFIX!r} run only on nodes with the database", "kinds")
    for label in body.labels:
        _check("labels", check_label, label)
    for field, names in (("kinds", body.kinds), ("tables", body.tables)):
        for name in names:
            if name in needs_database:
                why = needs_database[name]
                raise invalid(f"{name!r} is not offered over HTTP, only to nodes with the database: {why}", field)
    for table in body.tables:
        if not caller.may_use(table):
            raise RequestRejected(403, "FORBIDDEN", f"the token is not valid for table {table!r}", field="tables")
    queues = _allowed_queues(body.queues, caller)
    if queues is not None:
        named = (label for queue in queues for label in labels_of(queue))
        _check("labels", expand, queues, {*body.labels, *named})
    return queues


def _allowed_queues(wanted: list[str] | None, caller: Caller) -> list[str] | None:
    for queue in wanted or ():
        _check("queues", check_name, "queue", queue)
        for label in labels_of(queue):
            _check("queues", check_label, label)
    if wanted is None:
        return list(caller.queues) if caller.queues is not None else None
    if rejected := [queue for queue in wanted if not caller.may_use(queue)]:
        message = f"the token is not valid for queue {rejected[0]!r}"
        raise RequestRejected(403, "FORBIDDEN", message, field="queues")
    return wanted


def _check(field: str, check: Any, *values: Any) -> None:
    try:
        check(*values)
    except ConfigError as error:
        raise invalid(str(error), field) from None
