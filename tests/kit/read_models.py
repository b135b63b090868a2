"""A load of events, and whether the read models of :mod:`kit.consumer_processes` are the fold of the log."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from typing import Any

from howdah import Howdah

SCOPES: dict[str, tuple[tuple[str, ...] | None, tuple[str, ...] | None]] = {
    "everything": (None, None),
    "balances": (("Account",), None),
    "deposits": (None, ("Deposited",)),
    "streams": (None, None),
    "letters": (("Order",), None),
    "closings": (None, ("Closed",)),
}
"""Types of streams and of events, by consumer."""


def happening(chance: random.Random) -> tuple[str, list[dict[str, Any]]]:
    """A stream and what happens to it."""
    kind = chance.choice(["Account", "Account", "Order", "Visit"])
    stream = f"{kind}-{chance.randrange({'Account': 20, 'Order': 12, 'Visit': 4}[kind])}"
    names = {"Account": ["Deposited", "Withdrawn"], "Order": ["Placed", "Closed"], "Visit": ["Began", "Deposited"]}
    return stream, [
        {"type": chance.choice(names[kind]), "data": {"amount": chance.randrange(1, 100)}}
        for _ in range(chance.randrange(1, 5))
    ]


async def append(app: Howdah, conn: Any, stop: asyncio.Event, *, seed: int, rest: float) -> None:
    """Append until told to stop; some transactions stay open for a while, some are rolled back."""
    chance = random.Random(seed)
    while not stop.is_set():
        transaction = conn.transaction()
        await transaction.start()
        stream, events = happening(chance)
        await app.log.append(stream, events, conn=conn)
        if chance.random() < 0.2:
            await asyncio.sleep(chance.random() * 0.02)
        await (transaction.rollback() if chance.random() < 0.1 else transaction.commit())
        await asyncio.sleep(chance.random() * 2 * rest)


async def faults(conn: Any) -> list[str]:
    """All that is wrong with the read models, now that everybody is said to be done."""
    log = await conn.fetch(
        "select position, stream_type, stream_type || '-' || stream_id as stream, version, type, data from howdah.event"
        " order by position"
    )
    wrong: list[str] = []
    for consumer, (only, types) in SCOPES.items():
        wanted = {
            row["position"]: row
            for row in log
            if (only is None or row["stream_type"] in only) and (types is None or row["type"] in types)
        }
        seen = [
            row["position"]
            for row in await conn.fetch("select position from seen where consumer = $1 order by id", consumer)
        ]
        wrong += _compare(consumer, wanted, seen)
    for table, fold, rows in (
        ("balance", _balances(log), "select stream, amount, version from balance"),
        ("deposit", _deposits(log), "select times, amount from deposit"),
        ("stream", _streams(log), "select stream, times, version, jumps from stream"),
        ("letter", _letters(log), "select n, count(*) from letter group by n"),
    ):
        if {tuple(row) for row in await conn.fetch(rows)} != fold:
            wrong.append(f"the read model {table} is not the fold of the log")
    return wrong


def _compare(consumer: str, wanted: dict[int, Any], seen: list[int]) -> list[str]:
    wrong = []
    times = Counter(seen)
    if doubled := [position for position, count in times.items() if count > 1]:
        wrong.append(f"{consumer} applied {len(doubled)} events more than once")
    if missing := wanted.keys() - times.keys():
        wrong.append(f"{consumer} missed {len(missing)} events")
    if strange := times.keys() - wanted.keys():
        wrong.append(f"{consumer} applied {len(strange)} events it did not ask for")
    order = defaultdict(list)
    for position in seen:
        if position in wanted:
            order[wanted[position]["stream"]].append(position)
    if mixed := [stream for stream, positions in order.items() if positions != sorted(positions)]:
        wrong.append(f"{consumer} applied {len(mixed)} streams out of order")
    return wrong


def _amount(row: Any) -> int:
    data: Any = json.loads(row["data"])
    return int(data["amount"]) if row["type"] == "Deposited" else -int(data.get("amount", 0))


def _balances(log: list[Any]) -> set[tuple[Any, ...]]:
    amount: Counter[str] = Counter()
    version = {}
    for row in log:
        if row["stream_type"] == "Account":
            amount[row["stream"]] += _amount(row)
            version[row["stream"]] = row["version"]
    return {(stream, amount[stream], last) for stream, last in version.items()}


def _deposits(log: list[Any]) -> set[tuple[Any, ...]]:
    amounts = [_amount(row) for row in log if row["type"] == "Deposited"]
    return {(len(amounts), sum(amounts))}


def _streams(log: list[Any]) -> set[tuple[Any, ...]]:
    times = Counter(row["stream"] for row in log)
    return {(stream, count, count, 0) for stream, count in times.items()}


def _letters(log: list[Any]) -> set[tuple[Any, ...]]:
    return {(row["position"], 1) for row in log if row["stream_type"] == "Order" and row["version"] % 3 == 1}
