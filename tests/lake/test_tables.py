"""What the commit protocol asks of tables, of the catalog's and of those in memory (X1, X2, X4). No JVM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tailrace.lake.catalog.lake import MANY, Lake
from tailrace.lake.catalog.table_protocol import BACKFILLED, MAIN, FileChange, Head, Tables
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.lease import Lease
from tailrace.lake.commit.range_replacement import RangeReplacement
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.contracts import log_contract, runs_contract
from tailrace.lake.schema.lake_errors import FencedError, LakeError, LentError, MovedError
from tailrace.lake.schema.owned_tables import signals_contract
from tailrace.model.logs.log import Log
from tailrace.model.samples import examples
from tailrace.settings import Settings
from tests.support.faults.lake_in_memory import MemoryLake

PIPELINE = examples.figure(14)
CONTRACT = signals_contract(PIPELINE.log)
TABLE = CONTRACT.table


def row(name: str) -> dict[str, Any]:
    return {"at": datetime(2024, 1, 1, tzinfo=UTC), "name": name}


@dataclass
class Kept:
    """Some tables, and how an engine writes to a branch of theirs."""

    lake: Any
    write: Callable[[str, str], int]

    def names(self) -> list[str]:
        return sorted(row["name"] for row in self.lake.rows(TABLE)[1])


def in_memory(settings: Settings) -> Kept:
    lake = MemoryLake()
    return Kept(lake, lambda branch, name: lake.write(TABLE, branch, [row(name)], {"said": name}))


def in_the_catalog(settings: Settings) -> Kept:
    lake = Lake(settings)

    def write(branch: str, name: str) -> int:
        loaded = lake.table(TABLE)
        rows = pa.Table.from_pylist([row(name)], schema=loaded.schema().as_arrow())
        loaded.append(rows, branch=branch, snapshot_properties={"tailrace.said": name})
        return lake.refs(TABLE)[branch]

    return Kept(lake, write)


@pytest.fixture(params=[in_memory, in_the_catalog])
def kept(request: pytest.FixtureRequest, settings: Settings) -> Kept:
    made: Kept = request.param(settings)
    made.lake.ensure(CONTRACT, {"epoch": "-1"})
    return made


def branched(kept: Kept, name: str) -> Branch:
    branch = Branch(kept.lake, TABLE, name)
    branch.start()
    branch.open_for_spark()
    return branch


def wrote(kept: Kept, lease: Lease, name: str) -> int:
    """Write to a lease's branch as Spark does; gives the snapshot."""
    lease.branch.open_for_spark()
    return kept.write(lease.branch.name, name)


def test_a_table_that_was_made_has_a_commit_that_says_so(kept: Kept) -> None:
    tables: Tables = kept.lake
    head = tables.head(TABLE)
    assert (head.properties, head.records) == ({"epoch": "-1"}, 0)
    assert tables.refs(TABLE) == {MAIN: head.snapshot}
    assert tables.commits(TABLE) == [(head.snapshot, {"epoch": "-1"})]
    with pytest.raises(LakeError):
        tables.head("another")


def test_X1_a_branch_moves_only_from_where_it_is_expected(kept: Kept) -> None:
    branch = branched(kept, "stream_1")
    base = branch.base
    staged = kept.write("stream_1", "a")
    assert kept.names() == []
    with pytest.raises(MovedError):
        kept.lake.move(TABLE, MAIN, staged, staged)
    with pytest.raises(MovedError):
        kept.lake.move(TABLE, "stream_1", base, None)
    kept.lake.move(TABLE, MAIN, staged, base)
    kept.lake.move(TABLE, MAIN, staged, base)
    assert kept.names() == ["a"]
    assert kept.lake.head(TABLE) == Head(staged, {"said": "a"}, 1)
    kept.lake.unname(TABLE, ["stream_1"])
    kept.lake.unname(TABLE, ["stream_1"])
    assert set(kept.lake.refs(TABLE)) == {MAIN}


