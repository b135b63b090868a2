"""Enqueue two jobs, run a worker until no job is due, list the jobs: `python examples/quickstart.py`."""

import asyncio

from howdah import Howdah, WorkerOptions
from howdah.postgres.embedded import server as embedded

app = Howdah()


@app.task(queue="mail")
async def send_welcome(user_id: int, *, lang: str = "en") -> None:
    print(f"welcome, user {user_id} ({lang})")


async def main() -> None:
    await app.migrate()
    await send_welcome.enqueue(7, lang="de")
    await send_welcome.using(delay=3600).enqueue(17)
    await app.work(WorkerOptions(drain=True))
    for job in await app.admin.list():
        print(f"job {job.id}: {job.kind} {job.args} is {job.state}")
    await app.close()


if __name__ == "__main__":
    with embedded.start() as server:  # a private PostgreSQL; without connect_to, HOWDAH_DSN is used
        app.connect_to(server.dsn)
        asyncio.run(main())
