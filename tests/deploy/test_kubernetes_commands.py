"""The parts of deploy/kubernetes, started with the very arguments they have there, as the roles they have there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest
import yaml

from deploy.manifests import containers, pods
from kit.node import ended, eventually
from kit.serve_process import free_port

pytestmark = pytest.mark.anyio

DEPLOY = Path(__file__).parents[2] / "deploy"
HOWDAH = Path(sys.executable).with_name("howdah")
Start = Callable[..., "Part"]


class Part:
    """A container, without the container."""

    def __init__(self, container: Any, process: subprocess.Popen[bytes], port: int) -> None:
        self.container = container
        self.process = process
        self.port = port

    async def probe(self, kind: str) -> int:
        """Ask as Kubernetes would."""
        probe = self.container[kind]
        if "exec" in probe:
            words = [word.replace(":8079/", f":{self.port}/") for word in probe["exec"]["command"]]
            return (
                200
                if (
                    await asyncio.to_thread(subprocess.run, [sys.executable, *words[1:]], stderr=subprocess.DEVNULL)
                ).returncode
                == 0
                else 0
            )
        try:
            async with httpx.AsyncClient() as web:
                return (await web.get(f"http://127.0.0.1:{self.port}{probe['httpGet']['path']}")).status_code
        except httpx.HTTPError:
            return 0

    async def passes(self, kind: str) -> None:
        async def asked() -> bool:
            assert self.process.poll() is None, "it ended"
            return await self.probe(kind) == 200

        await eventually(asked, 30)

    async def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, 30)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a container of the manifests, with its ports and paths moved to where a test may have them."""
    objects = [each for file in (DEPLOY / "kubernetes").glob("*.yaml") for each in yaml.safe_load_all(file.read_text())]
    found = {each["name"]: each for pod, _ in pods(objects) for each in containers(pod)}
    started: list[Part] = []

    def start(name: str, env: dict[str, str], **replaced: str) -> Part:
        container, port = found[name], free_port()
        moved = {"0.0.0.0": "127.0.0.1", "8080": str(port), "9100": str(port), "8079": str(port), **replaced}
        words = list(container["args"])
        for old, new in moved.items():
            words = [word.replace(old, new) for word in words]
        environment = {each["name"]: each["value"] for each in container["env"] if "value" in each} | env
        assert set(environment) == {each["name"] for each in container["env"]}, "exactly what the manifest gives"
        own = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), **environment}
        with (tmp_path / f"{name}.log").open("ab") as log:
            process = subprocess.Popen([HOWDAH, *words], env=own, cwd=DEPLOY, stderr=log, stdout=log)
        started.append(Part(container, process, port))
        return started[-1]

    yield start
    for part in started:
        part.process.kill()
        part.process.wait()


async def test_the_parts_work_together(roles: Any, direct: Any, conn: Any, start: Start, tmp_path: Path) -> None:
    migrate = start("migrate", {"HOWDAH_DSN": roles("howdah_owner")})
    assert await asyncio.to_thread(migrate.process.wait, 30) == 0

    plane = start("control-plane", {"HOWDAH_DSN": roles("howdah_fleet")})
    await plane.passes("livenessProbe")
    await plane.passes("readinessProbe")
    made = await asyncio.to_thread(
        subprocess.run,
        [HOWDAH, "token", "create", "fleet", "--scope", "work", "--dsn", roles("howdah_owner")],
        capture_output=True,
        text=True,
        check=True,
    )
    (tmp_path / "token").write_text(made.stdout)

    secret = "0123456789abcdef0123456789abcdef"
    sidecar = start(
        "sidecar",
        {"HOWDAH_SIDECAR_TOKEN": secret},
        **{"/workspace": str(tmp_path / "workspace"), "your-agent": "cat"},
    )
    await sidecar.passes("startupProbe")
    worker = start(
        "worker",
        {"HOWDAH_SIDECAR_TOKEN": secret},
        **{
            "http://howdah-control-plane": f"http://127.0.0.1:{plane.port}",
            "/var/run/howdah": str(tmp_path),
        },
    )
    await worker.passes("livenessProbe")
    await worker.passes("readinessProbe")
    id = await conn.fetchval("select id from howdah.enqueue('greet', '{\"name\": \"ann\"}', queue => 'builds')")
    row = await ended(conn, id, 20)
    assert (row["state"], row["result"]) == ("done", b'"hello ann"')

    assert await worker.end() == 0
    assert await conn.fetchval("select state from howdah.node") == "offline", "it said goodbye"
    assert await sidecar.end() == 0
    assert await plane.end() == 0
    logs = "".join(file.read_text() for file in tmp_path.glob("*.log"))
    assert "permission denied" not in logs
    assert secret not in logs
    assert made.stdout.strip() not in logs


def test_the_node_of_compose_works_as_its_role(roles: Any, direct: Any) -> None:
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["node"]
    words = [word.replace(":9100", ":0") for word in service["command"]]
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute("select howdah.enqueue('close_day', queue => 'orders')")
        env = {
            "PATH": os.environ["PATH"],
            "HOWDAH_APP": service["environment"]["HOWDAH_APP"],
            "HOWDAH_DSN": roles("howdah_worker"),
        }
        ran = subprocess.run(
            [HOWDAH, *words, "--drain"], env=env, cwd=DEPLOY, capture_output=True, text=True, timeout=60
        )

        assert ran.returncode == 0, ran.stderr
        assert conn.execute("select state, result::text from howdah.jobs").fetchall() == [("done", "0")]
        assert "permission denied" not in ran.stderr