def test_X1_what_is_marked_or_entered_is_on_what_was_expected_or_not_there(kept: Kept) -> None:
    before = kept.lake.head(TABLE).snapshot
    marked = kept.lake.mark(TABLE, {"token": "1"}, before)
    attempts: list[Callable[[], object]] = [
        lambda: kept.lake.mark(TABLE, {}, before),
        lambda: kept.lake.enter(TABLE, [row("b")], {}, before),
    ]
    for late in attempts:
        with pytest.raises(MovedError):
            late()
    kept.lake.enter(TABLE, [row("a")], {"token": "2"}, marked)
    assert kept.names() == ["a"]
    assert [said for _, said in kept.lake.commits(TABLE)] == [{"token": "2"}, {"token": "1"}, {"epoch": "-1"}]


def test_X2_files_that_are_gathered_change_no_row_and_nothing_that_was_said(kept: Kept) -> None:
    tables: Tables = kept.lake
    names = [f"row {number:02}" for number in range(MANY)]
    for name in names:
        tables.enter(TABLE, [row(name)], {"highest": name}, tables.head(TABLE).snapshot)
        tables.gather(TABLE)
        assert tables.head(TABLE).properties["highest"] == name
    assert len(tables.commits(TABLE)) > 1 + len(names), "some were gathered"
    assert kept.names() == names
    gathered = tables.head(TABLE)
    tables.gather(TABLE)
    assert tables.head(TABLE) == gathered, "once"


def test_X4_what_a_branch_has_added_is_grafted_onto_what_came_meanwhile(kept: Kept) -> None:
    branched(kept, "backfill_1")
    kept.write("backfill_1", "a")
    staged = kept.write("backfill_1", "b")
    head = kept.lake.head(TABLE).snapshot
    between = kept.lake.enter(TABLE, [row("c")], {"epoch": "7"}, head)
    with pytest.raises(MovedError):
        kept.lake.graft(TABLE, staged, {"epoch": "7", "run": "x"}, head)
    assert kept.names() == ["c"]
    grafted = kept.lake.graft(TABLE, staged, {"epoch": "7", "run": "x"}, between)
    assert kept.names() == ["b", "c"], "what the snapshot itself added, and nothing of those below it"
    assert kept.lake.head(TABLE).snapshot == grafted
    assert [commit.snapshot for commit in kept.lake.commits(TABLE)][:2] == [grafted, between]
    assert kept.lake.head(TABLE).properties == {"epoch": "7", "run": "x"}


