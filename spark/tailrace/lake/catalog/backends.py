"""Define the supported kinds of catalog, and the properties with which pyiceberg and Spark open a catalog.

The setting `catalog_uri` selects the kind: SQLite in a file, PostgreSQL, AWS Glue, or Iceberg's REST interface. In
every kind, a commit is a compare-and-swap of the location of the table's metadata file. All commits rely on this
operation for their safety.
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
from tailrace.lake.catalog.sqlite import SqliteLookups
from tailrace.lake.catalog.sure_commits import make_commits_sure
from tailrace.lake.metadata.lake_place import check_place
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.settings import PREFIX, Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.catalog.sql import SqlCatalog

BUSY = 60
"""The maximum time in seconds that a commit to an SQLite catalog waits for another process's commit.

SQLite's default timeout is too short for a slow disk.
"""

_JDBC = {
    "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
    # Spark must use version V1 of the schema of the catalog's database, because pyiceberg creates the database with
    # this version.
    "jdbc.schema-version": "V1",
}


@dataclass(frozen=True)
class CatalogKind:
    """A kind of catalog.

    `jars` names the groups of pinned jars that Spark needs in addition to the jars that every lake needs.
    """

    jars: ClassVar[tuple[str, ...]] = ()

    settings: Settings

    @property
    def exists(self) -> bool:
        """Whether the catalog exists.

        For a catalog in a remote service, the value is always True, because only a request could show whether it
        exists.
        """
        return True

    @property
    def label(self) -> str:
        """The catalog's name in messages."""
        return self.settings.catalog_uri

    def open(self, storage: Mapping[str, str]) -> Catalog:
        """Open the catalog with pyiceberg.

        Before the opened catalog reports that a commit failed, the catalog checks whether the commit succeeded
        (`make_commits_sure`).
        """
        raise NotImplementedError

    @property
    def warehouse(self) -> dict[str, str]:
        """The property that tells the catalog where the files of its tables are stored."""
        return {"warehouse": self.settings.warehouse_uri}

    def location(self, table: str) -> str | None:
        """Return the location for a new table's files, or None if the catalog chooses a location inside the
        warehouse.
        """
        return None

    @property
    def spark(self) -> dict[str, str]:
        """The properties with which Spark opens the catalog."""
        raise NotImplementedError

    @property
    def _secret(self) -> str | None:
        secret = self.settings.catalog_secret
        return None if secret is None else secret.get_secret_value()


class Sqlite(CatalogKind):
    """A catalog in an SQLite file on this machine."""

    @property
    def file(self) -> Path:
        """The path of the catalog's file: the configured file, or `catalog.db` in the warehouse."""
        uri = self.settings.catalog_uri
        return Path(uri.removeprefix("sqlite:///")) if uri else Path(self.settings.warehouse) / "catalog.db"

    @property
    def exists(self) -> bool:
        return self.file.is_file()

    @property
    def label(self) -> str:
        return str(self.file)

    def open(self, storage: Mapping[str, str]) -> Catalog:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        properties = {"uri": f"sqlite:///{self.file}?timeout={BUSY}", **storage}

        def whole() -> Catalog:
            return make_commits_sure(sql_catalog("sqlite")(self.settings.catalog, **properties))

        return cast("Catalog", SqliteLookups(self.settings.catalog, self.file, BUSY, properties, whole))

    @property
    def spark(self) -> dict[str, str]:
        return {**_JDBC, "uri": f"jdbc:sqlite:{self.file}?journal_mode=WAL&busy_timeout={BUSY * 1000}"}


class Postgres(CatalogKind):
    """A catalog in PostgreSQL at the address `postgresql://USER@HOST:PORT/DATABASE`.

    The password is the setting `catalog_secret`.
    """

    jars = ("postgres",)

    def open(self, storage: Mapping[str, str]) -> Catalog:
        at = self._at
        secret = "" if self._secret is None else f":{quote(self._secret, safe='')}"
        uri = f"postgresql+psycopg2://{at.username}{secret}@{at.hostname}:{at.port or 5432}{at.path}"
        # `pool_pre_ping` replaces connections that were cut off while idle.
        return make_commits_sure(
            sql_catalog("postgres")(self.settings.catalog, uri=uri, pool_pre_ping="true", **storage)
        )

    @property
    def spark(self) -> dict[str, str]:
        at = self._at
        uri = f"jdbc:postgresql://{at.hostname}:{at.port or 5432}{at.path}"
        return {**_JDBC, "uri": uri, "jdbc.user": str(at.username), **_option("jdbc.password", self._secret)}

    @cached_property
    def _at(self) -> Any:
        return urlparse(self.settings.catalog_uri)


def sql_catalog(extra: str) -> type[SqlCatalog]:
    """Import pyiceberg's catalog in a database.

    Raises `LakeError`, which names the extra to install, if SQLAlchemy is not installed, or in a version before 2, as
    in the environments of some Airflows.
    """
    try:
        from pyiceberg.catalog.sql import SqlCatalog
    except ImportError:
        raise LakeError(
            f"SQLAlchemy 2, with which the catalog is changed, is not installed: pip install 'tailrace[{extra}]', in "
            "an environment of its own if another package here needs an older SQLAlchemy"
        ) from None
    return SqlCatalog


