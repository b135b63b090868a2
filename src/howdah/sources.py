"""Sources: the Python files one is working on."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

INSTALLED = ("__pycache__", "node_modules", "site-packages")


class Sources:
    """The Python files under a folder, and whether one of them changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen = self._look()

    def changed(self) -> str | None:
        """A file that changed, came or went since the last call."""
        seen, self._seen = self._seen, self._look()
        return min((path for path, _ in seen.items() ^ self._seen.items()), default=None)

    def _look(self) -> dict[str, int]:
        found = {}
        for folder, folders, files in os.walk(self.folder):
            # what is installed does not change under one's hands, and is a lot to look at
            if "pyvenv.cfg" in files:
                folders.clear()
                continue
            folders[:] = [name for name in folders if not name.startswith(".") and name not in INSTALLED]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    with suppress(OSError):
                        found[path] = os.stat(path).st_mtime_ns
        return found
