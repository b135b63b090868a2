"""A handler that is told a secret and keeps nothing to itself, and an app of it: ``-a kit.secret_app:app``."""

from __future__ import annotations

import logging
import os

from howdah import Howdah, Secret, job_log, progress

app = Howdah()


def leak(card: Secret[str]) -> None:
    """Say it in every way there is, and fail with it."""
    revealed = card.reveal()
    logging.getLogger("shop").debug("charging %s", revealed, extra={"card": revealed})
    job_log(f"card {revealed}", "x" * 9_995 + revealed, stream="stderr")
    progress(0.5, f"with {revealed}")
    try:
        raise ValueError(f"first {revealed}")
    except ValueError as error:
        logging.getLogger("shop").exception("cannot charge")
        raise RuntimeError({"card": revealed}) from error


@app.task(max_attempts=1)
async def charge(card: Secret[str], user: int = 1) -> None:
    """Fails with its secret."""
    leak(card)


@app.task(max_attempts=1)
def charge_in_thread(card: Secret[str]) -> None:
    """The same in a thread."""
    leak(card)


@app.task(max_attempts=1, executor="process")
def charge_in_process(card: Secret[str]) -> None:
    """The same in a process."""
    leak(card)


@app.task(max_attempts=1)
async def say(word: str) -> None:
    """Fails with what it was told, of which nothing is a secret."""
    logging.getLogger("shop").debug("saying %s", word)
    job_log(f"the word is {word}")
    raise RuntimeError(f"cannot say {word}")


@app.task(max_attempts=1)
async def connect(password: str = "") -> None:
    """Fails with what it finds in the environment, as drivers do."""
    dsn = os.environ.get("HOWDAH_DSN", "")
    raise ConnectionError(f"cannot reach {dsn} with token={os.environ.get('SHOP_TOKEN', '')}")
