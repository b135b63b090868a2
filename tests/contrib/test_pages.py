"""The how-to pages on enqueueing: what they show is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from howdah.postgres.database import Database
from kit.page_tabs import chosen, tabs

PAGES = Path(__file__).parents[2] / "docs" / "howto"

DJANGO = {
    "shop/__init__.py": "",
    "shop/migrations/__init__.py": "",
    "shop/settings.py": """
import os
from psycopg.conninfo import conninfo_to_dict
parts = conninfo_to_dict(os.environ["DATABASE_URL"])
names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql"} | {names[k]: v for k, v in parts.items()}}
INSTALLED_APPS = ["shop"]
TEST_RUNNER = "shop.runner.Runner"
""",
    "shop/models.py": """
from django.db import models
class Order(models.Model):
    item = models.TextField()
    class Meta:
        db_table = "orders"
""",
}


def blocks(page: str, language: str, tab: str | None = None) -> list[str]:
    text = chosen((PAGES / page).read_text(encoding="utf-8"), tab)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def unfold(page: str, folder: Path, tab: str | None = None) -> None:
    """Write every Python block, of one tab if one is named, to the file its first line names."""
    for block in blocks(page, "python", tab):
        path = folder / block.splitlines()[0].removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block, encoding="utf-8")


def run(folder: Path, database: Database, *command: str) -> str:
    env = {**os.environ, "DATABASE_URL": database.dsn, "PYTHONPATH": str(folder)}
    env.pop("HOWDAH_DSN", None)
    ran = subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


@pytest.fixture
def orders(observer: Any) -> None:
    observer.execute("create table orders (id bigint generated always as identity primary key, item text not null)")


def receipts(observer: Any) -> list[tuple[int, str]]:
    """Every order that has its job."""
    rows = observer.execute(
        "select o.id, o.item from orders o join howdah.jobs j on (j.args ->> 'order_id')::bigint = o.id"
        " where j.kind = 'send_receipt' and j.queue = 'mail' order by o.id, j.id"
    )
    return [tuple(row) for row in rows]


PLACE_ORDERS = {
    "asyncio": """
import asyncio, os, asyncpg, psycopg, async_checkout, checkout
async def main():
    await checkout.place_order(await asyncpg.connect(os.environ["DATABASE_URL"]), "tea")
    async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"]) as conn:
        await async_checkout.place_order(conn, "milk")
asyncio.run(main())
""",
    "sync": """
import os, psycopg, checkout, reminders
with psycopg.connect(os.environ["DATABASE_URL"]) as conn:
    checkout.place_order(conn, "tea")
    order = checkout.place_order(conn, "milk")
    assert reminders.remind(conn, order)
    assert not reminders.remind(conn, order)
""",
    "Django": """
import os, django
os.environ["DJANGO_SETTINGS_MODULE"] = "orders.settings"
django.setup()
import checkout
from django.db import transaction
checkout.place_order("tea")
checkout.place_order("milk")
with transaction.atomic():
    checkout.place_order("cake")
    transaction.set_rollback(True)
""",
}


@pytest.mark.parametrize("tab", PLACE_ORDERS)
@pytest.mark.usefixtures("orders")
def test_enqueue_in_your_transaction(tab: str, tmp_path: Path, direct: Database, observer: Any) -> None:
    page = "enqueue-in-your-transaction.md"
    assert tabs((PAGES / page).read_text(encoding="utf-8")) == list(PLACE_ORDERS)
    for path, text in DJANGO.items():
        file = tmp_path / path.replace("shop", "orders")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("shop", "orders"), encoding="utf-8")
    unfold(page, tmp_path, tab)

    run(tmp_path, direct, "-c", PLACE_ORDERS[tab])

    reminder = [(2, "milk")] if tab == "sync" else []
    assert receipts(observer) == [(1, "tea"), (2, "milk"), *reminder]


@pytest.mark.usefixtures("orders")
def test_sqlalchemy(tmp_path: Path, direct: Database, observer: Any) -> None:
    unfold("sqlalchemy.md", tmp_path)

    run(
        tmp_path,
        direct,
        "-c",
        """
import asyncio, os, asyncpg, psycopg, shop, desk, ledger
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
dsn = os.environ["DATABASE_URL"]
engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
with Session(engine) as session:
    shop.place_order(session, "tea")
async def main():
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn))
    async with AsyncSession(engine) as session:
        await desk.place_order(session, "milk")
    await engine.dispose()
asyncio.run(main())
ledger.place_order(engine, "cake")
""",
    )

    assert receipts(observer) == [(1, "tea"), (2, "milk"), (3, "cake")]


@pytest.mark.usefixtures("orders")
def test_django(tmp_path: Path, direct: Database, observer: Any) -> None:
    for path, text in DJANGO.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    unfold("django.md", tmp_path)

    work = """
import asyncio, shop.worker
from shop.orders import place_order
from howdah import WorkerOptions
place_order("tea")
asyncio.run(shop.worker.app.work(WorkerOptions(drain=True)))
"""
    assert "receipt for tea" in run(tmp_path, direct, "-c", work)
    assert receipts(observer) == [(1, "tea")]

    manage = ("-m", "django", "{}", "--settings", "shop.settings", "--pythonpath", ".")
    run(tmp_path, direct, *(part.format("makemigrations") for part in manage), "shop")
    result = run(tmp_path, direct, *(part.format("test") for part in manage), "--noinput")
    assert "Ran 1 test" in result
    name = conninfo_to_dict(direct.dsn)["dbname"]
    assert observer.execute("select from pg_database where datname = %s", [f"test_{name}"]).fetchall() == []


@pytest.mark.superuser("the roles take from everybody the right to call functions")
def test_sql(direct: Database, observer: Any) -> None:
    role = f"howdah_test_producer_{os.getpid()}"
    for block in blocks("sql.md", "sql"):
        observer.execute(block.replace("producer", role))

    try:
        queues = observer.execute("select queue, count(*) as jobs from howdah.jobs group by queue order by queue")
        assert queues.fetchall() == [("default", 1), ("mail", 4)]

        observer.execute(f"set role {role}")
        for more in ("", ", key => 'k'", ", key => 'k'", ", delay => 5", ", queue => 'new'"):
            observer.execute(f"select howdah.enqueue('a'{more})")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            observer.execute("delete from howdah.job")
    finally:
        observer.execute("reset role")
        observer.execute(f"drop owned by {role}")
        observer.execute(f"drop role {role}")


def test_sql_names_every_parameter_with_its_default(observer: Any) -> None:
    [(signature,)] = observer.execute(
        "select pg_get_function_arguments(oid) from pg_proc where pronamespace = 'howdah'::regnamespace"
        " and proname = 'enqueue'"
    )
    names = [part.split()[0] for part in signature.split(", ") if not part.startswith("OUT")]
    table = re.findall(r"^\| `(\w+)` \|", (PAGES / "sql.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert table == names
