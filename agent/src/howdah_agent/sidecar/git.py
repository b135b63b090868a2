"""Git: clone, commit, pull and push, trusting nothing that is in the repository.

An agent worked in it, so its configuration and its hooks may be malicious. Git reads only the sidecar's configuration,
runs no hook, never prompts, and uses only the protocols of the allowed repositories. It gets credentials only while it
clones, fetches and pushes, and connects only to the address that was cloned.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from howdah_agent.program.run import ProgramResult, run
from howdah_agent.sidecar.options import SidecarOptions
from howdah_agent.sidecar.workspace import Workspace

SAFE = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.editor=false",
    "core.pager=cat",
    "core.askPass=",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    "fetch.recurseSubmodules=false",
    "push.recurseSubmodules=no",
    "protocol.allow=never",
    "transfer.credentialsInUrl=die",
    "http.followRedirects=false",
)
ARTEFACTS = ("commondir", "config.worktree", "hooks", "modules")
"""Files in the folder of a repository that redirect git elsewhere; an agent may have left them."""
PUSHES = 3
MOST_FILES = 1000


class GitFailed(Exception):
    """A git command failed; ``ended`` is its result."""

    def __init__(self, message: str, ended: ProgramResult | None = None) -> None:
        super().__init__(message)
        self.ended = ended


class Git:
    """Git in the workspace of one attempt."""

    def __init__(self, workspace: Workspace, options: SidecarOptions) -> None:
        self._workspace = workspace
        self._options = options

    async def clone(self, origin: str, branch: str | None) -> str | None:
        """Clone into the workspace; returns the commit it is at, or None if the repository is empty."""
        where = self._workspace
        wanted = ["--branch", branch] if branch else []
        await self._git(
            "clone", "--quiet", "--no-local", "--no-recurse-submodules", "--template=", *wanted, "--",
            origin, str(where.repository), folder=where.folder, remote=origin,
        )  # fmt: skip
        where.origin = origin
        where.config = _config_of(where).read_bytes()
        where.branch = (await self._git("symbolic-ref", "--quiet", "--short", "HEAD", fine=(0, 1))).stdout.strip()
        where.head = await self._head()
        return where.head

    async def commit(self, message: str) -> str | None:
        """Commit all changes; returns the commit the workspace is at afterwards."""
        self._restore()
        await self._git("add", "--all", "--", ".")
        if (await self._git("diff", "--cached", "--quiet", fine=(0, 1))).exit_code:
            await self._git("commit", "--quiet", "--no-verify", "--file=-", stdin=message.encode())
        return await self._head()

    async def pull_and_push(self, branch: str) -> str | None:
        """Rebase our commits on those pushed meanwhile, and push them; retries if another push was faster."""
        origin = self._workspace.origin
        if origin is None or await self._head() is None:
            raise GitFailed("there is nothing to push")
        refused: GitFailed | None = None
        for _ in range(PUSHES):
            self._restore()
            if await self._is_there(origin, branch):
                await self._git("fetch", "--quiet", "--no-tags", "--", origin, f"refs/heads/{branch}", remote=origin)
                await self._rebase()
            try:
                await self._git(
                    "push", "--quiet", "--no-verify", "--", origin, f"HEAD:refs/heads/{branch}", remote=origin
                )
            except GitFailed as error:
                refused = error
                continue
            return await self._head()
        assert refused is not None
        raise refused

    async def changed(self) -> list[str]:
        """The files that differ from what was cloned."""
        since, head = self._workspace.head, await self._head()
        if head is None or head == since:
            return []
        compare = ["diff", "--name-only", "-z", since, head] if since else ["ls-tree", "-r", "--name-only", "-z", head]
        said = await self._git(*compare)
        return [name for name in said.stdout.split("\0") if name][:MOST_FILES]

    async def _is_there(self, origin: str, branch: str) -> bool:
        found = await self._git("ls-remote", "--heads", "--", origin, f"refs/heads/{branch}", remote=origin)
        return bool(found.stdout.strip())

    async def _rebase(self) -> None:
        try:
            await self._git("rebase", "--quiet", "--no-autostash", "FETCH_HEAD")
        except GitFailed as error:
            await self._git("rebase", "--abort", fine=range(256))
            raise GitFailed("these changes conflict with commits pushed meanwhile", error.ended) from None

    async def _head(self) -> str | None:
        said = await self._git("rev-parse", "--verify", "--quiet", "HEAD", fine=(0, 1))
        return said.stdout.strip() or None

    def _restore(self) -> None:
        """Restore the configuration of the repository after an agent worked in it."""
        folder = _config_of(self._workspace).parent
        if self._workspace.config is None or folder.is_symlink() or not folder.is_dir():
            raise GitFailed("the workspace holds no repository that was cloned here; clone first")
        for name in (*ARTEFACTS, "config"):
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        _config_of(self._workspace).write_bytes(self._workspace.config)

    async def _git(
        self,
        *words: str,
        folder: Path | None = None,
        remote: str | None = None,
        stdin: bytes | None = None,
        fine: Sequence[int] = (0,),
    ) -> ProgramResult:
        where = self._workspace
        place = [] if folder else [f"--git-dir={where.repository / '.git'}", f"--work-tree={where.repository}"]
        settings = [*SAFE, *(f"protocol.{name}.allow=always" for name in _protocols(remote))]
        if remote is None or self._options.git_config is None:
            settings.append("credential.helper=")  # an empty value resets the list
        command = ["git", *(word for each in settings for word in ("-c", each)), *place, *words]
        ended = await run(
            command,
            folder=folder or where.repository,
            environment=self._environment(remote is not None),
            stdin=stdin,
            grace=self._options.kill_after,
        )
        if ended.exit_code not in fine:
            last = next((line for line in reversed(ended.stderr.splitlines()) if line.strip()), ended.words)
            raise GitFailed(f"git {words[0]} failed: {last.strip()[:500]}", ended)
        return ended

    def _environment(self, with_credentials: bool) -> dict[str, str]:
        name, _, address = self._options.author.rpartition("<")
        who = {"NAME": name.strip() or "howdah", "EMAIL": address.rstrip(">")}
        environment = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in who.items()}
        ours = self._options.git_config if with_credentials else None
        if ours is None:
            environment["GIT_SSH_COMMAND"] = "ssh -oBatchMode=yes -oClearAllForwardings=yes"
        return environment | {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._workspace.home) if ours is None else os.environ.get("HOME", "/nonexistent"),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": ours or os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "false",
            "SSH_ASKPASS": "false",
            "GIT_EDITOR": "false",
            "GIT_OPTIONAL_LOCKS": "0",
        }


def _config_of(workspace: Workspace) -> Path:
    return workspace.repository / ".git" / "config"


def _protocols(remote: str | None) -> Sequence[str]:
    """Return the protocols git may use: none for local commands, else only that of the address."""
    if remote is None:
        return ()
    return ("file",) if remote.startswith("/") else (remote.partition(":")[0],)
