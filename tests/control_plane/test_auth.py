"""Who may do what: one matrix over every route there is, so that none can be forgotten (S3, S4, S11)."""

from __future__ import annotations

import asyncio
import hmac
import re
import time

import pytest

from howdah.control_plane import routes
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.tokens import SCOPES, make
from howdah.errors import ConfigError

pytestmark = pytest.mark.anyio

ROUTES = [pytest.param(route, id=f"{route.method} {route.path}") for route in routes.ROUTES]

OPENS = {
    "nothing": {"nobody", "malformed", "basic", "miscounted", "unknown", "expired", "revoked", "stranger", "own"}
    | set(SCOPES),
    "enqueue": {"enqueue", "admin"},
    "work": {"work", "admin"},
    "read": {"read", "admin"},
    "admin": {"admin"},
    "node": {"own"},
    "node or admin": {"own", "admin"},
}
"""Which of the callers below each need lets in. Everybody else is refused."""

UNKNOWN_CALLERS = {"nobody", "malformed", "basic", "miscounted", "unknown", "expired", "revoked"}
"""Those hear 401 everywhere; a token that is good, but not for this, hears 403."""


def expected(needs: str, caller: str) -> int | None:
    """The status a caller is refused with; ``None``: he is let in."""
    if caller in OPENS[needs]:
        return None
    if caller in UNKNOWN_CALLERS:
        return 401
    if caller in ("own", "stranger"):  # the credential of a worker is no token, and of one worker only
        return 401
    return 403


BODIES = {
    "register": {"hostname": "w"},
    "ack": {"acks": []},
    "complete": {"token": 1},
    "fail": {"token": 1},
    "say": {"token": 1},
    "note_run": {"token": 1, "state": "running"},
    "enqueue": {"kind": "noop"},
}


@pytest.fixture
async def callers(plane):
    """Every sort of caller: what each sends as Authorization."""
    good = make()
    wrong = good[:-1] + ("0" if good[-1] != "0" else "1")
    expired, _ = await plane.store.create("short", ["admin"], expires=0.001)
    revoked, row = await plane.store.create("gone", ["admin"])
    await plane.store.revoke(row.id)
    stranger = await plane.worker()
    bearers = {
        "malformed": "secret",
        "miscounted": wrong,
        "unknown": good,
        "expired": expired,
        "revoked": revoked,
        "stranger": stranger.credential,
        **plane.tokens,
    }
    return {
        "nobody": None,
        "basic": "Basic aGVsbG86d29ybGQ=",
        **{name: f"Bearer {token}" for name, token in bearers.items()},
    }


async def test_no_route_lacks_a_lock_and_every_lock_is_known(plane):
    assert {route.needs for route in routes.ROUTES} == set(OPENS)
    open_routes = {route.path for route in routes.ROUTES if route.needs == "nothing"}
    assert open_routes == {"/health", "/ready", "/openapi.json"}


@pytest.mark.parametrize("route", ROUTES)
async def test_every_route_lets_in_whom_it_should(plane, callers, route):
    for caller in [*callers, "own"]:
        worker = await plane.worker()  # of its own: some routes send it away
        header = f"Bearer {worker.credential}" if caller == "own" else callers[caller]
        job = await plane.enqueue()
        path = route.path.replace("{id}", str(worker.id)).replace("{job}", str(job))
        assert not re.search(r"[{}]", path)
        response = await plane.ask(
            route.method,
            path,
            BODIES.get(route.verb, {} if route.takes else None),
            token=None,
            headers={"Authorization": header} if header else {},
        )
        wanted = expected(route.needs, caller)
        if wanted is None:
            assert response.status in (200, 201, 204, 409), (caller, response.body)  # 409: nobody holds that job
        else:
            assert response.status == wanted, (caller, response.body)
            assert response.error["code"] == ("UNAUTHORIZED" if wanted == 401 else "FORBIDDEN")
            assert response.headers.get("www-authenticate") == ("Bearer" if wanted == 401 else None)
        if header and caller != "basic":
            assert header.split()[1].encode() not in response.content


async def test_a_refused_request_changes_nothing(plane, worker, conn):
    await plane.ask("POST", "/jobs", {"kind": "noop"}, token=plane.tokens["read"])
    await plane.ask("POST", "/workers/register", {"hostname": "w"}, token=plane.tokens["enqueue"])
    id = await plane.enqueue()
    for token in (None, plane.tokens["enqueue"], plane.tokens["read"], plane.tokens["work"], worker.credential):
        assert (await plane.ask("POST", f"/jobs/{id}/cancel", token=token)).status in (401, 403)
    assert (await plane.job(id))["state"] == "queued"
    assert await conn.fetchval("select count(*) from howdah.job") == 1
    assert await conn.fetchval("select count(*) from howdah.node") == 1


async def test_without_a_token_nobody_learns_which_workers_there_are(plane, worker):
    for id in (worker.id, 999_999):
        response = await plane.ask("POST", f"/workers/{id}/heartbeat", {}, token=None)
        assert response.status == 401


async def test_a_token_in_the_url_or_in_a_cookie_opens_nothing(plane):
    token = plane.tokens["admin"]
    for more in (
        {"params": {"token": token, "access_token": token}},
        {"headers": {"Cookie": f"token={token}; Authorization=Bearer {token}"}},
        {"headers": {"X-API-Key": token}},
    ):
        assert (await plane.get("/workers", token=None, **more)).status == 401


