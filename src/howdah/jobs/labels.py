"""Labels: what a job requires of the node that runs it.

Jobs that require labels wait in a queue of their own, ``builds+gpu``, so that claims of other nodes do not scan them
and their number is visible. A node serves the queues whose labels it has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations

from howdah.errors import ConfigError
from howdah.handler import check_label

MOST = 6
"""Labels of one node that are combined into queue names, when its queues are named."""


def queue_for(queue: str, requires: Iterable[str]) -> str:
    """Return the queue in which a job waits.

    >>> queue_for("builds", ["gpu", "amd64"]), queue_for("builds", [])
    ('builds+amd64+gpu', 'builds')
    """
    labels = sorted(set(requires))
    for label in labels:
        check_label(label)
    return "+".join([queue, *labels])


def labels_of(queue: str) -> list[str]:
    """Return the labels in the name of a queue."""
    return queue.split("+")[1:]


def serves(queue: str, labels: Collection[str]) -> bool:
    """Return whether a node with these labels may claim from a queue.

    >>> serves("builds+gpu", {"gpu", "arm64"}), serves("builds+gpu", set()), serves("builds", set())
    (True, False, True)
    """
    return all(label in labels for label in labels_of(queue))


def had(queues: Sequence[str] | None, labels: Iterable[str]) -> frozenset[str]:
    """Return all labels of a node: its own, and those in the names of its queues."""
    return frozenset(labels).union(*map(labels_of, queues or ()))


def takes(queue: str, queues: Sequence[str] | None, labels: Collection[str]) -> bool:
    """Return whether a node with these queues and labels claims from a queue.

    >>> takes("builds+gpu", ["builds"], ["gpu"]), takes("builds+gpu", ["mail"], ["gpu"]), takes("mail", None, [])
    (True, False, True)
    """
    all_labels = had(queues, labels)
    if queues is None:
        return serves(queue, all_labels)
    return len(all_labels) <= MOST and queue in expand(queues, all_labels)


def expand(queues: Sequence[str], labels: Collection[str]) -> list[str]:
    """Return every queue served by a node that names these queues.

    >>> expand(["builds"], {"gpu", "arm64"})
    ['builds', 'builds+arm64', 'builds+gpu', 'builds+arm64+gpu']
    """
    if len(labels) > MOST:
        raise ConfigError(f"a node that names its queues may have {MOST} labels, got {len(labels)}; leave queues out")
    sets = [each for size in range(len(labels) + 1) for each in combinations(sorted(labels), size)]
    return list(dict.fromkeys(queue_for(queue, each) for queue in queues for each in sets))
