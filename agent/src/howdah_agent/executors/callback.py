"""Callbacks: an allow-list of URLs for results, so that a job cannot make the worker call internal services (SSRF)."""

from __future__ import annotations

from collections.abc import Sequence

import httpx2 as httpx

from howdah.errors import ConfigError
from howdah.webhooks.post import OutboundClient, Undelivered, is_address
from howdah.worker.job_log import job_log


class Callbacks:
    """Allow-list of URL prefixes. A host must not resolve to a private address, unless ``private``."""

    def __init__(self, allowed: Sequence[str], *, private: bool = False) -> None:
        for each in allowed:
            if not each.startswith(("https://", "http://")):
                raise ConfigError(f"{each!r} cannot be called back; write a URL such as https://ci.example.com/howdah/")
        self._allowed = [httpx.URL(each) for each in allowed]
        self._private = private

    def may(self, url: str) -> bool:
        """Return whether a URL is on the list: same scheme, host and port, and below its path."""
        if not url.isprintable() or "\\" in url:
            return False
        try:
            wanted = httpx.URL(url)
        except httpx.InvalidURL:
            return False
        if wanted.userinfo or ".." in wanted.path.split("/"):
            return False
        for each in self._allowed:
            same = (each.scheme, each.host, each.port) == (wanted.scheme, wanted.host, wanted.port)
            if same and (wanted.path + "/").startswith(each.path.rstrip("/") + "/"):
                return True
        return False

    async def post(self, url: str, message: bytes) -> None:
        """Post the result to the callback. Best effort: a failure does not change the outcome of the job."""
        if not self.may(url):
            return
        wanted = httpx.URL(url)
        # a literal address on the allow-list was put there by the operator
        client = OutboundClient(allow_private=self._private or is_address(wanted.host))
        try:
            answer = await client.post(wanted, message, {"Content-Type": "application/json"})
        except Undelivered as error:
            job_log(f"the callback was not made: {error}")
            return
        if not 200 <= answer.status < 300:
            job_log(f"the callback answered HTTP {answer.status}")