class Glue(CatalogKind):
    """A catalog in AWS Glue: `glue://ACCOUNT`, or `glue://` for the account whose credentials are used."""

    jars = ("aws",)

    def open(self, storage: Mapping[str, str]) -> Catalog:
        try:
            from pyiceberg.catalog.glue import GlueCatalog
        except ImportError:
            raise LakeError("boto3, which Glue needs, is not installed: pip install 'tailrace[aws]'") from None
        return make_commits_sure(GlueCatalog(self.settings.catalog, **self._options, **storage))

    @property
    def spark(self) -> dict[str, str]:
        return {"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog", **self._options}

    @property
    def _options(self) -> dict[str, str]:
        account = self.settings.catalog_uri.removeprefix("glue://")
        return _option("glue.id", account) | _option("glue.endpoint", endpoint("glue"))


class Rest(CatalogKind):
    """A catalog that is accessed through Iceberg's REST interface, at the address in `catalog_uri`.

    The access token is the setting `catalog_secret`, or is requested with the client credentials in
    `catalog_credential`.
    """

    @property
    def warehouse(self) -> dict[str, str]:
        # A REST server identifies a warehouse by its name. The location of each table is passed to the server when the
        # table is created (`location`).
        return _option("warehouse", self.settings.catalog_warehouse)

    def location(self, table: str) -> str:
        return f"{self.settings.warehouse_uri}/{self.settings.namespace}/{table}"

    def open(self, storage: Mapping[str, str]) -> Catalog:
        from tailrace.lake.catalog.rest_client import Access, RestClient

        uri, tokens = self.settings.catalog_uri, self.settings.catalog_token_uri
        by = "CATALOG_CREDENTIAL" if self.settings.catalog_credential else "CATALOG_SECRET" if self._secret else None
        # Without the authentication type "noop", pyiceberg would send the text "None" as the token.
        nobody: dict[str, Any] = {} if by else {"auth": {"type": "noop"}}
        access = Access(uri, tokens, f"{PREFIX}{by}" if by else None)
        return make_commits_sure(
            RestClient(self.settings.catalog, access, uri=uri, **self._asking, **nobody, **storage)
        )

    @property
    def spark(self) -> dict[str, str]:
        from tailrace.lake.catalog.rest_client import ANSWER, CONNECT

        limits = {"connection-timeout-ms": CONNECT, "socket-timeout-ms": ANSWER}
        within = {f"rest.client.{name}": str(1000 * seconds) for name, seconds in limits.items()}
        # For every kind of catalog, Spark's properties name the catalog's Java class (`catalog-impl`). Without this
        # property, a process that has already used another kind of catalog would use the Java class of that kind again.
        by = {"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", "uri": self.settings.catalog_uri}
        return {**by, **self._asking, **within}

    @property
    def _asking(self) -> dict[str, str]:
        """The properties that authenticate the client, under names that both pyiceberg and Spark accept."""
        settings, client = self.settings, self.settings.catalog_credential
        return {
            **_option("token", self._secret),
            **_option("credential", None if client is None else client.get_secret_value()),
            **_option("oauth2-server-uri", settings.catalog_token_uri),
            **_option("scope", settings.catalog_scope),
            **_option("prefix", settings.catalog_prefix),
        }


def catalog_kind(settings: Settings) -> CatalogKind:
    """Return the kind of catalog that the setting `catalog_uri` selects."""
    scheme = settings.catalog_uri.partition("://")[0]
    kinds = {"postgresql": Postgres, "glue": Glue, "http": Rest, "https": Rest}
    return kinds.get(scheme, Sqlite)(settings)


def open_catalog(settings: Settings, *, makes: bool = False) -> Catalog:
    """Open the configured catalog with pyiceberg.

    Before the opened catalog reports that a commit failed, the catalog checks whether the commit succeeded. If `makes`
    is set, a lake without an id is given a new id. Raises `PlaceError` if the lake was copied or moved.
    """
    remember_readers()
    there = catalog_kind(settings)
    check_place(settings, there.file if isinstance(there, Sqlite) else None, makes=makes)
    return there.open(storage_properties(settings)[0])


def storage_properties(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties for accessing stored files as a pair: pyiceberg's properties, and Spark's properties."""
    warehouse = catalog_kind(settings).warehouse
    if not settings.on_s3:
        return warehouse, warehouse
    at, region = endpoint("s3"), os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    ours = {**_option("s3.endpoint", at), **_option("s3.region", region)}
    theirs = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **_option("s3.endpoint", at)}
    # A self-hosted S3 server seldom has a separate host name for each bucket, so the bucket's name is put into the
    # path.
    theirs |= {"s3.path-style-access": "true"} if at else {}
    return warehouse | ours, warehouse | theirs | _option("client.region", region)


def endpoint(service: str) -> str | None:
    """Return the address of an AWS-compatible service from the environment variables that AWS's tools also read.

    Returns None if these environment variables are not set; the client then uses AWS's default address.
    """
    return os.environ.get(f"AWS_ENDPOINT_URL_{service.upper()}") or os.environ.get("AWS_ENDPOINT_URL")


def jar_groups(settings: Settings) -> tuple[str, ...]:
    """List the groups of pinned jars that Spark needs for this lake."""
    return tuple(dict.fromkeys(("lake", *catalog_kind(settings).jars, *(("aws",) if settings.on_s3 else ()))))


def _option(name: str, value: str | None) -> dict[str, str]:
    return {name: value} if value else {}
