"""Artifacts: files an agent left are found by patterns, measured, and the small ones kept; nothing leads out."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path

import msgspec
import pytest

from howdah import ArgumentError
from howdah_agent.executors import builds
from howdah_agent.program import artifacts
from howdah_agent.program.artifacts import Patterns, collect
from kit.node import ended, node
from kit.sidecar import TOKEN, Repository, running_sidecar

FILES = ("a.txt", "dist/x.whl", "dist/x.tar.gz", "dist/deep/y.whl", "reports/unit/one.xml", ".hidden", "dist/.note")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with files in it, each with its name in it."""
    root = tmp_path / "repository"
    for name in (*FILES, ".git/config"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def names(folder: Path, *patterns: str) -> list[str]:
    return [found.name for found in collect(folder, patterns).artifacts]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["a.txt"], ["a.txt"]),
        (["./a.txt", "a.*", "**/a.txt"], ["a.txt"]),
        (["*.whl"], []),
        (["dist/*.whl"], ["dist/x.whl"]),
        (["dist/?.[wx]hl", "no"], ["dist/x.whl"]),
        (["**/*.whl"], ["dist/deep/y.whl", "dist/x.whl"]),
        (["dist/**/*.whl"], ["dist/deep/y.whl", "dist/x.whl"]),
        (["dist/**"], ["dist/.note", "dist/deep/y.whl", "dist/x.tar.gz", "dist/x.whl"]),
        (["*/deep/*"], ["dist/deep/y.whl"]),
        (["dist"], []),
        (["**"], sorted(FILES)),
        ([".git/config", ".git/**", "**/config"], []),
    ],
)
def test_patterns_find_files(folder: Path, patterns: list[str], expected: list[str]) -> None:
    assert sorted(names(folder, *patterns)) == sorted(expected)


def test_a_file_is_measured_and_a_small_one_is_kept(folder: Path) -> None:
    large = os.urandom(artifacts.SMALL + 1)
    (folder / "large").write_bytes(large)
    (folder / "empty").touch()
    found = {each.name: each for each in collect(folder, ["*"]).artifacts}

    assert found["a.txt"].content == base64.b64encode(b"a.txt").decode()
    assert (found["large"].size, found["large"].content) == (len(large), None)
    assert found["large"].sha256 == hashlib.sha256(large).hexdigest()
    assert (found["empty"].size, found["empty"].content) == (0, "")


def test_nothing_leads_out_of_the_workspace(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "within").symlink_to("a.txt")
    (folder / "out").symlink_to(tmp_path, target_is_directory=True)
    (folder / "round").symlink_to(".", target_is_directory=True)
    found = collect(folder, ["link", "within", "out/*", "out/**", "round/**", "**/secret", "**/*.txt"])

    assert [each.name for each in found.artifacts] == ["a.txt"]
    assert found.left_out == ["link: a symbolic link", "within: a symbolic link"]
    (tmp_path / "elsewhere").symlink_to(folder)
    with pytest.raises(OSError, match="elsewhere"):
        collect(tmp_path / "elsewhere", ["*"])


def test_what_is_no_plain_file_is_left_out_and_holds_nobody_up(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / os.fsdecode(b"\xff.txt")).touch()
    found = collect(folder, ["pipe", "*.txt"])

    assert [each.name for each in found.artifacts] == ["a.txt"]
    assert found.left_out == ["pipe: not a plain file", "?.txt: its name is no text"]


