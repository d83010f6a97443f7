"""The web server of `baddr explore`: on this machine only, with a token in the address."""

import secrets
import socket
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from baddr.domains.entry import Names
from baddr.errors import UserError
from baddr.lab.explore.folder import Results
from baddr.lab.explore.picture import drawn

HOST = "127.0.0.1"
MOST_SESSIONS = 8  # the oldest is dropped for another one
# Nothing is fetched from elsewhere, and no other page may hold this one in a frame.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Explorer:
    """What the pages ask for: sessions of a domain's agent, or a result folder."""

    def __init__(self, title: str, names: Names, start: Callable[[int], Any] | None, results: Results | None):
        self.title, self.names, self.start, self.results = title, names, start, results
        self.token = secrets.token_urlsafe(16)
        self.sessions: dict[str, Any] = {}

    def app(self) -> Starlette:
        routes = [
            Route("/", self._page),
            *(Route(f"/api/{name}", self._answer(f), methods=["GET", "POST"]) for name, f in self._calls()),
        ]
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
        return Starlette(routes=routes, middleware=[hosts])

    def _calls(self) -> list[tuple[str, Callable[[dict[str, str]], Any]]]:
        return [
            ("about", self.about),
            ("open", self.open),
            ("view", lambda asked: self._session(asked).view()),
            ("step", lambda asked: self._do(asked, lambda it: it.step())),
            (
                "act",
                lambda asked: self._do(
                    asked, lambda session: session.act(_int(asked, "a"), _observed(asked))
                ),
            ),
            ("episode", lambda asked: self._do(asked, lambda it: it.next_episode())),
            ("move", lambda asked: self._do(asked, lambda it: it.move(_int(asked, "by")))),
            ("node", lambda asked: self._session(asked).node(_int(asked, "node"))),
            ("after", lambda asked: self._session(asked).after(_int(asked, "a"), _observed(asked) or [])),
            ("picture", self.picture),
            ("curves", lambda asked: self._results().curves()),
            ("trace", lambda asked: self._results().view(_int(asked, "place"))),
        ]

    def _page(self, request: Request) -> Response:
        if not self._allowed(request):
            return PlainTextResponse("This address needs its token.", 403, HEADERS)
        return HTMLResponse(page(), 200, HEADERS)

    def _allowed(self, request: Request) -> bool:
        given = request.query_params.get("token", "") or request.headers.get("x-token", "")
        return secrets.compare_digest(given.encode(), self.token.encode())

    def _answer(self, function: Callable[[dict[str, str]], Any]) -> Callable[[Request], Response]:
        """What a call gives, as JSON; a sentence where it cannot."""

        def respond(request: Request) -> Response:
            if not self._allowed(request):
                return JSONResponse({"error": "This address needs its token."}, 403, HEADERS)
            try:
                return JSONResponse(function(dict(request.query_params)), 200, HEADERS)
            except UserError as error:
                return JSONResponse({"error": str(error)}, 400, HEADERS)

        return respond

    # Calls.

    def about(self, asked: dict[str, str]) -> dict[str, Any]:
        """What the numbers mean."""
        names = self.names
        feature = lambda named: {"name": named[0], "values": list(named[1])}
        model = [
            {"name": q.name, "title": q.title, "entries": list(q.entries), "truth": list(q.truth)}
            for q in names.model
        ]
        return {
            "title": self.title,
            "folder": self.results is not None,
            "traced": self.results is not None and bool(self.results.trace()),
            "state": [feature(f) for f in names.state],
            "actions": list(names.action),
            "observation": [feature(f) for f in names.observation],
            "model": model,
        }

    def open(self, asked: dict[str, str]) -> dict[str, Any]:
        """A new session, and its first view."""
        if self.start is None:
            raise UserError("This is a result folder: there is no domain to act in.")
        session, name = self.start(_int(asked, "seed", 0)), secrets.token_urlsafe(8)
        while len(self.sessions) >= MOST_SESSIONS:
            self.sessions.pop(next(iter(self.sessions)))
        self.sessions[name] = session
        return {"session": name} | session.view()

    def picture(self, asked: dict[str, str]) -> dict[str, str]:
        """The world and the belief, as the domain draws them; nothing where it has no picture of its own."""
        if self.results is not None:
            return {"png": self.results.picture(_int(asked, "place"))}
        session = self._session(asked)
        renderer = session.inside.domain.renderer
        return {"png": drawn(renderer, session.scene()) if renderer else ""}

    def _session(self, asked: dict[str, str]) -> Any:
        session = self.sessions.get(asked.get("session", ""))
        if session is None:
            raise UserError("This session has ended; start a new one.")
        return session

    def _do(self, asked: dict[str, str], what: Callable[[Any], None]) -> dict[str, Any]:
        session = self._session(asked)
        with session.lock:
            what(session)
            return session.view()

    def _results(self) -> Results:
        if self.results is None:
            raise UserError("This is a domain: it has no results.")
        return self.results


def _int(asked: dict[str, str], name: str, default: int | None = None) -> int:
    try:
        return int(asked[name]) if default is None else int(asked.get(name, default))
    except (KeyError, ValueError):
        raise UserError(f"{name} must be a whole number.") from None


def _observed(asked: dict[str, str]) -> list[int] | None:
    """The observation to imagine, where there is one: whole numbers with commas between them."""
    given = asked.get("o", "")
    try:
        return [int(x) for x in given.split(",")] if given else None
    except ValueError:
        raise UserError("o must be whole numbers separated by commas.") from None


def page() -> str:
    """The page with its style and its script in it: nothing else is fetched."""
    read = lambda name: files("baddr.lab.explore").joinpath(name).read_text("utf-8")
    return read("page.html").replace("/* style */", read("page.css")).replace("/* script */", read("page.js"))


def bound(port: int) -> socket.socket:
    """A socket of this machine alone; port 0: any that is free."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(64)
    except OSError as error:
        found.close()
        raise UserError(
            f"Port {port} cannot be used ({error.strerror}); choose another with --port."
        ) from error
    return found


def serve(explorer: Explorer, port: int, ready: Callable[[str], None]) -> None:
    """Until Ctrl-C. `ready` is told the address."""
    import uvicorn

    found = bound(port)
    server = uvicorn.Server(uvicorn.Config(explorer.app(), log_level="error", access_log=False))
    ready(f"http://{HOST}:{found.getsockname()[1]}/?token={explorer.token}")
    try:
        server.run(sockets=[found])
    except KeyboardInterrupt:
        pass
    finally:
        found.close()
