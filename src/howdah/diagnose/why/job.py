"""The gates of a job, by its state: waiting, running, finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from howdah.diagnose.finding import Gate, count, line, moment, some, span, until
from howdah.diagnose.why.facts import ClaimFacts, HeldKind, JobFacts, NodeFacts, is_live, total
from howdah.jobs.wakeup import DEAF_POLL
from howdah.version import __version__

MOST_RUNS = 10_000
"""Largest number of runs ahead of a job that are read."""
SHOWN = 5
"""Largest number of nodes named in one fact."""
Passed = tuple[Gate | None, list[NodeFacts]]


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


# ---------------------------------------------------------------- the nodes that could claim it


def node_gate(scene: ClaimFacts) -> Gate:
    """A live node serves the queue, has the labels and the task."""
    job, able = scene.job, scene.able
    if able:
        return Gate("node", True, f"{_names(able)} takes queue {job.queue!r} and task {job.kind!r}")
    base, *labels = job.queue.split("+")
    start = f"start a worker: howdah worker -a module:app -q {base}{''.join(f' --label {each}' for each in labels)}"
    live = [node for node in scene.nodes if node.live]
    if live:
        said = "; ".join(f"{node} {' and '.join(node.lacks(job.queue, job.kind))}" for node in live[:SHOWN])
        return Gate("node", False, f"no live node takes it: {said}{_more(live)}", f"{start}, with task {job.kind!r}")
    silent = "; ".join(f"{node} has been silent for {span(node.silent)}" for node in scene.nodes[:SHOWN])
    return Gate("node", False, f"no node lives{': ' + silent if silent else ''}{_more(scene.nodes)}", start)


def node_gates(scene: ClaimFacts) -> tuple[list[Gate], list[NodeFacts]]:
    """Return the gates hold, slots and limit, in this order, and the nodes that are left after them.

    A job runs when one node passes all of them. Each gate is asked of the nodes that passed the gates before it, or, if
    none did, of those that came as far: what would block the job after that is shown as well.
    """
    left = scene.able
    gates = []
    for gate in (_hold, _slots, _limit):
        made, passed = gate(scene, left)
        gates.append(made)
        left = passed or left
    return [gate for gate in gates if gate is not None], left


def _hold(scene: ClaimFacts, nodes: Sequence[NodeFacts]) -> Passed:
    """A kind may be left alone for a while, by every node."""
    job = scene.job
    if job.held_until is None:
        return None, list(nodes)
    fact = f"nodes leave {job.kind!r} alone until {until(job.held_until, job.now)}: {line(job.held_for)}"
    return Gate("hold", False, fact, "wait; what it needs answered that it was asked too often"), []


def _slots(scene: ClaimFacts, nodes: Sequence[NodeFacts]) -> Passed:
    """A node claims while it has a free slot."""
    if not nodes:
        return None, []
    passed = [node for node in nodes if scene.free(node) > 0]
    if passed:
        return Gate(
            "slots", True, _each(passed, lambda node: f"{scene.free(node)} of {node.slots} free on {node}")
        ), passed
    fact = _each(nodes, lambda node: f"all {node.slots} slots of {node} are taken{_by(scene, node)}")
    return Gate("slots", False, fact, "wait, start another worker, or give it more slots: howdah worker -c N"), []


def _limit(scene: ClaimFacts, nodes: Sequence[NodeFacts]) -> Passed:
    """A node takes no more of a queue than it was told."""
    queue = scene.job.queue
    if not any(queue in node.limits for node in nodes):
        return None, list(nodes)
    passed = [node for node in nodes if (room := scene.room(node)) is None or room > 0]
    if passed:
        return Gate("limit", True, _each(passed, lambda node: _used(scene, node))), passed
    held = [each for node in nodes for each in scene.holds(node, queue)]
    fact = f"{_each(nodes, lambda node: _used(scene, node))}{_jobs(held)}"
    return Gate("limit", False, fact, f"wait, start another worker, or raise the limit: howdah worker -q {queue}:N"), []


def wake_gate(nodes: Sequence[NodeFacts]) -> Gate | None:
    """Return how a node learns of a job; this delays a job, but never blocks it."""
    if not nodes:
        return None
    hearing = [node for node in nodes if not node.deaf]
    if hearing:
        return Gate("wake", True, f"wake-ups arrive at {_names(hearing)}")
    fact = _each(nodes, lambda node: f"{node} hears no wake-ups and looks {_every(node)}")
    return Gate("wake", True, fact, "let nodes connect without a pooler; `howdah doctor` tries notifications")


def _every(node: NodeFacts) -> str:
    return "now and then" if node.poll is None else f"every {min(node.poll, DEAF_POLL):g} s"


def _used(scene: ClaimFacts, node: NodeFacts) -> str:
    queue = scene.job.queue
    if queue not in node.limits:
        return f"{node} has no limit for queue {queue!r}"
    held = total(scene.holds(node, queue))
    return f"{node} runs {held:,} of at most {count(node.limits[queue], 'job')} of queue {queue!r}"


def _by(scene: ClaimFacts, node: NodeFacts) -> str:
    held = scene.holds(node)
    beside = f"{', and ' if held else ', '}{node.beside} of them by table rows or costly jobs" if node.beside else ""
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
