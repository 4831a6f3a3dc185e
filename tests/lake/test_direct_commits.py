"""Commits that this process writes itself: whole, conditional, and with every value as it was (rules X1 and X2)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.scans import scan_table
from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.sqlite import changing_catalog
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.lease import Lease
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.contracts import Column, Contract
from tailrace.lake.schema.lake_errors import FencedError, MovedError
from tailrace.model.samples import examples
from tailrace.settings import Settings

COLUMNS = {
    "kind": Column("string", "", required=True),
    "n": Column("bigint", ""),
    "pairs": Column("array<struct<a:bigint>>", ""),
}
THINGS = Contract("things", "what is written here", COLUMNS, partition_by=("kind",))


@pytest.fixture
def lake(settings: Settings) -> Lake:
    made = Lake(settings)
    made.ensure(THINGS, {"epoch": "-1"})
    return made


def rows(lake: Lake, *values: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(values), schema=lake.table("things").schema().as_arrow())


def held(lake: Lake, branch: Branch, epoch: int, *values: dict[str, Any]) -> None:
    branch.hold(FileChange(tuple(lake.write_files("things", rows(lake, *values)))), {"epoch": str(epoch)})


def read(lake: Lake) -> list[int]:
    return sorted(lake.table("things").scan().to_arrow()["n"].to_pylist())


def test_a_null_list_of_structs_stays_one(lake: Lake) -> None:
    import duckdb

    files = lake.write_files("things", rows(lake, {"kind": "a", "n": 1}, {"kind": "a", "n": 2, "pairs": []}))
    path = files[0].file_path.removeprefix("file://")
    found = duckdb.sql(f"SELECT n, pairs FROM read_parquet('{path}') ORDER BY n").fetchall()
    assert found == [(1, None), (2, [])]


def test_files_of_a_table_that_changed_since_are_read_by_the_numbers_of_its_columns(lake: Lake) -> None:
    branch = Branch(lake, "things", "stream_1")
    branch.start()
    held(lake, branch, 0, {"kind": "a", "n": 1}, {"kind": "a", "n": 2, "pairs": []}, {"kind": "b", "pairs": [{"a": 3}]})
    branch.publish()
    with lake.table("things").update_schema() as update:
        update.rename_column("n", "m")
    with lake.table("things").update_schema() as update:
        update.add_column("n", LongType())
        update.move_first("n")
    branch.start()
    new = pa.Table.from_pylist([{"kind": "c", "m": 4, "n": 5}], schema=lake.table("things").schema().as_arrow())
    branch.hold(FileChange(tuple(lake.write_files("things", new))), {"epoch": "1"})
    branch.publish()
    with closing(connect(lake.settings)) as connection, scan_table(connection, lake, "things") as rows:
        found = connection.execute(f"SELECT kind, m, n, pairs FROM {rows} ORDER BY kind, m").fetchall()
    assert found == [
        ("a", 1, None, None), ("a", 2, None, []), ("b", None, None, [{"a": 3}]), ("c", 4, 5, None)
    ]  # fmt: skip


def test_X2_nothing_is_there_before_it_is_published_and_then_all_of_it(lake: Lake) -> None:
    branch = Branch(lake, "things", "stream_1")
    branch.start()
    held(lake, branch, 0, {"kind": "a", "n": 1}, {"kind": "b", "n": 2})
    assert read(lake) == []
    snapshot = branch.publish()
    assert read(lake) == [1, 2]
    assert lake.head("things").snapshot == snapshot
    assert lake.head("things").number("epoch") == 0
    assert list(lake.refs("things")) == ["main"]


def test_X1_who_was_overtaken_publishes_nothing_and_can_write_on_top(lake: Lake) -> None:
    ours = Branch(lake, "things", "stream_1")
    ours.start()
    held(lake, ours, 0, {"kind": "a", "n": 1})
    lake.mark("things", {"by": "another"}, lake.head("things").snapshot)
    with pytest.raises(MovedError):
        ours.publish()
    assert read(lake) == []
    ours.start()
    ours.publish()
    assert read(lake) == [1]


def test_X1_a_stream_whose_lease_was_taken_publishes_nothing(lake: Lake) -> None:
    zombie = Lease.take(lake, "things")
    heir = Lease.take(lake, "things")
    held(lake, zombie.branch, 0, {"kind": "a", "n": 1})
    with pytest.raises(FencedError):
        zombie.commit({"epoch": "0"}, lambda: None)
    held(lake, heir.branch, 0, {"kind": "a", "n": 2})
    assert heir.commit({"epoch": "0"}, lambda: None)
    assert read(lake) == [2]


def test_X2_a_commit_whose_reply_was_lost_is_there_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    branch, commit = Branch(lake, "things", "stream_1"), type(changing_catalog(lake.catalog)).commit_table
    branch.start()
    held(lake, branch, 0, {"kind": "a", "n": 1})

    def lost(self: Any, *args: Any, **options: Any) -> Any:
        commit(self, *args, **options)
        raise ConnectionResetError("no reply")

    with monkeypatch.context() as patched:
        patched.setattr(type(changing_catalog(lake.catalog)), "commit_table", lost)
        snapshot = branch.publish()
    assert head_of(lake.table("things")).snapshot == snapshot
    assert read(lake) == [1]


def test_X1_what_spark_wrote_before_main_moved_is_not_published_on_top(lake: Lake) -> None:
    branch = Branch(lake, "things", "stream_1")
    branch.start()
    branch.open_for_spark()
    moved = lake.mark("things", {"by": "another"}, lake.head("things").snapshot)
    assert branch.start().snapshot == moved
    with pytest.raises(AssertionError, match="nothing was written"):
        branch.publish()
    assert lake.head("things").snapshot == moved
    branch.open_for_spark()
    assert lake.refs("things") == {"main": moved, "stream_1": moved}


def test_a_branch_that_main_leaves_behind_is_removed(lake: Lake) -> None:
    branch = Branch(lake, "things", "stream_1")
    branch.start()
    branch.open_for_spark()
    assert set(lake.refs("things")) == {"main", "stream_1"}
    held(lake, branch, 0, {"kind": "a", "n": 1})
    branch.publish()
    assert set(lake.refs("things")) == {"main"}
    assert read(lake) == [1]


def test_X1_writers_with_branches_of_their_own_do_not_disturb_each_other(lake: Lake, settings: Settings) -> None:
    branches = [Branch(Lake(settings), "things", f"backfill_{number}") for number in range(6)]
    for branch in branches:
        branch.start()
    with ThreadPoolExecutor(len(branches)) as pool:
        for one in [pool.submit(branch.open_for_spark) for branch in branches]:
            one.result()
    assert set(lake.refs("things")) == {"main", *(branch.name for branch in branches)}


def test_files_are_taken_out_and_put_in_by_one_commit(lake: Lake) -> None:
    branch = Branch(lake, "things", "follow_1")
    branch.start()
    held(lake, branch, 0, {"kind": "a", "n": 1}, {"kind": "b", "n": 2})
    branch.publish()
    old = [task.file for task in lake.table("things").scan().plan_files() if task.file.partition[0] == "a"]
    new = lake.write_files("things", rows(lake, {"kind": "a", "n": 3}))
    branch.hold(FileChange(tuple(new), tuple(old)), {"epoch": "1"})
    before = len(lake.commits("things"))
    branch.publish()
    assert read(lake) == [2, 3]
    assert len(lake.commits("things")) == before + 1


def test_V2_the_runs_files_stay_few_and_their_generations_go_on(settings: Settings) -> None:
    lake = Lake(settings)
    runs = Runs(lake, examples.figure(7))
    made = [runs.note(runs.start("backfill", 0, 60, log_epoch=None), status="committed") for _ in range(30)]
    files = list(lake.table(runs.table).scan().plan_files())
    assert len(files) < 30, "each run writes two"
    assert [run.generation for run in runs.all()] == [run.generation for run in made] == list(range(1, 31))
    assert {run.status for run in runs.all()} == {"committed"}
    assert runs.start("backfill", 0, 60, log_epoch=None).generation == 31


def test_what_a_commit_leaves_in_memory_is_what_its_metadata_file_has(lake: Lake, settings: Settings) -> None:
    branch = Branch(lake, "things", "stream_1")
    before = lake.table("things").metadata
    was = before.model_dump_json()
    for epoch in range(3):
        branch.start()
        held(lake, branch, epoch, {"kind": "a", "n": epoch})
        branch.publish()
        here, read_anew = lake.table("things"), Lake(settings).table("things")
        assert here.metadata_location == read_anew.metadata_location
        assert here.metadata == read_anew.metadata
        assert here.metadata is lake.table("things").metadata
    assert before.model_dump_json() == was, "commits share their parts, and change none"
    assert here.metadata.snapshots[0] is before.snapshots[0]
