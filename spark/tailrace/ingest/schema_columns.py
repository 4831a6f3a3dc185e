"""Match the fields of a schema with a log's columns, and convert the values of the fields.

A column is taken from its place (`Log.fields`), or from a field with one of the column's aliases. If the schema has no
such field, the column is null. A column that is missing in a line of JSON is null, too. All mismatches are found
together, before any record is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.column_types import column_type
from tailrace.ingest.column_values import (
    NULL,
    AnyKind,
    Kind,
    ListKind,
    MapKind,
    Misfits,
    RecordKind,
    UnionKind,
    as_texts,
    can_hold,
    plain_values,
)
from tailrace.ingest.kind_texts import NoJsonError, json_text
from tailrace.ingest.plain_columns import Mask, schema_of
from tailrace.ingest.plain_values import PlainValues
from tailrace.model.base.json_limits import beyond, too_deep
from tailrace.model.logs.json_records import Branch, JsonRecords, branch_of, excerpt, key_twice, too_many
from tailrace.model.logs.log import ROUNDED, Log
from tailrace.model.logs.shapes import Field, Listed, Mapped, Path, Plain, Shape, type_of

Rows: TypeAlias = npt.NDArray[np.int64]

FIELDS = 10_000
"""The maximum number of fields that a value may have that is written as JSON, together with the fields inside."""

LEVELS = 100
"""The maximum number of levels of lists, maps and records in a schema, as Arrow and Protobuf have it, too."""


class UnreadableSchemaError(Exception):
    """The error for a schema with which no record can be read; the message states the reason."""


@dataclass(frozen=True)
class SchemaColumns:
    """The columns of a log, read from records with one schema."""

    log: Log
    _root: _Object
    _plain: PlainValues
    _rest: tuple[RecordKind, pa.StructType] | None

    @classmethod
    def of(cls, log: Log, kind: RecordKind) -> SchemaColumns:
        """Match the log's columns with the fields of records of a kind.

        In a log of changes, the event time is not read from a field of the row. If there are mismatches,
        `UnreadableSchemaError` is raised, with a list of all mismatches.
        """
        matching = _Matching(log)
        root = matching.root(kind)
        if matching.wrong:
            raise UnreadableSchemaError("; ".join(matching.wrong))
        rest = None
        if log.rest is not None:
            fields = {name: one for name, one in kind.fields.items() if name not in root.children}
            rest = RecordKind("", fields, kind.sparse)
        return cls(log, root, PlainValues(JsonRecords(log)), None if rest is None else (rest, raw_type(rest)))

    @property
    def raw(self) -> pa.StructType:
        """The Arrow type of the raw values of a record: the fields that are read."""
        own = list(self._root.raw)
        return pa.struct(own if self._rest is None else [*own, *self._rest[1]])

    def read(self, records: pa.StructArray) -> tuple[dict[str, pa.Array], Misfits]:
        """Convert raw records to the log's columns; return the columns and the misfits."""
        values = _Values(self.log, self._plain, np.zeros(len(records), np.int32))
        made = nulls_of(self.log, len(records))
        root = _Place(np.arange(len(records)), lambda place: "")
        self._root.columns(records, values, root, made)
        if self._rest is not None:
            assert self.log.rest is not None
            values.column = self.log.rest
            made[self.log.rest] = values.rest(self._rest[0], records, root)
        if self.log.rounds:
            made[ROUNDED] = pa.array(values.rounded)
        return made, values.misfits(self.log)


def nulls_of(log: Log, rows: int) -> dict[str, pa.Array]:
    """Return the columns of a log without any value."""
    schema = schema_of(log)
    return {name: pa.nulls(rows, schema.field(name).type) for name in log.columns}


def raw_type(kind: AnyKind) -> pa.DataType:
    """Return the Arrow type of complete raw values of a kind.

    Raises `UnreadableSchemaError` if a type contains itself, or if there are too many fields or levels. A short schema
    may have a huge number of fields, if its types are used at many places.
    """
    return _raw_type(kind, (), count(1))


