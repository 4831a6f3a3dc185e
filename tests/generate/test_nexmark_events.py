"""What the Nexmark benchmark is run on and held against; what needs no Spark."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.data import BEGIN, VIEWS_A_FILE, Views
from benchmarks.nexmark import cases
from benchmarks.nexmark.answers import Events
from benchmarks.nexmark.events import RATE, SCHEMA, events, told_by
from benchmarks.nexmark.handwritten import BY
from benchmarks.nexmark.queries import COLUMNS
from tailrace.generate.nexmark import MOST_BEHIND


@pytest.fixture(scope="module")
def two_files(tmp_path_factory: pytest.TempPathFactory) -> Views:
    return events(tmp_path_factory.mktemp("events"), 2 * VIEWS_A_FILE)


def test_files_hold_ten_seconds_each_in_the_order_in_which_events_become_known(two_files: Views) -> None:
    files = sorted(two_files.folder.iterdir(), key=lambda file: file.stat().st_mtime)
    assert [file.name for file in files] == ["00000.parquet", "00001.parquet"]
    tables = [pq.read_table(file) for file in files]
    assert all(table.schema.equals(SCHEMA) and table.num_rows == VIEWS_A_FILE for table in tables)
    at = pa.concat_tables(tables)["date_time"].cast(pa.int64())
    behind = pc.max(pc.subtract(pc.cumulative_max(at), at)).as_py()
    assert 0.9 * MOST_BEHIND < behind <= MOST_BEHIND
    last = pc.max(tables[1]["date_time"]).as_py() - BEGIN
    assert abs(last / timedelta(seconds=2 * VIEWS_A_FILE / RATE) - 1) < 0.2


def test_a_smaller_set_of_events_is_the_beginning_of_a_larger_one(two_files: Views) -> None:
    one = events(two_files.folder.parent, VIEWS_A_FILE)
    assert [file.name for file in one.folder.iterdir()] == ["00000.parquet"]
    assert pq.read_table(one.folder).equals(pq.read_table(two_files.folder / "00000.parquet"))
    with pytest.raises(ValueError, match="multiple of 50000"):
        events(two_files.folder.parent, 7)


def test_answers_of_a_file_are_held_against_plain_sql(two_files: Views, tmp_path: Path) -> None:
    with Events(two_files.folder) as truth:
        rows = [dict(zip(("bidder", "bids", "starttime", "endtime"), row, strict=True)) for row in truth.answer("q11")]
        right = [row | {"ends": row["endtime"]} for row in rows]
        pq.write_table(pa.Table.from_pylist(right), tmp_path / "right.parquet")
        assert truth.differing("q11", tmp_path / "right.parquet", None) == []
        one = right[0]
        wrong = [one | {"bids": one["bids"] + 1}, *right[1:], right[1]]
        pq.write_table(pa.Table.from_pylist(wrong), tmp_path / "wrong.parquet")
        found = truth.differing("q11", tmp_path / "wrong.parquet", None)
        assert sorted(line.partition(":")[0] for line in found) == ["missing", "not expected", "not expected"]
        # What ends later may not have been told yet.
        assert truth.differing("q11", tmp_path / "wrong.parquet", BEGIN) == []


def test_what_is_told_by_a_stream_ends_well_before_its_events_do() -> None:
    assert BEGIN < told_by(10 * VIEWS_A_FILE) < BEGIN + timedelta(seconds=8 * VIEWS_A_FILE / RATE)


def test_each_query_that_is_measured_is_written_by_hand_for_the_same_columns() -> None:
    assert list(BY) == list(cases.QUERIES)
    for name, by in BY.items():
        columns = [column.split()[0] for column in by.columns.split(", ")]
        theirs = [column.partition("=")[0] for column in COLUMNS[name]]
        assert columns == theirs + ["ends"] * (name in cases.WINDOWED)
