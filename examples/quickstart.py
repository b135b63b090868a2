"""Enqueue two jobs, work until nothing is left to do now, look at them: `python examples/quickstart.py`."""

import asyncio

from howdah import Howdah, WorkerOptions
from howdah.pg import embedded

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
    with embedded.start() as server:  # a PostgreSQL of its own; yours is found by HOWDAH_DSN
        app.connect_to(server.dsn)
        asyncio.run(main())
