"""A sidecar clones from allowed addresses only, also if one of them redirects; a damaged repository is restored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from howdah_agent.sidecar.git import Git, GitFailed
from howdah_agent.sidecar.options import SidecarOptions
from kit.sidecar import TOKEN, Repository

pytestmark = pytest.mark.anyio


@contextmanager
def http_server(redirect_to: str | None) -> Iterator[tuple[str, list[str]]]:
    """A server that redirects everything, or finds nothing; its address, and the paths it was asked for."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302 if redirect_to else 404)
            if redirect_to:
                self.send_header("Location", redirect_to + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def workspace(folder: Path) -> Any:
    """What an attempt has of a workspace before it clones."""
    for name in ("home", "workspace"):
        (folder / name).mkdir()
    here = folder / "workspace"
    return SimpleNamespace(
        folder=here,
        repository=here / "repository",
        home=folder / "home",
        origin=None,
        config=None,
        branch="",
        head=None,
    )


async def test_a_redirect_does_not_lead_out_of_the_allow_list(tmp_path: Path) -> None:
    git = Git(workspace(tmp_path), SidecarOptions(token=TOKEN, folder=str(tmp_path), agent=("cat",)))
    with (
        http_server(None) as (inside, asked_inside),
        http_server(inside) as (allowed, asked),
        pytest.raises(GitFailed),
    ):
        await git.clone(f"{allowed}/team/shop.git", None)

    assert asked
    assert asked_inside == []


async def test_a_configuration_that_became_a_folder_is_restored(tmp_path: Path) -> None:
    place = workspace(tmp_path)
    git = Git(place, SidecarOptions(token=TOKEN, folder=str(tmp_path), agent=("cat",)))
    await git.clone(str(Repository(tmp_path / "repositories").bare), None)
    config = place.repository / ".git" / "config"
    config.unlink()
    (config / "inside").mkdir(parents=True)

    (place.repository / "new").write_text("text")
    assert await git.commit("a change") is not None
    assert config.is_file()