def test_X1_a_lease_that_was_taken_between_two_looks_is_lost(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another takes the lease after ours was marked and before our branch starts: we must not start on top of it."""
    start, taken = Branch.start, list[Lease]()

    def overtaken(branch: Branch, head: Head | None = None) -> Head:
        if not taken:
            taken.append(Lease(kept.lake, TABLE, 0, branch, Head(None, {})))
            taken[0] = Lease.take(kept.lake, TABLE)
        return start(branch, head)

    monkeypatch.setattr(Branch, "start", overtaken)
    ours = Lease.take(kept.lake, TABLE)
    assert (ours.token, taken[0].token) == (1, 2)
    wrote(kept, ours, "ours")
    with pytest.raises(FencedError, match="its token is 2, ours was 1"):
        ours.publish({})
    assert kept.names() == []


def test_X1_a_writer_that_looked_and_was_fenced_right_after_publishes_nothing(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Lease.take(kept.lake, TABLE)
    wrote(kept, ours, "ours")
    head = kept.lake.head(TABLE)
    kept.lake.mark(TABLE, head.properties, head.snapshot)
    check, heirs = Lease.check, list[Lease]()

    def and_fenced(lease: Lease) -> Head:
        found = check(lease)
        heirs.append(Lease.take(kept.lake, TABLE))
        return found

    monkeypatch.setattr(Lease, "check", and_fenced)
    with pytest.raises(MovedError):
        ours.publish({})
    monkeypatch.setattr(Lease, "check", check)
    wrote(kept, ours, "ours")
    with pytest.raises(FencedError):
        ours.publish({})
    assert kept.names() == []


def test_X2_a_publication_whose_reply_was_lost_is_one(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = Lease.take(kept.lake, TABLE)
    staged = wrote(kept, lease, "a")
    move = type(kept.lake).move

    def lost(lake: Tables, table: str, branch: str, to: int, expected: int | None) -> None:
        move(lake, table, branch, to, expected)
        raise MovedError("the transport tried again, and was told that it has moved")

    monkeypatch.setattr(type(kept.lake), "move", lost)
    assert lease.publish({"said": "a"}) == staged
    monkeypatch.undo()
    wrote(kept, lease, "b")
    lease.publish({"said": "b"})
    assert kept.names() == ["a", "b"]


def test_X4_a_lease_that_is_lent_is_waited_for_and_given_back(kept: Kept) -> None:
    stream = Lease.take(kept.lake, TABLE)
    borrowed = Lease.borrow(kept.lake, TABLE, "x")
    wrote(kept, stream, "stream")
    with pytest.raises(LentError):
        stream.publish({})
    said = borrowed.return_properties({BACKFILLED: "x 2 0 60"})
    wrote(kept, borrowed, "backfill")
    borrowed.publish(said)
    kept.lake.mark(TABLE, said, kept.lake.head(TABLE).snapshot)
    stream.regain()
    wrote(kept, stream, "stream")
    stream.publish({})
    assert kept.names() == ["backfill", "stream"]
    assert stream.token == borrowed.token + 1


def test_X4_a_lender_waits_for_its_borrower_for_as_long_as_its_patience_and_no_longer(kept: Kept) -> None:
    stream = Lease.take(kept.lake, TABLE)
    borrowed, since = Lease.borrow(kept.lake, TABLE, "x"), time.monotonic()
    stream.regain(patience=0.3)
    assert time.monotonic() - since >= 0.3
    with pytest.raises(FencedError):
        borrowed.check()
    # One that gives the lease back in time is waited for, and no longer.
    borrowed, since = Lease.borrow(kept.lake, TABLE, "y"), time.monotonic()
    giving = threading.Timer(0.2, borrowed.give_back)
    giving.start()
    stream.regain(patience=60)
    giving.join()
    assert 0.2 <= time.monotonic() - since < 30
    stream.check()


class Counts:
    """A difference of one changed window."""

    counts = {"changed": 1, "untouched": 0, "retracted": 0}


class Engine:
    """Writes one row for a run, and has another run commit first, as often as `beside` says."""

    direct = False

    def __init__(self, kept: Kept, ledger: str, beside: list[str]) -> None:
        self.kept, self.ledger, self.beside, self.computed = kept, ledger, beside, 0

    def follow(self) -> int:
        return int(self.kept.lake.head(self.ledger).snapshot)

    def compute(self, run: Any, pinned: Head) -> Counts:
        self.computed += 1
        return Counts()

    def write(self, found: Counts, run: Any, pinned: Head, branch: Branch, said: Mapping[str, str]) -> None:
        branch.open_for_spark()
        self.kept.lake.write(branch.table, branch.name, [{"run": run.run, "generation": run.generation}], said)
        if self.beside:
            head = self.kept.lake.head(self.ledger)
            said = {**head.properties, BACKFILLED: self.beside.pop()} if self.beside[-1] else {"epoch": "8"}
            self.kept.lake.mark(self.ledger, said, head.snapshot)

    def published(self, found: Counts, snapshot: int) -> None:
        pass

    def forget(self, found: Counts) -> None:
        pass


@pytest.mark.parametrize(
    ("beside", "computed", "status"),
    [
        ([], 1, "committed"),
        (["other 0 100 200"], 1, "committed"),
        (["other 0 50 60"], 2, "committed"),
        (["third 0 10 20", "other 0 50 60"], 3, "committed"),
    ],
)
def test_V4_a_run_that_another_overtook_computes_anew(
    settings: Settings, beside: list[str], computed: int, status: str
) -> None:
    kept = in_memory(settings)
    ledger = f"{PIPELINE.name}__ledger"
    kept.lake.made(ledger, {"epoch": "7", "generation": "1"})
    runs = Runs(kept.lake, PIPELINE)
    run = runs.start("backfill", 0, 60, log_epoch=None)
    engine = Engine(kept, ledger, beside)
    ended = RangeReplacement(kept.lake, runs, engine).replace_closed(run)
    assert (engine.computed, ended.run.status, ended.run.log_epoch) == (computed, status, 7)
    _, rows = kept.lake.rows(ledger)
    assert rows == [{"run": run.run, "generation": 1}], "what was overtaken is not there"


def test_V4_a_run_gives_way_to_what_covers_it_and_goes_above_what_covers_some(settings: Settings) -> None:
    kept = in_memory(settings)
    ledger = f"{PIPELINE.name}__ledger"
    kept.lake.made(ledger, {"epoch": "7", "generation": "1"})
    runs = Runs(kept.lake, PIPELINE)
    low, wide, some = (runs.start("backfill", *span, log_epoch=None) for span in ((0, 60), (0, 90), (200, 260)))
    RangeReplacement(kept.lake, runs, Engine(kept, ledger, [])).replace_closed(wide)
    gave_way = RangeReplacement(kept.lake, runs, Engine(kept, ledger, [])).replace_closed(low)
    assert gave_way.above is not None
    assert (gave_way.run.status, gave_way.above.run) == ("gave_way", wide.run)
    part = runs.start("backfill", 250, 300, log_epoch=None)
    RangeReplacement(kept.lake, runs, Engine(kept, ledger, [])).replace_closed(part)
    ended = RangeReplacement(kept.lake, runs, Engine(kept, ledger, [])).replace_closed(some)
    assert (ended.run.status, ended.run.run) == ("committed", some.run)
    assert ended.run.generation > part.generation


def test_X1_of_two_streams_that_take_their_leases_at_once_the_one_that_has_the_log_has_all(kept: Kept) -> None:
    log, ledger = runs_contract(PIPELINE), TABLE
    kept.lake.ensure(log, {"epoch": "-1"})
    first, second = Lease.take(kept.lake, log.table), Lease.take(kept.lake, log.table)
    Lease.take(kept.lake, ledger, first)
    folds = Lease.take(kept.lake, ledger, second)
    with pytest.raises(FencedError):
        Lease.take(kept.lake, ledger, first)
    folds.check()
    kept.lake.mark(ledger, {**folds.properties, "landing": "99"}, kept.lake.head(ledger).snapshot)
    Lease.take(kept.lake, ledger, second).check()


def test_X1_a_lease_says_whether_its_writer_lands_the_log(kept: Kept) -> None:
    log = runs_contract(PIPELINE)
    kept.lake.ensure(log, {"epoch": "-1"})
    landing = Lease.take(kept.lake, TABLE, Lease.take(kept.lake, log.table))
    assert kept.lake.head(TABLE).properties["landing"] == landing.properties["landing"] == "1"
    Lease.borrow(kept.lake, TABLE, "x")
    assert kept.lake.head(TABLE).properties["landing"] == "1", "the stream's still"
    from_the_log = Lease.take(kept.lake, TABLE)
    assert "landing" not in kept.lake.head(TABLE).properties | from_the_log.properties


@pytest.mark.parametrize("write", ["ours", "pyiceberg"])
def test_null_lists_of_structs_are_read_and_written_as_they_are(settings: Settings, write: str) -> None:
    type = "array<struct<n:int,inner:array<struct<m:int>>>>"
    log = Log(name="deep", columns={"at": "timestamp", "place": "int", "lists": type}, event_time="at")
    lake = Lake(settings)
    lake.ensure(log_contract(log), {"epoch": "-1"})
    lists: Any = [
        None,
        [],
        [{"n": 1, "inner": None}, None, {"n": 2, "inner": [None, {"m": 3}]}],
        None,
        [{"inner": []}],
    ] * 9
    rows = [
        {"at": datetime(2024, 1, 1, tzinfo=UTC), "place": n, "lists": one, "_epoch": 0} for n, one in enumerate(lists)
    ]
    table = pa.Table.from_pylist(rows, schema=lake.table("deep").schema().as_arrow())
    if write == "ours":
        lake.change("deep", FileChange(tuple(lake.write_files("deep", table))), {}, lake.head("deep").snapshot)
    else:
        lake.table("deep").append(table)
    lake.table("deep").delete("place < 2 or place = 20")
    read = {row["place"]: row["lists"] for row in lake.rows("deep")[1]}
    assert read == {n: table["lists"][n].as_py() for n in range(2, 45) if n != 20}
