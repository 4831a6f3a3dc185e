"""The rules for the names that a definition may use, and the names that Tailrace reserves for its own tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tailrace.model.base.errors import Fault, unknown_column
from tailrace.model.base.types import element_type, is_plain, struct_fields

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

# fmt: off
RESERVED = frozenset({
    "kind", "window_start", "window_end", "generation", "epoch", "pane_index", "timing", "retraction", "watermark",
    "processing_time", "writer", "answer", "fired", "pending", "trigger", "predecessors", "gone", "fresh",
    "fresh_on_time", "waiting_since", "panes", "settled", "settled_index", "is_last", "arrived", "latest",
    "event_time", "behind", "reason", "unanswered", "source_partition", "source_offset", "when",
})
# fmt: on
"""Reserved column names: the tables of a pipeline have columns of their own with these names."""

# fmt: off
RESERVED_KEYS = RESERVED | {
    "absorbed", "alike", "answered", "apart", "at", "before", "change", "closing", "computed", "ends", "entry", "fires",
    "held", "island", "merged_away", "new_generation", "now", "open", "refused", "remains", "right", "told", "touched",
    "watermark_after", "watermark_before", "wrong",
}
# fmt: on
"""Column names that must not be used in keys, because the queries that process an epoch add their own columns with
these names.
"""


def name_faults(path: str, name: object) -> Iterable[Fault]:
    """Find the faults in a name, which may be the name of a log, a column, a definition or a result."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        expected = "a name of up to 63 lower-case letters, digits and _"
        yield Fault(path, name, expected, "rename it, for example hourly_rides")


def duplicate_faults(path: str, columns: Sequence[str]) -> Iterator[Fault]:
    """Yield a fault if at least one column occurs several times in `columns`."""
    if len(set(columns)) < len(columns):
        yield Fault(path, columns, "each column once", "leave out the repeated one")


def key_faults(key: Sequence[str], types: Mapping[str, str], refused: Collection[str]) -> Iterator[Fault]:
    """Find the faults of a key's columns; `types` has the types of all columns, and `refused` has the reserved
    names.
    """
    for place, column in enumerate(key):
        path = f"key[{place}]"
        if column not in types:
            yield unknown_column(path, column, types)
        elif types[column] == "double":
            yield Fault(path, column, "a column that compares exactly", "declare it as decimal(p,s)")
        elif not is_plain(types[column]):
            yield Fault(path, f"{column}: {types[column]}", "a plain column", plain_part(column, types[column]))
        elif column in refused:
            yield reserved(path, column)
    yield from duplicate_faults("key", key)


def plain_part(column: str, type: str | None) -> str:
    """Return what to write where a column must be plain: a step that takes a plain value out of a nested column.

    >>> plain_part("item", "struct<sku:string,price:double>")
    'take a value out of it: each=Derive({"sku": Col("item.sku")}), or fields= in the log'
    >>> plain_part("items", "array<struct<sku:string>>")
    'make a record of each element: each=Explode("items", into="item")'
    """
    if (fields := struct_fields(type or "")) is not None:
        name = next(iter(fields))
        return f'take a value out of it: each=Derive({{"{name}": Col("{column}.{name}")}}), or fields= in the log'
    if element_type(type or "") is not None:
        return f'make a record of each element: each=Explode("{column}", into="{column.removesuffix("s") or "one"}")'
    return "take another column"


def plain_field(column: str, type: str | None) -> str:
    """Return what to write where a plain value is read from a nested column: the path of a field, or a step.

    >>> plain_field("item", "struct<unit:struct<grams:int>,sku:string>")
    'name a field in it, such as "item.unit.grams"'
    >>> plain_field("items", "array<struct<sku:string>>")
    'make a record of each element: each=Explode("items", into="item")'
    """
    path, inside = column, type
    while fields := struct_fields(inside or ""):
        name, inside = next(iter(fields.items()))
        path += f".{name}"
    return plain_part(column, type) if path == column else f'name a field in it, such as "{path}"'


def reserved(path: str, name: object) -> Fault:
    """Return the fault for a name that is reserved because Tailrace's tables use this name."""
    other = "my_" + str(name).replace("__", "_")
    return Fault(path, name, "a name that the tables do not use themselves", f"rename it, for example {other}")
