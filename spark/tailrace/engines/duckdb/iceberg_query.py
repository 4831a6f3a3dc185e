"""Run a user's query in DuckDB's own SQL. DuckDB's Iceberg extension reads the tables."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlparse

import duckdb
import pyarrow as pa
from pyiceberg.table import Table

from tailrace.engines.duckdb.allowed_sql import check, lock
from tailrace.engines.duckdb.database.connection import connect
from tailrace.lake.catalog.backends import endpoint
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.query_views import QueryError, extension, first_line, mentions, plan_reading, tables
from tailrace.lake.schema.lake_errors import LakeError


def by_duckdb(lake: Lake, query: str, epoch: int | None = None) -> pa.Table:
    """Run a query on DuckDB and return its rows. Tables are read as they are now, or as they were after `epoch`.

    The query can read no files other than the tables' files. Raises `QueryError` if DuckDB refuses the SQL or if the
    SQL does more than read. Raises `LakeError` if a DuckDB extension is missing.
    """
    there = tables(lake)
    views, snapshots = plan_reading(lake, query, epoch)
    check(query, [*there, *views])
    wanted = " ".join([query, *views.values()])
    with connect(lake.settings) as connection:
        connection.execute("SET preserve_insertion_order = true")
        for name in ("avro", "iceberg", *(("httpfs",) if lake.settings.on_s3 else ())):
            connection.execute(f"LOAD '{extension(name)}'")
        if lake.settings.on_s3:
            connection.execute(_access())
        files, folders = list[str](), list[str]()
        try:
            for table in (one for one in there if one not in views and mentions(one, wanted)):
                loaded, pin = lake.table(table), snapshots.get(table)
                place = loaded.metadata_location.replace("'", "''")
                then = "" if pin is None else f", snapshot_from_id = {pin}"
                connection.execute(f"CREATE VIEW {table} AS SELECT * FROM iceberg_scan('{place}'{then})")
                folders.append(loaded.location())
                files += _elsewhere(loaded, pin)
            for name, text in views.items():
                connection.execute(f"CREATE VIEW {name} AS {text}")
            lock(connection, files, folders)
            return connection.execute(query).to_arrow_table()
        except duckdb.Error as error:
            raise QueryError(first_line(str(error))) from None


def _elsewhere(table: Table, snapshot: int | None) -> Iterator[str]:
    """Yield the paths of a table's files that are outside the table's folder."""
    own = table.location().rstrip("/") + "/"
    for task in table.scan(snapshot_id=snapshot).plan_files():
        for file in (task.file, *task.delete_files):
            if not file.file_path.startswith(own):
                yield file.file_path


def _access() -> str:
    """Return the SQL statement that creates DuckDB's secret for S3.

    The secret contains the credentials and the endpoint from the AWS configuration. Raises `LakeError` if there are no
    credentials.
    """
    try:
        import boto3
    except ImportError:
        raise LakeError("boto3 is not installed: pip install 'tailrace[aws]', or leave --engine out") from None
    session = boto3.Session()
    credentials = session.get_credentials()
    if credentials is None:
        raise LakeError("there are no credentials for S3: set AWS_PROFILE, or log in, or leave --engine out")
    keys, at = credentials.get_frozen_credentials(), endpoint("s3")
    secret = {"KEY_ID": keys.access_key, "SECRET": keys.secret_key, "SESSION_TOKEN": keys.token}
    secret |= {"REGION": session.region_name}
    if at is not None:
        place = urlparse(at)
        secret |= {"ENDPOINT": place.netloc, "URL_STYLE": "path", "USE_SSL": str(place.scheme == "https").lower()}
    words = (f"{name} '{value.replace(chr(39), chr(39) * 2)}'" for name, value in secret.items() if value)
    return f"CREATE SECRET lake (TYPE s3, {', '.join(words)})"
