"""Admit only people with the token, and tell the browser that a page may show this server's content and no more."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.model.base.errors import TailraceError

POLICY: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""The headers of every answer."""

LOCAL = ("localhost", "127.0.0.1", "::1")
"""The names by which a browser of this machine may call."""

MOST_QUERY = 4096
"""The maximum number of bytes of an address's query."""


class OpenToAllError(TailraceError, ValueError):
    """A server that others would reach, and that asks nobody for a token."""


def is_local(host: str) -> bool:
    """Tell whether an address to listen at is reached from this machine alone.

    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("0.0.0.0"), is_local("lake.example")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True)
class Access:
    """Who may look: by which host names, and with which token, None where none is asked for."""

    names: frozenset[str]
    token: str | None
    any_address: bool = False

    @classmethod
    def of(cls, host: str, token: str | None, names: tuple[str, ...] = ()) -> Access:
        """Make the access of a server that listens at `host`. Raises `OpenToAllError` where that needs a token."""
        if token is None and not is_local(host):
            raise OpenToAllError(
                f"--host {host}: others than this machine would reach the page: expected a token of 16 characters or "
                "more, as TAILRACE_SERVE_TOKEN or --token, or a host such as 127.0.0.1"
            )
        everywhere = host in ("0.0.0.0", "::", "")
        return cls(frozenset({*LOCAL, host.lower(), *(one.lower() for one in names)}), token, everywhere)

    def calls(self, host: str) -> bool:
        """Tell whether a `Host` header names this server: another name is one that somebody else made point here."""
        name, _, port = host.rpartition(":") if ":" in host and not host.endswith("]") else (host, "", "")
        if port and not port.isdigit():
            return False
        name = name.removeprefix("[").removesuffix("]").lower()
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        # Nobody makes a bare address point elsewhere.
        return self.any_address

    @property
    def pass_word(self) -> str:
        """The text that the cookie holds in the token's place."""
        return hmac.new((self.token or "").encode(), b"tailrace serve", hashlib.sha256).hexdigest()

    def knows(self, token: str) -> bool:
        """Tell in constant time whether this is the token."""
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def recognises(self, cookie: str) -> bool:
        """Tell in constant time whether a cookie is the one that a visit with the token was given."""
        return hmac.compare_digest(cookie.encode(), self.pass_word.encode())


@dataclass(frozen=True)
class Guard:
    """The application behind the checks: method, host, length, token; in that order. `cookie` is its cookie's name."""

    app: ASGIApp
    access: Access
    cookie: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in POLICY.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refused(scope)
        if refused is not None:
            # Who is not let in holds no connection.
            refused.headers["Connection"] = "close"
        await (self.app if refused is None else refused)(scope, receive, guarded)

    def _refused(self, scope: Scope) -> Response | None:
        """Answer in the application's place, where it is not to be asked."""
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("this server only shows: GET or HEAD", 405, {"Allow": "GET, HEAD"})
        headers, query = Headers(scope=scope), scope.get("query_string", b"")
        if not self.access.calls(headers.get("host", "")):
            return PlainTextResponse("not a name of this server: set TAILRACE_SERVE_NAMES to have it called so", 421)
        if len(query) > MOST_QUERY:
            return PlainTextResponse("the address is too long", 414)
        if self.access.token is None:
            return None
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in pairs if name == "token"]
        if given and self.access.knows(given[-1]):
            return self._let_in(scope, [(name, value) for name, value in pairs if name != "token"])
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if self.access.recognises(self._cookie(headers)) or (scheme == "Bearer" and self.access.knows(bearer)):
            return None
        return PlainTextResponse("a token is needed: open the page once with ?token=… behind its address", 401)

    def _let_in(self, scope: Scope, rest: list[tuple[str, str]]) -> Response:
        """Send the browser to the same page with a cookie in the token's place, so that no address has the token."""
        path = "/" + scope["path"].lstrip("/\\")
        answer = RedirectResponse(path + (f"?{urlencode(rest)}" if rest else ""), 303)
        secure = scope.get("scheme") == "https"
        answer.set_cookie(self.cookie, self.access.pass_word, httponly=True, samesite="lax", secure=secure)
        return answer

    def _cookie(self, headers: Headers) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value
