"""What is done with each record before it is grouped: the paper's ParDo (Dataflow Model, 2.1).

A step makes of one record any number of records, and says the types of the columns that it adds. Records that do not
meet a condition are left out by `Pipeline.keep`, after all steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tailrace.model.algebra import Scalars
from tailrace.model.errors import Fault
from tailrace.model.expressions import Expression, expression_faults
from tailrace.model.names import RESERVED, name_faults, reserved

Record = Mapping[str, Any]


class ElementWise:
    """The base of what is done with each record."""

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        """The columns of what it gives, of records with columns of these types."""
        raise NotImplementedError

    def records(self, record: Record, types: Mapping[str, str]) -> Iterable[Record]:
        """What it makes of one record."""
        raise NotImplementedError

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        """What is wrong with it, of records with columns of these types."""
        raise NotImplementedError


@dataclass(frozen=True)
class Derive(ElementWise):
    """Columns computed by expressions of the record's own, which run in every execution.

    >>> from tailrace.model.expressions import Col
    >>> euros = Derive({"euros": Col("cents") // 100})
    >>> list(euros.records({"cents": 250}, {"cents": "bigint"}))
    [{'cents': 250, 'euros': 2}]
    """

    values: Mapping[str, Expression]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        return {**types, **{name: value.type(types) for name, value in self.values.items()}}

    def records(self, record: Record, types: Mapping[str, str]) -> Iterator[Record]:
        o = Scalars()
        yield {**record, **{name: value.term(o, record, types) for name, value in self.values.items()}}

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        if not self.values:
            yield Fault(f"{path}.values", {}, "at least one column", 'write Derive({"euros": Col("cents") // 100})')
        for name, value in self.values.items():
            yield from new_column_faults(f"{path}.values[{name!r}]", name, types)
            yield from expression_faults(f"{path}.values[{name!r}]", value, types)


def new_column_faults(path: str, name: object, types: Mapping[str, str]) -> Iterable[Fault]:
    """What is wrong with the name of a column that a step adds to these."""
    yield from name_faults(path, name)
    if name in RESERVED:
        yield reserved(path, name)
    if name in types:
        yield Fault(path, name, "a name that no column has yet", "rename it, for example to my_" + str(name))


def element_faults(path: str, step: object, types: Mapping[str, str]) -> Iterable[Fault]:
    """What is wrong with what stands where a step should."""
    if isinstance(step, ElementWise):
        return step.faults(path, types)
    return [Fault(path, step, "a step", 'write for example Derive({"euros": Col("cents") // 100})')]
