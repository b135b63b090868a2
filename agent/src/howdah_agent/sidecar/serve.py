"""Process of a sidecar, from start to stop; its programs and workspaces are removed with it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import uvicorn

from howdah.loops import every, on_signals, wait
from howdah_agent.sidecar.options import SidecarOptions
from howdah_agent.sidecar.service import Service
from howdah_agent.sidecar.workspace import Workspaces

log = logging.getLogger("howdah")

SWEEP = 1.0
LOOK = 0.1


class Web(uvicorn.Server):
    """Uvicorn server without signal handlers, so that running attempts can finish first."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the sidecar handles the signals."""
        yield


async def serve(options: SidecarOptions) -> None:
    """Serve until a signal; then let attempts finish within the grace. A second signal stops them at once."""
    workspaces = Workspaces(options.folder, slots=options.slots, idle=options.idle)
    over, now = asyncio.Event(), asyncio.Event()

    def drain() -> None:
        log.info("draining: %d attempts, up to %g s; again to stop now", len(workspaces), options.grace)
        workspaces.draining = True
        over.set()

    with socket.create_server((options.host, options.port), family=_family(options.host)) as sock:
        config = uvicorn.Config(
            Service(options, workspaces).app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=round(options.kill_after) + 2,
        )
        web = Web(config)
        undo = on_signals(drain, now.set)
        sweeping = asyncio.create_task(every(SWEEP, _swept(workspaces), name="sweep of workspaces", stop=over))
        serving = asyncio.create_task(web.serve(sockets=[sock]))
        log.info("the sidecar listens on %s:%d", options.host, sock.getsockname()[1])
        try:
            ended = asyncio.create_task(over.wait())
            await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            await _finished(workspaces, now, options.grace)
        finally:
            over.set()
            await workspaces.close()
            web.should_exit = True
            await asyncio.gather(serving, sweeping, return_exceptions=True)
            undo()  # only now: an earlier second signal would leave workspaces behind
            log.info("the sidecar stops")


def _swept(workspaces: Workspaces) -> Callable[[], Awaitable[None]]:
    async def sweep() -> None:
        workspaces.sweep()

    return sweep


async def _finished(workspaces: Workspaces, now: asyncio.Event, grace: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + grace
    while len(workspaces) and not now.is_set() and loop.time() < until:
        workspaces.sweep()
        await wait(now, LOOK)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
