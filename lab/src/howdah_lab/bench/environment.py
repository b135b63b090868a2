"""Environment: what a rival needs to run, apart from ours and from the others'. Made once, kept until it changes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from howdah_lab.bench.system import KIT, OURS, SYSTEMS, System

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "howdah" / "bench"
"""Environments of the rivals, one folder for each."""
PATIENCE = 600
OLDEST_NODE = 22


class Missing(Exception):
    """A rival cannot run here; says why."""


def prepare(rival: System) -> list[str]:
    """Make the environment if need be; returns the command that starts the driver."""
    if rival.server == "redis" and shutil.which("redis-server") is None:
        raise Missing("redis-server is not on PATH; Debian and Ubuntu: apt install redis-server")
    if rival.name == OURS:
        return [sys.executable, str(rival.folder / "driver.py")]
    return _prepare_node(rival) if rival.language == "node" else _prepare_python(rival)


def is_prepared(rival: System) -> bool:
    """Return whether the environment is installed."""
    try:
        return rival.name == OURS or _stamp_of(rival).read_text() == _wanted(rival)
    except (FileNotFoundError, Missing):
        return False


def _prepare_python(rival: System) -> list[str]:
    home = FOLDER / rival.name
    if not is_prepared(rival):
        _run([_python(rival), "-m", "venv", "--clear", str(home)])
        pip = [str(home / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        _run([*pip, "-r", str(rival.folder / "requirements.txt")])
        _stamp_of(rival).write_text(_wanted(rival))
    return [str(home / "bin/python"), str(rival.folder / "driver.py")]


def _prepare_node(rival: System) -> list[str]:
    home = FOLDER / rival.name
    if not is_prepared(rival):
        if shutil.which("npm") is None:
            raise Missing("npm is not on PATH; install Node.js")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        shutil.copy(rival.folder / "package.json", home)
        _run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"], home)
        _stamp_of(rival).write_text(_wanted(rival))
    # a module is looked for beside the file that asks for it
    for file in (rival.folder / "driver.mjs", SYSTEMS / KIT / "kit.mjs"):
        shutil.copy(file, home)
    return [_node(home), str(home / "driver.mjs")]


def _node(home: Path) -> str:
    """The Node.js that the package brings, or the one of this machine if it is new enough."""
    for program in (home / "node_modules/.bin/node", shutil.which("node")):
        said = _output([str(program), "--version"]) if program else ""
        if (found := re.match(r"v(\d+)", said)) and int(found[1]) >= OLDEST_NODE:
            return str(program)
    raise Missing(f"no Node.js {OLDEST_NODE} or newer: the package `node` brought none, and there is none on PATH")


def _python(rival: System) -> str:
    """Ours, so that all run on the same one; another only for those that need a newer one."""
    oldest = tuple(map(int, rival.python.split(".")))
    if sys.version_info >= oldest:
        return sys.executable
    kept = sorted(Path.home().glob(".pyenv/versions/*/bin/python3"), reverse=True)
    for program in (*(f"python3.{minor}" for minor in range(14, oldest[1] - 1, -1)), *kept):
        said = _output([str(program), "-c", "import sys; print(*sys.version_info[:2])"]).split()
        if len(said) == 2 and tuple(map(int, said)) >= oldest:
            return str(program)
    raise Missing(f"it needs Python {rival.python} or newer, and there is none on PATH")


def _stamp_of(rival: System) -> Path:
    return FOLDER / rival.name / "stamp"


def _wanted(rival: System) -> str:
    file = rival.folder / ("package.json" if rival.language == "node" else "requirements.txt")
    python = "" if rival.language == "node" else _output([_python(rival), "-V"])
    return hashlib.sha256(f"{FOLDER}{python}{file.read_text()}".encode()).hexdigest()


def _run(command: list[str], folder: Path | None = None) -> None:
    try:
        subprocess.run(  # noqa: S603
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.CalledProcessError as error:
        said = [line for line in (error.stderr or error.stdout).splitlines() if not line.startswith("WARNING")]
        raise Missing(f"its environment could not be made: {' '.join(said[-2:])[-300:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"its environment could not be made: {error}") from None


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=60, env=os.environ | {"LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
