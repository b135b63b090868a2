"""A process that has enqueued is forked, as by gunicorn --preload or multiprocessing: parent and child both go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import psycopg
import pytest

SCRIPT_TIMEOUT = 60
PRELUDE = """
import asyncio, os, signal, sys, threading, time
from howdah import Howdah, clients, sync_bridge

app = Howdah(sys.argv[1])

@app.task
async def pack(n: int) -> None: ...

def child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # a child that waits for ever is ended by the signal
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid

def end_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

"""


def run(dsn: str, body: str) -> str:
    program = PRELUDE + textwrap.dedent(body)
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, dsn],
        capture_output=True,
        text=True,
        timeout=SCRIPT_TIMEOUT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def rows(dsn: str, query: str) -> list:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return conn.execute(query).fetchall()


BACKENDS = """
select pid from pg_stat_activity
where datname = current_database() and application_name = 'howdah pool' order by 1
"""


def numbers(dsn: str) -> list[int]:
    return [n for (n,) in rows(dsn, "select (args ->> 'n')::int from howdah.job order by 1")]


def test_children_and_parent_enqueue_after_the_fork(direct):
    run(
        direct.dsn,
        """
        app.enqueue_sync(pack.job(0))
        children = [child(lambda n=n: app.enqueue_many_sync([pack.job(n), pack.job(n + 100)])) for n in range(1, 5)]
        for n in range(5, 25):
            app.enqueue_sync(pack.job(n))  # the parent goes on meanwhile
        assert [end_of(pid) for pid in children] == [0] * 4
        app.enqueue_sync(pack.job(25))
        """,
    )

    assert numbers(direct.dsn) == [*range(26), 101, 102, 103, 104]


def test_the_parents_connections_are_left_alone(direct):
    result = run(
        direct.dsn,
        """
        import psycopg
        look = "select pid from pg_stat_activity where datname = current_database() and application_name ~ 'pool'"
        backends = lambda: psycopg.connect(sys.argv[1]).execute(look).fetchall()

        async def main():
            await app.enqueue(pack.job(1))
            app_sync = await asyncio.to_thread(app.enqueue_sync, pack.job(2))
            before = sorted(await asyncio.to_thread(backends))

            def work():
                asyncio.run(app.enqueue(pack.job(3)))
                app.enqueue_sync(pack.job(4))

            assert await asyncio.to_thread(lambda: end_of(child(work))) == 0
            await app.enqueue(pack.job(5))
            await asyncio.to_thread(app.enqueue_sync, pack.job(6))
            after = sorted(await asyncio.to_thread(backends))
            print(len(before), set(before) <= set(after))
        asyncio.run(main())
        """,
    )

    assert result.split() == ["2", "True"]
    assert numbers(direct.dsn) == [1, 2, 3, 4, 5, 6]


def test_a_child_of_a_child_and_of_multiprocessing_enqueue(direct):
    run(
        direct.dsn,
        """
        import multiprocessing

        def enqueue(n):
            return app.enqueue_sync(pack.job(n)).id

        enqueue(0)
        with multiprocessing.get_context("fork").Pool(3) as pool:
            assert len(set(pool.map_async(enqueue, range(1, 10)).get(30))) == 9

        def work():
            enqueue(10)
            assert end_of(child(lambda: enqueue(11))) == 0
            enqueue(12)

        assert end_of(child(work)) == 0
        """,
    )

    assert numbers(direct.dsn) == [*range(13)]


def test_a_lock_that_another_thread_holds_at_the_fork_does_not_hold_the_child(direct):
    run(
        direct.dsn,
        """
        app.enqueue_sync(pack.job(0))
        held, over = threading.Event(), threading.Event()

        def hold():
            with clients._guard, sync_bridge._guard:
                held.set()
                over.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        pid = child(lambda: app.enqueue_sync(pack.job(1)))
        assert end_of(pid) == 0
        over.set()
        holder.join()
        """,
    )

    assert numbers(direct.dsn) == [0, 1]


def test_a_child_keeps_no_connection_of_a_killed_parent_open(direct):
    program = PRELUDE + textwrap.dedent(
        """
        app.enqueue_sync(pack.job(0))
        # one write each, so that what one says is never in the middle of what the other says
        pid = child(lambda: (os.write(1, b"up\\n"), time.sleep(25)))
        os.write(1, b"%d\\n" % pid)
        time.sleep(60)
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, direct.dsn], stdout=subprocess.PIPE
    )
    child = None
    try:
        output = {parent.stdout.readline(), parent.stdout.readline()}
        [child] = [int(word) for word in output - {b"up\n"}]
        assert len(rows(direct.dsn, BACKENDS)) == 1

        parent.kill()
        parent.wait()

        deadline = time.monotonic() + 20
        while rows(direct.dsn, BACKENDS):
            assert time.monotonic() < deadline, "the child holds the socket of its dead parent"
            time.sleep(0.05)
        os.kill(child, 0)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
        if child is not None:
            os.kill(child, signal.SIGKILL)


def test_a_child_that_kept_the_parents_bridge_would_wait_for_ever(direct):
    """Negative control: without what is done at the fork, the tests above would notice."""
    result = run(
        direct.dsn,
        """
        app.enqueue_sync(pack.job(0))

        def work():
            signal.alarm(3)
            sync_bridge._bridge = sync_bridge._inherited[0]
            app.enqueue_sync(pack.job(1))

        print(end_of(child(work)))
        """,
    )

    assert int(result) == -signal.SIGALRM
    assert numbers(direct.dsn) == [0]


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_parent_that_forked_in_the_middle_of_calls_loses_none(direct, how):
    run(
        direct.dsn,
        f"""
        app.enqueue_sync(pack.job(999))  # everything is imported: Python cannot fork in the middle of an import

        def calls(first):
            for n in range(first, first + 25):
                if {how!r} == "sync":
                    app.enqueue_sync(pack.job(n))
                else:
                    asyncio.run(app.enqueue(pack.job(n)))

        threads = [threading.Thread(target=calls, args=(first * 100,)) for first in range(3)]
        for thread in threads:
            thread.start()
        children = [child(lambda n=n: app.enqueue_sync(pack.job(n))) for n in range(1000, 1006)]
        for thread in threads:
            thread.join()
        assert [end_of(pid) for pid in children] == [0] * 6
        """,
    )

    assert numbers(direct.dsn) == [n + base for base in (0, 100, 200) for n in range(25)] + [*range(999, 1006)]
