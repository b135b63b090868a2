"""An embedded server whose folder is damaged, whose disk is full or whose processes outlived it: no data is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest
from server_users import gone, postmaster, within

from howdah.errors import ConfigError, DatabaseFull
from howdah.postgres.embedded import binaries
from howdah.postgres.embedded import server as embedded
from howdah_lab.torture.servers.small_disk import SmallDisk, mount

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def directory():
    directory = Path(tempfile.mkdtemp(prefix="howdah-test-", dir="/var/tmp"))
    directory.chmod(0o755)
    yield directory
    assert within(20, lambda: gone(directory / "pg"))
    shutil.rmtree(directory)


def keep(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("create table if not exists kept as select 7 as id")


def kept(dsn: str) -> bool:
    with psycopg.connect(dsn) as conn:
        return conn.execute("select id from kept").fetchone() == (7,)


def test_a_damaged_folder_is_named_and_left_as_it_is(directory):
    with embedded.start(directory / "pg") as server:
        keep(server.dsn)
    path = directory / "pg" / "data" / "PG_VERSION"
    text = path.read_text()
    files = sorted(path.parent.rglob("*"))

    for damage, problem in [("", "is empty"), ("eighteen\n", "is not a number")]:
        path.write_text(damage)
        with pytest.raises(ConfigError, match=f"PG_VERSION {problem}, so the data beside it is not opened; restore"):
            embedded.start(directory / "pg")
    path.rename(directory / "version")
    with pytest.raises(ConfigError, match="PG_VERSION is missing, so the data beside it is not opened; restore"):
        embedded.start(directory / "pg")
    (directory / "version").rename(path)
    assert sorted(path.parent.rglob("*")) == files

    path.write_text(text)
    with embedded.start(directory / "pg") as server:
        assert kept(server.dsn)


def test_a_start_right_after_the_server_died_starts_it_again(directory):
    with embedded.start(directory / "pg") as first:
        keep(first.dsn)
        os.kill(postmaster(first.folder), signal.SIGKILL)

        with embedded.start(directory / "pg") as second:  # its guardian still serves the first user
            assert kept(second.dsn)


def test_processes_that_outlived_a_server_started_by_hand_are_not_joined_by_another(directory):
    with embedded.start(directory / "pg") as server:
        keep(server.dsn)
        data, run, dsn = server.folder / "data", server.folder / "run", server.dsn
    who = binaries.account(data)
    how = {"user": who.uid, "group": who.gid, "extra_groups": []} if who else {}
    program = binaries.reachable(binaries.find(), who).folder / "postgres"
    command = [program, "-D", data, "-k", run, "-c", "listen_addresses="]
    with subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL, **how) as by_hand:
        try:
            assert within(20, lambda: answers(dsn))
            conn = psycopg.connect(dsn)
            left = conn.info.backend_pid
            os.kill(left, signal.SIGSTOP)
            by_hand.kill()
            by_hand.wait()
            with pytest.raises(ConfigError, match="already runs PostgreSQL in"):
                embedded.start(directory / "pg")
        finally:
            by_hand.kill()
            os.kill(left, signal.SIGKILL)
            conn.close()
    assert within(20, lambda: not os.path.exists(f"/proc/{left}"))

    assert (data / "postmaster.pid").exists()  # for PostgreSQL's own check of the shared memory it names
    with embedded.start(directory / "pg") as server:
        assert kept(server.dsn)


def answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def test_an_empty_file_of_a_server_that_crashed_as_it_began_is_no_obstacle(directory):
    with embedded.start(directory / "pg") as server:
        keep(server.dsn)
    (directory / "pg" / "data" / "postmaster.pid").touch(mode=0o600)

    with embedded.start(directory / "pg") as server:
        assert kept(server.dsn)


def test_a_full_disk_is_named_at_once(directory):
    if missing := SmallDisk.missing():
        pytest.skip(missing)
    disk = directory / "disk"
    mount(disk, 200 * 1024 * 1024)
    try:
        with embedded.start(disk / "pg") as server:
            keep(server.dsn)
        ballast = disk / "ballast"
        with open(ballast, "wb") as file:
            file.truncate(0)
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free)

        for folder in ("pg", "new"):
            with pytest.raises(DatabaseFull, match="has 0 MB left, PostgreSQL needs"):
                embedded.start(disk / folder)

        ballast.unlink()
        with embedded.start(disk / "pg") as server:
            assert kept(server.dsn)
        assert within(20, lambda: gone(disk / "pg"))
    finally:
        subprocess.run(["umount", "--lazy", disk], check=False)
