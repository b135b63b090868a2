"""deploy/keda: the query says what waits and runs, reads no history, and needs no more than howdah_read."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml

from howdah import Howdah
from kit.node import eventually, node

DEPLOY = Path(__file__).parents[2] / "deploy"
AUTH, SCALED = yaml.safe_load_all((DEPLOY / "keda" / "worker.yaml").read_text())
[TRIGGER] = SCALED["spec"]["triggers"]
QUERY = TRIGGER["metadata"]["query"]


def test_it_scales_the_worker() -> None:
    kinds = [each for file in (DEPLOY / "kubernetes").glob("*.yaml") for each in yaml.safe_load_all(file.read_text())]
    deployments = {each["metadata"]["name"]: each for each in kinds if each["kind"] == "Deployment"}
    target = SCALED["spec"]["scaleTargetRef"]["name"]

    assert target in deployments
    assert SCALED["metadata"]["namespace"] == deployments[target]["metadata"]["namespace"]
    assert (AUTH["kind"], SCALED["kind"]) == ("TriggerAuthentication", "ScaledObject")
    assert {AUTH["apiVersion"], SCALED["apiVersion"]} == {"keda.sh/v1alpha1"}
    assert TRIGGER["type"] == "postgresql"
    assert TRIGGER["authenticationRef"]["name"] == AUTH["metadata"]["name"]
    assert [each["parameter"] for each in AUTH["spec"]["secretTargetRef"]] == ["connection"]
    assert all(isinstance(value, str) for value in TRIGGER["metadata"].values()), "KEDA wants text"
    assert float(TRIGGER["metadata"]["targetQueryValue"]) > 0
    assert SCALED["spec"]["minReplicaCount"] <= SCALED["spec"]["maxReplicaCount"]
    assert "connection" not in TRIGGER["metadata"], "a DSN does not belong here"


@pytest.mark.anyio
async def test_it_counts_what_waits_and_runs(roles: Any, conn: Any) -> None:
    app, gate = Howdah(roles("howdah_worker")), asyncio.Event()

    @app.task(queue="builds")
    async def build(n: int = 0) -> None:
        await gate.wait()

    @app.task(queue="mail")
    async def other() -> None: ...

    reader = await asyncpg.connect(roles("howdah_read"))

    async def count() -> Any:
        return await reader.fetchval(QUERY)

    assert await count() == 0.0
    await app.enqueue_many(build.job(n) for n in range(5))
    await app.enqueue_many(other.job() for _ in range(9))
    await build.using(delay=3600).enqueue()
    assert await count() == 5.0, "not what is for others, nor what is not due"
    await conn.execute("select howdah.enqueue('build', queue => 'builds+gpu')")
    assert await count() == 6.0, "with what requires labels"
    await conn.execute("select howdah.cancel(array(select id from howdah.jobs where queue = 'builds+gpu'))")
    async with node(app, slots=3, queues={"builds": None}):
        await eventually(lambda: conn.fetchval("select count(*) > 0 from howdah.lease"))
        assert await count() == 5.0, "running ones too"
        gate.set()

        async def none() -> bool:
            return bool(await count() == 0.0)

        await eventually(none)
    await app.close()
    await reader.close()


@pytest.mark.anyio
async def test_it_reads_no_history(roles: Any, conn: Any) -> None:
    await conn.execute(
        """insert into howdah.job (id, queue, kind, args)
            select nextval('howdah.job_id'), 'builds', 'build', '{}' from generate_series(1, 50000);
        insert into howdah.done (id, attempt, state) select id, 1, 'd' from howdah.job;
        select howdah.enqueue('build', queue => 'builds');
        insert into howdah.lease (node, expires_at, first_id, end_id, rids, los, his, attempts)
            select 1, now() + interval '1 hour', n - 10, n, '{1}', array[n - 10], array[n], '{1}'
            from (select max(id) from howdah.job) last(n);
        analyze"""
    )
    reader = await asyncpg.connect(roles("howdah_read"))
    plan = json.loads(await reader.fetchval(f"explain (analyze, format json) {QUERY}"))[0]
    await reader.close()
    read = re.findall(r'"Actual Rows": ([\d.]+)', json.dumps(plan))

    assert max(map(float, read)) < 100, "of fifty thousand"
    assert plan["Execution Time"] < 250
