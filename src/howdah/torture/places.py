"""Places: the servers a run can take place on, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from howdah.torture.servers.cluster import Cluster
from howdah.torture.servers.pooled import Pooled, PooledByTransaction
from howdah.torture.servers.single import Single, Unflushed
from howdah.torture.servers.small import SmallLog, SmallTables
from howdah.torture.servers.standby import AsynchronouslyReplicated, SynchronouslyReplicated

PLACES: dict[str, Callable[[], Any]] = {
    "single": Single,
    "unflushed": Unflushed,
    "cluster": Cluster,
    "replicated-sync": SynchronouslyReplicated,
    "replicated-async": AsynchronouslyReplicated,
    "small-tables": SmallTables,
    "small-log": SmallLog,
    "pooled-session": Pooled,
    "pooled-transaction": PooledByTransaction,
}
