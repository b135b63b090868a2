"""Environments of the rivals: each has its own, installed when it is first needed, and again when its pins change."""

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
INSTALL_TIMEOUT = 600
"""Seconds."""
OLDEST_NODE = 22


class NotInstalled(Exception):
    """A system cannot be installed here; the message has the reason."""


def prepare(system: System) -> list[str]:
    """Install the system unless it is; return the command that starts its driver."""
    if system.server == "redis" and shutil.which("redis-server") is None:
        raise NotInstalled("redis-server is not on PATH; Debian and Ubuntu: apt install redis-server")
    if system.name == OURS:
        return [sys.executable, str(system.folder / "driver.py")]
    return _prepare_node(system) if system.language == "node" else _prepare_python(system)


def is_prepared(system: System) -> bool:
    """Return whether the environment is installed."""
    try:
        return system.name == OURS or _stamp_of(system).read_text() == _wanted(system)
    except (FileNotFoundError, NotInstalled):
        return False


def _prepare_python(system: System) -> list[str]:
    home = FOLDER / system.name
    if not is_prepared(system):
        _run([_python(system), "-m", "venv", "--clear", str(home)])
        pip = [str(home / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        _run([*pip, "-r", str(system.folder / "requirements.txt")])
        _stamp_of(system).write_text(_wanted(system))
    return [str(home / "bin/python"), str(system.folder / "driver.py")]


def _prepare_node(system: System) -> list[str]:
    home = FOLDER / system.name
    if not is_prepared(system):
        if shutil.which("npm") is None:
            raise NotInstalled("npm is not on PATH; install Node.js")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        shutil.copy(system.folder / "package.json", home)
        _run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"], home)
        _stamp_of(system).write_text(_wanted(system))
    # Node.js looks for packages beside the importing file
    for file in (system.folder / "driver.mjs", SYSTEMS / KIT / "kit.mjs"):
        shutil.copy(file, home)
    return [_node(home), str(home / "driver.mjs")]


def _node(home: Path) -> str:
    """Return the Node.js of the package `node`, or the one of this machine if it is new enough."""
    for program in (home / "node_modules/.bin/node", shutil.which("node")):
        output = _output([str(program), "--version"]) if program else ""
        if (found := re.match(r"v(\d+)", output)) and int(found[1]) >= OLDEST_NODE:
            return str(program)
    raise NotInstalled(f"no Node.js {OLDEST_NODE} or newer: the package `node` brought none, and there is none on PATH")


def _python(system: System) -> str:
    """Return this Python, so that all systems run on the same; a newer one only if the system needs it."""
    oldest = tuple(map(int, system.python.split(".")))
    if sys.version_info >= oldest:
        return sys.executable
    kept = sorted(Path.home().glob(".pyenv/versions/*/bin/python3"), reverse=True)
    for program in (*(f"python3.{minor}" for minor in range(14, oldest[1] - 1, -1)), *kept):
        output = _output([str(program), "-c", "import sys; print(*sys.version_info[:2])"]).split()
        if len(output) == 2 and tuple(map(int, output)) >= oldest:
            return str(program)
    raise NotInstalled(f"it needs Python {system.python} or newer, and there is none on PATH")


def _stamp_of(system: System) -> Path:
    return FOLDER / system.name / "stamp"


def _wanted(system: System) -> str:
    file = system.folder / ("package.json" if system.language == "node" else "requirements.txt")
    python = "" if system.language == "node" else _output([_python(system), "-V"])
    return hashlib.sha256(f"{FOLDER}{python}{file.read_text()}".encode()).hexdigest()


def _run(command: list[str], folder: Path | None = None) -> None:
    try:
        subprocess.run(  # noqa: S603
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT
        )
    except subprocess.CalledProcessError as error:
        output = [line for line in (error.stderr or error.stdout).splitlines() if not line.startswith("WARNING")]
        raise NotInstalled(f"installing it failed: {' '.join(output[-2:])[-300:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"installing it failed: {error}") from None


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=60, env=os.environ | {"LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
