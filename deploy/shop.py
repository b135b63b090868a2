"""Application for compose.yaml: one task that needs the database, one that can run on any worker."""

from howdah import Howdah, Transaction

app = Howdah()


@app.task(queue="orders", transactional=True)
async def close_day(tx: Transaction) -> int:
    """Count the jobs of the last day; runs on a node with a database, in its own transaction."""
    return int(await tx.fetchval("select count(*) from howdah.jobs where finished_at > now() - interval '1 day'"))


@app.task(queue="builds")
async def greet(name: str) -> str:
    """Greet; can run on a remote worker without a database."""
    return f"hello {name}"
