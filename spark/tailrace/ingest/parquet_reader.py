"""Read Parquet files to a log's columns: in this process and on Spark's executors alike (rule X6).

The types of a file's columns are compared with the log once for each file. If a column can never hold values of its
declared type, or if a column is missing or undeclared, each row of the file is rejected. Otherwise, only the columns
are read that the log needs, and each row is converted or rejected by itself (`arrow_values`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.ingest.arrow_values import ArrowValues, Converted, total_rounded
from tailrace.ingest.column_types import WITHOUT_ZONE, parquet_kind, parquet_kinds, parquet_type
from tailrace.ingest.folder_values import FolderValues, folder_reasons
from tailrace.ingest.json_texts import is_listed, json_objects, value_sizes
from tailrace.ingest.line_reader import Rows
from tailrace.ingest.plain_columns import Mask, as_numbers, fit_mask, schema_of
from tailrace.model.logs.json_records import DECLARE, Branch, branch_of, time_fault
from tailrace.model.logs.log import ROUNDED, Log, too_large
from tailrace.model.logs.shapes import Listed, Mapped, Plain, Shape, Struct

_TOGETHER = 64 * 2**20
"""The number of bytes of rows that are converted together, if some of them may be large."""

_SMALL = 4_096
"""The average number of rows of a row group below which the row groups of a slice are converted together."""


@dataclass
class ParquetColumns:
    """The comparison of a file's columns with the columns of a log.

    `unlike` describes how they differ; the text is empty if they match. `leaves` are the places of the columns to read
    among all columns of the file that have no parts. `twice` says whether two columns have one name. `old` says whether
    the file has instants of 96 bits.
    """

    log: Log
    unlike: str
    twice: bool
    leaves: list[int]
    schema: pa.Schema
    old: bool

    @classmethod
    def of(cls, log: Log, file: pq.ParquetFile) -> ParquetColumns:
        """Compare the columns of a file with the columns of a log."""
        schema = file.schema_arrow
        leaves = [file.schema.column(place) for place in range(len(file.schema.names))]
        old = [leaf.physical_type == "INT96" for leaf in leaves]
        if any(old):
            place = count()
            schema = pa.schema([field.with_type(_with_instants(field.type, old, place)) for field in schema])
        walk = _Walk(log)
        walk.fields(branch_of(log.shape), list(schema), "")
        missing = []
        for name in filter(None, (log.event_time, log.arrival_time)):
            if name not in walk.found and name not in log.folders:
                missing.append(f"no column {log.fields.get(name, name)!r}")
        wrong = dict.fromkeys([*missing, *walk.twice, *walk.wrong])
        everything = log.rest is not None or bool(wrong)
        needed = list(range(len(leaves))) if everything else walk.needed
        return cls(log, "; ".join(wrong), bool(walk.twice), needed, schema, any(old))

    def reader(self) -> ParquetRows:
        """Return the reader of rows with these columns."""
        return ParquetRows(self.log, self.unlike, self.schema if self.old else None)


@dataclass
class _Walk:
    """A walk through the columns of a file, in the order in which the file has their parts."""

    log: Log
    twice: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    needed: list[int] = field(default_factory=list)
    found: set[str] = field(default_factory=set)
    leaf: int = 0

    def fields(self, branch: Branch, there: Sequence[pa.Field], path: str) -> None:
        """Compare the fields of an object with the columns in it."""
        names = Counter(one.name for one in there)
        self.twice += [f"column {path + name!r} is there twice" for name, times in names.items() if times > 1]
        for one in there:
            child, place, type = branch.children.get(one.name), path + one.name, _plain_type(one.type)
            if child is None:
                if self.log.unknown == "reject" and self.log.rest is None:
                    self.wrong.append(f"unknown column {place!r}{DECLARE}")
                self.leaf += _leaves(type)
            elif isinstance(child, Branch):
                if pa.types.is_struct(type):
                    self.fields(child, list(type), f"{place}.")
                    continue
                if not pa.types.is_null(type):
                    self.wrong.append(f"column {place!r} is {parquet_type(type)}, which has no fields")
                self.leaf += _leaves(type)
            else:
                self.found.add(child.name)
                self.value(child.shape, type, place)

    def value(self, shape: Shape, type: pa.DataType, place: str) -> None:
        """Compare the type of a column, or of a part of a column, with a shape."""
        begins, read, type = self.leaf, len(self.needed), _plain_type(type)
        if isinstance(shape, Struct) and pa.types.is_struct(type):
            self.fields(self.log_branch(shape), list(type), f"{place}.")
        elif isinstance(shape, Listed) and is_listed(type) and not pa.types.is_map(type):
            self.value(shape.element, type.value_type, place)
        elif isinstance(shape, Mapped) and pa.types.is_map(type) and _is_text(type.key_type):
            self.needed.append(self.leaf)
            self.leaf += 1
            self.value(shape.value, type.item_type, place)
        else:
            self.leaf += _leaves(type)
            self.needed += range(begins, self.leaf)
            if (fault := self._unfit(shape, type)) is not None:
                self.wrong.append(f"column {place!r} is {parquet_type(type)}, {fault}")
        if len(self.needed) == read:
            # A part must be read, because it shows whether the whole is null.
            self.needed.append(begins)

    def log_branch(self, shape: Struct) -> Branch:
        """Return the places of a struct's fields."""
        return branch_of(shape.fields)

    def _unfit(self, shape: Shape, type: pa.DataType) -> str | None:
        """Return a description of a shape that can hold no value of a type; None if it can hold some values."""
        if pa.types.is_null(type):
            return None
        if not isinstance(shape, Plain):
            return f"declared as {({Listed: 'array', Mapped: 'map', Struct: 'struct'})[shape.__class__]}"
        if shape.type == "json":
            return None
        kind = parquet_kind(type)
        if kind not in parquet_kinds(shape.type, shape.form):
            return f"declared as {shape.type}"
        if kind == WITHOUT_ZONE and self.log.zone is None:
            return f'declared as {shape.type}: set zone in the log, such as zone="UTC"'
        return None


