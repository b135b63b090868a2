"""The commands of the page on fleets, typed in their order."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from docs.test_pages import ROOT, Terminal, blocks, commands, environment, folder, unfold
from howdah.postgres.database import Database
from kit.serve_process import free_port

__all__ = ["environment", "folder"]

PAGE = ROOT / "docs" / "howto" / "fleet.md"


class Screens(Terminal):
    """Servers and workers are left running, each on a screen of its own."""

    def type(self, command: str) -> str:
        """Run one line; returns what it wrote, of what goes on running the first lines."""
        if not re.match(r"howdah (serve|worker) ", command):
            return super().type(command)
        output = self._folder / f"output {len(self._running)}"
        script = self._script(f"exec {command}")
        with output.open("w") as file:
            process = subprocess.Popen(
                ["/bin/sh", "-c", script], cwd=self._folder, env=self._environment, stdout=file, stderr=file, text=True
            )
        self._running.append(process)
        until = time.monotonic() + 90
        while not re.search("listens on|works for", output.read_text()):
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < until, output.read_text()
            time.sleep(0.1)
        return output.read_text()


def test_the_commands_work_as_printed(database: Database, folder: Path, environment: dict[str, str]) -> None:
    unfold(PAGE, folder)
    port = str(free_port())
    typed = []
    with Screens(folder, {**environment, "HOWDAH_SERVE_PORT": port}, database.dsn) as screens:
        for language, text in blocks(PAGE):
            if language == "console":
                for command, shown in commands(text.replace("8080", port)):
                    parts = [part.strip() for line in shown for part in re.split("…", without_name(line))]
                    output = screens.run_until(
                        command, lambda output, parts=parts: all(part in output for part in parts)
                    )
                    typed.append(command)
                    for part in parts:
                        assert part in output, output
        output = screens.run_until("howdah jobs --json", lambda output: '"state": "done"' in output)
        assert '"state": "done"' in output
    assert [command.split()[1] for command in typed if command.startswith("howdah")] == [
        "migrate", "token", "serve", "worker", "enqueue", "nodes",
    ]  # fmt: skip


def without_name(line: str) -> str:
    """A line without what is another one on every machine."""
    return re.sub(r"\d{7,} \(gpu-1:\d+\)|\(gpu-1:\d+\)", "…", line)
