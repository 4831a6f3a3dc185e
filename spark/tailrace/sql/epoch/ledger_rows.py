"""Write the ledger rows of an epoch in SQL: the partials, panes and retractions that result from its transitions.

A transition is the change of one window in an epoch, and a partial stores the window's new state. On Spark, one pass
over the transitions yields all rows: each transition has an array of its rows, and the query explodes the array. Spark
would take long to plan a query with many branches. DuckDB plans fast, and reads the transitions once per kind of row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailrace.lake.schema.column_groups import SOURCE, SPAN
from tailrace.lake.schema.contracts import LATE, PANE, PARTIAL
from tailrace.lake.schema.pipeline_tables import key_columns, ledger_contract, predecessors_type
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.model.step.transition import Transition
from tailrace.sql.epoch import part_columns
from tailrace.sql.epoch.rejected_rows import rejected_rows
from tailrace.sql.epoch.transition_rows import any_emits, phases
from tailrace.sql.query_shapes import first_of, instants, named_struct, select_list
from tailrace.sql.records.assignment import join_items, key_names
from tailrace.sql.terms import Condition, Query, Relation, Sql, null, quoted


def state_types(pipeline: Pipeline) -> dict[str, str]:
    """Return the columns of an open window's state, with their types."""
    types = {**key_columns(pipeline), "window_start": "bigint", "window_end": "bigint"}
    types |= Transition(pipeline, Sql()).columns()
    return types | ({"predecessors": predecessors_type(pipeline)} if pipeline.where.merges else {})


def _window_row(kind: str, of: str = "") -> dict[str, str]:
    """Return the terms that ledger rows of all kinds share; `of` is put before the names of the window's bounds."""
    epoch = {"epoch": "epoch", "processing_time": "TIMESTAMP_MICROS(now)"}
    return {"kind": f"'{kind}'", **instants(*SPAN, of=of), **epoch}


