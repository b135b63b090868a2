"""Belief: what a worker says of its jobs is held against its leases, and said again it is answered the same."""

from __future__ import annotations

from collections.abc import Sequence

from howdah.job import Job
from howdah.jobs.recorder import CODES
from howdah.outcome import Ack, Outcome
from howdah.pg import sql
from howdah.pg.database import Database, Session

REMEMBER = 3600.0
"""Seconds a report that is repeated is recognised."""


def unique(acks: Sequence[Ack]) -> list[Ack]:
    """The reports of one request, each job or row once: of several on the same one the last counts."""
    return list({(ack.job.token, ack.job.id): ack for ack in acks}.values())


class Belief:
    """Looks at leases before anything is believed."""

    def __init__(self, database: Database, session: Session) -> None:
        self._session = session
        self._sql = sql.load("howdah.fleet", schema=database.schema)

    async def own(self, node: int, acks: Sequence[Ack]) -> list[Ack]:
        """Those on jobs under the lease they name, or under no lease of the node's: a replay, which writes nothing.

        Which jobs and which attempt the lease says, not the worker.
        """
        if not acks:
            return []
        once = unique(acks)  # said twice, a job would run twice
        tokens, ids = [ack.job.token for ack in once], [ack.job.id for ack in once]
        own: dict[int, Ack] = dict(enumerate(once, 1))
        for place, attempt in await self._session.fetch(self._sql["covered"], node, tokens, ids):
            job = own[place].job
            if attempt is None:
                del own[place]
            elif attempt != job.attempt:
                own[place].job = Job(job.id, "", "", attempt, attempt + 1, job.token, b"")
        return list(own.values())

    async def retried(self, node: int, acks: Sequence[Ack], accepted: Sequence[Ack]) -> list[Ack]:
        """Retries that were recorded before, as when the answer was lost."""
        known = {(ack.job.token, ack.job.id) for ack in accepted}
        left = [ack for ack in acks if ack.outcome is Outcome.RETRY and (ack.job.token, ack.job.id) not in known]
        if not left:
            return []
        rows = await self._session.fetch(self._sql["retried"], node, [ack.job.id for ack in left])
        before = {(row["id"], row["attempt"]) for row in rows}
        return [ack for ack in left if (ack.job.id, ack.job.attempt) in before]

    async def settle(self, node: int, ack: Ack, *, last: bool) -> str | None:
        """Record how one job ended, and remember the answer; ``None``: it is no longer the node's."""
        job = ack.job
        said = (CODES[ack.outcome], ack.delay, ack.took, ack.result, ack.error, ack.message, ack.traceback)
        over = [job.token] if last else []
        state = await self._session.fetchval(self._sql["settle"], node, job.token, job.id, job.attempt, *said, over)
        return None if state is None else str(state)

    async def forget(self) -> None:
        """Drop answers nobody asks for again. Safe in every replica."""
        await self._session.fetch(self._sql["forget_reports"], REMEMBER)
