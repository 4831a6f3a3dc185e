"""The step of an epoch for a computation that processes its records by columns (`Computation.process_batch`).

The code for a batch is a faster form of the code for one record, and never the meaning: keys that the code leaves, and
all keys if the code fails, are processed record by record, from the states that they had before the epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.python import columns
from tailrace.engines.python.key_batches import (
    INSTANT,
    NO_HOLD,
    ColumnBatch,
    Made,
    Mask,
    Numbers,
    Rows,
    Timers,
    defaults_of,
    is_default,
    number_keys,
    numbers,
    one_array,
    plain,
    some_of,
    source_texts,
)
from tailrace.engines.python.key_epoch import KeyEpoch, KeyRows
from tailrace.lake.schema.column_groups import SOURCE
from tailrace.lake.schema.contracts import PARTIAL, PRODUCTION
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.key_batch import KEY
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.sql.epoch.key_state import DUE, HOLDS, WALL

FEWEST = 256
"""Epochs with fewer records are processed record by record: the fixed costs of columns are larger than those of rows.

The same holds for timers: if fewer keys have a timer that is due, their timers are processed one by one.
"""

ROUNDS = 100
"""The number of timers of a key that are processed by columns in an epoch, before the key's code runs timer by timer.

A timer that sets itself again for ever is refused there.
"""

_LOG = logging.getLogger(__name__)


class BatchOutcome(NamedTuple):
    """What the columns give: rows of states and of the ledger, and which stored keys and records are left to be
    processed one by one.
    """

    states: pa.RecordBatch
    ledger: list[pa.RecordBatch]
    held: Mask
    records: Mask


def by_columns(step: KeyEpoch, held: pa.Table, bundle: pa.Table) -> BatchOutcome | None:
    """Process an epoch's keys by columns; None if the computation's code for a batch failed."""
    try:
        return _Epoch(step, held, bundle).outcome()
    except Exception as error:
        if step.tries:
            raise
        # The code for one record says which records it cannot take (rule X7).
        name = step.computation.name
        _LOG.warning("%s: process_batch failed, the epoch is processed record by record: %r", name, error)
        return None


class _Epoch:
    """The keys of an epoch as columns, from their states before the epoch to those after it."""

    def __init__(self, step: KeyEpoch, held: pa.Table, bundle: pa.Table) -> None:
        self.step, self.computation, self.clock = step, step.computation, step.clock
        self.before = step.before.watermark if step.before else BEGINNING
        self.earliest = self.computation.reached(self.before)
        names = self.computation.key
        stored = [plain(held[name]) for name in names]
        arrived = [plain(bundle[name]) for name in names]
        at = numbers(bundle[self.computation.log.event_time].cast(pa.int64()))
        if names:
            self.of, fresh = number_keys(stored, arrived, held.num_rows)
            keys = [
                pa.concat_arrays([one, new.take(pa.array(fresh)).cast(one.type)])
                for one, new in zip(stored, arrived, strict=True)
            ]
            self.count, added = held.num_rows + len(fresh), len(fresh)
        else:
            keys, self.of = [], np.zeros(bundle.num_rows, np.int64)
            self.count, added = 1, 1 - held.num_rows
        self.stored = held.num_rows
        self.keys = dict(zip(names, keys, strict=True))
        self.timely = at >= self.earliest
        self.state: dict[str, pa.Array] = {}
        if self.computation.fields:
            fresh_state = defaults_of(self.computation, step.ledger.field("state").type, added)
            self.state = {
                name: pa.concat_arrays([plain(own), fresh_state[name]])
                for name, own in zip(fresh_state, columns.fields(held["state"]), strict=True)
            }
        self.timers = Timers.of_lists(one_array(held["timers"]))
        self.begin = np.bincount(self.timers.key, minlength=self.count)
        self.taken = np.bincount(self.of[self.timely], minlength=self.count)
        self.set = np.zeros(self.count, np.int64)
        self.fired = np.zeros(self.count, np.int64)
        self.made: list[tuple[int, Made]] = []
        # Keys with only late records keep their states, and have no row in the ledger.
        self.left = (self.taken == 0) & ~self._has_due()
        self.bundle, self.at = bundle, at

    def outcome(self) -> BatchOutcome:
        """Run the computation's code, and make the rows of the states and of the ledger."""
        if self.taken.any():
            self._records()
        for turn in range(ROUNDS):
            if not self._fire(turn + 1):
                break
        # What is still due, or too little for columns, is processed key by key.
        self.left |= self._has_due()
        kept = ~self.left
        made = [self._partials(kept), self._productions(kept)]
        states = self._states(kept)
        return BatchOutcome(states, made, self.left[: self.stored], ~self.timely | self.left[self.of])

    def _records(self) -> None:
        chosen = np.flatnonzero(self.timely)
        chosen = chosen[self._order(chosen)]
        names = list(self.computation.record_columns)
        some = pa.array(chosen)
        records = pa.table({name: plain(self.bundle[name].take(some)) for name in names})
        own, at = self.of[chosen], self.at[chosen]
        floor = self._holds(self.timers, np.full(self.count, NO_HOLD))
        np.minimum.at(floor, own, at)
        batch = self._batch(
            np.arange(self.count), records.append_column(KEY, pa.array(own)), Rows(own, floor, at), self.timers,
            Timers.none(), self.before,
        )  # fmt: skip
        self.computation.process_batch(batch)
        self._keep(batch, None, 0)

    def _fire(self, turn: int) -> bool:
        """Fire the next timer of each key that has a due one. Returns False if none fires by columns."""
        due = self.timers.due(self.clock.watermark, self.clock.processing_time) & ~self.left[self.timers.key]
        places = np.flatnonzero(due)
        keys, first = np.unique(self.timers.key[places], return_index=True)
        fewest = 1 if self.step.tries else FEWEST
        if len(keys) < fewest or not self.computation.batches_timers:
            return False
        now = places[first]
        rest = np.ones(len(due), np.bool_)
        rest[now] = False
        firing, pending = self.timers.take(now), self.timers.take(rest)
        of = np.zeros(self.count, np.int64)
        of[keys] = np.arange(len(keys))
        mine = pending.take(np.isin(pending.key, keys))
        mine = mine._replace(key=of[mine.key])
        firing = firing._replace(key=np.arange(len(keys)))
        floor = np.where(firing.holds == NO_HOLD, self.earliest, firing.holds)
        default = np.where(firing.holds == NO_HOLD, np.maximum(firing.at, floor), firing.holds)
        floor = np.minimum(floor, self._holds(mine, np.full(len(keys), NO_HOLD)))
        rows = Rows(np.arange(len(keys)), floor, default)
        none = pa.table({name: plain(self.bundle[name].slice(0, 0)) for name in self.computation.record_columns})
        none = none.append_column(KEY, pa.array([], pa.int64()))
        batch = self._batch(keys, none, rows, mine, firing, self.clock.watermark)
        self.computation.process_timers(batch)
        self.timers = pending.take(~np.isin(pending.key, keys))
        self.fired[keys] += 1
        self._keep(batch, keys, turn)
        return True

    def _batch(
        self, keys: Numbers, records: pa.Table, rows: Rows, pending: Timers, due: Timers, watermark: int
    ) -> ColumnBatch:
        some = pa.array(keys)
        whole = len(keys) == self.count
        own = {name: column if whole else column.take(some) for name, column in self.keys.items()}
        state = {name: column if whole else column.take(some) for name, column in self.state.items()}
        table = pa.table(own) if own else pa.table({KEY: pa.array(np.zeros(len(keys), np.int64))})
        return ColumnBatch(
            self.computation, self.step.ledger, table, state, rows, records, pending, due, watermark,
            self.clock.processing_time,
        )  # fmt: skip

    def _keep(self, batch: ColumnBatch, keys: Numbers | None, turn: int) -> None:
        """Keep the outputs of a batch whose keys are `keys`, or all keys."""
        timers, made = batch.pending()
        if keys is None:
            self.state, self.timers = dict(batch.state), timers
            self.set += made
            self.left |= batch.left
            self.made += [(turn, one) for one in batch.made]
            return
        into = np.arange(self.count)
        into[keys] = self.count + np.arange(len(keys))
        places = pa.array(into)
        self.state = {
            name: pa.concat_arrays([column, batch.state[name]]).take(places) for name, column in self.state.items()
        }
        self.set[keys] += made
        self.left[keys] |= batch.left
        self.made += [(turn, one._replace(key=keys[one.key])) for one in batch.made]
        self.timers = Timers(
            np.concatenate([self.timers.key, keys[timers.key]]),
            pa.concat_arrays([self.timers.name, timers.name]),
            *(np.concatenate([getattr(self.timers, name), getattr(timers, name)]) for name in ("event", "at", "holds")),
        ).in_turn()

    def _order(self, chosen: Numbers) -> Numbers:
        """Order records by key, and those of a key by event time and then by their places in the source."""
        source = one_array(self.bundle[PLACE[1]]).cast(pa.string()).fill_null("")
        codes = source.dictionary_encode()
        ranks = numbers(pc.rank(codes.dictionary, tiebreaker="dense"))
        place = ranks[numbers(codes.indices)]
        offset = numbers(one_array(self.bundle[PLACE[2]]).fill_null(0))
        return np.lexsort((offset[chosen], place[chosen], self.at[chosen], self.of[chosen]))

    def _has_due(self) -> Mask:
        found = np.zeros(self.count, np.bool_)
        found[self.timers.key[self.timers.due(self.clock.watermark, self.clock.processing_time)]] = True
        return found

    def _holds(self, timers: Timers, found: Numbers) -> Numbers:
        np.minimum.at(found, timers.key, timers.holds)
        return found

    def _lists(self, kept: Mask, timers: Timers) -> pa.Array:
        type = self.step.ledger.field("timers").type
        own = {
            "name": timers.name,
            "domain": timers.domains,
            "at": pa.array(timers.at).cast(INSTANT),
            "holds": timers.held,
        }
        parts = [own[field.name].cast(field.type) for field in type.value_type]
        lengths = np.bincount(timers.key, minlength=self.count)[kept]
        return columns.lists(lengths.tolist(), columns.structs(parts, type.value_type), type)

    def _key(self, name: str, places: pa.Array) -> pa.Array:
        return self.keys[name].take(places).cast(self.step.ledger.field(name).type)

    def _arrays(self, kept: Mask) -> dict[str, pa.Array]:
        """Return the columns of the states of some keys."""
        some = pa.array(np.flatnonzero(kept))
        timers = self.timers.take(kept[self.timers.key])
        made = {name: self._key(name, some) for name in self.keys} | {"timers": self._lists(kept, timers)}
        if self.state:
            type = self.step.ledger.field("state").type
            fields = [self.state[one.name].take(some).cast(one.type) for one in type]
            made["state"] = columns.structs(fields, type)
        return made

    @property
    def _gone(self) -> Mask:
        """Tell which keys have neither a timer nor a field other than the default."""
        gone: Mask = np.bincount(self.timers.key, minlength=self.count) == 0
        for name, column in self.state.items():
            if not gone.any():
                break
            gone &= is_default(self.computation.defaults[name], column)
        return gone

    def _states(self, kept: Mask) -> pa.RecordBatch:
        stays = kept & ~self._gone
        some = np.flatnonzero(stays)
        made = self._arrays(stays)
        timers = self.timers
        for name, where, times in (
            (DUE, timers.event, timers.at),
            (WALL, ~timers.event, timers.at),
            (HOLDS, timers.holds != NO_HOLD, timers.holds),
        ):
            least = np.full(self.count, NO_HOLD)
            np.minimum.at(least, timers.key[where], times[where])
            made[name] = pa.array(least[some], mask=least[some] == NO_HOLD)
        return columns.batch(made, len(some), self.step.states)

    def _partials(self, kept: Mask) -> pa.RecordBatch:
        after = np.bincount(self.timers.key, minlength=self.count)
        dropped = self.begin + self.set - self.fired - after
        done = {
            "taken": self.taken, "timers_set": self.set, "timers_fired": self.fired, "timers_dropped": dropped,
            "gone": self._gone,
        }  # fmt: skip
        made: dict[str, Any] = {
            name: pa.array(one[kept]).cast(self.step.ledger.field(name).type) for name, one in done.items()
        }
        return self.step.ledger_rows(PARTIAL, int(kept.sum()), made | self._arrays(kept))

    def _productions(self, kept: Mask) -> pa.RecordBatch:
        made = [(turn, one) for turn, one in self.made if len(one.key)]
        key = np.concatenate([one.key for _, one in made]) if made else np.empty(0, np.int64)
        turns = np.concatenate([np.full(len(one.key), turn) for turn, one in made]) if made else key
        rows = np.concatenate([one.rows for _, one in made]) if made else key
        at = np.concatenate([one.at for _, one in made]) if made else key
        # The calls of a row are in their order: the sort is stable.
        order = np.lexsort((rows, turns, key))
        order = order[kept[key[order]]]
        key, places = key[order], pa.array(order)
        begins = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else key
        lengths = np.diff(np.r_[begins, len(key)])
        place = np.arange(len(key)) - np.repeat(begins, lengths)
        own = pa.array(key[begins]) if len(key) else pa.array([], pa.int64())
        texts = source_texts([one.take(own) for one in self.keys.values()], len(begins))
        field = self.step.ledger.field
        arrays: dict[str, pa.Array] = {
            name: pa.concat_arrays([one.values[name] for _, one in made]).take(places)
            if made
            else pa.array([], field(name).type)
            for name in type(self.computation).produces
        }
        arrays |= {name: self._key(name, pa.array(key)) for name in self.keys}
        sources: Mapping[str, pa.Array] = dict(
            zip(
                SOURCE,
                (
                    columns.repeat_value(self.clock.epoch, len(key), field(SOURCE[0]).type),
                    texts.take(pa.array(np.repeat(np.arange(len(begins)), lengths))),
                    pa.array(place),
                ),
                strict=True,
            )
        )
        arrays |= {name: column.cast(field(name).type) for name, column in sources.items()}
        arrays[PANE_TIME] = pa.array(at[order]).cast(field(PANE_TIME).type)
        return self.step.ledger_rows(PRODUCTION, len(key), arrays)


def rest_of(outcome: BatchOutcome, held: pa.Table, bundle: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the stored keys and the records that are left to be processed one by one."""
    return some_of(held, outcome.held), some_of(bundle, outcome.records)


def with_rest(outcome: BatchOutcome, rest: KeyRows, step: KeyEpoch) -> tuple[pa.Table, pa.Table]:
    """Return the rows of states and of the ledger, with those of the keys that were processed one by one."""
    states = pa.Table.from_batches([outcome.states, *rest.states.to_batches()], step.states)
    return states, pa.Table.from_batches([*outcome.ledger, *rest.ledger.to_batches()], step.ledger)
