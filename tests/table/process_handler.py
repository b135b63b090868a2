"""Handler of rows that runs in a process."""

from __future__ import annotations

import os

from howdah import Howdah, Poison

app = Howdah()
table = app.table("uploads")


@table.handler(executor="process")
class Process:
    """Refuses even rows."""

    def before_execute(self, record: dict[str, int]) -> None:
        self.pid = os.getpid()

    def execute(self, record: dict[str, int]) -> None:
        if record["id"] % 2 == 0:
            raise Poison(f"in process {self.pid}")
