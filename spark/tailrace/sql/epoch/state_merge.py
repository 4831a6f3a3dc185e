"""Combine an epoch's partials with the open windows in SQL: by grouping, by a join or, if windows merge, by merging.

The result has one row for each window that is open or touched. A row has the state columns of `model.step.transition`;
for a new window, these columns have their initial values (rules M2, V2, V3). A row also has `arrived`, the accumulator
of the arrived records, and `held` (true if the window was open before). If windows merge, a row also has `predecessors`
and `absorbed`.
"""

from __future__ import annotations

from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.pipeline_tables import predecessors_type
from tailrace.model.combiners.basic import Part
from tailrace.model.combiners.own import OwnPart
from tailrace.model.definition.pipeline import Pipeline, is_measure
from tailrace.model.step.transition import Transition
from tailrace.sql.epoch.clock_row import clock_columns
from tailrace.sql.epoch.part_columns import part_columns
from tailrace.sql.query_shapes import equal_in, islands, named_struct
from tailrace.sql.records.assignment import join_items, key_names
from tailrace.sql.terms import Query, Relation, Sql, bracketed, null, quoted, totals


def meeting_windows(
    pipeline: Pipeline, state: Relation, partials: Relation, clock: Relation, *, joined: bool = False
) -> Query:
    """Return the query that combines the windows in `state` with the `partials`, and adds the clock's columns.

    If windows do not merge and `joined` is True, the query uses a join instead of grouping. Within one process, a join
    is faster.
    """
    if pipeline.where.merges:
        return _merged(pipeline, state, partials, clock)
    meet = _joined if joined else _grouped
    return _opened(pipeline, meet(pipeline, state, partials), clock)


def _opened(pipeline: Pipeline, both: Query, clock: Relation) -> Query:
    """Return the query that adds initial states for new windows, and drops new windows that are closed (rule M1).

    `both` is a query with the state and the arrivals of each window. The state columns are null if the window has no
    state, and the arrival columns are null if the window has no arrivals. A new window counts as closed if the
    watermark before the epoch has closed it.
    """
    rules = Transition(pipeline, Sql())
    columns, window = rules.columns(), [*key_names(pipeline), *SPAN]
    opened = rules.opened("c.new_generation")
    is_held = "g.generation IS NOT NULL"
    items = [f"g.{name}" for name in window]
    items += [f"IF({is_held}, g.{quoted(n)}, {opened[n]}) AS {quoted(n)}" for n in columns]
    items += [f"{is_held} AS held", "COALESCE(g.arrived, 0L) AS arrived"]
    items += _arrived_parts(pipeline, "g")
    items += [f"c.{name}" for name in clock_columns(pipeline)]
    alive = f"({is_held} OR NOT {rules.closed('g.window_end', 'c.watermark_before')})"
    return Query(f"SELECT {join_items(items)} FROM ({both}) g CROSS JOIN {clock} c WHERE {alive}")


def _joined(pipeline: Pipeline, state: Relation, partials: Relation) -> Query:
    """Return the query that uses a join to put each window's state and arrivals into one row."""
    came = [f"p.{name}" for name in ["arrived", *(quoted(name) for name in pipeline.parts)]]
    held = [f"s.{quoted(name)}" for name in Transition(pipeline, Sql()).columns()]
    window = [f"COALESCE(s.{name}, p.{name}) AS {name}" for name in [*key_names(pipeline), *SPAN]]
    same = equal_in("s", "p", key_names(pipeline), SPAN)
    return Query(f"SELECT {join_items(window, came, held)} FROM {state} s FULL OUTER JOIN {partials} p ON {same}")


def _grouped(pipeline: Pipeline, state: Relation, partials: Relation) -> Query:
    """Return the query that groups the union of states and arrivals by window, so that each window has one row.

    State and partials are both partitioned by key and window. So the grouping moves no rows between tasks, and the next
    state has the same partitioning. A group has at most one row of the state and at most one row of the partials. Any
    aggregate that skips nulls therefore returns the value of the only row.
    """
    columns, parts = Transition(pipeline, Sql()).columns(), pipeline.parts
    window = [*key_names(pipeline), *SPAN]
    held = [f"{null('bigint')} AS arrived", *(f"{null(part.type)} AS {quoted(name)}" for name, part in parts.items())]
    came = ["arrived", *(quoted(name) for name in parts)]
    both = (
        f"SELECT {join_items(window, held, [quoted(name) for name in columns])} FROM {state} "
        f"UNION ALL SELECT {join_items(window, came, [null(type) for type in columns.values()])} FROM {partials}"
    )
    picked = [f"MAX({name}) AS {name}" for name in [*came, *(quoted(name) for name in columns)]]
    return Query(f"SELECT {join_items(window, picked)} FROM ({both}) GROUP BY {join_items(window)}")


def _arrived_parts(pipeline: Pipeline, source: str) -> list[str]:
    items = []
    for name, part in pipeline.parts.items():
        column = f"{source}.{quoted(name)}"
        if isinstance(part, OwnPart):
            # The state of a custom combiner may be null although the combiner has values.
            term = f"IF({source}.arrived IS NULL, {part.zero(Sql())}, {column})"
        else:
            term = _or_zero(part, column)
        items.append(f"CAST({term} AS {part.type}) AS {quoted(name)}")
    return items


