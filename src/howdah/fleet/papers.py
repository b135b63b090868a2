"""Papers: what a worker says of itself when it registers, checked against what its token allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from howdah.errors import ConfigError
from howdah.fleet import messages as m
from howdah.fleet.door import Caller
from howdah.fleet.refusal import Refused, bad
from howdah.handler import check_name
from howdah.jobs.labels import check_label, expand, labels_of


def check_registration(caller: Caller, body: m.Register, apart: Mapping[str, str]) -> list[str] | None:
    """Refuse what cannot be, with the field named; the queues the worker may serve (``None``: all).

    ``apart``: what needs a node with the database, and why.
    """
    _check("hostname", check_name, "hostname", body.hostname)
    _check("version", check_name, "version", body.version or "-")
    for kind in body.kinds:
        _check("kinds", check_name, "kind", kind)
    for label in body.labels:
        _check("labels", check_label, label)
    _check_offered("kinds", body.kinds, apart)
    _check_offered("tables", body.tables, apart)
    queues = _allowed(body.queues, caller)
    if queues is not None:
        named = (label for queue in queues for label in labels_of(queue))
        _check("labels", expand, queues, {*body.labels, *named})
    return queues


def _check_offered(field: str, names: Sequence[str], apart: Mapping[str, str]) -> None:
    for name in names:
        if name in apart:
            raise bad(f"{name!r} is not offered over HTTP, only to nodes with the database: {apart[name]}", field)


def _allowed(wanted: list[str] | None, caller: Caller) -> list[str] | None:
    """What it wants, within what its token allows."""
    for queue in wanted or ():
        _check("queues", check_name, "queue", queue)
        for label in labels_of(queue):
            _check("queues", check_label, label)
    if wanted is None:
        return list(caller.queues) if caller.queues is not None else None
    if refused := [queue for queue in wanted if not caller.sees(queue)]:
        raise Refused(403, "FORBIDDEN", f"the token is not good for queue {refused[0]!r}", field="queues")
    return wanted


def _check(field: str, check: Any, *values: Any) -> None:
    try:
        check(*values)
    except ConfigError as error:
        raise bad(str(error), field) from None
