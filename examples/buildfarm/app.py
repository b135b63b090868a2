"""The app: the two build tasks of howdah-agent, and a program as a third task.

The control plane and the workers load the same file. Only the workers use the sidecar.
"""

from __future__ import annotations

import os

from howdah import Howdah
from howdah_agent.executors import builds
from howdah_agent.executors.command import command

app = Howdah()

build, sdlc = builds.install(
    app,
    url=os.environ.get("SIDECAR_URL", "http://127.0.0.1:8079"),
    token=os.environ.get("HOWDAH_SIDECAR_TOKEN"),
    templates={"page": "write a page about {{prompt}}, in {{colour}}"},
    hold=True,
)

count = command(app, "count", ["wc", "-l", "--", "{file}"], queue="builds", timeout=60)
