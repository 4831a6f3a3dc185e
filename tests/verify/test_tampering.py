"""What another hand changes in a lake, an audit names: rows of any table, files, commits, and what commits say."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Col,
    Computation,
    Context,
    Count,
    Derive,
    Fixed,
    Join,
    Map,
    Match,
    Pipeline,
    Sessions,
    Sum,
    minutes,
    seconds,
)
from tailrace.backfill.backfill import backfill
from tailrace.lake.catalog.lake import PREFIX, Lake
from tailrace.lake.commit.epoch_properties import clock_properties
from tailrace.lake.digests.commit_digest import DIGEST
from tailrace.lake.schema.table_names import ledger_name, rejected_name, runs_name
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.definition import Definition
from tailrace.operate.answers_repair import accept, repair_answers
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tailrace.verify.tampering.audit_result import Audit
from tests.support.depth import DEPTH
from tests.support.lakes.several_logs import CLICKS, VIEWS, Logs, Part, click, reached, view

SEEN = Pipeline(
    name="seen", log=VIEWS, key="ad", what={"n": Count()}, where=Fixed(minutes(1)), how=RETRACTING,
    when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)), allowed_lateness=seconds(30),
)  # fmt: skip
EARNED = Pipeline(
    name="earned", log=CLICKS, key="ad", what={"cents": Sum("cents")}, where=Sessions(seconds(40)),
    when=AfterWatermark(late=AfterCount(1)), allowed_lateness=seconds(30),
)  # fmt: skip
DEAR = Map(
    name="dear",
    log=CLICKS,
    each=Derive({"twice": Col("cents") * 2}),
    keep=Match("cents", ">=", 2),
    what=("ad", "twice"),
)
CLICKED = Join(
    name="clicked", left=VIEWS, right=CLICKS, on="ad", within=(seconds(5), seconds(60)),
    left_columns={"viewed_at": "at"}, right_columns={"clicked_at": "seen", "cents": "cents"},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Running(Computation):
    """How often each ad was clicked so far, said at each click."""

    state = {"n": "bigint"}
    produces = {"total": "bigint"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        context.state.n = (context.state.n or 0) + 1
        context.produce({"total": context.state.n})


RUNNING = Running(name="running", log=CLICKS, key="ad", allowed_lateness=seconds(10))
DEFINITIONS: dict[str, Definition] = {one.name: one for one in (SEEN, EARNED, DEAR, CLICKED, RUNNING)}
LOGS = {log.name: [one for one in DEFINITIONS.values() if log in one.sources] for log in (VIEWS, CLICKS)}
OWNERS = {
    **LOGS,
    **{rejected_name(log): of for log, of in LOGS.items()},
    **{ledger_name(name): [one] for name, one in DEFINITIONS.items()},
    **{name: [DEFINITIONS[name]] for name in ("seen", "earned")},
    **{runs_name(name): [DEFINITIONS[name]] for name in ("seen", "dear", "clicked")},
}
"""Each table, with the definitions whose audit is to name what is done to it."""


class Kept:
    """A lake that is tampered with in its place, as its paths are absolute, and put back from a copy each time."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(warehouse=folder / "lake", contracts=folder / "contracts", memory="1GB")
        self.copy = folder / "copy"
        self.lake = Lake(self.settings)
        _filled(self.lake)
        self.folder = Path(str(self.settings.warehouse))
        shutil.copytree(self.folder, self.copy)

    def anew(self) -> None:
        """Look at the lake as another process does, which has kept nothing of what it read."""
        self.lake.catalog.close()
        self.lake = Lake(self.settings)

    def put_back(self) -> None:
        self.lake.catalog.close()
        shutil.rmtree(self.folder)
        shutil.copytree(self.copy, self.folder)
        self.lake = Lake(self.settings)


def _filled(lake: Lake) -> None:
    """Land ten epochs, some records too late and some rejected; fold all definitions, and backfill those that may."""
    logs, chance = Logs(lake), random.Random(3)
    for epoch in range(8):
        now = 30 * (epoch + 1)
        times = [now - chance.choice([1, 2, 10, 150]) for _ in range(6)]
        views = [view(at, chance.choice("ab")) for at in times[:3]]
        clicks = [click(at, chance.choice("ab"), chance.randrange(9)) for at in times[3:]]
        logs.land({"views": Part(views, reached(now - 5)), "clicks": Part(clicks, reached(now - 5))})
        for log in (VIEWS, CLICKS):
            place = {"_epoch": epoch, "_source": f"{log.name}.json", "_offset": 100}
            row = {"raw": b"{", "error": "no object", **place}
            name = rejected_name(log.name)
            lake.enter(name, [row], clock_properties(Clock(epoch, 0, epoch)), lake.head(name).snapshot)
        if epoch == 4:
            logs.fold(*DEFINITIONS.values())
    logs.fold(*DEFINITIONS.values())
    for one in (SEEN, DEAR, CLICKED):
        backfill(lake, one, BEGINNING, reached(150))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return Kept(tmp_path_factory.mktemp("tampering"))


