"""Nodes: every process that works, here and over HTTP: its state, its slots, what it runs; drain."""

from __future__ import annotations

from starlette.responses import Response

from howdah.dashboard.protection import RequestError
from howdah.dashboard.request import DashboardPage, DashboardRequest

RUNNING_ON_A_PAGE = 50


async def nodes(visit: DashboardRequest) -> Response:
    """The live ones, or all."""
    everything = visit.param("all") == "yes"
    return visit.page("nodes.html", nodes=await visit.context.admin.nodes(all=everything), everything=everything)


async def node(visit: DashboardRequest) -> Response:
    """One node, and the jobs it holds."""
    id = visit.request.path_params["id"]
    found = [each for each in await visit.context.admin.nodes(all=True) if each.id == id]
    if not found:
        raise RequestError(404, f"There is no node {id}.", "It may be gone for long.")
    running = await visit.context.fetch("running_on", id, RUNNING_ON_A_PAGE)
    [more] = await visit.context.fetch("node", id)
    return visit.page("node.html", node=found[0], running=running, more=more)


async def drain(visit: DashboardRequest) -> Response:
    """Ask a node to end."""
    [id] = visit.numbers("id", 2**31 - 1) or [0]
    if not visit.confirmed():
        return visit.confirm(
            f"Drain node {id}?",
            verb="Drain",
            danger=True,
            detail="It stops claiming, finishes running jobs, releases the others and exits. This cannot be undone.",
        )
    await visit.context.admin.drain(id)
    return visit.redirect(f"/nodes/{id}", f"Node {id} is asked to drain.")


PAGES = [
    DashboardPage("GET", "/nodes", "read", nodes),
    DashboardPage("GET", "/nodes/{id:int}", "read", node),
    DashboardPage("POST", "/nodes/drain", "all", drain),
]
