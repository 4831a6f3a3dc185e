"""Steps that pack several columns into one column (`Pack`), or convert lists to records (`Unpack`, `Explode`).

A pipeline stage packs columns and collects the packed values in a list (`Collect`, `Highest`); the next stage unpacks
the list. When an answer of the earlier stage is corrected, the records of the next stage are corrected, too: if an
element is no longer in the list, the record that was created from this element is retracted. If two lists are unpacked
one after the other, there is one record for each pair of an element of the first list and an element of the second
list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.conditions import Condition, condition_faults, term_at
from tailrace.model.base.errors import Fault, unknown_column, whole_faults
from tailrace.model.base.names import name_faults
from tailrace.model.base.types import column_of, element_type, struct_fields, type_at
from tailrace.model.definition.record_steps import ElementWise, Record, new_column_faults


@dataclass(frozen=True)
class Pack(ElementWise):
    """A step that packs some columns of a record into one additional column.

    The new column is null in records that do not meet `keep`. `of` names the columns to pack, or maps names in the
    packed column to the columns to pack.

    >>> from tailrace.model.base.conditions import Match
    >>> click = Pack("click", of={"clicked": "ad"}, keep=Match("kind", "==", "click"))
    >>> types = {"kind": "string", "ad": "bigint"}
    >>> click.columns(types)["click"]
    'struct<clicked:bigint>'
    >>> [one["click"] for kind in ("click", "view") for one in click.records({"kind": kind, "ad": 7}, types)]
    [{'clicked': 7}, None]
    """

    name: str
    of: Mapping[str, str] | tuple[str, ...]
    keep: Condition | None = None

    def __post_init__(self) -> None:
        if isinstance(self.of, Mapping):
            object.__setattr__(self, "of", MappingProxyType(dict(self.of)))

    @property
    def fields(self) -> dict[str, str]:
        """A dict from each name in the packed column to the name of the column that is packed under this name."""
        return dict(self.of) if isinstance(self.of, Mapping) else {name: name for name in self.of}

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        fields = ",".join(f"{name}:{types[column]}" for name, column in self.fields.items())
        return {**types, self.name: f"struct<{fields}>"}

    def read_columns(self, types: Mapping[str, str]) -> Iterable[str]:
        return (*self.fields.values(), *(() if self.keep is None else self.keep.columns))

    def records(self, record: Record, types: Mapping[str, str]) -> Iterator[Record]:
        packed = {name: record.get(column) for name, column in self.fields.items()}
        columns = {name: record.get(name) for name in types}
        yield {**record, self.name: packed if self.keep is None or self.keep.holds(Scalars(), columns, types) else None}

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        yield from new_column_faults(f"{path}.name", self.name, types)
        columns: object = self.of
        if not isinstance(columns, Mapping | tuple) or not columns or len(self.fields) < len(columns):
            yield Fault(f"{path}.of", columns, "columns, each once", 'write for example of=("ad", "clicked_at")')
            return
        for name, column in self.fields.items():
            yield from name_faults(f"{path}.of[{name!r}]", name)
            if column not in types:
                yield unknown_column(f"{path}.of[{name!r}]", column, types)
        if self.keep is not None:
            yield from condition_faults(f"{path}.keep", self.keep, types)


@dataclass(frozen=True)
class Unpack(ElementWise):
    """A step that creates one record for each element of a collected list. The packed columns replace the list column.

    `first` is the maximum number of elements that are unpacked from the start of the list. `Collect` sorts the list by
    the packed columns, starting with the first column. `place` names a new column for the position of the element in
    the list; the first position is 1. With `outer`, an empty list results in one record, in which the packed columns
    and the `place` column are null.

    >>> types = {"bids": "array<struct<price:bigint,bidder:string>>"}
    >>> dearest = Unpack("bids", first=1, place="rank")
    >>> list(dearest.records({"bids": [{"price": 5, "bidder": "a"}, {"price": 7, "bidder": "b"}]}, types))
    [{'price': 5, 'bidder': 'a', 'rank': 1}]
    >>> list(Unpack("bids", outer=True).records({"bids": []}, types))
    [{'price': None, 'bidder': None}]
    """

    name: str
    first: int | None = None
    place: str | None = None
    outer: bool = False

    multiplies: ClassVar[bool] = True

    def fields(self, types: Mapping[str, str]) -> dict[str, str]:
        """Return the names and types of the packed columns; empty if the column is not a list of packed columns."""
        return struct_fields(element_type(types.get(self.name, "")) or "") or {}

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        placed = {} if self.place is None else {self.place: "bigint"}
        return {name: type for name, type in types.items() if name != self.name} | self.fields(types) | placed

    def read_columns(self, types: Mapping[str, str]) -> Iterable[str]:
        return (self.name,)

    def records(self, record: Record, types: Mapping[str, str]) -> Iterator[Record]:
        shared = {name: value for name, value in record.items() if name != self.name}
        elements = (record[self.name] or ())[: self.first]
        if self.outer and not elements:
            yield dict.fromkeys(self.columns(types)) | shared
        nothing = dict.fromkeys(self.fields(types))
        for place, one in enumerate(elements, start=1):
            yield {**shared, **(one or nothing)} | ({} if self.place is None else {self.place: place})

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        fields = self.fields(types)
        if not fields:
            declared = f"{self.name}: {types[self.name]}" if self.name in types else self.name
            expected = "a list of packed columns, of the stage that is read"
            yield Fault(f"{path}.name", declared, expected, 'collect it there: what={"clicks": Collect("click")}')
        for one in fields:
            if one in types:
                expected = "a column that no other has the name of"
                yield Fault(f"{path}.name", one, expected, "give it another name where it is packed")
        if self.first is not None:
            yield from whole_faults(f"{path}.first", self.first, "leave it out for all of them")
        if not isinstance(self.outer, bool):
            yield Fault(f"{path}.outer", self.outer, "True or False", "leave it out, and an empty list gives nothing")
        if self.place is not None:
            yield from new_column_faults(f"{path}.place", self.place, {**types, **fields})


@dataclass(frozen=True)
class Explode(ElementWise):
    """A step that creates one record for each element of a list, or for each entry of a map.

    `name` is the column with the list, or the path of a list inside a column, such as `order.items`. The column `into`
    has the element; all other columns stay. `place` names a new column for the position of the element in the list; the
    first position is 1. A record whose list is empty or missing creates no record. With `outer`, it creates one record,
    in which `into` and `place` are null.

    >>> types = {"id": "string", "items": "array<struct<sku:string,price:double>>"}
    >>> each = Explode("items", into="item", place="line")
    >>> order = {"id": "a", "items": [{"sku": "x", "price": 1.5}, {"sku": "y", "price": 2.0}]}
    >>> [(one["item"]["sku"], one["line"]) for one in each.records(order, types)]
    [('x', 1), ('y', 2)]
    >>> list(Explode("items", into="item", outer=True).records({"id": "b", "items": None}, types))
    [{'id': 'b', 'items': None, 'item': None}]
    """

    name: str
    into: str
    place: str | None = None
    outer: bool = False

    multiplies: ClassVar[bool] = True

    def element(self, types: Mapping[str, str]) -> str:
        """Return the type of the list's elements."""
        return element_type(type_at(types, self.name) or "") or "string"

    def made(self, types: Mapping[str, str]) -> dict[str, str]:
        """Return the names and types of the new columns."""
        return {self.into: self.element(types)} | ({} if self.place is None else {self.place: "bigint"})

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        return {**types, **self.made(types)}

    def read_columns(self, types: Mapping[str, str]) -> Iterable[str]:
        return (column_of(self.name),)

    def records(self, record: Record, types: Mapping[str, str]) -> Iterator[Record]:
        elements = term_at(Scalars(), record, self.name) or ()
        if self.outer and not elements:
            yield {**record, **dict.fromkeys(self.made(types))}
        for place, one in enumerate(elements, start=1):
            yield {**record, self.into: one} | ({} if self.place is None else {self.place: place})

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        found = type_at(types, self.name)
        if found is None:
            yield unknown_column(f"{path}.name", self.name, types)
        elif element_type(found) is None:
            expected = "a column with a list or a map"
            yield Fault(f"{path}.name", f"{self.name}: {found}", expected, "declare it as array<...> in the log")
        yield from new_column_faults(f"{path}.into", self.into, types)
        if self.place is not None:
            yield from new_column_faults(f"{path}.place", self.place, {**types, self.into: ""})
        if not isinstance(self.outer, bool):
            yield Fault(f"{path}.outer", self.outer, "True or False", "leave it out, and an empty list gives nothing")