@pytest.fixture
def lake(kept: Kept) -> Iterator[Callable[[], Lake]]:
    def anew() -> Lake:
        kept.anew()
        return kept.lake

    yield anew
    kept.put_back()


def audited(lake: Lake, one: Definition, *, deep: bool = False) -> Audit:
    if isinstance(one, Computation):
        return audit(lake, one, deep=deep)
    return audit(lake, one, deep=deep)


def faults(lake: Lake, one: Definition, *, deep: bool = False) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in audited(lake, one, deep=deep).checks if not check.ok]


def test_X6_what_nobody_touched_adds_up_for_every_kind(kept: Kept) -> None:
    for one in DEFINITIONS.values():
        assert not faults(kept.lake, one, deep=True)
        late = kept.lake.table(ledger_name(one.name)).scan("kind = 'late'").count()
        assert isinstance(one, Map) or late, "some came too late"


def own_properties(table: Table) -> dict[str, str]:
    """What a table's last commit says, its digest included, to be forged."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    said = snapshot.summary.additional_properties
    return {name: value for name, value in said.items() if name.startswith(PREFIX) or name == DIGEST}


def _row(table: Table, chance: random.Random) -> tuple[pa.Table, int]:
    rows = table.scan().to_arrow()
    return rows, chance.randrange(rows.num_rows)


def doubles(lake: Lake, name: str, chance: random.Random) -> None:
    table = lake.table(name)
    rows, place = _row(table, chance)
    table.append(rows.slice(place, 1))


def forges(lake: Lake, name: str, chance: random.Random) -> None:
    table = lake.table(name)
    rows, place = _row(table, chance)
    table.append(rows.slice(place, 1), snapshot_properties=own_properties(table))


def _overwrites(table: Table, rows: pa.Table, said: Mapping[str, str] = MappingProxyType({})) -> None:
    with warnings.catch_warnings():
        # Of a table that Spark would delete from by delete files.
        warnings.filterwarnings("ignore", "Merge on read is not yet supported")
        table.overwrite(rows, snapshot_properties=dict(said))


def deletes(lake: Lake, name: str, chance: random.Random) -> None:
    table = lake.table(name)
    rows, place = _row(table, chance)
    _overwrites(table, pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)]))


def changes(lake: Lake, name: str, chance: random.Random) -> None:
    """Change a number of a row, or a text where it has none, and say of the commit what the one before said."""
    table = lake.table(name)
    rows, place = _row(table, chance)
    (row,) = rows.slice(place, 1).to_pylist()
    column = chance.choice([one for one, value in row.items() if isinstance(value, int | str) and value is not True])
    value = row[column]
    row[column] = value + 1 if isinstance(value, int) else value + "x"
    other = pa.Table.from_pylist([row], rows.schema)
    rest = pa.concat_tables([rows.slice(0, place), other, rows.slice(place + 1)])
    _overwrites(table, rest, own_properties(table))


def _file(lake: Lake, name: str, chance: random.Random) -> Path:
    files = [task.file.file_path for task in lake.table(name).scan().plan_files()]
    return Path(chance.choice(sorted(files)).removeprefix("file://"))


def flips(lake: Lake, name: str, chance: random.Random) -> None:
    path = _file(lake, name, chance)
    some = bytearray(path.read_bytes())
    some[chance.randrange(len(some))] ^= 1 << chance.randrange(8)
    path.write_bytes(some)


def cuts(lake: Lake, name: str, chance: random.Random) -> None:
    path = _file(lake, name, chance)
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def removes(lake: Lake, name: str, chance: random.Random) -> None:
    _file(lake, name, chance).unlink()


def swaps(lake: Lake, name: str, chance: random.Random) -> None:
    path = _file(lake, name, chance)
    others = [one for one in path.parent.parent.rglob("*.parquet") if one.read_bytes() != path.read_bytes()]
    shutil.copyfile(chance.choice(sorted(others)), path)


def takes_back(lake: Lake, name: str, chance: random.Random) -> None:
    """Make an earlier commit the current one, as Iceberg's `rollback_to_snapshot` does."""
    table = lake.table(name)
    before = [entry.snapshot_id for entry in table.metadata.snapshot_log][:-1]
    table.manage_snapshots().rollback_to_snapshot(chance.choice(before)).commit()


