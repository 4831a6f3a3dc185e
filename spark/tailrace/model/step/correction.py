"""How a backfill corrects windows that are still open in the stream (rule X4).

The totals of a window's records in the log are compared with the totals in the window's state. If the totals are equal,
the window and its state stay unchanged. If the totals differ, the window is computed again from all of its records. The
window then has the generation number of the backfill, so its panes replace all earlier panes. The window's trigger is
then evaluated in the same way as in an epoch of the stream. If the window already has an answer, or has closed, the
window always fires, so that no wrong answer remains. The stream then continues from the corrected state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.model.base.algebra import Term
from tailrace.model.definition.pipeline import is_measure
from tailrace.model.step.transition import Row, Times, Transition
from tailrace.model.triggers.trigger import Phase

Step = Callable[[Row], Row]
"""A step of a correction: a function that takes a row and returns the columns that it adds or changes."""


@dataclass(frozen=True)
class Correction:
    """The steps that compute a window's state again from all of its records, in the algebra of `rules`.

    The row that is passed to the first step has the column `window_end` and the following columns.

    `arrived` is the number of the window's records in the log. The columns for the accumulator's parts contain the
    totals of these records. `answered` says whether the window already has an answer. `new_generation` is the
    generation of the backfill. `watermark` and `now` are the watermark and the processing time of the last epoch. After
    the last step, the column `told` is true if the window fires a pane.
    """

    rules: Transition

    @property
    def steps(self) -> list[Step]:
        """The functions that are applied to a row, one after the other."""
        return [self._opened, *(step for phase in Phase for step in self._phase(phase)), *self._phase(None)]

    def compared(self, row: Row) -> dict[str, Term]:
        """Return the totals in a window's state, to be compared with the totals in the log, as a dict from part names
        to totals.
        """
        total = self.rules.levelled(self.rules.contents(row)[0])
        return {name: term for name, term in total.items() if not is_measure(name)}

    @property
    def nothing(self) -> Row:
        """The result of `compared` for a window whose records were all retracted."""
        return self.compared(self.rules.opened(self.rules.o.literal(0, "bigint")))

    def _opened(self, row: Row) -> Row:
        opened = self.rules.opened(row["new_generation"])
        parts = {name: row[name] for name in self.rules.parts}
        arrived = self.rules.arrived(opened, row["arrived"], parts, row["window_end"], self._times(row))
        return arrived | {"told": self.rules.o.literal(False, "boolean")}

    def _phase(self, phase: Phase | None) -> list[Step]:
        rules, o = self.rules, self.rules.o

        def asks(row: Row) -> Row:
            times, always = self._times(row), o.literal(True, "boolean")
            if phase is None:
                closed = rules.closed(row["window_end"], row["watermark"])
                return {"fires": o.every(o.some(row["answered"], closed), o.no(row["told"]))}
            return {"fires": rules.advances(row, row["window_end"], always, times, phase)}

        def moves(row: Row) -> Row:
            # A correction fires at most one pane per window. These steps emit no retraction, because the correction
            # itself writes the retraction of the current answer.
            never, state = o.literal(False, "boolean"), {name: row[name] for name in rules.columns()}
            firing = {"emits": o.every(row["fires"], o.no(row["told"])), "takes": never}
            fired = rules.fired(state, row["fires"], firing, row["window_end"], self._times(row), phase)
            return fired | {"told": o.some(row["told"], row["fires"])}

        return [asks, moves]

    def _times(self, row: Row) -> Times:
        """Return a clock that stays at the watermark and processing time of the last epoch, and in which no signal
        arrives.
        """
        silent = self.rules.o.literal(False, "boolean")
        signals = dict.fromkeys(self.rules.pipeline.when.signals(), silent)
        return Times(row["watermark"], row["watermark"], row["now"], row["now"], signals)
