"""The build farm: a control plane, a worker and a sidecar as real processes, and what they left in the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

FARM = Path(__file__).parents[2] / "examples" / "buildfarm"


def test_the_whole_farm_runs_in_one_command(tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HOWDAH_", "PG"))}
    ran = subprocess.run(
        [sys.executable, FARM / "run.py"],
        cwd=tmp_path,
        env={**env, "GIT_DIR": "/nowhere", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    shown = ran.stdout[ran.stdout.index("\njob 1") :].replace(str(FARM), "…").replace(sys.executable, "python")
    assert re.sub(r"\b[0-9a-f]{7}\b", "·", shown) == (
        """
job 1 (build) is done
  stdout  asked to write a page about elephants, in grey
  stdout  wrote elephants.html
  run 1  done  changed ['elephants.html']
  elephants.html  39 bytes  sha256 24d42e46e41d…

job 2 (sdlc) is done
  stdout  noted features/search.md
  run 1  done  changed ['features/search.md']

job 3 (build) is failed: INVALID_SPEC: python ended with exit code 64: I can only write a page, not: delete everything
  stdout  asked to delete everything
  stderr  I can only write a page, not: delete everything
  run 1  failed INVALID_SPEC  changed []

job 4 (build) is failed: INVALID_SPEC: /etc is not on the allow-list of repositories
  run 1  failed INVALID_SPEC  changed []

job 5 (count) is done
  stdout  18 …/agent.py
the worker ended with code 0
the sidecar ended with code 0
the control plane ended with code 0

the repository
  ·  user17  the first commit
  ·  howdah  build: elephants
  ·  howdah  sdlc: feature init search
workspaces left: 0
"""
    )