def _merged(pipeline: Pipeline, state: Relation, partials: Relation, clock: Relation) -> Query:
    """Return the query that merges overlapping windows of each key into spans of time.

    If a span is exactly one open window, that window continues; any other span starts a new window.
    """
    rules = Transition(pipeline, Sql())
    keys, columns = key_names(pipeline), rules.columns()
    predecessors = null(predecessors_type(pipeline))
    members = (
        f"SELECT {join_items(keys, ['window_start', 'window_end', 'true AS held', '0L AS arrived'])}, "
        f"{join_items([f'{part.zero(Sql())} AS {quoted(n)}' for n, part in pipeline.parts.items()])}, "
        f"{join_items([quoted(n) for n in columns])}, predecessors FROM {state} "
        f"UNION ALL SELECT {join_items(keys, ['window_start', 'window_end', 'false', 'arrived'])}, "
        f"{join_items([quoted(n) for n in pipeline.parts])}, "
        f"{join_items([null(type) for type in columns.values()])}, {predecessors} FROM {partials}"
    )
    numbered = islands(bracketed(Query(members)), keys, [*SPAN, "held"])
    by = join_items(keys, ["island"])
    grouped = f"SELECT {join_items(keys, _spans(pipeline, columns))} FROM ({numbered}) GROUP BY {by}"
    items = join_items([f"c.{n}" for n in clock_columns(pipeline)])
    return _started(pipeline, rules, Query(f"SELECT g.*, {items} FROM ({grouped}) g CROSS JOIN {clock} c"))


def _spans(pipeline: Pipeline, columns: dict[str, str]) -> list[str]:
    """Return the select-list items for a span: its bounds, its arrivals, and the totals of the open windows in it.

    The column `held` is true if the span is exactly one open window.
    """
    same = "(COUNT_IF(held) = 1 AND MIN(IF(held, window_start, NULL)) = MIN(window_start) AND "
    same += "MAX(IF(held, window_end, NULL)) = MAX(window_end))"
    items = [
        "MIN(window_start) AS window_start",
        "MAX(window_end) AS window_end",
        f"{same} AS held",
        "SUM(arrived) AS arrived",
        "SUM(fresh) AS all_fresh",
        "SUM(fresh_on_time) AS all_on_time",
        "MAX(generation) AS all_generation",
    ]
    items += [f"{term} AS {quoted(name)}" for name, term in totals(pipeline.parts, quoted).items()]
    for which in ("fired", "pending"):
        columns_of = {name: quoted(f"{which}_{name}") for name in pipeline.parts}
        held = totals(pipeline.parts, columns_of.__getitem__, where="held")
        items += [f"{term} AS {quoted(f'all_{which}_{name}')}" for name, term in held.items()]
    items += [f"MAX(IF(held, {quoted(name)}, NULL)) AS {quoted(name)}" for name in columns]
    own = {name: name for name in (*SPAN, "generation", "panes")} | dict(part_columns(pipeline, "fired_"))
    items.append(f"COLLECT_LIST(IF(held AND panes > 0L, {named_struct(own)}, NULL)) AS fired_before")
    items.append("FLATTEN(COLLECT_LIST(IF(held, predecessors, NULL))) AS inherited")
    span = named_struct({name: name for name in (*SPAN, "generation")})
    items.append(f"COLLECT_LIST(IF(held, {span}, NULL)) AS members")
    return items


def _started(pipeline: Pipeline, rules: Transition, grouped: Query) -> Query:
    opened = rules.opened("GREATEST(all_generation, new_generation)")
    opened["fresh"] = "COALESCE(all_fresh, 0L)"
    opened["fresh_on_time"] = "COALESCE(all_on_time, 0L)"
    opened["waiting_since"] = "now"
    parts = pipeline.parts
    fired, pending = (
        {name: _or_zero(part, f"`all_{which}_{name}`") for name, part in parts.items()}
        for which in ("fired", "pending")
    )
    merged = rules.merged(fired, pending)
    for name, part in parts.items():
        # A trigger's measure counts only fresh records. For a result, all records of the merged windows count as
        # pending, because the new window has not fired yet.
        both = pending[name] if is_measure(name) else merged[name]
        opened[f"pending_{name}"] = f"CAST({both} AS {part.type})"
    opened = rules.carried(opened)
    items = [*key_names(pipeline), *SPAN]
    items += [f"IF(held, {quoted(n)}, {opened[n]}) AS {quoted(n)}" for n in rules.columns()]
    items += ["held", "arrived", *(quoted(name) for name in pipeline.parts), *clock_columns(pipeline)]
    empty = "SLICE(members, 1, 0)"
    items += [
        "IF(held, inherited, CONCAT(inherited, fired_before)) AS predecessors",
        f"IF(held, {empty}, members) AS absorbed",
    ]
    return Query(f"SELECT {join_items(items)} FROM ({grouped})")


def _or_zero(part: Part, column: str) -> str:
    return f"COALESCE({column}, {part.zero(Sql())})" if part.has_zero else column
