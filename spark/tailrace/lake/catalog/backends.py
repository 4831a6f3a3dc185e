"""The kinds of catalog that a lake may be in, and the properties that pyiceberg and Spark need to open each.

The setting `catalog_uri` selects the kind: SQLite in a file, PostgreSQL, AWS Glue, or a catalog behind Iceberg's REST
interface. All kinds commit by comparing and swapping the location of a table's metadata; everything here rests on that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast
from urllib.parse import quote, urlparse

from tailrace.lake.catalog.manifests import remember_readers
from tailrace.lake.catalog.sqlite import LookedUp
from tailrace.lake.catalog.sure_commits import sure
from tailrace.lake.metadata.lake_place import check_place
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.settings import PREFIX, Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

BUSY = 60
"""Seconds that a commit waits for another process's commit: SQLite's default gives up while a slow disk syncs."""

_JDBC = {
    "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
    # pyiceberg uses the layout V1, too.
    "jdbc.schema-version": "V1",
}


@dataclass(frozen=True)
class CatalogKind:
    """A kind of catalog. `jars` names the groups of pinned jars that Spark needs for it, besides every lake's."""

    jars: ClassVar[tuple[str, ...]] = ()

    settings: Settings

    @property
    def there(self) -> bool:
        """Whether the catalog exists, as far as that can be told without asking a service."""
        return True

    @property
    def named(self) -> str:
        """The catalog's name in messages."""
        return self.settings.catalog_uri

    def opened(self, storage: Mapping[str, str]) -> Catalog:
        """Open the catalog with pyiceberg, wrapped by `sure`."""
        raise NotImplementedError

    @property
    def warehouse(self) -> dict[str, str]:
        """The property by which the catalog is told where its tables' files are."""
        return {"warehouse": self.settings.warehouse_uri}

    def location(self, table: str) -> str | None:
        """Return where a new table's files are to be; None where the catalog puts them into the warehouse by itself."""
        return None

    @property
    def spark(self) -> dict[str, str]:
        """The properties of Spark's catalog."""
        raise NotImplementedError

    @property
    def _secret(self) -> str | None:
        secret = self.settings.catalog_secret
        return None if secret is None else secret.get_secret_value()


class Sqlite(CatalogKind):
    """A catalog in an SQLite file of this machine."""

    @property
    def file(self) -> Path:
        """The catalog's file: the one that is set, or `catalog.db` in the warehouse."""
        uri = self.settings.catalog_uri
        return Path(uri.removeprefix("sqlite:///")) if uri else Path(self.settings.warehouse) / "catalog.db"

    @property
    def there(self) -> bool:
        return self.file.is_file()

    @property
    def named(self) -> str:
        return str(self.file)

    def opened(self, storage: Mapping[str, str]) -> Catalog:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        properties = {"uri": f"sqlite:///{self.file}?timeout={BUSY}", **storage}

        def whole() -> Catalog:
            from pyiceberg.catalog.sql import SqlCatalog

            return sure(SqlCatalog(self.settings.catalog, **properties))

        return cast("Catalog", LookedUp(self.settings.catalog, self.file, BUSY, properties, whole))

    @property
    def spark(self) -> dict[str, str]:
        return {**_JDBC, "uri": f"jdbc:sqlite:{self.file}?journal_mode=WAL&busy_timeout={BUSY * 1000}"}


class Postgres(CatalogKind):
    """A catalog in PostgreSQL, `postgresql://USER@HOST:PORT/DATABASE`; the password is `catalog_secret`."""

    jars = ("postgres",)

    def opened(self, storage: Mapping[str, str]) -> Catalog:
        from pyiceberg.catalog.sql import SqlCatalog

        at = self._at
        secret = "" if self._secret is None else f":{quote(self._secret, safe='')}"
        uri = f"postgresql+psycopg2://{at.username}{secret}@{at.hostname}:{at.port or 5432}{at.path}"
        # A connection that has idled may have been cut off.
        return sure(SqlCatalog(self.settings.catalog, uri=uri, pool_pre_ping="true", **storage))

    @property
    def spark(self) -> dict[str, str]:
        at = self._at
        properties = {**_JDBC, "uri": f"jdbc:postgresql://{at.hostname}:{at.port or 5432}{at.path}"}
        properties["jdbc.user"] = str(at.username)
        return properties if self._secret is None else {**properties, "jdbc.password": self._secret}

    @cached_property
    def _at(self) -> Any:
        return urlparse(self.settings.catalog_uri)


