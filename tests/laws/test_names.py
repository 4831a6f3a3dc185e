"""What a definition says does not depend on what its columns are called, on DuckDB either."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import event, given, seed
from hypothesis import strategies as st

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Col,
    Collect,
    Computation,
    Context,
    Count,
    Derive,
    Distinct,
    Fixed,
    Global,
    Highest,
    Join,
    Log,
    Map,
    Match,
    Max,
    Pack,
    Pipeline,
    RecordError,
    Sessions,
    Sum,
    Timer,
    TopK,
    Unpack,
    hours,
    minutes,
)
from tailrace.backfill.backfill import backfill_stages
from tailrace.model.base.errors import DefinitionError
from tailrace.model.base.names import RESERVED, RESERVED_KEYS
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Ranged
from tailrace.model.step.chain_fold import fold_chain
from tailrace.model.step.reference import fold
from tailrace.settings import Settings
from tests.backfill.test_chains import folded, on
from tests.support.cases.strategies import each_time_the_same
from tests.support.depth import cases
from tests.support.engines.computation_folds import Folded
from tests.support.engines.engine_runs import OnDuck
from tests.support.engines.spark_runs import said_by_reference

HOSTILE = [
    *(
        "a",
        "b",
        "c",
        "d",
        "e",
        "f",
        "h",
        "i",
        "j",
        "k",
        "l",
        "m",
        "n",
        "o",
        "p",
        "r",
        "s",
        "t",
        "v",
        "w",
        "x",
        "y",
        "z",
    ),
    *("old", "new", "ends", "told", "lost", "value", "values", "row", "rows", "part", "spans", "island", "apart"),
    *(
        "select",
        "from",
        "where",
        "group",
        "order",
        "table",
        "join",
        "left",
        "right",
        "on",
        "case",
        "end",
        "null",
        "true",
    ),
    *("interval", "date", "timestamp", "user", "all", "any", "distinct", "limit", "struct", "array", "union", "desc"),
    *("lambda", "macro", "filter", "window", "over", "partition", "at", "now", "entry", "touched", "remains", "change"),
    *("early_emits", "on_time_emits", "late_emits", "fired_x", "pending_x", "new_x", "old_x", "part_x", "s_x", "x_n"),
    *("source_epoch", "event_id", "sign", "place", "kept", "side", "key", "records", "query", "seen", "closed"),
    *sorted(RESERVED | RESERVED_KEYS),
]

Make = Callable[[Sequence[str]], Ranged]


def log(names: Sequence[str]) -> Log:
    return Log(name="taken", columns=dict(zip(names, ("timestamp", "string", "bigint", "string"), strict=False)),
               event_time=names[0])  # fmt: skip


def sessions(n: Sequence[str]) -> Ranged:
    first = Pipeline(
        name="one", log=log(n), key=n[1], where=Sessions(minutes(30)), how=RETRACTING, allowed_lateness=hours(1),
        what={n[4]: TopK(n[2], 2), n[5]: Collect(n[2]), n[6]: Max(n[2]), n[7]: Count()},
        when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    )  # fmt: skip
    what = {n[4]: Distinct(n[6]), n[5]: Max(n[6]), n[7]: Sum(n[8])}
    steps = Derive({n[8]: Col(n[6]) * 2})
    return Pipeline(name="two", log=first.panes, each=steps, key=n[1], where=Global(), how=RETRACTING, what=what,
                    when=AfterWatermark(late=AfterCount(1)))  # fmt: skip


def packed(n: Sequence[str]) -> Ranged:
    pack = Pack(n[4], {n[5]: n[2], n[6]: n[3]}, Match(n[2], ">", 0))
    return Pipeline(
        name="one", log=log(n), each=pack, key=n[1], where=Fixed(hours(1)),
        what={n[7]: Highest(n[4], by=n[5]), n[8]: Collect(n[4])}, when=AfterWatermark(late=AfterCount(1)),
    )  # fmt: skip


def unpacked(n: Sequence[str]) -> Ranged:
    pack = Pack(n[4], {n[5]: n[2], n[6]: n[3]})
    first = Pipeline(
        name="one", log=log(n), each=pack, key=n[1], where=Fixed(hours(1)), what={n[7]: Collect(n[4])}, how=RETRACTING,
    )  # fmt: skip
    return Pipeline(
        name="two", log=first.panes, each=Unpack(n[7], place=n[8]), key=n[6], where=Global(), how=RETRACTING,
        what={n[4]: Sum(n[5]), n[9]: Sum(n[8])}, when=AfterWatermark(late=AfterCount(1)),
    )  # fmt: skip


def joined(n: Sequence[str]) -> Ranged:
    twice = Map(name="twice", log=log(n), each=Derive({n[4]: Col(n[2]) * 2}), what=(n[1], n[4]))
    met = Join(name="met", left=log(n), right=twice.produced, on=n[1], within=hours(1), kind="left",
               left_columns={n[5]: n[2]}, right_columns={n[6]: n[4]})  # fmt: skip
    return Pipeline(name="one", log=met.produced, key=n[1], where=Fixed(hours(2)), how=RETRACTING,
                    what={n[7]: Sum(n[6]), n[8]: Count()}, when=AfterWatermark(late=AfterCount(1)))  # fmt: skip


PLAIN = [f"plain_{letter}" for letter in "abcdefghij"]
names = st.lists(st.sampled_from(HOSTILE), min_size=10, max_size=10, unique=True)


def refused(error: DefinitionError) -> None:
    """A name that is not taken is named, with another one or what to do."""
    assert error.faults
    event("refused")


@seed(3)
@each_time_the_same(cases(12, deeper=120))
@given(data=st.data())
def test_names_are_columns_names_alone_as_reference_and_DuckDB_agree(data: st.DataObject) -> None:
    make = data.draw(st.sampled_from([sessions, packed, unpacked]))
    drawn = data.draw(names)
    try:
        definition: Any = make(drawn)
    except DefinitionError as error:
        refused(error)
        return
    made = data.draw(epochs_of(definition.stages[0].log))
    run = fold(definition, made)
    expected = said_by_reference(definition, run.panes, run.late, run.rejected)
    assert OnDuck().said(definition, made)[-1] == expected


def epochs_of(log: Log) -> st.SearchStrategy[Any]:
    """A few records in two epochs, the second at the end of the input."""
    from tailrace.model.base.clock import Clock
    from tailrace.model.base.time import END_OF_TIME, instant

    at, who, number, text = log.columns
    records = st.lists(
        st.builds(
            lambda minute, key, value, word: {
                at: on(f"01T{minute // 60:02}:{minute % 60:02}"), who: key, number: value, text: word,
            },
            st.integers(0, 300), st.sampled_from("ab"), st.integers(-3, 3), st.sampled_from(["x", "y"]),
        ), max_size=8,
    )  # fmt: skip
    return st.tuples(records, records, records).map(
        lambda three: [
            (three[0], Clock(0, instant(on("01T01:00")), 0)),
            (three[1], Clock(1, instant(on("01T03:00")), 1)),
            (three[2], Clock(2, END_OF_TIME, 2)),
        ]
    )


@seed(4)
@each_time_the_same(cases(4, deeper=40))
@given(data=st.data())
def test_renamed_columns_change_no_row_in_folds_backfills_and_audits(data: st.DataObject) -> None:
    make = data.draw(st.sampled_from([sessions, packed, unpacked, joined]))
    drawn = data.draw(names)
    try:
        definition = make(drawn)
    except DefinitionError as error:
        refused(error)
        return
    plain = make(PLAIN)
    rides = data.draw(epochs_of(log(PLAIN)))
    found = []
    for one, called in ((definition, drawn), (plain, PLAIN)):
        with tempfile.TemporaryDirectory() as folder:
            columns = dict(zip(PLAIN, called, strict=True))
            made = [
                (mark, [{columns[name]: value for name, value in record.items()} for record in records])
                for mark, (records, _) in zip(("01T01:00", "01T03:00", None), rides, strict=True)
            ]
            world = folded(Path(folder), one, *made)
            backfill_stages(world.lake, one, BEGINNING)
            world.clean()
            found.append([world.rows(stage) for stage in chain(one)])
            world.group.close()
    assert found[0] == found[1]


def summing(n: Sequence[str], *, ordered: bool) -> Computation:
    class Sums(Computation):
        state = {n[4]: "bigint"}
        produces = {n[5]: "bigint", n[6]: "string"}

        def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
            total = (getattr(context.state, n[4]) or 0) + record[n[2]]
            setattr(context.state, n[4], total)
            context.set_timer(n[7], record[n[0]] + minutes(30))
            if total > 4:
                raise RecordError(n[8])

        def process_timer(self, context: Context, timer: Timer) -> None:
            context.produce({n[5]: getattr(context.state, n[4]), n[6]: timer.name})

    return Sums(name="sums", log=log(n), key=(n[1], n[3]), ordered=ordered)


@seed(5)
@each_time_the_same(cases(6, deeper=60))
@given(data=st.data(), ordered=st.booleans())
def test_names_of_a_computation_are_columns_names_alone(data: st.DataObject, ordered: bool) -> None:
    drawn = data.draw(names)
    try:
        definition = summing(drawn, ordered=ordered)
    except DefinitionError as error:
        refused(error)
        return
    made = data.draw(epochs_of(definition.log))
    landed = [
        ([{**row, "_epoch": epoch, "_source": "taken", "_offset": n} for n, row in enumerate(rows)], clock)
        for epoch, (rows, clock) in enumerate(made)
    ]
    run = fold_chain(definition, landed)[-1]
    with tempfile.TemporaryDirectory() as folder:
        one = Folded(Settings(warehouse=Path(folder) / "lake", contracts=Path(folder), memory="1GB"), definition)
        for rows, clock in made:
            one.epoch(rows, clock)
            one.fold.close()
            one.anew()
        told = Counter((row["epoch"], *(row[name] for name in (drawn[1], drawn[3], drawn[5], drawn[6])))
                       for row in one.rows("production"))  # fmt: skip
        rejected = Counter((row["source_epoch"], row["source_offset"]) for row in one.rows("rejected"))
        one.clean()
        one.fold.close()
    assert told == Counter((p.epoch, *p.key, p.values[drawn[5]], p.values[drawn[6]]) for p in run.productions)
    assert rejected == Counter((bad.record["_epoch"], bad.record["_offset"]) for bad in run.rejected)
