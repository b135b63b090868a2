"""docs/reference/protocol.md: its exchanges happen as printed, and it leaves nothing out."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import msgspec
import pytest
import uvicorn

from howdah import Howdah, control_plane
from howdah.control_plane.openapi import ALWAYS, SOMETIMES
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.routes import ROUTES
from howdah.control_plane.server import ControlPlaneServer
from howdah.control_plane.tokens import Tokens
from howdah.errors import ERROR_CODES
from howdah.postgres.database import Session
from howdah.remote import messages as m
from kit.roles import owner, serve_as_fleet

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "protocol.md").read_text(encoding="utf-8")
EXCHANGE = re.compile(
    r"```http\n(?P<method>\w+) (?P<path>\S+)\nAuthorization: Bearer (?P<token>\S+)\n"
    r"(?:\n(?P<body>\{.*\})\n)?\n(?P<status>\d{3})\n(?P<answer>\{.*\}\n)?```"
)


class Exchange(NamedTuple):
    method: str
    path: str
    token: str
    body: str | None
    status: str
    answer: str | None


EXCHANGES = [Exchange(*match.groups()) for match in EXCHANGE.finditer(PAGE)]


def test_every_exchange_was_understood() -> None:
    assert len(EXCHANGES) == PAGE.count("```http") > 10


@pytest.mark.anyio
async def test_the_exchanges_happen_as_printed(app: Howdah) -> None:
    serve_as_fleet(app)
    session = Session(owner(app.database), "token")
    api, _ = await Tokens(owner(app.database), session).create("all", ["work", "enqueue"])
    await session.close()
    secrets = {"hwd_api_…": api}
    tokens: dict[str, str] = {}
    worker = WORKER
    async with ControlPlaneServer(app, ServeOptions()).open() as asgi:
        server = uvicorn.Server(uvicorn.Config(asgi, port=0, log_config=None, lifespan="off"))
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            port = server.servers[0].sockets[0].getsockname()[1]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as web:
                for printed in EXCHANGES:
                    each = with_worker(printed, worker)
                    heard = await web.request(
                        each.method,
                        each.path,
                        content=each.body and with_tokens(each.body, tokens),
                        headers={"Authorization": f"Bearer {secrets[each.token]}"},
                    )
                    assert str(heard.status_code) == each.status, (each, heard.text)
                    if each.answer is None:
                        assert heard.content == b"", each
                        continue
                    body = heard.json()
                    if "credential" in body:
                        worker = str(body["id"])
                        each = with_worker(printed, worker)
                    learn_tokens(each.answer, heard.text, tokens)
                    assert fits(json.loads(with_tokens(each.answer, tokens)), body), (
                        f"{each.method} {each.path} was answered {heard.text}"
                    )
                    if "credential" in body:
                        secrets["hwd_node_…"] = body["credential"]
        finally:
            server.should_exit = True
            await task


WORKER = "1463280913"
"""The id of the worker as it is printed."""


def with_worker(printed: Exchange, real: str) -> Exchange:
    """What is printed, with the id that was really given out; it is random."""
    return Exchange(*(part and part.replace(WORKER, real) for part in printed))


PRINTED = re.compile(r'(?<="token": )\d{10,}|(?<="finished": \[)\d{10,}')
"""Tokens as they are printed; short ones are wrong on purpose."""


def with_tokens(printed: str, tokens: dict[str, str]) -> str:
    """What is printed, with the tokens that were really given out; they are random."""
    return PRINTED.sub(lambda match: tokens[match[0]], printed)


def learn_tokens(printed: str, answer: str, tokens: dict[str, str]) -> None:
    """Note which token stands for which printed one, at its first appearance."""
    shown, given = PRINTED.findall(printed), re.findall(r'"token":\s*(\d+)', answer)
    for each, real in zip(shown, given, strict=False):
        assert tokens.setdefault(each, real) == real, f"{each} was {tokens[each]} and is {real}"


def test_printed_tokens_stand_for_real_ones() -> None:
    tokens: dict[str, str] = {}
    learn_tokens('{"token": 1234567890}', '{"token":5}', tokens)
    assert with_tokens('{"token": 1234567890, "finished": [1234567890]}', tokens) == '{"token": 5, "finished": [5]}'
    assert with_tokens('{"token": 7}', tokens) == '{"token": 7}'
    with pytest.raises(AssertionError, match="1234567890 was 5 and is 6"):
        learn_tokens('{"token": 1234567890}', '{"token":6}', tokens)


def fits(printed: Any, answer: Any) -> bool:
    """Whether an answer is what is printed, up to an ``…``; how long a job waited differs."""
    if isinstance(printed, dict):
        return (
            isinstance(answer, dict)
            and printed.keys() == answer.keys()
            and all(fits(printed[key], answer[key]) for key in printed)
        )
    if isinstance(printed, list):
        return isinstance(answer, list) and len(printed) == len(answer) and all(map(fits, printed, answer))
    if isinstance(printed, str) and printed.endswith("…"):
        return isinstance(answer, str) and answer.startswith(printed[:-1])
    return bool(printed == answer) or (printed == 0.01 and isinstance(answer, float) and 0 <= answer < 60)


def test_what_does_not_fit_is_noticed() -> None:
    assert fits({"a": [1, "x…"], "w": 0.01}, {"a": [1, "xyz"], "w": 0.3})
    for answer in ({"a": [1, "xyz"]}, {"a": [2, "xyz"], "w": 1}, {"a": [1, "yz"], "w": 1}, {"a": [1], "w": 1}, {}):
        assert not fits({"a": [1, "x…"], "w": 0.01}, answer)


def test_every_request_is_there() -> None:
    shown = re.sub(r"/(\d+)", "/{id}", PAGE)
    missing = []
    for route in ROUTES:
        path = re.sub(r"\{job\}", "{id}", route.path)
        if not re.search(rf"{route.method} {re.escape(path)}(?![\w/])", re.sub(r"\{job\}", "{id}", shown)):
            missing.append(f"{route.method} {route.path}")

    assert missing == []


@pytest.mark.parametrize(
    "message",
    [
        *(
            m.RegisterRequest,
            m.RegisterResponse,
            m.HeartbeatRequest,
            m.HeldJob,
            m.HeartbeatResponse,
            m.RenewalResult,
            m.ClaimRequest,
            m.ClaimedJob,
            m.CompleteRequest,
            m.FailRequest,
        ),
        *(
            m.FinishResponse,
            m.LogRequest,
            m.RunRequest,
            m.AckRequest,
            m.AttemptReport,
            m.AckResponse,
            m.RecordedOutcome,
            m.ReleaseRequest,
            m.ReleaseResponse,
            m.EnqueueRequest,
        ),
        m.ErrorDetail,
    ],
    ids=lambda message: message.__name__,
)
def test_every_field_is_explained(message: type[msgspec.Struct]) -> None:
    assert [name for name in message.__struct_fields__ if not re.search(rf'`{name}`|"{name}"', PAGE)] == []


def test_every_status_and_code_is_there() -> None:
    statuses = [str(status) for status in (*ALWAYS, *SOMETIMES)]
    assert [status for status in statuses if not re.search(rf"^\| {status}\b", PAGE, re.MULTILINE)] == []
    sources = Path(control_plane.__file__).parent.glob("*.py")
    raised = {
        code for file in sources for code in re.findall(r'RequestRejected\(\s*\d+,\s*"([A-Z_]+)"', file.read_text())
    }
    assert len(raised) > 5
    assert [code for code in {*raised, *ERROR_CODES} if f"`{code}`" not in PAGE] == []


def test_the_limits_are_those_of_the_code() -> None:
    def limit(message: type[msgspec.Struct], name: str) -> int:
        schema = msgspec.json.schema(message)["$defs"][message.__name__]["properties"][name]
        found = next(
            each for each in (schema, *schema.get("anyOf", ())) if each.keys() & {"maxItems", "maxLength", "maximum"}
        )
        return int(found.get("maxItems") or found.get("maxLength") or found.get("maximum"))

    rows = dict(re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", PAGE[PAGE.index("## Limits") :], re.MULTILINE))
    assert ServeOptions().largest_body == int(rows["a request"].removesuffix(" MiB")) * 2**20
    assert f"{limit(m.RegisterRequest, 'kinds')} each" == rows["kinds, queues of a worker"]
    assert str(limit(m.ClaimRequest, "max")) == rows["jobs of one claim"]
    most = rows["`tokens` of one claim, and of one release"]
    assert f"{limit(m.ClaimRequest, 'tokens'):,}" == f"{limit(m.ReleaseRequest, 'tokens'):,}" == most
    assert (
        str(limit(m.AckRequest, "acks"))
        == str(limit(m.AckRequest, "finished"))
        == rows["reports of one `/ack`, and `finished`"]
    )
    assert rows["lines of one request"] == f"{limit(m.LogRequest, 'lines')}, of 10,000 characters"
    assert (
        f"{limit(m.FailRequest, 'message'):,} and {limit(m.FailRequest, 'traceback'):,}"
        in rows["`message`, `traceback`"]
    )
    assert f"up to {limit(m.ClaimRequest, 'wait')}. " in PAGE
    assert f"more than {ServeOptions().rate:g} requests a second" in PAGE
