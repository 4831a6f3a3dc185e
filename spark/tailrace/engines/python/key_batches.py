"""The batch of keys that a computation's `process_batch` and `process_timers` receive, over Arrow and NumPy columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.python import columns
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment
from tailrace.model.definition.computation import Computation, ComputationError
from tailrace.model.definition.key_batch import EVENT, KEY, Domain
from tailrace.model.step.computation_state import source_of

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

NO_HOLD = np.iinfo(np.int64).max
"""The number that stands for a timer that does not hold back the readers' watermark."""

INSTANT = pa.timestamp("us", "UTC")


class Timers(NamedTuple):
    """Timers of keys as columns. `event` is true for a timer of event time; `at` and `holds` are in microseconds."""

    key: Numbers
    name: pa.Array
    event: Mask
    at: Numbers
    holds: Numbers

    @classmethod
    def none(cls) -> Timers:
        """Return no timers."""
        empty = np.empty(0, np.int64)
        return cls(empty, pa.array([], pa.string()), np.empty(0, np.bool_), empty, empty)

    @classmethod
    def of_lists(cls, lists: pa.Array) -> Timers:
        """Read the timers of the keys whose states are the rows of a column of the ledger."""
        name, domain, at, holds = columns.fields(one_array(pc.list_flatten(lists)))
        keys = numbers(pc.list_parent_indices(lists))
        event = mask(pc.equal(domain, EVENT.value))
        held = pc.fill_null(holds.cast(pa.int64()), pa.scalar(NO_HOLD, pa.int64()))
        return cls(keys, name.cast(pa.string()), event, numbers(at.cast(pa.int64())), numbers(held))

    def take(self, places: Numbers | Mask) -> Timers:
        """Return the timers at some places."""
        chosen = np.flatnonzero(places) if places.dtype == np.bool_ else places
        names = self.name.take(pa.array(chosen))
        return Timers(self.key[chosen], names, self.event[chosen], self.at[chosen], self.holds[chosen])

    def in_turn(self) -> Timers:
        """Sort the timers by key, and those of a key into the order in which they fire."""
        order = np.lexsort((self.at, self.event, self.key))
        key, event, at = self.key[order], self.event[order], self.at[order]
        same = (key[1:] == key[:-1]) & (event[1:] == event[:-1]) & (at[1:] == at[:-1])
        if same.any():
            rank = numbers(pc.rank(self.name, tiebreaker="dense"))
            order = np.lexsort((rank, self.at, self.event, self.key))
        return self.take(order)

    def due(self, watermark: int, now: int) -> Mask:
        """Tell which timers are due."""
        found: Mask = np.where(self.event, self.at <= watermark, self.at <= now)
        return found

    def table(self) -> pa.Table:
        """Return the table of the timers that user code reads."""
        return pa.table(
            {
                KEY: self.key,
                "name": self.name,
                "domain": self.domains,
                "at": pa.array(self.at).cast(INSTANT),
                "holds": self.held,
            }
        )

    @property
    def domains(self) -> pa.Array:
        """The timers' domains as text."""
        return pc.if_else(pa.array(self.event), EVENT.value, Domain.PROCESSING.value)

    @property
    def held(self) -> pa.Array:
        """The timers' `holds` as instants, or null."""
        return pa.array(self.holds, mask=self.holds == NO_HOLD).cast(INSTANT)


class _Change(NamedTuple):
    """Timers that a call sets, or deletes if `sets` is false; `rows` are the rows that the call named."""

    rows: Numbers
    timers: Timers
    sets: bool


class Made(NamedTuple):
    """Productions of one call: their keys, the rows that they belong to, their columns, and their event times."""

    key: Numbers
    rows: Numbers
    values: Mapping[str, pa.Array]
    at: Numbers


@dataclass(frozen=True)
class Rows:
    """What a batch's outputs belong to: records or due timers, each with its key.

    `floor` is the earliest event time of an output for each key, and `default` the event time of a production for each
    row, in microseconds.
    """

    key: Numbers
    floor: Numbers
    default: Numbers