class Glue(CatalogKind):
    """AWS Glue, `glue://ACCOUNT`, or `glue://` for the account whose credentials are used."""

    jars = ("aws",)

    def opened(self, storage: Mapping[str, str]) -> Catalog:
        try:
            from pyiceberg.catalog.glue import GlueCatalog
        except ImportError:
            raise LakeError("boto3, which a catalog of Glue needs, is not installed: install tailrace[aws]") from None
        account = {"glue.id": self._account} if self._account else {}
        return sure(
            GlueCatalog(self.settings.catalog, **account, **_option("glue.endpoint", endpoint("glue")), **storage)
        )

    @property
    def spark(self) -> dict[str, str]:
        properties = {"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog"}
        properties |= {"glue.id": self._account} if self._account else {}
        return properties | _option("glue.endpoint", endpoint("glue"))

    @property
    def _account(self) -> str:
        return self.settings.catalog_uri.removeprefix("glue://")


class Rest(CatalogKind):
    """A catalog behind Iceberg's REST interface, by its address.

    Its token is the setting `catalog_secret`, or what the client `catalog_credential` gets.
    """

    @property
    def warehouse(self) -> dict[str, str]:
        # The server knows warehouses by names; where its tables are to be is told for each (`location`).
        return _option("warehouse", self.settings.catalog_warehouse)

    def location(self, table: str) -> str:
        return f"{self.settings.warehouse_uri}/{self.settings.namespace}/{table}"

    def opened(self, storage: Mapping[str, str]) -> Catalog:
        from tailrace.lake.catalog.rest_client import Access, RestClient

        uri, tokens = self.settings.catalog_uri, self.settings.catalog_token_uri
        by = "CATALOG_CREDENTIAL" if self.settings.catalog_credential else "CATALOG_SECRET" if self._secret else None
        # pyiceberg would send "None" as the token where there is none.
        nobody: dict[str, Any] = {} if by else {"auth": {"type": "noop"}}
        access = Access(uri, tokens, f"{PREFIX}{by}" if by else None)
        return sure(RestClient(self.settings.catalog, access, uri=uri, **self._asking, **nobody, **storage))

    @property
    def spark(self) -> dict[str, str]:
        from tailrace.lake.catalog.rest_client import ANSWER, CONNECT

        limits = {"connection-timeout-ms": CONNECT, "socket-timeout-ms": ANSWER}
        within = {f"rest.client.{name}": str(1000 * seconds) for name, seconds in limits.items()}
        # Named by its class, as the other catalogs are: a session of a process that had another keeps that name else.
        by = {"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", "uri": self.settings.catalog_uri}
        return {**by, **self._asking, **within}

    @property
    def _asking(self) -> dict[str, str]:
        """The properties that say who asks, by the names that both clients have for them."""
        settings, client = self.settings, self.settings.catalog_credential
        return {
            **_option("token", self._secret),
            **_option("credential", None if client is None else client.get_secret_value()),
            **_option("oauth2-server-uri", settings.catalog_token_uri),
            **_option("scope", settings.catalog_scope),
            **_option("prefix", settings.catalog_prefix),
        }


def kind(settings: Settings) -> CatalogKind:
    """Return the kind of catalog that the settings name."""
    scheme = settings.catalog_uri.partition("://")[0]
    kinds = {"postgresql": Postgres, "glue": Glue, "http": Rest, "https": Rest}
    return kinds.get(scheme, Sqlite)(settings)


def opened(settings: Settings, *, makes: bool = False) -> Catalog:
    """Open the catalog that the settings name with pyiceberg; no commit that was made is reported as failed.

    With `makes` a lake that has no id yet gets one. Raises `PlaceError` where the lake was copied or moved.
    """
    remember_readers()
    there = kind(settings)
    check_place(settings, there.file if isinstance(there, Sqlite) else None, makes=makes)
    return there.opened(storage(settings)[0])


def storage(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties that tell pyiceberg, and those that tell Spark, where the files are."""
    warehouse = kind(settings).warehouse
    if not settings.on_s3:
        return warehouse, warehouse
    at, region = endpoint("s3"), os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    ours = {**_option("s3.endpoint", at), **_option("s3.region", region)}
    theirs = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **_option("s3.endpoint", at)}
    # A self-hosted server seldom has a host name for each bucket.
    theirs |= {"s3.path-style-access": "true"} if at else {}
    return warehouse | ours, warehouse | theirs | _option("client.region", region)


def endpoint(service: str) -> str | None:
    """Return the address that replaces AWS's own for a service, by the variables of AWS's tools; None if unset."""
    return os.environ.get(f"AWS_ENDPOINT_URL_{service.upper()}") or os.environ.get("AWS_ENDPOINT_URL")


def jars(settings: Settings) -> tuple[str, ...]:
    """List the groups of pinned jars that Spark needs for this lake."""
    return tuple(dict.fromkeys(("lake", *kind(settings).jars, *(("aws",) if settings.on_s3 else ()))))


def _option(name: str, value: str | None) -> dict[str, str]:
    return {name: value} if value else {}
