"""A stream writes its small files together between epochs, and nobody notices but by their number (rule X3)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.snapshots import Operation
from pyspark.sql import SparkSession

from tailrace import AfterWatermark, minutes
from tailrace.fold.fold_group import FoldGroup
from tailrace.ingest.landing import Landing
from tailrace.lake.catalog.events import CompactionFailed, FilesCompacted, Notice, Outcome, Publication
from tailrace.lake.catalog.lake import Lake, lineage
from tailrace.lake.catalog.table_protocol import MAINTAINED, FileChange
from tailrace.lake.commit.archive import commits
from tailrace.lake.commit.epoch_properties import clock_properties, epoch_commits
from tailrace.lake.commit.lease import Lease
from tailrace.lake.schema.contracts import log_contract, rejected_contract
from tailrace.lake.schema.lake_errors import FencedError
from tailrace.lake.upkeep import compaction
from tailrace.lake.upkeep.compaction import SmallFiles
from tailrace.lake.upkeep.rewriting import exchange_files, files_of, partition_of, write_together
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import instant, moment
from tailrace.model.definition.pipeline import Pipeline
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.engines.spark_runs import arrow_bundle
from tests.support.lakes.recorded_ledgers import land, no_spark
from tests.support.lakes.rides import HOURLY, RIDES

EPOCHS = 8
LEDGER = "hourly__ledger"
MINUTE = 60_000_000
START = instant(moment(1_767_225_600_000_000))
"""The first instant of 2026."""


def rides(chance: random.Random, epoch: int) -> list[dict[str, Any]]:
    """Rides of an epoch of two hours, some of them late, and some too late for their windows."""
    at = [START + 120 * MINUTE * epoch + chance.randrange(-200, 120) * MINUTE for _ in range(8)]
    return [{"who": chance.choice("ab"), "cents": n, "day": moment(t), "seen": moment(t)} for n, t in enumerate(at)]


def bundle(chance: random.Random, epoch: int) -> pa.Table:
    """Those rides as a source gives them."""
    rows = arrow_bundle(RIDES, rides(chance, epoch), epoch)
    source = pa.array(["rides.json"] * rows.num_rows, pa.string())
    return rows.set_column(rows.column_names.index("_source"), "_source", source)


ONCE = replace(HOURLY, name="once", when=AfterWatermark(), allowed_lateness=minutes(0))


class Case:
    """A stream without its source: epochs are landed as they come, and folded by one process or one after another."""

    def __init__(self, settings: Settings, small_files: int, follow_every: int = 3, folds: Pipeline = HOURLY) -> None:
        self.told, self.folds = list[Notice](), folds
        made = settings.model_copy(update={"small_files": small_files, "namespace": f"by_{small_files}"})
        self.lake, self.every = Lake(made, self.told.append), follow_every
        for contract in (log_contract(RIDES), rejected_contract(RIDES)):
            self.lake.ensure(contract, {"epoch": "-1"})
        self.epoch, self.chance = -1, random.Random(7)

    @contextmanager
    def stream(self) -> Iterator[FoldGroup]:
        group = FoldGroup(no_spark, self.lake, [self.folds], follow_every=self.every)
        try:
            yield group
        finally:
            group.close()

    def fold(self, group: FoldGroup) -> None:
        self.epoch += 1
        end = START + 120 * MINUTE * (self.epoch + 1)
        rows = bundle(self.chance, self.epoch)
        land(self.lake, "rides", rows, Clock(self.epoch, end - 10 * MINUTE, end))
        list(group.missed_epochs(self.epoch))
        group.settle()
        written(group)

    @property
    def compacted(self) -> dict[str, int]:
        """How many files of each table were written together, by what the lake told."""
        assert not [one for one in self.told if isinstance(one, CompactionFailed)]
        counts = Counter[str]()
        for one in self.told:
            if isinstance(one, FilesCompacted):
                counts[one.table] += one.files
        return dict(counts)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        scanned: pa.Table = self.lake.table(table).scan().to_arrow()
        return sorted(tuple(map(repr, row.values())) for row in scanned.to_pylist())

    def parts(self, table: str) -> Counter[tuple[object, ...]]:
        return Counter(partition_of(file) for file in files_of(self.lake.table(table)))


def written(group: FoldGroup) -> None:
    """Wait until what is written beside the stream is written."""
    for one in group._compacting._tables.values():
        if one.pending is not None:
            one.pending.exception()


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """What a stream leaves that leaves its files as they are."""
    folder = tmp_path_factory.mktemp("untouched")
    case = Case(Settings(warehouse=folder / "lake", contracts=folder / "none", engine="duckdb"), small_files=0)
    with case.stream() as group:
        for _ in range(EPOCHS):
            case.fold(group)
    assert not case.compacted
    return case


@pytest.fixture
def compacting(settings: Settings) -> Case:
    return Case(settings.model_copy(update={"engine": "duckdb"}), small_files=2)


def same(case: Case, other: Case) -> None:
    for table in (LEDGER, "hourly"):
        assert case.rows(table) == other.rows(table)


def test_X3_a_stream_that_compacts_leaves_the_rows_of_one_that_does_not(compacting: Case, untouched: Case) -> None:
    with compacting.stream() as group:
        for _ in range(EPOCHS):
            compacting.fold(group)
    same(compacting, untouched)
    assert set(compacting.compacted) == {LEDGER}
    files, before = compacting.parts(LEDGER), untouched.parts(LEDGER)
    assert set(files) == set(before)
    assert sum(files.values()) < 0.6 * sum(before.values())
    # Each epoch's commit is found as it was, and so is how many rows it brought.
    assert epoch_commits(compacting.lake, LEDGER) == epoch_commits(untouched.lake, LEDGER)
    brought = [[one.added for one in commits(case.lake, LEDGER).all if one.added] for case in (compacting, untouched)]
    assert brought[0] == brought[1]
    assert audit(compacting.lake, HOURLY).ok
    assert replay(compacting.lake, HOURLY).ok


def test_X2_a_stream_that_starts_anew_goes_on_from_what_was_compacted(compacting: Case, untouched: Case) -> None:
    for _ in range(0, EPOCHS, 2):
        with compacting.stream() as group:
            compacting.fold(group)
            compacting.fold(group)
    same(compacting, untouched)


def test_X1_no_epochs_commit_finds_its_table_moved_by_its_own_compaction(compacting: Case) -> None:
    with compacting.stream() as group:
        for _ in range(EPOCHS):
            compacting.fold(group)
    made = lineage(compacting.lake.table(LEDGER), compacting.lake.head(LEDGER).snapshot)
    own = [one for one in made if one.summary and f"tailrace.{MAINTAINED}" in one.summary.additional_properties]
    assert own
    assert all(one.summary and one.summary.operation is Operation.OVERWRITE for one in own)
    published = [one for one in compacting.told if isinstance(one, Publication) and one.table == LEDGER]
    assert {one.outcome for one in published} == {Outcome.PUBLISHED}


def dying(place: str) -> Callable[[Lake, str, FileChange], bool]:
    """A commit of an exchange at which the process dies, before it or after it."""

    def dies(lake: Lake, table: str, change: FileChange) -> bool:
        if place == "after the commit":
            exchange_files(lake, table, change)
        raise KeyboardInterrupt(place)

    return dies


@pytest.mark.parametrize("place", ["before the commit", "after the commit"])
def test_X2_a_stream_killed_at_a_step_of_its_compaction_has_lost_and_doubled_nothing(
    compacting: Case, untouched: Case, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    times = 0
    while compacting.epoch < EPOCHS - 1:
        group = FoldGroup(no_spark, compacting.lake, [HOURLY], follow_every=3)
        with monkeypatch.context() as patch:
            if times < 2:
                patch.setattr(compaction, "exchange_files", dying(place))
            try:
                while compacting.epoch < EPOCHS - 1:
                    compacting.fold(group)
            except KeyboardInterrupt:
                times += 1
                # A process that dies closes nothing; the test lets go of the threads and the database alone.
                group._compacting.close()
                group.engines.close()
                continue
        group.close()
    assert times == 2
    with compacting.stream():
        """The next process brings the answers up."""
    same(compacting, untouched)
    assert audit(compacting.lake, HOURLY).ok


def test_X3_a_commit_whose_outcome_nobody_knows_is_no_reason_to_stop(
    compacting: Case, untouched: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(lake: Lake, table: str, change: FileChange) -> bool:
        exchange_files(lake, table, change)
        raise ConnectionError("the reply is lost")

    monkeypatch.setattr(compaction, "exchange_files", unknown)
    with compacting.stream() as group:
        for _ in range(EPOCHS):
            compacting.fold(group)
    assert {one.why for one in compacting.told if isinstance(one, CompactionFailed)} == {
        "ConnectionError: the reply is lost"
    }
    same(compacting, untouched)


def test_X3_files_that_maintenance_took_meanwhile_are_left_to_it(compacting: Case, untouched: Case) -> None:
    taken = 0
    with compacting.stream() as group:
        for _ in range(EPOCHS):
            compacting.fold(group)
            if any(one.pending is not None for one in group._compacting._tables.values()):
                # The stream has written its files, and has not committed them.
                taken += write_together(compacting.lake, LEDGER, 2, 10**9)[0]
    assert taken
    same(compacting, untouched)
    assert audit(compacting.lake, HOURLY).ok


def test_X1_a_stream_that_was_fenced_off_compacts_nothing_for_the_next(compacting: Case) -> None:
    with compacting.stream() as group:
        for _ in range(5):
            compacting.fold(group)
        other = Lease.take(compacting.lake, LEDGER)
        lease = group[0].lease
        for _ in range(4):
            group._compacting.after_commit(lease)
            written(group)
        assert other.check().number("token") == other.token
        with pytest.raises(FencedError):
            lease.check()


def test_answers_that_come_by_new_windows_alone_are_put_together(settings: Settings) -> None:
    by_files = [Case(settings, small_files, follow_every=1, folds=ONCE) for small_files in (0, 2)]
    for case in by_files:
        with case.stream() as group:
            for _ in range(EPOCHS):
                case.fold(group)
    left, together = by_files
    assert left.rows("once") == together.rows("once")
    assert together.compacted["once"]
    assert sum(together.parts("once").values()) < sum(left.parts("once").values())


def test_X6_a_log_that_is_compacted_as_it_is_landed_has_each_record_once(settings: Settings) -> None:
    lake = Lake(settings.model_copy(update={"engine": "duckdb", "small_files": 2}))
    landing = Landing(cast(SparkSession, None), lake, RIDES)
    chance, records = random.Random(3), 0
    for epoch in range(9):
        rows = bundle(chance, epoch)
        bad = pa.array([None] * (rows.num_rows - 1) + ["a fault"], pa.string())
        rows = rows.append_column("_error", bad).append_column("_raw", pa.array([b"{}"] * rows.num_rows, pa.binary()))
        landed = landing.write(rows, clock_properties(Clock(epoch, epoch, epoch)))
        records += landed.records
        landing.publish()
        for one in landing._compacting._tables.values():
            if one.pending is not None:
                one.pending.exception()
    landing.close()
    found = lake.table("rides").scan().to_arrow()
    assert found.num_rows == records == sum(one.added for one in commits(lake, "rides").all)
    assert (
        len(set(zip(*(found[name].to_pylist() for name in ("_epoch", "_source", "_offset")), strict=True))) == records
    )
    assert len(list(files_of(lake.table("rides")))) < 9
    assert lake.table("rides__rejected").scan().count() == 9
    assert len(list(files_of(lake.table("rides__rejected")))) < 5
    assert sorted(epoch_commits(lake, "rides")) == list(range(9))


@given(st.integers(2, 30), st.lists(st.integers(0, 10**6), min_size=2, max_size=60))
def test_files_of_one_level_make_a_file_of_the_next(least: int, rows: list[int]) -> None:
    """So a row is rewritten at most once a level: as often as its table has digits, in base `least`."""
    small = SmallFiles(least)
    level = max(map(small.level, rows))
    of_one = [count for count in rows if small.level(count) == level][:least]
    if len(of_one) == least and level:
        assert small.level(sum(of_one)) > level


def test_the_manifests_of_a_look_are_read_once(compacting: Case, tmp_path: Path) -> None:
    with compacting.stream() as group:
        for _ in range(6):
            compacting.fold(group)
    small, table = SmallFiles(100), compacting.lake.table(LEDGER)
    small.look(table)
    now = table.current_snapshot()
    assert now is not None
    for path in [Path(one.manifest_path.removeprefix("file://")) for one in now.manifests(table.io)]:
        path.rename(tmp_path / path.name)
    assert small.look(table)[0] == []