def _raw_type(kind: AnyKind, around: tuple[str, ...], fields: Iterator[int]) -> pa.DataType:
    """Return the Arrow type of raw values; `around` are the names of the types around the values."""
    if next(fields) > FIELDS:
        raise UnreadableSchemaError(f"the schema has more than {FIELDS:,} fields")
    if len(around) > LEVELS:
        raise UnreadableSchemaError(TOO_MANY_LEVELS)
    if isinstance(kind, Kind):
        return kind.raw
    if isinstance(kind, ListKind):
        return pa.list_(_raw_type(kind.element, (*around, ""), fields))
    if isinstance(kind, MapKind):
        return pa.list_(pa.struct([("key", kind.key.raw), ("value", _raw_type(kind.value, (*around, ""), fields))]))
    if isinstance(kind, RecordKind):
        if kind.name and kind.name in around:
            raise UnreadableSchemaError(f"the schema's {kind.name} contains itself")
        inner = (*around, kind.name)
        return pa.struct([(name, _raw_type(one, inner, fields)) for name, one in kind.fields.items()])
    if isinstance(kind, UnionKind):
        some = enumerate(kind.branches)
        return pa.struct([(f"v{number}", _raw_type(one, around, fields)) for number, one in some])
    raise UnreadableSchemaError(f"the schema has {kind}, which cannot be read")


TOO_MANY_LEVELS = f"the schema has more than {LEVELS} levels of lists, maps and records"


# ---------------------------------------------------------------------------------------------------------- matching


