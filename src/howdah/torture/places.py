"""Places: the servers a run can take place on, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from howdah.torture.servers.cluster import Cluster
from howdah.torture.servers.pooled import Pooled, PooledByTransaction
from howdah.torture.servers.single import Single
from howdah.torture.servers.small import SmallLog, SmallTables

PLACES: dict[str, Callable[[], Any]] = {
    "single": Single,
    "cluster": Cluster,
    "small-tables": SmallTables,
    "small-log": SmallLog,
    "pooled-session": Pooled,
    "pooled-transaction": PooledByTransaction,
}
