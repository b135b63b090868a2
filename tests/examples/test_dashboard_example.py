"""The dashboard mounted in an application: its login, two levels, and an end while a page is open."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from kit.serve_process import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "dashboard.py"
OWNER, SUPPORT = ("owner", "open sesame"), ("support", "open sesame")
HTTP_TIMEOUT = 60.0


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Where it listens, and its process."""
    port = free_port()
    process = subprocess.Popen([sys.executable, EXAMPLE, str(port)], cwd=tmp_path, env=dict(os.environ))
    url = f"http://127.0.0.1:{port}"
    until = time.monotonic() + HTTP_TIMEOUT
    while True:
        try:
            httpx.get(url, timeout=HTTP_TIMEOUT)
            break
        except httpx.TransportError:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
    yield url, process
    if process.poll() is None:
        process.kill()
    process.wait()


def test_the_dashboard_is_behind_the_login_of_the_application(shop):
    url, process = shop

    assert httpx.get(f"{url}/jobs/queues", timeout=HTTP_TIMEOUT).status_code == 401
    assert re.fullmatch(r"enqueued job 1; see /jobs/\n", httpx.get(url, auth=OWNER, timeout=HTTP_TIMEOUT).text)
    seen = httpx.get(f"{url}/jobs/queues", auth=SUPPORT, timeout=HTTP_TIMEOUT)
    assert "mail" in seen.text
    assert "read only" in seen.text
    pause = {"queue": "mail", "sure": "yes"}
    refused = httpx.post(
        f"{url}/jobs/queues/pause", data=pause, auth=SUPPORT, headers={"Origin": url}, timeout=HTTP_TIMEOUT
    )
    assert refused.status_code == 403
    did = httpx.post(f"{url}/jobs/queues/pause", data=pause, auth=OWNER, headers={"Origin": url}, timeout=HTTP_TIMEOUT)
    assert did.headers["location"] == "/jobs/queues"
    assert '<td data-name="Who">owner' in httpx.get(f"{url}/jobs/audit", auth=SUPPORT, timeout=HTTP_TIMEOUT).text

    with httpx.stream("GET", f"{url}/jobs/live", auth=SUPPORT, timeout=HTTP_TIMEOUT) as live:
        assert next(live.iter_text()).startswith("retry:")
        process.send_signal(signal.SIGINT)
        assert process.wait(HTTP_TIMEOUT) in (0, -signal.SIGINT, 130)
