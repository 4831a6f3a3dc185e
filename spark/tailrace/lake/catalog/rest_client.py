"""Access a catalog through Iceberg's REST interface, with timeouts and with errors that name the setting to correct.

pyiceberg itself waits for a response without a time limit. pyiceberg also passes on the errors of the connection and of
the server without an explanation.
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
"""The maximum time for connecting to a catalog, in seconds."""

ANSWER = 60
"""The maximum time for a catalog's response to a request, in seconds."""

_AWAY = (502, 503, 504)
"""The HTTP status codes with which a server, or a proxy in front of the server, reports that the server is
unavailable.
"""

_OVERTAKEN = re.compile(r"sequence number|unknown snapshot")
"""A pattern for the error messages (with HTTP status 400) which report that another commit was made first."""


class RefusedError(CatalogError, UnauthorizedError):
    """The error that is raised if the catalog rejects the token.

    If client credentials are configured, pyiceberg then requests another token and sends the rejected request once
    more.
    """


@dataclass(frozen=True)
class Access:
    """The settings for accessing a catalog: `uri` is the catalog's address.

    `token_uri` is the address of the token service, or None if no such address is set. `by` names the setting that has
    the token or the client credentials, or is None if neither is set.
    """

    uri: str
    token_uri: str | None
    by: str | None

    @property
    def refused(self) -> RefusedError:
        """The error to raise if the catalog rejects the token, or if no token is set."""
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
    """pyiceberg's catalog for Iceberg's REST interface, with timeouts and clear errors."""

    def __init__(self, name: str, access: Access, **properties: Any) -> None:
        """Open the catalog. Raises `CatalogError` if the catalog does not answer, or rejects the client."""
        self._access = access
        super().__init__(name, **properties)

    def _config_headers(self, session: Session) -> None:
        super()._config_headers(session)
        # The timeouts are set here because pyiceberg calls only `_config_headers` between creating the session and
        # sending the first request.
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Limited(self._access))

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        """Commit to a table. Raises `CommitFailedException` if another commit was made first."""
        try:
            done: CommitTableResponse = super().commit_table(table, requirements, updates)
            return done
        except BadRequestError as error:
            if not _OVERTAKEN.search(str(error)):
                raise
            raise CommitFailedException(str(error)) from error


class _Limited(HTTPAdapter):
    """An HTTP adapter that adds timeouts to each request and explains errors."""

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
    """Return a brief reason why there was no response, because the message of `requests` repeats the whole request."""
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
    """Return the OAuth2 error code in a response, or the response's status code if there is no error code.

    Other text of the response is left out, because that text may contain the secret.
    """
    found = re.search(r'"error"\s*:\s*"([a-z_]{1,40})"', answer.text)
    return found[1] if found else str(answer.status_code)


def _message(answer: Response) -> str:
    """Return the error message in a catalog's response, or the status code if there is no message."""
    found = re.search(r'"message"\s*:\s*"([^"]{1,400})"', answer.text)
    return found[1] if found else str(answer.status_code)
