"""Servers that a run can use, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from howdah_lab.torture.servers.cluster import Cluster
from howdah_lab.torture.servers.pooled import Pooled, PooledByTransaction
from howdah_lab.torture.servers.single import Single, Unflushed
from howdah_lab.torture.servers.small_disk import SmallLog, SmallTables
from howdah_lab.torture.servers.standby import AsynchronouslyReplicated, SynchronouslyReplicated

SERVERS: dict[str, Callable[[], Any]] = {
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
