"""`howdah serve` as a real process: what it serves, how it refuses, how it ends."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from howdah.postgres.database import Database
from kit.command import Command, Jobs, eventually
from kit.serve_process import QUICK, ControlPlaneProcess, ask, free_port, make_token
from table.ddl import ddl

HEAD = "POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n{}Content-Length: 14\r\nExpect: 100-continue\r\n\r\n"


def begin(slow: socket.socket, token: str | None = None) -> None:
    """Begin a request, and see that it is being answered: the body is waited for."""
    slow.settimeout(60)
    slow.sendall(HEAD.format(f"Authorization: Bearer {token}\r\n" if token else "").encode())
    assert slow.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.fixture
def jobs(direct: Database) -> Iterator[Jobs]:
    jobs = Jobs(direct.dsn)
    yield jobs
    jobs.close()


def accepted(control: ControlPlaneProcess) -> int:
    """How many are connected to it."""
    found = psutil.Process(control.process.pid).net_connections()
    return sum(each.status == psutil.CONN_ESTABLISHED and each.laddr.port == control.port for each in found)


def registered(direct: Database) -> int:
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        return conn.execute("select count(*) from howdah.node").fetchall()[0][0]


def register(url: str, token: str, **more: object) -> tuple[int, str]:
    status, made = ask(url, "/workers/register", token, {"hostname": "w", "kinds": ["nap"], **more})
    assert status == 201, made
    return made["id"], made["credential"]


def test_without_an_app_it_serves_jobs_of_any_kind(database: Database, jobs: Jobs) -> None:
    token = make_token(database, "work", "enqueue", "read")

    with ControlPlaneProcess(dsn=database.dsn) as control:
        assert ask(control.url, "/health")[0] == ask(control.url, "/ready")[0] == 200
        assert ask(control.url, "/stats")[0] == 401
        id, credential = register(control.url, token)
        assert ask(control.url, "/jobs", token, {"kind": "nap", "args": {"seconds": 1}})[0] == 201
        status, claimed = ask(control.url, f"/workers/{id}/claim", credential, {"wait": 5})
        [job] = claimed["jobs"]
        assert (status, job["kind"], job["args"]) == (200, "nap", {"seconds": 1})
        path = f"/workers/{id}/complete/{job['id']}"
        assert ask(control.url, path, credential, {"token": job["token"]})[0] == 200
        assert jobs.all() == ["done"]
        assert token not in control.output
        assert credential not in control.output


def test_with_an_app_it_knows_its_tasks_tables_and_schedules(
    database: Database, direct: Database, jobs: Jobs, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text("""
