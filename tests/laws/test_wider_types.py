"""Columns of a log get wider types: definitions that use them go on in their generations, with the same answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    ApproxDistinct,
    ApproxQuantile,
    Col,
    Collect,
    Computation,
    Count,
    Derive,
    Distinct,
    Each,
    Field,
    First,
    Fixed,
    Join,
    Last,
    Log,
    Map,
    Match,
    Max,
    Mean,
    Pipeline,
    Sum,
    TopK,
    Variance,
    minutes,
)
from tailrace.backfill.backfill import backfill
from tailrace.fold.fold_group import FoldGroup
from tailrace.fold.streamed_definitions import landed_logs
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.stored_meaning import former_definition
from tailrace.lake.change import migration
from tailrace.lake.change.migration import evolve, fit_log
from tailrace.lake.read.status import status
from tailrace.lake.schema.contracts import log_contract, rejected_contract
from tailrace.lake.schema.lake_errors import FormerShapeError, OtherDefinitionError
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, instant
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.fingerprint import Change
from tailrace.model.definition.wider_types import with_types
from tailrace.model.step.reference import fold_stages
from tailrace.model.step.step import WindowsState
from tailrace.plan.definition_changes import plan_change
from tailrace.settings import Settings
from tailrace.trace.tracing import Tracing
from tailrace.trace.wanted_records import Wanted, find_records
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.cases.stages import chains
from tests.support.cases.strategies import BASE, LOG, Epochs, epochs, examples, perhaps_told, pipelines
from tests.support.depth import deep
from tests.support.engines.spark_runs import arrow_bundle, said_by_reference, said_by_rows
from tests.support.lakes.recorded_ledgers import land, no_spark

NARROW = {LOG.name: {"value": "int", "lane": "int", "price": "decimal(8,2)"}}
WIDE = {LOG.name: {"value": "bigint", "lane": "bigint", "price": "decimal(12,2)"}}
WIDEST = {LOG.name: {"value": "bigint", "lane": "bigint", "price": "decimal(18,2)"}}


def numbered(made: Epochs) -> Epochs:
    return [(bundle, replace(clock, epoch=place, signals=())) for place, (bundle, clock) in enumerate(made)]


class Folded:
    """A lake into which a test folds epochs, by definitions with types that it chooses."""

    def __init__(self, folder: Path, *logs: Log) -> None:
        self.lake = Lake(Settings(warehouse=folder / "lake", engine="duckdb", memory="1GB"))
        for log in logs:
            for contract in (log_contract(log), rejected_contract(log)):
                self.lake.ensure(contract, {"epoch": "-1"})

    def fold(self, made: Epochs, *definitions: Definition) -> None:
        for log in landed_logs(definitions):
            for bundle, clock in made:
                land(self.lake, log.name, arrow_bundle(log, bundle, clock.epoch), clock)
        group = FoldGroup(no_spark, self.lake, definitions, follow_every=1)
        if made:
            list(group.missed_epochs(made[-1][1].epoch))
        group.close()

    def rows(self, name: str) -> list[str]:
        """The rows of a definition's ledger, of what it consumed, too, and of its answers."""
        ledger = self.lake.table(f"{name}__ledger").scan("kind <> 'partial'").to_arrow().to_pylist()
        answers = self.lake.table(name).scan().to_arrow().to_pylist() if self.lake.has(name) else []
        own = ("_commit", "written_at", "run")
        return sorted(repr({n: v for n, v in row.items() if n not in own}) for row in [*ledger, *answers])

    def said(self, stage: Pipeline) -> Any:
        return said_by_rows(stage, self.lake.table(f"{stage.name}__ledger").scan().to_arrow())


@st.composite
def definitions(draw: st.DrawFn) -> Pipeline:
    if draw(st.integers(0, 2)) == 0:
        return draw(chains())
    return draw(perhaps_told(draw(pipelines())))


