"""The fold of a map or a join in a stream: both give rows of records, and nothing follows their ledgers."""

from __future__ import annotations

from tailrace.fold.ledger_fold import FoldSetup, LedgerFold
from tailrace.model.definition.definition import Windowless


class RowFold(LedgerFold):
    """The running fold of one map or join.

    Records without a partner hold back the readers of a join, so its commits say how far these may go.
    """

    def __init__(self, definition: Windowless, setup: FoldSetup) -> None:
        self.rows_of = definition
        super().__init__(definition, setup)
        self.feeds = self.feeds or self.side.holds

    def _ensure(self) -> None:
        self._begun(self.rows_of)