class ColumnBatch:
    """The implementation of `Batch`. `types` has the types of the ledger's columns."""

    def __init__(
        self,
        computation: Computation,
        types: pa.Schema,
        keys: pa.Table,
        state: Mapping[str, pa.Array],
        rows: Rows,
        records: pa.Table,
        pending: Timers,
        due: Timers,
        watermark: int,
        now: int,
    ) -> None:
        self._computation, self._types, self._rows = computation, types, rows
        self.keys, self.records, self._pending, self._due = keys, records, pending, due
        self.state: MutableMapping[str, pa.Array] = _State(computation, types, state, keys.num_rows)
        self._watermark, self._now = watermark, now
        self.left, self.made, self._changes = np.zeros(keys.num_rows, np.bool_), list[Made](), list[_Change]()

    @cached_property
    def timers(self) -> pa.Table:
        """The table of the pending timers."""
        return self._pending.table()

    @cached_property
    def due(self) -> pa.Table:
        """The table of the timers that fire now."""
        return self._due.table()

    @property
    def watermark(self) -> datetime:
        """The watermark that user code may read."""
        return moment(self._watermark)

    @property
    def processing_time(self) -> datetime:
        """The epoch's processing time."""
        return moment(self._now)

    def produce(self, rows: Any, record: Mapping[str, Any], event_time: Any = None) -> None:
        """Output a record for each of `rows`."""
        of = self._rows_of(rows)
        declared = type(self._computation).produces
        if not record.keys() <= declared.keys():
            raise ComputationError(f"{self._name}: produced {', '.join(record.keys() - declared.keys())}: not declared")
        values = {
            name: column_of(record.get(name), len(of), self._types.field(name).type, f"{self._name}: produced {name}")
            for name in declared
        }
        at = self._rows.default[of] if event_time is None else self._instants(event_time, len(of))
        keys = self._rows.key[of]
        self._check(at, keys, "produced a record")
        self.made.append(Made(keys, of, values, at))

    def set_timers(self, rows: Any, name: Any, at: Any, domain: Domain = EVENT, *, holds: Any = None) -> None:
        """Set a timer for each of `rows`."""
        of = self._rows_of(rows)
        times = self._instants(at, len(of)).clip(BEGINNING, END_OF_TIME)
        keys = self._rows.key[of]
        if holds is not None:
            held = self._instants(holds, len(of))
            self._check(held, keys, "set a timer that holds")
        elif domain is EVENT:
            held = times
            # Where the timer lies before its record, earlier timers of the key decide what it may hold.
            self.left[keys[times < self._rows.default[of]]] = True
        else:
            held = np.full(len(of), NO_HOLD, np.int64)
        event = np.full(len(of), domain is EVENT, np.bool_)
        self._changes.append(_Change(of, Timers(keys, self._names(name, len(of)), event, times, held), sets=True))

    def delete_timers(self, rows: Any, name: Any) -> None:
        """Delete a timer for each of `rows`."""
        of = self._rows_of(rows)
        none = np.zeros(len(of), np.int64)
        gone = Timers(self._rows.key[of], self._names(name, len(of)), none.astype(np.bool_), none, none)
        self._changes.append(_Change(of, gone, sets=False))

    def appended(self, lists: Any, keys: Any, values: Any) -> pa.Array:
        """Return a column of lists with each of `values` appended to the list of its key."""
        lists, added, to = one_array(lists), _array(values), np.asarray(keys, np.int64)
        flat = one_array(pc.list_flatten(lists))
        parents = np.concatenate([numbers(pc.list_parent_indices(lists)), to])
        order = np.argsort(parents, kind="stable")
        elements = pa.concat_arrays([flat, added.cast(flat.type)]).take(pa.array(order))
        lengths = np.bincount(parents, minlength=len(lists))
        made = columns.lists(lengths.tolist(), elements, lists.type)
        if lists.null_count:
            made = pc.if_else(pa.array((lengths == 0) & mask(lists.is_null())), pa.scalar(None, lists.type), made)
        return made

    def by_record(self, keys: Any) -> None:
        """Leave some keys to the code for one record."""
        chosen = _rows(keys)
        self.left[chosen] = True

    def pending(self) -> tuple[Timers, Numbers]:
        """Return the timers that are pending after the calls, and the number of timers that were set for each key."""
        made = np.zeros(self.keys.num_rows, np.int64)
        if not self._changes:
            return self._pending, made
        for one in self._changes:
            if one.sets:
                made += np.bincount(one.timers.key, minlength=len(made))
        parts = [self._pending, *(one.timers for one in self._changes)]
        sets = [True, *(one.sets for one in self._changes)]
        stays = np.concatenate([np.full(len(one.key), kept) for one, kept in zip(parts, sets, strict=True)])
        turns = [np.full(len(self._pending.key), -1), *(one.rows for one in self._changes)]
        every = Timers(
            np.concatenate([one.key for one in parts]),
            pa.concat_arrays([one.name for one in parts]),
            *(np.concatenate([getattr(one, name) for one in parts]) for name in ("event", "at", "holds")),
        )
        names = numbers(every.name.dictionary_encode().indices)
        # The last call for a key's name counts: calls are in the order of their rows, and of the calls for a row.
        order = np.lexsort((np.concatenate(turns), names, every.key))
        key, name = every.key[order], names[order]
        last = np.ones(len(order), np.bool_)
        last[:-1] = (key[1:] != key[:-1]) | (name[1:] != name[:-1])
        kept = order[last]
        return every.take(kept[stays[kept]]).in_turn(), made

    @property
    def _name(self) -> str:
        return self._computation.name

    def _rows_of(self, rows: Any) -> Numbers:
        found = _rows(rows)
        count = len(self._rows.key)
        if found.size and not (found.min() >= 0 and found.max() < count):
            raise ComputationError(f"{self._name}: rows up to {found.max()}: expected rows of a table of {count}")
        return found

    def _names(self, name: Any, count: int) -> pa.Array:
        found = column_of(name, count, pa.string(), f"{self._name}: a timer's name")
        if found.null_count or (count and pc.min(pc.binary_length(found)).as_py() == 0):
            raise ComputationError(f"{self._name}: timer without a name: expected a name, for example 'end'")
        return found

    def _instants(self, given: Any, count: int) -> Numbers:
        if isinstance(given, datetime | int):
            return np.full(count, instant(given), np.int64)
        found = _array(given)
        if pa.types.is_timestamp(found.type) and found.type.tz is None:
            raise ComputationError(f"{self._name}: instants of {found.type}: expected a time zone")
        if not pa.types.is_timestamp(found.type) and found.type != pa.int64():
            raise ComputationError(f"{self._name}: instants of {found.type}: expected instants, or microseconds")
        if found.null_count or len(found) != count:
            raise ComputationError(f"{self._name}: {len(found)} instants: expected {count}, and none of them null")
        return numbers(found.cast(INSTANT).cast(pa.int64()))

    def _check(self, at: Numbers, keys: Numbers, did: str) -> None:
        if (at < self._rows.floor[keys]).any() or (at > END_OF_TIME).any():
            raise ComputationError(f"{self._name}: {did} of an event time that its readers may be past")


