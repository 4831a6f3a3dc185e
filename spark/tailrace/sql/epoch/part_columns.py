"""The SQL for an accumulator's table columns: each number is in a narrow column if it fits, else in a wide column.

Each part of an accumulator with `Part.kept` has a narrow and a wide column. Most numbers of these parts fit the narrow
column, so files stay small. Older tables, which have only the narrow column, can still be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tailrace.model.combiners.basic import Part
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.transition import Transition
from tailrace.sql import wide_numbers
from tailrace.sql.query_shapes import named_struct
from tailrace.sql.terms import Sql, quoted


def part_columns(pipeline: Pipeline, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield a pair for each column that an accumulator has in a table: the column's name and its SQL expression.

    The accumulator's parts are columns whose names begin with `prefix`.
    """
    rules = Transition(pipeline, Sql())
    terms = rules.levelled({name: quoted(prefix + name) for name in pipeline.parts})
    for name, part in pipeline.parts.items():
        term = terms[name]
        if part.kept:
            yield name, wide_numbers.narrow(term)
            yield f"{name}_over", wide_numbers.beyond(term)
        else:
            yield name, term


def struct(pipeline: Pipeline, prefix: str) -> str:
    """Return the SQL expression for the struct in which a table stores an accumulator.

    The accumulator's parts are columns whose names begin with `prefix`.
    """
    return named_struct(dict(part_columns(pipeline, prefix)))


def unpack_part(pipeline: Pipeline, name: str, column: Callable[[str], str]) -> str:
    """Return the SQL expression for the part `name` of an accumulator that is stored in a table.

    `column` maps a column name to the column's SQL expression.
    """
    part = pipeline.parts[name]
    if part.kept:
        # In rows that are older than the wide column, the wide column is null.
        return f"COALESCE(CAST({column(name)} AS {part.type}), {column(f'{name}_over')})"
    if part.unit:
        # The table has this number in one column, but aggregation splits the number into two parts. The SQL expression
        # below computes the part with the last digits.
        return wide_numbers.remainder(column(name), part.unit, part.type)
    whole = name.removesuffix("_high")
    below = pipeline.parts.get(whole) if name != whole else None
    if below is not None and below.unit:
        return _carried(part, below, column(name), column(whole))
    return column(name)


def _carried(part: Part, below: Part, high: str, low: str) -> str:
    nothing = wide_numbers.decimal(0, part.type)
    more = wide_numbers.quotient(low, below.unit, below.type)
    return f"CAST(COALESCE({high}, {nothing}) + {more} AS {part.type})"
