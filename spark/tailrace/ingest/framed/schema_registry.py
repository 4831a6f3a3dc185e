"""Request the schemas of messages from a schema registry with Confluent's interface, which other registries also offer.

The schema with a given id never changes, so each schema is requested once and cached. If the registry does not know the
id in a message, the message is rejected. If the registry does not answer, the epoch fails without loss of data, and is
read again later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import stamina
from cachetools import LRUCache
from requests import PreparedRequest, RequestException, Response, Session
from requests.auth import AuthBase, HTTPBasicAuth

from tailrace.ingest.sources import SourceError
from tailrace.model.base.errors import RemedyError
from tailrace.settings import Settings

KEPT = 1000
"""The maximum number of schemas that are cached."""

CONNECT, ANSWER = 5, 20
"""The maximum number of seconds to wait for a connection, and the maximum number of seconds to wait for an answer."""

ATTEMPTS = 4
"""The maximum number of attempts for a request; after that, the registry counts as not answering."""

_UNKNOWN_SCHEMA = 40403
_AGAIN = (429, 500, 502, 503, 504)


class RegistryError(RemedyError, SourceError):
    """The error for a failure of the schema registry."""


class _AwayError(Exception):
    """The error for a request to which the schema registry gave no answer."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema from the schema registry: its kind (`AVRO`, `PROTOBUF`, `JSON`) and its text.

    `references` has the names and texts of the schemas to which this schema refers, directly or indirectly. In
    `references`, every schema comes after the schemas to which it refers.
    """

    id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaRegistry:
    """A client of the schema registry that the settings name."""

    def __init__(self, settings: Settings) -> None:
        """Open a session for requests. Raises `RegistryError` if the settings name no schema registry."""
        if settings.schema_registry_uri is None:
            raise RegistryError("no schema registry is set", "set TAILRACE_SCHEMA_REGISTRY_URI to its address")
        self.uri = settings.schema_registry_uri.rstrip("/")
        self._session = Session()
        self._session.headers["Accept"] = "application/vnd.schemaregistry.v1+json, application/json"
        # Always set `auth`, even without credentials. Otherwise, `requests` would use the credentials in the user's
        # `.netrc`.
        self._session.auth = _auth(settings)
        self._by = "TAILRACE_SCHEMA_REGISTRY_" + ("TOKEN" if settings.schema_registry_token else "CREDENTIAL")
        self._kept = LRUCache[int, RegisteredSchema](KEPT)

    def schemas(self, ids: Iterable[int]) -> dict[int, RegisteredSchema]:
        """Return the schemas with these ids, by id; ids that the registry does not know are left out.

        Raises `RegistryError` if the registry does not answer, refuses the request, or is not a registry.
        """
        found = dict[int, RegisteredSchema]()
        for id in ids:
            schema = self._kept.get(id) or self._asked(id)
            if schema is not None:
                found[id] = self._kept[id] = schema
        return found

    def subjects(self) -> list[str]:
        """Return the names of the registry's subjects.

        The method is used to test whether the registry answers and allows reading. Raises the same errors as `schemas`.
        """
        answer = self._get("subjects")
        if not isinstance(answer, list):
            raise self._none(f"answers {str(answer)[:100]!r} when asked for its subjects")
        return answer

    def _asked(self, id: int) -> RegisteredSchema | None:
        answer = self._get(f"schemas/ids/{id}")
        return None if answer is None else self._schema(id, answer)

    def _schema(self, id: int, answer: Any) -> RegisteredSchema:
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise self._none(f"answers {str(answer)[:100]!r} when asked for schema {id}")
        references = dict(self._referred(answer, {}))
        # If the answer names no kind, the schema is Avro, because the first registries had only Avro schemas.
        return RegisteredSchema(id, answer.get("schemaType") or "AVRO", answer["schema"], tuple(references.items()))

    def _referred(self, answer: Any, seen: dict[str, str]) -> Iterator[tuple[str, str]]:
        for one in answer.get("references") or ():
            name, subject, version = (one[field] for field in ("name", "subject", "version"))
            if name in seen:
                continue
            referred = self._get(f"subjects/{quote(subject, safe='')}/versions/{version}")
            if not isinstance(referred, dict) or "schema" not in referred:
                raise self._none(f"does not have version {version} of subject {subject}, which a schema refers to")
            seen[name] = referred["schema"]
            yield from self._referred(referred, seen)
            yield name, referred["schema"]

    def _get(self, path: str) -> Any:
        """Send a request to the registry; return its answer, or None if the registry does not know the schema."""
        try:
            for attempt in stamina.retry_context(
                on=_AwayError, attempts=ATTEMPTS, timeout=60.0, wait_initial=0.1, wait_max=2.0, wait_jitter=0.1
            ):
                with attempt:
                    response = self._answered(path)
        except _AwayError as error:
            mend = "start it, or correct TAILRACE_SCHEMA_REGISTRY_URI; nothing is lost meanwhile"
            raise RegistryError(f"the schema registry {self.uri} does not answer ({error})", mend) from None
        if response.status_code in (401, 403):
            found = f"the schema registry {self.uri} refuses who asks (status {response.status_code})"
            raise RegistryError(found, f"set {self._by} to what it takes and has not expired")
        try:
            answer = response.json()
        except ValueError:
            answer = response.text[:100]
        if response.status_code == 200:
            return answer
        if response.status_code == 404 and isinstance(answer, dict) and answer.get("error_code") == _UNKNOWN_SCHEMA:
            return None
        raise self._none(f"answers with status {response.status_code} when asked for {path}")

    def _answered(self, path: str) -> Response:
        try:
            response = self._session.get(f"{self.uri}/{path}", timeout=(CONNECT, ANSWER), allow_redirects=False)
        except RequestException as error:
            raise _AwayError(type(error).__name__) from None
        if response.status_code in _AGAIN:
            raise _AwayError(f"status {response.status_code}")
        return response

    def _none(self, found: str) -> RegistryError:
        mend = "set TAILRACE_SCHEMA_REGISTRY_URI to the address of a registry with Confluent's interface, path included"
        return RegistryError(f"{self.uri} {found}", mend)


class _Bearer(AuthBase):
    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _auth(settings: Settings) -> AuthBase:
    if settings.schema_registry_credential is not None:
        user, _, password = settings.schema_registry_credential.get_secret_value().partition(":")
        return HTTPBasicAuth(user.encode(), password.encode())
    token = settings.schema_registry_token
    return _Bearer(None if token is None else token.get_secret_value())
