"""Clients and people in the state machine: they enqueue, cancel, retry, delete and pause."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from howdah.job import NewJob
from kit.interleave_jobs import STATEMENTS, TOMORROW
from kit.model_base import QUEUES, Fault, Moves, Wrong, faults, new_jobs, sides, some


class OperatorMoves(Moves):
    """Everybody but the nodes."""

    # ---------------------------------------------------------------- enqueue

    @precondition(lambda self: sum(job.location != "done" for job in self.model.jobs.values()) < 8)
    @rule(jobs=st.lists(new_jobs, min_size=1, max_size=5), fault=faults(1, 2, 3, 4, 5))
    def enqueue(self, jobs: list[NewJob], fault: Fault) -> None:
        if len(jobs) == 1:
            self._enqueue(jobs, lambda: self._one(jobs[0]), fault)
        else:
            plain = [job for job in jobs if job.key is None]
            self._enqueue(plain, lambda: self.world.client.enqueue_many(plain), fault)

    async def _one(self, job: NewJob) -> list[Any]:
        return [await self.world.client.enqueue(job)]

    def _enqueue(self, jobs: Sequence[NewJob], doing: Callable[[], Awaitable[Any]], fault: Fault) -> None:
        answered, made = self._attempt(doing, fault)
        if not answered:
            new = self.world.fetch("select id, queue, priority, max_attempts, key from howdah.job order by id")
            made = self._found([row for row in new if row["id"] not in self.model.jobs], jobs)
        if made is not None:
            self.model.enqueue(made, jobs)
            self.ever += [id for id, fresh in made if fresh]
        self._compare(self.model)

    def _found(self, rows: Sequence[Any], jobs: Sequence[NewJob]) -> list[tuple[int, bool]] | None:
        """What an enqueue did of which no answer came: all of it, or nothing."""
        if not rows:
            return None
        left, made = list(rows), []
        later = {id for id, _ in self.world.read_tables()["later"]}
        for job in jobs:
            facts = (job.queue, job.priority, job.max_attempts, job.key)
            row = next(
                (row for row in left if tuple(row)[1:] == facts and (row["id"] in later) == bool(job.delay)), None
            )
            if row is None:
                raise Wrong(f"{len(rows)} of {len(jobs)} jobs were enqueued, of which no answer came")
            left.remove(row)
            made.append((row["id"], True))
        return made

    # ---------------------------------------------------------------- people

    @precondition(lambda self: self.moves_until_act <= 0)
    @rule(verb=st.sampled_from(["cancel", "cancel", "retry", "delete"]), indexes=some, fault=faults(2, 3, 4, 5))
    def act(self, verb: str, indexes: list[int], fault: Fault) -> None:
        self.moves_until_act = 2
        over = [job.id for job in self.model.jobs.values() if job.state in ("f", "c")]
        ids = over if verb == "retry" and over else self.ever
        self._act(verb, sorted({ids[index % len(ids)] for index in indexes}), fault)

    def _act(self, verb: str, ids: Sequence[int], fault: Fault) -> None:
        after = self.model.copy()
        expected = getattr(after, verb)(ids)
        answered, results = self._attempt(lambda: getattr(self.world.admin, verb)(ids), fault)
        if answered:
            self._agree(expected, {each.id: each.result for each in results})
        self._either(answered, after)

    # ---------------------------------------------------------------- what happens now and then

    @precondition(lambda self: self.moves_until_act <= 0)
    @rule(what=st.sampled_from(["pause", "pause", "prune", "release", "crash"]), at=sides, fault=faults(1, 2, 3, 4, 5))
    def now_and_then(self, what: str, at: int, fault: Fault) -> None:
        self.moves_until_act = 2
        getattr(self, f"_{what}")(at, fault)

    def _pause(self, at: int, fault: Fault) -> None:
        """Pause a queue, or resume it."""
        queue = QUEUES[at]
        after, was = self.model.copy(), queue in self.model.paused
        after.paused ^= {queue}
        act = self.world.admin.resume if was else self.world.admin.pause
        answered, result = self._attempt(lambda: act(queue), fault)
        if answered:
            self._agree(True if was else None, result)
        self._either(answered, after)

    def _prune(self, _at: int, fault: Fault) -> None:
        """All that is over is past its time; nobody keeps an outcome for shorter than it takes to say it again."""
        if any(side.unsaid for side in self.world.sides):
            return
        after = self.model.copy()
        pruned = after.prune()
        given = (STATEMENTS["prune_rows"], TOMORROW, TOMORROW, 1000, None, None, None, None)
        answered, result = self._attempt(lambda: self.world.upkeep.fetchval(*given), fault)
        if answered:
            self._agree(pruned, result)
        self._either(answered, after)

    def _release(self, at: int, fault: Fault) -> None:
        """A node that stops hands back what it holds."""
        side = self.world.sides[at]
        tokens, after = list(side.left), self.model.copy()
        if side.unsaid or not tokens:
            return
        given = after.release(side.node, tokens)
        answered, back = self._attempt(lambda: side.store.release(tokens), fault)
        if answered:
            self._agree(given, back)
        side.lose(set(tokens))
        self._either(answered, after)

    def _crash(self, at: int, _fault: Fault) -> None:
        self.world.crash(self.world.sides[at])