@examples(2, deeper=30)
@given(data=st.data())
def test_V6_a_stream_goes_on_over_wider_types_as_if_they_had_always_been_so(data: st.DataObject) -> None:
    drawn = data.draw(definitions())
    narrow, wide, widest = (with_types(drawn, types) for types in (NARROW, WIDE, WIDEST))
    made = numbered(data.draw(epochs(drawn, max_epochs=4)))
    assume(sum(len(bundle) for bundle, _ in made) >= 4)
    first, second = sorted(data.draw(st.tuples(*(st.integers(0, len(made)) for _ in range(2)))))
    with TemporaryDirectory() as folder:
        folded = Folded(Path(folder), narrow.sources[0])
        folded.fold(made[:first], narrow)
        # A stream of the former definition may go on over tables that are wider already.
        going_on = data.draw(st.sampled_from([narrow, wide]))
        evolve(folded.lake, wide)
        folded.fold(made[first:second], going_on)
        evolve(folded.lake, widest)
        folded.fold(made[second:], widest)
        runs = fold_stages(widest, made, [WindowsState(generation=1) for _ in widest.stages])
        for stage, run in zip(widest.stages, runs, strict=True):
            assert folded.lake.head(f"{stage.name}__ledger").number("generation") == 1
            assert folded.said(stage) == said_by_reference(stage, run.panes, run.late, run.rejected)
        found = replay(folded.lake, widest)
        assert found.ok, (found.counts, found.differences)


# ------------------------------------------------------------------------------------------------- of all kinds

RIDES = Log(
    name="rides",
    columns={
        "at": "timestamp", "zone": "int", "price": "int", "fee": "decimal(8,2)", "weight": "float",
        "rent": "decimal(27,2)",
        "stops": "array<struct<n:int,fee:decimal(8,2)>>",
    },
    event_time="at",
)  # fmt: skip
WIDER = {
    "zone": "bigint", "price": "bigint", "fee": "decimal(18,2)", "weight": "double", "rent": "decimal(28,2)",
    "stops": "array<struct<n:bigint,fee:decimal(10,2)>>",
}  # fmt: skip
WALKS = Log(name="walks", columns={"at": "timestamp", "zone": "int", "price": "int"}, event_time="at")
WIDE_RIDES, WIDE_WALKS = (
    replace(log, columns={**log.columns, **{n: t for n, t in WIDER.items() if n in log.columns}}, grows=True)
    for log in (RIDES, WALKS)
)


@dataclass(frozen=True, kw_only=True)
class Sums(Computation):
    """A computation whose key and records have the wider types."""

    state: ClassVar = {"sum": Field("bigint", 0)}
    produces: ClassVar = {"sum": "bigint"}
    reads: ClassVar[str | tuple[str, ...] | None] = ("price", "fee")

    def process_record(self, context: Any, record: Mapping[str, Any]) -> None:
        context.state.sum += (record["price"] or 0) + int(100 * record["fee"])
        context.produce({"sum": context.state.sum})


def over(rides: Log, walks: Log) -> tuple[Any, ...]:
    hourly = Pipeline(
        name="hourly", log=rides, key="zone", where=Fixed(minutes(10), phase="zone"), how=RETRACTING,
        each=Derive({"both": Col("price") * 3 + Col("fee"), "far": Col("weight") * 2}),
        keep=Match("price", ">", -90),
        what={
            "n": Count("weight"), "most": Max("price"), "fees": Collect("fee"), "some": Distinct("price"),
            "total": Sum("price"), "paid": Sum("fee"), "rent": Sum("rent"), "all": Sum("both"), "way": Sum("far"),
            "mean": Mean("price"),
            "spread": Variance("price"), "spread_fee": Variance("fee"), "first": First("weight"), "top": TopK("fee", 2),
            "last": Last("weight"),

            "kinds": ApproxDistinct("price"), "middle": ApproxQuantile("fee", 0.5), "stops": Collect("stops"),
            "best": TopK("price", 1, by=("fee", "price")),
        },
        when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)), allowed_lateness=minutes(20), answers=True,
    )  # fmt: skip
    what: Any = {"most": Max("most"), "sum": Sum("paid"), "each": Collect("first_fee")}
    later = Pipeline(
        name="later", log=hourly.panes, where=Fixed(minutes(30)), how=RETRACTING, what=what,
        each=Derive({"first_fee": Col("paid")}), key="zone", when=AfterWatermark(late=AfterCount(1)),
    )  # fmt: skip
    dear = Map(name="dear", log=rides, keep=Match("fee", ">", Decimal("0.01")))
    pairs = Join(
        name="pairs", left=rides, right=walks, on="zone", within=minutes(2), kind="left",
        right_columns={"walked": "price"},
    )  # fmt: skip
    return later, dear, pairs, Sums(name="sums", log=rides, key="zone")