class _State(dict[str, Any]):
    """The fields of the keys' states; an assigned array has to fit the field's declared type."""

    def __init__(self, computation: Computation, types: pa.Schema, held: Mapping[str, pa.Array], count: int) -> None:
        super().__init__(held)
        self._name, self._count = computation.name, count
        self._of = {one.name: plain_type(one.type) for one in types.field("state").type} if held else {}

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._of:
            known = ", ".join(self._of) or "none"
            raise ComputationError(f"{self._name}: state[{name!r}]: expected a declared field ({known})")
        super().__setitem__(name, column_of(value, self._count, self._of[name], f"{self._name}: state[{name!r}]"))


def plain_type(type: pa.DataType) -> pa.DataType:
    """Return the type of a column that user code receives: one type for all texts, lists and bytes.

    >>> plain_type(pa.large_list(pa.large_string()))
    ListType(list<item: string>)
    """
    is_ = pa.types
    if is_.is_large_string(type) or is_.is_string_view(type):
        return pa.string()
    if is_.is_large_binary(type) or is_.is_binary_view(type):
        return pa.binary()
    if is_.is_dictionary(type):
        return plain_type(type.value_type)
    if is_.is_list(type) or is_.is_large_list(type):
        return pa.list_(plain_type(type.value_type))
    if is_.is_struct(type):
        return pa.struct([field.with_type(plain_type(field.type)) for field in type])
    return type


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array of its plain type."""
    made = one_array(column)
    type = plain_type(made.type)
    return made if made.type == type else made.cast(type)


def column_of(value: Any, count: int, type: pa.DataType, what: str) -> pa.Array:
    """Convert a column, or one value for all of `count` rows, to a type; `what` names the column in an error.

    Raises `ComputationError` if the column's kind or length does not fit: numbers are no text, as for a record.
    """
    if not isinstance(value, pa.Array | pa.ChunkedArray | np.ndarray):
        value = repeated(value, count)
    found = _array(value)
    if len(found) != count:
        raise ComputationError(f"{what}: {len(found)} rows: expected {count}")
    if found.type == type:
        return found
    if not _fits(found.type, type):
        raise ComputationError(f"{what}: {found.type}: expected {type}")
    return found.cast(type)


def _fits(given: pa.DataType, type: pa.DataType) -> bool:
    """Tell whether a column's values may be converted to a type; the conversion still checks each value."""
    is_ = pa.types
    if is_.is_null(given) or given == type:
        return True
    if is_.is_dictionary(given):
        return _fits(given.value_type, type)
    if is_.is_list(type) or is_.is_large_list(type):
        return (is_.is_list(given) or is_.is_large_list(given)) and _fits(given.value_type, type.value_type)
    if is_.is_struct(type):
        names = [one.name for one in type]
        if not is_.is_struct(given) or [one.name for one in given] != names:
            return False
        return all(_fits(one.type, to.type) for one, to in zip(given, type, strict=True))
    if is_.is_timestamp(type):
        return bool(is_.is_timestamp(given) and given.tz is not None)
    if is_.is_floating(type):
        return bool(is_.is_floating(given) or is_.is_integer(given))
    if is_.is_decimal(type):
        return bool(is_.is_decimal(given) or is_.is_integer(given))
    groups = (
        (is_.is_integer,),
        (is_.is_string, is_.is_large_string),
        (is_.is_binary, is_.is_large_binary),
    )
    return any(any(one(type) for one in kinds) and any(one(given) for one in kinds) for kinds in groups)


