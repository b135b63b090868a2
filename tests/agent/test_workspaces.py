"""Workspaces that cannot be removed: the sidecar says so and goes on."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from howdah_agent.sidecar import workspace
from howdah_agent.sidecar.workspace import PREFIX, Workspaces

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can make folders of two users"),
]
OTHER = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of an ordinary user, where that user may go."""
    made = Path(tempfile.mkdtemp(prefix="howdah-test-"))
    os.chown(made, OTHER, OTHER)
    yield made
    shutil.rmtree(made)


@contextmanager
def as_other() -> Iterator[None]:
    """As an ordinary user: root may remove everything."""
    os.setresgid(OTHER, OTHER, 0)
    os.setresuid(OTHER, OTHER, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)


def foreign(workspace: Path) -> Path:
    """A folder of root in a workspace, as a container without user namespaces leaves it."""
    made = workspace / "repository" / "build"
    made.mkdir(parents=True)
    (made / "file").touch()
    made.chmod(0o700)
    return made


async def test_a_leftover_of_another_user_does_not_keep_it_from_starting(folder, caplog):
    left, plain = folder / f"{PREFIX}left", folder / f"{PREFIX}plain"
    foreign(left)
    (plain / "locked").mkdir(parents=True)
    for each in (left, left / "repository", plain, plain / "locked"):
        os.chown(each, OTHER, OTHER)
    (plain / "locked").chmod(0)
    plain.chmod(0o500)

    with as_other():
        workspaces = Workspaces(str(folder), slots=1, idle=60)
        assert "could not remove all of" in caplog.text
        assert left.exists()
        assert not plain.exists(), "what could be removed was not"

        made = workspaces.open("1")
        await workspaces.close()
    assert not made.folder.exists()


async def test_control_a_leftover_that_must_go_keeps_the_sidecar_from_starting(folder, monkeypatch):
    left = folder / f"{PREFIX}left"
    foreign(left)
    for each in (left, left / "repository"):
        os.chown(each, OTHER, OTHER)
    monkeypatch.setattr(workspace, "_remove", shutil.rmtree)

    with as_other(), pytest.raises(PermissionError):
        Workspaces(str(folder), slots=1, idle=60)


async def test_a_workspace_with_something_of_another_user_is_given_up(folder, caplog):
    with as_other():
        workspaces = Workspaces(str(folder), slots=1, idle=60)
        made = workspaces.open("1")
    foreign(made.folder)

    with as_other():
        assert workspaces.discard("1")
        assert "could not remove all of" in caplog.text
        assert len(workspaces) == 0, "its slot is still taken"
        workspaces.open("2")
        await workspaces.close()
