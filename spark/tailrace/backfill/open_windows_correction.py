"""Compare answers and open windows with the log, and create ledger rows that correct the answers and windows.

For windows that the stream cannot change any more, only the answers are compared (`sql.results.compared_rows`). For
windows that are still open, the state is compared, too (`model.step.correction`). If possible, each step of this
comparison is one SQL projection; otherwise, the model's Python code compares the state.
"""

from __future__ import annotations

from functools import partial

from tailrace.engines.python.finished_windows import correction_calls
from tailrace.engines.session_protocol import Session
from tailrace.lake.schema.column_groups import SPAN
from tailrace.model.base.algebra import Scalars
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.correction import Correction
from tailrace.model.step.transition import Row, Transition
from tailrace.sql.epoch.ledger_rows import Rows
from tailrace.sql.epoch.transition_rows import Chain
from tailrace.sql.query_shapes import equal_in, islands, side_by_side
from tailrace.sql.records.assignment import join_items, key_names
from tailrace.sql.records.ways import Way, way
from tailrace.sql.results.answers import answer_rows
from tailrace.sql.results.backfill_rows import BackfillVersion, pane_rows
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, Sql, all_of, bracketed, quoted


class OpenWindowsCorrection:
    """The correction of one definition's open windows in one session, computed by the engine's own SQL operations."""

    def __init__(self, session: Session, pipeline: Pipeline, written: BackfillVersion) -> None:
        self.session, self.pipeline, self.written = session, pipeline, written
        self.rules = Transition(pipeline, Sql())
        self.parts = {name: part.type for name, part in pipeline.parts.items()}

    def corrected(
        self, computed: Query, state: Relation, held: Query, reached: Condition, meant: Condition = ALWAYS
    ) -> Query:
        """Compare windows with the log; the result has a row for each window.

        `computed` contains the batch answers (`answers.batch`), and `state` is a view of the open windows; both contain
        only windows that meet the condition `reached`. `held` contains the current answers (`answers.current`); only
        the answers of windows that meet `reached` are used. Among the windows that meet `reached`, only the windows
        that meet `meant` are compared. Merging windows are compared in groups of overlapping windows. A group of
        overlapping windows is compared if the window that was computed from the log for this group meets `meant`. If no
        window was computed from the log for a group, the group is compared if any of its windows meets `meant`.

        The result has the columns of `ComparedRows.differences`, the columns of the state, and the column `remains`.
        `remains` is True if the window was computed from the log and the stream can still change the window. In
        addition to the usual values, `change` may be `state`, which means that only the state was wrong.
        """
        started = self._started(self._beside(computed, state, held, reached))
        # Materialize the rows: otherwise, the engine would push a filter on the result through all steps, and the
        # filter would grow with each step.
        return self._changes(self.session.materialized(started), meant)

    def rows(self, view: Relation) -> Query:
        """Return SQL for the ledger rows that correct windows; `view` is a view of the result of `corrected`.

        Windows without a difference yield no rows.
        """
        partials = Rows(self.pipeline).of_corrected(view, Condition("remains"), Condition("open AND NOT remains"))
        # The answer of a window that has merged into a successor is retracted together with the successor's answer.
        panes = pane_rows(self.pipeline, view, self.written, Condition("NOT gone OR merged_away"))
        return Query(f"{panes} UNION ALL {partials}")

    @property
    def _gone(self) -> Condition:
        return Condition(str(self.rules.out_of_reach("window_end", f"{self.written.watermark}L")))

    def _beside(self, computed: Query, state: Relation, held: Query, reached: Condition) -> Query:
        """Return SQL that joins each window's batch answer, state and current answer; a missing part is null."""
        pipeline, keys = self.pipeline, key_names(self.pipeline)
        place = [*keys, *SPAN]
        items = [f"COALESCE(c.{n}, s.{n}) AS {n}" for n in place]
        items += ["c._arrived AS arrived", *(f"c.{quoted(n)} AS {quoted(n)}" for n in self.parts)]
        items += [f"c.{quoted(n)} AS {quoted(f'new_{n}')}" for n in pipeline.answer_columns]
        items += [f"s.{quoted(n)} AS {quoted(f's_{n}')}" for n in self.rules.columns()]
        items += ["c._there IS NOT NULL AS computed", "s._there IS NOT NULL AS open"]
        both = side_by_side(("c", bracketed(computed)), ("s", state), equal_in("c", "s", keys, SPAN))
        first = f"SELECT {join_items(items)} FROM {both}"
        held = self._held(held, state, reached)
        items = [f"COALESCE(f.{n}, h.{n}) AS {n}" for n in place]
        items += ["COALESCE(arrived, 0L) AS arrived", *(quoted(n) for n in self.parts)]
        items += [quoted(f"new_{n}") for n in pipeline.answer_columns]
        items += [quoted(f"s_{n}") for n in self.rules.columns()]
        items += [f"h.{quoted(n)} AS {quoted(f'old_{n}')}" for n in pipeline.answer_columns]
        items += ["COALESCE(computed, false) AS computed", "COALESCE(open, false) AS open"]
        items += ["h._there IS NOT NULL AS answered", "COALESCE(h._merged_away, false) AS merged_away"]
        items.append("COALESCE(h._times, 1L) > 1 AS doubled")
        on = equal_in("f", "h", keys, SPAN)
        return Query(f"SELECT {join_items(items)} FROM ({first}) f FULL OUTER JOIN ({held}) h ON {on}")

    def _held(self, held: Query, state: Relation, reached: Condition) -> Query:
        """Select the current answers of the windows that meet `reached`.

        After a window has merged into another window, the answer of the merged window is selected, too, until it is
        retracted (V3).
        """
        held = answer_rows(self.pipeline).each_once(held)
        if not self.pipeline.where.merges:
            return Query(f"SELECT *, true AS _there, false AS _merged_away FROM ({held}) WHERE {reached}")
        keys = key_names(self.pipeline)
        old = f"SELECT {join_items(keys, ['INLINE(predecessors)'])} FROM {state}"
        spans = ", ".join(f"w.{name} AS _old_{name}" for name in SPAN)
        lost = f"SELECT DISTINCT {join_items([f'w.{n} AS {n}' for n in keys], [spans])}, true AS _away FROM ({old}) w"
        on = " AND ".join([*(f"a.{n} <=> l.{n}" for n in keys), *(f"a.{n} = l._old_{n}" for n in SPAN)])
        items = "a.*, true AS _there, COALESCE(l._away, false) AS _merged_away"
        both = f"SELECT {items} FROM ({held}) a LEFT JOIN ({lost}) l ON {on}"
        return Query(f"SELECT * FROM ({both}) WHERE _merged_away OR {reached}")

    def _types(self) -> dict[str, str]:
        """Return the type of each column in the result of the method `_beside`."""
        pipeline, results = self.pipeline, self.pipeline.answer_columns
        return {
            **{name: pipeline.columns[name] for name in pipeline.key},
            **dict.fromkeys((*SPAN, "arrived"), "bigint"),
            **self.parts,
            **{f"new_{name}": type for name, type in results.items()},
            **{f"s_{name}": type for name, type in self.rules.columns().items()},
            **{f"old_{name}": type for name, type in results.items()},
            **dict.fromkeys(("computed", "open", "answered", "merged_away", "doubled"), "boolean"),
        }

    def _started(self, beside: Query) -> Query:
        """Return SQL that computes the state of each window from the log's records, and the columns `told` and `alike`.

        `told` is True if a pane of the window fires. `alike` is True if the stream's state of the window has the same
        totals as the state that is computed from the log.
        """
        chain = Chain(all_of(bracketed(beside)), list(self._types()))
        now = {"watermark": f"{self.written.watermark}L", "now": f"{self.written.processing_time}L"}
        fixed: Row = {**now, "new_generation": f"{self.written.generation}L"}
        correction = Correction(self.rules)
        for step in correction.steps:
            chain.add(step({**{name: quoted(name) for name in chain.columns}, **fixed}))
        held = correction.compared({name: quoted(f"s_{name}") for name in self.rules.columns()})
        same = " AND ".join(f"{term} <=> {quoted(name)}" for name, term in held.items()) or "true"
        nothing = " AND ".join(f"{held[name]} <=> {term}" for name, term in correction.nothing.items())
        chain.add({"alike": f"IF(computed, {same}, {nothing})" if self.rules.later else f"({same})"})
        return chain.text

    def _changes(self, started: Relation, meant: Condition) -> Query:
        """Return SQL that sets the column `change` for each window; the docstring of `corrected` describes the
        columns.
        """
        pipeline = self.pipeline
        equal = " AND ".join(f"{quoted(f'new_{n}')} <=> {quoted(f'old_{n}')}" for n in pipeline.answer_columns)
        equal += " AND NOT doubled"
        closed = f"computed = answered AND (NOT computed OR {equal})"
        # If all records of a window were retracted, the window has neither a computed nor a current answer, so only its
        # state is compared.
        alike = "alike" if self.rules.later else "computed AND alike"
        still = f"IF(open, {alike}, NOT computed AND NOT answered)"
        right = f"(IF({self._gone}, {closed}, {still}) AND NOT doubled)"
        # The answer of a window that merged into a successor is retracted when the successor fires. Until then, the
        # answer is not a fault.
        right = f"(({right}) OR (merged_away AND NOT computed AND NOT open))"
        marked = Query(f"SELECT *, {right} AS right, {self._gone} AS gone, {meant} AS meant FROM {started}")
        grouped = (
            self._grouped(marked) if pipeline.where.merges else Query(f"SELECT *, NOT right AS wrong FROM ({marked})")
        )
        change = f"CASE WHEN NOT wrong OR (gone AND computed AND answered AND {equal}) THEN 'same' "
        change += "WHEN NOT computed AND answered THEN 'gone' "
        change += f"WHEN computed AND told AND NOT answered THEN 'new' WHEN computed AND told AND NOT ({equal}) "
        change += "THEN 'changed' ELSE 'state' END AS change"
        items = [*key_names(pipeline), *SPAN, *(f"{quoted(n)} AS {quoted(f'part_{n}')}" for n in self.parts)]
        items += map(quoted, self.rules.columns())
        items += [quoted(f"{which}_{n}") for which in ("new", "old") for n in pipeline.answer_columns]
        items += ["computed", "open", "gone", "merged_away", "computed AND NOT gone AS remains", change]
        written = self.written
        items += [f"{written.epoch}L AS epoch", f"{written.processing_time}L AS now"]
        items += [f"{written.generation}L AS new_generation"]
        return Query(f"SELECT {join_items(items)} FROM ({grouped}) WHERE meant")

    def _grouped(self, marked: Query) -> Query:
        """Return SQL that sets the columns `wrong` and `meant` to the same values for all merging windows of a group.

        Windows that overlap, directly or through other windows, form a group. They are corrected together, because the
        state must never have two windows that overlap. A window that no stream can change any more forms a group alone.
        The exception is a window that merged into another window, while the absorbed window's answer is not retracted
        yet.
        """
        alone = "gone AND NOT merged_away"
        by = [*key_names(self.pipeline), alone]
        groups = islands(bracketed(marked), by, SPAN, alone=alone)
        whole = f"OVER (PARTITION BY {', '.join(by)}, island)"
        own = f"IF(BOOL_OR(computed) {whole}, BOOL_OR(meant AND computed) {whole}, BOOL_OR(meant) {whole})"
        items = f"NOT BOOL_AND(right) {whole} AS wrong, {own} AS meant"
        return Query(f"SELECT * EXCEPT (meant, apart, island), {items} FROM ({groups})")


class PythonCorrection(OpenWindowsCorrection):
    """The correction of one definition's open windows, computed by the model's Python code.

    This correction is used if a combiner of the definition merges accumulators (partial results) in Python.
    """

    def _started(self, beside: Query) -> Query:
        rules = Transition(self.pipeline, Scalars())
        types = {**self._types(), **rules.columns(), "told": "boolean", "alike": "boolean"}
        return all_of(self.session.mapped(beside, partial(correction_calls, rules, self.written), types))


def correction_for(session: Session, pipeline: Pipeline, written: BackfillVersion) -> OpenWindowsCorrection:
    """Return the native or the Python correction; the choice depends on how the session's engine executes the
    definition.
    """
    return (PythonCorrection if way(pipeline) is Way.PYTHON else OpenWindowsCorrection)(session, pipeline, written)