BOUNDS = {
    "files": ("MOST_FILES", 2, 2, "there are 2 already"),
    "bytes": ("MOST_BYTES", 11, 1, "all together would have more than 11 bytes"),
    "depth": ("DEEPEST", 1, 5, "more than 1 folders deep"),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_everything_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    name, value, files, why = BOUNDS[bound]
    monkeypatch.setattr(artifacts, name, value)
    found = collect(folder, ["**"])

    assert len(found.artifacts) == files
    assert found.left_out
    assert all(each.endswith(why) for each in found.left_out)


def test_looking_and_complaining_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MOST_SEEN", 3)
    found = collect(folder, ["**"])
    assert len(found.artifacts) <= 3
    assert "more than 3 files to look at" in found.left_out[-1]

    monkeypatch.undo()
    monkeypatch.setattr(artifacts, "MOST_FILES", 0)
    monkeypatch.setattr(artifacts, "MOST_REASONS", 2)
    assert collect(folder, ["**"]).left_out[2:] == ["and more"]


def test_content_is_kept_up_to_a_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MOST_KEPT", 12)
    kept = [each.name for each in collect(folder, ["**"]).artifacts if each.content is not None]
    assert kept == [".hidden", "a.txt"]


@pytest.mark.parametrize("pattern", ["/etc/*", "../x", "a/../../x", "..", "a/..", "", "x" * 201, "a\\b", "a\0b", "~/x"])
def test_patterns_that_lead_elsewhere_are_refused(pattern: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert([pattern], Patterns)
    assert msgspec.convert(["a..b/..c/d..", "ä/*", "a b"], Patterns)


# ---------------------------------------------------------------- through the sidecar


@pytest.fixture
async def beside(tmp_path: Path):
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\neval "$(cat)"\n')
    agent.chmod(0o755)
    repository = Repository(tmp_path / "repositories")
    flags = ["--agent", str(agent), "--allow", str(repository.bare.parent)]
    async with running_sidecar(tmp_path, *flags, "--command", "feature=sh -c 'echo $1 > $0'") as found:
        yield found, repository


@pytest.mark.anyio
async def test_the_sidecar_refuses_what_cannot_be(beside) -> None:
    sidecar, _ = beside
    async with sidecar.client() as client:
        unknown = await client.post("/artifacts", json={"attempt": "1", "patterns": ["*"]})
        assert (unknown.status_code, unknown.json()["error_code"]) == (404, "UNKNOWN")
        await client.post("/execute", json={"attempt": "1", "prompt": "true"})
        for patterns in (["/etc/passwd"], ["../*"], "x", None, ["x"] * 21):
            bad = await client.post("/artifacts", json={"attempt": "1", "patterns": patterns})
            assert (bad.status_code, bad.json()["error_code"]) == (400, "INVALID_SPEC")


@pytest.mark.anyio
async def test_a_workspace_that_was_replaced_is_not_looked_into(beside) -> None:
    sidecar, _ = beside
    async with sidecar.client() as client:
        prompt = "cd ..; rm -rf repository; ln -s /etc repository"
        await client.post("/execute", json={"attempt": "1", "prompt": prompt})
        body = (await client.post("/artifacts", json={"attempt": "1", "patterns": ["passwd"]})).json()
    assert body["success"] is False
    assert body["error"].startswith("the workspace cannot be read")


@pytest.mark.anyio
async def test_a_build_says_what_it_left(app, conn, beside) -> None:
    sidecar, repository = beside
    build, sdlc = builds.install(app, url=sidecar.url, token=TOKEN)
    async with node(app):
        prompt = "mkdir dist; printf one > dist/one; ln -s /etc/passwd dist/two"
        made = await build.enqueue(prompt=prompt, git_clone_url=str(repository.bare), artifacts=["dist/*", "README"])
        other = await sdlc.enqueue(command="feature", args=["note", "words"], artifacts=["note"])
        rows = [await ended(conn, each.id, 30) for each in (made, other)]

    results = [json.loads(row["result"]) for row in rows]
    assert [[each["name"] for each in result["artifacts"]] for result in results] == [["README", "dist/one"], ["note"]]
    one = results[0]["artifacts"][1]
    assert one == {
        "name": "dist/one",
        "size": 3,
        "sha256": hashlib.sha256(b"one").hexdigest(),
        "content": base64.b64encode(b"one").decode(),
    }
    record = await conn.fetchval("select result from howdah.run where job = $1", made.id)
    assert json.loads(record)["artifacts"] == results[0]["artifacts"]
    lines = await conn.fetch("select line from howdah.job_log where id = $1", made.id)
    assert [line["line"] for line in lines] == ["left out of the artifacts: dist/two: a symbolic link"]


@pytest.mark.anyio
async def test_a_pattern_that_leads_elsewhere_is_refused_before_it_is_enqueued(app) -> None:
    build, _ = builds.install(app, url="http://127.0.0.1:1", token=TOKEN)
    with pytest.raises(ArgumentError):
        await build.enqueue(prompt="x", artifacts=["../secrets"])
