"""Read Debezium's change records as rows of a database table: added rows and retracted rows.

A message contains the row before the change, the row after the change, the operation (`op`), and the time. In JSON, the
change is the whole message, or it is in the field `payload` of the message; a schema next to this field is ignored. In
Avro, the schema is in the schema registry. An update becomes two rows with the same position in the topic. A message is
rejected as a whole if one of its rows does not fit the log. A message is also rejected if its operation requires the
row before the change and this row is missing, because the row could not be retracted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tailrace.ingest.column_types import column_type
from tailrace.ingest.framed import column_values as kinds
from tailrace.ingest.framed.avro_bodies import AvroSchema
from tailrace.ingest.framed.column_values import INSTANTS, BulkReader, Kind, Misfits
from tailrace.ingest.framed.schema_columns import SchemaColumns, UnreadableSchemaError
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.ingest.judging import WHOLE
from tailrace.model.base.values import fitted_number
from tailrace.model.logs.json_limits import DEPTH, beyond
from tailrace.model.logs.log import Log

SIDES = ("before", "after")


@dataclass(frozen=True)
class ChangedRows:
    """The rows before the changes and the rows after the changes, for a batch of messages.

    `columns` maps each side ("before" or "after") to the columns of its rows. `there` maps each side to a mask of the
    messages that have a row on this side.

    `misfits` maps the index of each rejected message to the reason.
    """

    columns: Mapping[str, Mapping[str, pa.Array]]
    there: Mapping[str, np.ndarray[Any, np.dtype[np.bool_]]]
    misfits: Misfits


class JsonChanges:
    """A reader for change records in JSON."""

    def __init__(self, log: Log) -> None:
        self.log = log
        table = {name: type for name, type in log.columns.items() if name != log.event_time}
        self._kinds = {name: _json_kind(name, type, log) for name, type in table.items()}
        # Read each column also by its former names, because a message may contain one of them. A former name is used
        # only if the current name is missing.
        raw = {name: kind.raw for column, kind in self._kinds.items() for name in log.names_of(column)}
        row = pa.struct(list(raw.items()))
        change = _change(row)
        line = pa.struct([*change, pa.field("payload", change)])
        self._line = pa.schema([pa.field("message", line), pa.field("number", pa.int64())])

    def read(self, bodies: pa.Array) -> ChangedRows:
        message = self._line.field("message").type
        reader = BulkReader(
            self._together, (pa.ArrowInvalid,), pa.nulls(1, message),
            lambda body, error: f"not one change record: {_said(error)}",
        )  # fmt: skip
        parts, misfits = reader.read_in_batches(bodies)
        read = pa.concat_arrays([pa.array([], message), *parts])
        misfits |= _beyond(bodies)
        inner = read.field("payload")
        wrapped = inner.is_valid()
        change = {name: pc.if_else(wrapped, _of(inner, name), _of(read, name)) for name in _CHANGE}
        columns = SchemaColumns(self.log, {name: name for name in self._kinds}, self._kinds)
        rows = {side: self._row(change[side]) for side in SIDES}
        for column in (name for name, type in self.log.columns.items() if type == "double"):
            for side in SIDES:
                misfits |= self._lost(column, side, rows[side][column], bodies, misfits)
        return _changed(self.log, change, rows, columns, misfits)

    def _lost(self, column: str, side: str, values: pa.Array, bodies: pa.Array, misfits: Misfits) -> Misfits:
        """Find messages in which a double column has a number that no double represents exactly.

        Arrow reads such a number as the nearest double. A number that no double represents exactly has many digits, or
        an exponent of three digits. Messages that contain a number of this form are parsed again with exact numbers,
        because the number may belong to another column or to the other side of the change. Other messages are not
        parsed again.
        """
        size = pc.abs(values)
        tiny = pc.and_(pc.equal(size, 0), _matching(bodies, r"[0-9.][eE]-0*[1-9][0-9]{2}|\.0{200}"))
        large = pc.and_(pc.greater_equal(size, WHOLE), _matching(bodies, r"[0-9]{16}"))
        suspect = pc.or_(pc.or_(tiny, large), pc.invert(pc.is_finite(values)))
        places = np.flatnonzero(pc.fill_null(suspect, False).to_numpy(zero_copy_only=False))
        return {
            int(place): f"{column} is a number that no double is"
            for place in places
            if place not in misfits and not self._is_double(column, side, bodies[int(place)].as_py())
        }

    def _is_double(self, column: str, side: str, body: bytes) -> bool:
        """Return True if a double can represent the number that a message has for a column, without losing digits."""
        change = json.loads(body, parse_float=Decimal, parse_int=_whole)
        row = (change.get("payload") or change)[side]
        given = next(row[name] for name in self.log.names_of(column) if row.get(name) is not None)
        try:
            return isfinite(fitted_number(given, "double"))
        except ValueError:
            return False

    def _row(self, row: pa.StructArray) -> dict[str, pa.Array]:
        return {column: pc.coalesce(*(_of(row, name) for name in self.log.names_of(column))) for column in self._kinds}

    def _together(self, bodies: pa.Array) -> pa.Array:
        """Read messages in one call of Arrow.

        For this call, each message becomes a line that contains the message and its index. Raises `ArrowInvalid` if a
        message is not exactly one JSON object. A message might contain a brace that closes the line's object, and then
        further objects. Such a message is detected, because Arrow then finds more objects than there are messages.
        """
        # A message may contain line ends between its tokens, so all line ends are replaced by tabs. Within a JSON
        # string, both line ends and tabs are invalid, so a string with a line end is still refused.
        texts = pc.replace_substring(bodies.cast(pa.string()), "\n", "\t")
        numbers = pa.array(range(len(bodies)), pa.int64())
        ends = pc.binary_join_element_wise(', "number": ', numbers.cast(pa.string()), "}", "")
        lines = pc.binary_join_element_wise('{"message": ', texts, ends, "")
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        read = pj.read_json(
            pa.BufferReader(pc.binary_join(whole, "\n")[0].as_buffer()),
            read_options=pj.ReadOptions(block_size=1 << 28, use_threads=False),
            parse_options=pj.ParseOptions(explicit_schema=self._line, unexpected_field_behavior="ignore"),
        )
        if not read["number"].combine_chunks().equals(numbers):
            raise pa.ArrowInvalid("several objects")
        return read["message"].combine_chunks()


class AvroChanges:
    """A reader for change records that were written with one Avro schema."""

    def __init__(self, log: Log, schema: RegisteredSchema) -> None:
        """Match the log's columns with the fields that the schema declares for a row.

        Raises `UnreadableSchemaError` if the schema is not for change records or does not match the log.
        """
        self.log, self._schema = log, AvroSchema(schema)
        for name in ("op", "source"):
            if name not in self._schema.fields:
                raise UnreadableSchemaError(f"the schema is no change record's: it has no field {name!r}")
        self._columns = SchemaColumns.of(log, self._schema.inner("before"))
        if SchemaColumns.of(log, self._schema.inner("after")) != self._columns:
            raise UnreadableSchemaError("the schema has other rows before a change than after it")
        self._raw = _change(pa.struct(list(self._columns.raw.items())))

    def read(self, bodies: pa.Array) -> ChangedRows:
        read, misfits = self._schema.read(bodies, self._raw)
        change = {name: _of(read, name) for name in _CHANGE}
        rows = {side: {name: _of(change[side], name) for name in self._columns.raw} for side in SIDES}
        return _changed(self.log, change, rows, self._columns, misfits)


def _matching(bodies: pa.Array, pattern: str) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(bodies, pattern), False)


def _beyond(bodies: pa.Array) -> Misfits:
    """Find the messages that exceed the limits for JSON records; Arrow does not check these limits.

    Only messages that have many brackets or a long sequence of digits are parsed.
    """
    brackets = pc.add(pc.count_substring(bodies, "["), pc.count_substring(bodies, "{"))
    suspect = pc.greater(brackets, DEPTH)
    said = Misfits()
    for place in np.flatnonzero(pc.fill_null(suspect, False).to_numpy(zero_copy_only=False)):
        if (reason := beyond(bodies[int(place)].as_py().decode(errors="replace"))) is not None:
            said[int(place)] = reason
    return said


def _change(row: pa.StructType) -> pa.StructType:
    """Return the Arrow type of a change record whose rows have the type `row`."""
    source = pa.struct([("ts_ms", pa.int64()), ("ts_us", pa.int64())])
    fields = {"op": pa.string(), "before": row, "after": row, "source": source, "ts_ms": pa.int64()}
    return pa.struct(list(fields.items()))


_CHANGE = ("op", "before", "after", "source", "ts_ms")


def _changed(
    log: Log, change: Mapping[str, pa.Array], rows: Mapping[str, Mapping[str, pa.Array]], columns: SchemaColumns,
    misfits: Misfits,
) -> ChangedRows:  # fmt: skip
    """Check change records, and convert their rows to the log's columns."""
    count, at = len(change["op"]), _times(change)
    there = {side: change[side].is_valid().to_numpy(zero_copy_only=False) for side in SIDES}
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
    made = {}
    for side in SIDES:
        made[side], unlike = columns.columns(rows[side], count)
        made[side][log.event_time] = at
        wrong = {place: f"{side}: {reason}" for place, reason in unlike.items() if there[side][place]} | wrong
    return ChangedRows(made, there, {**wrong, **misfits})


