"""Advance the keys of a computation by one epoch: apply the model's step, which is written in Python, to Arrow tables.

The caller passes only the keys that the epoch's records, timers or fed-back records affect. All other keys stay in the
caller's table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.python import batch_step, columns
from tailrace.engines.python.garbage import no_search_for_cycles
from tailrace.engines.python.key_epoch import KeyEpoch, KeyRows
from tailrace.lake.schema.column_groups import SOURCE
from tailrace.lake.schema.contracts import FEEDBACK, LATE, PARTIAL, PRODUCTION, REJECTED
from tailrace.model.base.time import BEGINNING, instant
from tailrace.model.definition.computation import EVENT, Computation, Domain, Timer
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.model.step.computation_state import (
    NOTHING,
    Feedback,
    KeysOutcome,
    KeysState,
    KeyState,
    LateInput,
    Production,
    Work,
    source_of,
)
from tailrace.model.step.computation_step import taken
from tailrace.model.windows.panes import Key, Rejected
from tailrace.sql.epoch.key_state import DUE, HOLDS, WALL

_DOMAINS = {domain.value: domain for domain in Domain}


class KeyStep(KeyEpoch):
    """The step of one epoch of a computation, for the keys that the step is called with."""

    def __call__(self, held: pa.Table, bundle: pa.Table, loop: pa.Table | None) -> KeyRows:
        """Run the step for the keys whose states are in `held`, and return the new states and the ledger rows.

        `bundle` contains the new records of these keys. `loop` contains the ledger rows of records that the computation
        has fed back to these keys; `loop` may be None.
        """
        with no_search_for_cycles():
            # The step runs in a separate function, so the step's objects are freed before the garbage collector is
            # turned on and searches them.
            return self._stepped(held, bundle, loop)

    def _stepped(self, held: pa.Table, bundle: pa.Table, loop: pa.Table | None) -> KeyRows:
        columns = self.computation.batches and not self.computation.set_aside
        few = not self.tries and held.num_rows + bundle.num_rows < batch_step.FEWEST
        outcome = batch_step.by_columns(self, held, bundle) if columns and not few else None
        if outcome is None:
            return self._by_record(held, bundle, loop)
        rest = self._by_record(*batch_step.rest_of(outcome, held, bundle), loop)
        return KeyRows(*batch_step.with_rest(outcome, rest, self))

    def _by_record(self, held: pa.Table, bundle: pa.Table, loop: pa.Table | None) -> KeyRows:
        in_flight = () if loop is None else tuple(self._in_flight(loop))
        state = KeysState(keys_of(self.computation, held), self.before, in_flight)
        outcome = taken(self.computation, state, self._arrivals(bundle), self.clock, stops=self.stops)
        return self._rows_of(outcome)

    def _arrivals(self, bundle: pa.Table) -> Iterable[tuple[Key, int, tuple[Any, ...]]]:
        """Convert the records to the input of the step, one column at a time."""
        found = {name: columns.values(bundle[name]) for name in (*self.computation.record_columns, *PLACE)}
        parts = [found[name] for name in self.computation.key]
        keys = zip(*parts, strict=True) if parts else [()] * bundle.num_rows
        times = columns.micros(bundle[self.computation.log.event_time])
        return zip(keys, times, zip(*found.values(), strict=True), strict=True)

    def _in_flight(self, loop: pa.Table) -> Iterator[Feedback]:
        keys = columns.rows((loop[name] for name in self.computation.key), loop.num_rows)
        names = list(type(self.computation).feedback)
        values = columns.rows(columns.fields(loop["feedback"]) if names else (), loop.num_rows)
        places = columns.rows((loop[name] for name in SOURCE), loop.num_rows)
        for key, row, at, (epoch, out_of, place) in zip(
            keys, values, columns.micros(loop[PANE_TIME]), places, strict=True
        ):
            yield Feedback(key, dict(zip(names, row, strict=True)), at, epoch, out_of, place)

    def _rows_of(self, outcome: KeysOutcome) -> KeyRows:
        gone = [key for key in outcome.work if key not in outcome.state.keys]
        keys = [*outcome.state.keys, *gone]
        states = [*outcome.state.keys.values(), *([NOTHING] * len(gone))]
        arrays = self._key_columns(keys) | self._state_columns(states)
        left = len(outcome.state.keys)
        own = {name: column[:left] for name, column in arrays.items()} | self._looked_at(states[:left])
        made = [
            self._partials(keys, arrays, outcome.work, left),
            self._productions(outcome.productions),
            self._fed_back(outcome.state.in_flight),
            self._late(outcome.late),
            self._rejected(outcome.rejected),
        ]
        return KeyRows(
            pa.Table.from_batches([columns.batch(own, left, self.states)]), pa.Table.from_batches(made, self.ledger)
        )

    def _key_columns(self, keys: Sequence[Key]) -> dict[str, pa.Array]:
        names, types = self.computation.key, self.ledger
        return {name: pa.array([key[n] for key in keys], types.field(name).type) for n, name in enumerate(names)}

    def _state_columns(self, states: Sequence[KeyState]) -> dict[str, pa.Array]:
        arrays = {"timers": self._timers([one.timers for one in states])}
        if self.computation.fields:
            defaults = {name: one.default for name, one in self.computation.fields.items()}
            full = [one.fields or defaults for one in states]
            arrays["state"] = columns.structs_of(full, self.ledger.field("state").type)
        if self.computation.ordered:
            type = self.ledger.field("waiting").type
            flat = [record for one in states for record in one.waiting]
            of = columns.structs_of(flat, type.value_type)
            arrays["waiting"] = columns.lists((len(one.waiting) for one in states), of, type)
        return arrays

    def _timers(self, timers: Sequence[Sequence[Timer]]) -> pa.Array:
        type, flat = self.ledger.field("timers").type, [timer for some in timers for timer in some]
        fields = {field.name: field.type for field in type.value_type}
        made = [
            pa.array([timer.name for timer in flat], fields["name"]),
            pa.array(["event" if timer.domain is EVENT else "processing" for timer in flat], fields["domain"]),
            columns.instants([timer.time for timer in flat], fields["at"]),
            columns.instants([timer.holds for timer in flat], fields["holds"]),
        ]
        return columns.lists(map(len, timers), columns.structs(made, type.value_type), type)

    def _looked_at(self, states: Sequence[KeyState]) -> dict[str, pa.Array]:
        found = zip(*map(self._next, states), strict=True) if states else [()] * 3
        return {name: pa.array(made, pa.int64()) for name, made in zip((DUE, WALL, HOLDS), found, strict=True)}

    def _next(self, state: KeyState) -> tuple[int | None, int | None, int | None]:
        """Find three times of a key: its next due event time, its next due processing time, and its hold on the
        watermark.

        The hold is the earliest event time at which a timer of the key holds back the watermark that the computation
        passes to its readers. All three times are in microseconds. A time is None if the key has no timer or waiting
        record that determines this time.
        """
        due: int | None = None
        wall: int | None = None
        holds: int | None = None
        for timer in state.timers:
            # Timers are sorted by time, so the first timer of each time domain is the next one to fire.
            if timer.domain is EVENT:
                due = timer.time if due is None else due
            else:
                wall = timer.time if wall is None else wall
            if timer.holds is not None and (holds is None or timer.holds < holds):
                holds = timer.holds
        if state.waiting:
            passed = instant(state.waiting[0][self.computation.log.event_time]) + 1
            due = passed if due is None or passed < due else due
        return due, wall, holds

    def _partials(
        self, keys: Sequence[Key], arrays: Mapping[str, pa.Array], work: Mapping[Key, Work], left: int
    ) -> pa.RecordBatch:
        if len(work) < len(keys):
            # If all new records of a key are late, the key's state has not changed. So no state row is written for this
            # key.
            places = [place for place, key in enumerate(keys) if key in work]
            arrays = {name: column.take(pa.array(places, pa.int64())) for name, column in arrays.items()}
            gone, keys = [place >= left for place in places], [keys[place] for place in places]
        else:
            gone = [place >= left for place in range(len(keys))]
        done = [work[key] for key in keys]
        counts = {"taken": "taken", "timers_set": "set", "timers_fired": "fired", "timers_dropped": "dropped"}
        counts |= {"returned": "returned"} if self.computation.loops else {}
        values = {column: [getattr(one, name) for one in done] for column, name in counts.items()} | {"gone": gone}
        return self.ledger_rows(PARTIAL, len(keys), {**self._arrays(values), **arrays})

    def _productions(self, made: Sequence[Production]) -> pa.RecordBatch:
        sources = {key: source_of(key) for key in {one.key for one in made}}
        values = self._places((one.epoch, sources[one.key], one.place) for one in made)
        values |= {name: [one.values[name] for one in made] for name in type(self.computation).produces}
        return self._event_rows(PRODUCTION, [one.key for one in made], [one.at for one in made], values)

    def _fed_back(self, made: Sequence[Feedback]) -> pa.RecordBatch:
        places, arrays = self._places((one.epoch, one.out_of, one.place) for one in made), dict[str, pa.Array]()
        if type(self.computation).feedback:
            values = [one.values for one in made]
            arrays["feedback"] = columns.structs_of(values, self.ledger.field("feedback").type)
        return self._event_rows(FEEDBACK, [one.key for one in made], [one.at for one in made], places, arrays)

    def _late(self, late: Sequence[LateInput]) -> pa.RecordBatch:
        at, before = self.computation.log.event_time, self.before.watermark if self.before else BEGINNING
        values = self._places(tuple(one.record[name] for name in PLACE) for one in late)
        values |= {"behind": [one.behind for one in late]}
        times = [instant(one.record[at]) for one in late]
        watermark = columns.instants([before] * len(late), self.ledger.field("watermark").type)
        return self._event_rows(LATE, [one.key for one in late], times, values, {"watermark": watermark})

    def _rejected(self, rejected: Sequence[Rejected]) -> pa.RecordBatch:
        at = self.computation.log.event_time
        values = self._places(tuple(one.record[name] for name in PLACE) for one in rejected)
        values |= {"reason": [one.reason for one in rejected]}
        if self.computation.loops:
            values["returned"] = [int(one.returned) for one in rejected]
        keys = [tuple([one.record[name] for name in self.computation.key]) for one in rejected]
        times = [instant(one.record[PANE_TIME if one.returned or one.timer else at]) for one in rejected]
        return self._event_rows(REJECTED, keys, times, values)

    def _event_rows(
        self, kind: str, keys: Sequence[Key], times: Sequence[int], values: Mapping[str, Sequence[Any]],
        arrays: Mapping[str, pa.Array] = MappingProxyType({}),
    ) -> pa.RecordBatch:  # fmt: skip
        """Build ledger rows of the kind `kind` from keys and event times.

        `values` contains other columns as Python values, and `arrays` contains other columns as Arrow arrays.
        """
        at = columns.instants(times, self.ledger.field(PANE_TIME).type)
        own = self._key_columns(keys) | self._arrays(values) | dict(arrays)
        return self.ledger_rows(kind, len(keys), own | {PANE_TIME: at})

    def _places(self, places: Iterable[tuple[Any, ...]]) -> dict[str, Sequence[Any]]:
        found = list(places)
        return {name: [one[n] for one in found] for n, name in enumerate(SOURCE)}

    def _arrays(self, values: Mapping[str, Sequence[Any]]) -> dict[str, pa.Array]:
        return {name: pa.array(made, self.ledger.field(name).type) for name, made in values.items()}


def keys_of(computation: Computation, held: pa.Table) -> dict[Key, KeyState]:
    """Read the state of each key from the rows of a state table."""
    count, names = held.num_rows, list(computation.fields)
    keys = columns.rows((held[name] for name in computation.key), count)
    values = columns.rows(columns.fields(held["state"]) if names else (), count)
    name, domain, at, holds = columns.fields(pc.list_flatten(held["timers"]))
    parts = zip(name.to_pylist(), columns.micros(at), domain.to_pylist(), columns.micros(holds), strict=True)
    timers = columns.group_by_row(held["timers"], (Timer(n, t, _DOMAINS[d], h) for n, t, d, h in parts))
    waiting: Iterable[tuple[Any, ...]] = [()] * count
    if computation.ordered:
        flat = pc.list_flatten(held["waiting"])
        fields = [field.name for field in flat.type]
        records = (dict(zip(fields, row, strict=True)) for row in columns.rows(columns.fields(flat), len(flat)))
        waiting = columns.group_by_row(held["waiting"], records)
    return {
        key: KeyState(dict(zip(names, row, strict=True)), pending, waits)
        for key, row, pending, waits in zip(keys, values, timers, waiting, strict=True)
    }
