"""The gates of a job, by its state: waiting, running, finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from howdah.diagnose.doctor.finding import some, span
from howdah.diagnose.why.facts import ClaimFacts, JobFacts, NodeFacts, is_live
from howdah.diagnose.why.gate import Gate, count, line, until
from howdah.diagnose.why.nodes import node_gate, node_gates, wake_gate
from howdah.version import __version__

MOST_RUNS = 10_000
"""Largest number of runs ahead of a job that are read."""


def over(job: JobFacts) -> list[Gate]:
    """Return the gates of a finished job."""
    assert job.finished_at is not None
    ended = f"it is {job.state} since {until(job.finished_at, job.now)}{job.where}"
    fact = f"{ended}, attempt {job.attempt} of {job.max_attempts}"
    if job.state == "done":
        return [Gate("over", False, fact)]
    gates = [Gate("over", False, f"{fact}: {line(job.error)}", f"howdah retry {job.id}")]
    if job.key is None:
        return gates
    if job.key_holder is None:
        return [*gates, Gate("key", True, f"no other job has its key {line(job.key)!r}")]
    held = f"its key {line(job.key)!r} is held by job {job.key_holder}, so it cannot be retried"
    return [*gates, Gate("key", False, held, f"wait until that is over, or `howdah cancel {job.key_holder}`")]


def running(job: JobFacts) -> list[Gate]:
    """Return the gates of a job that a node holds."""
    assert job.started_at is not None
    fact = f"it runs{job.where} since {until(job.started_at, job.now)}, attempt {job.attempt} of {job.max_attempts}"
    gates = [_lease(job, fact)]
    if job.asked_at is not None:
        wish = f"it was asked to cancel {until(job.asked_at, job.now)}; its node hears of it by the next heartbeat"
        gates.append(Gate("cancel", False, wish))
    return gates


def _lease(job: JobFacts, fact: str) -> Gate:
    assert job.expires_at is not None
    lease = f"its lease lasts until {until(job.expires_at, job.now)}"
    if job.expires_at < job.now:
        taken = f"{fact}; its lease ended {until(job.expires_at, job.now)} and it has not been reset"
        return Gate("lease", False, taken, "start a worker: its upkeep returns the job to its queue")
    if job.silent is None or job.node_state == "offline":
        return Gate("lease", False, f"{fact}; that node is offline, {lease} and then the job goes back to its queue")
    if not is_live(job.silent, remote=bool(job.remote)):
        beat = f"that node has been silent for {span(job.silent)}"
        return Gate("lease", False, f"{fact}; {beat}, {lease} and then the job goes back to its queue")
    drains = " and drains" if job.node_state == "draining" else ""
    return Gate("lease", False, f"{fact}; that node beat {span(job.silent)} ago{drains}, {lease}")


def nowhere() -> list[Gate]:
    """Return the gates of a job in no place, which is a bug."""
    return [Gate("place", False, "it is in no place where a job can be", "howdah doctor; then report what it says")]


def waiting(scene: ClaimFacts, version: int) -> Iterator[Gate]:
    """Return the gates of a waiting job, in the order of a claim."""
    yield _schema(version, scene.nodes)
    yield node_gate(scene)
    gates, left = node_gates(scene)
    yield from gates
    yield _due(scene.job)
    yield _pause(scene.job)
    if scene.job.due:
        yield _turn(scene, left)
    yield _lock(scene)
    if scene.job.asked_at is not None:
        wish = f"it was asked to cancel {until(scene.job.asked_at, scene.job.now)}, and is as soon as it is claimed"
        yield Gate("cancel", True, wish)
    if wake := wake_gate(left):
        yield wake


def _schema(version: int, nodes: Sequence[NodeFacts]) -> Gate:
    others = [node for node in nodes if node.live and node.version != __version__]
    if not others:
        return Gate("schema", True, f"the schema is at version {version}, as this code needs it")
    said = some([f"{node} is {node.version or 'unknown'}" for node in others], 3)
    return Gate(
        "schema", True, f"nodes of another version take jobs: {said}, this is {__version__}", "finish the roll-out"
    )


def _due(job: JobFacts) -> Gate:
    if job.due:
        return Gate("due", True, f"{_due_since(job)}{_last_attempt(job, '; ')}")
    if job.last_outcome == "retry" and job.last_error:
        return Gate("retry", False, f"it waits for a retry until {until(job.run_at, job.now)}{_last_attempt(job, ': ')}")
    return Gate("due", False, f"it is not due until {until(job.run_at, job.now)}")


def _due_since(job: JobFacts) -> str:
    if job.run_at > job.now:  # cancelled before its time and retried: a retry queues a job at once
        return f"it is due now: it was retried before {until(job.run_at, job.now)}"
    return f"it is due since {until(job.run_at, job.now)}"


def _last_attempt(job: JobFacts, separator: str) -> str:
    if not job.last_error:
        return ""
    if not job.attempt:  # `howdah retry` starts the count again
        return f"{separator}no attempt is used; the one before ended with {line(job.last_error)}"
    return f"{separator}attempt {job.attempt} of {job.max_attempts} ended with {line(job.last_error)}"


def _pause(job: JobFacts) -> Gate:
    if not job.paused:
        return Gate("pause", True, f"queue {job.queue!r} is not paused")
    by = f" by {line(job.paused_by)}" if job.paused_by else ""
    since = f" since {until(job.paused_at, job.now)}" if job.paused_at else ""
    return Gate("pause", False, f"queue {job.queue!r} is paused{by}{since}", f"howdah resume {job.queue}")


def _turn(scene: ClaimFacts, nodes: list[NodeFacts]) -> Gate:
    """Return whether the next claim of one of these nodes comes as far as this job."""
    passed = [node for node in nodes if sum(scene.before(node.kinds)) < max(1, _reach(scene, node))]
    seen = passed[0] if passed else nodes[0] if nodes else None
    higher, earlier = scene.before(seen.kinds if seen else None)
    more = "more than " if any(each.runs >= MOST_RUNS for each in scene.ahead) else ""
    behind = (
        f"behind {more}{count(higher + earlier, 'job')}: {higher:,} of higher priority, {earlier:,} that came earlier"
    )
    if passed or higher + earlier == 0:
        return Gate("turn", True, behind if higher + earlier else "it is the next of its queue")
    return Gate("turn", False, behind, f"wait, start another worker, or howdah reprioritize --to N {scene.job.id}")


def _reach(scene: ClaimFacts, node: NodeFacts) -> int:
    room = scene.room(node)
    return scene.free(node) if room is None else min(room, scene.free(node))


def _lock(scene: ClaimFacts) -> Gate:
    locker = scene.locker
    if locker is None:
        return Gate("lock", True, "no transaction has locked its place in the queue")
    fact = f"{locker} has locked its place in the queue, in a transaction open for {span(locker.age)}"
    fix = (
        "commit prepared or rollback prepared"
        if locker.prepared
        else f"end it, or select pg_terminate_backend({locker.pid})"
    )
    return Gate("lock", False, fact, fix)
