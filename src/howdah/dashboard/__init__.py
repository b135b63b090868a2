"""The web dashboard, an ASGI application with server-rendered pages."""

from howdah.dashboard.dashboard import Dashboard
from howdah.dashboard.request import Level, Visitor
from howdah.dashboard.sign_in import everybody

__all__ = ["Dashboard", "Level", "Visitor", "everybody"]
