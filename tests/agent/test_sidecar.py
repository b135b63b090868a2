"""The sidecar as a real process: what it answers, and that nothing of an attempt is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from howdah import ConfigError, config
from howdah.options import Given
from howdah_agent.sidecar.command import options_from
from howdah_agent.sidecar.options import SidecarOptions
from kit.node import eventually
from kit.sidecar import TOKEN, Repository, git, running_sidecar

pytestmark = pytest.mark.anyio

AGENT = """#!/bin/sh
set -e
prompt=$(cat)
echo "working on: $prompt"
echo "careful" >&2
eval "$prompt"
"""


@pytest.fixture
def agent(tmp_path):
    """A program that does what its prompt says, so that tests can be any agent."""
    path = tmp_path / "agent"
    path.write_text(AGENT)
    path.chmod(0o755)
    return path


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repositories")


@pytest.fixture
async def sidecar(agent, repository, tmp_path):
    flags = ["--agent", str(agent), "--allow", str(repository.bare.parent), "--kill-after", "0.3s"]
    flags += ["--command", "feature=sh -c 'echo $0 $1; touch $1'", "--command", "fail=false"]
    async with running_sidecar(tmp_path, *flags, SECRET_CANARY="canary-1") as found:
        yield found


async def stream(client, path, **ask):
    """The lines of an answer, and its last word."""
    async with client.stream("POST", path, json=ask) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) async for line in answer.aiter_lines() if line]
    return lines[:-1], lines[-1]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def pids(file: Path, count: int = 2) -> list[int]:
    async def written():
        found = [int(word) for word in file.read_text().split()] if file.exists() else []
        return found if len(found) == count else []

    return await eventually(written)


async def gone(*numbers: int) -> None:
    async def none():
        return not any(map(alive, numbers))

    await eventually(none)


async def clean(sidecar) -> None:
    async def empty():
        return not sidecar.workspaces()

    await eventually(empty)


def endless(file: Path) -> str:
    """A prompt that ignores TERM and has a child."""
    return f"trap '' TERM; sleep 300 & echo $$ $! > {file}; wait; sleep 300"


# ---------------------------------------------------------------- the door


async def test_health_says_how_it_is(sidecar):
    async with sidecar.client(token=None) as client:
        body = (await client.get("/health")).json()
    assert body.pop("timestamp").startswith("20")
    assert body == {"status": "ok", "work_dir": str(sidecar.folder), "attempts": 0, "slots": 1}


ASKS = [
    ("POST", "/execute", {"attempt": "1", "prompt": "true"}),
    ("POST", "/git/clone", {"attempt": "1", "url": "/x"}),
    ("POST", "/git/commit-and-push", {"attempt": "1", "message": "x"}),
    ("POST", "/sdlc", {"attempt": "1", "command": "feature"}),
    ("POST", "/artifacts", {"attempt": "1", "patterns": ["*"]}),
    ("DELETE", "/workspaces/1", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ASKS)
async def test_nothing_is_done_without_the_token(sidecar, method, path, body):
    for header in (None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer é"):
        async with sidecar.client(token=None) as client:
            headers = {} if header is None else {"Authorization": header.encode("latin-1")}
            answer = await client.request(method, path, json=body, headers=headers)
        assert answer.status_code == 401
        assert TOKEN not in answer.text
    assert sidecar.workspaces() == []


async def test_what_it_does_not_understand_is_refused(sidecar):
    async with sidecar.client() as client:
        for body in (
            b"",
            b"{",
            b"[]",
            b'{"attempt":"1"}',
            b'{"attempt":"1","prompt":"x","more":1}',
            b"\xff",
            b"[" * 5000,
        ):
            assert (await client.post("/execute", content=body)).status_code == 400
        too_much = json.dumps({"attempt": "1", "prompt": "x" * 1024 * 1024}).encode()
        assert (await client.post("/execute", content=too_much)).status_code == 413
        assert (await client.get("/execute")).status_code == 405
        assert (await client.post("/elsewhere")).status_code == 404
    assert sidecar.workspaces() == []


@pytest.mark.parametrize("attempt", ["", ".", "..", "../x", "a/b", "/etc", "-x", "a\0b", "a b", "x" * 101, "ä", "a\n"])
async def test_the_name_of_an_attempt_plays_no_tricks(sidecar, attempt):
    async with sidecar.client() as client:
        answer = await client.post("/execute", json={"attempt": attempt, "prompt": "true"})
        assert answer.status_code == 400
        assert answer.json()["error_code"] == "INVALID_SPEC"
    assert sidecar.workspaces() == []


# ---------------------------------------------------------------- executing


async def test_an_agent_gets_its_prompt_and_its_output_is_streamed(sidecar, tmp_path):
    prompt = f"while ! test -e {tmp_path}/go; do sleep 0.02; done; echo done"
    async with sidecar.client() as client:
        async with client.stream("POST", "/execute", json={"attempt": "17-1", "prompt": prompt}) as answer:
            lines = answer.aiter_lines()
            first = json.loads(await anext(lines))
            assert first == {"stream": "stdout", "line": f"working on: {prompt}"}, "it comes while the agent runs"
            (tmp_path / "go").touch()
            *_, last = [json.loads(line) async for line in lines if line]
        assert last["success"] is True
        assert (last["exit_code"], last["stderr"], last["error"]) == (0, "careful\n", None)
        assert last["output"].endswith("done\n")
        assert len(sidecar.workspaces()) == 1
        assert (await client.delete("/workspaces/17-1")).status_code == 204
    assert sidecar.workspaces() == []


async def test_a_failure_says_how_it_ended(sidecar):
    async with sidecar.client() as client:
        _, last = await stream(client, "/execute", attempt="1", prompt="echo 'rate limit' >&2; exit 3")
    assert (last["success"], last["exit_code"]) == (False, 3)
    assert last["error"].endswith("ended with exit code 3")
    assert last["stderr"].endswith("rate limit\n")


async def test_an_agent_sees_only_what_it_is_given(sidecar):
    async with sidecar.client() as client:
        lines, _ = await stream(client, "/execute", attempt="1", prompt="env; ls -A; ls -A $HOME; pwd")
    text = "\n".join(line["line"] for line in lines)
    assert "canary" not in text
    assert TOKEN not in text
    assert "HOWDAH_ATTEMPT=1" in text
    assert "/workspaces/attempt-" in text


async def test_a_slot_has_one_attempt_and_an_attempt_one_agent(sidecar, tmp_path):
    async with sidecar.client() as client, sidecar.client() as other:
        running = asyncio.create_task(stream(client, "/execute", attempt="1", prompt=endless(tmp_path / "pids")))
        await pids(tmp_path / "pids")
        again = await other.post("/execute", json={"attempt": "1", "prompt": "true"})
        busy = await other.post("/execute", json={"attempt": "2", "prompt": "true"})
        assert (again.status_code, again.json()["error_code"]) == (409, "CONFLICT")
        assert (busy.status_code, busy.json()["error_code"], busy.headers["retry-after"]) == (429, "BUSY", "5")
        assert (await other.delete("/workspaces/1")).status_code == 204
        _, last = await running
        assert last["error_code"] == "STOPPED"
        await clean(sidecar)
        _, last = await stream(other, "/execute", attempt="2", prompt="true")
        assert last["success"]


async def test_the_agents_group_is_killed_on_timeout(sidecar, tmp_path):
    async with sidecar.client() as client:
        ask = {"attempt": "1", "prompt": endless(tmp_path / "pids"), "timeout": 1}
        _, last = await stream(client, "/execute", **ask)
        assert (last["success"], last["error_code"]) == (False, "TIMEOUT")
        await gone(*await pids(tmp_path / "pids"))


async def test_the_agents_group_is_killed_when_the_caller_leaves(sidecar, tmp_path):
    async with sidecar.client() as client:
        running = asyncio.create_task(stream(client, "/execute", attempt="1", prompt=endless(tmp_path / "pids")))
        family = await pids(tmp_path / "pids")
        assert len(sidecar.workspaces()) == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await gone(*family)
    await clean(sidecar)


async def test_the_agents_group_is_killed_on_shutdown(sidecar, tmp_path):
    async with sidecar.client() as client:
        running = asyncio.create_task(stream(client, "/execute", attempt="1", prompt=endless(tmp_path / "pids")))
        family = await pids(tmp_path / "pids")
        sidecar.process.terminate()

        async def draining():
            async with sidecar.client() as other:
                return (await other.get("/health")).json()["status"] == "draining"

        await eventually(draining)
        assert all(map(alive, family)), "the first signal lets it finish"
        async with sidecar.client() as other:
            assert (await other.post("/execute", json={"attempt": "2", "prompt": "true"})).status_code == 503
        assert await sidecar.end(signal.SIGINT) == 0
        await gone(*family)
        await asyncio.gather(running, return_exceptions=True)
    assert sidecar.workspaces() == []


async def test_an_attempt_may_finish_within_the_grace(sidecar, repository, tmp_path):
    async with sidecar.client() as client:
        await client.post("/git/clone", json={"attempt": "1", "url": str(repository.bare)})
        prompt = f"echo started; while ! test -e {tmp_path}/go; do sleep 0.02; done; echo new > new"
        async with client.stream("POST", "/execute", json={"attempt": "1", "prompt": prompt}) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            sidecar.process.terminate()
            (tmp_path / "go").touch()
            assert [json.loads(line) async for line in lines if line][-1]["success"]
        done = await client.post("/git/commit-and-push", json={"attempt": "1", "message": "late"})
        assert done.json()["success"]
        await client.delete("/workspaces/1")
    assert await asyncio.wait_for(sidecar.process.wait(), 20) == 0
    assert repository.log() == ["README", "late"]


async def test_a_killed_sidecar_leaves_nothing_running_and_the_next_one_tidies_up(agent, tmp_path):
    async with (
        running_sidecar(tmp_path, "--agent", str(agent), "--kill-after", "0.3s") as first,
        first.client() as client,
    ):
        running = asyncio.create_task(stream(client, "/execute", attempt="1", prompt=endless(tmp_path / "pids")))
        family = await pids(tmp_path / "pids")
        await first.end(signal.SIGKILL)
        await gone(*family)
        await asyncio.gather(running, return_exceptions=True)
        assert len(first.workspaces()) == 1
    (tmp_path / "sidecar.log").write_text("")
    async with running_sidecar(tmp_path, "--agent", str(agent)) as second:
        assert second.workspaces() == []


async def test_a_workspace_nobody_asks_about_is_removed(agent, tmp_path):
    flags = ["--agent", str(agent), "--idle", "1s"]
    async with running_sidecar(tmp_path, *flags) as sidecar, sidecar.client() as client:
        await stream(client, "/execute", attempt="1", prompt="mkdir -p a/b; chmod -R 0 a; ln -s /etc c; true")
        assert len(sidecar.workspaces()) == 1
        await clean(sidecar)


async def test_two_sidecars_do_not_share_a_folder(sidecar, agent, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "howdah", "sidecar", "--agent", str(agent), "--port", "0", "--folder", sidecar.folder],
        env={**os.environ, "HOWDAH_SIDECAR_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (ran.returncode, "another sidecar works in" in ran.stderr) == (2, True)


@pytest.mark.parametrize(
    ("flags", "token", "words"),
    [
        (["--host", "0.0.0.0", "--agent", "cat"], TOKEN, "refusing to listen on 0.0.0.0"),
        (["--agent", "cat"], "", "no token is given"),
        (["--agent", "cat"], "short", "HOWDAH_SIDECAR_TOKEN must be 16 or more"),
        (["--agent", "cat", "--token-file", "/nowhere/at/all"], TOKEN, "cannot be read"),
        ([], TOKEN, "neither an agent nor a command"),
        (["--agent", "'"], TOKEN, "is no command"),
        (["--command", "x"], TOKEN, "commands must be NAME=COMMAND"),
    ],
)
def test_what_cannot_be_is_refused_at_the_start(flags, token, words, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "howdah", "sidecar", "--port", "0", "--folder", str(tmp_path / "w"), *flags],
        env={**os.environ, "HOWDAH_SIDECAR_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ran.returncode == 2
    assert words in ran.stderr
    assert TOKEN not in ran.stderr


def test_its_options_may_be_in_the_file_and_the_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "howdah.toml").write_text("""
        [sidecar]
        agent = "claude -p"
        token_file = "token"
        environment = ["ANTHROPIC_API_KEY"]
        idle = "2m"
        [sidecar.commands]
        fix = ["sdlc", "fix"]
    """)
    monkeypatch.setenv("HOWDAH_SIDECAR_COMMANDS", "feature=sdlc 'new feature'\nfix=sdlc fix")
    monkeypatch.setenv("HOWDAH_SIDECAR_IDLE", "3m")
    monkeypatch.delenv("HOWDAH_SIDECAR_TOKEN", raising=False)

    flags = {"sidecar.port": Given(0, "--port")}
    options = options_from(config.load(None, SidecarOptions).over(flags))

    assert (options.agent, options.token, options.port, options.idle) == (["claude", "-p"], TOKEN, 0, 180.0)
    assert options.commands == {"feature": ["sdlc", "new feature"], "fix": ["sdlc", "fix"]}
    assert list(options.environment) == ["PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "ANTHROPIC_API_KEY"]
    monkeypatch.setenv("HOWDAH_SIDECAR_TOKEN", TOKEN[::-1])
    assert options_from(config.load(None, SidecarOptions)).token == TOKEN[::-1], "the environment overrides the file"


def test_an_unknown_key_of_it_is_an_error_for_it_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "howdah.toml").write_text("[sidecar]\nagnet = 'cat'\n")

    config.load()
    with pytest.raises(ConfigError, match=r"howdah.toml: unknown key 'sidecar.agnet'; did you mean 'agent'\?"):
        config.load(None, SidecarOptions)


# ---------------------------------------------------------------- git


async def test_clone_change_commit_and_push(sidecar, repository):
    async with sidecar.client() as client:
        body = (await client.post("/git/clone", json={"attempt": "1", "url": str(repository.bare)})).json()
        assert (body["success"], body["cloned"], body["branch"]) == (True, True, "main")
        assert body["commit_sha"] == repository.head
        await stream(client, "/execute", attempt="1", prompt="cat README; echo new > new; echo more >> README")
        body = (await client.post("/git/commit-and-push", json={"attempt": "1", "message": "-m 'x'\n\nbody"})).json()
    assert (body["success"], body["pushed"], sorted(body["files_changed"])) == (True, True, ["README", "new"])
    assert body["commit_sha"] == repository.head
    assert repository.log() == ["README", "-m 'x'"]
    assert git(repository.bare, "log", "-1", "--format=%an <%ae>", "main") == "howdah <howdah@localhost>\n"


async def test_it_pulls_before_it_pushes(sidecar, repository):
    async with sidecar.client() as client:
        await client.post("/git/clone", json={"attempt": "1", "url": str(repository.bare)})
        await stream(client, "/execute", attempt="1", prompt="echo ours > ours")
        repository.push("theirs", "theirs\n")
        body = (await client.post("/git/commit-and-push", json={"attempt": "1", "message": "ours"})).json()
    assert body["success"], body
    assert body["files_changed"] == ["ours"]
    assert repository.log() == ["README", "theirs", "ours"]


async def test_what_does_not_go_together_is_an_error_and_nothing_is_pushed(sidecar, repository):
    async with sidecar.client() as client:
        await client.post("/git/clone", json={"attempt": "1", "url": str(repository.bare)})
        await stream(client, "/execute", attempt="1", prompt="echo ours > README")
        repository.push("README", "theirs\n")
        body = (await client.post("/git/commit-and-push", json={"attempt": "1", "message": "ours"})).json()
    assert (body["success"], body["error"]) == (False, "these changes conflict with commits pushed meanwhile")
    assert repository.show("README") == "theirs\n"
    await clean(sidecar)


async def test_commits_of_the_agent_are_kept_and_commit_without_push_pushes_nothing(sidecar, repository):
    async with sidecar.client() as client:
        await client.post("/git/clone", json={"attempt": "1", "url": str(repository.bare)})
        prompt = "git config user.name a; git config user.email a@b; echo 1 > one; git add one; git commit -qm one"
        _, last = await stream(client, "/execute", attempt="1", prompt=f"{prompt}; echo 2 > two")
        assert last["success"], last
        asked = {"attempt": "1", "message": "two", "push": False}
        body = (await client.post("/git/commit-and-push", json=asked)).json()
        assert (sorted(body["files_changed"]), body["pushed"]) == (["one", "two"], False)
        assert repository.log() == ["README"]
        body = (
            await client.post("/git/commit-and-push", json={"attempt": "1", "message": "-", "branch": "new"})
        ).json()
    assert git(repository.bare, "log", "--reverse", "--format=%s", "new").split() == ["README", "one", "two"]


async def test_an_empty_repository_gets_its_first_commit(sidecar, tmp_path):
    bare = tmp_path / "repositories" / "empty.git"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    async with sidecar.client() as client:
        body = (await client.post("/git/clone", json={"attempt": "1", "url": str(bare)})).json()
        assert (body["success"], body["commit_sha"]) == (True, None)
        await stream(client, "/execute", attempt="1", prompt="echo 1 > one")
        body = (await client.post("/git/commit-and-push", json={"attempt": "1", "message": "one"})).json()
    assert (body["success"], body["files_changed"]) == (True, ["one"])


async def test_every_attempt_is_fresh(sidecar, repository):
    async with sidecar.client() as client:
        ask = {"attempt": "1", "url": str(repository.bare)}
        assert (await client.post("/git/clone", json=ask)).json()["success"]
        assert (await client.post("/git/clone", json=ask)).status_code == 409
        await stream(client, "/execute", attempt="1", prompt="touch left $HOME/left")
        await client.delete("/workspaces/1")
        assert (await client.post("/git/commit-and-push", json={"attempt": "1", "message": "x"})).status_code == 404
        await client.post("/git/clone", json=ask)
        lines, _ = await stream(client, "/execute", attempt="1", prompt="ls -A . $HOME")
    assert "left" not in {line["line"] for line in lines}


@pytest.mark.parametrize(
    "url", ["/etc", "ext::touch {tmp}/pwned", "--upload-pack=touch {tmp}/pwned", "https://evil.example/x"]
)
async def test_what_is_not_allowed_is_not_cloned(sidecar, url, tmp_path):
    async with sidecar.client() as client:
        answer = await client.post("/git/clone", json={"attempt": "1", "url": url.replace("{tmp}", str(tmp_path))})
        assert (answer.status_code, answer.json()["error_code"]) == (403, "INVALID_SPEC")
        broken = await client.post(
            "/git/clone", json={"attempt": "1", "url": str(tmp_path / "repositories" / "no.git")}
        )
        assert broken.json()["success"] is False
    assert sidecar.workspaces() == []
    assert not (tmp_path / "pwned").exists()


HOSTILE = {
    "hook": "mkdir -p .git/hooks; for h in pre-commit commit-msg pre-push post-commit pre-rebase; do "
    "printf '#!/bin/sh\\ntouch {tmp}/pwned\\n' > .git/hooks/$h; chmod +x .git/hooks/$h; done",
    "hooks path": "git config core.hooksPath {tmp}/hooks; mkdir {tmp}/hooks; "
    "printf '#!/bin/sh\\ntouch {tmp}/pwned\\n' > {tmp}/hooks/pre-commit; chmod +x {tmp}/hooks/pre-commit",
    "filter": "git config filter.x.clean 'touch {tmp}/pwned; cat'; echo '* filter=x' > .gitattributes",
    "fsmonitor": "git config core.fsmonitor 'touch {tmp}/pwned; false'",
    "helper": "git config credential.helper '!touch {tmp}/pwned'",
    "merge driver": "git config merge.x.driver 'touch {tmp}/pwned'; mkdir -p .git/info; "
    "echo '* merge=x' > .git/info/attributes",
    "push program": "git config remote.origin.receivepack 'touch {tmp}/pwned; git-receive-pack'",
    "elsewhere": "git config url.{tmp}/elsewhere.insteadOf {origin}",
    "common folder": "mkdir {tmp}/common; cp -r .git/. {tmp}/common; git config -f {tmp}/common/config core.fsmonitor "
    "'touch {tmp}/pwned; false'; echo {tmp}/common > .git/commondir",
    "worktree config": "git config extensions.worktreeConfig true; "
    "git config --worktree core.fsmonitor 'touch {tmp}/pwned; false'",
}


@pytest.mark.parametrize("trick", HOSTILE)
async def test_nothing_an_agent_left_in_the_repository_is_run(sidecar, repository, tmp_path, trick):
    prompt = HOSTILE[trick].replace("{tmp}", str(tmp_path)).replace("{origin}", str(repository.bare))
    async with sidecar.client() as client:
        await client.post("/git/clone", json={"attempt": "1", "url": str(repository.bare)})
        _, last = await stream(client, "/execute", attempt="1", prompt=f"echo new > new; {prompt}")
        assert last["success"], last
        (tmp_path / "pwned").unlink(missing_ok=True)
        repository.push("theirs", "x")
        body = (await client.post("/git/commit-and-push", json={"attempt": "1", "message": "new"})).json()
    assert body["success"], body
    assert repository.log() == ["README", "theirs", "new"]
    assert not (tmp_path / "pwned").exists()


async def test_a_repository_that_was_replaced_is_refused(sidecar, repository, tmp_path):
    async with sidecar.client() as client:
        await client.post("/git/clone", json={"attempt": "1", "url": str(repository.bare)})
        prompt = f"cp -r .git {tmp_path}/other; rm -rf .git; ln -s {tmp_path}/other .git; echo new > new"
        await stream(client, "/execute", attempt="1", prompt=prompt)
        body = (await client.post("/git/commit-and-push", json={"attempt": "1", "message": "new"})).json()
    assert body["success"] is False
    assert repository.log() == ["README"]


async def test_hooks_of_the_user_running_it_do_not_count(agent, repository, tmp_path):
    config = tmp_path / "gitconfig"
    config.write_text(f"[core]\n\thooksPath = {tmp_path}/hooks\n[user]\n\tname = somebody\n")
    (tmp_path / "hooks").mkdir()
    hook = tmp_path / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\n")
    hook.chmod(stat.S_IRWXU)
    flags = ["--agent", str(agent), "--allow", str(repository.bare.parent)]
    async with running_sidecar(tmp_path, *flags, GIT_CONFIG_GLOBAL=str(config)) as sidecar, sidecar.client() as client:
        body = (await client.post("/git/clone", json={"attempt": "1", "url": str(repository.bare)})).json()
    assert body["success"]
    assert not (tmp_path / "pwned").exists()


# ---------------------------------------------------------------- commands


async def test_a_command_on_the_list_runs_with_its_arguments(sidecar):
    async with sidecar.client() as client:
        lines, last = await stream(client, "/sdlc", attempt="1", command="feature", args=["init", "a name; id"])
        assert last["success"]
        assert lines == [{"stream": "stdout", "line": "init a name; id"}]
        _, last = await stream(client, "/sdlc", attempt="1", command="fail")
        assert (last["success"], last["exit_code"]) == (False, 1)


@pytest.mark.parametrize(
    "ask",
    [
        {"command": "sh", "args": ["-c", "id"]},
        {"command": "../feature"},
        {"command": "feature", "args": ["--force"]},
        {"command": "feature", "args": ["a\0b"]},
    ],
)
async def test_no_other_command_and_no_option_is_run(sidecar, ask):
    async with sidecar.client() as client:
        answer = await client.post("/sdlc", json={"attempt": "1", **ask})
        assert (answer.status_code, answer.json()["error_code"]) == (403, "INVALID_SPEC")
    assert sidecar.workspaces() == []


async def test_a_sidecar_without_an_agent_says_so(tmp_path):
    async with running_sidecar(tmp_path, "--command", "ls=ls") as sidecar, sidecar.client() as client:
        answer = await client.post("/execute", json={"attempt": "1", "prompt": "x"})
        assert (answer.status_code, "has no agent" in answer.text) == (400, True)


async def test_no_secret_is_in_the_log_or_the_title(sidecar):
    async with sidecar.client() as client:
        await stream(client, "/execute", attempt="1", prompt="true")
        await client.post("/git/clone", json={"attempt": "2", "url": "https://u:hunter2@evil.example/x"})
    assert TOKEN not in sidecar.log.read_text()
    assert "hunter2" not in sidecar.log.read_text()
    assert TOKEN not in Path(f"/proc/{sidecar.process.pid}/cmdline").read_text()
