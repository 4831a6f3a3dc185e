"""What brings a live table to its contract: planned by kind, done in one commit of metadata, hurting nobody unasked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.migration import commit, evolve_table
from tailrace.lake.commit.lease import Lease
from tailrace.lake.schema.column_names import match_names
from tailrace.lake.schema.contract_diff import ContractChange, Effect, contract_changes
from tailrace.lake.schema.contracts import PROPERTIES, Column, Contract
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.settings import Settings

SAFE, HURTS, REFUSED = Effect.SAFE, Effect.DESTRUCTIVE, Effect.REFUSED

COLUMNS = {
    "who": Column("string", "who it is", required=True),
    "n": Column("int", "how many"),
    "price": Column("decimal(8,2)", "in crowns"),
    "at": Column("timestamp", "when it was"),
    "state": Column("struct<sum:int,seen:bigint>", "what is kept"),
    "past": Column("array<struct<sum:int>>", "what was kept before"),
    "values": Column("array<int>", "one by one"),
}
BASE = Contract("t", "a table", COLUMNS, key=("who",), owner="us", partition_by=("who",), sort_by=("who",))
ROW: dict[str, Any] = {"who": "a", "n": 1, "state": {"sum": 2, "seen": 3}, "past": [{"sum": 4}], "values": [5]}


def with_columns(**changed: Column | None) -> Contract:
    """The contract with columns changed, added at the end, or left out."""
    columns = {name: column for name, column in (COLUMNS | changed).items() if column is not None}
    return replace(BASE, columns=columns)


def renamed(before: str, name: str, **more: Any) -> Contract:
    columns = {name if one == before else one: column for one, column in COLUMNS.items()}
    columns[name] = replace(columns[name], was=(before,), **more)
    return replace(BASE, columns=columns)


def retyped(name: str, type: str) -> Contract:
    return with_columns(**{name: replace(COLUMNS[name], type=type)})


def required(name: str, value: bool) -> Contract:
    return with_columns(**{name: replace(COLUMNS[name], required=value)})


@dataclass(frozen=True)
class Case:
    """A contract that was, one that is agreed, and what it takes; whether there are rows, and what they then say."""

    said: str
    effect: Effect
    agreed: Contract
    live: Contract = BASE
    rows: bool = True
    then: Mapping[str, Any] | None = None


CASES = {
    "a column is added": Case(
        "add column note (string)", SAFE, with_columns(note=Column("string", "for people")), then={"note": None}
    ),
    "a required one, with rows": Case(
        "add column note (string)", REFUSED, with_columns(note=Column("string", "x", True))
    ),
    "a required one, without": Case(
        "add column note (string)", HURTS, with_columns(note=Column("string", "x", True)), rows=False
    ),
    "int becomes bigint": Case("widen n from int to bigint", SAFE, retyped("n", "bigint"), then={"n": 1}),
    "a decimal is widened": Case(
        "widen price from decimal(8,2) to decimal(12,2)", SAFE, retyped("price", "decimal(12,2)")
    ),
    "a decimal of another scale": Case(
        "change the type of price from decimal(8,2) to decimal(12,4)", REFUSED, retyped("price", "decimal(12,4)")
    ),
    "a field is widened": Case(
        "widen state.sum from int to bigint", SAFE, retyped("state", "struct<sum:bigint,seen:bigint>"),
        then={"state": {"sum": 2, "seen": 3}},
    ),
    "a field in a list is widened": Case(
        "widen past.element.sum from int to bigint", SAFE, retyped("past", "array<struct<sum:bigint>>"),
        then={"past": [{"sum": 4}]},
    ),
    "a list's values are widened": Case(
        "widen values.element from int to bigint", SAFE, retyped("values", "array<bigint>")
    ),
    "a field is added": Case(
        "add column state.top (string)", SAFE, retyped("state", "struct<sum:int,seen:bigint,top:string>"),
        then={"state": {"sum": 2, "seen": 3, "top": None}},
    ),
    "a field in a list is added": Case(
        "add column past.element.n (int)", SAFE, retyped("past", "array<struct<sum:int,n:int>>"),
        then={"past": [{"sum": 4, "n": None}]},
    ),
    "a field is dropped": Case(
        "drop column state.seen (bigint)", HURTS, retyped("state", "struct<sum:int>"), then={"state": {"sum": 2}}
    ),
    "a column is narrowed": Case(
        "change the type of n from bigint to int", REFUSED, BASE, live=retyped("n", "bigint")
    ),
    "narrowed with no rows": Case(
        "change the type of n from bigint to int", HURTS, BASE, live=retyped("n", "bigint"), rows=False
    ),
    "a number becomes a text": Case("change the type of n from int to string", REFUSED, retyped("n", "string")),
    "a column is renamed": Case("rename column n to number", SAFE, renamed("n", "number"), then={"number": 1}),
    "one that is partitioned by": Case(
        "rename column who to person", SAFE,
        replace(renamed("who", "person"), partition_by=("person",), sort_by=("person",), key=("who",)),
        then={"person": "a"},
    ),
    "columns change places": Case(
        "reorder columns price, who, n, at, state, past, values", SAFE,
        replace(BASE, columns={"price": COLUMNS["price"]} | COLUMNS),
    ),
    "a column's doc": Case(
        "document n: 'how many, a minute', it said 'how many'", SAFE,
        with_columns(n=Column("int", "how many, a minute")),
    ),
    "the table's doc": Case(
        "set property comment to another table, it was a table", SAFE, replace(BASE, doc="another table")
    ),
    "a column is dropped": Case("drop column n (int)", HURTS, with_columns(n=None)),
    "required, with no null": Case("make required: n", HURTS, required("n", True), then={"n": 1}),
    "required, with nulls": Case("make required: price", REFUSED, required("price", True)),
    "not required any more": Case("make optional: who", SAFE, required("who", False), then={"who": "a"}),
    "partitioned by more": Case(
        "partition by bucket(4, who)", SAFE, replace(BASE, partition_by=("who", "bucket(4, who)"))
    ),
    "partitioned by a span": Case("partition by day(at)", SAFE, replace(BASE, partition_by=("who", "day(at)"))),
    "partitioned no more": Case("partition no more by who", SAFE, replace(BASE, partition_by=())),
    "sorted otherwise": Case("sort by who, at desc, it was by who", SAFE, replace(BASE, sort_by=("who", "at desc"))),
    "sorted no more": Case("sort by nothing, it was by who", SAFE, replace(BASE, sort_by=())),
    "a property is set": Case(
        "set property write.target-file-size-bytes to 1000000, it was not set", SAFE,
        replace(BASE, properties={**PROPERTIES, "write.target-file-size-bytes": "1000000"}),
    ),
    "another codec": Case(
        "set property write.parquet.compression-codec to snappy, it was zstd", SAFE,
        replace(BASE, properties={**PROPERTIES, "write.parquet.compression-codec": "snappy"}),
    ),
    "another owner": Case("set property owner to them, it was us", SAFE, replace(BASE, owner="them")),
    "another retention": Case(
        "set property tailrace.retention to a year, it was every row, for good", SAFE, replace(BASE, retention="a year")
    ),
    "another key": Case("set property tailrace.key to who, at, it was who", SAFE, replace(BASE, key=("who", "at"))),
    "sorted as before": Case("sort by who, it was by nothing", SAFE, BASE, live=replace(BASE, sort_by=())),
    "a newer format": Case("upgrade format from version 1 to 2", HURTS, BASE, live=replace(BASE, format_version=1)),
    "an older format": Case("downgrade format from version 2 to 1", REFUSED, replace(BASE, format_version=1)),
}  # fmt: skip


def made(settings: Settings, contract: Contract, *, rows: bool = True) -> Lake:
    lake = Lake(settings)
    lake.ensure(contract, {"epoch": "-1"})
    if rows:
        lake.enter(contract.table, [ROW], {"epoch": "0"}, lake.head(contract.table).snapshot)
    return lake


def planned(lake: Lake, contract: Contract) -> list[ContractChange]:
    return contract_changes(contract, lake.table(contract.table))


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_change_is_planned_and_done(case: Case, settings: Settings) -> None:
    lake = made(settings, case.live, rows=case.rows)
    assert planned(lake, case.live) == []
    before = lake.table("t")
    (change,) = planned(lake, case.agreed)
    assert (str(change), change.effect) == (case.said, case.effect)
    assert bool(change.breaks) >= (case.effect is not SAFE), "what hurts says whom"
    unasked = evolve_table(lake, case.agreed)
    assert (unasked.done, unasked.left) == (((change,), ()) if case.effect is SAFE else ((), (change,)))
    if case.effect is not SAFE:
        assert lake.table("t").metadata_location == before.metadata_location, "nothing is changed unasked"
        asked = evolve_table(lake, case.agreed, destructive=True)
        assert (asked.done, asked.left) == (((change,), ()) if case.effect is HURTS else ((), (change,)))
    after = lake.table("t")
    if case.effect is not REFUSED:
        assert planned(lake, case.agreed) == [], "it is as agreed now"
        assert after.metadata.snapshots == before.metadata.snapshots, "no row was written"
    assert after.metadata.refs == before.metadata.refs, "no branch moved"
    if case.rows:
        (row,) = after.scan().to_arrow().to_pylist()
        assert {name: row[name] for name in case.then or {}} == (case.then or {})


def test_there_are_enough_kinds_of_change() -> None:
    assert len(CASES) >= 20
    assert {case.effect for case in CASES.values()} == set(Effect)


def test_many_changes_are_one_commit(settings: Settings) -> None:
    lake = made(settings, BASE)
    agreed = renamed("n", "number", type="bigint", doc="how many, exactly")
    agreed = replace(
        agreed,
        columns={"note": Column("string", "first of all")} | dict(agreed.columns),
        partition_by=("bucket(2, number)",),
        sort_by=("number desc", "who"),
        owner="them",
    )
    log = lake.table("t").metadata.metadata_log
    done = evolve_table(lake, agreed)
    assert [one.kind.value for one in done.done] == [
        *(
            "add column",
            "rename",
            "widen",
            "document",
            "partition no more by",
            "partition by",
            "sort by",
            "set property",
        ),
    ]
    loaded = lake.table("t")
    assert len(loaded.metadata.metadata_log) == len(log) + 1
    assert [field.name for field in loaded.schema().fields][:3] == ["note", "who", "number"]
    assert planned(lake, agreed) == []


def test_what_hurts_is_left_and_the_rest_is_done(settings: Settings) -> None:
    lake = made(settings, BASE)
    agreed = with_columns(values=None, note=Column("string", "for people"), late=Column("int", "x", required=True))
    done = evolve_table(lake, replace(agreed, partition_by=("who", "bucket(4, late)")))
    assert list(map(str, done.done)) == ["add column note (string)"]
    assert [(str(one), one.effect) for one in done.left] == [
        ("add column late (int)", REFUSED),
        ("drop column values (array<int>)", HURTS),
        ("partition by bucket(4, late)", SAFE),
    ]


def test_an_order_that_a_table_had_is_gone_back_to(settings: Settings) -> None:
    lake = made(settings, BASE)
    unsorted, other = replace(BASE, sort_by=()), replace(BASE, sort_by=("n desc",))
    for agreed in (unsorted, other, BASE, unsorted, other):
        evolve_table(lake, agreed)
        assert planned(lake, agreed) == []
    assert len(lake.table("t").metadata.sort_orders) == 3


def test_a_name_that_another_column_had_hurts(settings: Settings) -> None:
    """A stream that was started before would write into it."""
    lake = made(settings, BASE)
    evolve_table(lake, renamed("n", "number"))
    agreed = renamed("n", "number")
    again = replace(agreed, columns=dict(agreed.columns) | {"n": Column("int", "another")})
    (change,) = planned(lake, again)
    assert (str(change), change.effect) == ("add column n (int)", HURTS)
    assert "another column was called n" in change.breaks


def test_X1_a_writer_goes_on_through_any_change(settings: Settings) -> None:
    """Its lease, its branch, what it has staged on it and its next commit are as if nothing had happened."""
    lake = made(settings, BASE)
    lease = Lease.take(lake, "t")
    lease.branch.open_for_spark()
    loaded = lake.table("t")
    loaded.append(loaded.scan().to_arrow(), branch=lease.branch.name, snapshot_properties={"tailrace.epoch": "1"})
    agreed = renamed("n", "number", type="bigint")
    done = evolve_table(lake, replace(agreed, partition_by=("bucket(2, who)",), sort_by=()))
    assert len(done.done) == 5
    assert lease.check().number("token") == lease.token
    lease.publish({"epoch": "1"})
    assert [row["number"] for row in lake.table("t").scan().to_arrow().to_pylist()] == [1, 1]


def test_V4_what_was_staged_before_a_partitioning_is_grafted_as_it_was_written(settings: Settings) -> None:
    lake = made(settings, BASE)
    lake.move("t", "backfill_1", lake.head("t").snapshot or 0, None)
    loaded = lake.table("t")
    loaded.append(loaded.scan().to_arrow(), branch="backfill_1")
    staged = lake.refs("t")["backfill_1"]
    evolve_table(lake, replace(BASE, partition_by=("bucket(2, who)", "n")))
    lake.graft("t", staged, {"epoch": "0"}, lake.head("t").snapshot)
    loaded = lake.table("t")
    assert [row["who"] for row in loaded.scan().to_arrow().to_pylist()] == ["a", "a"]
    assert [row["who"] for row in loaded.scan(row_filter="n = 1").to_arrow().to_pylist()] == ["a", "a"]
    assert planned(lake, replace(BASE, partition_by=("bucket(2, who)", "n"))) == [], "the layout of today stays"


@pytest.mark.parametrize("between", ["a commit", "another change"])
def test_a_change_that_was_overtaken_is_planned_again(
    between: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = made(settings, BASE)
    other = with_columns(mine=Column("int", "of another operator"))
    both = with_columns(mine=Column("int", "of another operator"), ours=Column("int", "ours"))
    tried: list[int] = []

    def overtaken(table: Any, contract: Contract, doing: Any) -> None:
        tried.append(len(doing))
        if len(tried) == 1:
            if between == "a commit":
                lake.mark("t", {"epoch": "1"}, lake.head("t").snapshot)
            else:
                commit(lake.table("t"), other, planned(lake, other))
        commit(table, contract, doing)

    monkeypatch.setattr("tailrace.lake.change.migration.commit", overtaken)
    evolve_table(lake, both)
    assert tried == ([2] if between == "a commit" else [2, 1])
    assert planned(lake, both) == []
    ids = [field.field_id for field in lake.table("t").schema().fields]
    assert len(set(ids)) == len(ids)


def test_a_table_that_never_holds_still_is_given_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = made(settings, BASE)

    def moved(*_: Any) -> None:
        raise MovedError("again")

    monkeypatch.setattr("tailrace.lake.change.migration.commit", moved)
    with pytest.raises(MovedError, match="try again"):
        evolve_table(lake, replace(BASE, owner="them"))


def names(lake: Lake) -> Callable[..., dict[str, str | None]]:
    table = lake.table("t")
    return lambda *columns: match_names(table, columns, [field.name for field in table.schema().fields])


def test_a_column_is_known_by_every_name_that_it_had(settings: Settings) -> None:
    lake = made(settings, BASE)
    evolve_table(lake, renamed("n", "number"))
    agreed = renamed("n", "amount")
    agreed = replace(
        agreed, columns=dict(agreed.columns) | {"amount": replace(agreed.columns["amount"], was=("n", "number"))}
    )
    evolve_table(lake, agreed)
    assert names(lake)("n", "number", "amount", "who", "never") == {
        "n": "amount", "number": "amount", "amount": "amount", "who": "who", "never": None
    }  # fmt: skip
    old = [field.name for field in lake.table("t").schemas()[0].fields]
    assert match_names(lake.table("t"), ["amount"], old) == {"amount": "n"}, "in a snapshot of before"
