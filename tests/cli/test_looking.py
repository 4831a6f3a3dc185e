"""What a look at a lake is answered by: the catalog's file itself, and readers of manifests that are remembered."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from pyiceberg.avro import file as avro
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tailrace.lake.catalog import manifests
from tailrace.lake.catalog.backends import Sqlite
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.sqlite import SqliteLookups
from tailrace.settings import Settings
from tests.support.lakes import small_lake

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")


@pytest.fixture
def made(settings: Settings) -> Lake:
    return small_lake.make(settings)


def own_catalog(settings: Settings) -> SqlCatalog:
    """pyiceberg's own."""
    file, warehouse = Sqlite(settings).file, settings.warehouse_uri
    return SqlCatalog(settings.catalog, uri=f"sqlite:///{file}", warehouse=warehouse)


def no_other() -> Any:
    raise AssertionError("a look opened the whole catalog")


def alone(settings: Settings) -> SqliteLookups:
    """A catalog that only looks."""
    return SqliteLookups(settings.catalog, Sqlite(settings).file, 1, {"warehouse": settings.warehouse_uri}, no_other)


def as_a_view(settings: Settings, table: str) -> None:
    with closing(sqlite3.connect(Sqlite(settings).file)) as connection, connection:
        connection.execute("UPDATE iceberg_tables SET iceberg_type = 'VIEW' WHERE table_name = ?", (table,))


def test_a_look_gives_what_the_whole_catalog_does_and_does_not_open_it(made: Lake) -> None:
    looked, whole, space = alone(made.settings), own_catalog(made.settings), made.settings.namespace
    as_a_view(made.settings, "rides__rejected")
    assert sorted(looked.list_tables(space)) == sorted(whole.list_tables(space)) != []
    assert looked.namespace_exists(space)
    there = ("rides", "hourly_rides__ledger")
    for name in (*there, "rides__rejected", "none"):
        assert looked.table_exists((space, name)) == whole.table_exists((space, name)) == (name in there)
    one, two = looked.load_table((space, "hourly_rides__ledger")), whole.load_table((space, "hourly_rides__ledger"))
    assert (one.name(), one.metadata, one.metadata_location) == (two.name(), two.metadata, two.metadata_location)
    assert one.scan().to_arrow() == two.scan().to_arrow()
    assert looked.load_table(one.name()).metadata == looked.load_table(f"{space}.hourly_rides__ledger").metadata
    for name in ("none", "rides__rejected"):
        with pytest.raises(NoSuchTableError):
            looked.load_table((space, name))


def test_a_look_sees_what_another_catalog_has_committed(made: Lake) -> None:
    space = made.settings.namespace
    looked, whole = alone(made.settings), own_catalog(made.settings)
    table = whole.load_table((space, "rides"))
    before = looked.load_table((space, "rides"))
    table.append(table.scan().to_arrow())
    assert before.refresh().current_snapshot() == table.current_snapshot()
    assert looked.load_table((space, "rides")).scan().count() == 4


def test_a_catalog_of_an_older_layout_is_left_to_the_whole_one(made: Lake) -> None:
    names = made.tables
    with closing(sqlite3.connect(Sqlite(made.settings).file)) as connection, connection:
        connection.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    later = Lake(made.settings)
    assert later.tables == names
    assert later.table("rides").scan().count() == 2
    assert later.find("none") is None


def test_a_file_that_is_not_there_is_not_made_by_a_look(settings: Settings) -> None:
    looked = SqliteLookups(settings.catalog, Sqlite(settings).file, 1, {}, lambda: own_catalog(settings))
    assert looked._rows("SELECT 1") is None
    assert not Sqlite(settings).file.exists()


def planned(table: Table) -> list[tuple[Any, ...]]:
    """The files of a table, with all that its manifests say of them."""
    files = [task.file for task in table.scan().plan_files()]
    stats = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    own = ("file_path", "file_size_in_bytes", "record_count", "partition", "spec_id", "content", "file_format")
    told = [
        (*(getattr(one, name) for name in own), *(dict(getattr(one, name) or {}) for name in stats)) for one in files
    ]
    return sorted(told, key=lambda one: str(one[0]))


def test_a_table_of_many_manifests_is_planned_alike_with_its_schemas_resolved_once(
    made: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made.table("rides")
    rows = table.scan().to_arrow()
    for _ in range(5):
        table.append(rows)
    calls = Counter[str]()
    for name in ("resolve_reader", "construct_reader"):
        own = getattr(avro, name)
        # As it is without: pyiceberg's own, which a remembering one holds.
        plain = getattr(own, "__wrapped__", own)
        monkeypatch.setattr(avro, name, plain)
    monkeypatch.setattr(avro.AvroFileHeader, "get_schema", manifests._parsed_anew)
    then = planned(table)
    resolve = vars(avro)["resolve_reader"]

    def counted(*given: Any) -> Any:
        calls["resolve"] += 1
        return resolve(*given)

    monkeypatch.setattr(avro, "resolve_reader", counted)
    manifests._parsed.cache_clear()
    manifests.remember_readers()
    assert planned(table) == then
    assert len(then) == 6
    # The schemas of the list of manifests and of the manifests; threads that begin together may each resolve these.
    once = calls["resolve"]
    assert 2 <= once <= 7
    manifests.remember_readers()
    assert planned(table) == then
    assert calls["resolve"] == once
