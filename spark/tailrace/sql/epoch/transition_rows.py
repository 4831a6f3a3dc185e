"""Write the second half of an epoch in SQL: apply the rules of `model.step.transition` to the open windows.

The query is a chain of projections, one for each phase of rule T4. A row of the query has the window's state after the
epoch, and the result of each phase in which a pane may fire: `a` after the records have arrived, `b` after the
watermark has advanced, and `c` when the window closes.
"""

from __future__ import annotations

from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.transition import Row, Transition
from tailrace.model.triggers.trigger import Phase
from tailrace.sql.epoch.clock_row import clock_columns, clock_terms
from tailrace.sql.terms import Condition, Query, Sql, quoted

PHASES = {"a": Phase.DATA, "b": Phase.WATERMARK, "c": None}
"""A mapping from letters to phases; the names of a phase's columns begin with its letter. In phase `c`, windows
close.
"""


def phases(pipeline: Pipeline) -> list[str]:
    """Return the letters of the phases in which a pane of this definition may fire.

    The query omits the other phases. In the phase after the watermark has advanced, only a trigger that depends on the
    watermark can fire. If the trigger fires immediately for every fresh record, a window has nothing left to fire when
    it closes, unless its last pane always fires (`closing="always"`).
    """
    letters = ["a"]
    if pipeline.when.looks_at_watermark:
        letters.append("b")
    if not pipeline.when.fires_at_once or pipeline.closing == "always":
        letters.append("c")
    return letters


def any_emits(pipeline: Pipeline) -> Condition:
    """Return the condition that a window fires in at least one phase of the epoch."""
    return Condition("(" + " OR ".join(f"{letter}_emits" for letter in phases(pipeline)) + ")")


_END = "window_end"


class Chain:
    """A chain of projections that grows with `add`. Each projection names every column that it passes on.

    Each projection selects from the previous projection, which is in brackets after FROM. With a chain of named queries
    (`WITH`) instead, Spark would resolve the relations of each query again. This would take two fifths of the time that
    the planning of an epoch takes.
    """

    def __init__(self, start: Query, columns: list[str]) -> None:
        self.text = start
        self.columns = columns

    def add(self, terms: Row) -> None:
        """Add or replace columns. `terms` maps a column's name to an SQL expression over the columns of the previous
        projection.
        """
        kept = [quoted(name) for name in self.columns if name not in terms]
        made = [f"{term} AS {quoted(name)}" for name, term in terms.items() if term != quoted(name)]
        same = [quoted(name) for name, term in terms.items() if term == quoted(name)]
        self.text = Query(f"SELECT {', '.join(kept + same + made)} FROM ({self.text})")
        self.columns = [*(n for n in self.columns if n not in terms), *terms]


def transitions(pipeline: Pipeline, met: Query) -> Query:
    """Return the query for each window's transition. `met` is the query from `tailrace.sql.epoch.state_merge`."""
    rules = Transition(pipeline, Sql())
    state = {name: quoted(name) for name in rules.columns()}
    extra = ["held", "arrived", *pipeline.parts, *clock_columns(pipeline)]
    extra += ["predecessors", "absorbed"] if pipeline.where.merges else []
    chain = Chain(met, [*pipeline.key, "window_start", "window_end", *state, *extra])
    _arrive(pipeline, rules, chain, state)
    for letter in phases(pipeline):
        _fire(rules, chain, state, letter, PHASES[letter])
    touched = " OR ".join(["(arrived > 0L", *(f"{letter}_advances" for letter in phases(pipeline))]) + ")"
    after: Row = {"touched": touched, "remains": f"(NOT {rules.out_of_reach(_END, 'watermark_after')})"}
    chain.add(after | {"ends": rules.ends(state, "closing")})
    return chain.text


def _arrive(pipeline: Pipeline, rules: Transition, chain: Chain, state: Row) -> None:
    if pipeline.finishing == "close":
        refused = f"(held AND {rules.done(state)} AND arrived > 0L)"
        chain.add({"refused": refused, "arrived": f"IF({refused}, 0L, arrived)"})
        zero = {name: part.zero(Sql()) for name, part in pipeline.parts.items()}
        parts = {name: f"IF(refused, {zero[name]}, {quoted(name)})" for name in zero}
    else:
        parts = {name: quoted(name) for name in pipeline.parts}
    clock = clock_terms(pipeline)
    ends = {"open": rules.open(_END, clock), "closing": rules.closing(_END, clock)}
    chain.add(rules.arrived(state, "arrived", parts, _END, clock) | ends)


def _fire(rules: Transition, chain: Chain, state: Row, letter: str, phase: Phase | None) -> None:
    clock, advances = clock_terms(rules.pipeline), f"{letter}_advances"
    if phase is None:
        term = rules.closes(state, "closing", "b_emits" if "b_emits" in chain.columns else "false")
    else:
        term = rules.advances(state, _END, "open", clock, phase)
    chain.add({advances: term})
    terms = rules.firing(state, advances, _END, clock, phase)
    everything, fresh, fired = rules.contents(state)
    firing = {name: f"{letter}_{name}" for name in terms}
    columns: Row = {f"{letter}_{name}": term for name, term in terms.items() if (name, term) != ("takes", "false")}
    columns |= {f"{letter}_index": "panes"}
    columns |= {f"{letter}_total_{name}": term for name, term in everything.items()}
    if rules.discards:
        columns |= {f"{letter}_delta_{name}": term for name, term in fresh.items()}
    if rules.retracts or rules.later:
        columns |= {f"{letter}_before_{name}": term for name, term in fired.items()}
    chain.add(columns)
    total = {name: quoted(f"{letter}_total_{name}") for name in everything}
    chain.add(rules.fired(state, advances, firing, _END, clock, phase, total))
