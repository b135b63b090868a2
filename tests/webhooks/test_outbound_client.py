"""Messages go where they were meant to go, and nowhere else, whatever a name resolves to and a receiver answers."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from pathlib import Path

import httpx2 as httpx
import pytest

from howdah import ConfigError
from howdah.webhooks.post import OutboundClient, PrivateAddressRejected, Undelivered
from howdah.webhooks.webhook import Webhook
from kit.webhook_receiver import Receiver

pytestmark = pytest.mark.anyio

NAME = "hooks.example.com"


class Resolver:
    """What names resolve to, one answer after the other; the last one for ever."""

    def __init__(self) -> None:
        self.answers: list[list[str]] = [["127.0.0.1"]]
        self.asked = 0
        self._real = socket.getaddrinfo

    def __call__(self, host, port, *args, **options):
        if host not in (NAME, NAME.encode()):
            return self._real(host, port, *args, **options)
        self.asked += 1
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in addresses
        ]


@pytest.fixture
def resolver(monkeypatch) -> Resolver:
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    return made


async def post(url: str, **options) -> int:
    return (await OutboundClient(**options).post(httpx.URL(url), b"{}", {"Content-Type": "application/json"})).status


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "0",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
    ],
)
async def test_no_way_to_write_this_machine_leads_there(receiver, host):
    with pytest.raises(Undelivered):
        await post(f"http://{host}:{receiver.port}/")
    assert receiver.heard == []


async def test_the_same_address_is_called_when_it_is_allowed(receiver):
    """The negative control: the guard, and nothing else, kept the messages back."""
    for host in ("127.0.0.1", "127.1", "2130706433", "localhost"):
        assert await post(f"http://{host}:{receiver.port}/", allow_private=True) == 200
    assert len(receiver.heard) == 4


async def test_networks_may_be_named(receiver):
    url = f"http://127.0.0.1:{receiver.port}/"
    assert await post(url, allow_private=["127.0.0.0/30"]) == 200
    with pytest.raises(PrivateAddressRejected):
        await post(url, allow_private=["10.0.0.0/8", "fd00::/8"])
    with pytest.raises(ConfigError, match="write a network such as"):
        OutboundClient(allow_private=["10.0.0.1/8"])


async def test_a_name_that_leads_inside_is_not_called(receiver, resolver):
    with pytest.raises(PrivateAddressRejected, match=r"hooks\.example\.com resolves to a private address"):
        await post(f"http://{NAME}:{receiver.port}/")
    assert receiver.heard == []


async def test_a_resolver_that_changes_its_mind_changes_nothing(resolver):
    """It says one thing when it is asked whether that is allowed, and another when the connection is made."""
    with Receiver(host="127.0.0.1") as meant, Receiver(host="127.0.0.2", port=meant.port) as other:
        resolver.answers = [["127.0.0.1"], ["127.0.0.2"]]
        assert await post(f"http://{NAME}:{meant.port}/", allow_private=["127.0.0.1/32"]) == 200

        assert (len(meant.heard), len(other.heard), resolver.asked) == (1, 0, 1)
        assert meant.heard[0].headers["host"] == f"{NAME}:{meant.port}"


async def test_an_address_inside_among_others_is_left_out(resolver):
    with Receiver(host="127.0.0.1") as allowed, Receiver(host="127.0.0.2", port=allowed.port) as inside:
        resolver.answers = [["127.0.0.2", "127.0.0.1"]]
        await post(f"http://{NAME}:{allowed.port}/", allow_private=["127.0.0.1/32"])

        assert (len(allowed.heard), len(inside.heard)) == (1, 0)


async def test_an_address_that_takes_no_connection_is_passed_by(receiver, resolver):
    resolver.answers = [["127.0.0.3", "127.0.0.1"]]
    assert await post(f"http://{NAME}:{receiver.port}/", allow_private=True) == 200


async def test_a_redirect_is_an_answer_and_is_not_followed(receiver):
    with Receiver((307, {"Location": receiver.url})) as first:
        assert await post(first.url, allow_private=True) == 307
    assert receiver.heard == []


async def test_proxies_of_the_environment_are_not_used(receiver, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await post(receiver.url, allow_private=True) == 200


async def test_who_does_not_answer_is_given_up(receiver):
    receiver.hold.clear()
    with pytest.raises(Undelivered, match=r"127\.0\.0\.1 did not answer within 0\.3 s"):
        await post(receiver.url, allow_private=True, timeout=0.3)


async def test_an_answer_without_end_is_not_read():
    """The status is all that counts: what follows could be gigabytes, or come byte by byte for days."""
    closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
        except ConnectionError:
            closed.set()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        assert await asyncio.wait_for(post(f"http://127.0.0.1:{port}/", allow_private=True), 9) == 200
        await asyncio.wait_for(closed.wait(), 30)
    finally:
        server.close()


async def test_headers_without_end_are_not_read():
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n")
        try:
            while True:
                writer.write(b"X-More: " + b"x" * 1000 + b"\r\n")
                await writer.drain()
        except ConnectionError:
            pass

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        with pytest.raises(Undelivered):
            await post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", allow_private=True)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("7", 7.0),
        ("-3", 0.0),
        ("1e400", None),
        ("nan", None),
        ("tomorrow", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ],
)
async def test_how_long_it_asks_to_be_left_alone(retry_after, seconds):
    with Receiver((503, {"Retry-After": retry_after})) as receiver:
        answer = await OutboundClient(allow_private=True).post(httpx.URL(receiver.url), b"{}", {})
    assert (answer.status, answer.retry_after) == (503, seconds)


async def test_a_date_to_come_is_understood():
    when = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 3600))
    with Receiver((429, {"Retry-After": when})) as receiver:
        answer = await OutboundClient(allow_private=True).post(httpx.URL(receiver.url), b"{}", {})
    assert answer.retry_after is not None
    assert 3000 < answer.retry_after <= 3600


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """A key and a certificate for the name, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert, both = folder / "key", folder / "cert", folder / "both"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={NAME}"),
            *("-addext", f"subjectAltName=DNS:{NAME}", "-keyout", key, "-out", cert),
        ],
        check=True,
        capture_output=True,
    )
    both.write_bytes(key.read_bytes() + cert.read_bytes())
    return both