def rides(first: int, count: int, wide: bool = False) -> Epochs:
    """Epochs of four rides each, with values that just the wider types have."""
    made: Epochs = []
    for place in range(first, first + count):
        at = BASE + minutes(7 * place)
        more, fee = (2**40, Decimal("123456789012345.90")) if wide else (0, Decimal("0.00"))
        each: list[Any] = [
            {
                "at": at + minutes(n), "zone": n % 2 + (more if n == 3 else 0), "price": n - place + more,
                "fee": Decimal(place + n).scaleb(-1) + fee, "weight": 0.25 * n + place, "rent": Decimal(n) + 7 * fee,
                "stops": [{"n": n, "fee": Decimal("1.10")}, None] if n else None,
            }
            for n in range(4)
        ]  # fmt: skip
        made.append((each, Clock(place, instant(at), instant(at))))
    return made


@dataclass
class Killed:
    """A commit of a migration after which the process dies."""

    commit: Callable[..., None]
    left: int = 1

    def __call__(self, *given: Any) -> None:
        self.commit(*given)
        if not self.left:
            return
        self.left -= 1
        raise InterruptedError


def _dies(killed: Killed, run: Callable[[], None]) -> int:
    """Run what dies with its first commit; raises `StopIteration` if there is none."""
    killed.left = 1
    try:
        run()
    except InterruptedError:
        return 1
    raise StopIteration


@deep
def test_V6_every_kind_goes_on_over_wider_types(tmp_path: Path) -> None:
    grown, fresh = Folded(tmp_path / "grown", RIDES, WALKS), Folded(tmp_path / "fresh", WIDE_RIDES, WIDE_WALKS)
    narrow, wide = over(RIDES, WALKS), over(WIDE_RIDES, WIDE_WALKS)
    grown.fold(rides(0, 1), *narrow)
    for log in (WIDE_RIDES, WIDE_WALKS):
        fit_log(grown.lake, log)
    with pytest.raises(FormerShapeError, match="hourly__ledger has columns for narrower values"):
        check_definition(grown.lake, chain(wide[0])[0])
    grown.fold(rides(1, 1, wide=True), *wide)
    fresh.fold([*rides(0, 1), *rides(1, 1, wide=True)], *wide)
    for one in {stage.name: stage for last in wide for stage in chain(last)}.values():
        assert grown.rows(one.name) == fresh.rows(one.name), one.name
        assert grown.lake.head(f"{one.name}__ledger").number("generation") == 1
        assert former_definition(grown.lake, one) is None
    found = audit(grown.lake, wide[0])
    assert found.ok, [check for check in found.checks if not check.ok]


# --------------------------------------------------------------------------------------------- columns with other names

SALES = Log(
    name="sales",
    columns={"at": "timestamp", "city": "string", "price": "int", "fee": "int", "user": "struct<age:int>"},
    event_time="at",
    required=("price",),
)
SOLD = replace(
    SALES,
    columns={"when": "timestamp", "city": "string", "amount": "bigint", "fee": "int", "buyer": "struct<age:int>"},
    event_time="when",
    required=("amount",),
)
FORMER = {"when": "at", "amount": "price", "buyer": "user"}


def sums(log: Log, amount: str, buyer: str, **more: Any) -> Pipeline:
    own: dict[str, Any] = {
        "key": "city", "where": Fixed(minutes(10)), "how": RETRACTING, "keep": Match(amount, ">", 0),
        "each": Derive({"gain": Col(amount) - Col("fee")}),
        "what": {
            "n": Count(), "sum": Sum(amount), "gains": Sum("gain"), "best": TopK("fee", 1, by=(amount,)),
            "oldest": Max("age"), "first": First(amount),
        },
        "when": AfterWatermark(late=AfterCount(1)), "allowed_lateness": minutes(20),
    } | more  # fmt: skip
    own["each"] = (own["each"], Derive({"age": Col(f"{buyer}.age")}))
    return Pipeline(name="sums", log=log, **own)