from howdah import Howdah
app = Howdah()
@app.task
async def greet(name: str): ...
@app.table("uploads").handler
async def upload(record): ...
app.schedule("often", greet.job("all"), cron="* * * * * *")
""")
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute(ddl(extra="n int"))
        conn.execute("insert into uploads (n) values (7)")
    token = make_token(database, "work", "enqueue")

    with ControlPlaneProcess("-a", "own:app", dsn=database.dsn, folder=tmp_path) as control:
        status, refusal = ask(control.url, "/jobs", token, {"kind": "greet", "args": {"nmae": "x"}})
        assert (status, "args" in refusal) == (400, True)
        id, credential = register(control.url, token, tables=["uploads"])
        _, claimed = ask(control.url, f"/workers/{id}/claim", credential, {"store": "uploads", "wait": 5})
        assert claimed["jobs"][0]["args"]["n"] == 7
        eventually(lambda: "queued" in jobs.all(), why=lambda: control.output)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_promptly_and_lets_go_who_waits(
    database: Database, direct: Database, jobs: Jobs, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text("from howdah import Howdah\napp = Howdah()\napp.table('uploads')\n")
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute(ddl())
    token = make_token(database, "work")
    answers: list[int] = []

    with ControlPlaneProcess("-a", "own:app", *QUICK, dsn=database.dsn, folder=tmp_path) as control:
        url = control.url

        def wait_for_work(store: str) -> None:
            id, credential = register(url, token, tables=["uploads"])
            answers.append(ask(url, f"/workers/{id}/claim", credential, {"wait": 60, "store": store})[0])

        waiting = [threading.Thread(target=wait_for_work, args=(store,)) for store in ("jobs", "jobs", "uploads")]
        for each in waiting:
            each.start()
        # each has registered, and then asked once more, which is a connection of its own
        eventually(lambda: len(answers) == 0 and accepted(control) == 3 and registered(direct) == 3)
        time.sleep(0.5)
        began = time.monotonic()
        control.send(number)

        assert control.ends() == 0
        assert time.monotonic() - began < 30, "they wait for a minute"
        for each in waiting:
            each.join(30)
        assert answers == [204, 204, 204]
        assert "stopping: long polls end now" in control.output
        assert "Traceback" not in control.output


def test_what_was_asked_before_the_signal_is_still_answered(database: Database) -> None:
    token = make_token(database, "enqueue")

    with ControlPlaneProcess(dsn=database.dsn) as control:
        host, port = "127.0.0.1", control.port
        with socket.create_connection((host, port)) as slow:
            begin(slow, token)
            control.send(signal.SIGTERM)
            control.says("stopping: long polls end now")
            slow.sendall(b'{"kind": "nap"')
            answer = slow.recv(1000)
        assert answer.startswith(b"HTTP/1.1 400"), "the body was cut, and it says so"
        assert control.ends() == 0


def test_the_second_signal_ends_it_at_once(database: Database) -> None:
    token = make_token(database, "enqueue")

    with ControlPlaneProcess(dsn=database.dsn) as control:
        with socket.create_connection(("127.0.0.1", control.port)) as slow:
            begin(slow, token)
            control.send(signal.SIGTERM)
            control.says("stopping: long polls end now")
            began = time.monotonic()
            control.send(signal.SIGTERM)

            assert control.ends() == 1
        assert time.monotonic() - began < 20
        assert "ending at once" in control.output


def test_a_request_that_never_ends_does_not_keep_it(database: Database) -> None:
    with (
        ControlPlaneProcess("--auth", "none", dsn=database.dsn) as control,
        socket.create_connection(("127.0.0.1", control.port)) as slow,
    ):
        begin(slow)
        control.send(signal.SIGTERM)

        assert control.ends() == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--host", "0.0.0.0", "--auth", "none"), "refusing to listen on 0.0.0.0 without auth"),
        (("--cert", "tls.crt"), "TLS needs both a certificate and its key"),
        (("--cert", "no.crt", "--key", "no.key"), "the certificate no.crt and its key cannot be used"),
        (("--heartbeat", "1m"), "offline_after must be at least two heartbeats"),
        (("--rate", "0"), "rate must be above zero"),
        (("--host", "no.such.host.invalid"), "cannot listen on no.such.host.invalid"),
        (("--auth", "maybe"), "Invalid value for '--auth'"),
        (("-a", "kit.command_app:nothing"), "did you mean kit.command_app:app?"),
    ],
)
def test_what_cannot_work_ends_with_code_2(database: Database, words: tuple[str, ...], message: str) -> None:
    with ControlPlaneProcess(*words, dsn=database.dsn) as control:
        assert control.ends() == 2
        assert message in control.output
        assert "Traceback" not in control.output


def test_a_port_that_is_taken_ends_it_with_code_2(database: Database) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        ControlPlaneProcess(port=taken.getsockname()[1], dsn=database.dsn) as second,
    ):
        assert second.ends() == 2
        assert "it is in use; choose another with --port" in second.output


def test_without_a_schema_it_ends_with_code_4(database: Database) -> None:
    with ControlPlaneProcess("--schema", "elsewhere", dsn=database.dsn) as control:
        assert control.ends() == 4
        assert "run `howdah migrate`" in control.output


def test_without_a_database_it_waits_a_while_and_ends_with_code_3() -> None:
    dsn = f"postgresql://me:secret@127.0.0.1:{free_port()}/app"

    with ControlPlaneProcess("--wait", "1s", dsn=dsn) as control:
        assert control.ends() == 3
        assert "secret" not in control.output
    with ControlPlaneProcess(dsn=dsn) as control:
        control.says("connect failed")
        control.send(signal.SIGTERM)
        assert control.ends() == 0


def test_the_settings_say_which_keys_of_a_result_are_shown(database: Database) -> None:
    token = make_token(database, "work", "enqueue", "read")

    with ControlPlaneProcess(dsn=database.dsn, HOWDAH_REDACT="iban") as control:
        url = control.url
        id, credential = register(url, token)
        _, made = ask(url, "/jobs", token, {"kind": "nap"})
        _, claimed = ask(url, f"/workers/{id}/claim", credential, {"wait": 30})
        body = {"token": claimed["jobs"][0]["token"], "result": {"IBAN": "DE02", "token": "t"}}
        assert ask(url, f"/workers/{id}/complete/{made['id']}", credential, body)[0] == 200
        assert ask(url, f"/jobs/{made['id']}", token)[1]["result"] == {"IBAN": "***", "token": "t"}


def test_settings_come_from_the_file_and_the_environment(database: Database, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "howdah.toml").write_text('[serve]\nauth = "none"\nheartbeat = "2s"\noffline_after = "10s"\nport = 1\n')
    words = ("serve",)

    with Command(*words, dsn=database.dsn, folder=tmp_path, HOWDAH_SERVE_PORT=str(port)) as control:
        control.says(f"listens on http://127.0.0.1:{port}")
        _, made = ask(f"http://127.0.0.1:{port}", "/workers/register", body={"hostname": "w"})
        assert (made["heartbeat"], made["lease"]) == (2.0, 10.0)

    (tmp_path / "howdah.toml").write_text("[serve]\nprot = 1\n")
    with Command(*words, dsn=database.dsn, folder=tmp_path) as control:
        assert control.ends() == 2
        assert "unknown key 'serve.prot'; did you mean 'port'?" in control.output


def test_it_speaks_tls(database: Database, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate

    with ControlPlaneProcess("--cert", str(cert), "--key", str(key), dsn=database.dsn) as control:
        assert control.url.startswith("https://127.0.0.1:")
        trust = ssl.create_default_context(cafile=cert)
        plain = socket.create_connection(("127.0.0.1", control.port))
        with plain, trust.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
            tls.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert tls.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_two_of_them_share_the_work(database: Database, jobs: Jobs) -> None:
    token = make_token(database, "work", "enqueue")

    with ControlPlaneProcess(dsn=database.dsn) as one, ControlPlaneProcess(dsn=database.dsn) as two:
        id, credential = register(one.url, token)
        assert ask(one.url, "/jobs", token, {"kind": "nap"})[0] == 201
        _, claimed = ask(two.url, f"/workers/{id}/claim", credential, {"wait": 5})
        one.send(signal.SIGTERM)
        assert one.ends() == 0
        [job] = claimed["jobs"]
        path = f"/workers/{id}/complete/{job['id']}"
        assert ask(two.url, path, credential, {"token": job["token"]})[0] == 200
        assert jobs.all() == ["done"]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that is its own authority, and its key."""
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=howdah"
    extra = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*words.split(), *extra], check=True, capture_output=True, timeout=30)
    return cert, key