class ParquetRows:
    """The reader of rows with the columns of a file."""

    def __init__(self, log: Log, unlike: str, schema: pa.Schema | None) -> None:
        self.log, self.unlike, self._schema = log, unlike, schema
        self._root = branch_of(log.shape)
        self._values = ArrowValues(log)

    def read(self, rows: pa.Table, source: str, begins: int, arrived: int) -> Iterator[pa.Table]:
        """Convert rows to records, valid and rejected ones (`plain_columns.schema_of`).

        The first row has the position `begins`; `arrived` is the time at which the file was written.
        """
        chunks = max((column.num_chunks for column in rows.columns), default=1)
        whole = rows.combine_chunks() if chunks > 1 and rows.num_rows < _SMALL * chunks else rows
        for batch in whole.to_batches():
            places = self._places(source, begins, batch.num_rows, arrived)
            if batch.nbytes > self.log.record_bytes or any(map(_may_repeat, batch.schema.types)):
                yield from self._sized(batch, places, source)
            else:
                yield self._records(batch, places, source)
            begins += batch.num_rows

    def _places(self, source: str, begins: int, rows: int, arrived: int) -> pa.Table:
        at = pa.scalar(arrived, schema_of(self.log).field("_arrival").type)
        return pa.table({
            "_source": pa.repeat(pa.scalar(source, pa.string()), rows), "_offset": pa.arange(begins, begins + rows),
            "_arrival": pa.repeat(at, rows),
        })  # fmt: skip

    def _sized(self, batch: pa.RecordBatch, places: pa.Table, source: str) -> Iterator[pa.Table]:
        """Convert rows of which some may be too large; such a row is rejected with its place alone.

        Many rows that are large, but not too large, are converted a few at a time.
        """
        sizes = sum((value_sizes(one) for one in batch.columns), np.zeros(batch.num_rows, np.int64))
        large = sizes > self.log.record_bytes
        ends = np.cumsum(np.where(large, 0, sizes))
        for begins, end in pairwise([*_cuts(ends, _TOGETHER), batch.num_rows]):
            some, there = large[begins:end], places.slice(begins, end - begins)
            if not some.any():
                yield self._records(batch.slice(begins, end - begins), there, source)
                continue
            kept, left = begins + np.flatnonzero(~some), there.filter(pa.array(some))
            read = self._records(batch.take(pa.array(kept)), there.filter(pa.array(~some)), source)
            reason = pa.repeat(pa.scalar(too_large(self.log)), len(left))
            rejected = _table(read.schema, {**_columns(left), "_error": reason}, len(left))
            yield pa.concat_tables([read, rejected]).sort_by("_offset")

    def _records(self, batch: pa.RecordBatch, there: pa.Table, source: str) -> pa.Table:
        rows, schema, places = batch.num_rows, schema_of(self.log), _columns(there)
        given = {name: self._as_instants(name, values) for name, values in zip(batch.schema.names, batch, strict=True)}
        if self.unlike:
            raw = json_objects(given, rows).cast(pa.binary())
            return _table(schema, places | {"_error": pa.repeat(pa.scalar(self.unlike), rows), "_raw": raw}, rows)
        found = self._values.columns(self._root, given, rows)
        if self.log.rest is not None:
            found[self.log.rest] = self._values.of_texts(self._rest(given, rows), 0)
        made = {name: one.values for name, one in found.items()}
        placed = FolderValues.of(self._values.records, made, places["_source"])
        unplaced = folder_reasons(self._values.records, made, source, placed.misfits) if placed.misfits.any() else {}
        made |= placed.columns
        if self.log.arrival_time is not None:
            places["_arrival"] = made[self.log.arrival_time]
        if self.log.rounds:
            rounded = total_rounded(found.values())
            made[ROUNDED] = pa.array(np.zeros(rows, np.int32) if rounded is None else rounded, pa.int32())
        table = _table(schema, made | places, rows)
        fits: Mask = fit_mask(self.log, table).to_numpy(zero_copy_only=False).astype(np.bool_)
        for one in found.values():
            if one.misfits is not None:
                fits &= ~one.misfits
        fits &= ~placed.misfits
        return table if fits.all() else self._judged(table, given, found, fits, unplaced)

    def _judged(
        self, table: pa.Table, given: Mapping[str, pa.Array], found: Mapping[str, Converted], fits: Mask,
        unplaced: Mapping[int, str],
    ) -> pa.Table:  # fmt: skip
        """Reject the rows that do not fit; `unplaced` are the reasons for rows that do not fit their folder."""
        bad = np.flatnonzero(~fits)
        rows = pa.array(bad)
        some = table.take(rows)
        errors = self._reasons(some, bad, found, unplaced)
        raw = json_objects({name: values.take(rows) for name, values in given.items()}, len(bad)).cast(pa.binary())
        own = {"_source": some["_source"], "_offset": some["_offset"]}
        own["_arrival"] = pa.nulls(len(bad), some["_arrival"].type) if self.log.arrival_time else some["_arrival"]
        judged = _table(table.schema, {**own, "_error": pa.array(errors, pa.string()), "_raw": raw}, len(bad))
        good = np.flatnonzero(fits)
        order = np.argsort(np.concatenate([good, bad]))
        return pa.concat_tables([table.take(pa.array(good)), judged]).take(pa.array(order))

    def _reasons(
        self, some: pa.Table, bad: Rows, found: Mapping[str, Converted], unplaced: Mapping[int, str]
    ) -> list[str]:
        """Return the reason for rejecting each row, the same as for a record in JSON with the same values."""
        numbers = {name: as_numbers(some[name]).to_pylist() for name in self.log.columns}
        arrivals = some["_arrival"].cast(pa.int64()).to_pylist()
        errors = list[str]()
        for place, row in enumerate(bad):
            marked = {n: one for n, one in found.items() if one.misfits is not None and one.misfits[row]}
            reasons = [marked[name].reason(int(row), name) for name in self.log.columns if name in marked]
            values = {name: column[place] for name, column in numbers.items()}
            known = None if self.log.arrival_time else arrivals[place]
            misplaced = unplaced.get(int(row))
            errors.append("; ".join(reasons) or misplaced or time_fault(self.log, values, known) or "not as declared")
        return errors

    def _rest(self, given: Mapping[str, pa.Array], rows: int) -> pa.StringArray:
        """Write the values of undeclared columns as one JSON object; null if there are none."""
        others = {name: values for name, values in given.items() if name not in self._root.children}
        texts = json_objects(others, rows)
        return pc.if_else(pc.equal(texts, "{}"), pa.scalar(None, pa.string()), texts)

    def _as_instants(self, name: str, values: pa.Array) -> pa.Array:
        """Take old instants as instants; Arrow reads them as times without a zone."""
        if self._schema is None:
            return values
        return values.cast(_pruned(self._schema.field(name).type, values.type))


