"""Lines about consumers: which telemetry of theirs is logged, how loud, and with what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from howdah.scrub import describe

log = logging.getLogger("howdah")

MOST_NAMED = 10
STOPPED = {"stopped": logging.DEBUG, "halted": logging.DEBUG, "no longer ours": logging.INFO}
"""How loud the end of a consumer here is; a halt has a line of its own."""


def say(name: str, facts: dict[str, Any], wants_more: Callable[[], bool]) -> None:
    """Log one telemetry event about consumers or their leader; failures only while there is room for more."""
    match name:
        case "consumer.start":
            log.info("consumer %s starts here after position %d", _name(facts), facts["position"], extra=facts)
        case "consumer.stop":
            level = STOPPED.get(facts["reason"], logging.WARNING)
            log.log(level, "consumer %s ends here: %s", _name(facts), facts["reason"], extra=facts)
        case "consumer.fail":
            if wants_more():
                _fail(facts)
        case "consumer.halt":
            _halt(facts)  # at most once a consumer until somebody acts
        case "consumer.park":
            if wants_more():
                _park(facts)
        case "consumer.assign":
            _assign(facts["moves"], facts["unassigned"])
        case "leader.gain":
            log.info("this node leads: it says which node consumes what")
        case "leader.lose":
            log.info("this node leads no more")


def _fail(facts: dict[str, Any]) -> None:
    error, extra = _error(facts)
    delay = facts.get("delay")
    text = "consumer %s failed at position %d, failure %d in a row: %s%s"
    again = "" if delay is None else f"; next try in {delay:.1f} s"
    log.warning(text, _name(facts), facts["position"], facts["failures"], error, again, extra=extra)


def _halt(facts: dict[str, Any]) -> None:
    error, extra = _error(facts)
    consumer = facts["consumer"]
    log.error(
        "consumer %s is HALTED at position %d after %d failures: %s; mend it and `howdah consumers resume %s`,"
        " or leave this event out with `howdah consumers skip %s`",
        _name(facts),
        facts["position"],
        facts["failures"],
        error,
        consumer,
        consumer,
        extra=extra,
        exc_info=facts["error"],
    )


def _park(facts: dict[str, Any]) -> None:
    error, extra = _error(facts)
    text = "consumer %s PARKED the event at position %d: %s; it goes on; `howdah consumers parked list %s` shows them"
    log.error(text, _name(facts), facts["position"], error, facts["consumer"], extra=extra)


def _assign(moves: int, unassigned: list[str]) -> None:
    if moves:
        log.info("consumers were assigned: %d moves", moves, extra={"moves": moves})
    if unassigned:
        named = ", ".join(unassigned[:MOST_NAMED]) + (", …" if len(unassigned) > MOST_NAMED else "")
        log.warning(
            "no live node has the consumers %s; start a worker that does, or `howdah consumers forget` them",
            named,
            extra={"unassigned": named},
        )
    elif not moves:
        log.info("every consumer has a node again")


def _error(facts: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kind, message, _ = describe(facts["error"])
    return f"{kind}: {message}" if message else kind, {**facts, "error": kind}


def _name(facts: dict[str, Any]) -> str:
    return f"{facts['consumer']}#{facts['part']}" if facts["part"] else str(facts["consumer"])
