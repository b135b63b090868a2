"""The gates of the nodes: which of them could claim a job, and what prevents each.

A job runs when one node passes all of these. Each gate is therefore asked of the nodes that passed those before it, or,
when none did, of those that came as far: what is in the way after that is worth knowing, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from howdah.diagnose.doctor.finding import some, span
from howdah.diagnose.why.facts import ClaimFacts, HeldKind, NodeFacts, total
from howdah.diagnose.why.gate import Gate, count, line, moment, until
from howdah.jobs.wakeup import DEAF_POLL

SHOWN = 5
"""Largest number of nodes named in one fact."""


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
    """Hold, slots and limit, in this order; and the nodes that are left after them."""
    left = scene.able
    gates = []
    for gate in (_hold, _slots, _limit):
        made, passed = gate(scene, left)
        gates.append(made)
        left = passed or left
    return [gate for gate in gates if gate is not None], left


Passed = tuple[Gate | None, list[NodeFacts]]


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
