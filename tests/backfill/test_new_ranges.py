"""A range without answers is written in one pass: its panes to the ledger, and their answers beside them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tailrace import ACCUMULATING, DISCARDING, Mean
from tailrace.backfill.backfill import backfill, backfill_stages
from tailrace.engines.duckdb import follower, session
from tailrace.engines.duckdb.database import written_rows
from tailrace.engines.duckdb.database.connection import read_batches
from tailrace.engines.duckdb.database.written_rows import FileRows, write_parts
from tailrace.engines.duckdb.session import DuckSession
from tailrace.lake.catalog.data_files import ROWS_A_GROUP
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.read.file_bounds import bounds
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import Pipeline
from tests.backfill.test_chains import EVER, HOURLY, TWICE, Folds, folded, ride

RIDES_OF_DAYS = [
    ride(f"rider_{number % 7}", f"{1 + number % 3:02}T{number % 24:02}:{number % 60:02}", number)
    for number in range(400)
]


MEANS = {**HOURLY.what, "mean": Mean("cents")}


def unread(folder: Path, definition: Pipeline) -> Folds:
    """A lake whose log has records that no fold has read, of windows that are closed and have no answers."""
    world = folded(folder, definition, (None, []))
    world.land(RIDES_OF_DAYS, 0)
    return world


def backfilled(world: Folds, threads: int = 2) -> list[int]:
    lake = Lake(world.lake.settings.model_copy(update={"threads": threads}))
    return [run.changed for _, runs in backfill_stages(lake, world.pipeline, BEGINNING) for run in runs]


def panes(world: Folds) -> Counter[str]:
    """The panes in the ledgers, without the times and the generations of their runs."""
    found = Counter[str]()
    for stage in world.pipeline.stages:
        rows = world.lake.table(ledger_name(stage.name)).scan(row_filter="kind = 'pane'").to_arrow()
        found.update(str(row) for row in rows.drop_columns(["processing_time", "watermark", "generation"]).to_pylist())
    return found


@pytest.mark.parametrize(
    ("pipeline", "threads"),
    [
        pytest.param(replace(HOURLY, how=ACCUMULATING), 8, id="accumulating"),
        pytest.param(replace(HOURLY, what=MEANS, how=DISCARDING, key=()), 1, id="discarding_without_key"),
        pytest.param(EVER, 8, id="stages"),
    ],
)
def test_V4_a_range_without_answers_is_written_in_one_pass_as_a_comparison_would_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, threads: int
) -> None:
    monkeypatch.setattr(written_rows, "ROWS_A_FILE", 50)
    monkeypatch.setattr(follower, "ROWS_A_FILE", 20)
    compared, world = unread(tmp_path / "compared", pipeline), unread(tmp_path / "at_once", pipeline)
    with monkeypatch.context() as patched:
        patched.setattr(DuckSession, "new_panes", lambda *_: None)
        changed = backfilled(compared)
    merged = []
    monkeypatch.setattr(follower.ProcessFollower, "merge", lambda *_, **how: merged.append(how))
    assert backfilled(world, threads) == changed != [0]
    assert not merged, "the answers were written beside the panes"
    monkeypatch.undo()
    for stage in pipeline.stages:
        assert world.rows(stage) == compared.rows(stage), stage.name
    assert panes(world) == panes(compared)
    world.clean()
    assert not any(backfilled(world))


def test_V4_answers_written_beside_their_panes_are_merged_if_another_writer_was_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, world = unread(tmp_path / "compared", HOURLY), unread(tmp_path / "at_once", HOURLY)
    backfilled(compared)
    publish, published = Branch.publish, []

    def moved(branch: Branch) -> int:
        if branch.writer == "follow":
            published.append(branch.table)
            if len(published) == 1:
                raise MovedError("another writer was first")
        return publish(branch)

    monkeypatch.setattr(Branch, "publish", moved)
    backfilled(world)
    assert len(published) == 2
    assert world.rows(HOURLY) == compared.rows(HOURLY)
    world.clean()


def test_a_files_rows_are_whole_row_groups() -> None:
    assert written_rows.ROWS_A_FILE % ROWS_A_GROUP == 0


@pytest.mark.parametrize(("days_", "sorted_"), [(1, False), (3, True)])
def test_V4_a_maps_rows_of_one_day_are_written_as_they_come_and_rows_of_several_days_by_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days_: int, sorted_: bool
) -> None:
    monkeypatch.setattr(written_rows, "ROWS_A_FILE", 64)
    world = folded(tmp_path, TWICE, (None, []))
    records = [record for record in reversed(RIDES_OF_DAYS) if record["day"].day <= days_]
    world.land(records, 0)
    assert [run.changed for run in backfill(world.lake, TWICE, BEGINNING)] == [len(records)]
    table = world.lake.table(ledger_name(TWICE.name))
    files = [task.file for task in table.scan(row_filter="kind = 'production'").plan_files()]
    spans = sorted(bounds([file], table.schema().find_field("event_time")) or (0, 0) for file in files)
    apart = all(one[1] <= other[0] for one, other in pairwise(spans))
    assert len(files) > 1
    assert apart == sorted_
    world.clean()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Out of Memory Error: no block", duckdb.OutOfMemoryException),
        ("IO Error: no disk", duckdb.IOException),
        ("Conversion Error: no number", duckdb.Error),
    ],
)
def test_a_computation_that_fails_between_two_files_fails_as_duckdb_says(message: str, kind: type[Exception]) -> None:
    class Failing:
        def execute(self, text: str) -> Failing:
            return self

        def to_arrow_reader(self, rows: int) -> Failing:
            return self

        def read_next_batch(self) -> pa.RecordBatch:
            raise OSError(message)

    failing: Any = Failing()
    with pytest.raises(kind, match=message):
        list(read_batches(failing, "", 1))
    with duckdb.connect(config={"threads": 1}) as connection, pytest.raises(duckdb.Error, match="no number"):
        list(read_batches(connection, "SELECT IF(i > 90000, error('no number'), i) FROM range(100000) t(i)", 10_000))


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_query_that_is_interrupted_while_it_is_read_is_computed_before_it_is_read_unless_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    tried: list[object] = []

    def write(_: object, text: object, lake: object, table: str, times: object = None) -> list[Any]:
        tried.append(times)
        if times is not None:
            raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")
        return []

    monkeypatch.setattr(session, "write_rows", write)
    given: Any = None
    with duckdb.connect() as connection:
        one = DuckSession(given, given, connection)
        if cancelled:
            one.cancel()
            with pytest.raises(duckdb.InterruptException):
                one.files(given, "t", (1, 2))
        else:
            assert one.files(given, "t", (1, 2)) == []
    assert tried == [(1, 2), None][: 1 if cancelled else 2]


@pytest.mark.parametrize(("memory", "at_once"), [("16MB", 2), ("1GB", 4)])
def test_as_many_files_are_written_at_once_as_threads_and_memory_allow_and_in_their_order(
    memory: str, at_once: int
) -> None:
    rows = pa.table({"n": pa.array(range(120_000), pa.int64())})
    lock, now, most = threading.Lock(), [0], [0]

    def write_files(table: str, part: pa.Table) -> list[Any]:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.03 if part["n"][0].as_py() % 2 else 0.06)
        with lock:
            now[0] -= 1
        return [(table, part["n"][0].as_py())]

    lake: Any = SimpleNamespace(settings=SimpleNamespace(threads=4, memory=memory), write_files=write_files)
    parts = (FileRows("ab"[number % 2], rows.slice(number)) for number in range(12))
    files: Any = write_parts(lake, parts)
    assert files == {"a": [("a", n) for n in range(0, 12, 2)], "b": [("b", n) for n in range(1, 12, 2)]}
    assert most[0] == at_once
