"""Courier: carries one message to a URL outside, and brings back whether it was taken.

A name is resolved once, must not lead inside, and the very address that was looked at is called: a second answer of the
resolver changes nothing. Redirects are not followed, proxies of the environment are not used, and the body of the
answer is not read.
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

PATIENCE = 10.0
"""Seconds a message may take, with everything."""
MOST_ADDRESSES = 3
"""Addresses of one name that are tried, when one does not take connections."""
LEADS_ON = [
    ipaddress.IPv6Network(each) for each in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/32", "2002::/16", "fec0::/10")
]
"""IPv6 networks that end in an IPv4 address somewhere, or are inside by an older rule."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Inside = bool | Sequence[str]
"""Whether a message may go to this machine and to private networks: no, yes, or to the networks named."""


class Undelivered(Exception):
    """Nobody took the message. The text names the host, never the rest of the URL."""


class LeadsInside(Undelivered):
    """The name, or the address, is inside, and nobody allowed that."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the other side said."""

    status: int
    retry_after: float | None = None
    """Seconds it asked to be left alone."""


class Courier:
    """Posts messages. ``inside``: where beyond the public network it may go; ``ca``: the authority it trusts."""

    def __init__(self, *, inside: Inside = False, ca: str | None = None, patience: float = PATIENCE) -> None:
        self._networks = None if isinstance(inside, bool) else networks(inside)
        self._inside = inside is True
        self._patience = patience
        self._ca = ca
        self._trust: ssl.SSLContext | None = None

    def may(self, address: str) -> bool:
        """Whether an address may be called."""
        if self._inside or is_public(address):
            return True
        return any(read_address(address) in each for each in self._networks or ())

    async def post(self, url: httpx.URL, message: bytes, headers: Mapping[str, str]) -> Answer:
        """Carry ``message`` there; raises :class:`Undelivered` when nobody took it."""
        host = url.raw_host.decode("ascii")
        try:
            async with asyncio.timeout(self._patience):
                addresses = await self._addresses(host, url.port or (443 if url.scheme == "https" else 80))
                for address in addresses[:-1]:
                    try:
                        return await self._call(url, host, address, message, headers)
                    except (httpx.ConnectError, httpx.ConnectTimeout):
                        continue
                return await self._call(url, host, addresses[-1], message, headers)
        except TimeoutError:
            raise Undelivered(f"{host} did not answer within {self._patience:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Undelivered(f"{host} cannot be reached: {type(error).__name__}") from None

    async def _addresses(self, host: str, port: int) -> list[str]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        allowed = [address for address in dict.fromkeys(str(each[4][0]) for each in found) if self.may(address)]
        if not allowed:
            raise LeadsInside(f"{host} is no public address, so it is not called")
        return allowed[:MOST_ADDRESSES]

    async def _call(
        self, url: httpx.URL, host: str, address: str, message: bytes, headers: Mapping[str, str]
    ) -> Answer:
        """One request to one address; the certificate must be that of the host."""
        patience = httpx.Timeout(None, connect=self._patience / 2)  # there is one for all of it
        request = httpx.Request(
            "POST",
            url.copy_with(host=address),
            content=message,
            headers={**headers, "Host": url.netloc.decode("ascii")},
            extensions={"sni_hostname": host, "timeout": patience.as_dict()},
        )
        verify = self._trusting() if url.scheme == "https" else False
        # Not a client: it would write the whole address into the log, and that of a webhook is a secret.
        async with httpx.AsyncHTTPTransport(verify=verify, trust_env=False) as wire:
            answer = await wire.handle_async_request(request)
            await answer.aclose()
            return Answer(answer.status_code, seconds_of(answer.headers.get("Retry-After")))

    def _trusting(self) -> ssl.SSLContext:
        if self._trust is None:
            try:
                self._trust = ssl.create_default_context(cafile=self._ca)
            except OSError as error:
                raise ConfigError(f"the authority {self._ca!r} cannot be read: {error}") from None
        return self._trust


def networks(named: Sequence[str]) -> list[Network]:
    """Read networks.

    >>> networks(["10.1.0.0/16"])
    [IPv4Network('10.1.0.0/16')]
    """
    try:
        return [ipaddress.ip_network(each) for each in named]
    except ValueError as error:
        raise ConfigError(f"{error}; write a network such as 10.1.0.0/16") from None


def is_address(host: str) -> bool:
    """Whether a host is an address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def read_address(address: str) -> Address:
    """An address, without the interface it is reached by; one that only wraps an IPv4 address is that address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def is_public(address: str) -> bool:
    """Whether an address lies outside: not of this machine, this network or a cloud's inside.

    >>> [is_public(each) for each in ("93.184.215.14", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1")]
    [True, False, False, False, False]
    >>> [is_public(each) for each in ("224.0.0.1", "ff02::1", "64:ff9b::a00:1", "2002:7f00:1::")]
    [False, False, False, False]
    """
    found = read_address(address)
    if found.is_multicast or found.is_reserved or not found.is_global:
        return False
    return found.version == 4 or not any(found in each for each in LEADS_ON)


def seconds_of(said: str | None) -> float | None:
    """Read `Retry-After`: seconds, or a date.

    >>> seconds_of("120"), seconds_of("soon"), seconds_of("Wed, 21 Oct 2015 07:28:00 GMT"), seconds_of(None)
    (120.0, None, 0.0, None)
    """
    if said is None:
        return None
    try:
        seconds = float(said)
    except ValueError:
        try:
            when = parsedate_to_datetime(said)
        except (ValueError, TypeError):
            return None
        seconds = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
