"""An app whose jobs fail, for workers that tell of it: ``-a kit.telling:app``. Whom, the environment says."""

from __future__ import annotations

from howdah import Howdah, Poison

app = Howdah()


@app.task
async def spoiled(n: int) -> None:
    """No retry can help."""
    raise Poison(f"{n} is spoiled")
