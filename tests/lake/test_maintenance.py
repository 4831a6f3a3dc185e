"""What is kept, what goes and what is left over, on the embedded catalog (rule X3). No JVM."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from tailrace.lake.catalog.lake import MAIN, Lake, ref_of
from tailrace.lake.catalog.sqlite import changing_catalog
from tailrace.lake.catalog.table_protocol import MAINTAINED
from tailrace.lake.commit.archive import archive, commits
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.epoch_properties import carry_forward, epoch_commits
from tailrace.lake.commit.lease import Lease
from tailrace.lake.commit.pins import pin_snapshots
from tailrace.lake.commit.retention import Removal, find_expired, find_surplus, snapshots_needed_by
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.commit.signal_tables import Completions
from tailrace.lake.commit.trimming import Trimming
from tailrace.lake.metadata.commit_times import now_milliseconds
from tailrace.lake.schema.contracts import log_contract
from tailrace.lake.schema.lake_errors import FencedError, LakeError, MovedError
from tailrace.lake.schema.owned_tables import commits_contract
from tailrace.lake.upkeep.leftovers import leftover_names, leftover_tables
from tailrace.lake.upkeep.needs import plan_upkeep, upkeep_tables
from tailrace.settings import Settings
from tests.support.lakes.small_lake import HOURLY, RIDES, make

LOG = "rides"
NEVER, AT_ONCE = timedelta(days=1), timedelta(0)


@pytest.fixture
def lake(settings: Settings) -> Lake:
    made = Lake(settings)
    made.ensure(log_contract(RIDES), {"epoch": "-1"})
    return made


def epoch(lake: Lake, number: int, table: str = LOG, branch: str = MAIN, rows: int = 1) -> int:
    """An epoch as a stream commits it; gives its snapshot."""
    loaded = lake.table(table)
    row = {"_epoch": number} if table == LOG else {}
    said = {"epoch": str(number), "watermark": str(10 * number), "processing_time": str(10 * number), "token": "1"}
    frame = pa.Table.from_pylist([row] * rows, schema=loaded.schema().as_arrow())
    loaded.append(frame, branch=branch, snapshot_properties={f"tailrace.{name}": one for name, one in said.items()})
    found = ref_of(lake.table(table), branch)
    assert found is not None
    return found


def foreign(lake: Lake, table: str = LOG) -> None:
    """A commit that says nothing of itself, as a compaction's."""
    loaded = lake.table(table)
    loaded.append(loaded.schema().as_arrow().empty_table())


def snapshots(lake: Lake, table: str = LOG) -> int:
    return len(lake.table(table).metadata.snapshots)


def expire(lake: Lake, kept: timedelta = AT_ONCE, needed: tuple[int, ...] = ()) -> Removal:
    """What maintenance does, less the files."""
    going = find_expired(lake.table(LOG), now_milliseconds() + 1, kept, needed)
    archive(lake, LOG, going.cut)
    lake.forget(LOG, going.removed)
    return going


def test_X3_what_the_commits_said_is_known_when_their_snapshots_have_expired(lake: Lake) -> None:
    for number in range(6):
        epoch(lake, number, rows=number)
        if number == 3:
            foreign(lake)
    before, all_of_it = epoch_commits(lake, LOG), commits(lake, LOG)
    assert all_of_it.whole
    assert [one.at for one in all_of_it.all] == sorted(one.at for one in all_of_it.all)
    assert abs(all_of_it.all[-1].at - now_milliseconds() * 1000) < 3600 * 10**6
    expire(lake)
    assert snapshots(lake) == 1
    epoch(lake, 6)
    epoch(lake, 7)
    expire(lake)
    after = commits(lake, LOG)
    assert after.whole
    assert [(one.snapshot, one.at) for one in after.all][:8] == [(one.snapshot, one.at) for one in all_of_it.all]
    assert sum(one.added for one in after.all) == 0 + 1 + 2 + 3 + 4 + 5 + 1 + 1
    found = epoch_commits(lake, LOG)
    assert {number: said for number, said in found.items() if number < 6} == before
    assert sorted(found) == list(range(8))
    assert lake.head(LOG).number("epoch") == 7


