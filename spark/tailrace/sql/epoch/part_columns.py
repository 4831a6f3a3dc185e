"""Write the columns of an accumulator in tables: a wide number is in a narrow column while it fits (`Part.kept`).

So older tables have the narrow column, and files stay small. A number that does not fit is in a second column.
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
    """Yield the columns of an accumulator in a table, with names and terms; its parts are columns with a prefix."""
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
    """Write the struct of an accumulator in a table; its parts are columns with a prefix."""
    return named_struct(dict(part_columns(pipeline, prefix)))


def unpack_part(pipeline: Pipeline, name: str, column: Callable[[str], str]) -> str:
    """Write a part of an accumulator from its columns in a table; `column` writes a column's term."""
    part = pipeline.parts[name]
    if part.kept:
        # A row from before the wide column was added is null there.
        return f"COALESCE(CAST({column(name)} AS {part.type}), {column(f'{name}_over')})"
    if part.unit:
        # A number that is in one column of the table is added up in two.
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
