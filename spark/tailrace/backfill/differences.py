"""What a backfill finds and writes: how answers and open windows differ from the log, and the ledger rows of that.

Of windows that the stream cannot reach any more the answers alone are compared (`answers.differences`). Of those still
open, their state, too, by `model.step.correction`: natively a projection a step, else by the model's own Python.
"""

from __future__ import annotations

from functools import partial

from tailrace.engines.python.finished_windows import starter
from tailrace.engines.session_protocol import Session
from tailrace.model.base.algebra import Scalars
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.correction import Correction
from tailrace.model.step.transition import Row, Transition
from tailrace.sql.epoch.ledger_rows import Rows
from tailrace.sql.epoch.transition_rows import Chain
from tailrace.sql.records.assignment import listed, names
from tailrace.sql.records.ways import Way, way
from tailrace.sql.results.answers import SPAN
from tailrace.sql.results.backfill_rows import BackfillVersion, pane_rows
from tailrace.sql.terms import Sql, quoted


class OpenWindowsCorrected:
    """The correction of one definition's open windows in one session, natively."""

    def __init__(self, session: Session, pipeline: Pipeline, written: BackfillVersion) -> None:
        self.session, self.pipeline, self.written = session, pipeline, written
        self.rules = Transition(pipeline, Sql())
        self.parts = {name: part.type for name, part in pipeline.parts.items()}

    def corrected(self, computed: str, state: str, held: str, meant: str) -> str:
        """The windows of the range as they come out, one row each.

        `computed` are the batch answers (`answers.batch`), `state` a view of the open windows, both of the range, and
        `held` the answers of table `p` (`answers.current`), of which those count whose windows are `meant`. Columns:
        those of `answers.differences`, `change` being `state` where only the state was wrong; the state's; `remains`.
        """
        started = self._started(self._beside(computed, state, held, meant))
        # Else a filter on what comes out would be pushed through all the steps, and grow with each.
        return self._changes(self.session.kept(started))

    def rows(self, view: str) -> str:
        """The ledger rows of a view of what `corrected` gave, less what is the same."""
        partials = Rows(self.pipeline).of_corrected(view, "remains", "open AND NOT remains")
        return f"{pane_rows(self.pipeline, view, self.written)} UNION ALL {partials}"

    @property
    def _gone(self) -> str:
        return str(self.rules.out_of_reach("window_end", f"{self.written.watermark}L"))

    def _beside(self, computed: str, state: str, held: str, meant: str) -> str:
        """Each window with what the log has of it, what the state has, and the answer held; null if there is none."""
        pipeline, keys = self.pipeline, names(self.pipeline)
        place = [*keys, *SPAN]
        both = " AND ".join([*(f"c.{n} <=> s.{n}" for n in keys), *(f"c.{n} = s.{n}" for n in SPAN)])
        items = [f"COALESCE(c.{n}, s.{n}) AS {n}" for n in place]
        items += ["c._arrived AS arrived", *(f"c.{quoted(n)} AS {quoted(n)}" for n in self.parts)]
        items += [f"c.{quoted(n)} AS {quoted(f'new_{n}')}" for n in pipeline.results]
        items += [f"s.{quoted(n)} AS {quoted(f's_{n}')}" for n in self.rules.columns()]
        items += ["c._there IS NOT NULL AS computed", "s._there IS NOT NULL AS open"]
        first = (
            f"SELECT {listed(items)} FROM (SELECT *, true AS _there FROM ({computed})) c "
            f"FULL OUTER JOIN (SELECT *, true AS _there FROM {state}) s ON {both}"
        )
        held = self._held(held, state, meant)
        both = " AND ".join([*(f"f.{n} <=> h.{n}" for n in keys), *(f"f.{n} = h.{n}" for n in SPAN)])
        items = [f"COALESCE(f.{n}, h.{n}) AS {n}" for n in place]
        items += ["COALESCE(arrived, 0L) AS arrived", *(quoted(n) for n in self.parts)]
        items += [quoted(f"new_{n}") for n in pipeline.results]
        items += [quoted(f"s_{n}") for n in self.rules.columns()]
        items += [f"h.{quoted(n)} AS {quoted(f'old_{n}')}" for n in pipeline.results]
        items += ["COALESCE(computed, false) AS computed", "COALESCE(open, false) AS open"]
        items += ["h._there IS NOT NULL AS answered", "COALESCE(h._merged_away, false) AS merged_away"]
        return f"SELECT {listed(items)} FROM ({first}) f FULL OUTER JOIN ({held}) h ON {both}"

    def _held(self, held: str, state: str, meant: str) -> str:
        """The answers held of the windows meant, and of those that merged away and were not taken back yet (V3)."""
        if not self.pipeline.where.merges:
            return f"SELECT *, true AS _there, false AS _merged_away FROM ({held}) WHERE {meant}"
        keys = names(self.pipeline)
        old = f"SELECT {listed(keys, ['INLINE(predecessors)'])} FROM {state}"
        spans = ", ".join(f"w.{name} AS _old_{name}" for name in SPAN)
        lost = f"SELECT DISTINCT {listed([f'w.{n} AS {n}' for n in keys], [spans])}, true AS _away FROM ({old}) w"
        on = " AND ".join([*(f"a.{n} <=> l.{n}" for n in keys), *(f"a.{n} = l._old_{n}" for n in SPAN)])
        items = "a.*, true AS _there, COALESCE(l._away, false) AS _merged_away"
        both = f"SELECT {items} FROM ({held}) a LEFT JOIN ({lost}) l ON {on}"
        return f"SELECT * FROM ({both}) WHERE _merged_away OR {meant}"

    def _types(self) -> dict[str, str]:
        """The columns of `_beside` and their types."""
        pipeline, results = self.pipeline, self.pipeline.results
        return {
            **{name: pipeline.columns[name] for name in pipeline.key},
            **dict.fromkeys((*SPAN, "arrived"), "bigint"),
            **self.parts,
            **{f"new_{name}": type for name, type in results.items()},
            **{f"s_{name}": type for name, type in self.rules.columns().items()},
            **{f"old_{name}": type for name, type in results.items()},
            **dict.fromkeys(("computed", "open", "answered", "merged_away"), "boolean"),
        }

    def _started(self, beside: str) -> str:
        """The windows with each one's state as it starts anew, `told`, and whether the state was the `alike`."""
        chain = Chain(f"SELECT * FROM ({beside})", list(self._types()))
        now = {"watermark": f"{self.written.watermark}L", "now": f"{self.written.processing_time}L"}
        fixed: Row = {**now, "new_generation": f"{self.written.generation}L"}
        correction = Correction(self.rules)
        for step in correction.steps:
            chain.add(step({**{name: quoted(name) for name in chain.columns}, **fixed}))
        held = correction.compared({name: quoted(f"s_{name}") for name in self.rules.columns()})
        same = " AND ".join(f"{term} <=> {quoted(name)}" for name, term in held.items()) or "true"
        chain.add({"alike": f"({same})"})
        return chain.text

    def _changes(self, started: str) -> str:
        """What becomes of each window, as `corrected` says it."""
        pipeline = self.pipeline
        equal = " AND ".join(f"{quoted(f'new_{n}')} <=> {quoted(f'old_{n}')}" for n in pipeline.results)
        closed = f"computed = answered AND (NOT computed OR {equal})"
        still = "IF(open, computed AND alike, NOT computed AND NOT answered)"
        right = f"IF({self._gone}, {closed}, {still})"
        # What merged away is told of when its successor fires.
        right = f"(({right}) OR (merged_away AND NOT computed AND NOT open))"
        by = f" OVER (PARTITION BY {listed(names(pipeline)) or '1'})"
        wrong = f"NOT BOOL_AND(right){by}" if pipeline.where.merges else "NOT right"
        marked = f"SELECT *, {right} AS right, {self._gone} AS gone FROM {started}"
        change = f"CASE WHEN NOT wrong OR (gone AND computed AND answered AND {equal}) THEN 'same' "
        change += "WHEN NOT computed AND answered THEN 'gone' "
        change += f"WHEN computed AND told AND NOT answered THEN 'new' WHEN computed AND told AND NOT ({equal}) "
        change += "THEN 'changed' ELSE 'state' END AS change"
        items = [*names(pipeline), *SPAN, *(f"{quoted(n)} AS {quoted(f'part_{n}')}" for n in self.parts)]
        items += map(quoted, self.rules.columns())
        items += [quoted(f"{which}_{n}") for which in ("new", "old") for n in pipeline.results]
        items += ["computed", "open", "gone", "computed AND NOT gone AS remains", change]
        written = self.written
        items += [f"{written.epoch}L AS epoch", f"{written.processing_time}L AS now"]
        items += [f"{written.generation}L AS new_generation"]
        return f"SELECT {listed(items)} FROM (SELECT *, {wrong} AS wrong FROM ({marked}))"


class PythonCorrected(OpenWindowsCorrected):
    """The correction of one definition's open windows by the model's own Python, for combiners that combine there."""

    def _started(self, beside: str) -> str:
        rules = Transition(self.pipeline, Scalars())
        types = {**self._types(), **rules.columns(), "told": "boolean", "alike": "boolean"}
        return f"SELECT * FROM {self.session.mapped(beside, partial(starter, rules, self.written), types)}"


def correcting(session: Session, pipeline: Pipeline, written: BackfillVersion) -> OpenWindowsCorrected:
    """The correction in the execution that the definition takes on the session's engine."""
    return (PythonCorrected if way(pipeline) is Way.PYTHON else OpenWindowsCorrected)(session, pipeline, written)