class _Matching:
    """One comparison of a schema's fields with a log's columns; `wrong` are the mismatches."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.wrong = list[str]()
        self._extra = list[str]()

    def root(self, kind: RecordKind) -> _Object:
        """Match the columns of the log."""
        fields = []
        for one in self.log.shape:
            if self.log.signed and one.name == self.log.event_time:
                continue
            names = self.log.names_of(one.name)[1:]
            found = next((place for place in (one.place, *((name,) for name in names)) if _has(kind, place)), None)
            if found is not None:
                fields.append(replace(one, place=found))
            elif one.name in (self.log.event_time, self.log.arrival_time) and one.name not in self.log.folders:
                self.wrong.append(f"no field {'.'.join(one.place)!r}")
        tops = [one.place[0] for one in fields]
        if twice := {one.place[0] for one in fields if len(one.place) == 1 and tops.count(one.place[0]) > 1}:
            self.wrong.append(f"fields {', '.join(sorted(twice))} have two columns: leave out an alias")
            return _Object({})
        made = self._object(branch_of(fields), kind, "", "")
        if self.log.unknown == "reject" and self.log.rest is None:
            declare = 'declare it in the log, or set unknown="ignore"'
            self.wrong += [f"unknown column {name!r}: {declare}" for name in self._extra]
        return made

    def _object(self, branch: Branch, kind: RecordKind, path: str, base: str) -> _Object:
        """Match the fields of an object. `path` is its place in the schema, and `base` its place in the columns."""
        children = dict[str, tuple[str, _Reader] | _Object]()
        for name, child in branch.children.items():
            if name not in kind.fields:
                continue
            inner = kind.fields[name]
            if not isinstance(child, Branch):
                children[name] = (child.name, self._value(child.shape, inner, path + name, base + child.name))
            elif isinstance(inner, RecordKind):
                children[name] = self._object(child, inner, f"{path}{name}.", base)
            elif inner != NULL:
                self.wrong.append(f"field {path + name!r} is {_named(inner)}, and columns are inside it")
        self._extra += [path + name for name in kind.fields if name not in branch.children]
        return _Object(children)

    def _value(self, shape: Shape, kind: AnyKind, path: str, name: str) -> _Reader:
        if kind == NULL:
            return _PlainReader(NULL, Plain(type_of(shape)))
        if isinstance(shape, Plain):
            return self._plain(shape, kind, path, name)
        if isinstance(shape, Listed) and isinstance(kind, ListKind):
            return _ListReader(self._value(shape.element, kind.element, f"{path}[]", f"{name}[]"))
        if isinstance(shape, Mapped) and isinstance(kind, MapKind):
            return _MapReader(kind.key, self._value(shape.value, kind.value, f"{path}[]", f"{name}[]"))
        if isinstance(shape, Listed | Mapped) or not isinstance(kind, RecordKind):
            expected = "a list" if isinstance(shape, Listed) else "a map" if isinstance(shape, Mapped) else "a struct"
            self.wrong.append(f"field {path!r} is {_named(kind)}, column {name!r} is declared as {expected}")
            return _PlainReader(NULL, Plain("string"))
        return _StructReader(shape.fields, self._object(branch_of(shape.fields), kind, f"{path}.", f"{name}."))

    def _plain(self, shape: Plain, kind: AnyKind, path: str, name: str) -> _Reader:
        if shape.type == "json":
            if isinstance(kind, Kind) and kind.name == "string":
                kind = replace(kind, name="json")
            try:
                return _JsonReader(kind, raw_type(kind))
            except UnreadableSchemaError as error:
                self.wrong.append(f"field {path!r}: {error}")
        elif isinstance(kind, Kind) and can_hold(kind, shape):
            return _PlainReader(kind, shape)
        elif isinstance(kind, UnionKind) and all(isinstance(o, Kind) and can_hold(o, shape) for o in kind.branches):
            return _UnionReader(tuple(_PlainReader(one, shape) for one in kind.branches if isinstance(one, Kind)))
        else:
            self.wrong.append(f"field {path!r} is {_named(kind)}, column {name!r} is declared as {shape.type}")
        return _PlainReader(NULL, Plain("string"))


def _has(kind: AnyKind, place: Path) -> bool:
    """Return True if a schema has a field at a place, or if the place is inside a field that is no record."""
    if not isinstance(kind, RecordKind):
        return True
    return place[0] in kind.fields and (len(place) == 1 or _has(kind.fields[place[0]], place[1:]))


def _named(kind: AnyKind) -> str:
    return f"a {kind.name}" if isinstance(kind, RecordKind) and kind.name.startswith("message of") else str(kind)


# --------------------------------------------------------------------------------------------------------- converting


@dataclass(frozen=True)
class _Place:
    """The places of values that are converted together.

    `owners` are the indexes of the values' records, in ascending order, and `path` returns the place of a value inside
    its record. `level` is the number of levels of lists and objects around the values.
    """

    owners: Rows
    path: Callable[[int], str]
    level: int = 1

    def inside(self, name: str) -> _Place:
        """Return the places of a field of the values."""
        return _Place(
            self.owners, lambda place: f"{before}.{name}" if (before := self.path(place)) else name, self.level
        )

    def deeper(self) -> _Place:
        """Return the places of objects, as those of what is around their fields."""
        return replace(self, level=self.level + 1)

    def elements(self, lengths: Rows, shown: Callable[[int, int], str]) -> _Place:
        """Return the places of the elements of lists; `shown` gets an element's index and its index in its list."""
        ends = np.cumsum(lengths)

        def path(place: int) -> str:
            of = int(np.searchsorted(ends, place, side="right"))
            return self.path(of) + shown(place, place - int(ends[of] - lengths[of]))

        return _Place(np.repeat(self.owners, lengths), path, self.level + 1)


