"""Callbacks: where results may be posted to. Whoever writes a job must not make us call what they cannot reach."""

from __future__ import annotations

from collections.abc import Sequence

import httpx2 as httpx

from howdah.courier import Courier, Undelivered, is_address
from howdah.errors import ConfigError
from howdah.journal import job_log


class Callbacks:
    """A list of URLs, each with all below it. A name must not lead inside, unless ``private``."""

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
        """Tell whoever asked to be told. Best effort: the job is what it is, heard or not."""
        if not self.may(url):
            return
        wanted = httpx.URL(url)
        # an address that is on the list was named by whoever wrote it
        courier = Courier(inside=self._private or is_address(wanted.host))
        try:
            answer = await courier.post(wanted, message, {"Content-Type": "application/json"})
        except Undelivered as error:
            job_log(f"the callback was not made: {error}")
            return
        if not 200 <= answer.status < 300:
            job_log(f"the callback answered HTTP {answer.status}")