def _table(schema: pa.Schema, columns: Mapping[str, pa.Array], rows: int) -> pa.Table:
    return pa.table([columns.get(one.name, pa.nulls(rows, one.type)) for one in schema], schema=schema)


def _columns(table: pa.Table) -> dict[str, pa.Array]:
    return {name: table[name].combine_chunks() for name in table.column_names}


def _cuts(ends: npt.NDArray[np.int64], most: int) -> Iterator[int]:
    """Yield the first row of each part whose rows have about `most` bytes; `ends` are the sums of the rows' bytes."""
    row, before = 0, 0
    while row < len(ends):
        yield row
        row = max(row + 1, int(np.searchsorted(ends, before + most, side="right")))
        before = int(ends[row - 1])


def _may_repeat(type: pa.DataType) -> bool:
    """Return True if one value may be stored once and be there at many places."""
    if isinstance(type, pa.BaseExtensionType):
        return _may_repeat(type.storage_type)
    return pa.types.is_dictionary(type) or any(_may_repeat(type.field(n).type) for n in range(type.num_fields))


def _plain_type(type: pa.DataType) -> pa.DataType:
    """Return a type without its encoding and without the name of an extension."""
    if isinstance(type, pa.BaseExtensionType):
        return _plain_type(type.storage_type)
    return _plain_type(type.value_type) if pa.types.is_dictionary(type) else type