def sales(first: int, count: int, names: Mapping[str, str] = MappingProxyType({})) -> Epochs:
    made: Epochs = []
    for place in range(first, first + count):
        at = BASE + minutes(7 * place)
        each = [
            {"at": at + minutes(n), "city": "ab"[n % 2], "price": n + place - 1, "fee": n, "user": {"age": 30 + n}}
            for n in range(4)
        ]
        own = {former: now for now, former in names.items()}
        renamed = [{own.get(name, name): value for name, value in one.items()} for one in each]
        made.append((renamed, Clock(place, instant(at), instant(at))))
    return made


def traces(lake: Lake, definition: Pipeline) -> list[Any]:
    """What became of every record of the log."""
    found = find_records(lake, definition.log, Wanted(where="_epoch >= 0"), 100)
    return [step for record in found.landed for step in Tracing(lake, definition).of(record)]


def test_V6_a_definition_goes_on_over_columns_that_were_renamed_and_widened_whatever_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, now = sums(SALES, "price", "user"), sums(SOLD, "amount", "buyer")
    grown, fresh = Folded(tmp_path / "grown", SALES), Folded(tmp_path / "fresh", SOLD)
    grown.fold(sales(0, 2), before)
    assert plan_change(grown.lake, now).change is Change.BREAKING, "the log's columns were not renamed"
    with grown.lake.table("sales").update_schema() as update:
        for column, former in FORMER.items():
            update.rename_column(former, column)
    fit_log(grown.lake, replace(SOLD, grows=True))
    said = plan_change(grown.lake, now)
    assert (said.change, said.differ) == (Change.NOTHING, None)
    assert (said.renamed, said.wider) == (FORMER, {"amount": ("int", "bigint")})
    killed = Killed(migration.commit)
    monkeypatch.setattr(migration, "commit", killed)
    deaths = 0
    with suppress(StopIteration):
        while True:
            deaths += _dies(killed, lambda: grown.fold([], now))
    assert deaths == 2, "the ledger and the answers are widened in commits of their own"
    killed.left = 0
    grown.fold(sales(2, 2, FORMER), now)
    fresh.fold([*sales(0, 2, FORMER), *sales(2, 2, FORMER)], now)
    assert grown.rows("sums") == fresh.rows("sums")
    assert grown.lake.head("sums__ledger").number("generation") == 1
    assert not [run for run in backfill(grown.lake, now, BEGINNING) if run.changed]
    traced = [
        sorted(
            repr([getattr(step, name, None) for name in ("state", "key", "window")]) for step in traces(one.lake, now)
        )
        for one in (grown, fresh)
    ]
    assert traced[0] == traced[1]
    assert len(traced[0]) == 16
    own = status(grown.lake, now).own
    assert own is not None
    assert own.same_definition
    # The definition with the former names means the same.
    again = sums(replace(SALES, columns={**SALES.columns, "price": "bigint"}), "price", "user")
    assert (plan_change(grown.lake, again).change, audit(grown.lake, again).ok) == (Change.NOTHING, True)


def test_V6_a_renamed_key_or_column_of_code_needs_a_new_generation(tmp_path: Path) -> None:
    grown = Folded(tmp_path, SALES)
    # Its code may look for the column by the former name.
    code = Each(lambda record: {"gain": len(record)}, {"gain": "int"})

    def each(log: Log, amount: str, buyer: str) -> tuple[Pipeline, Pipeline]:
        coded = sums(log, amount, buyer, each=code)
        return replace(sums(log, amount, buyer, key=amount), name="keyed"), replace(coded, name="coded")

    grown.fold(sales(0, 1), *each(SALES, "price", "user"))
    with grown.lake.table("sales").update_schema() as update:
        for column, former in FORMER.items():
            update.rename_column(former, column)
    keyed, coded = each(replace(SOLD, columns={**SOLD.columns, "amount": "int"}), "amount", "buyer")
    said = plan_change(grown.lake, keyed)
    assert (said.change, said.differ) == (Change.BREAKING, "keyed__ledger would not have column price")
    assert plan_change(grown.lake, coded).change is Change.BREAKING
    for one in (keyed, coded):
        with pytest.raises(OtherDefinitionError):
            check_definition(grown.lake, one)
