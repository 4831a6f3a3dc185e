"""Start the fold of a definition of any kind. Each kind of definition registers its own function."""

from __future__ import annotations

from functools import singledispatch

from tailrace.fold.computation_fold import ComputationFold
from tailrace.fold.ledger_fold import FoldSetup, LedgerFold
from tailrace.fold.pipeline_fold import PipelineFold
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError, Windowless
from tailrace.model.definition.pipeline import Pipeline


class RowFold(LedgerFold):
    """The running fold of a map or a join.

    Maps and joins emit rows, and no table of answers is computed from their ledgers. Records that may still find a
    partner hold back the watermark of a join's readers. So each commit of a join's fold records the upper limit of this
    watermark.
    """

    definition: Windowless

    def __init__(self, definition: Windowless, setup: FoldSetup) -> None:
        super().__init__(definition, setup)
        self.feeds = self.feeds or self.side.holds

    def _ensure(self) -> None:
        self._begun(self.definition)


@singledispatch
def fold_of(definition: Definition, setup: FoldSetup) -> LedgerFold:
    """Start the running fold of a definition: create its tables, take its lease, and restore its state."""
    raise KindError("fold", definition)


fold_of.register(Pipeline, PipelineFold)
fold_of.register(Windowless, RowFold)
fold_of.register(Computation, ComputationFold)
