"""The OpenAPI document tells the truth: whatever is sent, the answer is one it names, and of the form it names."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from howdah.control_plane.openapi import document
from howdah.control_plane.routes import ROUTES

pytestmark = pytest.mark.anyio

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,missing_required_header,unsupported_method,ignored_auth"
)
SETTINGS = (
    f"--checks={CHECKS}",
    "--phases=coverage,fuzzing",
    "--max-examples=5",
    "--seed=7",
    "--generation-database=none",
    "--no-color",
    "--continue-on-failure",
    "--request-timeout=20",
    "--max-time=70",
)


async def try_everything(plane, *more: str, parameters: str = "", folder: Path, token: str | None) -> str:
    """Let schemathesis loose on a control plane; what it prints."""
    config = folder / "schemathesis.toml"
    config.write_text(f"[parameters]\n{parameters}\n")
    header = ["--header", f"Authorization: Bearer {token}"] if token else []
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", f"{plane.url}/openapi.json"),
        *(*SETTINGS, *header, *more),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
    )
    try:
        printed, _ = await asyncio.wait_for(program.communicate(), 110)
    except TimeoutError:
        program.kill()
        raise
    output = printed.decode()
    assert program.returncode == 0, output
    assert re.search(r"[1-9]\d\d+ generated", output), output
    assert "Authentication failed" not in output, output  # else it saw nothing but the door
    return output


WORKERS = "^/workers/.id./"


async def test_an_admin_finds_no_hole(plane, tmp_path):
    await plane.enqueue()
    output = await try_everything(
        plane, f"--exclude-path-regex={WORKERS}", folder=tmp_path, token=plane.tokens["admin"]
    )
    count = sum(not re.match(WORKERS, route.path) for route in ROUTES)
    assert f"Selected: {count - 1}/" in output  # the document itself is taken as read


async def test_a_worker_finds_no_hole(job_app, serve, tmp_path):
    async with serve(offline_after=120) as plane:
        worker = await plane.worker()
        await plane.enqueue()
        job = await worker.one()
        await worker.tell("drain")  # so that no claim waits
        output = await try_everything(
            plane,
            f"--include-path-regex={WORKERS}",
            parameters=f"id = {worker.id}\njob = {job['id']}",
            folder=tmp_path,
            token=worker.credential,
        )
    count = sum(bool(re.match(WORKERS, route.path)) for route in ROUTES)
    assert f"Selected: {count}/" in output


def test_every_route_is_in_the_document_with_its_errors():
    paths = document()["paths"]
    assert sum(map(len, paths.values())) == len(ROUTES)
    for route in ROUTES:
        operation = paths[route.path][route.method.lower()]
        named = set(operation["responses"])
        assert str(route.status) in named
        if route.needs != "nothing":
            assert {"401", "403", "429", "503"} <= named
            assert operation["security"] == [{"token": []}]
        if "{" in route.path or route.takes or route.query:
            assert "400" in named
        if route.takes:
            assert "413" in named
