"""HTTP client for messages to URLs that users configure, protected against requests to private addresses (SSRF).

A host name is resolved once and must not resolve to a private address. The request goes to the address that was
checked, so a second answer of the resolver (DNS rebinding) changes nothing. Redirects are not followed, proxies of the
environment are not used, and the body of the response is not read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2 as httpx

from howdah.errors import ConfigError

POST_TIMEOUT = 10.0
"""Seconds for one message, including name resolution and connecting."""
MAX_ADDRESSES = 3
"""Addresses of one host that are tried if connecting fails."""
TUNNELS = [
    ipaddress.IPv6Network(each) for each in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/32", "2002::/16", "fec0::/10")
]
"""IPv6 networks that embed IPv4 addresses, and the deprecated site-local network."""

SPECIAL_IPV4 = [
    ipaddress.IPv4Network(each)
    for each in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32"),
    )
]
"""Networks of the IANA registry that are not public, and the address of Azure's platform.

Versions of Python differ in their own list: for some 192.0.0.192, a metadata service, is public.
"""
SPECIAL_IPV6 = [
    ipaddress.IPv6Network(each)
    for each in (
        *(
            "::/128",
            "::1/128",
            "64:ff9b:1::/48",
            "100::/64",
            "100:0:0:1::/64",
            "2001::/23",
            "2001:db8::/32",
            "3fff::/20",
        ),
        *("5f00::/16", "fc00::/7", "fe80::/10", "ff00::/8"),
    )
]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
PrivateAccess = bool | Sequence[str]
"""Allow private addresses and those of this machine: none, all, or those of the given networks."""


class Undelivered(Exception):
    """The message was not delivered. The text names the host, never the rest of the URL."""


class PrivateAddressRejected(Undelivered):
    """The host is, or resolves to, a private address that is not allowed."""


@dataclass(frozen=True, slots=True)
class PostResponse:
    """Status and ``Retry-After`` of a response."""

    status: int
    retry_after: float | None = None
    """Seconds that the receiver asked to wait."""


class OutboundClient:
    """Posts messages. ``allow_private``: private addresses that are allowed; ``ca``: file of the authority to trust."""

    def __init__(
        self, *, allow_private: PrivateAccess = False, ca: str | None = None, timeout: float = POST_TIMEOUT
    ) -> None:
        self._networks = None if isinstance(allow_private, bool) else networks(allow_private)
        self._allow_all = allow_private is True
        self._timeout = timeout
        self._ca = ca
        self._context: ssl.SSLContext | None = None

    def allows(self, address: str) -> bool:
        """Return whether messages may be sent to an address."""
        if self._allow_all or is_public(address):
            return True
        return any(read_address(address) in each for each in self._networks or ())

    async def post(self, url: httpx.URL, message: bytes, headers: Mapping[str, str]) -> PostResponse:
        """Post ``message``; raise :class:`Undelivered` if there was no response."""
        host = url.raw_host.decode("ascii")
        try:
            async with asyncio.timeout(self._timeout):
                addresses = await self._addresses(host, url.port or (443 if url.scheme == "https" else 80))
                for address in addresses[:-1]:
                    try:
                        return await self._call(url, host, address, message, headers)
                    except (httpx.ConnectError, httpx.ConnectTimeout):
                        continue
                return await self._call(url, host, addresses[-1], message, headers)
        except TimeoutError:
            raise Undelivered(f"{host} did not answer within {self._timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Undelivered(f"{host} cannot be reached: {type(error).__name__}") from None

    async def _addresses(self, host: str, port: int) -> list[str]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        allowed = [address for address in dict.fromkeys(str(each[4][0]) for each in found) if self.allows(address)]
        if not allowed:
            raise PrivateAddressRejected(f"{host} resolves to a private address, so nothing is sent to it")
        return allowed[:MAX_ADDRESSES]

    async def _call(
        self, url: httpx.URL, host: str, address: str, message: bytes, headers: Mapping[str, str]
    ) -> PostResponse:
        """Send one request to one address; the certificate must be that of the host."""
        timeout = httpx.Timeout(None, connect=self._timeout / 2)  # post() limits the whole
        request = httpx.Request(
            "POST",
            url.copy_with(host=address),
            content=message,
            headers={**headers, "Host": url.netloc.decode("ascii")},
            extensions={"sni_hostname": host, "timeout": timeout.as_dict()},
        )
        verify = self._ssl_context() if url.scheme == "https" else False
        # Not httpx.AsyncClient: it logs the whole URL, and the URL of a webhook is a secret.
        async with httpx.AsyncHTTPTransport(verify=verify, trust_env=False) as wire:
            answer = await wire.handle_async_request(request)
            await answer.aclose()
            return PostResponse(answer.status_code, retry_after_seconds(answer.headers.get("Retry-After")))

    def _ssl_context(self) -> ssl.SSLContext:
        if self._context is None:
            try:
                self._context = ssl.create_default_context(cafile=self._ca)
            except OSError as error:
                raise ConfigError(f"the authority {self._ca!r} cannot be read: {error}") from None
        return self._context


def networks(named: Sequence[str]) -> list[Network]:
    """Parse networks.

    >>> networks(["10.1.0.0/16"])
    [IPv4Network('10.1.0.0/16')]
    """
    try:
        return [ipaddress.ip_network(each) for each in named]
    except ValueError as error:
        raise ConfigError(f"{error}; write a network such as 10.1.0.0/16") from None


def is_address(host: str) -> bool:
    """Return whether a host is an address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def read_address(address: str) -> Address:
    """Parse an address without its zone; an IPv4-mapped IPv6 address becomes the IPv4 address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def is_public(address: str) -> bool:
    """Return whether an address is public: not of this machine, a private network or a cloud's metadata service.

    >>> [is_public(each) for each in ("93.184.215.14", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1")]
    [True, False, False, False, False]
    >>> [is_public(each) for each in ("224.0.0.1", "ff02::1", "64:ff9b::a00:1", "2002:7f00:1::")]
    [False, False, False, False]
    >>> [is_public(each) for each in ("192.0.0.192", "168.63.129.16", "2001:db8::1", "fd00:ec2::254")]
    [False, False, False, False]
    """
    found = read_address(address)
    if found.is_multicast or found.is_reserved or not found.is_global:
        return False
    return not any(found in each for each in (SPECIAL_IPV4 if found.version == 4 else (*TUNNELS, *SPECIAL_IPV6)))


def retry_after_seconds(value: str | None) -> float | None:
    """Parse `Retry-After`: seconds, or a date.

    >>> [retry_after_seconds(each) for each in ("120", "soon", "Wed, 21 Oct 2015 07:28:00 GMT", None)]
    [120.0, None, 0.0, None]
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except (ValueError, TypeError):
            return None
        seconds = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
