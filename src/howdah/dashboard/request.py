"""One request to the dashboard: its visitor, its fields, and the responses to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from howdah.audit import Actor
from howdah.dashboard.context import DashboardContext
from howdah.dashboard.protection import LARGEST_FORM, RequestError
from howdah.dashboard.render import environment, version_of

MESSAGE_COOKIE = "howdah-message"
"""The cookie with the result of an action, shown on the next page."""
LONGEST_MESSAGE = 400
MOST_FIELDS = 2000

Level = Literal["read", "all"]
LEVELS: tuple[Level, ...] = ("read", "all")


class Visitor(NamedTuple):
    """A user who may read, and with level ``all`` also act."""

    name: str
    """For the audit."""
    level: Level
    token: int | None = None
    """The id of the API token they came with; the session ends with it."""
    seal: bytes = b""
    """Of the password they came with; the session ends when the password is changed or removed."""

    @property
    def may_act(self) -> bool:
        """True if they may change anything."""
        return self.level == "all"


class DashboardRequest:
    """One request to the dashboard."""

    def __init__(
        self, request: Request, context: DashboardContext | None, visitor: Visitor | None, *, can_leave: bool
    ) -> None:
        self.request = request
        self._context = context
        self._visitor = visitor
        self._can_leave = can_leave
        self._form: Mapping[str, str] = {}
        self._chosen: list[tuple[str, str]] = []

    @property
    def context(self) -> DashboardContext:
        """The database and the application of this request."""
        assert self._context is not None
        return self._context

    @property
    def visitor(self) -> Visitor:
        """The user who sent the request."""
        assert self._visitor is not None
        return self._visitor

    @property
    def by(self) -> Actor:
        """The user's name, for the audit."""
        return Actor(self._visitor.name if self._visitor else "unknown", "dashboard", self.address or None)

    @property
    def address(self) -> str:
        """The address of the client; forwarded headers are not trusted."""
        return self.request.client.host if self.request.client else ""

    @property
    def partial(self) -> bool:
        """True if only a piece of a page is wanted, for the dialog."""
        return self.request.headers.get("hx-request") == "true"

    # ---------------------------------------------------------------- the request

    async def read_form(self) -> None:
        """Read the form."""
        data = bytearray()
        async for chunk in self.request.stream():
            data += chunk
            if len(data) > LARGEST_FORM:
                raise RequestError(413, f"A form may have {LARGEST_FORM:,} bytes.", "Choose fewer at once.")
        try:
            self._chosen = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError:
            raise RequestError(400, "The form cannot be read.", "Reload the page and try again.") from None
        self._form = dict(self._chosen)

    def field(self, name: str, default: str | None = None) -> str:
        """A field of the form."""
        value = self._form.get(name, default)
        if value is None:
            raise RequestError(400, f"The field {name!r} is missing.", "Reload the page and try again.")
        return value

    def fields(self, name: str) -> list[str]:
        """Every value of a field, as checkboxes make them."""
        return [value for field, value in self._chosen if field == name]

    def numbers(self, name: str, most: int = 2**63 - 1) -> list[int]:
        """The values of a field that holds numbers."""
        found = self.fields(name)
        if not all(each.isdecimal() and len(each) < 20 and int(each) <= most for each in found):
            raise RequestError(400, f"{name!r} must be numbers.", "Reload the page and try again.")
        return [int(each) for each in found]

    def param(self, name: str, default: str = "") -> str:
        """A parameter of the address."""
        return self.request.query_params.get(name, default).replace("\0", "")

    def number(self, name: str, default: int | None = None) -> int | None:
        """A parameter that is a number."""
        text = self.param(name)
        if not text:
            return default
        if not text.isdecimal() or len(text) > 18:
            raise RequestError(400, f"{name} must be a number, got {text[:40]!r}.", "Correct the address.")
        return int(text)

    # ---------------------------------------------------------------- responses

    def url(self, path: str, **params: Any) -> str:
        """An address within the dashboard, wherever it is mounted."""
        root = quote(self.request.scope.get("root_path", ""), safe="/%")
        wanted = {name: value for name, value in params.items() if value not in (None, "")}
        return f"{root}{path}" + (f"?{urlencode(wanted)}" if wanted else "")

    def page(self, template: str, code: int = 200, /, **facts: Any) -> Response:
        """A whole page; ``facts`` are what the template names."""
        message = unquote(self.request.cookies.get(MESSAGE_COOKIE, ""))[:LONGEST_MESSAGE]
        response = HTMLResponse(self.text(template, message=message, **facts), code)
        if message:
            response.delete_cookie(MESSAGE_COOKIE, path=self.url("/"))
        return response

    def text(self, template: str, **facts: Any) -> str:
        """A template, filled in."""
        return (
            environment()
            .get_template(template)
            .render(
                url=self.url,
                static=self._static,
                here=self.request.url.path + (f"?{self.request.url.query}" if self.request.url.query else ""),
                path=self.request.url.path.removeprefix(self.request.scope.get("root_path", "")),
                visitor=self._visitor,
                can_leave=self._can_leave,
                **{"message": "", **facts},
            )
        )

    def redirect(self, path: str, message: str = "", **params: Any) -> Response:
        """Redirect to another page, which shows the message."""
        response = RedirectResponse(self.url(path, **params), 303)
        if message:
            response.set_cookie(
                MESSAGE_COOKIE,
                quote(message[:LONGEST_MESSAGE]),
                max_age=30,
                path=self.url("/"),
                httponly=True,
                samesite="strict",
            )
        return response

    def confirmed(self) -> bool:
        """Return whether the user confirmed the action."""
        return self._form.get("sure") == "yes"

    def confirm(self, question: str, *, verb: str, detail: str = "", danger: bool = False) -> Response:
        """Ask for confirmation, in a dialog or on a page; the same form is sent again with ``sure``."""
        facts: dict[str, Any] = {
            "question": question,
            "verb": verb,
            "detail": detail,
            "danger": danger,
            "action": self.request.url.path,
            "fields": [(name, value) for name, value in self._chosen if name != "sure"],
            "back": self._came_from(),
        }
        return self.page("ask_dialog.html" if self.partial else "ask.html", **facts)

    def _came_from(self) -> str:
        from_ = urlsplit(self.request.headers.get("referer", ""))
        if from_.netloc != self.request.headers.get("host") or from_.scheme not in ("http", "https"):
            return self.url("/")
        return urlunsplit(from_)

    def _static(self, name: str) -> str:
        return self.url(f"/static/{name}", v=version_of(name))


class DashboardPage(NamedTuple):
    """One method and path of the dashboard."""

    method: Literal["GET", "POST"]
    path: str
    needs: Literal["nothing", "read", "all"]
    answer: Callable[[DashboardRequest], Awaitable[Response]]
