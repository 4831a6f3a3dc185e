"""A lake that was copied or moved is told, and made one of its own; the first one stays as it is, byte for byte."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.lake.catalog.lake import MAIN, Lake
from tailrace.lake.change.relocation import RelocationError, relocate
from tailrace.lake.metadata.avro_values import AvroFile
from tailrace.lake.metadata.lake_place import NOTE, LakeNote, PlaceError, rows_of
from tailrace.lake.metadata.moved_files import Renaming
from tailrace.settings import PREFIX, Settings
from tests.support.engines.sessions import session
from tests.support.lakes.small_lake import HOURLY, RIDES, make
from tests.support.services.catalogs import Servers

DEFINITION = "tests/support/lakes/small_lake.py:HOURLY"


@pytest.fixture
def first(settings: Settings) -> Settings:
    """A lake with rows in each table, with commits and a branch beside main."""
    make(settings)
    lake = Lake(settings)
    for number in range(3):
        lake.mark(RIDES.name, {"epoch": str(number)}, lake.head(RIDES.name).snapshot)
    lake.move(RIDES.name, "stream_1", lake.refs(RIDES.name)[MAIN], None)
    return settings


def at(settings: Settings, folder: Path) -> Settings:
    return settings.model_copy(update={"warehouse": folder})


def copy(settings: Settings, name: str = "copy") -> Settings:
    folder = Path(settings.warehouse).with_name(name)
    shutil.copytree(settings.warehouse, folder, symlinks=True)
    return at(settings, folder)


def moved(settings: Settings, name: str = "moved") -> Settings:
    folder = Path(settings.warehouse).with_name(name)
    Path(settings.warehouse).rename(folder)
    return at(settings, folder)


def contents(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table, by its name."""
    lake = Lake(settings)
    return {name: sorted(lake.rows(name)[1], key=repr) for name in lake.tables}


def digests(folder: Path) -> dict[str, str]:
    """The sum of each file of a folder but those of SQLite, which a reader touches."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("catalog.db")
    }


def named(settings: Settings) -> Iterator[str]:
    """Every text that the catalog, and each file that is reachable from it, has of the tables' files."""
    for _, _, metadata in rows_of(Path(settings.warehouse) / "catalog.db"):
        yield metadata
    lake = Lake(settings)
    for name in lake.tables:
        table = lake.table(name)
        yield Path(table.metadata_location.removeprefix("file://")).read_text()
        for snapshot in table.metadata.snapshots:
            yield snapshot.manifest_list
            for manifest in snapshot.manifests(table.io):
                yield manifest.manifest_path
                for file in (snapshot.manifest_list, manifest.manifest_path):
                    yield repr(AvroFile.read(Path(file.removeprefix("file://")).read_bytes()).records)


def test_X1_a_copy_is_opened_by_nobody_until_it_is_a_lake_of_its_own(first: Settings) -> None:
    held, second = contents(first), copy(first)
    before = digests(Path(first.warehouse))
    for looks in (False, True):
        with pytest.raises(PlaceError, match="is a copy of the one in"):
            _ = Lake(second, looks=looks).catalog
    done = relocate(second)
    assert done.copied
    assert done.tables == len(held)
    assert contents(second) == held
    assert not [one for one in named(second) if str(first.warehouse) + "/" in one]
    lake = Lake(second)
    lake.mark(RIDES.name, {"epoch": "9"}, lake.head(RIDES.name).snapshot)
    lake.forget(RIDES.name, [one.snapshot_id for one in lake.table(RIDES.name).metadata.snapshots])
    lake.drop(HOURLY.name)
    assert digests(Path(first.warehouse)) == before
    assert contents(first) == held
    ids = {LakeNote.read(Path(one.warehouse)) for one in (first, second)}
    assert len({one.id for one in ids if one}) == 2
    assert not relocate(second).relocated
    assert not relocate(first).relocated


def test_X1_a_lake_that_was_moved_says_so_and_is_mended_by_the_same_command(first: Settings) -> None:
    held, here = contents(first), moved(first)
    with pytest.raises(PlaceError, match="tables still name their files there: have them"):
        _ = Lake(here).catalog
    assert not relocate(here).copied
    assert contents(here) == held
    # A lake that is at its old place by then is another one.
    make(first)
    assert contents(here) == held


@pytest.mark.parametrize("way", [copy, moved])
def test_X1_a_lake_of_before_there_were_ids_is_told_by_its_tables(way: Any, first: Settings) -> None:
    held = contents(first)
    (Path(first.warehouse) / NOTE).unlink()
    here = way(first)
    with pytest.raises(PlaceError):
        _ = Lake(here, looks=True).catalog
    assert relocate(here).tables == len(held)
    assert contents(here) == held