@dataclass
class _Values:
    """One conversion: the values that do not fit, for each column. `column` is the column that is converted.

    `rounded` counts the rounded decimals of each record.
    """

    log: Log
    plain: PlainValues
    rounded: npt.NDArray[np.int32]
    column: str = ""
    _found: dict[str, dict[int, str]] = field(default_factory=dict)

    def misfit(self, bad: Mask, place: _Place, reason: Callable[[int, str], str]) -> None:
        """Note a reason for each record that has a bad value; `reason` gets the first one's index and its place."""
        if not bad.any():
            return
        found = self._found.setdefault(self.column, {})
        at = np.flatnonzero(bad)
        _, first = np.unique(place.owners[at], return_index=True)
        for index in at[first].tolist():
            owner = int(place.owners[index])
            if owner not in found:
                found[owner] = reason(index, place.path(index))

    def refuse_levels(self, values: pa.Array, place: _Place) -> None:
        """Note that lists or objects are misfits, if they are nested too deeply."""
        most = self.log.depth
        if place.level >= most:
            there = values.is_valid().to_numpy(zero_copy_only=False)
            self.misfit(there, place, lambda index, path: f"{path} is {too_deep(most)}")

    def misfits(self, log: Log) -> Misfits:
        """Return the reasons of all columns, by the index of the record."""
        merged = Misfits()
        for column in log.columns:
            for place, reason in self._found.get(column, {}).items():
                merged[place] = f"{merged[place]}; {reason}" if place in merged else reason
        return merged

    def texts(self, kind: AnyKind, values: pa.Array, place: _Place, around: int) -> pa.Array:
        """Convert values to JSON texts; `around` is the number of levels around them."""
        made, bad, most = list[str | None](), np.zeros(len(values), np.bool_), self.log.depth
        for index, value in enumerate(values.to_pylist()):
            try:
                made.append(None if value is None else json_text(kind, value))
                bad[index] = beyond(made[-1] or "", most, around) is not None
            except NoJsonError:
                made.append(None)
                bad[index] = True

        def reason(index: int, path: str) -> str:
            if made[index] is not None:
                return f"{path} is {too_deep(most)}"
            return f"{path} = {excerpt(json_text(kind, values[index].as_py(), lossy=True))} is not a json"

        self.misfit(bad, place, reason)
        return pa.array(made, pa.string())

    def rest(self, kind: RecordKind, records: pa.StructArray, place: _Place) -> pa.Array:
        """Return the fields that the log does not declare, as JSON objects; null if the schema has no such fields."""
        if not kind.fields:
            return pa.nulls(len(records), pa.string())
        own = pa.StructArray.from_arrays(
            [pc.struct_field(records, name) for name in kind.fields], list(kind.fields), mask=records.is_null()
        )
        made = self.texts(kind, own, place.inside(self.column), 0)
        return pc.if_else(pc.equal(made, "{}"), pa.scalar(None, pa.string()), made)


class _Reader(Protocol):
    """A reader of the values of one field."""

    @property
    def raw(self) -> pa.DataType: ...

    def read(self, values: pa.Array, to: _Values, place: _Place) -> pa.Array: ...


@dataclass(frozen=True)
class _PlainReader:
    kind: Kind
    shape: Plain

    @property
    def raw(self) -> pa.DataType:
        return self.kind.raw

    def read(self, values: pa.Array, to: _Values, place: _Place) -> pa.Array:
        made, bad, rounded = plain_values(to.plain, values, self.kind, self.shape)
        if rounded.any():
            np.add.at(to.rounded, place.owners[rounded], 1)

        def reason(index: int, path: str) -> str:
            shown = excerpt(json_text(self.kind, values[index].as_py(), lossy=True))
            return f"{path} = {shown} is not a {self.shape.type}"

        to.misfit(bad, place, reason)
        return made


@dataclass(frozen=True)
class _JsonReader:
    kind: AnyKind
    raw: pa.DataType

    def read(self, values: pa.Array, to: _Values, place: _Place) -> pa.Array:
        return to.texts(self.kind, values, place, place.level)


@dataclass(frozen=True)
class _UnionReader:
    """The reader of a column that can hold each type of a union."""

    branches: tuple[_PlainReader, ...]

    @property
    def raw(self) -> pa.DataType:
        return pa.struct([(f"v{number}", one.raw) for number, one in enumerate(self.branches)])

    def read(self, values: pa.Array, to: _Values, place: _Place) -> pa.Array:
        some = enumerate(self.branches)
        return pc.coalesce(*(one.read(pc.struct_field(values, number), to, place) for number, one in some))


@dataclass(frozen=True)
class _ListReader:
    element: _Reader

    @property
    def raw(self) -> pa.DataType:
        return pa.list_(self.element.raw)

    def read(self, values: pa.Array, to: _Values, place: _Place) -> pa.Array:
        lengths = _lengths(values, to, place)
        inside = place.elements(lengths, lambda index, number: f"[{number}]")
        return _list_of(self.element.read(values.flatten(), to, inside), lengths, values)