def _leaves(type: pa.DataType) -> int:
    """Return the number of columns without parts that a file has for a column of a type."""
    type = _plain_type(type)
    if pa.types.is_struct(type):
        return sum(_leaves(one.type) for one in type)
    if pa.types.is_map(type):
        return _leaves(type.key_type) + _leaves(type.item_type)
    return _leaves(type.value_type) if is_listed(type) else 1


def _is_text(type: pa.DataType) -> bool:
    return parquet_kind(_plain_type(type)) == "string"


def _with_instants(type: pa.DataType, old: Sequence[bool], place: Iterator[int]) -> pa.DataType:
    """Return a type in which the old instants of a file have a zone."""
    if pa.types.is_struct(type):
        return pa.struct([one.with_type(_with_instants(one.type, old, place)) for one in type])
    if pa.types.is_map(type):
        key = _with_instants(type.key_type, old, place)
        return pa.map_(key, _with_instants(type.item_type, old, place))
    if is_listed(type):
        return pa.list_(type.value_field.with_type(_with_instants(type.value_type, old, place)))
    return pa.timestamp("us", "UTC") if old[next(place)] else type


def _pruned(type: pa.DataType, read: pa.DataType) -> pa.DataType:
    """Return a type with only the fields that were read."""
    if pa.types.is_struct(type):
        return pa.struct([one.with_type(_pruned(type.field(one.name).type, one.type)) for one in read])
    if pa.types.is_map(type):
        return pa.map_(_pruned(type.key_type, read.key_type), _pruned(type.item_type, read.item_type))
    return pa.list_(_pruned(type.value_type, read.value_type)) if is_listed(type) else type
