"""Options of a work queue table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from howdah.batch_handler import check_batch
from howdah.errors import ConfigError
from howdah.handler import check_name
from howdah.postgres.sql import identifier
from howdah.retry import Backoff, Retries
from howdah.table.budget import Budget
from howdah.table.contract import Columns
from howdah.table.record import Record
from howdah.table.statement import OrderBy, RelationName, Where
from howdah.worker.options import WorkerOptions

RESET_MESSAGE = "its worker went silent too often; it may crash whatever runs it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Options of a work queue table. Times are in seconds."""

    table: str
    """The table, with its schema: ``app.uploads``; with an alias, if conditions use one: ``app.uploads u``."""
    name: str = ""
    """The kind of its jobs in logs and metrics; default: the name of the table."""
    view: str | None = None
    """The view that records are read through; default: the table itself."""
    record: Any = None
    """A dataclass, msgspec.Struct, TypedDict or pydantic model, a function of a dictionary, or ``None`` for that."""
    expressions: Mapping[str, str] = field(default_factory=dict)
    """SQL expressions for fields of the record that are not columns of the view."""
    columns: Columns = field(default_factory=Columns)
    """Other names of the columns of the contract."""
    order_by: Sequence[str] = ()
    """Columns to order claims by, each with ``asc`` or ``desc``, ``nulls first`` or ``nulls last``."""
    where: Where | None = None
    """Condition; other rows are not claimed."""
    max_attempts: int = 3
    """Number of failed attempts after which a row fails for good."""
    retry: Retries | None = None
    """Backoff between attempts."""
    retry_after: float | None = None
    """Fixed wait between attempts, instead of ``retry``."""
    stalled_after: float = 30.0
    """Time without a heartbeat after which a worker counts as dead."""
    max_resets: int = 5
    """Number of workers that may go silent over a row."""
    reset_message: str = RESET_MESSAGE
    """Failure message of a row after its last reset."""
    max_runtime: float | None = None
    """Timeout of one attempt."""
    slots: int | None = None
    """Rows worked on at once; ``None``: they share the slots of the node."""
    poll: float = 1.0
    """Longest wait between claims."""
    heartbeat: float | None = None
    """Heartbeat interval; default: a third of ``stalled_after``, or that of the node."""
    total_jobs: int = 0
    """Stop after this number of claimed rows; 0: never."""
    max_active_time: float = 0
    """Stop claiming after this time; 0: never."""
    transactional: bool = False
    """One transaction around the handler and the final state."""
    batch: int | None = None
    """Rows in one call of the handler at most; ``None``: each row is a call of its own."""
    within: float = 0.0
    """Seconds that rows wait for a full batch."""
    notify: bool = False
    """Use wake-ups by the trigger of the table."""
    budget: Budget | None = None
    """Resource budget of the rows that run at the same time."""

    def __post_init__(self) -> None:
        where = f"table {self.table!r}"
        for name in ("max_attempts", "stalled_after", "poll", "slots", "max_runtime", "heartbeat"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} of {where} must be above zero, got {value!r}")
        for name in ("max_resets", "total_jobs", "max_active_time", "retry_after"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ConfigError(f"{name} of {where} must not be negative, got {value!r}")
        if self.retry is not None and self.retry_after is not None:
            raise ConfigError(f"{where} has both retry and retry_after; set only one of them")
        if self.heartbeat is not None and self.stalled_after < 2 * self.heartbeat:
            raise ConfigError(
                f"stalled_after of {where} must be at least two heartbeats,"
                f" got {self.stalled_after:g} s and a heartbeat of {self.heartbeat:g} s"
            )
        if self.batch is not None:
            check_batch(where, self.batch, self.within)
        elif self.within:
            raise ConfigError(f"{where} has within but no batch; set batch=…")
        if not isinstance(self.columns, Columns):
            raise ConfigError(f"columns of {where} must be Columns(…), got {self.columns!r}")
        if self.where is not None and not isinstance(self.where, Where):
            raise ConfigError(f"where of {where} must be Where(text, values…), got {self.where!r}")
        if isinstance(self.order_by, str):
            raise ConfigError(f"order_by of {where} must be a list of columns, got {self.order_by!r}")
        if self.budget is not None:
            for column in self.budget.cost.values():
                identifier(column)
        if not self.name:
            object.__setattr__(self, "name", str(self.relation))
        check_name("the name of a table", self.name)
        _ = self.orders, self.view_relation, self.reader

    @property
    def relation(self) -> RelationName:
        """The table."""
        return RelationName.parse(self.table)

    @property
    def view_relation(self) -> RelationName:
        """The view that records are read through."""
        return RelationName.parse(self.view or self.table)

    @property
    def orders(self) -> list[OrderBy]:
        """The order of claims."""
        return [OrderBy.parse(text) for text in self.order_by]

    @property
    def reader(self) -> Record:
        """The reader that turns rows into records."""
        return Record(self.name, self.record, self.expressions)

    @property
    def retries(self) -> Retries:
        """Backoff between attempts."""
        if self.retry_after is not None:
            return Backoff(first=self.retry_after, factor=1, cap=self.retry_after, jitter=0)
        return self.retry if self.retry is not None else Backoff()

    def worker(self, node: WorkerOptions) -> WorkerOptions:
        """Return the worker options of this table, given those of the node."""
        return replace(
            node,
            slots=self.slots or node.slots,
            queues=None,
            poll=self.poll,
            heartbeat=self.heartbeat or min(node.heartbeat, self.stalled_after / 3),
            lease=self.stalled_after,
            notify=self.notify and node.notify,
        )


class TableSettings(TypedDict, total=False):
    """Keyword arguments of a table; see :class:`TableOptions`."""

    name: str
    view: str | None
    record: Any
    expressions: Mapping[str, str]
    columns: Columns
    order_by: Sequence[str]
    where: Where | None
    max_attempts: int
    retry: Retries | None
    retry_after: float | None
    stalled_after: float
    max_resets: int
    reset_message: str
    max_runtime: float | None
    slots: int | None
    poll: float
    heartbeat: float | None
    total_jobs: int
    max_active_time: float
    transactional: bool
    batch: int | None
    within: float
    notify: bool
    budget: Budget | None
