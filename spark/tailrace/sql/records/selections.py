"""A definition's steps in SQL: what is done with each record before it gets its windows (Dataflow Model, 2.1).

Steps that are code of one's own have no text here: an engine calls them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.model.definition.chain import Ranged
from tailrace.model.definition.joins import Pack, Pairs, Unpack
from tailrace.model.definition.record_steps import Derive, Each, ElementWise, SparkColumns, SparkFrame
from tailrace.sql.records.join_sides import packed, paired, unpacked
from tailrace.sql.terms import Relation, Sql, quoted

FAILED = "_failed"
"""The column that says why a step could not take a record; null where all steps could."""


def may_fail(pipeline: Ranged) -> bool:
    """Tell whether a step may reject records."""
    return any(isinstance(one, Each) for one in pipeline.each)


def leaves_out(pipeline: Ranged) -> bool:
    """Tell whether a step may leave a record out, by making none of it."""
    return not all(map(keeps_each, pipeline.each))


def selected(step: ElementWise, types: Mapping[str, str], columns: list[str]) -> list[str] | None:
    """Write a step as the select-list of a query over records with these `columns`; None for code of one's own.

    `types` are the types of those columns that a definition knows.
    """
    if isinstance(step, Derive):
        terms = {name: quoted(name) for name in types}
        return [
            "*",
            *(
                f"CAST({value.term(Sql(), terms, types)} AS {value.type(types)}) AS {quoted(name)}"
                for name, value in step.values.items()
            ),
        ]
    if isinstance(step, SparkColumns):
        return ["*", *(f"CAST({text} AS {type}) AS {quoted(n)}" for n, (type, text) in step.values.items())]
    if isinstance(step, Pack):
        return ["*", packed(step, types)]
    if isinstance(step, Pairs):
        shared = [quoted(name) for name in columns if name not in (step.left, step.right)]
        return [*shared, f"INLINE({paired(step, types)})"]
    if isinstance(step, Unpack):
        shared = [quoted(name) for name in columns if name != step.name]
        return [*shared, f"INLINE({unpacked(step, types)})"]
    return None


def stepped(definition: Ranged, source: Relation, columns: list[str]) -> Relation | None:
    """Write a relation, with these columns, after a definition's steps: a query in brackets.

    None where a step is code of one's own. Where no step may leave a record out, `columns` may be empty.
    """
    types = dict(definition.log.columns)
    for step in definition.each:
        items = selected(step, types, columns)
        if items is None:
            return None
        source, own = Relation(f"(SELECT {', '.join(items)} FROM {source})"), step.columns(types)
        columns = [*(name for name in columns if name in own or name not in types), *(n for n in own if n not in types)]
        types = dict(own)
    return source


def is_common(step: ElementWise) -> bool:
    """Tell whether a step is written in the common SQL, which any engine reads."""
    return isinstance(step, Derive | Pack | Pairs | Unpack)


def keeps_each(step: ElementWise) -> bool:
    """Tell whether a step always makes one record of one."""
    return isinstance(step, Derive | SparkColumns | Pack)


def needs_spark(pipeline: Ranged) -> bool:
    """Tell whether a step is written for Spark."""
    return any(isinstance(one, SparkColumns | SparkFrame) for one in pipeline.each)
