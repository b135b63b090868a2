"""The dashboard: see everything, know why, act safely. Server-rendered; an ASGI application of its own."""

from howdah.dashboard.access import Visitor, everybody
from howdah.dashboard.dashboard import Dashboard

__all__ = ["Dashboard", "Visitor", "everybody"]