async def test_the_certificate_must_be_that_of_the_name_though_an_address_is_called(resolver, certificate):
    with Receiver(cert=certificate) as receiver:
        ca = str(certificate.with_name("cert"))
        assert await post(f"https://{NAME}:{receiver.port}/", allow_private=True, ca=ca) == 200
        with pytest.raises(Undelivered):  # the same server by another name
            await post(f"https://localhost:{receiver.port}/", allow_private=True, ca=ca)
        with pytest.raises(Undelivered):  # signed by nobody we trust
            await post(f"https://{NAME}:{receiver.port}/", allow_private=True)
        assert len(receiver.heard) == 1


# -------------------------------------------------------------------- what may be a webhook


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://hooks.example.com/", "not encrypted"),
        ("https://user:password@hooks.example.com/", "contains a user"),
        ("https://hooks.example.com@127.0.0.1/", "contains a user"),
        ("https://127.0.0.1/", "private address"),
        ("https://[::ffff:127.0.0.1]/", "private address"),
        ("https://[::1]/", "private address"),
        ("https://169.254.169.254/latest/meta-data", "private address"),
        ("https://224.0.0.1/", "private address"),
        ("https://hooks.example.com/#part", "fragment"),
        ("https://hooks.example.com\\@127.0.0.1/", "url is not valid"),
        ("https://hooks.example.com/\r\nHost: x", "url is not valid"),
        ("https:///hooks", "url is not valid"),
        ("ftp://hooks.example.com/", "url is not valid"),
        ("file:///etc/passwd", "url is not valid"),
        ("hooks.example.com", "url is not valid"),
        ("", "url is not valid"),
    ],
)
def test_a_url_that_could_lead_elsewhere_is_refused_and_not_shown(url, why):
    with pytest.raises(ConfigError, match=why) as caught:
        Webhook(url=url, name="ops")
    assert "password" not in str(caught.value).replace("a user or password", "")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"on": ["job.done"]}, "there is no event 'job.done'"),
        ({"on": "job.failed"}, "on is a list"),
        ({"on": []}, "on is empty"),
        ({"secret": "short"}, "at least 16 characters"),
        ({"stuck_after": 1}, "stuck_after must be from 10 seconds on"),
        ({"name": "a b"}, "a webhook is named by"),
        ({"queues": [""]}, "queue must be 1 to 100"),
        ({"allow_private": ["here"]}, "write a network"),
        ({"allow_private": "10.0.0.0/8"}, "allow_private is a list"),
        ({"ca": "/nowhere"}, "there is no file"),
        ({"link": "dashboard"}, "link is the URL"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_cannot_be_are_refused(settings, why):
    with pytest.raises(ConfigError, match=why):
        Webhook(url="https://hooks.example.com/", **settings)


def test_neither_url_nor_secret_are_shown():
    hook = Webhook(url="https://hooks.example.com/T0/canary", secret="canary-canary-canary")
    assert "canary" not in repr(hook)
    assert hook.name == "hooks.example.com"
