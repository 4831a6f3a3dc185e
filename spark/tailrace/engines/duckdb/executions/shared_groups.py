"""Aggregate a bundle once for several definitions that group its records equally.

Definitions group records equally if they have the same log, steps, filter, key and windows. Only their results and
triggers may differ. One query computes the accumulators of all their combiners, and each definition takes its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.dialect import in_duckdb, name_of
from tailrace.lake.schema.column_groups import SPAN
from tailrace.model.base.errors import TailraceError
from tailrace.model.combiners.basic import Combiner
from tailrace.model.definition.pipeline import Pipeline, is_measure
from tailrace.sql.epoch.partials import partials
from tailrace.sql.records.selections import query_steps
from tailrace.sql.terms import Relation

_SOURCE, _CLOCK = Relation("tailrace_grouped_records"), Relation("tailrace_no_clock")
"""The names of the records, and of a clock, which the query reads only if windows merge."""


def grouping_of(pipeline: Pipeline) -> tuple[Any, ...] | None:
    """Return what has to be equal for definitions that group records equally; None if the windows merge.

    Windows that merge depend on the clock of each definition.
    """
    if pipeline.where.merges:
        return None
    measures = dict(pipeline.when.measures())
    how = pipeline.timestamp, pipeline.exceeds_time, measures
    return pipeline.log, pipeline.each, pipeline.key, pipeline.where, pipeline.keep, *how


class SharedGroup:
    """The definitions that group the records of a log equally.

    `steps_in_query` says whether the query also has the steps; otherwise, its records have gone through the steps.
    """

    def __init__(self, first: Pipeline, *, steps_in_query: bool) -> None:
        self._first, self._steps_in_query = first, steps_in_query
        self._combiners = list[Combiner]()
        self._members = 0
        self._whole: Pipeline | None = None

    def add(self, pipeline: Pipeline) -> dict[str, str] | None:
        """Add a definition. Return the names of the parts of its accumulator in the result of the shared query.

        Returns None if the query cannot have the definition's combiners.
        """
        found = dict[str, str]()
        combiners = list(self._combiners)
        for name, combiner in pipeline.what.items():
            if combiner not in combiners:
                combiners.append(combiner)
            found |= {name: f"shared_{combiners.index(combiner)}"}
        try:
            whole = replace(self._first, what={f"shared_{place}": one for place, one in enumerate(combiners)})
        except TailraceError:
            # For example, a column of the log has the name of a shared result.
            return None
        self._combiners, self._whole = combiners, whole
        self._members += 1
        names = dict[str, str]()
        for part in pipeline.parts:
            result, _, own = part.partition("__")
            names[part] = part if is_measure(part) or result not in found else f"{found[result]}__{own}"
        return names if whole.parts.keys() >= {*names.values()} else None

    @property
    def shares(self) -> bool:
        """Whether several definitions are in the group."""
        return self._members > 1

    def aggregate(self, connection: duckdb.DuckDBPyConnection, records: pa.Table) -> pa.Table:
        """Aggregate records by key and window, with the accumulators of all definitions."""
        assert self._whole is not None
        source = _SOURCE
        if self._steps_in_query:
            made = query_steps(self._whole, _SOURCE, records.column_names)
            assert made is not None, "every step can be written in SQL"
            source = made
        text = in_duckdb(partials(self._whole, source, _CLOCK, by_slices=True))
        with register(connection, records, _SOURCE):
            return connection.execute(text).to_arrow_table()


def own_partials(pipeline: Pipeline, names: dict[str, str], rows: Relation) -> str:
    """Return the query, in DuckDB's dialect, that selects a definition's partials from the shared rows."""
    items = [*map(name_of, (*pipeline.key, *SPAN)), "arrived"]
    items += [f"{name_of(names[part])} AS {name_of(part)}" for part in pipeline.parts]
    return f"SELECT {', '.join(items)} FROM {rows}"


def first_end(rows: pa.Table) -> int | None:
    """Return the earliest end of the windows, in microseconds; None if there are no windows."""
    found: int | None = pc.min(rows["window_end"]).as_py()
    return found
