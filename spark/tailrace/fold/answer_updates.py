"""Update the tables that are computed from the ledgers of a stream's folds, beside the folds, on a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tailrace.fold.fold import Phases
from tailrace.fold.follower_pace import Pace
from tailrace.fold.ledger_fold import LedgerFold
from tailrace.fold.side_by_side import SideBySide
from tailrace.fold.task_thread import TaskThread


class AnswerUpdates:
    """The updates of a stream's tables of answers. The updates that are due together are one task of one thread."""

    def __init__(self, pace: Pace, threads: int) -> None:
        """Prepare up to `threads` threads for the updates of one task; `pace` says when updates are due."""
        self._pace, self._side_by_side = pace, SideBySide(max(1, threads))
        self._thread = TaskThread("following", room=1)

    @property
    def idle(self) -> bool:
        """True if no update is running or waiting."""
        return self._thread.idle

    def start(self, folds: Sequence[LedgerFold]) -> None:
        """Start the updates that are due; wait for them if the answers of a fold would otherwise be too old."""
        due = {fold.definition.name: (fold, update) for fold in folds if (update := fold.update()) is not None}
        if due:
            self._thread.submit(partial(self._update, due))
        if any(fold.waits for fold in folds):
            self._thread.settle()

    def settle(self) -> None:
        """Wait until all updates are done. Raises the error of an update that failed."""
        self._thread.settle()

    def close(self) -> None:
        """Wait until all updates are done, and end the threads."""
        self._thread.close()
        self._side_by_side.close()

    def _update(self, due: Mapping[str, tuple[LedgerFold, Callable[[], None]]]) -> None:
        """Run the updates of several definitions' tables. The pace counts them as one update."""
        started = self._pace.now()

        def update(fold: LedgerFold, _: Phases) -> None:
            due[fold.definition.name][1]()

        folds = [fold for fold, _ in due.values()]
        for _, outcome in self._side_by_side.each(folds, update, lambda fold: fold.side.direct, Phases()):
            outcome.result()
        self._pace.note("", self._pace.now() - started)