def test_X3_commits_that_were_never_archived_are_known_to_be_missing(lake: Lake) -> None:
    for number in range(5):
        epoch(lake, number)
    going = find_expired(lake.table(LOG), now_milliseconds() + 1, AT_ONCE)
    archive(lake, LOG, [one for place, one in enumerate(going.cut) if place != 2])
    lake.forget(LOG, going.removed)
    assert not commits(lake, LOG).whole
    archive(lake, LOG, going.cut)
    assert commits(lake, LOG).whole


def test_X3_to_archive_twice_or_at_once_keeps_each_commit_once(lake: Lake) -> None:
    for number in range(5):
        epoch(lake, number)
    cut = find_expired(lake.table(LOG), now_milliseconds() + 1, AT_ONCE).cut
    lake.ensure(commits_contract(LOG))
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: archive(lake, LOG, cut), range(3)))
    rows = lake.table(commits_contract(LOG).table).scan().to_arrow()["snapshot"].to_pylist()
    assert sorted(rows) == sorted(one.snapshot_id for one in cut)
    assert len(commits(lake, LOG).all) == 6


def test_X3_the_last_commit_that_says_something_never_expires(lake: Lake) -> None:
    epoch(lake, 0)
    epoch(lake, 1)
    for _ in range(3):
        foreign(lake)
    expire(lake)
    assert lake.head(LOG).number("epoch") == 1
    assert snapshots(lake) == 4, "the last epoch, and what was committed above it"
    carry_forward(lake, LOG)
    expire(lake)
    assert snapshots(lake) == 1
    head = lake.head(LOG)
    assert (head.number("epoch"), head.number("token"), head.properties[MAINTAINED]) == (1, 1, "true")
    carry_forward(lake, LOG)
    assert snapshots(lake) == 1, "it is said already"


def test_X3_what_was_current_within_the_time_that_is_kept_stays(lake: Lake) -> None:
    epoch(lake, 0)
    time.sleep(1.2)
    young = epoch(lake, 1)
    last = epoch(lake, 2)
    going = find_expired(lake.table(LOG), now_milliseconds(), timedelta(seconds=1))
    # Epoch 0 is older, but was the current one until just now.
    assert len(going.removed) == 1
    assert not {young, last} & {*going.removed}
    assert not find_expired(lake.table(LOG), now_milliseconds(), timedelta(minutes=1)).removed


def test_X3_what_is_pinned_or_staged_or_yet_to_be_read_stays(lake: Lake) -> None:
    made = [epoch(lake, number) for number in range(6)]
    branch = Branch(lake, LOG, "backfill_0123456789ab")
    branch.start()
    branch.open_for_spark()
    staged = epoch(lake, 99, branch=branch.name)
    epoch(lake, 6)
    with pin_snapshots(lake, {LOG: made[1]}):
        expire(lake, needed=(made[4],))
        there = {one.snapshot_id for one in lake.table(LOG).metadata.snapshots}
        assert there == {made[1], *made[4:], staged, lake.head(LOG).snapshot}
        assert lake.table(LOG).scan(snapshot_id=made[1]).count() == 2
    assert [*lake.table(LOG).metadata.refs] == [MAIN, branch.name], "a pin goes with its reader"
    branch.drop()
    expire(lake)
    assert snapshots(lake) == 1
    assert sorted(epoch_commits(lake, LOG)) == list(range(7)), "what was staged was no epoch"
    with pytest.raises(LakeError, match="has expired: start anew"), pin_snapshots(lake, {LOG: made[1]}):
        pass


def test_X3_the_oldest_snapshots_beyond_the_most_go_and_those_of_overtaken_writers(lake: Lake) -> None:
    made = [epoch(lake, number) for number in range(9)]
    overtaken = Branch(lake, LOG, "stream_1")
    overtaken.start()
    overtaken.open_for_spark()
    lost = epoch(lake, 9, branch=overtaken.name)
    overtaken.drop()
    going = find_surplus(lake.table(LOG), 4)
    assert {*going.removed} == {*made[:5], lost, lake.table(LOG).metadata.snapshots[0].snapshot_id}
    assert lost not in {one.snapshot_id for one in going.cut}


def test_X3_a_stream_keeps_the_number_of_its_snapshots_down_by_itself(settings: Settings) -> None:
    lake = Lake(settings.model_copy(update={"most_snapshots": 20}))
    lake.ensure(log_contract(RIDES), {"epoch": "-1"})
    trimming, most = Trimming(lake, LOG), 0
    for number in range(60):
        epoch(lake, number)
        trimming.after_commit()
        most = max(most, snapshots(lake))
    assert 15 < most <= 20
    assert sorted(epoch_commits(lake, LOG)) == list(range(60))
    assert commits(lake, LOG).whole
    assert lake.table(LOG).scan().count() == 60


