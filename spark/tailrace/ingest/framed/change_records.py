"""Read Debezium's change records as rows of a database table: added rows and retracted rows.

A message contains the row before the change, the row after the change, the operation (`op`), and the time. In JSON, the
change is the whole message, or it is in the field `payload` of the message; a schema next to this field is ignored. In
Avro, the schema is in the schema registry. An update becomes two rows with the same position in the topic. A message is
rejected as a whole if one of its rows does not fit the log. A message is also rejected if its operation requires the
row before the change and this row is missing, because the row could not be retracted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.column_values import Misfits
from tailrace.ingest.framed.avro_bodies import avro_schema
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.ingest.json_reader import JsonReader
from tailrace.ingest.line_reader import LINES, Rows
from tailrace.ingest.plain_columns import Mask
from tailrace.ingest.schema_columns import SchemaColumns, UnreadableSchemaError
from tailrace.model.base.errors import Fault
from tailrace.model.base.json_scalars import rounded_in
from tailrace.model.logs.log import ROUNDED, Log
from tailrace.model.logs.shapes import Field, Path, Plain, Struct, type_of

SIDES = ("before", "after")


@dataclass(frozen=True)
class ChangedRows:
    """The rows before the changes and the rows after the changes, for a batch of messages.

    `columns` maps each side ("before" or "after") to the columns of its rows. `there` maps each side to a mask of the
    messages that have a row on this side.

    `misfits` maps the index of each rejected message to the reason.
    """

    columns: Mapping[str, Mapping[str, pa.Array]]
    there: Mapping[str, Mask]
    misfits: Misfits


@dataclass(frozen=True, kw_only=True)
class _Messages(Log):
    """The messages of a log of changes in JSON, as a log of their own: its columns are the parts of a change.

    Each part has two columns, as the change is the message, or is in the field `payload` of the message.
    """

    of: Log

    def _faults(self) -> Iterable[Fault]:
        return ()

    @cached_property
    def shape(self) -> tuple[Field, ...]:
        return _parts(self.of)


def _parts(log: Log) -> tuple[Field, ...]:
    row = Struct(tuple(one for column in log.shape for one in _named(log, column)), log.rest)
    places: Mapping[str, tuple[Path, Plain | Struct]] = {
        "op": (("op",), Plain("string")), "before": (("before",), row), "after": (("after",), row),
        "us": (("source", "ts_us"), Plain("bigint")), "ms": (("source", "ts_ms"), Plain("bigint")),
        "read": (("ts_ms",), Plain("bigint")),
    }  # fmt: skip
    return tuple(
        Field(prefix + name, (*outer, *place), shape)
        for prefix, outer in (("", ()), (_INNER, ("payload",)))
        for name, (place, shape) in places.items()
    )


def _named(log: Log, column: Field) -> Iterator[Field]:
    """Yield a field for each name that a column of the table may have, because a message may have one of them."""
    if column.name == log.event_time:
        return
    yield column
    for number, name in enumerate(log.names_of(column.name)[1:]):
        yield replace(column, name=f"{column.name}-{number}", place=(name,))


def _names(log: Log, column: str) -> tuple[str, ...]:
    """Return the names of the fields that may have a column's value (`_named`)."""
    return (column, *(f"{column}-{number}" for number in range(len(log.names_of(column)) - 1)))


class JsonChanges:
    """A reader for change records in JSON."""

    def __init__(self, log: Log) -> None:
        self.log = log
        types = {one.name: type_of(one.shape) for one in _parts(log)}
        messages = _Messages(
            name=log.name, columns=types, event_time=log.event_time, unknown="ignore", zone=log.zone,
            elements=log.elements, record_bytes=log.record_bytes, of=log,
        )  # fmt: skip
        self._reader = JsonReader(messages, times=False)

    def read(self, bodies: pa.Array) -> ChangedRows:
        nothing = [pa.nulls(len(bodies), type) for type in LINES.types[1:]]
        read = self._reader.read(pa.record_batch([bodies, *nothing], LINES)).combine_chunks()
        errors = read["_error"]
        misfits = {int(place): errors[int(place)].as_py() for place in np.flatnonzero(errors.is_valid().to_numpy())}
        parts = {name: _one_chunk(column) for name, column in zip(read.column_names, read.columns, strict=True)}
        wrapped = pc.or_(*(parts[_INNER + side].is_valid() for side in SIDES))
        wrapped = pc.or_(wrapped, parts[f"{_INNER}op"].is_valid())
        change = {name: pc.if_else(wrapped, parts[_INNER + name], parts[name]) for name in ("op", "us", "ms", "read")}
        rows = {side: pc.if_else(wrapped, parts[_INNER + side], parts[side]) for side in SIDES}
        columns = {side: dict(self._columns(row)) for side, row in rows.items()}
        if self.log.rounds:
            counts = self._rounded(bodies, parts[ROUNDED])
            for side in SIDES:
                columns[side][ROUNDED] = pa.array(counts[side], pa.int32())
        return _changed(self.log, change, rows, columns, misfits)

    def _rounded(self, bodies: pa.Array, counts: pa.Array) -> dict[str, Rows]:
        """Count the rounded values of the rows on each side.

        `counts` are the rounded values of each message. A message that has some is read again by the model.
        """
        made = {side: np.zeros(len(bodies), np.int64) for side in SIDES}
        for place in np.flatnonzero(pc.fill_null(counts, 0).to_numpy(zero_copy_only=False)):
            values = self._reader.values.read(bodies[int(place)].as_py())
            assert not isinstance(values, str), "a rejected message has no rounded values"
            for side in SIDES:
                row = values[_INNER + side] or values[side] or {}
                taken = (
                    next((row[one] for one in _names(self.log, name) if row.get(one) is not None), None)
                    for name in self.log.columns
                )
                made[side][place] = rounded_in(list(taken))
        return made

    def _columns(self, rows: pa.StructArray) -> Iterator[tuple[str, pa.Array]]:
        for name in self.log.columns:
            if name != self.log.event_time:
                yield name, pc.coalesce(*(pc.struct_field(rows, one) for one in _names(self.log, name)))


