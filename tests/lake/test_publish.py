"""The commit protocol on each kind of catalog: branches, the lease, generations (rules X1, X2, V2). No JVM."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from tailrace.engines.duckdb.iceberg_query import by_duckdb
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.sqlite import changing_catalog
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.lease import Lease
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.contracts import log_contract
from tailrace.lake.schema.lake_errors import FencedError, LakeError, MovedError
from tailrace.lake.schema.pipeline_tables import ledger_contract
from tailrace.model.samples import examples
from tailrace.settings import Settings
from tests.support.services.catalogs import LAKES, LOCAL, Servers

PIPELINE = examples.figure(14)
LEDGER = ledger_contract(PIPELINE).table


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Start servers of PostgreSQL, of Glue and of S3 as they are asked for: 4 seconds for all of them."""
    with Servers(tmp_path_factory.mktemp("servers")) as made:
        yield made


@pytest.fixture(params=[kind if kind in LOCAL else pytest.param(kind, marks=pytest.mark.slow) for kind in LAKES])
def lake(request: pytest.FixtureRequest, servers: Servers, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    told, env = servers.lake(request.param, settings)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    made = Lake(told)
    made.ensure(ledger_contract(PIPELINE), {"epoch": "-1", "generation": "1"})
    return made


def write(lake: Lake, branch: Branch, epoch: int) -> None:
    """What Spark does: an append to the branch, which says its epoch."""
    branch.open_for_spark()
    loaded = lake.table(branch.table)
    schema = loaded.schema().as_arrow()
    row = dict.fromkeys(schema.names) | {"kind": "pane", "epoch": epoch}
    rows = pa.Table.from_pylist([row], schema=schema)
    loaded.append(rows, branch=branch.name, snapshot_properties={"tailrace.epoch": str(epoch)})


def epochs(lake: Lake) -> list[int]:
    return sorted(lake.table(LEDGER).scan().to_arrow()["epoch"].to_pylist())


def test_X1_a_table_that_many_make_at_once_is_made_once_and_is_never_seen_without_what_it_says(lake: Lake) -> None:
    contract, makers = log_contract(PIPELINE.log), 4
    begin, over = threading.Barrier(makers + 1), threading.Event()

    def make(number: int) -> str | None:
        own = Lake(lake.settings)
        begin.wait()
        own.ensure(contract, {"by": str(number)})
        return own.head(contract.table).properties.get("by")

    def look() -> list[dict[str, str]]:
        own, seen = Lake(lake.settings), []
        begin.wait()
        while not over.is_set():
            if own.has(contract.table):
                seen.append(dict(own.head(contract.table).properties))
        return seen

    with ThreadPoolExecutor(makers + 1) as pool:
        looking, making = pool.submit(look), [pool.submit(make, number) for number in range(makers)]
        by = {one.result() for one in making}
        over.set()
        seen = looking.result()
    assert len(by) == 1
    assert len(lake.table(contract.table).metadata.snapshots) == 1
    assert all(one["by"] in by for one in seen)


def test_X2_who_dies_as_it_makes_a_table_leaves_none(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    contract = log_contract(PIPELINE.log)

    def dies(*given: Any) -> Any:
        raise RuntimeError("dead")

    with monkeypatch.context() as patched:
        patched.setattr(changing_catalog(lake.catalog), "commit_table", dies)
        with pytest.raises(RuntimeError, match="dead"):
            lake.ensure(contract, {"epoch": "-1"})
    assert not lake.has(contract.table)
    lake.ensure(contract, {"epoch": "-1"})
    assert lake.head(contract.table).properties == {"epoch": "-1"}


def test_X2_what_is_written_is_not_visible_until_it_is_published(lake: Lake) -> None:
    lease = Lease.take(lake, LEDGER)
    write(lake, lease.branch, 0)
    assert epochs(lake) == []
    lease.publish({"epoch": "0"})
    assert epochs(lake) == [0]
    assert lake.head(LEDGER).number("epoch") == 0


def test_X1_a_writer_that_lost_its_lease_publishes_nothing(lake: Lake) -> None:
    zombie = Lease.take(lake, LEDGER)
    write(lake, zombie.branch, 0)
    heir = Lease.take(lake, LEDGER)
    with pytest.raises(FencedError, match="another stream took the lease"):
        zombie.publish({"epoch": "0"})
    assert epochs(lake) == []
    write(lake, heir.branch, 0)
    heir.publish({"epoch": "0", "token": str(heir.token)})
    assert epochs(lake) == [0]


def test_X1_a_commit_overtaken_by_a_backfill_is_written_again_on_top(lake: Lake) -> None:
    lease = Lease.take(lake, LEDGER)
    write(lake, lease.branch, 0)
    other = Branch(lake, LEDGER, "backfill_x")
    head = other.start()
    other.open_for_spark()
    loaded = lake.table(LEDGER)
    rows = pa.Table.from_pylist(
        [dict.fromkeys(loaded.schema().as_arrow().names) | {"kind": "pane", "epoch": 99}],
        schema=loaded.schema().as_arrow(),
    )
    said = {f"tailrace.{name}": value for name, value in head.properties.items()}
    loaded.append(rows, branch="backfill_x", snapshot_properties=said)
    other.publish()
    with pytest.raises(MovedError):
        lease.publish({"epoch": "0"})
    assert epochs(lake) == [99], "nothing of the overtaken commit is there"
    write(lake, lease.branch, 0)
    lease.publish({"epoch": "0"})
    assert epochs(lake) == [0, 99]


def test_X1_of_many_that_publish_from_one_snapshot_just_one_succeeds(lake: Lake) -> None:
    branches = [Branch(lake, LEDGER, f"racer_{n}") for n in range(6)]
    for number, branch in enumerate(branches):
        branch.start()
        write(lake, branch, number)

    def publish(branch: Branch) -> bool:
        try:
            branch.publish()
        except MovedError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        won = list(pool.map(publish, branches))
    assert sum(won) == 1
    assert epochs(lake) == [won.index(True)]


@pytest.mark.parametrize("goes_on", [False, True], ids=["alone", "and another goes on from it"])
def test_X1_a_commit_that_is_refused_as_one_that_has_landed_is_one_that_has(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """As Glue does where its reply was lost and its client has sent the commit again."""
    kind, landed = type(changing_catalog(lake.catalog)), list[int | None]()
    commit_of = kind.commit_table

    def again(self: Any, *args: Any) -> Any:
        done = commit_of(self, *args)
        if not landed:
            landed.append(done.metadata.current_snapshot_id)
            if goes_on:
                lake.mark(LEDGER, {"epoch": "8"}, landed[0])
            raise CommitFailedException("somebody was quicker")
        return done

    monkeypatch.setattr(kind, "commit_table", again)
    made = lake.enter(LEDGER, [{"kind": "pane", "epoch": 7}], {"epoch": "7"}, lake.head(LEDGER).snapshot)
    assert [made] == landed
    assert epochs(lake) == [7], "its files are there"
    assert lake.head(LEDGER).number("epoch") == (8 if goes_on else 7)


def test_X3_a_foreign_commit_does_not_hide_the_last_epoch(lake: Lake) -> None:
    lease = Lease.take(lake, LEDGER)
    write(lake, lease.branch, 7)
    lease.publish({"epoch": "7"})
    loaded = lake.table(LEDGER)
    loaded.append(loaded.schema().as_arrow().empty_table())
    assert lake.head(LEDGER).number("epoch") == 7


def test_V2_runs_that_start_at_once_take_generations_of_their_own(lake: Lake) -> None:
    runs = Runs(lake, PIPELINE)
    with ThreadPoolExecutor(4) as pool:
        started = list(pool.map(lambda n: runs.start("backfill", n, n + 1, log_epoch=0), range(8)))
    assert sorted(run.generation for run in started) == list(range(1, 9))


def test_V4_a_run_sees_that_a_higher_generation_covers_its_range(lake: Lake) -> None:
    runs = Runs(lake, PIPELINE)
    low = runs.start("backfill", 0, 100, log_epoch=0)
    high = runs.start("backfill", 50, 150, log_epoch=0)
    assert runs.run_above(low) is None, "a run that has not committed covers nothing"
    runs.note(high, status="committed")
    above = runs.run_above(low)
    assert above is not None
    assert above.run == high.run
    assert runs.run_above(high) is None


def test_duckdb_reads_what_is_published(lake: Lake) -> None:
    head = lake.head(LEDGER).snapshot
    for epoch in range(3):
        head = lake.enter(LEDGER, [{"kind": "pane", "epoch": epoch}], {"epoch": str(epoch)}, head)
    assert by_duckdb(lake, f"SELECT max(epoch) AS m, count(*) AS n FROM {LEDGER}").to_pylist() == [{"m": 2, "n": 3}]


def test_a_missing_table_says_what_to_do(settings: Settings) -> None:
    lake = Lake(settings)
    with pytest.raises(LakeError, match="start a stream of its definition first"):
        lake.head(log_contract(PIPELINE.log).table)
    assert not lake.exists, "asking made no catalog"
