"""Callbacks: where results may be posted to. Whoever writes a job must not make us call what they cannot reach."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence

import httpx2 as httpx

from howdah.errors import ConfigError
from howdah.journal import job_log

PATIENCE = 10.0


class Callbacks:
    """A list of URLs, each with all below it. A name is resolved once, and that address is called."""

    def __init__(self, allowed: Sequence[str], *, private: bool = False) -> None:
        for each in allowed:
            if not each.startswith(("https://", "http://")):
                raise ConfigError(f"{each!r} cannot be called back; write a URL such as https://ci.example.com/howdah/")
        self._allowed = [httpx.URL(each) for each in allowed]
        self._private = private

    def may(self, url: str) -> bool:
        """Whether a URL is on the list: same scheme, host and port, and below its path."""
        if not url.isprintable() or "\\" in url:
            return False
        wanted = httpx.URL(url)
        if wanted.userinfo or ".." in wanted.path.split("/"):
            return False
        for each in self._allowed:
            same = (each.scheme, each.host, each.port) == (wanted.scheme, wanted.host, wanted.port)
            if same and (wanted.path + "/").startswith(each.path.rstrip("/") + "/"):
                return True
        return False

    async def post(self, url: str, message: bytes) -> None:
        """Tell whoever asked to be told. Best effort: the job is what it is, heard or not."""
        if not self.may(url):
            return
        wanted = httpx.URL(url)
        try:
            address = await self._address(wanted)
            if address is None:
                job_log(f"the callback was not made: {wanted.host} is no public address")
                return
            headers = {"Content-Type": "application/json", "Host": wanted.netloc.decode()}
            async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False, follow_redirects=False) as http:
                answer = await http.post(
                    wanted.copy_with(host=address),
                    content=message,
                    headers=headers,
                    extensions={"sni_hostname": wanted.host},
                )
            if not answer.is_success:
                job_log(f"the callback answered HTTP {answer.status_code}")
        except (httpx.HTTPError, OSError) as error:
            job_log(f"the callback could not be made: {type(error).__name__}")

    async def _address(self, url: httpx.URL) -> str | None:
        """The address to call; ``None``: a name that leads inside, which nobody allowed."""
        if is_address(url.host):
            return url.host  # whoever wrote the list named it
        port = url.port or (443 if url.scheme == "https" else 80)
        found = await asyncio.get_running_loop().getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
        address = str(found[0][4][0])
        return address if self._private or is_public(address) else None


def is_address(host: str) -> bool:
    """Whether a host is an address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """Whether an address lies outside: not of this machine, this network or a cloud's inside.

    >>> [is_public(each) for each in ("93.184.215.14", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1")]
    [True, False, False, False, False]
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_global