async def test_a_revoked_token_is_refused_within_five_seconds_and_so_are_its_workers(plane):
    token, row = await plane.store.create("leaked", ["work", "read"])
    worker = await plane.worker(token=token)
    spared = await plane.worker(token=plane.tokens["work"])
    assert (await plane.get("/workers", token=token)).status == 200
    assert (await worker.beat()).status == 200
    began = time.monotonic()
    await plane.store.revoke(row.id)
    while (await plane.get("/workers", token=token)).status != 401 or (await worker.beat()).status != 401:
        assert time.monotonic() - began < 5
        await asyncio.sleep(0.1)
    for verb, body in (("claim", {}), ("ack", {"acks": []}), ("heartbeat", {}), ("release", {})):
        assert (await worker.tell(verb, body)).status == 401
    assert (await spared.beat()).status == 200


async def test_a_token_that_expires_is_refused_soon_after(plane):
    token, _ = await plane.store.create("brief", ["read"], expires=1.0)
    assert (await plane.get("/workers", token=token)).status == 200
    await asyncio.sleep(1.0)
    began = time.monotonic()
    while (await plane.get("/workers", token=token)).status != 401:
        assert time.monotonic() - began < 4
        await asyncio.sleep(0.1)


async def test_a_token_is_good_for_its_queues_only(plane):
    token, _ = await plane.store.create("builds", ["work", "enqueue", "read"], queues=["builds"])

    response = await plane.ask("POST", "/jobs", {"kind": "noop"}, token=token)
    assert (response.status, response.error["field"]) == (403, "queue")
    mine = await plane.ask("POST", "/jobs", {"kind": "noop", "queue": "builds", "requires": ["gpu"]}, token=token)
    assert mine.status == 201
    foreign = await plane.enqueue(queue="secret")

    assert (await plane.get(f"/jobs/{mine.body['id']}", token=token)).status == 200
    for path in ("", "/log", "/runs"):
        assert (await plane.get(f"/jobs/{foreign}{path}", token=token)).status == 404
        assert (await plane.get(f"/jobs/{mine.body['id']}{path}", token=token)).status == 200
    queues = (await plane.get("/stats", token=token)).body["queues"]
    assert {each["queue"] for each in queues} == {"builds+gpu"}
    assert (await plane.get("/metrics", token=token)).status == 403

    for queues in (["secret"], ["builds", "secret"], ["secret+gpu"]):
        wanted = {"hostname": "w", "queues": queues}
        response = await plane.ask("POST", "/workers/register", wanted, token=token)
        assert (response.status, response.error["field"]) == (403, "queues")
    worker = await plane.worker(token=token, labels=["gpu"])
    assert [job["id"] for job in await worker.claim(10)] == [mine.body["id"]]
    assert (await plane.get(f"/workers/{worker.id}")).body["queues"] == ["builds"]

    narrow, _ = await plane.store.create("narrow", ["admin"], queues=["builds"])
    assert (await plane.ask("POST", f"/jobs/{foreign}/cancel", token=narrow)).status == 404
    assert (await plane.job(foreign))["state"] == "queued"


async def test_without_auth_everybody_on_this_machine_may_do_everything(serve, job_app):
    async with serve(auth="none") as plane:
        id = (await plane.ask("POST", "/jobs", {"kind": "noop"}, token=None)).body["id"]
        made = (await plane.ask("POST", "/workers/register", {"hostname": "w", "kinds": ["noop"]}, token=None)).body
        path = f"/workers/{made['id']}"
        [job] = (await plane.ask("POST", f"{path}/claim", {"wait": 2}, token=None)).body["jobs"]
        assert (await plane.ask("POST", f"{path}/complete/{id}", {"token": job["token"]}, token=None)).status == 200
        assert (await plane.get("/workers", token=None)).status == 200
        assert (await plane.get("/metrics", token=None)).status == 200
        assert (await plane.ask("POST", f"/jobs/{id}/cancel", token=None)).status == 200
        assert (await plane.ask("DELETE", path, token=None)).status == 204
        # who shows something all the same is not let in with what is wrong
        assert (await plane.get("/workers", token="hwd_api_nonsense")).status == 401


def test_beyond_this_machine_nothing_is_served_without_auth():
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.com", "", "localhost.example.com", "127.0.0.1.example.com"):
        with pytest.raises(ConfigError, match="refusing to listen"):
            ServeOptions(host=host, auth="none")
        ServeOptions(host=host)
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        ServeOptions(host=host, auth="none")
    assert ServeOptions().host == "127.0.0.1"
    assert ServeOptions().auth == "token"


async def test_secrets_are_compared_in_constant_time(plane, worker, monkeypatch):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or real(a, b))
    token, _ = await plane.store.create("fresh", ["read"])
    await plane.get("/workers", token=token)
    assert any(len(a) == 32 and a == b for a, b in compared)  # the hash of a token
    compared.clear()
    await plane.ask("POST", f"/workers/{worker.id}/heartbeat", {}, token=make("node"))
    assert any(len(a) == 32 and a != b for a, b in compared)  # of a credential


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "https://evil.example", "Content-Type": "text/plain"}, 403),
    ],
    ids=["a program", "another site", "another site, newer", "another name", "a plain form"],
)
async def test_without_tokens_no_other_site_acts_through_a_browser(serve, headers, status):
    async with serve(auth="none") as plane:
        answer = await plane.http.post("/jobs", content=b'{"kind": "noop", "queue": "default"}', headers=headers)
        assert answer.status_code in ((200, 201) if status == 200 else (status,))
