"""An app whose jobs leave orphans: ``-a kit.orphans:app``."""

from __future__ import annotations

import asyncio
import subprocess

from howdah import Howdah

app = Howdah()
ORPHANS = 20


@app.task
async def orphan() -> int:
    """Starts programs whose parent ends at once, and one whose exit code is wanted later."""
    own = subprocess.Popen(["sh", "-c", "exit 7"])
    for _ in range(ORPHANS):
        shell = await asyncio.create_subprocess_exec("sh", "-c", "setsid sleep 0.1 & exit 0")
        assert await shell.wait() == 0
    await asyncio.sleep(0.5)
    return own.wait()
