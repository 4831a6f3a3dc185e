"""The fold of any definition: an entry for each kind."""

from __future__ import annotations

from functools import singledispatch

from tailrace.fold.computation_fold import ComputationFold
from tailrace.fold.fold import Fold
from tailrace.fold.ledger_fold import FoldSetup
from tailrace.fold.pipeline_fold import PipelineFold
from tailrace.fold.row_fold import RowFold
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError, Windowless
from tailrace.model.definition.pipeline import Pipeline


@singledispatch
def fold_of(definition: Definition, setup: FoldSetup) -> Fold:
    """Begin the running fold of a definition: make its tables, take its lease, and restore its state."""
    raise KindError("fold", definition)


fold_of.register(Pipeline, PipelineFold)
fold_of.register(Windowless, RowFold)
fold_of.register(Computation, ComputationFold)
