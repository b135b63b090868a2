"""Programs and folders that end with who started them, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from howdah_lab.torture.servers.child_programs import Folder, Program
from howdah_lab.torture.servers.child_reaper import below
from kit.node import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.stories]

OWNER = """
import sys, time
from howdah_lab.torture.servers.child_programs import Folder, Program
folder = Folder()
program = Program("sleeper", ["sh", "-c", "sleep 1000 & setsid sleep 1000 & wait"], folder)
program.start()
print(folder.path, *program.pids, flush=True)
time.sleep(1000)
"""


async def test_programs_and_folders_end_with_who_started_them():
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    try:
        path, *_ = owner.stdout.readline().split()

        async def all_started():
            return len(pids := below_reapers(owner.pid)) == 3 and pids

        pids = await eventually(all_started)
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()

    async def gone():
        return not os.path.exists(path) and not any(is_alive(pid) for pid in pids)

    await eventually(gone)


async def test_a_program_is_killed_with_all_it_has_started_even_while_frozen():
    folder = Folder()
    program = Program("sleeper", ["sh", "-c", "setsid sh -c 'sleep 1000 & wait' & sleep 1000"], folder)
    try:
        program.start()

        async def all_started():
            return len(program.pids) == 4 and program.pids

        pids = await eventually(all_started)
        program.freeze()
        assert {state(pid) for pid in pids} == {"T"}
        program.thaw()

        async def all_thawed():
            return "T" not in {state(pid) for pid in pids}

        await eventually(all_thawed)

        program.freeze()
        program.kill()
        assert not program.is_alive
        assert not any(is_alive(pid) for pid in pids)
    finally:
        program.kill()
        folder.remove()
    assert not folder.path.exists()


def below_reapers(pid: int) -> list[int]:
    return [each for each in below(pid) if b"child_reaper.py" not in Path(f"/proc/{each}/cmdline").read_bytes()]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]
    except OSError:
        return "X"


def is_alive(pid: int) -> bool:
    return state(pid) not in ("X", "Z")
