"""Callbacks go where the list says, and nowhere else, whatever a name resolves to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from howdah import ConfigError
from howdah.webhooks.post import is_public
from howdah_agent.executors.callback import Callbacks

pytestmark = pytest.mark.anyio

NAME = "ci.example.com"


class Listener:
    """Answers every request, and remembers its first lines."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.port = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    made = Listener()
    server = await asyncio.start_server(made, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the resolver says of the name, one answer after the other; the last one for ever."""
    addresses: list[str] = ["127.0.0.1"]
    asked = socket.getaddrinfo

    def resolve(host, port, *args, **options):
        if host == NAME:
            return [
                (
                    socket.AF_INET,
                    socket.SOCK_STREAM,
                    6,
                    "",
                    (addresses.pop(0) if len(addresses) > 1 else addresses[0], port),
                )
            ]
        return asked(host, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return addresses


async def test_a_name_that_leads_inside_is_not_called(listener, answers):
    url = f"http://{NAME}:{listener.port}/ci"
    await Callbacks([url]).post(url, b"{}")
    assert listener.heard == []

    await Callbacks([url], private=True).post(url, b"{}")
    [heard] = listener.heard
    assert heard.startswith("POST /ci HTTP/1.1\r\n")
    assert f"host: {NAME}:{listener.port}\r\n" in heard.lower()


async def test_a_name_is_resolved_once(listener, answers):
    """A second answer, after the first was found good, must not be the one that is called."""
    answers[:] = ["127.0.0.1", "203.0.113.1"]
    url = f"http://{NAME}:{listener.port}/ci"
    await asyncio.wait_for(Callbacks([url], private=True).post(url, b"{}"), 5)
    assert len(listener.heard) == 1


async def test_an_address_on_the_list_is_called(listener):
    url = f"http://127.0.0.1:{listener.port}/ci"
    await Callbacks([url]).post(f"{url}/7", b"{}")
    assert len(listener.heard) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://127.1:{port}/ci",
        "http://2130706433:{port}/ci",
        "http://0x7f000001:{port}/ci",
        "http://[::ffff:127.0.0.1]:{port}/ci",
        "http://localhost:{port}/ci",
        "http://ci.example.com@127.0.0.1:{port}/ci",
        "http://127.0.0.1:{port}/other",
        "http://127.0.0.1:{port}/ci/../other",
        "https://ci.example.com/ci",
        "ftp://ci.example.com/ci",
        "http://[::1",
        "http://127.0.0.1:{port}/ci\r\nHost: x",
    ],
)
async def test_what_is_not_on_the_list_is_not_called(listener, url):
    callbacks = Callbacks(["http://ci.example.com/ci", f"http://10.0.0.1:{listener.port}/ci"])
    wanted = url.format(port=listener.port)
    assert not callbacks.may(wanted)
    await callbacks.post(wanted, b"{}")
    assert listener.heard == []


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "::1",
        "fe80::1%eth0",
        "fd00::1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "ff02::1",
        "fec0::1",
        "64:ff9b::a00:1",
        "64:ff9b:1::a00:1",
        "2002:a00:1::",
        "::10.0.0.1",
    ],
)
def test_inside_addresses_are_known(address):
    assert not is_public(address)


def test_a_list_with_something_else_is_refused():
    with pytest.raises(ConfigError, match="cannot be called back"):
        Callbacks(["ftp://ci.example.com"])