def edits(lake: Lake, name: str, chance: random.Random) -> None:
    """Change what a commit says in the table's metadata."""
    path = Path(lake.table(name).metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    said = chance.choice([
        one["summary"] for one in metadata["snapshots"] if any(name.startswith(PREFIX) for name in one["summary"])
    ])  # fmt: skip
    which = chance.choice([one for one in said if one.startswith(PREFIX)])
    said[which] += "0"
    path.write_text(json.dumps(metadata))


ROWS = (doubles, forges, deletes, changes)
FILES = (flips, cuts, removes, swaps)
COMMITS = (takes_back, edits)
WAYS = (*ROWS, *FILES, *COMMITS)
SEEDS = range(30 if DEPTH < 2 else 150 * DEPTH)


@pytest.mark.parametrize("seed", SEEDS)
def test_X6_an_audit_names_the_table_that_another_hand_has_changed(lake: Callable[[], Lake], seed: int) -> None:
    chance = random.Random(seed)
    way, name = WAYS[seed % len(WAYS)], chance.choice(sorted(OWNERS))
    way(lake(), name, chance)
    for one in OWNERS[name]:
        found = faults(lake(), one, deep=way in FILES)
        assert found, f"{way.__name__} {name} goes unseen"
        assert any(name in fault for fault in found), found


def unchained(lake: Lake, name: str, way: Callable[[], None]) -> None:
    """Tamper, and have the table's commits pass: what is left to find it by are the rows."""
    way()
    (commit,) = (one.snapshot_id for one in [lake.table(name).current_snapshot()] if one)
    accept(lake, [name], [commit], "a test")


UNSEEN: dict[str, tuple[str, str, str]] = {
    "an_answer_doubled": ("seen", "true", "panes give the answers"),
    "a_pane_of_a_backfill_doubled": ("seen__ledger", "kind = 'pane' AND writer = 'backfill'", "ledger twice"),
    "a_state_doubled": ("seen__ledger", "kind = 'partial'", "ledger twice"),
    "a_late_row_doubled": ("seen__ledger", "kind = 'late'", "late rows"),
    "a_rejected_row_doubled": ("views__rejected", "true", "rejected are those that were landed"),
    "a_record_doubled": ("views", "true", "landed twice"),
    "a_row_of_a_map_doubled": ("dear__ledger", "kind = 'production'", "rows are the batch's"),
    "a_pair_doubled": ("clicked__ledger", "kind = 'production'", "pairs are the batch's"),
    "a_production_doubled": ("running__ledger", "kind = 'production'", "ledger twice"),
}


@pytest.mark.parametrize("which", UNSEEN)
def test_X6_rows_that_are_there_twice_are_found_by_the_rows_alone(lake: Callable[[], Lake], which: str) -> None:
    name, where, said = UNSEEN[which]
    table = lake().table(name)
    rows = table.scan(where if where != "true" else "_epoch >= 0" if "_epoch" in table.schema().column_names
                      else "epoch >= 0").to_arrow()  # fmt: skip
    wanted = rows if "backfill" not in which else rows.filter(pa.compute.equal(rows["writer"], "backfill"))
    assert wanted.num_rows
    unchained(lake(), name, lambda: table.append(wanted.slice(0, 1)))
    found = faults(lake(), OWNERS[name][0])
    assert any(said in fault for fault in found), found


def test_X6_a_late_row_that_is_gone_is_missed_whether_or_not_a_backfill_came_since(lake: Callable[[], Lake]) -> None:
    for name in ("seen", "earned"):
        table = lake().table(ledger_name(name))
        rows = table.scan().to_arrow()
        late = [place for place, kind in enumerate(rows["kind"].to_pylist()) if kind == "late"]
        rest = pa.concat_tables([rows.slice(0, late[0]), rows.slice(late[0] + 1)])
        unchained(lake(), ledger_name(name), partial(_overwrites, table, rest))
        found = faults(lake(), DEFINITIONS[name])
        assert any("every record is in a window or late" in fault for fault in found), found
        assert any("late rows are those that the clocks judge" in fault for fault in found), found


@pytest.mark.parametrize("way", [doubles, deletes, changes])
def test_L2_a_repair_makes_the_answers_what_the_ledger_says(
    lake: Callable[[], Lake], way: Callable[[Lake, str, random.Random], None]
) -> None:
    before = sorted(map(str, lake().table("seen").scan().to_arrow().to_pylist()))
    way(lake(), "seen", random.Random(1))
    assert faults(lake(), SEEN)
    done = repair_answers(lake(), SEEN)
    assert done.written
    assert done.missing + done.more > 0
    assert sorted(map(str, lake().table("seen").scan().to_arrow().to_pylist())) == before
    assert not faults(lake(), SEEN)
    again = repair_answers(lake(), SEEN)
    assert (again.written, again.missing, again.more) == (False, 0, 0)


def test_V4_a_backfill_puts_right_an_answer_that_is_there_twice(lake: Callable[[], Lake]) -> None:
    before = lake().table("seen").scan().count()
    table = lake().table("seen")
    rows = table.scan().to_arrow()
    ends = rows["window_end"].to_pylist()
    closed = min(range(rows.num_rows), key=lambda place: ends[place])
    table.append(rows.slice(closed, 1))
    done = backfill(lake(), SEEN, BEGINNING, reached(150))
    assert sum(one.changed for one in done) == 1
    assert lake().table("seen").scan().count() == before