@dataclass(frozen=True)
class _MapReader:
    key: Kind
    value: _Reader

    @property
    def raw(self) -> pa.DataType:
        return pa.list_(pa.struct([("key", self.key.raw), ("value", self.value.raw)]))

    def read(self, values: pa.Array, to: _Values, place: _Place) -> pa.Array:
        """Read maps as lists of their entries, sorted by key."""
        lengths = _lengths(values, to, place)
        entries = values.flatten()
        keys, bad = as_texts(pc.struct_field(entries, "key"))
        lists = np.repeat(np.arange(len(values)), lengths)
        order = pc.sort_indices(
            pa.table({"list": lists, "key": keys}), sort_keys=[("list", "ascending"), ("key", "ascending")]
        )
        entries, keys, bad = entries.take(order), keys.take(order), bad[order.to_numpy()]
        inside = place.elements(lengths, lambda index, number: f"[{json.dumps(keys[index].as_py())}]")
        of_map = place.elements(lengths, lambda index, number: "")
        to.misfit(bad, of_map, lambda index, path: f"{path} has a key that is not UTF-8")
        twice = np.zeros(len(keys), np.bool_)
        if len(keys) > 1:
            same = pc.fill_null(pc.equal(keys[1:], keys[:-1]), False).to_numpy(zero_copy_only=False)
            twice[1:] = same & (lists[1:] == lists[:-1])
        to.misfit(twice, of_map, lambda index, path: key_twice(path, keys[index].as_py()))
        made = self.value.read(pc.struct_field(entries, "value"), to, inside)
        pairs = pa.StructArray.from_arrays([keys, made], ["key", "value"])
        return _list_of(pairs, lengths, values)


@dataclass(frozen=True)
class _StructReader:
    fields: tuple[Field, ...]
    object: _Object

    @property
    def raw(self) -> pa.DataType:
        return self.object.raw

    def read(self, values: pa.Array, to: _Values, place: _Place) -> pa.Array:
        made = {one.name: pa.nulls(len(values), column_type(type_of(one.shape)).arrow) for one in self.fields}
        to.refuse_levels(values, place)
        self.object.fields(values, to, place.deeper(), made)
        return pa.StructArray.from_arrays(list(made.values()), list(made), mask=values.is_null())


@dataclass(frozen=True)
class _Object:
    """The fields of a record that are read: for each name, the column or field and its reader, or an inner record."""

    children: Mapping[str, tuple[str, _Reader] | _Object]

    @property
    def raw(self) -> pa.StructType:
        parts = {n: one.raw if isinstance(one, _Object) else one[1].raw for n, one in self.children.items()}
        return pa.struct(list(parts.items()))

    @property
    def first(self) -> str | None:
        """The name of the first column or field inside, if there is one."""
        found = (one.first if isinstance(one, _Object) else one[0] for one in self.children.values())
        return next((name for name in found if name is not None), None)

    def columns(self, values: pa.StructArray, to: _Values, place: _Place, made: dict[str, pa.Array]) -> None:
        """Read the columns of the log into `made`."""
        for name, child in self.children.items():
            inner = pc.struct_field(values, name)
            if isinstance(child, _Object):
                if (first := child.first) is not None:
                    to.column = first
                    to.refuse_levels(inner, place.inside(first))
                child.columns(inner, to, place.deeper(), made)
            else:
                to.column, reader = child
                made[to.column] = reader.read(inner, to, place.inside(to.column))

    def fields(self, values: pa.StructArray, to: _Values, place: _Place, made: dict[str, pa.Array]) -> None:
        """Read the fields of a struct into `made`."""
        for name, child in self.children.items():
            inner = pc.struct_field(values, name)
            if isinstance(child, _Object):
                to.refuse_levels(inner, place.inside(name))
                child.fields(inner, to, place.deeper(), made)
            else:
                made[child[0]] = child[1].read(inner, to, place.inside(child[0]))


def _lengths(values: pa.Array, to: _Values, place: _Place) -> Rows:
    """Return the number of elements of each list; a list with too many elements or levels is a misfit."""
    to.refuse_levels(values, place)
    lengths: Rows = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    to.misfit(lengths > to.log.elements, place, lambda index, path: too_many(path, to.log.elements))
    return lengths


def _list_of(elements: pa.Array, lengths: Rows, values: pa.Array) -> pa.ListArray:
    """Build lists of these lengths; a list is null where `values` is null."""
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), elements, mask=values.is_null())
