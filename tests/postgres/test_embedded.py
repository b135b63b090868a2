"""What an embedded server is: its folder, its doors, and what it says when it cannot start."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import asyncpg
import psycopg
import pytest
from server_users import gone, works

from howdah.errors import ConfigError
from howdah.postgres.embedded import binaries
from howdah.postgres.embedded import data_directory as folder
from howdah.postgres.embedded import server as embedded
from kit.serve_process import free_port

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def directory():
    directory = Path(tempfile.mkdtemp(prefix="howdah-test-", dir="/var/tmp"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def shared():
    with embedded.start(port=free_port()) as shared:
        yield shared


def test_every_driver_accepts_the_dsn(shared):
    async def version() -> str:
        conn = await asyncpg.connect(shared.dsn)
        try:
            return await conn.fetchval("show server_version_num")
        finally:
            await conn.close()

    assert int(asyncio.run(version())) // 10000 == shared.major
    assert works(shared.dsn)
    if psql := shutil.which("psql"):
        result = subprocess.run([psql, shared.dsn, "-Atc", "select current_user"], capture_output=True, text=True)
        assert result.stdout == "postgres\n"


def test_the_dsn_of_another_database_is_escaped(shared):
    name = "odd name/with ü?&"
    with psycopg.connect(shared.dsn, autocommit=True) as conn:
        conn.execute(f'create database "{name}"')

    with psycopg.connect(shared.dsn_for(name)) as conn:
        assert conn.info.dbname == name


@pytest.mark.parametrize("password", ["", "wrong"])
def test_nobody_enters_without_the_password(shared, password):
    for host in (str(shared.folder / "run"), "127.0.0.1"):
        with pytest.raises(psycopg.OperationalError, match=r"password"):
            psycopg.connect(host=host, port=shared.port, user="postgres", password=password, dbname="postgres")


def test_the_password_opens_the_port_on_loopback_too(shared):
    password = (shared.folder / "password").read_text()

    assert works(f"postgresql://postgres:{password}@127.0.0.1:{shared.port}/postgres")


def test_without_a_port_there_is_no_door_but_the_socket(directory):
    with embedded.start(directory / "pg") as server, psycopg.connect(server.dsn) as conn:
        assert conn.execute("show listen_addresses").fetchone() == ("",)
        assert conn.execute("show fsync").fetchone() == ("on",)


def test_settings_are_passed_on(directory):
    settings = {"fsync": "off", "howdah.greeting": "hello 'there'"}

    with embedded.start(directory / "pg", settings=settings) as server, psycopg.connect(server.dsn) as conn:
        assert conn.execute("show fsync").fetchone() == ("off",)
        assert conn.execute("show howdah.greeting").fetchone() == ("hello 'there'",)


def test_data_and_password_outlive_a_restart(directory):
    with embedded.start(directory / "pg") as server:
        first = server.dsn
        with psycopg.connect(server.dsn) as conn:
            conn.execute("create table kept as select 'ü' as word")

    with embedded.start(directory / "pg") as server, psycopg.connect(server.dsn) as conn:
        assert server.dsn == first
        assert conn.execute("select word from kept").fetchone() == ("ü",)


def test_stopping_twice_is_harmless_and_a_temporary_folder_is_gone():
    server = embedded.start()
    server.stop()
    server.stop()

    assert not server.folder.exists()


def test_only_its_owner_can_enter(shared):
    modes = {name: stat.S_IMODE((shared.folder / name).stat().st_mode) for name in ("data", "run", "password", "log")}

    assert modes == {"data": 0o700, "run": 0o700, "password": 0o600, "log": 0o600}
    assert (shared.folder / "data").stat().st_uid != 0


def test_no_folder_but_its_own_is_changed(directory):
    home = directory / "some" / "where" / "pg"
    home.parent.mkdir(parents=True)
    outside = [
        *home.parents,
        *embedded.find().folder.parents,
        embedded.find().folder,
        Path.home(),
        Path.cwd(),
    ]
    before = [_rights(path) for path in outside]

    with embedded.start(home):
        assert [_rights(path) for path in outside] == before
    assert [_rights(path) for path in outside] == before


def test_a_folder_that_was_there_before_keeps_its_mode(directory):
    (directory / "pg").mkdir(mode=0o755)
    before = _rights(directory / "pg")

    with embedded.start(directory / "pg") as server:
        assert works(server.dsn)
    assert _rights(directory / "pg") == before


def test_a_folder_with_other_things_in_it_is_refused(directory):
    (directory / "letter.txt").write_text("dear")

    with pytest.raises(ConfigError, match="neither empty nor an embedded PostgreSQL"):
        embedded.start(directory)
    assert os.listdir(directory) == ["letter.txt"]


def test_a_path_too_long_for_a_socket_has_its_sockets_elsewhere(directory):
    home = directory / ("long " * 20) / "pg"

    with embedded.start(home) as server:
        assert works(server.dsn)
        sockets = folder.sockets_of(server.folder)
        assert sockets.parent == Path("/tmp")
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        with embedded.start(home) as again:
            assert again.dsn == server.dsn
    assert gone(home)
    assert not sockets.exists()


def test_a_short_socket_folder_of_somebody_else_is_not_used(directory):
    home = directory / ("long " * 20) / "pg"
    squatted = folder.sockets_of(home)
    squatted.mkdir(mode=0o755)

    try:
        with pytest.raises(ConfigError, match="is not a folder that only user"):
            embedded.start(home)
    finally:
        squatted.rmdir()


@pytest.mark.parametrize("theirs", [True, False], ids=["another user's", "open to all"])
def test_a_guardian_in_a_folder_of_somebody_else_is_not_spoken_to(directory, theirs):
    """With a server of their own they would get the password."""
    if theirs and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    home = directory / ("long " * 20) / "pg"
    squatted = folder.sockets_of(home)
    squatted.mkdir(mode=0o700 if theirs else 0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(squatted / "guardian"))
        listener.listen()
        listener.settimeout(0.1)
        if theirs:
            os.chown(squatted, 54321, 54321)
        try:
            with pytest.raises(ConfigError, match="is not a folder that only user"):
                embedded.start(home)
            with pytest.raises(TimeoutError):
                listener.accept()
        finally:
            (squatted / "guardian").unlink()
            squatted.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root must change the user")
def test_root_is_told_of_a_folder_the_server_cannot_reach(directory):
    private = directory / "private"
    private.mkdir(mode=0o700)

    with pytest.raises(ConfigError, match=rf"may not enter {private}; use a folder it can reach"):
        embedded.start(private / "pg")
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root must change the user")
def test_root_may_have_a_private_temporary_folder_and_private_programs(directory, monkeypatch):
    private = directory / "private"
    private.mkdir(mode=0o700)
    package = binaries.find(18).folder.parents[1]
    for part in (package / "pginstall18", package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, private / part.relative_to(package.parent), symlinks=True)
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    monkeypatch.setattr(binaries, "CACHE", directory / "cache")
    monkeypatch.setenv("HOWDAH_PG_BIN", str(private / package.name / "pginstall18" / "bin"))
    before = _rights(private)

    for _ in range(2):
        with embedded.start() as server:
            assert works(server.dsn)
            assert private not in server.folder.parents
    assert _rights(private) == before
    assert len(list((directory / "cache").iterdir())) == 1


def test_data_of_another_major_version_is_refused_with_both_names(directory):
    with embedded.start(directory / "pg", version=18):
        pass
    (directory / "pg" / "data" / "PG_VERSION").write_text("12\n")

    with pytest.raises(ConfigError, match="data of PostgreSQL 12, which PostgreSQL 18 cannot read"):
        embedded.start(directory / "pg")


def test_without_a_version_the_one_of_the_data_is_taken(directory):
    with embedded.start(directory / "pg", version=16):
        pass

    with embedded.start(directory / "pg") as server:
        assert server.major == 16
    with pytest.raises(ConfigError, match="data of PostgreSQL 16, which PostgreSQL 18 cannot read"):
        embedded.start(directory / "pg", version=18)


def test_a_port_that_is_taken_is_named(directory):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is taken"):
            embedded.start(directory / "pg", port=port)
    assert gone(directory / "pg")


def test_a_running_server_cannot_be_given_a_port(directory):
    with embedded.start(directory / "pg") as server:
        with pytest.raises(ConfigError, match="already runs without port 6543"):
            embedded.start(directory / "pg", port=6543)
        assert works(server.dsn)


def test_a_server_that_does_not_start_says_why_and_where_its_log_is(directory):
    with pytest.raises(ConfigError, match=r'unrecognized configuration parameter "fsink".*pg/log') as caught:
        embedded.start(directory / "pg", settings={"fsink": "off"})
    assert "\n" not in str(caught.value)
    assert gone(directory / "pg")


def test_a_failed_initdb_is_quoted(directory, monkeypatch):
    fake = directory / "bin"
    fake.mkdir()
    for name, line in {
        "postgres": "echo 'postgres (PostgreSQL) 18.9'",
        "initdb": "echo disk full; exit 1",
    }.items():
        (fake / name).write_text(f"#!/bin/sh\n{line}\n")
        (fake / name).chmod(0o755)
    monkeypatch.setenv("HOWDAH_PG_BIN", str(fake))

    with pytest.raises(ConfigError, match=r"initdb failed in .*: disk full"):
        embedded.start(directory / "pg")
    assert gone(directory / "pg")
    assert not (directory / "pg" / "data").exists()


def test_logging_in_with_a_wrong_password_is_an_error_not_a_no(shared):
    path = shared.folder / "run" / f".s.PGSQL.{shared.port}"

    assert embedded.answers(path, (shared.folder / "password").read_text())
    with pytest.raises(ConfigError, match="not that of the server"):
        embedded.answers(path, "wrong")
    assert not embedded.answers(path.with_name("nothing"), "any")


def test_the_fixture_gives_a_server(server):
    assert works(server.dsn_for("template1"))


def _rights(path: Path) -> tuple[int, int, int]:
    facts = path.stat()
    return facts.st_mode, facts.st_uid, facts.st_gid
