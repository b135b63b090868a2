"""A canary in every place a secret is kept, every front at work, and a look at all that is said and stored (S4, S8).

The six that are secret are found nowhere but where they belong. The seventh is a plain argument: it is found everywhere
the others are looked for, so the looking is worth something.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest
from click.testing import CliRunner

from howdah import Howdah, Secret
from howdah.cli import main
from kit.command import Command, eventually
from kit.control_plane import serving
from kit.roles import as_role
from kit.serve_process import ControlPlaneProcess, free_port
from kit.webhook_receiver import Receiver
from security.user_interfaces import API, READING_COMMANDS, follow, pages, sign_in

pytestmark = pytest.mark.timeout(300)

APP = ("-a", "kit.secret_app:app")
PLAIN = "plain"
BELONGS = {"argument": {"job.args"}, PLAIN: set()}
"""Where in the database a canary may be; the others are nowhere."""


@dataclass
class Aviary:
    """The canaries, and all that was said by whom."""

    birds: dict[str, str]
    outputs: dict[str, str] = field(default_factory=dict)

    def hear(self, who: str, text: str) -> None:
        self.outputs[who] = self.outputs.get(who, "") + text

    def found(self, bird: str) -> list[str]:
        """Who said it."""
        return sorted(who for who, text in self.outputs.items() if self.birds[bird] in text)


@pytest.fixture
def aviary() -> Aviary:
    names = ("dsn", "webhook", "address", "password", "read_password", "argument", "environment", PLAIN)
    return Aviary({name: f"canary{secrets.token_hex(16)}" for name in names})


@pytest.fixture
def superuser_conn(direct: Any) -> Iterator[psycopg.Connection]:
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def guarded(roles: Any, direct: Any, superuser_conn: Any, aviary: Aviary) -> Iterator[str]:
    """The DSN of somebody who is worker and control plane, and whose password is a canary."""
    name, password = f"canary_{os.getpid()}", aviary.birds["dsn"]
    superuser_conn.execute(f"create role {name} login password '{password}' in role howdah_worker, howdah_fleet")
    yield as_role(direct.dsn, name).replace(f":{name}@", f":{password}@")
    superuser_conn.execute(f"drop role {name}")


def cli(dsn: str, *words: str, stdin: str = "") -> str:
    """What a command says, both ways; whatever its exit code."""
    env = {"HOWDAH_DSN": dsn, "HOWDAH_APP": "kit.secret_app:app", "HOWDAH_LOG_LEVEL": "debug"}
    done = CliRunner().invoke(main, list(words), input=stdin, env=env, prog_name="howdah")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output


def titles(command: Command) -> str:
    """What every user of the machine can read of a process and those it started."""
    output = ""
    for pid in (command.process.pid, *command.children):
        with suppress(FileNotFoundError, ProcessLookupError):  # a child may end at any time
            output += "\n".join(Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "comm", "stat"))
    return output


def stored(conn: Any) -> dict[str, str]:
    """Every column of every table of ours, as text."""
    columns = conn.execute(
        """select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = 'howdah'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
          and a.attnum > 0 and not a.attisdropped"""
    ).fetchall()
    texts = 'select string_agg("{1}"::text, chr(10)) from howdah."{0}"'
    return {".".join(each): str(conn.execute(texts.format(*each)).fetchone()) for each in columns}


@pytest.mark.stories
def test_the_canaries_are_found_nowhere(
    aviary: Aviary,
    guarded: str,
    roles: Any,
    server: Any,
    superuser_conn: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    birds, port = aviary.birds, free_port()
    token_line, *_ = cli(
        roles("howdah_owner"), "token", "create", "box", "--scope", "admin", "--scope", "work"
    ).splitlines()
    birds["token"] = token_line
    loud = {"HOWDAH_LOG_LEVEL": "debug", "HOWDAH_LOG_JSON": "false", "SHOP_TOKEN": birds["environment"]}
    with ExitStack() as stack:
        hooks = stack.enter_context(Receiver())
        (tmp_path / "howdah.toml").write_text(
            f'[[webhook]]\nname = "ops"\nurl = "{hooks.url}&to={birds["address"]}"\nsecret = "{birds["webhook"]}"\n'
            "allow_http = true\nallow_private = true\n"
        )
        serve = stack.enter_context(
            ControlPlaneProcess(*APP, dsn=guarded, folder=tmp_path, **loud, HOWDAH_SERVE_PASSWORD=birds["password"],
                    HOWDAH_SERVE_READ_PASSWORD=birds["read_password"])
        )  # fmt: skip
        words = ("worker", *APP, "--metrics", f"127.0.0.1:{port}", "-q", "default")
        worker = stack.enter_context(
            Command(*words, dsn=guarded, folder=tmp_path, **loud | {"HOWDAH_LOG_JSON": "true"})
        )
        remote = stack.enter_context(
            Command(
                "worker", *APP, "-q", "away", folder=tmp_path, **loud, HOWDAH_SERVER=serve.url, HOWDAH_TOKEN=token_line
            )
        )
        commands = {"serve": serve, "worker": worker, "remote worker": remote}
        worker.says("starts: ")
        remote.says(" works for ")

        enqueue(aviary, guarded)
        asyncio.run(enqueue_over_http(aviary, serve.url))
        failed = "select count(*) = 9 from howdah.done where state = 'f'"
        eventually(lambda: superuser_conn.execute(failed).fetchone()[0], 120, lambda: worker.output + remote.output)
        eventually(lambda: len(hooks.heard) >= 9, 120, lambda: worker.output)
        for name, command in commands.items():
            aviary.hear(f"title of {name}", titles(command))
        aviary.hear("webhooks", "\n".join(f"{each.headers} {each.body.decode()}" for each in hooks.heard))
        assert all(birds["address"] in each.path for each in hooks.heard)
        ids = [id for (id,) in superuser_conn.execute("select id from howdah.job")]
        asyncio.run(read_everything(aviary, serve.url, port, ids))
        for words in READING_COMMANDS:
            for how in ((), ("--json",)):
                aviary.hear(f"howdah {words[0]}", cli(guarded, *words, *how))
        for id in ids:
            aviary.hear("howdah job", cli(guarded, "job", str(id)) + cli(guarded, "job", str(id), "--json"))
        rows = superuser_conn.execute("select application_name, query from pg_stat_activity").fetchall()
        aviary.hear("pg_stat_activity", "\n".join(map(str, rows)))
        outage(aviary, guarded)
        for command in commands.values():
            command.send(signal.SIGTERM)
        for name, command in commands.items():
            assert command.ends() == 0, command.output
            aviary.hear(f"log of {name}", command.output)
    if hasattr(server, "folder"):
        aviary.hear("log of postgresql", (server.folder / "log").read_text(errors="replace"))
    for column, text in stored(superuser_conn).items():
        aviary.hear(column, text)

    for bird in birds:
        if bird != PLAIN:
            assert set(aviary.found(bird)) == BELONGS.get(bird, set()), bird
    assert aviary.found(PLAIN) == sorted(PLACES), "the same look finds what is no secret"


@pytest.mark.anyio
async def test_a_form_that_is_wrong_does_not_say_a_secret_again(app: Howdah, aviary: Aviary) -> None:
    @app.task
    async def pay(pin: Secret[int], amount: int) -> None: ...

    bird = aviary.birds["argument"]
    async with serving(app) as plane, plane.client() as browser:
        await sign_in(browser, plane.token)
        same = {"Origin": plane.url, "Sec-Fetch-Site": "same-origin"}
        for pin, amount in ((bird, "1"), (f'"{bird}"', "1"), ("1", bird)):
            fields = {"kind": "pay", "arg.pin": pin, "arg.amount": amount, "sure": "yes"}
            response = await browser.post("/dashboard/enqueue", data=fields, headers=same)
            assert response.status_code == 400, response.text
            assert (bird in response.text) == (amount == bird), "what is no secret is said again"
    await app.close()


PLACES = (
    "attempt.message",
    "attempt.traceback",
    "dashboard",
    "done.error",
    "howdah failures",
    "howdah job",
    "howdah jobs",
    "http",
    "job.args",
    "job_log.line",
    "log of remote worker",
    "log of worker",
    "webhooks",
)
"""Who tells of an argument that is no secret."""


def enqueue(aviary: Aviary, dsn: str) -> None:
    """Seven jobs, all of which fail."""
    card, word = f'{{"card": "{aviary.birds["argument"]}"}}', f'{{"word": "{aviary.birds[PLAIN]}"}}'
    for kind in ("charge", "charge_in_thread", "charge_in_process"):
        aviary.hear("howdah enqueue", cli(dsn, "enqueue", kind, "-", stdin=card))
    for queue in ("default", "away"):
        aviary.hear("howdah enqueue", cli(dsn, "enqueue", "say", "-", "--queue", queue, stdin=word))
        aviary.hear("howdah enqueue", cli(dsn, "enqueue", "connect", "--queue", queue))


async def enqueue_over_http(aviary: Aviary, url: str) -> None:
    """Two more, and some that are refused."""
    headers = {"Authorization": f"Bearer {aviary.birds['token']}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30) as api:
        response = await api.post(
            "/jobs",
            json={"kind": "charge", "queue": "away", "args": {"card": aviary.birds["argument"]}, "max_attempts": 1},
        )
        assert response.status_code == 201, response.text
        aviary.hear("http", response.text)
        for wrong in ({"card": [aviary.birds["argument"]]}, {"card": aviary.birds["argument"], "more": 1}):
            aviary.hear("http", (await api.post("/jobs", json={"kind": "charge", "args": wrong})).text)
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as browser:
        await sign_in(browser, aviary.birds["password"])
        same = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
        fields = {
            "kind": "charge",
            "arg.card": aviary.birds["argument"],
            "card": aviary.birds["argument"],
            "queue": "default",
            "sure": "yes",
        }
        response = await browser.post("/dashboard/enqueue", data=fields, headers=same)
        assert response.status_code == 303, response.text
        aviary.hear("dashboard", str(response.headers))


async def read_everything(aviary: Aviary, url: str, port: int, ids: list[int]) -> None:
    """Every page and every answer, as each who may come in; some of the live stream; and what strangers hear."""
    headers = {"Authorization": f"Bearer {aviary.birds['token']}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30) as api:
        addresses = [*API, *(f"/jobs/{id}{part}" for id in ids for part in ("", "/log"))]
        for response in (await follow(api, addresses)).values():
            aviary.hear("http", f"{response.headers} {response.text}")
    for secret in (aviary.birds["password"], aviary.birds["read_password"], aviary.birds["token"]):
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as browser:
            await sign_in(browser, secret)
            jobs = [f"/dashboard/jobs/{id}" for id in ids]
            for response in (await follow(browser, [*pages(), *jobs])).values():
                aviary.hear("dashboard", response.text)
            async with browser.stream("GET", "/dashboard/live") as stream:
                async for line in stream.aiter_lines():
                    aviary.hear("live stream", line)
                    if line.startswith("data: {"):
                        break
            await browser.post("/dashboard/login", data={"secret": secret + "x", "to": "/"}, headers={"Origin": url})
    async with httpx.AsyncClient(trust_env=False, timeout=30) as stranger:
        for address in (
            f"{url}/jobs/1",
            f"{url}/dashboard/",
            f"{url}/openapi.json",
            f"http://127.0.0.1:{port}/metrics",
        ):
            aviary.hear("answers to strangers", (await stranger.get(address)).text)
        wrong = {"Authorization": f"Bearer {aviary.birds['token']}x"}
        aviary.hear("answers to strangers", (await stranger.get(f"{url}/jobs/1", headers=wrong)).text)


def outage(aviary: Aviary, dsn: str) -> None:
    """What is said to somebody who does not get in."""
    password = aviary.birds["dsn"]
    for wrong in (
        dsn.replace("canary_", "nobody_", 1),
        f"postgresql://me:{password}@127.0.0.1:1/none",
        f"postgresql://me:{password}@[::1/none",
        f"host=127.0.0.1 port=1 user=me password={password}",
        f"postgresql://127.0.0.1:1/none?user=me&password={password}",
    ):
        for words in (("jobs",), ("doctor",), ("migrate",)):
            aviary.hear("errors of entry", cli(dsn, *words, "--dsn", wrong))
    with Command("worker", *APP, "--wait", "1s", dsn=dsn.replace("canary_", "nobody_", 1)) as worker:
        assert worker.ends() == 3
    aviary.hear("errors of entry", worker.last_output)