def number_keys(held: Sequence[pa.Array], arrived: Sequence[pa.Array], count: int) -> tuple[Numbers, Numbers]:
    """Number the keys of an epoch: the `count` stored keys by their rows, and new keys after them.

    Returns the number of each record's key, and the first record of each new key, in the order of their numbers.
    """
    code: Numbers | None = None
    for stored, new in zip(held, arrived, strict=True):
        encoded = pa.concat_arrays([stored, new.cast(stored.type)]).dictionary_encode(null_encoding="encode")
        own = numbers(encoded.indices)
        # Numbers are given in the order in which values come first, and stored keys are distinct.
        code = (
            own if code is None else numbers(pa.array(code * len(encoded.dictionary) + own).dictionary_encode().indices)
        )
    assert code is not None, "a computation without a key has one key"
    own = code[count:]
    found, first = np.unique(own, return_index=True)
    return own, first[found >= count]


def defaults_of(computation: Computation, type: pa.StructType, count: int) -> dict[str, pa.Array]:
    """Return the fields of `count` keys without a stored state."""
    defaults = computation.defaults
    return {one.name: repeated(defaults[one.name], count, plain_type(one.type)) for one in type}


def repeated(value: Any, count: int, type: pa.DataType | None = None) -> pa.Array:
    """Return a column that repeats a value."""
    scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, type)
    # Arrow does not repeat a list zero times.
    return pa.repeat(scalar, count) if count else pa.array([], scalar.type)


def is_default(value: Any, column: pa.Array) -> Mask:
    """Tell which values of a field are the field's default."""
    if value is None:
        return mask(column.is_null())
    if value == []:
        return mask(pc.fill_null(pc.equal(pc.list_value_length(column), 0), False))
    if isinstance(value, list):
        return np.array([one == value for one in columns.values(column)], np.bool_)
    return mask(pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False))


def source_texts(keys: Iterable[pa.Array], count: int) -> pa.Array:
    """Return keys as texts, as `computation_state.source_of` does for one key."""
    parts = [_texts(one) for one in keys]
    if not parts:
        return pa.repeat(pa.scalar("[]"), count)
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, ", ")
    return pc.binary_join_element_wise("[", joined, "]", "")


def _texts(column: pa.Array) -> pa.Array:
    simple = pa.types.is_integer(column.type)
    if simple:
        column = column.cast(pa.string())
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.string())
        simple = not pc.any(pc.match_substring_regex(column, r'["\\\x00-\x1f]')).as_py()
    if not simple:
        return pa.array([source_of((one,))[1:-1] for one in columns.values(column)], pa.string())
    return pc.fill_null(pc.binary_join_element_wise('"', column, '"', ""), "null")


def _rows(given: Any) -> Numbers:
    """Return row numbers; a mask selects the rows where it is true."""
    found = given if isinstance(given, np.ndarray) else None
    if found is None:
        array = _array(given if isinstance(given, pa.Array | pa.ChunkedArray) else list(given))
        if pa.types.is_boolean(array.type):
            return np.flatnonzero(mask(pc.fill_null(array, False)))
        found = numbers(array.cast(pa.int64()))
    return np.flatnonzero(found) if found.dtype == np.bool_ else found.astype(np.int64, copy=False)


def _array(value: Any) -> pa.Array:
    return one_array(value) if isinstance(value, pa.Array | pa.ChunkedArray) else pa.array(value)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def numbers(column: pa.Array) -> Numbers:
    found: Numbers = one_array(column).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def mask(column: pa.Array) -> Mask:
    found: Mask = one_array(column).to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)
    return found


def some_of(table: pa.Table, where: Mask) -> pa.Table:
    """Return the rows of a table where a mask is true."""
    return table.filter(pa.array(where))
