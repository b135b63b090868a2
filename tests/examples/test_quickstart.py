"""The example of the README runs as printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.py"


def test_the_quickstart_says_what_it_should(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-W", "error", QUICKSTART], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "welcome, user 7 (de)",
        "job 2: send_welcome {'user_id': 17} is queued",
        "job 1: send_welcome {'user_id': 7, 'lang': 'de'} is done",
    ]
    assert ran.stderr == ""
