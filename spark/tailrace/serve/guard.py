"""Check the host and the token of each request, and tell browsers to load content from this server only."""

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
"""The security headers of every response."""

LOCAL = ("localhost", "127.0.0.1", "::1")
"""The host names under which a browser on this machine can reach the server."""

MOST_QUERY = 4096
"""The maximum length of a request's query string, in bytes."""


class OpenToAllError(TailraceError, ValueError):
    """Raised if other machines can reach the server and the server requires no token."""


def is_local(host: str) -> bool:
    """Return True if only this machine can reach a server that listens at this address.

    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("0.0.0.0"), is_local("lake.example")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True)
class Access:
    """The access rules: the host names that a request's `Host` header may contain, and the token.

    The token is None if no token is required. If `any_address` is True, the `Host` header may also contain any IP
    address.
    """

    names: frozenset[str]
    token: str | None
    any_address: bool = False

    @classmethod
    def of(cls, host: str, token: str | None, names: tuple[str, ...] = ()) -> Access:
        """Build the access rules for a server that listens at `host`.

        Raises `OpenToAllError` if `token` is None and other machines can reach `host`.
        """
        if token is None and not is_local(host):
            raise OpenToAllError(
                f"--host {host}: others than this machine would reach the page: expected a token of 16 characters or "
                "more, as TAILRACE_SERVE_TOKEN or --token, or a host such as 127.0.0.1"
            )
        everywhere = host in ("0.0.0.0", "::", "")
        return cls(frozenset({*LOCAL, host.lower(), *(one.lower() for one in names)}), token, everywhere)

    def calls(self, host: str) -> bool:
        """Return True if a `Host` header names this server.

        The server refuses any other name, because an attacker may point a domain name of their own at this server's
        address.
        """
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
        # An IP address in the `Host` header is safe, because an attacker cannot make an IP address lead to this server,
        # as they can with a domain name.
        return self.any_address

    @property
    def cookie_value(self) -> str:
        """The value of the cookie that a browser sends in place of the token."""
        return hmac.new((self.token or "").encode(), b"tailrace serve", hashlib.sha256).hexdigest()

    def knows(self, token: str) -> bool:
        """Return True if `token` is the server's token. The comparison takes constant time."""
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def recognises(self, cookie: str) -> bool:
        """Return True if the cookie proves that the browser has sent the token before.

        The comparison takes constant time.
        """
        return hmac.compare_digest(cookie.encode(), self.cookie_value.encode())


@dataclass(frozen=True)
class Guard:
    """A wrapper around the application.

    The wrapper checks the method, host, query length and token of each request, in this order.

    `cookie` is the name of the cookie that stands in for the token.
    """

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

        refused = self._refuse(scope)
        if refused is not None:
            # Close the connection of a client whose request is refused.
            refused.headers["Connection"] = "close"
        await (self.app if refused is None else refused)(scope, receive, guarded)

    def _refuse(self, scope: Scope) -> Response | None:
        """Return the response for a request that is refused; None if the application may handle the request."""
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
        """Redirect the browser to the same page without the token in the address, and set a cookie instead."""
        path = "/" + scope["path"].lstrip("/\\")
        answer = RedirectResponse(path + (f"?{urlencode(rest)}" if rest else ""), 303)
        secure = scope.get("scheme") == "https"
        answer.set_cookie(self.cookie, self.access.cookie_value, httponly=True, samesite="lax", secure=secure)
        return answer

    def _cookie(self, headers: Headers) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value
