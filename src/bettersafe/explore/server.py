"""The explorer's server: local only, one link, and no text of a request is used as a path.

It uses the standard library's http.server, because there are seven routes, one user and no network: nothing to install, and every
check is visible. A request is answered if

    its Host is this machine (against DNS rebinding: a web site that points its name to this machine)
    its Origin, which browsers send except with plain GET requests, is this page's own (not another site or local port)
    it has the cookie that the link was exchanged for; the link has a token that works once
    its body, if any, is JSON of at most 64 kB

The page may be open in several tabs. The state of an exploration is in the page; the server only caches solutions (`cache`).
"""

from __future__ import annotations

import hmac
import json
import secrets
import signal
import socket
import socketserver
import sys
import threading
import time
import traceback
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

from bettersafe.errors import BettersafeError, ParameterError
from bettersafe.explore.answers import describe_session
from bettersafe.explore.cache import Cache
from bettersafe.explore.keeping import free_name
from bettersafe.explore.requests import SettingError, read_fields, read_name, read_search, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bettersafe.explore.session import Session
    from bettersafe.typing import Json

HOST = "127.0.0.1"
LARGEST_REQUEST = 64 * 1024
TIMEOUT = 30.0
"""Seconds before an idle connection is closed, and for which shutdown waits for a run that is being saved."""