def _times(change: Mapping[str, pa.Array]) -> pa.Array:
    """Return the times at which the database made the changes.

    If the time of a change is unknown, the result has the time at which Debezium read the change.
    """
    micros, millis = _of(change["source"], "ts_us"), _of(change["source"], "ts_ms")
    first = pc.coalesce(micros, pc.multiply(millis, 1000), pc.multiply(change["ts_ms"], 1000))
    return first.cast(pa.timestamp("us", "UTC"))


def _no_change(op: object) -> str:
    if op == "t":
        return "the change 't' takes back all rows and names none: delete them in the table, or build the log anew"
    return "there is no op" if op is None else f"the change {str(op)[:20]!r} is none of c, r, u and d"


def _of(struct: pa.StructArray, name: str) -> pa.Array:
    """Return a field of structs; the field is null if the struct is null."""
    return pc.struct_field(struct, name)


def _json_kind(name: str, type: str, log: Log) -> Kind:
    """Return the kind of the values that Debezium writes in JSON for a column of this type."""
    if type == "timestamp":
        return kinds.INSTANT_TEXT if (unit := log.unit_of(name)) is None else INSTANTS[unit]
    if type == "date":
        return kinds.DATE_TEXT if log.unit_of(name) is None else kinds.DATE
    return Kind(type, column_type(type).arrow)


def _said(error: Exception) -> str:
    """Shorten an error message from Arrow to the part that describes the fault of the message."""
    return str(error).removeprefix("JSON parse error: ").split(" in row ", 1)[0].replace("/message/", "")[:200]


_NEEDS: Mapping[str, tuple[str, ...]] = {"c": ("after",), "r": ("after",), "u": SIDES, "d": ("before",)}
"""The rows that a change record must contain, by operation: create ("c"), read ("r"), update ("u") and delete ("d")."""

_FULL = "set REPLICA IDENTITY FULL for the table (in MySQL binlog_row_image=FULL), and build the log anew"


def _whole(digits: str) -> int | Decimal:
    # Python refuses to convert a text of thousands of digits to an integer.
    return int(digits) if len(digits) < 400 else Decimal(digits)
