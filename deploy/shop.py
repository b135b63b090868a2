"""An application for compose.yaml: one task that needs the database, one that runs anywhere."""

from howdah import Howdah, Transaction

app = Howdah()


@app.task(queue="orders", transactional=True)
async def close_day(tx: Transaction) -> int:
    """Runs on a node with a database, in a transaction of its own."""
    return int(await tx.fetchval("select count(*) from howdah.jobs where finished_at > now() - interval '1 day'"))


@app.task(queue="builds")
async def greet(name: str) -> str:
    """Runs on a fleet worker, which has no database."""
    return f"hello {name}"
