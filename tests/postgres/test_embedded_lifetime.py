"""How long an embedded server lives: real processes, real signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from server_users import USE, ServerUser, gone, guardian, kill, package, postmaster, within, works

from howdah.errors import ConfigError
from howdah.postgres.embedded import binaries
from howdah.postgres.embedded import server as embedded

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def directory():
    directory = Path(tempfile.mkdtemp(prefix="howdah-test-", dir="/var/tmp"))
    directory.chmod(0o755)
    yield directory
    assert within(5, lambda: gone(directory / "pg"))
    shutil.rmtree(directory)


@pytest.fixture(params=["ourselves", "nobody"])
def server_user(request, directory):
    if request.param == "ourselves":
        return ServerUser(None, package(directory))
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    server_user = ServerUser("nobody", package(directory))
    if not server_user.find_python():
        pytest.skip("nobody can run no Python here")
    shutil.chown(directory, "nobody")
    return server_user


def test_the_server_stops_when_its_only_user_is_killed(server_user, directory):
    home = directory / "pg"

    with server_user.running(USE, str(home)) as process:
        dsn = process.stdout.readline()
        with closing(psycopg.connect(dsn)) as conn:
            conn.execute("create table half as select generate_series(1, 100000)")
            kill(process)
            assert within(2, lambda: gone(home))

    assert not (home / "data" / "postmaster.pid").exists()


def test_a_temporary_folder_goes_with_a_user_that_is_killed(server_user):
    with server_user.running(USE, "") as process:
        home = _home(process.stdout.readline())
        assert home.exists()
        kill(process)

        assert within(2, lambda: not home.exists())


@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_the_server_lives_until_the_last_of_its_users_is_killed(server_user, directory, first_to_leave):
    home = directory / "pg"

    with server_user.running(USE, str(home)) as one, ExitStack() as stack:
        dsn = one.stdout.readline()
        two = stack.enter_context(server_user.running(USE, str(home)))
        assert two.stdout.readline() == dsn
        users = [one, two]
        kill(users.pop(first_to_leave))
        # A second start is proof that the guardian has dealt with what came before it.
        with server_user.running(USE, str(home)) as three:
            assert three.stdout.readline() == dsn
            three.communicate()
        assert works(dsn)

        kill(users.pop())
        assert within(2, lambda: gone(home))


def test_the_last_one_to_stop_finds_the_server_gone(server_user, directory):
    home = directory / "pg"

    with server_user.running(USE, str(home)) as one, server_user.running(USE, str(home)) as two:
        dsn = one.stdout.readline()
        assert two.stdout.readline() == dsn
        one.communicate()
        assert works(dsn)
        two.communicate()

        assert one.returncode == two.returncode == 0
        assert within(0.2, lambda: gone(home))


def test_processes_that_start_at_once_share_one_server(server_user, directory):
    with ExitStack() as stack:
        processes = [stack.enter_context(server_user.running(USE, str(directory / "pg"))) for _ in range(4)]
        assert len({process.stdout.readline() for process in processes}) == 1

        for process in processes:
            process.communicate()
    assert within(2, lambda: gone(directory / "pg"))


def test_starting_while_another_stops_never_fails(directory):
    again = f"for _ in range(8):\n    server = embedded.start({str(directory / 'pg')!r})\n    server.stop()\n"
    server_user = ServerUser(None, package(directory))

    with ExitStack() as stack:
        code = f"from howdah.postgres.embedded import server as embedded\n{again}"
        processes = [stack.enter_context(server_user.running(code)) for _ in range(3)]
        assert [process.wait() for process in processes] == [0, 0, 0]
    assert within(2, lambda: gone(directory / "pg"))


def test_a_forked_child_does_not_keep_the_server(directory):
    fork = """
import multiprocessing, sys, time
from howdah.postgres.embedded import server as embedded
server = embedded.start(sys.argv[1])
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
child.start()
print(child.pid, flush=True)
child.join()
"""
    with ServerUser(None, package(directory)).running(fork, str(directory / "pg")) as process:
        child = int(process.stdout.readline())
        kill(process)

        try:
            assert within(2, lambda: gone(directory / "pg"))
        finally:
            os.kill(child, signal.SIGKILL)


def test_ctrl_c_reaches_the_application_and_not_the_server(directory):
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + USE

    with ServerUser(None, package(directory)).running(code, str(directory / "pg"), start_new_session=True) as process:
        dsn = process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)

        assert not within(0.5, lambda: not works(dsn))


def test_the_server_dies_with_its_guardian_and_starts_again(directory):
    with embedded.start(directory / "pg") as server:
        os.kill(guardian(server.folder), signal.SIGKILL)
        assert within(2, lambda: gone(server.folder))

    with embedded.start(directory / "pg") as server:
        assert works(server.dsn)


def test_a_guardian_told_to_terminate_stops_the_server_first(directory):
    with embedded.start(directory / "pg") as server:
        os.kill(guardian(server.folder), signal.SIGTERM)

        assert within(2, lambda: gone(server.folder))
        assert not (server.folder / "data" / "postmaster.pid").exists()


def test_a_server_that_was_killed_recovers_at_the_next_start(directory):
    with embedded.start(directory / "pg") as server:
        with psycopg.connect(server.dsn) as conn:
            conn.execute("create table kept as select 7 as id")
        os.kill(postmaster(server.folder), signal.SIGKILL)
        assert within(8, lambda: gone(server.folder))

    with embedded.start(directory / "pg") as server, psycopg.connect(server.dsn) as conn:
        assert conn.execute("select id from kept").fetchone() == (7,)


def test_files_left_over_that_name_a_process_of_somebody_else_do_not_matter(directory):
    leftovers = ["data/postmaster.pid", "run/.s.PGSQL.5432.lock"]
    with embedded.start(directory / "pg") as server:
        texts = [(server.folder / name).read_text().partition("\n") for name in leftovers]
        user = (server.folder / "data").stat().st_uid
    with subprocess.Popen(["sleep", "60"], user=user) as bystander:
        for name, (_, _, rest) in zip(leftovers, texts, strict=True):
            (server.folder / name).write_text(f"{bystander.pid}\n{rest}")
        (server.folder / "run" / "guardian").touch()
        try:
            with embedded.start(directory / "pg") as server:
                assert works(server.dsn)
            assert bystander.poll() is None
        finally:
            bystander.kill()


def test_a_server_started_by_hand_is_left_alone(directory):
    with embedded.start(directory / "pg") as server:
        data, run = server.folder / "data", server.folder / "run"
    who = binaries.account(data)
    how = {"user": who.uid, "group": who.gid, "extra_groups": []} if who else {}
    program = binaries.reachable(binaries.find(), who).folder / "postgres"
    command = [program, "-D", data, "-k", run, "-c", "listen_addresses="]
    with subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL, **how) as by_hand:
        try:
            assert within(5, (run / ".s.PGSQL.5432").exists)
            with pytest.raises(ConfigError, match=f"process {by_hand.pid} already runs PostgreSQL in {data}"):
                embedded.start(directory / "pg")
            assert by_hand.poll() is None
        finally:
            by_hand.send_signal(signal.SIGINT)


def test_threads_may_start_and_stop_the_same_server_at_once(directory):
    def use(_: int) -> bool:
        with embedded.start(directory / "pg") as server:
            return works(server.dsn)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(8)))
    assert within(2, lambda: gone(directory / "pg"))


def _home(dsn: str) -> Path:
    return Path(dsn.partition("host=")[2].partition("&")[0]).parent
