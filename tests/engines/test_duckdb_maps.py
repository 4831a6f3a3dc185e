"""A map on DuckDB gives what the reference gives, and a run over a range leaves what the reference gives by then."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given, seed
from hypothesis import strategies as st

from tailrace.engines.batch.batch_answers import map_output
from tailrace.engines.duckdb.database.dialect import in_duckdb_once
from tailrace.engines.duckdb.productions import MapExecution
from tailrace.engines.duckdb.session import DuckSession
from tailrace.model.base.clock import Clock
from tailrace.model.definition.map import Map
from tailrace.sql.results.backfill_rows import BackfillVersion
from tailrace.sql.results.output_rows import output_rows
from tailrace.sql.terms import Condition, Relation
from tailrace.verify.audit_checks import in_common
from tests.support.cases.maps import STEPS, Rows, by_reference, by_rows, random_maps
from tests.support.cases.strategies import Record, bundles, each_time_the_same
from tests.support.depth import cases
from tests.support.engines.engine_runs import CONNECTION
from tests.support.engines.spark_runs import arrow_bundle

EACH_TIME_THE_SAME = each_time_the_same(cases(20, deeper=60))


def folded(definition: Map, cut: list[list[Record]]) -> pa.Table:
    """The ledger's rows of a stream over bundles."""
    one = MapExecution(CONNECTION.cursor(), definition)
    made = [one.rows(arrow_bundle(definition.log, bundle, epoch), clock(epoch), 1) for epoch, bundle in enumerate(cut)]
    return pa.concat_tables([one.schema.empty_table(), *made])


def clock(epoch: int) -> Clock:
    return Clock(epoch, 0, 1_000 + epoch)


@seed(1)
@EACH_TIME_THE_SAME
@given(definition=random_maps(), cut=st.lists(bundles(), max_size=4))
def test_L1_a_map_gives_what_the_reference_gives_however_its_input_is_cut(
    definition: Map, cut: list[list[Record]]
) -> None:
    rows = folded(definition, cut).to_pylist()
    epochs = [(bundle, clock(epoch)) for epoch, bundle in enumerate(cut)]
    assert by_rows(definition, rows) == by_reference(definition, epochs)
    given_, _ = by_reference(definition, epochs)
    one, _ = by_reference(definition, [([record for bundle in cut for record in bundle], clock(0))])
    assert without_place(given_) == without_place(one)


def without_place(rows: Rows) -> Rows:
    found = Rows()
    for row, times in rows.items():
        found[row[:-2]] += times
    return found


@seed(2)
@EACH_TIME_THE_SAME
@given(data=st.data())
def test_V4_what_a_run_writes_leaves_the_rows_of_the_steps_as_they_are_by_then(
    session: DuckSession, data: st.DataObject
) -> None:
    # Both give the same columns: the one that a stream ran with, and the one whose code is another.
    before = data.draw(random_maps(steps=STEPS[:3:2]))
    after = replace(before, keep=data.draw(random_maps()).keep)
    cut = data.draw(st.lists(bundles(), min_size=1, max_size=3))
    log = session.relation_of(
        pa.concat_tables([arrow_bundle(before.log, bundle, epoch) for epoch, bundle in enumerate(cut)])
    )
    ledger = folded(before, cut)
    epochs = [(bundle, clock(epoch)) for epoch, bundle in enumerate(cut)]
    for generation, definition in ((2, after), (3, after), (4, before)):
        own = output_rows(definition)
        text = own.differences(map_output(session, definition, log), own.current(session.relation_of(ledger)))
        found = session.counted(text, {"different": Condition("change <> 'same'")})
        text = own.corrected(found.relation, BackfillVersion("run", generation, len(cut) - 1, 0, 0))
        rows = session.connection.execute(in_duckdb_once(text)).to_arrow_table()
        ledger = pa.concat_tables([ledger, rows.cast(ledger.schema)])
        left = session.rows(own.current(session.relation_of(ledger)))
        wanted, _ = by_reference(definition, epochs)
        assert by_rows(definition, [{**row, "kind": "production"} for row in left])[0] == wanted
        assert found.counts["different"] == 0 or generation != 3


def test_rows_in_common_are_those_that_are_as_often_in_both(session: DuckSession) -> None:
    ledger, log = (
        session.relation_of(pa.table({place: values, why: ["x"] * len(values)}))
        for place, why, values in (("at", "reason", [1, 2, 2, 3, None]), ("_at", "_failed", [1, 2, 2, 3, 3, None]))
    )
    assert in_common(session, ledger, Relation(f"(SELECT * FROM {log})"), {"at": "_at", "reason": "_failed"}) == 4