class Rows:
    """Builds the SQL for the ledger rows of one definition."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.rules = Transition(pipeline, Sql())
        self.types = ledger_contract(pipeline).types
        self.keys = list(pipeline.key)

    def of_transitions(self, transitions: Relation) -> Query:
        """Return the query for the ledger rows of all transitions: partials (window states), panes and retractions."""
        entries = self._entries()
        numbers = ", ".join(f"IF({holds}, {number}, NULL)" for number, (holds, _) in enumerate(entries))
        items = [f"{self._chosen(name, type, entries)} AS {quoted(name)}" for name, type in self.types.items()]
        unrolled = f"SELECT *, EXPLODE(ARRAY({numbers})) AS entry FROM {transitions}"
        rows = Query(f"SELECT {', '.join(items)} FROM ({unrolled}) WHERE entry IS NOT NULL")
        if not self.pipeline.where.merges:
            return rows
        # The rows for windows that were merged into another window are in two separate arrays: the retractions and the
        # partials. Each array has one element per merged window.
        merged = f"CONCAT({self._taken_back()}, {self._absorbed()})"
        return Query(f"{rows} UNION ALL {self._inlined(transitions, merged)}")

    def apart(self, transitions: Relation) -> list[Query]:
        """Return two queries for the rows of `of_transitions`: one for partials, one for panes and retractions."""
        (holds, partial), *panes = self._entries()
        partials, fired = [self._entry(transitions, holds, partial)], [self._entry(transitions, *one) for one in panes]
        if self.pipeline.where.merges:
            partials.append(self._inlined(transitions, self._absorbed()))
            fired.append(self._inlined(transitions, self._taken_back()))
        return [Query(" UNION ALL ".join(rows)) for rows in (partials, fired)]

    def _inlined(self, transitions: Relation, merged: str) -> Query:
        """Return the query for the ledger rows in the arrays `merged`.

        Each transition has one such array. Its rows are about the windows that were merged into the transition's
        window.
        """
        inlined = f"SELECT {join_items(key_names(self.pipeline), [f'INLINE({merged})'])} FROM {transitions}"
        return Query(f"SELECT {join_items([quoted(name) for name in self.types])} FROM ({inlined})")

    def _entry(self, rows: Relation, holds: str, values: dict[str, str]) -> Query:
        """Return the query for ledger rows with the given values: one for each row of `rows` that meets `holds`."""
        values = values | {name: quoted(name) for name in self.keys}
        return Query(f"SELECT {select_list(self.types, values)} FROM {rows} WHERE {holds}")

    def _entries(self) -> list[tuple[str, dict[str, str]]]:
        """Return the kinds of rows that a window may write: for each kind, a condition and the SQL expressions of the
        columns.

        The query writes a row of a kind for each window that meets the condition. Columns without an SQL expression are
        null. A window that leaves the state writes no partial. After a restart, the watermark alone shows that this
        window has left the state.
        """
        return [("touched AND remains", self._partial()), *self._panes()]

    def _chosen(self, name: str, type: str, entries: list[tuple[str, dict[str, str]]]) -> str:
        """Return the SQL expression for a ledger column. The column's value depends on `entry`, the index of a row in
        `entries`.
        """
        if name in self.keys:
            return quoted(name)
        by_term: dict[str, list[str]] = {}
        for number, (_, values) in enumerate(entries):
            if name in values:
                by_term.setdefault(values[name], []).append(str(number))
        if not by_term:
            return null(type)
        if len(by_term) == 1 and len(next(iter(by_term.values()))) == len(entries):
            return f"CAST({next(iter(by_term))} AS {type})"
        branches = " ".join(f"WHEN entry IN ({', '.join(at)}) THEN {term}" for term, at in by_term.items())
        return f"CAST(CASE {branches} END AS {type})"

    def of_late(self, late: Query) -> Query:
        """Return the query that converts late records to ledger rows.

        `late` is a query such as `partials.late_records`.
        """
        values = {
            **_window_row(LATE),
            "watermark": "TIMESTAMP_MICROS(watermark_before)",
            "event_time": "TIMESTAMP_MICROS(at)",
            "behind": "watermark_before - window_end",
            "reason": "reason",
            "source_epoch": "epoch",
            "source_partition": "_source",
            "source_offset": "_offset",
            **{name: quoted(name) for name in self.keys},
        }
        return Query(f"SELECT {select_list(self.types, values)} FROM ({late})")

    def of_rejected(self, rejected: Relation, clock: Clock) -> Query:
        """Return the query that converts rejected records to ledger rows; `rejected` is a relation of these records."""
        place = dict(zip(SOURCE, PLACE, strict=True))
        return rejected_rows(self.types, rejected, clock, {PANE_TIME: quoted(self.pipeline.log.event_time), **place})

    def restored(self, ledger: Relation) -> Query:
        """Return the query for the open windows in a ledger, from the latest partial of each window, which stores its
        state.

        A window is left out if its latest partial is marked as `gone`.
        """
        partials = Relation(f"(SELECT * FROM {ledger} WHERE kind = '{PARTIAL}')")
        rows = first_of(partials, [*key_names(self.pipeline), *SPAN], ["generation DESC", "epoch DESC", "gone"])
        items = key_names(self.pipeline)
        items += [f"UNIX_MICROS(window_{end}) AS window_{end}" for end in ("start", "end")]
        for name in self.rules.columns():
            which, _, part = name.partition("_")
            if name == "waiting_since":
                items.append("UNIX_MICROS(waiting_since) AS waiting_since")
            elif name == "panes":
                items.append("pane_index AS panes")
            elif which in ("fired", "pending", "trigger"):
                kept = f"{which}.{quoted(name)}" if which == "trigger" else self._unpacked(which, part)
                items.append(f"{kept} AS {quoted(name)}")
            else:
                items.append(quoted(name))
        if self.pipeline.where.merges:
            items.append("predecessors")
        return Query(f"SELECT {', '.join(items)} FROM ({rows}) WHERE NOT COALESCE(gone, false)")

    def within_reach(self, ledger: Relation, watermark: int) -> Query:
        """Return the query for the open windows in a ledger, except windows that no further record can change at a
        watermark.

        The watermark is in microseconds.
        """
        gone = self.rules.out_of_reach("window_end", f"{watermark}L")
        return Query(f"SELECT * FROM ({self.restored(ledger)}) WHERE NOT {gone}")

    def of_corrected(self, corrected: Relation, remains: Condition, leaves: Condition) -> Query:
        """Return the query for a backfill's partials: rows with the new states of windows, and rows that remove
        windows.

        `corrected` has the state's columns and the columns `epoch`, `now` and `new_generation`. `remains` is the
        condition that a row of `corrected` is a window with a new state, and `leaves` is the condition that the window
        is removed.
        """
        own: dict[str, str] = {**self._partial(), "writer": "'backfill'"}
        if self.pipeline.where.merges:
            own["predecessors"] = f"CAST(ARRAY() AS {self.types['predecessors']})"
        left = {name: own[name] for name in ("kind", *SPAN, "epoch", "processing_time", "writer")}
        left |= {"generation": "new_generation", "gone": "true"}
        texts = (self._entry(corrected, holds, values) for values, holds in ((own, remains), (left, leaves)))
        return Query(" UNION ALL ".join(texts))

    def state(self, transitions: Relation) -> Query:
        """Return the query that selects, from the transitions, the windows that are still open after the epoch."""
        columns = [quoted(name) for name in self.rules.columns()]
        if self.pipeline.where.merges:
            emitted = any_emits(self.pipeline)
            columns.append(f"IF({emitted}, SLICE(predecessors, 1, 0), predecessors) AS predecessors")
        items = join_items(key_names(self.pipeline), ["window_start", "window_end"], columns)
        return Query(f"SELECT {items} FROM {transitions} WHERE remains")

    def _struct(self, values: Mapping[str, str]) -> str:
        """Return the SQL expression for a struct of the ledger's columns, except the key columns."""
        own = {name: type for name, type in self.types.items() if name not in self.keys}
        return named_struct({name: f"CAST({values.get(name, 'NULL')} AS {type})" for name, type in own.items()})

    def _partial(self) -> dict[str, str]:
        values = {
            **_window_row(PARTIAL),
            "generation": "generation",
            "pane_index": "panes",
            "fresh": "fresh",
            "fresh_on_time": "fresh_on_time",
            "waiting_since": "TIMESTAMP_MICROS(waiting_since)",
            "settled": "settled",
            "gone": "false",
            "fired": self._packed("fired_"),
            "pending": self._packed("pending_"),
        }
        if "trigger" in self.types:
            slots = [name for name in self.rules.columns() if name.startswith("trigger_")]
            values["trigger"] = named_struct({name: quoted(name) for name in slots})
        if self.pipeline.where.merges:
            values["predecessors"] = f"IF({any_emits(self.pipeline)}, SLICE(predecessors, 1, 0), predecessors)"
        return values

    def _packed(self, prefix: str) -> str:
        return part_columns.struct(self.pipeline, prefix)

    def _unpacked(self, of: str, part: str) -> str:
        """Return the SQL expression for one part of an accumulator, which is in the ledger's struct column `of`."""
        return part_columns.unpack_part(self.pipeline, part, lambda name: f"{of}.{quoted(name)}")

    def _results(self, prefix: str) -> dict[str, str]:
        results: dict[str, str] = self.rules.results({name: quoted(prefix + name) for name in self.pipeline.parts})
        return results

    def _stamped(self, prefix: str) -> dict[str, str]:
        """Map the ledger column for an answer's event time to its SQL expression.

        The dict is empty if this event time is always the window's end.
        """
        stamp = self.pipeline.stamp
        return {} if stamp is None else {"event_time": f"TIMESTAMP_MICROS({quoted(prefix + stamp)})"}

    def _fired(self, letter: str) -> dict[str, str]:
        """Map the columns that panes and retractions share to SQL expressions; `letter` is the letter of the phase
        (`PHASES`).
        """
        watermark = "watermark_before" if letter == "a" else "watermark_after"
        return {
            **_window_row(PANE),
            "generation": "generation",
            "pane_index": f"{letter}_index",
            "timing": f"{letter}_timing",
            "watermark": f"TIMESTAMP_MICROS({watermark})",
            "writer": "'stream'",
        }

    def _panes(self) -> Iterator[tuple[str, dict[str, str]]]:
        for letter in phases(self.pipeline):
            shared = self._fired(letter)
            if self.rules.retracts or self.pipeline.takes_back:
                taken = shared | {"retraction": "true"} | self._results(f"{letter}_before_")
                yield f"{letter}_takes", taken | self._stamped(f"{letter}_before_")
            pane = shared | {"retraction": "false", "is_last": self._is_last(letter)}
            pane |= self._stamped(f"{letter}_total_")
            if self.rules.discards:
                pane |= self._results(f"{letter}_delta_")
                pane["answer"] = named_struct(self._results(f"{letter}_total_"))
                pane["pending"] = self._packed(f"{letter}_delta_")
            else:
                pane |= self._results(f"{letter}_total_")
            yield f"{letter}_emits", pane

    def _is_last(self, letter: str) -> str:
        """Return the condition that a pane is the last pane of its window.

        The condition is that the window can fire no pane in later epochs, and does not fire in any later phase of this
        epoch.
        """
        later = [after for after in phases(self.pipeline) if after > letter]
        fires = [f"{after}_emits" for after in later]
        if self.pipeline.takes_back:
            fires += [f"{after}_takes" for after in later]
        return " AND NOT ".join(["ends", *fires])

    def _taken_back(self) -> str:
        """Return the SQL expression for an array of retractions: for windows that were merged into a window that now
        fires (V3).
        """
        emitted = any_emits(self.pipeline)
        early = "a" in phases(self.pipeline)
        watermark = "IF(a_emits, watermark_before, watermark_after)" if early else "watermark_after"
        results = self.rules.results({name: self._unpacked("_old", name) for name in self.pipeline.parts})
        values = self._fired("b") | {
            "retraction": "true",
            "timing": f"CASE {' '.join(f'WHEN {at}_emits THEN {at}_timing' for at in phases(self.pipeline))} END",
            "watermark": f"TIMESTAMP_MICROS({watermark})",
            "generation": "_old.generation",
            "pane_index": "_old.panes",
            **instants(*SPAN, of="_old."),
            **results,
        }
        if self.pipeline.stamp is not None:
            values["event_time"] = f"TIMESTAMP_MICROS(_old.{quoted(self.pipeline.stamp)})"
        if self.rules.discards:
            values["answer"] = named_struct(results)
        old = f"IF({emitted}, predecessors, SLICE(predecessors, 1, 0))"
        return f"TRANSFORM({old}, _old -> {self._struct(values)})"

    def _absorbed(self) -> str:
        """Return the SQL expression for an array of partials, which remove the merged windows from the state.

        Partials are ledger rows with the states of windows.
        """
        values = {**_window_row(PARTIAL, of="_old."), "generation": "_old.generation", "gone": "true"}
        return f"TRANSFORM(absorbed, _old -> {self._struct(values)})"
