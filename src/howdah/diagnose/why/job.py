"""The gates of a job, by its state: waiting, running, finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from howdah.diagnose.finding import Gate, count, end_transaction, line, moment, some, span, until
from howdah.diagnose.why.facts import ClaimFacts, HeldKind, JobFacts, NodeFacts, is_live, total
from howdah.jobs.wakeup import DEAF_POLL
from howdah.version import __version__

MOST_RUNS = 10_000
"""Largest number of runs ahead of a job that are read."""
SHOWN = 5
"""Largest number of nodes named in one fact."""
Passed = tuple[Gate | None, list[NodeFacts]]


def finished(job: JobFacts) -> list[Gate]:
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
    return [*gates, Gate("key", False, held, f"wait until that job has finished, or `howdah cancel {job.key_holder}`")]


def running(job: JobFacts) -> list[Gate]:
    """Return the gates of a job that a node holds."""
    assert job.started_at is not None
    fact = (
        f"it is running{job.where} since {until(job.started_at, job.now)}, attempt {job.attempt} of {job.max_attempts}"
    )
    gates = [_lease(job, fact)]
    if job.asked_at is not None:
        fact = (
            f"a cancel was requested {until(job.asked_at, job.now)}; its node gets the request with its next heartbeat"
        )
        gates.append(Gate("cancel", False, fact))
    return gates


def _lease(job: JobFacts, fact: str) -> Gate:
    assert job.expires_at is not None
    lease = f"its lease lasts until {until(job.expires_at, job.now)}"
    if job.expires_at < job.now:
        expired = f"{fact}; its lease expired {until(job.expires_at, job.now)}, and no node has reset it"
        return Gate("lease", False, expired, "start a worker: its maintenance loop returns the job to the queue")
    if job.silent is None or job.node_state == "offline":
        return Gate("lease", False, f"{fact}; that node is offline; {lease}, then the job returns to its queue")
    if not is_live(job.silent, remote=bool(job.remote)):
        silent = f"that node has sent no heartbeat for {span(job.silent)}"
        return Gate("lease", False, f"{fact}; {silent}; {lease}, then the job returns to its queue")
    draining = " and is draining" if job.node_state == "draining" else ""
    return Gate("lease", False, f"{fact}; that node sent a heartbeat {span(job.silent)} ago{draining}; {lease}")


def nowhere() -> list[Gate]:
    """Return the gates of a job in no place, which is a bug."""
    fix = "run a worker: it queues such jobs again; report this with the output of `howdah doctor`"
    return [Gate("place", False, "it is neither queued nor running nor finished, which is a bug", fix)]


def waiting(facts: ClaimFacts, version: int) -> Iterator[Gate]:
    """Return the gates of a waiting job, in the order of a claim."""
    yield _schema(version, facts.nodes)
    yield node_gate(facts)
    gates, left = node_gates(facts)
    yield from gates
    yield _due(facts.job)
    yield _pause(facts.job)
    if facts.job.due:
        yield _turn(facts, left)
    yield _lock(facts)
    if facts.job.asked_at is not None:
        requested = until(facts.job.asked_at, facts.job.now)
        yield Gate("cancel", True, f"a cancel was requested {requested}; it takes effect when a node claims the job")
    if wake := wake_gate(left):
        yield wake


def _schema(version: int, nodes: Sequence[NodeFacts]) -> Gate:
    others = [node for node in nodes if node.live and node.version != __version__]
    if not others:
        return Gate("schema", True, f"the schema is at version {version}, which this code needs")
    said = some([f"{node} is {node.version or 'unknown'}" for node in others], 3)
    return Gate(
        "schema", True, f"nodes of another version claim jobs: {said}; this is {__version__}", "finish the deployment"
    )


def _due(job: JobFacts) -> Gate:
    if job.due:
        return Gate("due", True, f"{_due_since(job)}{_last_attempt(job, '; ')}")
    if job.last_outcome == "retry" and job.last_error:
        return Gate(
            "retry", False, f"it waits for a retry until {until(job.run_at, job.now)}{_last_attempt(job, ': ')}"
        )
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


def _turn(facts: ClaimFacts, nodes: list[NodeFacts]) -> Gate:
    """Return whether the next claim of one of these nodes comes as far as this job."""
    passed = [node for node in nodes if sum(facts.before(node.kinds)) < max(1, _reach(facts, node))]
    seen = passed[0] if passed else nodes[0] if nodes else None
    higher, earlier = facts.before(seen.kinds if seen else None)
    more = "more than " if any(each.runs >= MOST_RUNS for each in facts.ahead) else ""
    behind = (
        f"behind {more}{count(higher + earlier, 'job')}: {higher:,} of higher priority, {earlier:,} that came earlier"
    )
    if passed or higher + earlier == 0:
        return Gate("turn", True, behind if higher + earlier else "it is the next job of its queue")
    return Gate("turn", False, behind, f"wait, start another worker, or howdah reprioritize --to N {facts.job.id}")


def _reach(facts: ClaimFacts, node: NodeFacts) -> int:
    room = facts.room(node)
    return facts.free(node) if room is None else min(room, facts.free(node))


def _lock(facts: ClaimFacts) -> Gate:
    locker = facts.locker
    if locker is None:
        return Gate("lock", True, "no transaction has locked its row in the queue")
    fact = f"{locker} has locked its row in the queue, in a transaction that has been open for {span(locker.age)}"
    fix = end_transaction(locker.pid, locker.prepared)
    return Gate("lock", False, fact, fix)


# ---------------------------------------------------------------- the nodes that could claim it


def node_gate(facts: ClaimFacts) -> Gate:
    """Check that a live node serves the queue, and has the labels and the task."""
    job, able = facts.job, facts.able
    if able:
        return Gate("node", True, f"{_names(able)} serves queue {job.queue!r} and has task {job.kind!r}")
    base, *labels = job.queue.split("+")
    start = f"start a worker: howdah worker -a module:app -q {base}{''.join(f' --label {each}' for each in labels)}"
    live = [node for node in facts.nodes if node.live]
    if live:
        said = "; ".join(f"{node} {' and '.join(node.lacks(job.queue, job.kind))}" for node in live[:SHOWN])
        return Gate(
            "node",
            False,
            f"no live node can run it: {said}{_more(live)}",
            f"{start}, with an app that has task {job.kind!r}",
        )
    silent = "; ".join(f"{node} has sent no heartbeat for {span(node.silent)}" for node in facts.nodes[:SHOWN])
    return Gate("node", False, f"no node is live{': ' + silent if silent else ''}{_more(facts.nodes)}", start)


def node_gates(facts: ClaimFacts) -> tuple[list[Gate], list[NodeFacts]]:
    """Return the gates hold, slots and limit, in this order, and the nodes that are left after them.

    A job runs when one node passes all of them. Each gate is asked of the nodes that passed the gates before it, or, if
    none did, of those that came as far: what would block the job after that is shown as well.
    """
    left = facts.able
    gates = []
    for gate in (_hold, _slots, _limit):
        made, passed = gate(facts, left)
        gates.append(made)
        left = passed or left
    return [gate for gate in gates if gate is not None], left


def _hold(facts: ClaimFacts, nodes: Sequence[NodeFacts]) -> Passed:
    """Check that no hold keeps nodes from claiming this kind."""
    job = facts.job
    if job.held_until is None:
        return None, list(nodes)
    fact = f"no node claims jobs of kind {job.kind!r} until {until(job.held_until, job.now)}: {line(job.held_for)}"
    return Gate("hold", False, fact, "wait; a system that this task uses reported a rate limit"), []


def _slots(facts: ClaimFacts, nodes: Sequence[NodeFacts]) -> Passed:
    """Check that a node has a free slot."""
    if not nodes:
        return None, []
    passed = [node for node in nodes if facts.free(node) > 0]
    if passed:
        return Gate(
            "slots", True, _each(passed, lambda node: f"{facts.free(node)} of {node.slots} free on {node}")
        ), passed
    fact = _each(nodes, lambda node: f"all {node.slots} slots of {node} are taken{_by(facts, node)}")
    return Gate("slots", False, fact, "wait, start another worker, or give it more slots: howdah worker -c N"), []


def _limit(facts: ClaimFacts, nodes: Sequence[NodeFacts]) -> Passed:
    """Check the limits of nodes for this queue (``-q mail:10``)."""
    queue = facts.job.queue
    if not any(queue in node.limits for node in nodes):
        return None, list(nodes)
    passed = [node for node in nodes if (room := facts.room(node)) is None or room > 0]
    if passed:
        return Gate("limit", True, _each(passed, lambda node: _used(facts, node))), passed
    held = [each for node in nodes for each in facts.holds(node, queue)]
    fact = f"{_each(nodes, lambda node: _used(facts, node))}{_jobs(held)}"
    return Gate("limit", False, fact, f"wait, start another worker, or raise the limit: howdah worker -q {queue}:N"), []


def wake_gate(nodes: Sequence[NodeFacts]) -> Gate | None:
    """Return how a node learns of a job; this delays a job, but never blocks it."""
    if not nodes:
        return None
    woken = [node for node in nodes if not node.deaf]
    if woken:
        return Gate("wake", True, f"wake-ups arrive at {_names(woken)}")
    fact = _each(nodes, lambda node: f"{node} receives no wake-ups and polls{_every(node)}")
    return Gate("wake", True, fact, "connect nodes without a transaction pooler; `howdah doctor` tests notifications")


def _every(node: NodeFacts) -> str:
    return "" if node.poll is None else f" every {min(node.poll, DEAF_POLL):g} s"


def _used(facts: ClaimFacts, node: NodeFacts) -> str:
    queue = facts.job.queue
    if queue not in node.limits:
        return f"{node} has no limit for queue {queue!r}"
    held = total(facts.holds(node, queue))
    return f"{node} runs {held:,} of at most {count(node.limits[queue], 'job')} of queue {queue!r}"


def _by(facts: ClaimFacts, node: NodeFacts) -> str:
    held = facts.holds(node)
    beside = (
        f"{', and ' if held else ', '}{node.beside} of them by table rows or by jobs with a cost above 1"
        if node.beside
        else ""
    )
    return f"{_jobs(held)}{beside}"


def _jobs(held: Sequence[HeldKind]) -> str:
    if not held:
        return ""
    ids = sorted(id for each in held for id in each.ids)
    more = total(held) - min(len(ids), SHOWN)
    shown = some(ids[:SHOWN]) + (f" and {more:,} more" if more else "")
    return (
        f" by job{'s' if total(held) > 1 else ''} {shown}, the first since {moment(min(each.since for each in held))}"
    )


def _names(nodes: Sequence[NodeFacts]) -> str:
    return some(nodes, 2)


def _each(nodes: Sequence[NodeFacts], say: Callable[[NodeFacts], str]) -> str:
    return "; ".join(map(say, nodes[:SHOWN])) + _more(nodes)


def _more(nodes: Sequence[NodeFacts]) -> str:
    return f"; and {len(nodes) - SHOWN} more nodes" if len(nodes) > SHOWN else ""