class AvroChanges:
    """A reader for change records that were written with one Avro schema."""

    def __init__(self, log: Log, schema: RegisteredSchema) -> None:
        """Match the log's columns with the fields that the schema declares for a row.

        Raises `UnreadableSchemaError` if the schema is not for change records or does not match the log.
        """
        self.log, self._schema = log, avro_schema(schema)
        for name in ("op", "source"):
            if name not in self._schema.kind.fields:
                raise UnreadableSchemaError(f"the schema is no change record's: it has no field {name!r}")
        row = self._schema.inner("before")
        if self._schema.inner("after") != row:
            raise UnreadableSchemaError("the schema has other rows before a change than after it")
        self._columns = SchemaColumns.of(log, row)
        source = pa.struct([("ts_us", pa.int64()), ("ts_ms", pa.int64())])
        row_type = self._columns.raw
        fields = {"op": pa.binary(), "before": row_type, "after": row_type, "source": source, "ts_ms": pa.int64()}
        self._raw = pa.struct(list(fields.items()))

    def read(self, bodies: pa.Array) -> ChangedRows:
        read, misfits = self._schema.read(bodies, self._raw)
        source = pc.struct_field(read, "source")
        # An operation that is not one letter is none of the known ones.
        op = pc.struct_field(read, "op")
        letters = pc.if_else(pc.less_equal(pc.binary_length(op), 1), op, b"?").cast(pa.string())
        change = {
            "op": letters, "us": pc.struct_field(source, "ts_us"), "ms": pc.struct_field(source, "ts_ms"),
            "read": pc.struct_field(read, "ts_ms"),
        }  # fmt: skip
        rows = {side: pc.struct_field(read, side) for side in SIDES}
        columns = dict[str, Mapping[str, pa.Array]]()
        for side, row in rows.items():
            columns[side], unlike = self._columns.read(row)
            misfits = {place: f"{side}.{reason}" for place, reason in unlike.items()} | misfits
        return _changed(self.log, change, rows, columns, misfits)


def _changed(
    log: Log, change: Mapping[str, pa.Array], rows: Mapping[str, pa.Array],
    columns: Mapping[str, Mapping[str, pa.Array]], misfits: Misfits,
) -> ChangedRows:  # fmt: skip
    """Check which rows the changes have, and add the event time to the rows."""
    # The time at which the database made the change or, if it is unknown, the time at which Debezium read the change.
    millis = [pc.multiply(change[name], 1000) for name in ("ms", "read")]
    at = pc.coalesce(change["us"], *millis).cast(pa.timestamp("us", "UTC"))
    there: dict[str, Any] = {side: rows[side].is_valid().to_numpy(zero_copy_only=False) for side in SIDES}
    ops = change["op"].to_numpy(zero_copy_only=False)
    wrong = dict[int, str]()
    for place in np.flatnonzero(~np.isin(ops.astype(str), [*_NEEDS])):
        wrong[int(place)] = _no_change(ops[place])
    for op, needs in _NEEDS.items():
        for side in needs:
            for place in np.flatnonzero((ops == op) & ~there[side]):
                reason = f"the change {op!r} does not say what the row was before: {_FULL}"
                wrong.setdefault(int(place), reason if side == "before" else f"the change {op!r} has no row after it")
        # Ignore a row that the operation does not use. For example, the row before a create operation may contain only
        # the key.
        for side in set(SIDES) - set(needs):
            there[side] &= ops != op
    made = {side: {**columns[side], log.event_time: at} for side in SIDES}
    return ChangedRows(made, there, {**wrong, **misfits})


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _no_change(op: object) -> str:
    if op == "t":
        return "the change 't' takes back all rows and names none: delete them in the table, or build the log anew"
    return "there is no op" if op is None else f"the change {str(op)[:20]!r} is none of c, r, u and d"


_INNER = "payload-"
"""The beginning of the names of the parts inside `payload`."""

_NEEDS: Mapping[str, tuple[str, ...]] = {"c": ("after",), "r": ("after",), "u": SIDES, "d": ("before",)}
"""The rows that a change record must contain, by operation: create ("c"), read ("r"), update ("u") and delete ("d")."""

_FULL = "set REPLICA IDENTITY FULL for the table (in MySQL binlog_row_image=FULL), and build the log anew"
