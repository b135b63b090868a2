"""The state machine: everybody does something, the wire breaks, and the tables must say what the model says."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from howdah.job import NewJob
from howdah.outcome import Ack, Outcome
from kit.interleave_jobs import STATEMENTS
from kit.model import Model
from kit.model_base import Fault, Wrong, faults, new_jobs, outcomes, sides
from kit.model_operators import OperatorMoves
from kit.model_world import BROKEN_OFF, FALL_DUE, LAPSE, LEASE, ModelNode, failed, set_back, transact


class JobStateMachine(OperatorMoves):
    """The life of jobs, with faults."""

    @initialize(jobs=st.lists(new_jobs.filter(lambda job: job.key is None), min_size=3, max_size=6))
    def begin(self, jobs: list[NewJob]) -> None:
        self.world.begin(2)
        self.enqueue(jobs, None)
        self.claim(0, 3, False, None)

    # ---------------------------------------------------------------- nodes

    @rule(at=sides, most=st.sampled_from([1, 3, 100]), due=st.booleans(), fault=faults(5, 5, 4, 2))
    def claim(self, at: int, most: int, due: bool, fault: Fault) -> None:
        side = self.world.sides[at]
        if due:
            self.world.fetch(FALL_DUE)
            for job in self.model.jobs.values():
                job.due = job.due or job.location == "later"
        back, ready = self.model.copy(), self.model.copy()
        unheard = [token for token, lease in back.leases.items() if lease.node == side.node and not lease.heard]
        for model in (back, ready):
            model.release(side.node, unheard)
        ready.promote()
        answered, jobs = self._attempt(lambda: side.store.claim(most, {}), fault)
        if not answered:
            self._adopt(ready, side, most)
            self._compare(self.model, back, ready)
            return
        if jobs:
            ready.claim(side.node, jobs[0].token, [job.id for job in jobs], most=most)
            for job in jobs:
                entry = ready.jobs[job.id]
                facts = (entry.used, entry.most, entry.queue, entry.key, entry.token)
                self._agree(facts, (job.attempt, job.max_attempts, job.queue, job.key, job.token))
            side.take(jobs)
        elif ready.claimable():
            raise Wrong(f"nothing was claimed although {ready.claimable()} jobs wait")
        self._compare(ready)

    def _adopt(self, model: Model, side: ModelNode, most: int) -> None:
        """A claim of which no answer came may have happened; its lease is known to nobody."""
        for token, node, _, names in self.world.read_tables()["leases"]:
            if token not in model.leases and node == side.node and token not in self.model.leases:
                model.claim(node, token, names, most=most, heard=False)

    @precondition(lambda self: self._busy())
    @rule(
        at=sides,
        chosen=st.lists(st.tuples(st.integers(0, 40), outcomes), min_size=1, max_size=2),
        again=st.booleans(),
        fault=faults(1, 1, 1, 2),
    )
    def ack(self, at: int, chosen: list[tuple[int, Outcome]], again: bool, fault: Fault) -> None:
        side = self._busy()[at % len(self._busy())]
        if side.unsaid is None:
            acks = []
            for index, outcome in chosen:
                left = [job for job in side.jobs.values() if job not in [ack.job for ack in acks]]
                if left:
                    acks.append(failed(left[index % len(left)], outcome))
            if not acks:
                return
            side.unsaid = acks, side.count([ack.job for ack in acks])
        self._say(side, fault)
        if again and side.unsaid:
            self._say(side, None)

    @precondition(lambda self: self._busy())
    @rule(at=sides, outcome=outcomes)
    def stutter(self, at: int, outcome: Outcome) -> None:
        """What became of an attempt is recorded, the answer is lost, and it is said again."""
        self.ack(at, [(0, outcome)], True, (1, "after"))

    @precondition(lambda self: self._busy())
    @rule(at=sides, fault=faults(1, 1, 2))
    def ack_all(self, at: int, fault: Fault) -> None:
        """All that a node holds is done."""
        side = self._busy()[at % len(self._busy())]
        if side.unsaid is None:
            jobs = list(side.jobs.values())
            side.unsaid = [Ack(job, Outcome.OK, 1) for job in jobs], side.count(jobs)
        self._say(side, fault)

    def _say(self, side: ModelNode, fault: Fault) -> None:
        """Tell the store what became of attempts; what is not answered is said again."""
        assert side.unsaid
        acks, finished = side.unsaid = side.still_ours(*side.unsaid)
        if not acks and not finished:
            side.unsaid = None
            return
        # not the same ones: the store notes in them what became of each
        acks_sent = [Ack(ack.job, ack.outcome, 1, delay=ack.delay) for ack in acks]
        successes = [ack for ack in acks_sent if ack.outcome is Outcome.OK]
        other = [ack for ack in acks_sent if ack not in successes]
        tokens = {ack.job.token for ack in successes}
        half, full = self.model.copy(), self.model.copy()
        half.ack(side.node, other, [token for token in finished if token not in tokens])
        expected = full.ack(side.node, other + successes, finished)
        answered, accepted = self._attempt(lambda: side.store.ack(acks, finished), fault)
        if not answered:
            self._compare(self.model, *self._recorded(half, side, successes, finished))
            return
        side.unsaid = None
        side.lose(set(finished))
        self._agree(expected, {(ack.job.token, ack.job.id): _fate(ack) for ack in accepted})
        self._compare(full)

    def _recorded(self, half: Model, side: ModelNode, successes: list[Ack], finished: list[int]) -> Iterator[Model]:
        """What may be recorded when no answer came: the other outcomes, then the successes.

        A lease with jobs that ended in their own transactions is not over with the last success: another statement
        releases it.
        """
        yield half
        tokens = {ack.job.token for ack in successes}
        late = [token for token in finished if token in tokens]
        for some in (some for n in range(len(late) + 1) for some in combinations(late, n)):
            model = half.copy()
            model.ack(side.node, successes, some)
            yield model

    @precondition(lambda self: self._busy())
    @rule(at=sides, index=st.integers(0, 40), fault=faults(1, 2, 3, 4))
    def transact(self, at: int, index: int, fault: Fault) -> None:
        side = self._busy()[at % len(self._busy())]
        if side.unsaid:
            self._say(side, fault)
            return
        job = list(side.jobs.values())[index % len(side.jobs)]
        after = self.model.copy()
        committed = after.transact(side.node, job.token, job.id)
        answered, result = self._attempt(lambda: transact(side, job), fault, BROKEN_OFF)
        if answered:
            self._agree("done" if committed else "lost", result)
            finished = side.count([job])
            side.unsaid = ([], finished) if finished else None
        else:  # as a worker does: the attempt goes back uncharged, unless it was committed after all
            side.unsaid = [set_back(job)], side.count([job])
        self._either(answered, after)

    @precondition(lambda self: any(side.left for side in self.world.sides))
    @rule(at=sides, fault=faults(1))
    def heartbeat(self, at: int, fault: Fault) -> None:
        side = self.world.sides[at]
        tokens, after = list(side.left), self.model.copy()
        lost, wanted = after.heartbeat(side.node, tokens)
        given = (side.node, tokens, LEASE, "busy", 1, False, 0)
        answered, row = self._attempt(lambda: side.heartbeat_session.fetchrow(STATEMENTS["heartbeat"], *given), fault)
        if answered:
            self._agree(lost, set(row["lost"]))
            self._agree(wanted, set(row["cancel"]) & wanted)
            side.lose(lost)
        self._either(answered, after)

    @precondition(lambda self: self.model.leases)
    @rule(at=sides, reset=st.booleans(), fault=faults(1))
    def fall_silent(self, at: int, reset: bool, fault: Fault) -> None:
        """A node renews nothing for longer than a lease, and somebody may take back what it holds."""
        nodes = sorted({lease.node for lease in self.model.leases.values()})
        node = nodes[at % len(nodes)]
        self.world.fetch(LAPSE, node)
        for lease in self.model.leases.values():
            lease.lapsed = lease.lapsed or lease.node == node
        self._compare(self.model)
        if reset:
            self.reset(at, fault)

    @precondition(lambda self: any(lease.lapsed for lease in self.model.leases.values()))
    @rule(at=sides, fault=faults(1))
    def reset(self, at: int, fault: Fault) -> None:
        after = self.model.copy()
        expected = after.reset()
        answered, result = self._attempt(self.world.sides[at].store.reset, fault)
        if answered:
            self._agree(expected, result)
        self._either(answered, after)

    @precondition(lambda self: self._busy())
    @rule(at=sides, way=st.sampled_from(["ack", "transact"]), outcome=outcomes, fault=faults(1))
    def wake(self, at: int, way: str, outcome: Outcome, fault: Fault) -> None:
        """A node that was frozen wakes when somebody else has taken back what it held, and goes on."""
        side = self._busy()[at % len(self._busy())]
        index = self.world.sides.index(side)
        self.world.fetch(LAPSE, side.node)
        for lease in self.model.leases.values():
            lease.lapsed = lease.lapsed or lease.node == side.node
        self.reset(1 - index, None)
        if way == "ack":
            self.ack(at, [(0, outcome)], False, fault)
        else:
            self.transact(at, 0, fault)


def _fate(ack: Ack) -> Outcome:
    return Outcome.FAILED if ack.outcome is Outcome.POISON else ack.outcome