def test_X1_a_copy_of_a_copy_and_one_inside_the_first_are_lakes_of_their_own(first: Settings) -> None:
    held = contents(first)
    second = copy(first)
    relocate(second)
    third = copy(second, "third")
    with pytest.raises(PlaceError, match=r"copy of the one in .*copy,"):
        _ = Lake(third).catalog
    relocate(third)
    inner = Path(first.warehouse) / "backup"
    shutil.copytree(third.warehouse, inner)
    relocate(at(first, inner))
    outer = at(first, Path(first.warehouse).parent)
    for path in inner.iterdir():
        shutil.move(path, outer.warehouse)
    assert relocate(outer).tables == len(held)
    for one in (first, second, third, outer):
        assert contents(one) == held


@contextmanager
def cwd(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def test_X1_one_place_has_many_names(first: Settings, tmp_path: Path) -> None:
    real = Path(first.warehouse)
    link = tmp_path / "link"
    link.symlink_to(real)
    (tmp_path / "up").mkdir()
    names = [
        f"{real}/",
        f"{real.parent}/./{real.name}",
        f"/{real}",
        f"file:{real}",
        f"file://{real}",
        str(link),
        "lake",
    ]
    held = contents(first)
    with cwd(tmp_path):
        for name in [*names, "lake", "up/../lake", "./lake/"]:
            one = Settings(warehouse=name, contracts=first.contracts)
            assert contents(one) == held, name
            assert not relocate(one).relocated
    # Made by a link, whose target is moved: its tables name the link.
    made = Settings(warehouse=tmp_path / "by_link", contracts=first.contracts)
    (tmp_path / "target").mkdir()
    Path(made.warehouse).symlink_to(tmp_path / "target")
    make(made)
    for path in (tmp_path / "target", Path(made.warehouse)):
        assert contents(at(made, path))
    (tmp_path / "target").rename(tmp_path / "away")
    away = at(made, tmp_path / "away")
    with pytest.raises(PlaceError):
        _ = Lake(away).catalog
    relocate(away)
    assert len(contents(away)) == len(held)


def test_X2_a_relocation_that_dies_anywhere_is_run_again(first: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    held, before = contents(first), digests(Path(first.warehouse))
    write, note, left = Renaming._write, LakeNote.write, [0]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    def dying(self: Renaming, to: str, data: bytes) -> str:
        count()
        return write(self, to, data)

    def noted(self: LakeNote, folder: Path, *, anew: bool = False) -> None:
        count()
        note(self, folder, anew=anew)

    monkeypatch.setattr(Renaming, "_write", dying)
    monkeypatch.setattr(LakeNote, "write", noted)
    died = 0
    for step in (1, 2, 5, 9, 14, 20, 10**6):
        second = copy(first, f"copy{step}")
        left[0] = step
        files = None
        try:
            files = relocate(second).files
        except KeyboardInterrupt:
            died += 1
            with pytest.raises(PlaceError):
                _ = Lake(second).catalog
            left[0] = 0
            relocate(second)
        assert contents(second) == held
        assert digests(Path(first.warehouse)) == before
    assert died >= 4
    assert files is not None
    # The last file is the note: by then the catalog names the new metadata.
    second = copy(first, "last")
    left[0] = files + 1
    with pytest.raises(KeyboardInterrupt):
        relocate(second)
    left[0] = 0
    assert relocate(second).tables == 0
    assert contents(second) == held


def test_X1_a_copy_that_lacks_a_file_says_which(first: Settings) -> None:
    second = copy(first)
    path = next(one for one in Path(second.warehouse).rglob("snap-*.avro"))
    path.unlink()
    with pytest.raises(PlaceError, match=path.name):
        relocate(second)


@pytest.mark.parametrize("catalog", ["beside", "postgres"])
def test_X1_a_catalog_of_both_is_not_taken_from_the_first(catalog: str, settings: Settings, tmp_path: Path) -> None:
    with Servers(tmp_path / "servers") as servers:
        told = settings.model_copy(update={"catalog_uri": f"sqlite:///{tmp_path}/apart.db"})
        if catalog == "postgres":
            told, _ = servers.lake("postgres", settings)
        make(told)
        held, second = contents(told), copy(told)
        with pytest.raises(PlaceError):
            _ = Lake(second).catalog
        with pytest.raises(RelocationError, match="copy the catalog as well"):
            relocate(second)
        assert contents(told) == held
        shutil.rmtree(second.warehouse)
        here = moved(told)
        relocate(here)
        assert contents(here) == held


COMMANDS = [
    ["status", DEFINITION], ["late", DEFINITION], ["panes", DEFINITION, "--key", "Oslo"], ["audit", DEFINITION],
    ["replay", DEFINITION], ["maintain", DEFINITION, "--dry-run"], ["maintain", DEFINITION],
    ["backfill", DEFINITION, "--from", "2026-01-01", "--to", "2026-01-02"], ["watermark", DEFINITION],
    ["sql", "select 1 from hourly_rides", "--engine", "duckdb"], ["tables", "plan", DEFINITION], ["plan", DEFINITION],
    ["restore", DEFINITION, "--epoch", "0"], ["trace", DEFINITION, "--where", "city = 'Oslo'"],
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words[:1]))
@pytest.mark.parametrize("way", [copy, moved])
def test_X1_every_command_says_that_a_lake_was_copied_or_moved(
    way: Any, words: list[str], first: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = way(first)
    monkeypatch.setenv(f"{PREFIX}WAREHOUSE", str(here.warehouse))
    result = CliRunner().invoke(app, words)
    assert "tailrace relocate" in result.output, result.output
    assert "unexpected" not in result.output
    assert result.exit_code == 3


def test_X1_the_command_relocates_and_says_what_it_did(first: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    second = copy(first)
    monkeypatch.setenv(f"{PREFIX}WAREHOUSE", str(second.warehouse))
    told = json.loads(CliRunner().invoke(app, ["relocate", "--json"]).stdout)
    assert told["relocated"]
    assert told["before"] == str(first.warehouse)
    assert "nothing to do" in CliRunner().invoke(app, ["relocate"]).output


@pytest.mark.slow
def test_X1_a_copy_with_sparks_deletes_is_read_by_either_engine(spark: SparkSession, first: Settings) -> None:
    table = f"{Lake(first).spark_name(HOURLY.name)}"
    spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES "
        "('write.delete.mode'='merge-on-read', 'write.parquet.compression-codec'='zstd')"
    )
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table}").collect()
    some = spark.sql(f"SELECT city FROM {table} LIMIT 1").collect()[0][0]
    spark.sql(f"DELETE FROM {table} WHERE city = '{some}' AND pane_index = 0").collect()
    loaded = Lake(first).table(HOURLY.name)
    assert any(task.delete_files for task in loaded.scan().plan_files())
    held = contents(first)
    second = copy(first)
    relocate(second)
    shutil.rmtree(first.warehouse)
    assert contents(second) == held
    other = session(second)
    rows = other.sql(f"SELECT * FROM {table}").toArrow().to_pylist()
    assert sorted((row["city"], row["epoch"]) for row in rows) == sorted(
        (row["city"], row["epoch"]) for row in held[HOURLY.name]
    )
    assert len(rows) == len(held[HOURLY.name])
    other.sql(
        f"CALL lake.system.rewrite_data_files(table => 'main.{HOURLY.name}', options => MAP('rewrite-all','true'))"
    )
    assert contents(second) == held


def test_an_avro_file_is_written_as_it_was_read(first: Settings) -> None:
    files = [*Path(first.warehouse).rglob("*.avro")]
    assert files
    for path in files:
        file = AvroFile.read(path.read_bytes())
        again = AvroFile.read(file.with_records(list(file.records)))
        assert again == file


def test_values_of_any_type_are_kept_as_they_are_stored() -> None:
    """Dates and instants beyond Python's, and decimals of 38 digits, are in partitions and come out again."""
    fields: list[tuple[str, Any, list[Any]]] = [
        ("day", {"type": "int", "logicalType": "date"}, [3_000_000, -(2**31)]),
        ("at", {"type": "long", "logicalType": "timestamp-micros"}, [2**62, -(2**62)]),
        ("cents", {"type": "fixed", "name": "c", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 2},
         [b"\x4b" + bytes(15), b"\xff" * 16]),
        ("share", "double", [math.inf, -0.0]),
        ("maybe", ["null", "string"], [None, "é"]),
    ]  # fmt: skip
    columns = [{"name": name, "type": of, "field-id": 7} for name, of, _ in fields]
    schema = {"type": "record", "name": "r", "fields": columns}
    records = [{name: values[row] for name, _, values in fields} for row in range(2)]
    for codec in ("null", "deflate"):
        made = BytesIO()
        fastavro.writer(made, schema, [], codec=codec, metadata={"format-version": "2"})
        file = AvroFile.read(AvroFile.read(made.getvalue()).with_records(records))
        assert list(file.records) == records
        assert file.header == made.getvalue()