def test_X3_a_control_table_is_kept_from_where_the_log_has_read_it(settings: Settings) -> None:
    lake = make(settings)
    said = Completions(lake, RIDES)
    for number in range(3):
        said.say(number)
    _, seen = said.new_times({})
    said.say(3)
    lake.mark(LOG, {"epoch": "3", **seen}, lake.head(LOG).snapshot)
    (one,) = (one for one in upkeep_tables(lake, HOURLY) if one.name == said.table)
    needed = [found for reader, name in one.readers for found in snapshots_needed_by(lake, reader, name)]
    assert needed == [int(seen["complete_seen"])]
    lake.forget(said.table, find_expired(lake.table(said.table), now_milliseconds() + 1, AT_ONCE, needed).removed)
    assert snapshots(lake, said.table) == 2
    found, _ = said.new_times(lake.head(LOG).properties)
    assert found == {None: 3}, "what came with an epoch before does not come again"


def with_a_branch(lease: Lease) -> Lease:
    """Has the lease's writer be one that Spark writes for."""
    lease.branch.open_for_spark()
    return lease


def test_X3_what_dead_writers_left_is_told_from_what_living_ones_use(settings: Settings) -> None:
    lake, ledger = make(settings), "hourly_rides__ledger"
    runs = Runs(lake, HOURLY)
    old = with_a_branch(Lease.take(lake, ledger))
    lent = with_a_branch(Lease.take(lake, ledger))
    done, going_on = (runs.start("backfill", 0, 1, log_epoch=0) for _ in range(2))
    restored = with_a_branch(Lease.borrow(lake, ledger, "restore_3_0123abcd"))
    restored.give_back()
    borrowed = with_a_branch(Lease.borrow(lake, ledger, going_on.run))
    for run in (done, going_on):
        branch = Branch(lake, ledger, f"backfill_{run.run}")
        branch.start()
        branch.open_for_spark()
    runs.note(done, status="committed")
    at = lake.head(ledger).snapshot
    assert at is not None
    lake.name(ledger, "pin_1700000000000_00000000", at)
    lake.name(ledger, "release_of_may", at)
    by_id = {one.run: one for one in runs.all()}
    left = leftover_names(lake.table(ledger), by_id, now_milliseconds(), NEVER)
    assert left == sorted([old.branch.name, restored.branch.name, f"backfill_{done.run}", "pin_1700000000000_00000000"])
    later = leftover_names(lake.table(ledger), by_id, now_milliseconds() + 1, AT_ONCE)
    assert {*later} - {*left} == {borrowed.branch.name, f"backfill_{going_on.run}"}
    assert lent.branch.name not in later
    lake.unname(ledger, left)
    with pytest.raises(FencedError):
        old.publish({"epoch": "3"})


def test_X3_a_followers_branch_is_left_over_once_main_has_long_gone_on(lake: Lake) -> None:
    branch = Branch(lake, LOG, "follow_stream_1")
    branch.start()
    branch.open_for_spark()
    assert not leftover_names(lake.table(LOG), {}, now_milliseconds() + 1000, AT_ONCE)
    epoch(lake, 0)
    assert not leftover_names(lake.table(LOG), {}, now_milliseconds(), NEVER)
    assert leftover_names(lake.table(LOG), {}, now_milliseconds() + 1000, AT_ONCE) == ["follow_stream_1"]


def test_X3_the_tables_of_replays_and_of_resting_windows_whose_writers_died_are_found(settings: Settings) -> None:
    lake = make(settings)
    left = [f"hourly_rides__{kind}_0123abcd" for kind in ("replay", "resting", "replay_resting")]
    names = [*left, "hourly_rides__ledger", "kept_for_later"]
    for name in (*left, "kept_for_later"):
        lake.catalog.create_table((settings.namespace, name), lake.table(LOG).schema())
    assert leftover_tables(lake, HOURLY, names, now_milliseconds() + 1, AT_ONCE) == left
    assert not leftover_tables(lake, HOURLY, names, now_milliseconds(), NEVER)


