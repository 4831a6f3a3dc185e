"""The catalogs that a lake may be in, and what each of its two readers, pyiceberg and Spark, has to be told of it.

A setting says which it is: SQLite in a file, PostgreSQL, AWS Glue, or one behind Iceberg's REST interface. All commit
by comparing and swapping where a table's metadata is, on which everything here rests.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast
from urllib.parse import quote, urlparse

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import CommitTableResponse
from pyiceberg.table.update import AddSnapshotUpdate

from tailrace.lake.catalog.manifests import remember_readers
from tailrace.lake.catalog.sqlite import LookedUp
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.update import TableUpdate

BUSY = 60
"""Seconds that a commit waits for another process's: SQLite's default gives up while a slow disk syncs."""

_JDBC = {
    "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
    # V1 is the layout that pyiceberg has too.
    "jdbc.schema-version": "V1",
}


@dataclass(frozen=True)
class Kind:
    """One kind of catalog. `jars` is the group of pinned jars that Spark needs for it, besides those of each lake."""

    jars: ClassVar[tuple[str, ...]] = ()

    settings: Settings

    @property
    def there(self) -> bool:
        """Whether the catalog is there, as far as that can be said without asking anybody."""
        return True

    @property
    def named(self) -> str:
        """The catalog as a message names it."""
        return self.settings.catalog_uri

    def opened(self, storage: Mapping[str, str]) -> Catalog:
        """It as pyiceberg has it, with `_committing`."""
        raise NotImplementedError

    @property
    def spark(self) -> dict[str, str]:
        """The properties of Spark's catalog."""
        raise NotImplementedError

    @property
    def _secret(self) -> str | None:
        secret = self.settings.catalog_secret
        return None if secret is None else secret.get_secret_value()


class Sqlite(Kind):
    """A file of this machine."""

    @property
    def file(self) -> Path:
        """The file: the one that is set, or `catalog.db` in the warehouse."""
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

            return _committing(SqlCatalog(self.settings.catalog, **properties))

        return cast("Catalog", LookedUp(self.settings.catalog, self.file, BUSY, properties, whole))

    @property
    def spark(self) -> dict[str, str]:
        return {**_JDBC, "uri": f"jdbc:sqlite:{self.file}?journal_mode=WAL&busy_timeout={BUSY * 1000}"}


class Postgres(Kind):
    """A database of PostgreSQL, `postgresql://USER@HOST:PORT/DATABASE`; the password is `catalog_secret`."""

    jars = ("postgres",)

    def opened(self, storage: Mapping[str, str]) -> Catalog:
        from pyiceberg.catalog.sql import SqlCatalog

        at = self._at
        secret = "" if self._secret is None else f":{quote(self._secret, safe='')}"
        uri = f"postgresql+psycopg2://{at.username}{secret}@{at.hostname}:{at.port or 5432}{at.path}"
        # One that has idled may have been cut off.
        return _committing(SqlCatalog(self.settings.catalog, uri=uri, pool_pre_ping="true", **storage))

    @property
    def spark(self) -> dict[str, str]:
        at = self._at
        told = {**_JDBC, "uri": f"jdbc:postgresql://{at.hostname}:{at.port or 5432}{at.path}"}
        told["jdbc.user"] = str(at.username)
        return told if self._secret is None else {**told, "jdbc.password": self._secret}

    @cached_property
    def _at(self) -> Any:
        return urlparse(self.settings.catalog_uri)


class Glue(Kind):
    """AWS Glue, `glue://ACCOUNT` or, of the account whose credentials are used, `glue://`."""

    jars = ("aws",)

    def opened(self, storage: Mapping[str, str]) -> Catalog:
        try:
            from pyiceberg.catalog.glue import GlueCatalog
        except ImportError:
            raise LakeError("boto3, which a catalog of Glue needs, is not installed: install tailrace[aws]") from None
        account = {"glue.id": self._account} if self._account else {}
        return _committing(
            GlueCatalog(self.settings.catalog, **account, **_given("glue.endpoint", endpoint("glue")), **storage)
        )

    @property
    def spark(self) -> dict[str, str]:
        told = {"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog"}
        told |= {"glue.id": self._account} if self._account else {}
        return told | _given("glue.endpoint", endpoint("glue"))

    @property
    def _account(self) -> str:
        return self.settings.catalog_uri.removeprefix("glue://")


class Rest(Kind):
    """A catalog behind Iceberg's REST interface, by its address; the setting `catalog_secret` is the token."""

    def opened(self, storage: Mapping[str, str]) -> Catalog:
        from pyiceberg.catalog.rest import RestCatalog

        return _committing(RestCatalog(self.settings.catalog, uri=self.settings.catalog_uri, **self._token, **storage))

    @property
    def spark(self) -> dict[str, str]:
        return {"type": "rest", "uri": self.settings.catalog_uri, **self._token}

    @property
    def _token(self) -> dict[str, str]:
        return {} if self._secret is None else {"token": self._secret}


def kind(settings: Settings) -> Kind:
    """The catalog that the settings name."""
    scheme = settings.catalog_uri.partition("://")[0]
    kinds = {"postgresql": Postgres, "glue": Glue, "http": Rest, "https": Rest}
    return kinds.get(scheme, Sqlite)(settings)


def opened(settings: Settings) -> Catalog:
    """The catalog that the settings name, as pyiceberg has it: none of its commits lands and is taken for failed.

    A commit whose reply is lost is sent again by the service's client, and is then refused as one that comes too late,
    by itself. pyiceberg would delete the files of what it takes for failed.
    """
    remember_readers()
    return kind(settings).opened(storage(settings)[0])


def _committing(catalog: Catalog) -> Catalog:
    """The catalog, which looks for what a commit made before it says that it failed."""

    def commit(table: Table, requirements: Any, updates: tuple[TableUpdate, ...]) -> CommitTableResponse:
        try:
            return type(catalog).commit_table(catalog, table, requirements, updates)
        except Exception:
            made = [one.snapshot.snapshot_id for one in updates if isinstance(one, AddSnapshotUpdate)]
            after = None
            # One that this commit was to make is perhaps not there.
            with suppress(NoSuchTableError):
                after = catalog.load_table(table.name()) if made else None
            if after is None or any(after.metadata.snapshot_by_id(one) is None for one in made):
                raise
            return CommitTableResponse(metadata=after.metadata, metadata_location=after.metadata_location)

    catalog.commit_table = commit  # type: ignore[method-assign]
    return catalog


def storage(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """What pyiceberg and Spark have to be told of where the files are."""
    warehouse = {"warehouse": settings.warehouse_uri}
    if not settings.on_s3:
        return warehouse, warehouse
    at, region = endpoint("s3"), os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    ours = {**_given("s3.endpoint", at), **_given("s3.region", region)}
    theirs = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **_given("s3.endpoint", at)}
    # A server of one's own seldom has a name for each bucket.
    theirs |= {"s3.path-style-access": "true"} if at else {}
    return warehouse | ours, warehouse | theirs | _given("client.region", region)


def endpoint(service: str) -> str | None:
    """Where a service of AWS is, if not at AWS: by the variables that its own tools go by."""
    return os.environ.get(f"AWS_ENDPOINT_URL_{service.upper()}") or os.environ.get("AWS_ENDPOINT_URL")


def jars(settings: Settings) -> tuple[str, ...]:
    """The groups of pinned jars that Spark needs for this lake."""
    return tuple(dict.fromkeys(("lake", *kind(settings).jars, *(("aws",) if settings.on_s3 else ()))))


def _given(name: str, value: str | None) -> dict[str, str]:
    return {name: value} if value else {}
