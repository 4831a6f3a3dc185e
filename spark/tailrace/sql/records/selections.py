"""Write a definition's steps as SQL. Records go through the steps before window assignment (Dataflow Model, 2.1).

A step that is custom code cannot be written as SQL; an engine calls the code of such a step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tailrace.model.base.conditions import term_at
from tailrace.model.base.types import struct_type
from tailrace.model.definition.batch_steps import EachBatch
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.packed_columns import Explode, Pack, Unpack
from tailrace.model.definition.record_steps import (
    Derive,
    ElementWise,
    Reasons,
    SetAside,
    SparkColumns,
    SparkFrame,
)
from tailrace.sql.terms import Query, Relation, Sql, bracketed, null, quoted

FAILED = "_failed"
"""The column with the reason why a step rejected the record; null if all steps accepted the record."""


def may_fail(pipeline: Ranged) -> bool:
    """Return True if a step may reject records."""
    types = pipeline.log.columns
    for one in pipeline.each:
        if one.may_fail(types):
            return True
        types = one.columns(types)
    return False


def leaves_out(pipeline: Ranged) -> bool:
    """Return True if a step may drop a record."""
    return not all(map(keeps_each, pipeline.each))


def step_query(
    step: ElementWise, source: Relation, types: Mapping[str, str], columns: Collection[str], *, failing: bool
) -> Query | None:
    """Return the query that applies a step to a relation's records, or None if the step is custom code.

    `types` maps the columns that the definition knows to their types. `failing` is True if the records have the column
    `FAILED`. A rejected record is passed on as one record, even if the step makes several records from one accepted
    record. `columns` are all columns of the relation; this argument is needed only if the step may drop records.
    """
    if isinstance(step, Derive):
        terms = {name: quoted(name) for name in types}
        items = (
            f"CAST({value.term(Sql(), terms, types)} AS {value.type(types)}) AS {quoted(name)}"
            for name, value in step.values.items()
        )
        return _judged(step, Query(f"SELECT *, {', '.join(items)} FROM {source}"), types, failing=failing)
    if isinstance(step, SetAside):
        return Query(f"SELECT *, {set_aside(step.reasons)} AS {FAILED} FROM {source}")
    if isinstance(step, SparkColumns):
        # No expression is computed for a record that an earlier step rejected, because the expression might fail for
        # this record.
        values = {
            name: f"IF({FAILED} IS NULL, {text}, NULL)" if failing else text for name, (_, text) in step.values.items()
        }
        items = (f"CAST({values[name]} AS {type}) AS {quoted(name)}" for name, (type, _) in step.values.items())
        return Query(f"SELECT *, {', '.join(items)} FROM {source}")
    if isinstance(step, Pack):
        return Query(f"SELECT *, {_packed(step, types)} FROM {source}")
    if isinstance(step, Unpack):
        made = _unpacked(step, types)
        if failing:
            made = f"IF({FAILED} IS NULL, {made}, {_nothing_unpacked(step, types)})"
        shared = [quoted(name) for name in columns if name != step.name]
        return Query(f"SELECT {', '.join(shared)}, INLINE({made}) FROM {source}")
    if isinstance(step, Explode):
        own = ", ".join(map(quoted, columns))
        return Query(f"SELECT {own}, {_exploded(step, types, failing=failing)} FROM {source}")
    return None


def _packed(step: Pack, types: Mapping[str, str]) -> str:
    """Return the select-list item that packs the step's columns into one struct column."""
    struct = f"NAMED_STRUCT({', '.join(f'{name!r}, {quoted(column)}' for name, column in step.fields.items())})"
    terms = {name: quoted(name) for name in types}
    term = struct if step.keep is None else f"IF({step.keep.holds(Sql(), terms, types)}, {struct}, NULL)"
    return f"{term} AS {quoted(step.name)}"


def _unpacked(step: Unpack, types: Mapping[str, str]) -> str:
    """Return the SQL expression for the list of elements into which a row is unpacked.

    If the step has `outer`, an empty list becomes a list with one null.
    """
    taken = quoted(step.name) if step.first is None else f"SLICE({quoted(step.name)}, 1, {step.first})"
    made = taken
    if step.place is not None:
        # The names of the lambda's parameters begin with an underscore, and column names do not. If a parameter had the
        # name of a column, DuckDB would read the column instead.
        terms = [f"'{name}', _a.{quoted(name)}" for name in step.fields(types)]
        # The index `_i` counts from 0, but the position column counts from 1.
        terms.append(f"'{step.place}', CAST(_i + 1 AS bigint)")
        made = f"TRANSFORM({taken}, (_a, _i) -> NAMED_STRUCT({', '.join(terms)}))"
    return f"IF(SIZE({taken}) > 0, {made}, {_nothing_unpacked(step, types)})" if step.outer else made


