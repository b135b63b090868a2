"""The life of jobs in plain Python: what the tables must say, and what whoever asked must be told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from howdah.outcome import Ack, Outcome

CODES = {
    Outcome.OK: "d",
    Outcome.FAILED: "f",
    Outcome.POISON: "f",
    Outcome.CANCELLED: "c",
    Outcome.RETRY: "r",
    Outcome.SNOOZED: "s",
    Outcome.RELEASED: "b",
}
OUTCOMES = {code: outcome for outcome, code in CODES.items() if outcome is not Outcome.POISON}


@dataclass
class Entry:
    """One job."""

    id: int
    queue: str
    priority: int
    key: str | None
    most: int
    """Attempts allowed."""
    location: str
    """ready, later, lease or done."""
    used: int = 0
    """Attempts used; while it runs, and when it is over, with this one."""
    due: bool = False
    token: int | None = None
    state: str | None = None
    node: int | None = None
    """Who ended it."""
    asked: bool = False
    resets: int = 0


@dataclass
class Leased:
    """One claim."""

    node: int
    names: frozenset[int]
    heard: bool = True
    """Whether its node knows of it."""
    lapsed: bool = False


@dataclass
class Model:
    """All jobs and leases. Every method is what one commit does; it returns what its caller is told."""

    jobs: dict[int, Entry] = field(default_factory=dict)
    leases: dict[int, Leased] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    effects: set[int] = field(default_factory=set)
    """Jobs whose transactional handler committed."""

    def copy(self) -> Model:
        return Model(
            {id: replace(job) for id, job in self.jobs.items()},
            {token: replace(lease) for token, lease in self.leases.items()},
            set(self.paused),
            set(self.effects),
        )

    def live_key(self, key: str | None) -> Entry | None:
        """The job that holds this key."""
        return next((job for job in self.jobs.values() if job.key == key and key and job.location != "done"), None)

    def held(self, token: int) -> list[Entry]:
        """What is left of a lease."""
        return [job for job in self.jobs.values() if job.location == "lease" and job.token == token]

    def portrait(self) -> dict[str, Any]:
        """What the tables must say."""
        at: dict[str, set[Any]] = {"ready": set(), "later": set(), "lease": set(), "done": set()}
        for job in self.jobs.values():
            facts: tuple[Any, ...] = (job.id, job.used)
            at[job.location].add(
                {"lease": (*facts, job.token), "done": (*facts, job.state, job.node)}.get(job.location, facts)
            )
        return {
            **at,
            "jobs": set(self.jobs),
            "leases": {(token, lease.node, lease.lapsed, lease.names) for token, lease in self.leases.items()},
            "keys": {(job.key, job.id) for job in self.jobs.values() if job.key and job.location != "done"},
            "requests": {job.id for job in self.jobs.values() if job.asked and job.location != "done"},
            "resets": {(job.id, job.resets) for job in self.jobs.values() if job.resets},
            "paused": set(self.paused),
            "effects": sorted(self.effects),
        }

    # ---------------------------------------------------------------- a node

    def promote(self) -> None:
        """What is due may be claimed."""
        for job in self.jobs.values():
            if job.location == "later" and job.due:
                job.location, job.due = "ready", False

    def claim(self, node: int, token: int, ids: Collection[int], *, most: int, heard: bool = True) -> None:
        """These jobs are claimed; refuses those that could not be."""
        free = {job.id for job in self.jobs.values() if job.location == "ready" and job.queue not in self.paused}
        assert set(ids) <= free, f"claimed {sorted(ids)}, but only {sorted(free)} can be"
        assert 0 < len(ids) <= most, f"claimed {len(ids)} of {most}"
        for queue in {self.jobs[id].queue for id in ids}:
            best = max(self.jobs[id].priority for id in free if self.jobs[id].queue == queue)
            assert best in {self.jobs[id].priority for id in ids}, f"nothing of priority {best} was claimed"
        self.leases[token] = Leased(node, frozenset(ids), heard)
        for id in ids:
            job = self.jobs[id]
            job.location, job.token, job.used = "lease", token, job.used + 1

    def claimable(self) -> int:
        """How many could be claimed."""
        return sum(job.location == "ready" and job.queue not in self.paused for job in self.jobs.values())

    def ack(self, node: int, acks: Iterable[Ack], finished: Iterable[int]) -> dict[tuple[int, int], Outcome]:
        """Attempts ended so; those that are accepted, with what became of them."""
        accepted = {}
        for ack in acks:
            job = self.jobs.get(ack.job.id)
            if job is None:
                continue
            lease = self.leases.get(ack.job.token)
            if job.location == "lease" and job.token == ack.job.token and lease and lease.node == node:
                code = "s" if ack.outcome is Outcome.RELEASED and ack.delay else CODES[ack.outcome]
                fate = self._end(job, code, node)
                accepted[ack.job.token, job.id] = OUTCOMES[CODES[ack.outcome] if fate == code else fate]
            elif job.location == "done" and (job.node, job.used) == (node, ack.job.attempt):
                accepted[ack.job.token, job.id] = OUTCOMES[job.state or ""]  # said before; only the answer was lost
        for token in finished:
            if token in self.leases and self.leases[token].node == node:
                assert not self.held(token), f"lease {token} ended although it still holds {self.held(token)}"
                del self.leases[token]
        return accepted

    def _end(self, job: Entry, code: str, node: int) -> str:
        if code in "rsb" and job.asked:
            code = "c"
        elif code == "r" and job.used >= job.most:
            code = "f"
        if code in "dfc":
            self._over(job, code, node)
        else:
            job.location, job.token = "ready" if code == "b" else "later", None
            job.used -= code != "r"
        return code

    def _over(self, job: Entry, state: str, node: int | None) -> None:
        job.location, job.state, job.node, job.token, job.asked, job.due = "done", state, node, None, False, False

    def transact(self, node: int, token: int, id: int) -> bool:
        """A handler's transaction commits with its success, if the job is its own."""
        job = self.jobs.get(id)
        if job is None or job.location != "lease" or job.token != token:
            return False
        self._over(job, "d", node)
        self.effects.add(id)
        return True

    def heartbeat(self, node: int, tokens: Collection[int]) -> tuple[set[int], set[int]]:
        """Leases are renewed; those that are lost, and the jobs somebody wants cancelled."""
        kept = {token for token in tokens if token in self.leases and self.leases[token].node == node}
        for token in kept:
            self.leases[token].lapsed = False
        wanted = {job.id for token in kept for job in self.held(token) if job.asked}
        return set(tokens) - kept, wanted

    def release(self, node: int, tokens: Collection[int]) -> int:
        """What is left of leases is handed back, charging nothing."""
        mine = [token for token in tokens if token in self.leases and self.leases[token].node == node]
        return sum(sum(self._hand_back(token, charge=False)) for token in mine)

    def reset(self) -> tuple[int, int, int]:
        """Expired leases are taken back: leases, jobs that wait again, jobs that are over."""
        lapsed = [token for token, lease in self.leases.items() if lease.lapsed]
        ends = [self._hand_back(token, charge=True) for token in lapsed]
        return len(lapsed), sum(waits for waits, _ in ends), sum(over for _, over in ends)

    def _hand_back(self, token: int, *, charge: bool) -> tuple[int, int]:
        node, left = self.leases[token].node, self.held(token)
        for job in left:
            job.resets += charge
            if job.asked or (charge and job.used >= job.most):
                self._over(job, "c" if job.asked else "f", node)
            else:
                job.location, job.token, job.used = "ready", None, job.used - (not charge)
        del self.leases[token]
        over = sum(job.location == "done" for job in left)
        return len(left) - over, over

    # ---------------------------------------------------------------- people

    def cancel(self, ids: Iterable[int]) -> dict[int, str]:
        results = {}
        for id in sorted(set(ids)):
            job = self.jobs.get(id)
            if job is None or job.location == "done":
                results[id] = "unknown" if job is None else "over"
            elif job.location == "lease":
                job.asked, results[id] = True, "asked"
            else:
                self._over(job, "c", None)
                results[id] = "cancelled"
        return results

    def retry(self, ids: Iterable[int]) -> dict[int, str]:
        results = {}
        for id in sorted(set(ids)):
            job = self.jobs.get(id)
            if job is None or job.location != "done" or job.state == "d":
                results[id] = "unknown" if job is None else "live" if job.location != "done" else "done"
            elif holder := self.live_key(job.key):
                results[id] = f"key held by job {holder.id}"
            else:
                job.location, job.used, job.state, job.node, job.asked = "ready", 0, None, None, False
                results[id] = "queued"
        return results

    def delete(self, ids: Iterable[int]) -> dict[int, str]:
        results = {}
        for id in sorted(set(ids)):
            job = self.jobs.get(id)
            if job is None or job.location == "lease":
                results[id] = "unknown" if job is None else "running"
            elif job.state == "d" and any(id in lease.names for lease in self.leases.values()):
                results[id] = "fresh"
            else:
                del self.jobs[id]
                results[id] = "deleted"
        return results

    def prune(self) -> int:
        """What is over goes, but for what a lease still names: its outcome may be reported once more."""
        named = {id for lease in self.leases.values() for id in lease.names}
        over = [job.id for job in self.jobs.values() if job.location == "done" and job.id not in named]
        for id in over:
            del self.jobs[id]
        return len(over)

    def enqueue(self, made: Sequence[tuple[int, bool]], wanted: Sequence[Any]) -> None:
        """These were enqueued, under these ids; those that are not fresh found their key held."""
        for (id, fresh), job in zip(made, wanted, strict=True):
            holder = self.live_key(job.key)
            if fresh:
                assert holder is None, f"job {id} has the key of job {holder}"
                assert id not in self.jobs, f"job {id} was there before"
                location = "later" if job.delay else "ready"
                self.jobs[id] = Entry(id, job.queue, job.priority, job.key, job.max_attempts, location)
            else:
                assert holder is not None, f"job {id} was taken for one with the key {job.key}"
                assert holder.id == id, f"job {id} was taken for job {holder.id}, which has the key {job.key}"
