"""Ask a catalog by Iceberg's REST interface, within limits of time; its errors say which setting mends them.

pyiceberg waits for an answer for as long as it takes, and its errors are those of the connection or of the server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException, UnauthorizedError
from pyiceberg.table import CommitTableResponse, Table
from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import ConnectTimeout, ReadTimeout, SSLError

from tailrace.lake.schema.lake_errors import CatalogError, UnansweredError

CONNECT = 10
"""Seconds within which a connection to a catalog has to be made."""

ANSWER = 60
"""Seconds within which a catalog has to answer a request."""

_AWAY = (502, 503, 504)
"""The statuses by which a server, or one before it, says that it cannot answer now."""

_OVERTAKEN = re.compile(r"sequence number|unknown snapshot")
"""The words by which a server refuses a commit since another came first, though with status 400."""


class RefusedError(CatalogError, UnauthorizedError):
    """The catalog refuses the token. pyiceberg gets another token, where a client may, and asks once more."""


@dataclass(frozen=True)
class Access:
    """The way into a catalog: its address, that of its tokens, and the setting that says who asks, if one does."""

    uri: str
    token_uri: str | None
    by: str | None

    @property
    def refused(self) -> RefusedError:
        """The error of a token that the catalog refuses, or of none."""
        match self.by:
            case None:
                return RefusedError(
                    f"the catalog {self.uri} asks for a token",
                    "set TAILRACE_CATALOG_SECRET, or TAILRACE_CATALOG_CREDENTIAL and TAILRACE_CATALOG_TOKEN_URI",
                )
            case "TAILRACE_CATALOG_CREDENTIAL":
                return RefusedError(
                    f"the catalog {self.uri} refuses the token that {self.token_uri} gives",
                    "set TAILRACE_CATALOG_TOKEN_URI to where this catalog's tokens are, or TAILRACE_CATALOG_SCOPE to "
                    "the scope that it asks for",
                )
        return RefusedError(
            f"the catalog {self.uri} refuses the token", f"set {self.by} to one that it takes and that has not expired"
        )


class RestClient(RestCatalog):
    """pyiceberg's catalog behind the REST interface, by an `Access`."""

    def __init__(self, name: str, access: Access, **properties: Any) -> None:
        """Open the catalog. Raises `CatalogError` where it does not answer, or refuses who asks."""
        self._access = access
        super().__init__(name, **properties)

    def _config_headers(self, session: Session) -> None:
        super()._config_headers(session)
        # This is called before the session first asks for anything, and nothing else is.
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Limited(self._access))

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        """Commit to a table. Raises `CommitFailedException` where another commit has overtaken this one."""
        try:
            done: CommitTableResponse = super().commit_table(table, requirements, updates)
            return done
        except BadRequestError as error:
            if not _OVERTAKEN.search(str(error)):
                raise
            raise CommitFailedException(str(error)) from error


class _Limited(HTTPAdapter):
    """The connections of a session, limited in time."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access

    def send(self, request: PreparedRequest, *args: Any, **given: Any) -> Response:
        tokens = request.url == self._access.token_uri
        who, setting = f"the catalog {self._access.uri}", "TAILRACE_CATALOG_URI"
        if tokens:
            who, setting = f"the service of tokens {self._access.token_uri}", "TAILRACE_CATALOG_TOKEN_URI"
        mend = f"see that it runs and can be reached from here, or set {setting} to where it does"
        try:
            answer = super().send(request, *args, **{**given, "timeout": (CONNECT, ANSWER)})
        except RequestException as error:
            raise UnansweredError(f"{who} does not answer ({_why(error)})", mend) from error
        status = answer.status_code
        if status in _AWAY:
            raise UnansweredError(f"{who} answers that it cannot ({status})", mend)
        if tokens and status in (400, 401, 403):
            raise CatalogError(f"{who} refuses the client ({_code(answer)})", "correct TAILRACE_CATALOG_CREDENTIAL")
        if status in (401, 419):
            raise self._access.refused
        if status == 403:
            raise CatalogError(
                f"{who} does not allow it ({_message(answer)})", "have it allowed there to whom the token is of"
            )
        return answer


def _why(error: RequestException) -> str:
    """Say in a few words why there was no answer; the library's own message repeats the whole request."""
    match error:
        case ConnectTimeout():
            return f"no connection within {CONNECT} s"
        case ReadTimeout():
            return f"nothing within {ANSWER} s"
        case SSLError():
            found = re.search(r"certificate verify failed: ([\w ,'-]+)", str(error))
            return f"TLS: {found[1] if found else 'no agreement'}"
    found = re.search(r"\[Errno -?\d+\] ([\w ,-]+)|(Remote end closed|Connection reset|Failed to resolve)", str(error))
    return (found[1] or found[2]).strip().lower() if found else type(error).__name__


def _code(answer: Response) -> str:
    """Return the error code of OAuth2 in an answer, or its status; nothing else of it, which may repeat the client."""
    found = re.search(r'"error"\s*:\s*"([a-z_]{1,40})"', answer.text)
    return found[1] if found else str(answer.status_code)


def _message(answer: Response) -> str:
    """Return what a catalog says of an error, or its status."""
    found = re.search(r'"message"\s*:\s*"([^"]{1,400})"', answer.text)
    return found[1] if found else str(answer.status_code)
