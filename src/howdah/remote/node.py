"""A node without a database: the node of an application behind a control plane."""

from __future__ import annotations

from howdah.app import Howdah
from howdah.node.node import Node
from howdah.node.parts import NodeContext
from howdah.observe.failure_log import logged
from howdah.remote.client import ControlPlaneClient
from howdah.remote.registry import MakeClient, RemoteRegistry
from howdah.remote.source import Capabilities, RemoteJobSource, RemoteTableSource
from howdah.worker.options import WorkerOptions


class RemoteNode(Node[NodeContext]):
    """Works for a control plane. ``start_timeout``: seconds to wait for it at first; ``None``: for ever."""

    registry: RemoteRegistry

    def __init__(
        self, app: Howdah, options: WorkerOptions, make: MakeClient, *, start_timeout: float | None = None
    ) -> None:
        can_run = Capabilities.of(app)
        registry = RemoteRegistry(
            make, kinds=list(can_run.jobs), tables=list(can_run.tables), start_timeout=start_timeout
        )
        jobs = [RemoteJobSource(registry, can_run.jobs)] if can_run.jobs else []
        tables = [RemoteTableSource(registry, table) for table in can_run.tables.values()]
        super().__init__(registry, [*jobs, *tables], options, resets=False, observed=logged)

    @property
    def client(self) -> ControlPlaneClient:
        """The client of the control plane, as the workers use it."""
        return self.registry.client

    @property
    def lease(self) -> float:
        """Seconds for which leases are valid without a heartbeat, as the control plane says."""
        return self.registry.registered.lease if self.registry.registered else super().lease