def _nothing_unpacked(step: Unpack, types: Mapping[str, str]) -> str:
    """Return the SQL expression for a list with one null element, which makes all unpacked columns null."""
    fields = (f"{quoted(name)}:{type}" for name, type in step.columns(types).items() if name not in types)
    return f"ARRAY(CAST(NULL AS struct<{','.join(fields)}>))"


def _exploded(step: Explode, types: Mapping[str, str], *, failing: bool) -> str:
    """Return the select-list item that makes a row of each element, with the new columns.

    A rejected record makes one row, in which the new columns are null.
    """
    elements = term_at(Sql(), {name: quoted(name) for name in types}, step.name)
    if step.place is None:
        one = f"ARRAY({null(step.element(types))})"
    else:
        # The index `_i` counts from 0, but the position column counts from 1.
        row = f"NAMED_STRUCT('{step.into}', _a, '{step.place}', CAST(_i + 1 AS bigint))"
        one = f"ARRAY({null(struct_type(step.made(types)))})"
    taken = elements if step.place is None else f"TRANSFORM({elements}, (_a, _i) -> {row})"
    if step.outer:
        taken = f"IF({elements} IS NULL OR SIZE({elements}) = 0, {one}, {taken})"
    if failing:
        taken = f"IF({FAILED} IS NULL, {taken}, {one})"
    return f"EXPLODE({taken}) AS {quoted(step.into)}" if step.place is None else f"INLINE({taken})"


def _judged(step: Derive, made: Query, types: Mapping[str, str], *, failing: bool) -> Query:
    """Return the query for records after a step.

    If the step may reject records, the column `FAILED` has the reason. The SQL expression for the reason refers to the
    computed columns by name, so each value is computed only once.
    """
    o, terms = Sql(), {name: quoted(name) for name in types}
    reasons = [
        f"IF({quoted(name)} IS NULL AND NOT {step.values[name].missing(o, terms, types)}, {o.literal(why, 'string')}, "
        f"{null('string')})"
        for name, why in step.reasons(types).items()
    ]
    if not reasons:
        return made
    if failing:
        reasons.insert(0, FAILED)
    why = reasons[0] if len(reasons) == 1 else f"COALESCE({', '.join(reasons)})"
    others = f"* EXCEPT ({FAILED})" if failing else "*"
    return Query(f"SELECT {others}, {why} AS {FAILED} FROM ({made})")


def set_aside(reasons: Reasons) -> str:
    """Return the SQL expression for the reason why a stream set a record aside, or for null for all other records (rule
    X7).

    `reasons` maps the positions of the set-aside records to the reasons.
    """
    o = Sql()
    cases = (
        f"WHEN _epoch = {place.epoch}L AND _source <=> {o.literal(place.source, 'string')} "
        f"AND _offset <=> {o.literal(place.offset, 'bigint')} THEN {o.literal(reason, 'string')}"
        for place, reason in reasons.items()
    )
    return f"CASE {' '.join(cases)} ELSE {null('string')} END"


def query_steps(definition: Ranged, source: Relation, columns: Collection[str]) -> Relation | None:
    """Return the bracketed query that applies all steps of a definition to a relation's records.

    Returns None if a step is custom code. `columns` are the relation's columns; the list may be empty if no step drops
    records.
    """
    types, columns, failing = dict(definition.log.columns), list(columns), False
    for step in definition.each:
        text = step_query(step, source, types, columns, failing=failing)
        if text is None:
            return None
        source, own = bracketed(text), step.columns(types)
        columns = [*(name for name in columns if name in own or name not in types), *(n for n in own if n not in types)]
        if step.may_fail(types) and not failing:
            failing = True
            columns.append(FAILED)
        types = dict(own)
    return source


def accepted_records(prepared: Relation) -> Relation:
    """Return a relation of the records that all steps accepted; `prepared` is a relation with the column `FAILED`."""
    return Relation(f"(SELECT * EXCEPT ({FAILED}) FROM {prepared} WHERE {FAILED} IS NULL)")


def rejected_records(prepared: Relation) -> Query:
    """Return the query for the records that a step rejected; `prepared` is a relation with the column `FAILED`."""
    return Query(f"SELECT * FROM {prepared} WHERE {FAILED} IS NOT NULL")


def is_common(step: ElementWise) -> bool:
    """Return True if a step can be written in the common SQL, which every engine can run."""
    return isinstance(step, Derive | Pack | SetAside | Unpack | Explode)


def keeps_each(step: ElementWise) -> bool:
    """Return True if a step always makes exactly one record from each record."""
    return isinstance(step, Derive | EachBatch | SparkColumns | Pack | SetAside)


def needs_spark(pipeline: Ranged) -> bool:
    """Return True if a step of the definition is written in Spark code, which only Spark can run."""
    return any(isinstance(one, SparkColumns | SparkFrame) for one in pipeline.each)