def test_X3_a_plan_tells_what_each_table_needs(settings: Settings) -> None:
    lake = make(settings)
    for number in range(3, 8):
        epoch(lake, number)
    needs = {one.table.name: one for one in plan_upkeep(lake, HOURLY, now_milliseconds()).needs}
    assert [*needs] == ["rides", "rides__rejected", "hourly_rides__ledger", "hourly_rides", "hourly_rides__runs"]
    log, answers = needs["rides"], needs["hourly_rides"]
    assert (log.files, log.small, log.deletes, log.rewrites) == (6, 5, 0, True), "one is alone in its partition"
    assert not log.going.removed, "a day is kept"
    assert (answers.rewrites, answers.table.on_read, answers.table.archived) == (False, True, False)
    expire(lake)
    assert "rides__commits" in {one.name for one in upkeep_tables(lake, HOURLY)}
    with pytest.raises(LakeError, match="start a stream of its definition first"):
        plan_upkeep(Lake(settings.model_copy(update={"warehouse": Path(settings.warehouse) / "none"})), HOURLY, 0)


@pytest.mark.parametrize("goes_on", [False, True], ids=["alone", "and another goes on from it"])
def test_X1_a_publication_whose_reply_is_lost_has_gone_through(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    branch = Branch(lake, LOG, "stream_1")
    branch.start()
    branch.open_for_spark()
    staged = epoch(lake, 0, branch=branch.name)
    commit_of, lost = type(changing_catalog(lake.catalog)).commit_table, list[Any]()

    def gone(self: Any, *args: Any) -> Any:
        commit_of(self, *args)
        if lost:
            return
        lost.append(args)
        if goes_on:
            foreign(lake)
        raise ConnectionError("the reply is lost")

    with monkeypatch.context() as patch:
        patch.setattr(type(changing_catalog(lake.catalog)), "commit_table", gone)
        assert branch.publish() == staged
    assert len(lost) == 1
    assert sorted(epoch_commits(lake, LOG)) == [0]
    assert lake.table(LOG).scan().count() == 1
    if not goes_on:
        branch.open_for_spark()
        epoch(lake, 1, branch=branch.name)
        assert branch.publish() == lake.head(LOG).snapshot, "and the next one is built on it"


def test_X1_a_publication_that_did_not_go_through_is_an_error(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    branch = Branch(lake, LOG, "stream_1")
    branch.start()
    branch.open_for_spark()
    epoch(lake, 0, branch=branch.name)

    def refused(self: Any, *args: Any) -> Any:
        raise ConnectionError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(type(changing_catalog(lake.catalog)), "commit_table", refused)
        with pytest.raises(ConnectionError):
            branch.publish()
    assert lake.head(LOG).number("epoch") == -1


def test_X1_metadata_that_others_change_all_the_time_is_changed_or_an_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch(lake, 0)
    made = [one.snapshot_id for one in lake.table(LOG).metadata.snapshots]
    commit, tries = type(changing_catalog(lake.catalog)).commit_table, []

    def busy(self: Any, *args: Any) -> Any:
        tries.append(args)
        if len(tries) < 3:
            raise CommitFailedException("somebody was quicker")
        return commit(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(type(changing_catalog(lake.catalog)), "commit_table", busy)
        lake.forget(LOG, made)
    assert snapshots(lake) == 1, "the one that main names stays"
    tries.extend([()] * -100)
    with monkeypatch.context() as patch:
        patch.setattr(
            type(changing_catalog(lake.catalog)),
            "commit_table",
            lambda *args: (_ for _ in ()).throw(CommitFailedException()),
        )
        with pytest.raises(MovedError, match="try again"):
            lake.unname(LOG, [MAIN])


@pytest.mark.parametrize(("text", "said"), [("12", "a whole number and a unit"), ("1y", "a unit"), ("1h", "day")])
def test_a_setting_that_is_no_age_says_what_is_one(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAILRACE_KEEP_ORPHANS", text)
    with pytest.raises(Exception, match=said) as caught:
        Settings()
    assert "TAILRACE_KEEP_ORPHANS" in str(caught.value)


def test_ages_are_given_with_their_unit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAILRACE_KEEP_SNAPSHOTS", "12h")
    found: Mapping[str, Any] = Settings().model_dump()
    assert found["keep_snapshots"] == timedelta(hours=12)