PAGE = {
    "/": ("explore.html", "text/html; charset=utf-8"),
    "/explore.css": ("explore.css", "text/css; charset=utf-8"),
    "/explore.js": ("explore.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refusal(Exception):
    """Reason why a request is refused, with its HTTP status."""

    def __init__(self, status: HTTPStatus, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.field = status, field


class Explorer(ThreadingHTTPServer):
    """Server of one session.

    Args:
        session: The session.
        folder: Folder for saved runs.
        port: Port; 0 for any free port.
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = sys.platform != "win32"  # where it would let other programs use the port
    allow_reuse_port = False

    def __init__(self, session: Session, folder: Path, *, port: int = 0) -> None:
        self.cache = Cache(session)
        self.folder = folder
        self.start = describe_session(session, folder)
        self._token: str | None = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self._exchange = threading.Lock()
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ParameterError(f"port {port} can't be used: {reason}. Leave out `port` for a free one.") from None

    def server_bind(self) -> None:
        """Bind without looking up this machine's name, which can take seconds and is not needed."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.port

    @property
    def port(self) -> int:
        """Port of the server."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Link with the token, which works once."""
        return f"http://{HOST}:{self.port}/?token={self._token or 'used'}"

    @property
    def cookie_name(self) -> str:
        """Name of the cookie; it includes the port, because all ports of a host share cookies."""
        return f"bettersafe-{self.port}"

    def exchange(self, token: str) -> str | None:
        """Cookie for the token, once; None for a wrong or used token."""
        with self._exchange:
            if self._token is None or not hmac.compare_digest(token.encode(), self._token.encode()):
                return None
            self._token = None
            return self._cookie

    def knows(self, cookie: str) -> bool:
        """Whether a cookie is the session's."""
        return hmac.compare_digest(cookie.encode(), self._cookie.encode())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections; print the traceback of any other error, which is a bug."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError | socket.timeout):
            traceback.print_exc()


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "bettersafe"
    sys_version = ""
    timeout = TIMEOUT
    disable_nagle_algorithm = True

    @property
    def explorer(self) -> Explorer:
        return cast("Explorer", self.server)

    def do_GET(self) -> None:
        """Send the page, its files or its initial data."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Answer a request of the page."""
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal shows the link only."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send errors of http.server itself (an unknown method, a malformed request) as JSON."""
        self.close_connection = True
        self._send(HTTPStatus(code), {"error": message or HTTPStatus(code).phrase})

    def _answer(self, make: Callable[[], None]) -> None:
        try:
            self._check_sender()
            make()
        except Refusal as refusal:
            self._refuse(refusal)
        except SettingError as error:
            self._refuse(Refusal(HTTPStatus.BAD_REQUEST, str(error), error.setting))
        except BettersafeError as error:
            self._refuse(Refusal(HTTPStatus.CONFLICT, str(error)))
        except ConnectionError:
            raise
        except OSError as error:  # e.g. a full disk or missing permissions
            self._refuse(Refusal(HTTPStatus.CONFLICT, f"{error.filename or 'a file'}: {error.strerror or error}."))
        except Exception:
            traceback.print_exc()
            self._refuse(
                Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a bug; the terminal shows where it happened.")
            )

    def _refuse(self, refusal: Refusal) -> None:
        # An unread body would be parsed as the next request.
        self.close_connection = True
        wants_page = self.command == "GET" and not self.path.startswith("/api/")
        if wants_page:
            self._send(refusal.status, _refusal_page(refusal), "text/html; charset=utf-8")
        else:
            self._send(refusal.status, {"error": str(refusal), "field": refusal.field})

    def _check_sender(self) -> None:
        host = self.headers.get_all("Host") or []
        name = host[0].rpartition(":")[0] or host[0] if host else ""
        if len(host) != 1 or name not in (HOST, "localhost"):
            raise Refusal(HTTPStatus.FORBIDDEN, f"the explorer answers only at its own address, http://{HOST}.")
        origin = self.headers.get("Origin")
        if origin is None and self.command == "GET":
            return
        if origin != f"http://{host[0]}":
            raise Refusal(HTTPStatus.FORBIDDEN, "the request does not come from the explorer's own page.")

    def _check_cookie(self) -> None:
        if not self._has_cookie():
            raise Refusal(
                HTTPStatus.FORBIDDEN,
                "this needs the link that the explorer printed when it was started; each link works once, in one browser.",
            )

    def _has_cookie(self) -> bool:
        try:
            cookies = SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            return False
        found = cookies.get(self.explorer.cookie_name)
        return found is not None and self.explorer.knows(found.value)

    def _get(self) -> None:
        address = urlsplit(self.path)
        if address.path == "/" and address.query:
            self._exchange_token(address.query)
        elif address.path in PAGE:
            if address.path == "/":  # the other files are not secret, and the page of a refusal uses them
                self._check_cookie()
            name, kind = PAGE[address.path]
            self._send(HTTPStatus.OK, files("bettersafe.explore").joinpath(name).read_bytes(), kind)
        elif address.path == "/api/start":
            self._check_cookie()
            self._send(HTTPStatus.OK, {**self.explorer.start, "name": free_name(self.explorer.folder)})
        elif address.path == "/favicon.ico":
            self._send(HTTPStatus.NO_CONTENT, b"", "image/x-icon")
        else:
            raise Refusal(HTTPStatus.NOT_FOUND, "there is no such page.")

    def _exchange_token(self, query: str) -> None:
        token = parse_qs(query).get("token", [""])[-1]
        cookie = self.explorer.exchange(token)
        if cookie is None and not self._has_cookie():
            raise Refusal(
                HTTPStatus.FORBIDDEN,
                "this link was used before, or belongs to another explorer. Each link works once: stop the explorer with Ctrl-C,"
                " start it again, and open the new link.",
            )
        more = {"Location": "/"}
        if cookie is not None:
            more["Set-Cookie"] = f"{self.explorer.cookie_name}={cookie}; Path=/; HttpOnly; SameSite=Strict"
        self._send(HTTPStatus.SEE_OTHER, b"", "text/plain", more)

    def _post(self) -> None:
        self._check_cookie()
        verbs = {"/api/answer": self._post_answer, "/api/believe": self._post_believe, "/api/keep": self._post_keep}
        if self.path not in verbs:
            raise Refusal(HTTPStatus.NOT_FOUND, "there is no such request.")
        document = self._read()
        begun = time.perf_counter()
        result = verbs[self.path](document)
        took = {"Server-Timing": f"work;dur={1000.0 * (time.perf_counter() - begun):.2f}"}
        self._send(HTTPStatus.OK, result, more=took)

    def _post_answer(self, document: Any) -> Json:
        table = read_fields(document, "the request", ("settings",), ("search",))
        settings = read_settings(table["settings"], self.explorer.cache.session)
        return self.explorer.cache.answer(settings, search=read_search(table.get("search", "")))

    def _post_believe(self, document: Any) -> Json:
        table = read_fields(document, "the request", ("settings",))
        return self.explorer.cache.believe(read_settings(table["settings"], self.explorer.cache.session))

    def _post_keep(self, document: Any) -> Json:
        table = read_fields(document, "the request", ("settings", "name"))
        settings = read_settings(table["settings"], self.explorer.cache.session)
        return self.explorer.cache.keep(settings, read_name(table["name"]), self.explorer.folder)

    def _read(self) -> Any:
        """Read the JSON document of a request."""
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a request must be application/json.")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            raise Refusal(HTTPStatus.LENGTH_REQUIRED, "a request must have a Content-Length.")
        if len(length) > 9 or int(length) > LARGEST_REQUEST:
            raise Refusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a request may have at most {LARGEST_REQUEST} bytes; got {length}.",
            )
        body = self.rfile.read(int(length))
        try:
            return json.loads(body, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"the request is not JSON: {error}") from None

    def _send(
        self,
        status: HTTPStatus,
        content: bytes | Json,
        kind: str = "application/json",
        more: dict[str, str] | None = None,
    ) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content, allow_nan=False).encode()
        self.send_response(status)
        for name, value in {**HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number.")


def _refusal_page(refusal: Refusal) -> bytes:
    from html import escape

    said = str(refusal)
    text = said[:1].upper() + said[1:]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>bettersafe explorer</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/explore.css"></head>'
        f'<body class="refusal"><main><h1>Refused</h1><p>{escape(text)}</p></main></body></html>'
    ).encode()


def serve(explorer: Explorer, *, ready: Callable[[], None]) -> None:
    """Serve until Ctrl-C or SIGTERM, then wait for a run that is being saved, and free the port.

    Args:
        explorer: The server.
        ready: Called once the server is running.
    """
    end = threading.Event()
    before = {number: signal.signal(number, lambda *_: end.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    worker = threading.Thread(target=explorer.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    worker.start()
    try:
        ready()
        while not end.wait(1.0):  # short waits, so that signals are handled on every system
            pass
    finally:
        explorer.shutdown()
        explorer.server_close()
        if explorer.cache.keeping.acquire(timeout=TIMEOUT):
            explorer.cache.keeping.release()
        for number, handler in before.items():
            signal.signal(number, handler)


def open_browser(url: str) -> None:
    """Open a link if there is a graphical screen; a text browser would take over the terminal."""
    import os
    import webbrowser

    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
